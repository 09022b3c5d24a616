"""Kernels: functions that are registered under a name, by which programs call them.

A kernel is written in Python, or in C, C++ or Go for a process without Python: see `docs/program.md`.
"""

from __future__ import annotations

import functools
import json
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, overload

from .. import _arguments, _native
from .._arguments import text, validate
from .._attributes import decode_operator_attributes
from .._producing import call
from ..errors import SlotCountError

__all__ = ["Kernel", "kernel", "list_kernels", "load_kernels", "register_kernel"]

Function = Callable[..., Any]


def _name_or_function(name: str, value: Any) -> Any:
    """Accept a name or a function."""
    return text(name, value) if isinstance(value, str) else _arguments.function(name, value)


class Kernel(_native.Kernel):
    """A Python function that is registered as a kernel. It is made by `kernel` or `register_kernel`.

    A call of the object calls the function. A ``with`` block over the object closes it at the end of the block.

    Attributes
    ----------
    name : str
        The name under which programs call the kernel.
    function : callable
        The function itself.
    """

    name: str
    function: Function
    _identity: object

    @validate()
    def close(self) -> None:
        """Unregister the kernel. A second call does nothing.

        Runs that begin later do not find the kernel. Runs in progress continue to use it.
        """
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


# The kernels that are not closed. This keeps them alive, since a program knows only the name of a kernel.
_kernels: dict[str, Kernel] = {}
_lock = threading.RLock()


@validate(name=text, function=_arguments.function)
def register_kernel(name: str, function: Function) -> Kernel:
    """Register a function as a kernel, for all programs of this process.

    Parameters
    ----------
    name : str
        The name of the kernel, which `layers.call` takes.
    function : callable
        Called with an array for each input, and with the attributes of the operator as keyword arguments. An
        input is a NumPy array, a `LoDTensor` or a `DeviceArray`. It is read-only, and the function may keep it.
        The function returns None, an array, or a tuple or list of arrays: one for each output. They are copied.

    Returns
    -------
    Kernel
        The kernel, which is registered until its `Kernel.close` is called.

    Raises
    ------
    StateError
        Another kernel has this name. If the same function is defined again, as when a notebook
        cell runs once more, this is no error: the new function replaces the old one. A lambda is never replaced.

    Notes
    -----
    The function runs on the thread that runs the program, with the GIL. Several runs may call it at the same
    time. `Executor.run` raises an exception of the function itself.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> from pyfeed.program.kernels import register_kernel
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
@validate(function=_name_or_function)
def kernel(function: Function | str, /) -> Kernel | Callable[[Function], Kernel]:
    """Register the decorated function as a kernel.

    As ``@kernel``, it registers the function under its own name; as ``@kernel("name")``, under that name.

    Parameters
    ----------
    function : callable or str
        The function, or the name of the kernel: see `register_kernel`.

    Returns
    -------
    Kernel or callable
        The kernel. If a name is given, a decorator that returns the kernel.

    Raises
    ------
    StateError
        As for `register_kernel`.

    Examples
    --------
    >>> from pyfeed.program.kernels import kernel, list_kernels
    >>> @kernel("square, of integers")
    ... def square(x):
    ...     return x * x
    >>> square(3), "square, of integers" in list_kernels()
    (9, True)
    >>> square.close()
    """
    if isinstance(function, str):
        return functools.partial(register_kernel, function)
    return register_kernel(function.__name__, function)


@validate(path=_arguments.path)
def load_kernels(path: str | os.PathLike[str]) -> None:
    """Load a shared object that registers kernels in C or C++. It is never unloaded.

    Parameters
    ----------
    path : str or path
        The file. A name without a slash is a file in the working directory. See ``pf_kernel_load`` in
        ``pyfeed.h`` for what the file must contain. Loading it again does nothing.

    Raises
    ------
    FileError
        The file cannot be loaded.
    InvalidArgument
        The file does not have the function that registers kernels.
    StateError
        A kernel in the file has the name of a registered kernel.

    Examples
    --------
    >>> from pyfeed.errors import FileError
    >>> from pyfeed.program.kernels import load_kernels
    >>> try:
    ...     load_kernels("./no such file.so")
    ... except FileError:
    ...     print("not loaded")
    not loaded
    """
    _native._load_kernels(os.fsencode(path))


@validate()
def list_kernels() -> list[str]:
    """List the names of all registered kernels, in any language.

    Returns
    -------
    list of str

    Examples
    --------
    >>> from pyfeed.program.kernels import list_kernels, register_kernel
    >>> with register_kernel("negate", lambda x: -x):
    ...     "negate" in list_kernels()
    True
    """
    found: list[str] = json.loads(_native._kernels())
    return found


def _call(
    function: Function, inputs: tuple[Any, ...], attributes: str, num_outputs: int
) -> tuple[Any, ...] | list[Any]:
    """Call the function of a kernel, and check the number of its results. C calls this."""
    result: Any = call("kernel", function, *inputs, **decode_operator_attributes(attributes))
    outputs: tuple[Any, ...] | list[Any] = result if isinstance(result, (tuple, list)) else (result,)
    if result is None:
        outputs = ()
    if len(outputs) != num_outputs:
        raise SlotCountError(f"outputs: expected {num_outputs}, found {len(outputs)}")
    return outputs
