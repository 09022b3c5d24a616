"""Readers: what a training loop reads from."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy.typing as npt

from . import _exit, _native, unique_name
from ._errors import ForkError, NotFoundError, QueueClosed
from .place import Place
from .queue import PyArrayFeedQueue, PyArrayFeedQueueHolder, Shape
from .scope import Scope, global_scope


class Reader(_native.Reader):
    """Delivers tuples of arrays, pass by pass: an iterator that can be reset.

    Any number of threads may read from it; each tuple goes to one of them.

    Attributes
    ----------
    name : str
        The variable it is in, for the read op and for C++.
    scope : Scope
    """

    name: str
    scope: Scope
    _below: object  # what must live as long as this reader does

    @classmethod
    def in_variable(cls, scope: Scope, name: str) -> Reader:
        """The reader that is in a variable of a scope."""
        return cls._in_variable(scope, name, None, direct=False)

    @classmethod
    def _in_variable(cls, scope: Scope, name: str, below: object, *, direct: bool) -> Reader:
        reader = scope._use(name, lambda var: cls._of(var, direct))
        reader.name, reader.scope, reader._below = name, scope, below
        return reader

    @classmethod
    def _owning(cls, scope: Scope, name: str, below: object, *, direct: bool = False) -> Reader:
        """As in_variable, and the variable goes with the reader."""
        reader = cls._in_variable(scope, name, below, direct=direct)
        weakref.finalize(reader, _erase, scope, name).atexit = False
        return reader

    def batch(self, batch_size: int, drop_last: bool = False) -> Reader:
        """A reader of batches of `batch_size` tuples.

        Slots whose first dimension is -1 are concatenated along it, and their LoD merged; others
        are stacked under a new first dimension. The last batch of a pass may be smaller, unless
        `drop_last`. Read only from the topmost of a chain: what another takes below it lacks.
        """
        name = unique_name.generate("batch_reader")
        self.scope.create_batch_reader(name, self.name, batch_size, drop_last)
        return Reader._owning(self.scope, name, self)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self

    def __repr__(self) -> str:
        return f"<Reader {self.name!r}>"


def _erase(scope: Scope, name: str) -> None:
    try:
        scope.erase(name)
    except (NotFoundError, ForkError):
        pass


def py_array_reader(
    capacity: int,
    shapes: Sequence[Shape],
    place: Place | None = None,
    dtypes: Sequence[npt.DTypeLike | None] | None = None,
    *,
    bytes_limit: int = 0,
    lod_levels: Sequence[int] | None = None,
    name: str | None = None,
    scope: Scope | None = None,
) -> tuple[Reader, PyArrayFeedQueue]:
    """A reader of what Python pushes, and the queue to push into.

    Parameters
    ----------
    capacity : int
        The queue's, in tuples. See `bytes_limit` for bytes.
    shapes : sequence of shapes
        One a slot. -1 matches any size; a first dimension of -1 is the batch's, equal in all slots.
    place : Place, optional
        Where the tuples are consumed. `CPUPlace`, the default.
    dtypes : sequence, optional
        One a slot; None, in place of one or of all: what the first tuple has.
    bytes_limit : int
        Most bytes of all tuples queued or being written; 0: no limit. A larger tuple is refused.
    lod_levels : sequence of int, optional
        Levels of detail, one number a slot: such a slot takes and gives `LoDTensor`.
    name : str, optional
        The queue's variable; the reader's is ``name + "_reader"``. Made up if not given.
    scope : Scope, optional
        The global one by default. The two variables are erased with the last of the two objects.

    Returns
    -------
    Reader, PyArrayFeedQueue

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed import CPUPlace, py_array_reader
    >>> reader, queue = py_array_reader(8, [(-1, 784), (-1,)], CPUPlace(), ["float32", "int64"])
    >>> queue.push((np.zeros((32, 784), "float32"), np.zeros(32, "int64")))
    >>> image, label = reader.read()
    >>> image.shape
    (32, 784)
    """
    return _feed(capacity, shapes, place, dtypes, bytes_limit, lod_levels, name, scope, restartable=False)


def _feed(
    capacity: int,
    shapes: Sequence[Shape],
    place: Place | None,
    dtypes: Sequence[npt.DTypeLike | None] | None,
    bytes_limit: int,
    lod_levels: Sequence[int] | None,
    name: str | None,
    scope: Scope | None,
    *,
    restartable: bool,
) -> tuple[Reader, PyArrayFeedQueue]:
    scope = global_scope() if scope is None else scope
    feeder = unique_name.generate("py_array_feed_queue") if name is None else name
    queue = PyArrayFeedQueueHolder(scope, feeder).init_once(
        capacity, shapes, dtypes, place, bytes_limit=bytes_limit, lod_levels=lod_levels, restartable=restartable
    )
    weakref.finalize(queue, _erase, scope, feeder).atexit = False
    out = f"{feeder}_reader"
    scope.create_py_array_reader(out, feeder)
    return Reader._owning(scope, out, queue, direct=True), queue


def from_generator(
    function: Callable[[], Iterable[Sequence[Any]]],
    shapes: Sequence[Shape],
    dtypes: Sequence[npt.DTypeLike | None] | None = None,
    place: Place | None = None,
    *,
    capacity: int = 8,
    bytes_limit: int = 0,
    lod_levels: Sequence[int] | None = None,
    name: str | None = None,
    scope: Scope | None = None,
) -> Reader:
    """A reader of what a function yields, which can be reset: the function is then called again.

    Parameters
    ----------
    function : callable
        Called without arguments, in a thread of its own, once a pass; gives an iterable of tuples of
        arrays. First called when something is read. An exception in it reaches the reader, after the
        tuples before it. When the reader is reset, or gone, the iterable's ``close`` is called.
    shapes, dtypes, place, capacity, bytes_limit, lod_levels, name, scope
        As for `py_array_reader`.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed import from_generator
    >>> reader = from_generator(lambda: ((np.full(2, i),) for i in range(3)), [(2,)])
    >>> [x.tolist() for x, in reader]
    [[0, 0], [1, 1], [2, 2]]
    >>> reader.reset()
    >>> reader.read()[0].tolist()
    [0, 0]
    """
    name = unique_name.generate("py_array_feed_queue") if name is None else name
    reader, queue = _feed(capacity, shapes, place, dtypes, bytes_limit, lod_levels, name, scope, restartable=True)
    # The thread has an object of its own for the queue. The reader's keeps the exception of a pass,
    # whose traceback leads to the reader itself, and must not be kept alive by the thread.
    feeder = reader.scope._use(name, PyArrayFeedQueue._of)
    thread = threading.Thread(
        target=_run_passes,
        args=(feeder, weakref.ref(queue), function),
        name=f"pyfeed-{reader.name}",
        daemon=True,
    )
    weakref.finalize(reader, _shutdown, feeder)
    _exit.movers.add(thread)
    thread.start()
    return reader


def _shutdown(queue: PyArrayFeedQueue) -> None:
    try:
        queue.shutdown()
    except ForkError:
        pass


def _run_passes(
    queue: PyArrayFeedQueue,
    readers_queue: weakref.ref[PyArrayFeedQueue],
    function: Callable[[], Iterable[Sequence[Any]]],
) -> None:
    pass_id = 0
    while True:
        try:
            pass_id = queue.wait_pass(pass_id)
        except QueueClosed:
            return
        try:
            _run_pass(queue, function, pass_id)
            queue.close(pass_id)
        except BaseException as e:
            _fail(readers_queue(), e, pass_id)


def _run_pass(queue: PyArrayFeedQueue, function: Callable[[], Iterable[Sequence[Any]]], pass_id: int) -> None:
    iterable: Any = function()
    try:
        for arrays in iterable:
            try:
                queue.push(arrays, pass_id=pass_id)
            except QueueClosed:
                break  # the consumer has moved on
    finally:
        close = getattr(iterable, "close", None)
        if close is not None:
            close()


def _fail(queue: PyArrayFeedQueue | None, error: BaseException, pass_id: int) -> None:
    """Tell the reader, or, if it has moved on, whoever reads what threads leave behind."""
    try:
        if queue is not None:
            queue.fail(error, pass_id)
            return
    except QueueClosed:
        pass
    threading.excepthook(
        threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
    )
