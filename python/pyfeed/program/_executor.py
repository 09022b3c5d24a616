"""The executor, which runs programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import _arguments, _native
from .._arguments import instance, optional, refuse, validate
from .._native import CancelToken
from .._place import CPUPlace, Place, check_place
from .._scope import Scope, check_scope, global_scope
from ._program import Program, Variable, check_program, default_main_program

# Arrays by variables, or by the names of variables.
Feed = Mapping[str, Any] | Mapping[Variable, Any] | Mapping[str | Variable, Any]


def _variable(name: str, value: Any) -> str:
    """Accept a variable of a program, or its name, and return the name."""
    if isinstance(value, Variable):
        return value.name
    return (
        _arguments.text(name, value) if isinstance(value, str) else refuse(name, "a Variable or the name of one", value)
    )


def check_feed(name: str, value: Any) -> dict[str, Any]:
    """Accept a mapping from variables, or their names, to arrays."""
    if not isinstance(value, Mapping):
        refuse(name, "a mapping from variables to arrays", value)
    return {_variable(f"{name}: key", variable): array for variable, array in value.items()}


def check_fetch(name: str, value: Any) -> list[str]:
    """Accept a variable, or several, and return their names."""
    every = [value] if isinstance(value, (str, Variable)) else value
    return [_variable(name, one) for one in _arguments.items(name, every, "a Variable, or a sequence of them")]


class Executor(_native.Executor):
    """Runs programs. Each run is in the thread that calls `run`, without the GIL.

    Any number of threads may run programs with the same executor at the same time.

    Parameters
    ----------
    place : Place, optional
        Where kernels compute, by default `CPUPlace`. An executor with a `CUDAPlace` has a stream for kernels.
        Built-in operators compute on the CPU in any case: see `docs/program.md`.

    Raises
    ------
    UnsupportedError
        `place` is a `CUDAPlace`, and there is no CUDA driver or no device.

    Attributes
    ----------
    place : Place
        The place of the executor.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     x = layers.data("x", [2], "int64")
    ...     y = layers.increment(x, in_place=False)
    >>> Executor().run(program, feed={"x": np.array([[1, 2]])}, fetch=[y])
    (array([[2, 3]]),)
    """

    place: Place

    @validate(place=optional(check_place))
    def __new__(cls, place: Place | None = None) -> Executor:
        place = CPUPlace() if place is None else place
        self = cls._new(*place)
        self.place = place
        return self

    @validate(
        program=optional(check_program),
        scope=optional(check_scope),
        feed=optional(check_feed),
        fetch=check_fetch,
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
        """Run a program once.

        Parameters
        ----------
        program : Program, optional
            The program, by default the default main program. The run executes it as it is when the run begins.
        scope : Scope, optional
            The scope of the persistable variables, which include readers. By default the global scope. All other
            variables belong to the run, and are released at its end.
        feed : mapping, optional
            Arrays by variables, or by the names of variables. They are copied into the variables before the first
            operator runs.
        fetch : Variable, str or sequence of them
            The variables whose tensors are returned at the end of the run. By default, there is none.
        timeout : float, optional
            The largest duration of the whole run, in seconds. By default, there is no limit. With 0, an operator that
            would have to wait ends the run, but operators compute as long as they need.
        cancel : CancelToken, optional
            A token that ends the run when it is cancelled.

        Returns
        -------
        tuple of numpy.ndarray
            A read-only view for each variable in `fetch`, or a `LoDTensor` if it has levels of detail. Later runs do
            not change it.

        Raises
        ------
        EndOfData
            A reader came to the end of its pass: see `layers.has_next`.
        Timeout
            The run took longer than `timeout`.
        Cancelled
            The token was cancelled, or a reader that the run was waiting in was reset.
        Error
            An operator failed. ``op`` of the exception is the operator, and the message names the line that built it.
            An exception of a Python kernel or producer is raised itself, with a note that names the operator.

        Notes
        -----
        The run blocks where its operators block. Ctrl-C ends a run in the main thread. The timeout, the token and
        Ctrl-C are also checked between operators, but they do not interrupt a kernel. The readers stay usable: the
        next read continues where the run stopped.
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
