"""Names for variables that nobody else uses in this process."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import defaultdict
from collections.abc import Iterator

from ._arguments import takes, text

_Counts = defaultdict[str, Iterator[int]]

_process: _Counts = defaultdict(itertools.count)


class _Guards(threading.local):
    def __init__(self) -> None:
        self.all: list[_Counts] = []


_guards = _Guards()


@takes(key=text)
def generate(key: str) -> str:
    """``key_0``, ``key_1`` and so on. Any thread."""
    return f"{key}_{next((_guards.all[-1] if _guards.all else _process)[key])}"


@takes(key=text)
def of_process(key: str) -> str:
    """As `generate`, whatever `guard` there is: for variables of a scope that others use, too."""
    return f"{key}_{next(_process[key])}"


@takes()
@contextlib.contextmanager
def guard() -> Iterator[None]:
    """Have names begin anew for the length of a with statement, in this thread: for those of a program.

    So the same lines build the same program. Readers that are made eagerly are not affected.

    Examples
    --------
    >>> from pyfeed import Program, layers, program_guard, unique_name
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
