"""PyArrayFeedQueue: the bounded queue that Python puts tuples of arrays into."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _arguments, _exit, _failures, _native, slots
from ._arguments import flag, instance, integer, optional, refuse, shown, takes
from ._errors import DTypeError, Error, InvalidArgument, QueueClosed, ShapeError, StateError
from ._lod import offsets_of
from .place import CPUPlace, Place, a_place
from .scope import Scope, ScopeVariable
from .slots import Shape

# What makes a queue is given, besides its capacity, shapes and place.
QUEUE = {
    "dtypes": optional(slots.dtypes),
    "bytes_limit": integer(0),
    "lod_levels": optional(slots.lod_levels),
}

if TYPE_CHECKING:
    import numpy.typing as npt


class PyArrayFeedQueue(_native.Queue):
    """A bounded first-in-first-out queue of tuples of arrays, for many producers and consumers.

    Made by `py_array_reader` or `PyArrayFeedQueueHolder.init_once`, not by calling the class.

    There are three ways in. None holds the GIL while it waits or copies more than some kilobytes.

    ``push(arrays)``
        copies the arrays, once, into the memory that the consumer gets.
    ``push(arrays, copy=False)``
        lends them: they are kept, and NumPy's are read-only, until the consumer is done.
    ``with slot(rows) as arrays:``
        gives writable arrays in the queue's own memory: nothing is copied at all.

    As a context manager the queue is closed at the end of the block, or failed by its exception.

    Every wait takes a ``timeout`` in seconds (None: for ever; 0: not at all) and ends on Ctrl-C in
    the main thread. All methods may be called from any thread.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed import Scope, py_array_reader
    >>> reader, queue = py_array_reader(2, [(-1, 3), (-1,)], scope=Scope())
    >>> with queue:
    ...     queue.push((np.zeros((4, 3), np.float32), np.arange(4)))
    >>> [(x.shape, y.tolist()) for x, y in reader]
    [((4, 3), [0, 1, 2, 3])]
    """

    _entered_pass: int | None

    @takes()
    def size(self) -> int:
        """The number of tuples in the queue."""
        return self.stats()["size"]

    @takes()
    def capacity(self) -> int:
        """The number of tuples, not bytes, that the queue takes."""
        return self.stats()["capacity"]

    @takes()
    def is_full(self) -> bool:
        """Whether a push would wait for the number of tuples, those being written included."""
        s = self.stats()
        return s["size"] + s["reserved"] >= s["capacity"]

    @takes()
    def is_empty(self) -> bool:
        """Whether a pop would wait, or find the end."""
        return self.size() == 0

    @takes(
        exception=instance(BaseException, "an instance of an exception class"),
        pass_id=_arguments.optional(_arguments.pass_id),
    )
    def fail(self, exception: BaseException, pass_id: int | None = None) -> None:
        """End the pass with an error.

        What is queued is still delivered; then every pop and read raises this very exception, with
        its traceback. A C++ consumer gets its type, text and traceback as text.

        Raises
        ------
        QueueClosed
            The pass has ended already: the exception would be lost.
        """
        self._fail_with(exception, pass_id)

    def _fail_with(self, exception: BaseException, pass_id: int | None, *, homeless: bool = False) -> None:
        self._fail(exception, *_failures.told(exception), pass_id, homeless)

    @takes()
    def producer(self) -> PyArrayFeedQueue:
        """The same queue for a thread that pushes: an object that does not keep the queue open.

        It can do all that this one can, but `pop`. Once this object and every other one that can pop are
        gone, and so are the readers of the queue and its variable, the queue is shut down: pushes through
        a producer raise `QueueClosed`, also those that are waiting.

        Examples
        --------
        >>> import threading
        >>> import numpy as np
        >>> from pyfeed import py_array_reader
        >>> def count(queue):
        ...     with queue:
        ...         for i in range(3):
        ...             queue.push((np.array([i]),))
        >>> reader, queue = py_array_reader(2, [(-1,)])
        >>> threading.Thread(target=count, args=[queue.producer()]).start()
        >>> [x.tolist() for x, in reader]
        [[0], [1], [2]]
        """
        producer = self._producer()
        _exit.watch(producer)
        return producer

    @takes(function=_arguments.function, num_threads=integer(1))
    def produce(
        self, function: Callable[[int], Iterable[Sequence[Any]]], num_threads: int = 1
    ) -> list[threading.Thread]:
        """Push what ``function(0)`` to ``function(num_threads - 1)`` yield, each in a thread.

        The queue is closed when the last of them has ended; an exception in one fails it. A thread
        whose push finds the queue closed ends without an error. All of it is for the pass that is
        current now: nothing lands in a later one.

        The threads push through a `producer`: they end, at their next push, once this object and
        every reader of the queue are gone.

        Returns
        -------
        list of threading.Thread
            The threads, started; they are daemons.
        """
        lock = threading.Lock()
        running = num_threads
        producer, queue = self.producer(), weakref.ref(self)
        pass_id = producer.stats()["pass_id"]
        if pass_id is None:
            raise StateError("produce: the queue has no pass open yet: wait for one with wait_pass")

        def run(worker: int) -> None:
            nonlocal running
            try:
                for arrays in produced(function, worker):
                    try:
                        producer.push(arrays, pass_id=pass_id)
                    except QueueClosed:
                        break
            except BaseException as e:
                try:
                    (queue() or producer).fail(e, pass_id)
                except QueueClosed:
                    if not producer.stats()["failed"]:
                        raise e from None  # no consumer is left: the thread's own hook reports it
            with lock:
                running -= 1
                last = running == 0
            if last:
                producer.close(pass_id)

        threads = [
            threading.Thread(target=run, args=(i,), name=f"pyfeed-producer-{i}", daemon=True)
            for i in range(num_threads)
        ]
        _exit.movers.update(threads)
        for thread in threads:
            thread.start()
        return threads

    def __enter__(self) -> PyArrayFeedQueue:
        self._entered_pass = self.stats()["pass_id"]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is None:
            self.close(self._entered_pass)
        else:
            try:
                self.fail(error, self._entered_pass)
            except QueueClosed:
                pass  # it propagates from here anyway

    def __repr__(self) -> str:
        s = self.stats()
        closed = ", closed" if s["closed"] else ""
        return f"<PyArrayFeedQueue {s['size']}/{s['capacity']} tuples, pass {s['pass_id']}{closed}>"

    def _shapes(self, rows: int | None, shapes: Sequence[Shape] | None, lod: Any) -> tuple[Any, ...]:
        """What C is to reserve: dtype, shape and LoD of every slot."""
        described = self._slots()
        shapes = None if shapes is None else slots.shapes("shapes", shapes)
        lod = None if lod is None else _arguments.items("lod", lod, "a sequence of levels of offsets, one a slot")
        rows = None if rows is None else _arguments.number("rows", rows, 0)
        for name, given in (("shapes", shapes), ("lod", lod)):
            slots.unlike(name, given, len(described))
        out = []
        for i, (dtype, dims, _) in enumerate(described):
            if shapes is not None:
                dims = tuple(shapes[i])
            elif dims[:1] == (-1,):
                if rows is None:
                    raise _about(
                        i, InvalidArgument, "rows: expected a number for its first dimension of -1, found None"
                    )
                dims = (rows, *dims[1:])
            given = () if lod is None or lod[i] is None else lod[i]
            try:
                every = _arguments.items(f"lod: slot {i}", given, "levels of offsets, such as [[0, 2, 5]]")
                levels = tuple(offsets_of(level, j) for j, level in enumerate(every))
            except (ShapeError, DTypeError) as e:
                raise _about(i, type(e), f"lod: {e}") from None
            out.append((dtype, dims, levels))
        return tuple(out)


def produced(function: Callable[..., Any], *arguments: Any, **options: Any) -> Iterable[Any]:
    """What a function of a producer gives, if that can be gone through."""
    iterable = function(*arguments, **options)
    if not isinstance(iterable, Iterable):
        name = getattr(function, "__qualname__", shown(function))
        refuse("function", f"{name} to be a generator, or to give an iterable of tuples of arrays", iterable)
    return iterable


def _about(slot: int, kind: type[Error], text: str) -> Error:
    error = kind(f"slot {slot}: {text}")
    error.slot = slot
    return error


class PyArrayFeedQueueHolder:
    """The variable of a scope that a queue will be in: the queue is made once its shape is known.

    Parameters
    ----------
    scope : Scope or ScopeVariable
        Where the variable is; or the variable, as `Scope.var` gives it.
    name : str, optional
        The variable's, which is made if need be; what ``create_py_array_reader`` calls ``feeder_name``.

    Examples
    --------
    >>> from pyfeed import CPUPlace, PyArrayFeedQueueHolder, Scope
    >>> holder = PyArrayFeedQueueHolder(Scope(), "feeder")
    >>> holder.init_once(2, [(-1, 784), (-1,)], CPUPlace())
    <PyArrayFeedQueue 0/2 tuples, pass 0>
    """

    @takes(scope=instance((Scope, ScopeVariable), "a Scope, or a variable of one"), name=optional(_arguments.text))
    def __init__(self, scope: Scope | ScopeVariable, name: str | None = None) -> None:
        if isinstance(scope, Scope):
            if name is None:
                refuse("name", "the name of a variable of the scope", name)
            self._scope, self._name = scope, name
        else:
            if name is not None:
                refuse("name", "None with a variable, which has a name", name, InvalidArgument)
            self._scope, self._name = scope.scope, scope.name
        self._feeder: PyArrayFeedQueue | None = None

    @takes(capacity=integer(1, "tuple"), dims=slots.shapes, place=optional(a_place), **QUEUE, restartable=flag)
    def init_once(
        self,
        capacity: int,
        dims: Sequence[Shape],
        place: Place | None = None,
        *,
        dtypes: Sequence[npt.DTypeLike | None] | None = None,
        bytes_limit: int = 0,
        lod_levels: Sequence[int] | None = None,
        restartable: bool = False,
    ) -> PyArrayFeedQueue:
        """Make the queue.

        Parameters
        ----------
        capacity : int
            In tuples, at least 1.
        dims : sequence of shapes
            One a slot. -1 matches any size; a first dimension of -1 is the batch's.
        place : Place, optional
            Where the tuples are consumed: `CPUPlace`, the default. What is pushed for a `CUDAPlace` is written
            into pinned memory, and copied from there.
        dtypes : sequence, optional
            One a slot; None: what the first tuple has. ``"bfloat16"`` is known by name.
        bytes_limit : int
            Most bytes of all tuples queued or being written; 0: no limit.
        lod_levels : sequence of int, optional
            The levels of detail, one number a slot.
        restartable : bool
            The producer can start over: see `wait_pass`.

        Raises
        ------
        StateError
            The second time.
        """
        described = slots.specs(dims, dtypes, lod_levels)
        queue = self._scope._use(
            self._name,
            lambda var: PyArrayFeedQueue._init_once(
                var, capacity, described, bytes_limit, restartable, place or CPUPlace()
            ),
            make=True,
        )
        self._feeder = queue
        _exit.watch(queue)
        return queue

    @takes()
    def feeder(self) -> PyArrayFeedQueue:
        """The queue that `init_once` made, whichever holder of the variable it was called on.

        Raises
        ------
        StateError
            Before that.
        """
        if self._feeder is None:
            if self._name not in self._scope or self._scope.kind(self._name) == "empty":
                raise StateError("feeder: the holder has no queue before init_once")
            self._feeder = self._scope._use(self._name, PyArrayFeedQueue._of)
            _exit.watch(self._feeder)
        return self._feeder
