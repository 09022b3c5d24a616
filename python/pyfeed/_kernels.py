"""Kernels: functions that programs call by their names."""

from __future__ import annotations

import functools
import json
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, overload

from . import _arguments, _native
from ._arguments import takes, text
from ._attributes import decode_of_operator
from ._errors import SlotCountError

Function = Callable[..., Any]


def name_or_function(name: str, value: Any) -> Any:
    """What a decorator is given."""
    return text(name, value) if isinstance(value, str) else _arguments.function(name, value)


class Kernel(_native.Kernel):
    """A Python function that programs call: made by `kernel` or `register_kernel`.

    It may be called as the function itself. As a context manager, it is closed at the end of the block.

    Attributes
    ----------
    name : str
    function : callable
    """

    name: str
    function: Function
    _identity: object

    @takes()
    def close(self) -> None:
        """Take it back: runs that begin later do not find it. Twice is fine."""
        with _lock:
            if _kernels.get(self.name) is self:
                del _kernels[self.name]
            self._close()

    def __call__(self, *arguments: Any, **attributes: Any) -> Any:
        return self.function(*arguments, **attributes)

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Kernel {self.name!r}{', closed' if self.closed else ''}>"


# Those that are not closed: a program knows them by name only.
_kernels: dict[str, Kernel] = {}
_lock = threading.RLock()


@takes(name=text, function=_arguments.function)
def register_kernel(name: str, function: Function) -> Kernel:
    """Make a function known as a kernel, for every program in this process, until it is closed.

    Parameters
    ----------
    name : str
        What `layers.call` calls it.
    function : callable
        Called with a NumPy array (or `LoDTensor`) for each input, read-only but its own to keep, and the
        operator's attributes by name. Gives None, an array or a tuple of arrays: one for each output, which
        is copied. It runs on the thread that runs the program, with the GIL. An exception ends the run, and
        comes out of it.

    Raises
    ------
    StateError
        There is a kernel of that name. A function may be defined again, though, as when a cell of a notebook
        runs once more: the new one takes the place of the old.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed import Executor, Program, layers, program_guard, register_kernel
    >>> program = Program()
    >>> with program_guard(program):
    ...     x = layers.data("x", [2])
    ...     low, high = layers.call("extremes", x, 2)
    >>> with register_kernel("extremes", lambda x: (x.min(), x.max())):
    ...     found = Executor().run(program, feed={"x": np.array([[1, 2]], "float32")}, fetch=[low, high])
    >>> [float(x) for x in found]
    [1.0, 2.0]
    """
    identity = (getattr(function, "__module__", None), getattr(function, "__qualname__", None), type(function))
    with _lock:
        old = _kernels.get(name)
        if old is not None and old._identity == identity and "<lambda>" not in str(identity[1]):
            old.close()
        made = Kernel._register(name, functools.partial(_call, function))
        made.name, made.function, made._identity = name, function, identity
        _kernels[name] = made
    functools.update_wrapper(made, function, updated=())
    return made


@overload
def kernel(function: Function, /) -> Kernel: ...
@overload
def kernel(name: str, /) -> Callable[[Function], Kernel]: ...
@takes(function=name_or_function)
def kernel(function: Function | str, /) -> Kernel | Callable[[Function], Kernel]:
    """Make a function a kernel: a decorator, with a name or, as it is, by the function's own.

    See `register_kernel`.

    Examples
    --------
    >>> from pyfeed import kernel, kernels
    >>> @kernel("square, of integers")
    ... def square(x):
    ...     return x * x
    >>> square(3), "square, of integers" in kernels()
    (9, True)
    >>> square.close()
    """
    if isinstance(function, str):
        return functools.partial(register_kernel, function)
    return register_kernel(function.__name__, function)


@takes(path=_arguments.path)
def load_kernels(path: str | os.PathLike[str]) -> None:
    """Load a shared object, for good, that registers kernels: see ``pf_kernel_load`` in ``pyfeed.h``.

    Raises
    ------
    FileError
        It cannot be loaded.
    """
    _native._load_kernels(os.fsencode(path))


@takes()
def kernels() -> list[str]:
    """The names of all kernels, of every language."""
    found: list[str] = json.loads(_native._kernels())
    return found


def _call(
    function: Function, inputs: tuple[Any, ...], attributes: str, num_outputs: int
) -> tuple[Any, ...] | list[Any]:
    """What C calls."""
    try:
        result: Any = function(*inputs, **decode_of_operator(attributes))
    except StopIteration as stop:  # it would end a loop around the run without a word
        raise RuntimeError("the kernel raised StopIteration") from stop
    outputs: tuple[Any, ...] | list[Any] = result if isinstance(result, (tuple, list)) else (result,)
    if result is None:
        outputs = ()
    if len(outputs) != num_outputs:
        raise SlotCountError(f"outputs: expected {num_outputs}, found {len(outputs)}")
    return outputs
