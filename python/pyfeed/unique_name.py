"""Unique names for variables of programs."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import defaultdict
from collections.abc import Iterator

from ._arguments import text, validate

__all__ = ["generate", "guard"]

_Counts = defaultdict[str, Iterator[int]]

_process: _Counts = defaultdict(itertools.count)


class _Guards(threading.local):
    def __init__(self) -> None:
        self.all: list[_Counts] = []


_guards = _Guards()


@validate(key=text)
def generate(key: str) -> str:
    """Return a unique name: ``key_0``, ``key_1`` and so on. Any thread may call this.

    Parameters
    ----------
    key : str
        The beginning of the name. Each key has its own numbers.

    Returns
    -------
    str
        A name that is unique in the process, or within the innermost `guard` of this thread.

    Examples
    --------
    >>> from pyfeed import unique_name
    >>> with unique_name.guard():
    ...     [unique_name.generate("fc") for _ in range(2)]
    ['fc_0', 'fc_1']
    """
    return f"{key}_{next((_guards.all[-1] if _guards.all else _process)[key])}"


@validate(key=text)
def _generate_process_wide(key: str) -> str:
    """Return a unique name as `generate` does, but ignore guards: for variables of a scope, which threads share."""
    return f"{key}_{next(_process[key])}"


@validate()
@contextlib.contextmanager
def guard() -> Iterator[None]:
    """Restart the numbers of generated names, in this thread, within a ``with`` statement.

    The same lines of code then build the same program. The names of readers that are made outside of programs are
    not affected.

    Examples
    --------
    >>> from pyfeed import unique_name
    >>> from pyfeed.program import Program, layers, program_guard
    >>> def build():
    ...     program = Program()
    ...     with unique_name.guard(), program_guard(program):
    ...         layers.assign(layers.data("x", [3]))
    ...     return program
    >>> [repr(build().variable("assign_0")) for _ in range(2)]
    ["<Variable 'assign_0': float32 (-1, 3)>", "<Variable 'assign_0': float32 (-1, 3)>"]
    """
    _guards.all.append(defaultdict(itertools.count))
    try:
        yield
    finally:
        _guards.all.pop()
