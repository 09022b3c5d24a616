"""Readers: what a training loop reads from."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from . import _arguments, _exit, _native, slots, unique_name
from ._arguments import flag, instance, integer, optional, takes, text
from ._attributes import decode
from ._errors import ForkError, InvalidArgument, NotFoundError, QueueClosed, StateError
from ._failures import untold
from ._map import Work
from ._names import name_of
from .place import CPUPlace, Place, a_place, attribute, places
from .queue import QUEUE, PyArrayFeedQueue, PyArrayFeedQueueHolder, produced
from .scope import Scope, a_scope, global_scope
from .slots import SLOTS, Shape, Slot

if TYPE_CHECKING:
    import numpy.typing as npt


class Reader(_native.Reader):
    """Delivers tuples of arrays, pass by pass: an iterator that can be reset.

    Made by `open_files`, `py_array_reader`, `from_generator` or `random_data`; the methods below make
    a reader on top of this one, and chain: ``open_files(f).shuffle(1000).batch(32).double_buffer()``.
    Read only from the topmost of a chain: what another takes below it lacks.

    Any number of threads may read from it at once; each tuple goes to one of them. Threads of the
    library do the reading ahead, without the GIL; they end with the reader.

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
    @takes(scope=a_scope, name=text)
    def in_variable(cls, scope: Scope, name: str) -> Reader:
        """The reader that is in a variable of a scope."""
        return cls._in_variable(scope, name, None, direct=False)

    @classmethod
    def _in_variable(cls, scope: Scope, name: str, below: object, *, direct: bool) -> Reader:
        reader = scope._use(name, lambda var: cls._of(var, direct))
        reader.name, reader.scope, reader._below = name, scope, below
        _exit.readers.add(reader)
        return reader

    @classmethod
    def _owning(cls, scope: Scope, name: str, below: object, *, direct: bool = False) -> Reader:
        """As in_variable, and the variable goes with the reader."""
        reader = cls._in_variable(scope, name, below, direct=direct)
        weakref.finalize(reader, _erase, scope, name).atexit = False
        return reader

    def _under(self, kind: str, *others: Reader, _direct: bool = False, **attributes: object) -> Reader:
        """A reader of this one, made by the operator of that kind."""
        name = unique_name.of_process(f"{kind}_reader")
        self.scope._create(f"create_{kind}_reader", name, self.name, *(o.name for o in others), **attributes)
        return Reader._owning(self.scope, name, (self, *others) if others else self, direct=_direct)

    @takes(batch_size=integer(1, "tuple"), drop_last=flag, ragged=flag)
    def batch(self, batch_size: int, drop_last: bool = False, *, ragged: bool = False) -> Reader:
        """A reader of batches of `batch_size` tuples.

        Slots whose first dimension is -1 are concatenated along it, and their LoD merged; others
        are stacked under a new first dimension. The last batch of a pass may be smaller, unless
        `drop_last`.

        A tuple whose slots add different numbers of rows to a batch is a `ShapeError`, unless `ragged`: its
        rows could not be told from those of the next tuple. A stacked slot adds one row, another its first
        dimension, one with levels of detail its outermost sequences.
        """
        name = unique_name.of_process("batch_reader")
        self.scope.create_batch_reader(name, self.name, batch_size, drop_last, ragged=ragged)
        return Reader._owning(self.scope, name, self)

    @takes(buffer_size=integer(1, "tuple"), seed=integer(0))
    def shuffle(self, buffer_size: int, seed: int = 0) -> Reader:
        """A reader of the same tuples in another order.

        Block by block: `buffer_size` tuples are read and permuted, and the next block is read while
        this one is served. One seed gives one order, on every machine; each pass has another. It
        moves references, not arrays.

        Parameters
        ----------
        buffer_size : int
            In tuples, at least 1. Twice as many may be in memory.
        seed : int
            From 0 to 2**63 - 1.
        """
        return self._under("shuffle", buffer_size=buffer_size, seed=seed)

    @takes(rank=integer(0), world=integer(1))
    def shard(self, rank: int, world: int) -> Reader:
        """A reader of every `world`-th tuple, from the `rank`-th on: one of `world` equal parts.

        Each of `world` processes reads all and keeps its own. Where there are many files, give each
        process a part of `list_files` instead.
        """
        return self._under("shard", rank=rank, world=world)

    @takes(pass_num=integer(0, "passes"))
    def multi_pass(self, pass_num: int) -> Reader:
        """A reader that goes on to the next pass by itself, until it has delivered `pass_num` of them.

        `pass_id` says in which one it is. 0 goes on for ever.
        """
        return self._under("multi_pass", pass_num=pass_num)

    @takes(place=optional(places), depth=integer(1, "tuple"))
    def double_buffer(self, place: Place | Sequence[Place] | None = None, depth: int = 2) -> Reader:
        """A reader that has the next tuples ready: a thread of the library reads them meanwhile.

        A consumer that finds none ready makes a batch itself, beside the thread, rather than wait.

        Parameters
        ----------
        place : Place or sequence of Place, optional
            Where the tuples are consumed: `CPUPlace`, the default, or where they are copied to. Several
            `CUDAPlace` get a tuple each in turn.
        depth : int
            Tuples that are ready at most at each place, beside the one that is being consumed. Of batches that
            take a few microseconds to copy, eight or so: to wake the thread costs as much as one of them.
        """
        return self._under("double_buffer", place=attribute(CPUPlace() if place is None else place), depth=depth)

    @takes(others=instance(_native.Reader, "a Reader"), strict=flag)
    def zip(self, *others: Reader, strict: bool = False) -> Reader:
        """A reader whose tuples have the slots of this one's, then those of the others'.

        The pass ends with the shortest.

        Parameters
        ----------
        *others : Reader
            At least one, in the same scope.
        strict : bool
            Readers that do not end together are a `StateError`, at the end of the pass.

        Examples
        --------
        >>> from pyfeed import random_data
        >>> images, labels = random_data([(2, 2)], count=3), random_data([()], ["int64"], high=9, count=3)
        >>> [(image.shape, label.shape) for image, label in images.zip(labels, strict=True)]
        [((2, 2), ()), ((2, 2), ()), ((2, 2), ())]
        """
        if not others:
            raise InvalidArgument("zip: expected at least 1 other reader, found none")
        for other in others:
            if other.scope is not self.scope:
                raise InvalidArgument(f"zip: expected readers in one scope, found {other!r} in another")
        return self._under("zip", *others, strict=strict)

    @takes(
        function=_arguments.function,
        num_threads=integer(1),
        **SLOTS,
        capacity=optional(integer(1, "tuple")),
        ordered=flag,
    )
    def map(
        self,
        function: Callable[..., Any],
        num_threads: int = 1,
        shapes: Sequence[Shape] | None = None,
        dtypes: Sequence[npt.DTypeLike | None] | None = None,
        lod_levels: Sequence[int] | None = None,
        names: Sequence[str] | None = None,
        *,
        capacity: int | None = None,
        ordered: bool = True,
    ) -> Reader:
        """A reader of what a function makes of each tuple.

        Parameters
        ----------
        function : callable
            Called with the arrays of a tuple, one argument a slot, in threads of its own. Gives a
            tuple or list of arrays, or a single array for a single slot; `bytes` and `str` will do
            for a slot of bytes. The result is copied. An exception in it reaches the reader, after
            the tuples before it, with a note that says which tuple it was, and with the attributes ``file``
            and ``record``, if the tuple is from a file.
        num_threads : int
            How many call it at a time. With the GIL, more than one helps as far as the function
            lets go of it, as NumPy, decoders and I/O do.
        shapes, dtypes, lod_levels, names : sequence, optional
            What the results look like, one a slot, as for `py_array_reader`. As what the function is
            called with, if they are not given.
        capacity : int, optional
            Tuples that were taken and whose results are not yet delivered, at most. 4 a thread, and
            at least 16, if not given.
        ordered : bool
            Results in the order of the tuples; else as they come.

        Examples
        --------
        >>> from pyfeed import random_data
        >>> reader = random_data([(2,)], high=100, count=4).map(lambda x: x.sum(), shapes=[()])
        >>> [bool(0 <= x < 200) for x, in reader]
        [True, True, True, True]
        """
        size = max(16, 4 * num_threads) if capacity is None else capacity
        wanted = slots.attributes(shapes, dtypes, lod_levels, names)
        attributes = {} if wanted is None else {"slots": wanted}
        out = self._under("map", capacity=size, ordered=ordered, _direct=True, **attributes)
        work = Work(self, function, slots.of_bytes(out.slots), size + num_threads)
        out._below = work
        work.start(out._workers, out.name, num_threads)
        return out

    @property
    def slots(self) -> list[Slot]:
        """What the arrays of its tuples look like."""
        return slots.described(decode(self._stats())["slots"])

    @property
    def pass_id(self) -> int:
        """The pass, from 0, of the last tuple that was read, where a reader below has `multi_pass`; else 0."""
        return int(decode(self._stats())["pass_id"])

    @takes()
    def feeder(self) -> PyArrayFeedQueue:
        """The queue that it reads from, of a reader that `py_array_reader` made, or that is on top of one.

        Raises
        ------
        StateError
            It does not read from one such queue: it reads files, say.

        Examples
        --------
        >>> from pyfeed import Scope, py_array_reader
        >>> reader, queue = py_array_reader(2, [(-1,)], scope=Scope())
        >>> reader.batch(2).feeder() is queue
        True
        """
        found = self._feeder()
        if found is None:
            raise StateError(f"feeder: expected a reader of a PyArrayFeedQueue, found {self!r}")
        return found

    def _feeder(self) -> PyArrayFeedQueue | None:
        below = self._below
        if isinstance(below, PyArrayFeedQueue):
            return below
        if isinstance(below, Work):
            below = below.below
        return below._feeder() if isinstance(below, Reader) else None

    @takes()
    def stats(self) -> dict[str, Any]:
        """What it did since it was made, and what the readers below it did.

        Returns
        -------
        dict
            ``reader``, its kind; ``tuples`` and ``bytes`` delivered; ``passes`` begun; ``pass_id``;
            ``waited_seconds`` that threads slept in it for want of data, summed; ``slots``, a list
            of `Slot`; ``details`` of its kind, such as what ``open_files(..., on_corrupt="skip")``
            has skipped: ``corrupt``, a count, and ``ledger``, where and why; and ``below``, a list
            of the same for the readers it reads from.
        """
        return _described(decode(self._stats()))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self

    def __repr__(self) -> str:
        return f"<Reader {self.name!r}>"


def _described(stats: dict[str, Any]) -> dict[str, Any]:
    stats["slots"] = slots.described(stats["slots"])
    stats["below"] = [_described(each) for each in stats.get("below", ())]
    details = stats.setdefault("details", {})
    for place in details.get("ledger") or ():
        place["file"] = name_of(place["file"])
    return stats


def _erase(scope: Scope, name: str) -> None:
    try:
        scope.erase(name)
    except (NotFoundError, ForkError):
        pass


@takes(
    capacity=integer(1, "tuple"),
    shapes=slots.shapes,
    place=optional(a_place),
    **QUEUE,
    name=optional(text),
    scope=optional(a_scope),
)
def py_array_reader(
    capacity: int,
    shapes: Sequence[Shape],
    place: Place | None = None,
    *,
    dtypes: Sequence[npt.DTypeLike | None] | None = None,
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
    >>> reader, queue = py_array_reader(8, [(-1, 784), (-1,)], CPUPlace(), dtypes=["float32", "int64"])
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
    feeder = unique_name.of_process("py_array_feed_queue") if name is None else name
    queue = PyArrayFeedQueueHolder(scope, feeder).init_once(
        capacity,
        shapes,
        place,
        dtypes=dtypes,
        bytes_limit=bytes_limit,
        lod_levels=lod_levels,
        restartable=restartable,
    )
    weakref.finalize(queue, _erase, scope, feeder).atexit = False
    out = f"{feeder}_reader"
    scope.create_py_array_reader(out, feeder)
    return Reader._owning(scope, out, queue, direct=True), queue


@takes(
    function=_arguments.function,
    shapes=slots.shapes,
    place=optional(a_place),
    **QUEUE,
    capacity=integer(1, "tuple"),
    name=optional(text),
    scope=optional(a_scope),
)
def from_generator(
    function: Callable[[], Iterable[Sequence[Any]]],
    shapes: Sequence[Shape],
    place: Place | None = None,
    *,
    dtypes: Sequence[npt.DTypeLike | None] | None = None,
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
    shapes, place, dtypes, capacity, bytes_limit, lod_levels, name, scope
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
    name = unique_name.of_process("py_array_feed_queue") if name is None else name
    reader, queue = _feed(capacity, shapes, place, dtypes, bytes_limit, lod_levels, name, scope, restartable=True)
    # The queue's own object keeps the exception of a pass, whose traceback leads to the reader: the thread must keep
    # neither.
    producer = queue.producer()
    thread = threading.Thread(
        target=_run_passes,
        args=(producer, weakref.ref(queue), function),
        name=f"pyfeed-{reader.name}",
        daemon=True,
    )
    _exit.movers.add(thread)
    thread.start()
    return reader


def _run_passes(
    queue: PyArrayFeedQueue,
    readers_queue: weakref.ref[PyArrayFeedQueue],
    function: Callable[[], Iterable[Sequence[Any]]],
) -> None:
    pass_id = None
    while True:
        try:
            pass_id = queue.wait_pass(pass_id)
        except QueueClosed:
            return
        try:
            _run_pass(queue, function, pass_id)
            queue.close(pass_id)
        except BaseException as e:
            _fail(readers_queue() or queue, e, pass_id)


def _run_pass(queue: PyArrayFeedQueue, function: Callable[[], Iterable[Sequence[Any]]], pass_id: int) -> None:
    iterable: Any = produced(function)
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


def _fail(queue: PyArrayFeedQueue, error: BaseException, pass_id: int) -> None:
    """Tell the reader, or, if it has moved on, the hook for what ends threads."""
    try:
        queue.fail(error, pass_id)
    except QueueClosed:
        untold(error)
