"""The executor: what runs programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import _arguments, _native
from ._arguments import instance, optional, refuse, takes
from ._native import CancelToken
from .place import CPUPlace, Place, a_place
from .program import Program, Variable, a_program, default_main_program
from .scope import Scope, a_scope, global_scope

__all__ = ["CancelToken", "Executor"]

# Arrays for variables, or for their names.
Feed = Mapping[str, Any] | Mapping[Variable, Any] | Mapping[str | Variable, Any]


def _variable(name: str, value: Any) -> str:
    """The name of a variable of a program."""
    if isinstance(value, Variable):
        return value.name
    return (
        _arguments.text(name, value) if isinstance(value, str) else refuse(name, "a Variable or the name of one", value)
    )


def fed(name: str, value: Any) -> dict[str, Any]:
    """Arrays by the names of variables."""
    if not isinstance(value, Mapping):
        refuse(name, "a mapping from variables to arrays", value)
    return {_variable(f"{name}: key", variable): array for variable, array in value.items()}


def fetched(name: str, value: Any) -> list[str]:
    """The names of variables."""
    every = [value] if isinstance(value, (str, Variable)) else value
    return [_variable(name, one) for one in _arguments.items(name, every, "a Variable, or a sequence of them")]


class Executor(_native.Executor):
    """Runs programs at a place: each run in the thread that calls, without the GIL.

    Any number of threads may run programs by one executor at a time.

    Parameters
    ----------
    place : Place, optional
        `CPUPlace`, the default.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed import Executor, Program, layers, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     x = layers.data("x", [2], "int64")
    ...     y = layers.increment(x, in_place=False)
    >>> Executor().run(program, feed={"x": np.array([[1, 2]])}, fetch=[y])
    (array([[2, 3]]),)
    """

    place: Place

    @takes(place=optional(a_place))
    def __new__(cls, place: Place | None = None) -> Executor:
        place = CPUPlace() if place is None else place
        self = cls._new(*place)
        self.place = place
        return self

    @takes(
        program=optional(a_program),
        scope=optional(a_scope),
        feed=optional(fed),
        fetch=fetched,
        timeout=optional(_arguments.seconds),
        cancel=optional(instance(CancelToken, "a CancelToken")),
    )
    def run(
        self,
        program: Program | None = None,
        scope: Scope | None = None,
        feed: Feed | None = None,
        fetch: Variable | str | Sequence[Variable | str] = (),
        *,
        timeout: float | None = None,
        cancel: CancelToken | None = None,
    ) -> tuple[Any, ...]:
        """Run a program once through.

        Persistable variables are those of `scope`, readers among them; the others go with the run. Ctrl-C
        ends a run in the main thread, wherever it is.

        Parameters
        ----------
        program : Program, optional
            The default main program, if not given.
        scope : Scope, optional
            The global one by default.
        feed : mapping, optional
            Variables, or their names, and the array for each, which is copied there first.
        fetch : Variable, str or sequence of them
            The variables whose tensors are wanted in the end.
        timeout : float, optional
            Seconds for all of the run. None: for ever. 0: operators do not wait, but work as long as it takes.
        cancel : CancelToken, optional
            Ends the run when it is cancelled.

        Returns
        -------
        tuple of numpy.ndarray
            What was fetched: read-only views, which stay as they are. `LoDTensor` where there are levels of
            detail.

        Raises
        ------
        EndOfData
            A read came to the end of the data: see `layers.has_next`.
        Timeout
            The time went by.
        Cancelled
            The token was cancelled.
        Error
            An operator failed: `Error.op` says which. What a kernel, or who feeds a reader, has raised comes
            out as it is, with a note that says so.
        """
        program = default_main_program() if program is None else program
        scope = global_scope() if scope is None else scope
        feeds: dict[str, Any] = {} if feed is None else feed  # type: ignore[assignment]
        return self._run(
            program.handle,
            scope.handle,
            tuple(feeds),
            tuple(feeds.values()),
            tuple(fetch),  # type: ignore[arg-type]
            timeout,
            0 if cancel is None else cancel.handle,
        )

    def __repr__(self) -> str:
        return f"Executor({self.place!r})"
