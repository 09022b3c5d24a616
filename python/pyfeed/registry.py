"""The formats there are, and new ones made of Python generators."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy.typing as npt

from . import _arguments, _attributes, _exit, _native, slots
from ._arguments import takes, text
from ._errors import QueueClosed
from ._failures import untold
from ._lod import with_bytes
from .queue import PyArrayFeedQueue, produced
from .slots import SLOTS, Shape

F = TypeVar("F", bound=Callable[..., Iterable[Sequence[Any]]])


class Format(NamedTuple):
    """A kind of file.

    Attributes
    ----------
    tag : str
        Its name: what `open_files` takes as ``format``, or before a colon.
    suffixes : tuple of str
        Those of its files.
    writes : bool
        Whether `open_writer` can write it.
    """

    tag: str
    suffixes: tuple[str, ...]
    writes: bool


@takes()
def formats() -> list[Format]:
    """All formats, by tag.

    Examples
    --------
    >>> from pyfeed import formats
    >>> [f for f in formats() if f.tag == "npy"]
    [Format(tag='npy', suffixes=('.npy',), writes=True)]
    """
    found = json.loads(_native._formats())
    return [Format(f["tag"], tuple(f["suffixes"]), f["writes"]) for f in found]


@takes(tag=text, suffixes=_arguments.names, **SLOTS)
def register_format(
    tag: str,
    suffixes: Sequence[str] = (),
    *,
    shapes: Sequence[Shape] | None = None,
    dtypes: Sequence[npt.DTypeLike | None] | None = None,
    lod_levels: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
) -> Callable[[F], F]:
    """Add a format that a generator function reads: a decorator.

    The function is called with a file's path and the options given to `open_files`, and yields the
    tuples of the file, of arrays; `bytes` and `str` will do for a slot of bytes. Each file that is
    open has a thread for it. An exception reaches whoever reads, after the tuples before it. If
    nobody reads on, the generator's ``close`` is called.

    Parameters
    ----------
    tag : str
        Its name: what `open_files` takes as ``format``, or before a colon.
    suffixes : sequence of str
        Those of its files, each with its dot.
    shapes, dtypes, lod_levels, names : sequence, optional
        What its tuples look like, where `open_files` is not told: as for `py_array_reader`.

    Raises
    ------
    StateError
        There is a format of that tag or suffix. The function of a format may be defined again,
        though, as when a cell of a notebook runs once more: the new one takes the place of the old.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pyfeed import open_files, register_format
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
    wanted = slots.attributes(shapes, dtypes, lod_levels, names)
    about = (tag, tuple(suffixes), None if wanted is None else _attributes.encode({"slots": wanted}))

    @takes(function=_arguments.function)
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
    """A thread listens for files to be opened, from Python or C++, and gives each a thread of its own."""

    def __init__(self, tag: str, native: _native.Format, function: Callable[..., Any], identity: object) -> None:
        self.tag = tag
        self.native = native
        self.function = function
        self.identity = identity
        self.start(self.listen, f"pyfeed-format-{tag}")

    def start(self, target: Callable[..., None], name: str, *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, name=name, daemon=True)
        _exit.movers.add(thread)
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
            except RuntimeError as error:  # no more threads
                _failed(queue, error)
            del queue

    def read(self, queue: PyArrayFeedQueue, path: str, options: str) -> None:
        try:
            self.push_all(queue, path, json.loads(options))
            return
        except BaseException as error:
            if not _failed(queue, error):
                return
        # The exception is the queue's until a reader raises it, and may not be gone before whoever reads is done.
        try:
            queue.wait_pass(queue.stats()["pass_id"])
        except QueueClosed:
            pass

    def push_all(self, queue: PyArrayFeedQueue, path: str, options: dict[str, Any]) -> None:
        bytes_slots = slots.of_bytes(slots.Slot("", *s) for s in queue._slots())
        try:
            iterable: Any = produced(self.function, path, **options)
        except StopIteration as stop:  # it would end the consumer's loop without a word
            raise RuntimeError("the function raised StopIteration") from stop
        try:
            for arrays in iterable:
                try:
                    queue.push(with_bytes(arrays, bytes_slots) if bytes_slots else arrays)
                except QueueClosed:
                    return  # nobody reads on
        finally:
            close = getattr(iterable, "close", None)
            if close is not None:
                close()
        queue.close()


def _failed(queue: PyArrayFeedQueue, error: BaseException) -> bool:
    """Tell whoever reads or, if it has moved on, whoever reads what threads leave behind."""
    try:
        queue._fail_with(error, 0, homeless=True)
        return True
    except QueueClosed:
        untold(error)
        return False
