"""File formats: a list of all formats, and a decorator that adds a format, which a Python generator reads."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy.typing as npt

from . import _arguments, _attributes, _exit, _native, _slots
from ._arguments import text, validate
from ._failures import report_unraisable
from ._producing import call_producer, push_all
from ._queue import PyArrayFeedQueue
from ._slots import SLOT_CHECKS, Shape
from ._writer import Writer
from .errors import QueueClosed

__all__ = ["Format", "Writer", "list_formats", "register_format"]

F = TypeVar("F", bound=Callable[..., Iterable[Sequence[Any]]])


class Format(NamedTuple):
    """A file format.

    Attributes
    ----------
    tag : str
        The name of the format, which `open_files` takes as ``format``, or before a colon in a file name.
    suffixes : tuple of str
        The suffixes of its files, each with its dot.
    writes : bool
        Whether `open_writer` can write the format.
    """

    tag: str
    suffixes: tuple[str, ...]
    writes: bool


@validate()
def list_formats() -> list[Format]:
    """List all file formats, sorted by tag.

    Returns
    -------
    list of Format

    Examples
    --------
    >>> from pyfeed.formats import list_formats
    >>> [f for f in list_formats() if f.tag == "npy"]
    [Format(tag='npy', suffixes=('.npy',), writes=True)]
    """
    found = json.loads(_native._formats())
    return [Format(f["tag"], tuple(f["suffixes"]), f["writes"]) for f in found]


@validate(tag=text, suffixes=_arguments.names, **SLOT_CHECKS)
def register_format(
    tag: str,
    suffixes: Sequence[str] = (),
    *,
    shapes: Sequence[Shape] | None = None,
    dtypes: Sequence[npt.DTypeLike | None] | None = None,
    lod_levels: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
) -> Callable[[F], F]:
    """Return a decorator that registers a function as a file format.

    The function reads one file. It is called with the path of the file as a str, and with the options given to
    `open_files` as keyword arguments. It yields tuples as for `PyArrayFeedQueue.push`.
    The format stays registered until the process ends, also for readers that C++ makes in this process. Such
    formats can be read, but not written.

    Parameters
    ----------
    tag : str
        The name of the format, which `open_files` takes as ``format``, or before a colon in a file name.
    suffixes : sequence of str
        The suffixes of its files, each with its dot. By default, there is none.
    shapes, dtypes, lod_levels, names : sequence, optional
        The slots of the tuples, as for `py_array_reader`: an entry for each slot. They are required unless
        `open_files` is given them.

    Returns
    -------
    callable
        The decorator. It returns the function itself.

    Raises
    ------
    StateError
        Another format has this tag or one of the suffixes. If the same function is defined again, as when a
        notebook cell runs once more, this is no error: the new function replaces the old one.

    Notes
    -----
    Each open file has a daemon thread, which calls the function. A read raises an exception of the function
    itself, after the tuples before it. If the consumer stops reading before the end of the file, the ``close``
    method of the generator is called.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pyfeed import open_files
    >>> from pyfeed.formats import register_format
    >>> @register_format("words", [".words"], shapes=[(-1,)], dtypes=["uint8"], lod_levels=[1])
    ... def read_words(path, upper=False):
    ...     with open(path) as file:
    ...         for word in file.read().split():
    ...             yield (word.upper() if upper else word,)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(f"{folder}/a.words", "w") as file:
    ...         _ = file.write("to be or not")
    ...     [x.bytes_list()[0] for x, in open_files(f"{folder}/a.words", upper=True)]
    [b'TO', b'BE', b'OR', b'NOT']
    """
    wanted = _slots.to_attributes(shapes, dtypes, lod_levels, names)
    about = (tag, tuple(suffixes), None if wanted is None else _attributes.encode({"slots": wanted}))

    @validate(function=_arguments.function)
    def register(function: F) -> F:
        identity = (about, getattr(function, "__module__", None), getattr(function, "__qualname__", None))
        with _lock:
            old = _formats.get(tag)
            if old is not None and old.identity == identity:
                old.function = function
            else:
                native = _native.Format._register(*about[:2], None if wanted is None else json.dumps(wanted))
                _formats[tag] = _PythonFormat(tag, native, function, identity)
        return function

    return register


_formats: dict[str, _PythonFormat] = {}
_lock = threading.Lock()


class _PythonFormat:
    """A format that a Python function reads.

    One thread waits for files that Python or C++ open, and starts a thread for each of them.
    """

    def __init__(self, tag: str, native: _native.Format, function: Callable[..., Any], identity: object) -> None:
        self.tag = tag
        self.native = native
        self.function = function
        self.identity = identity
        self.start(self.listen, f"pyfeed-format-{tag}")

    def start(self, target: Callable[..., None], name: str, *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, name=name, daemon=True)
        _exit.install()
        _exit.daemon_threads.add(thread)
        thread.start()

    def listen(self) -> None:
        while True:
            try:
                queue, path, options = self.native.wait(PyArrayFeedQueue)
            except QueueClosed:
                return
            _exit.watch(queue)
            try:
                self.start(self.read, f"pyfeed-{self.tag}-{os.path.basename(path)}", queue, path, options)
            except RuntimeError as error:  # the system starts no more threads
                _fail(queue, error)
            del queue

    def read(self, queue: PyArrayFeedQueue, path: str, options: str) -> None:
        try:
            self.push_all(queue, path, json.loads(options))
            return
        except BaseException as error:
            if not _fail(queue, error):
                return
        # The object of the queue owns the exception until a reader raises it. Keep it until the consumer is done.
        try:
            queue.wait_pass(queue.stats()["pass_id"])
        except QueueClosed:
            pass

    def push_all(self, queue: PyArrayFeedQueue, path: str, options: dict[str, Any]) -> None:
        if push_all(queue.push, call_producer(self.function, path, **options)):
            queue.close()


def _fail(queue: PyArrayFeedQueue, error: BaseException) -> bool:
    """Fail the queue. If the consumer is gone, report the error to `threading.excepthook`, and return False."""
    try:
        queue._fail_with(error, 0, reader_owned=True)
        return True
    except QueueClosed:
        report_unraisable(error)
        return False
