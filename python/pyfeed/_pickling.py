"""Pickles for worker processes, from notebooks and prompts too.

Pickle sends a function or a class by its name, and the worker imports its module. The code of a notebook or of a prompt
is in a module ``__main__`` that no process can import, so there everything of ``__main__`` is sent by value, by
cloudpickle. A worker needs cloudpickle too, but nothing of pyfeed, to load such a pickle.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
from collections import ChainMap
from collections.abc import Callable
from typing import Any

from .errors import ArgumentTypeError


def portable(name: str, value: Any) -> Any:
    """Return an object whose pickle is loaded as `value`, also in a process that cannot import ``__main__``.

    Pickle the result where `value` itself would be pickled: while multiprocessing starts a process, if `value` contains
    locks or pipes of multiprocessing.

    Parameters
    ----------
    name : str
        The name of the argument, for errors.
    value : object
        A function, a class, or anything that contains them. A tuple of several is best: what they share is then sent
        once.

    Raises
    ------
    ArgumentTypeError
        `value` would have to be sent by value, and cloudpickle is not installed.
    """
    if not _is_interactive():
        return value
    try:
        import cloudpickle  # noqa: F401
    except ImportError:
        culprit = None if _main_has_file() else _find_main(value)
        if culprit is None:
            return value
        raise ArgumentTypeError(
            f"{name}: expected what a worker process can import, found {culprit}, which was defined in a notebook or "
            "at a prompt: install cloudpickle (pip install pyarrayfeed[notebook]), move the code to a module, or use "
            'method="fork"'
        ) from None
    return _ByValue(value)


def dumps(value: object) -> bytes:
    """Pickle a value; everything of ``__main__`` by value. `pickle.loads` is the reverse."""
    from multiprocessing.reduction import ForkingPickler

    import cloudpickle

    buffer = io.BytesIO()
    # multiprocessing adds reducers for its locks, pipes and queues.
    reducers = ChainMap(cloudpickle.Pickler.dispatch_table, ForkingPickler(buffer).dispatch_table)
    # A class attribute, because cloudpickle's own one hides the attribute of an object.
    type("Pickler", (cloudpickle.Pickler,), {"dispatch_table": reducers})(buffer).dump(value)
    return buffer.getvalue()


class _ByValue:
    """A value that is pickled by `dumps` as part of another pickle."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __reduce__(self) -> tuple[Callable[[bytes], object], tuple[bytes]]:
        return pickle.loads, (dumps(self._value),)


def _main_has_file() -> bool:
    """Report whether ``__main__`` is a file of the program, which multiprocessing imports in a new process."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return not spec.name.startswith("_pyrepl.")  # the file of the prompt itself, in Python 3.13
    return getattr(main, "__file__", None) is not None


def _is_interactive() -> bool:
    """Report whether ``__main__`` may have functions that are in no file. A prompt, or IPython, has set `sys.ps1`."""
    return hasattr(sys, "ps1") or not _main_has_file()


def _find_main(value: Any) -> str | None:
    """Return the name of something of ``__main__`` in a value, as far as it is visible from outside; else None."""
    if isinstance(value, functools.partial):
        return _find_main((value.func, *value.args, *value.keywords.values()))
    if isinstance(value, (tuple, list)):
        return next(filter(None, map(_find_main, value)), None)
    if type(value).__module__ == "pyfeed_worker._producer":  # a generator function
        return _find_main(getattr(value, "_function", None))
    owner = value if hasattr(value, "__qualname__") else type(value)
    return str(owner.__qualname__) if getattr(owner, "__module__", None) == "__main__" else None
