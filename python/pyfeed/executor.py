"""The executor: what runs programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import _native
from ._native import CancelToken
from .place import CPUPlace, Place
from .program import Program, Variable, default_main_program
from .scope import Scope, global_scope

__all__ = ["CancelToken", "Executor"]

# Arrays for variables, or for their names.
Feed = Mapping[str, Any] | Mapping[Variable, Any] | Mapping[str | Variable, Any]


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

    def __new__(cls, place: Place | None = None) -> Executor:
        place = CPUPlace() if place is None else place
        self = cls._new(*place)
        self.place = place
        return self

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
        if not isinstance(program, Program):
            raise TypeError(f"program: expected a Program, found {program!r}")
        scope = global_scope() if scope is None else scope
        if not isinstance(scope, Scope):
            raise TypeError(f"scope: expected a Scope, found {scope!r}")
        if cancel is not None and not isinstance(cancel, CancelToken):
            raise TypeError(f"cancel: expected a CancelToken, found {cancel!r}")
        feeds = () if feed is None else tuple(feed.items())
        wanted = [fetch] if isinstance(fetch, (str, Variable)) else fetch
        return self._run(
            program.handle,
            scope.handle,
            tuple(_name(variable) for variable, _ in feeds),
            tuple(array for _, array in feeds),
            tuple(map(_name, wanted)),
            timeout,
            0 if cancel is None else cancel.handle,
        )

    def __repr__(self) -> str:
        return f"Executor({self.place!r})"


def _name(variable: Variable | str) -> str:
    if isinstance(variable, Variable):
        return variable.name
    if isinstance(variable, str):
        return variable
    raise TypeError(f"expected a Variable or the name of one, found {variable!r}")
