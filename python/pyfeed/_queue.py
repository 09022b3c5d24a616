"""PyArrayFeedQueue, the bounded queue that Python pushes tuples of arrays into, and its holder."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _arguments, _exit, _failures, _native, _slots, _structure
from ._arguments import flag, instance, integer, optional, refuse, validate
from ._place import CPUPlace, Place, check_place
from ._reserved_slots import reserved_slots
from ._scope import Scope, ScopeVariable
from ._slots import Shape
from ._structure import DTypes, LoDLevels, Shapes
from .errors import InvalidArgument, QueueClosed, StateError

# Checks of the arguments that every function that makes a queue has, besides capacity and place.
QUEUE_CHECKS = {**_structure.CHECKS, "bytes_limit": integer(0), "as_dict": flag}

if TYPE_CHECKING:
    from ._producing import PassParts


def _nobody() -> None:
    """Stand in for the weak reference to a queue in objects that no other object has made."""


class PyArrayFeedQueue(_native.Queue):
    """A bounded first-in-first-out queue of tuples of arrays, for many producers and consumers.

    Made by `py_array_reader` or `PyArrayFeedQueueHolder.init_once`, not by calling the class.

    There are three ways to push a tuple:

    ``push(arrays)``
        copies the arrays once, into the memory that the consumer gets.
    ``push(arrays, copy=False)``
        borrows the arrays without a copy. The queue keeps them until the consumer has released them. Until then,
        pyfeed makes NumPy arrays read-only.
    ``with reserve(rows) as arrays:``
        returns writable arrays in the memory of the queue, so that nothing is copied.

    A queue runs in passes (epochs), which are numbered from 0. `close` and `fail` end a pass, and `reopen` begins
    the next one.

    A ``with`` block over a queue, or over the result of `producer`, closes the pass at the end of the block. If
    threads of `produce` still push, the last of them closes the pass instead, and if other ``with`` blocks have
    not ended, the last block does. If several threads push in such blocks, call `expect` first: a thread that
    begins its block late would find the pass closed. If the block raises an exception, the pass fails with it.

    Notes
    -----
    All methods may be called from any thread. Methods that wait take a ``timeout`` in seconds: None waits for
    ever, and 0 does not wait. Ctrl-C ends a wait in the main thread. No method holds the GIL while it waits, or
    while it copies more than 32 KiB.

    The object can pop, so it keeps the queue open. Give `producer` objects to threads that only push.

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

    @validate()
    def size(self) -> int:
        """Return the number of tuples in the queue.

        Returns
        -------
        int
        """
        return self.stats()["size"]

    @validate()
    def capacity(self) -> int:
        """Return the largest number of tuples that the queue holds.

        Returns
        -------
        int
            In tuples, not in bytes.
        """
        return self.stats()["capacity"]

    @validate()
    def is_full(self) -> bool:
        """Whether the queue holds `capacity` tuples, including tuples that are being written. A push would wait.

        Returns
        -------
        bool
        """
        s = self.stats()
        return s["size"] + s["reserved"] >= s["capacity"]

    @validate()
    def is_empty(self) -> bool:
        """Whether the queue holds no tuple. A pop would wait, or find the end of the pass.

        Returns
        -------
        bool
        """
        return self.size() == 0

    @validate(
        exception=instance(BaseException, "an instance of an exception class"),
        pass_id=_arguments.optional(_arguments.pass_id),
    )
    def fail(self, exception: BaseException, pass_id: int | None = None) -> None:
        """End a pass with an error.

        Tuples that are queued are still delivered. Then every pop and read raises `exception` itself, with its
        traceback. A C++ consumer gets the type, the message and the traceback as text. A `SystemExit` would end the
        program of the consumer, so it is raised as a `ProducerError`, whose ``__cause__`` is the `SystemExit`.

        Parameters
        ----------
        exception : BaseException
            The exception that the consumers get.
        pass_id : int, optional
            The number of the pass to end. By default, the current pass.

        Raises
        ------
        QueueClosed
            The pass has ended already, so no consumer would get the exception.
        """
        queue = self.__dict__.get("_made_by", _nobody)() or self  # the object that fails a pass keeps the exception
        queue._fail_with(exception, pass_id)

    def _fail_with(self, exception: BaseException, pass_id: int | None, *, reader_owned: bool = False) -> None:
        from ._producing import exception_for_consumer

        text = _failures.format_exception(exception)
        self._fail(exception_for_consumer(exception, "producer"), *text, pass_id, reader_owned)

    @validate()
    def producer(self) -> PyArrayFeedQueue:
        """Return an object for threads that push, which does not keep the queue open.

        The object has all methods of the queue except `pop`. When no reader and no variable of the queue is left, and
        no object that can pop, the queue is shut down. Then pushes through a producer raise `QueueClosed`, including
        pushes that are blocked.

        Returns
        -------
        PyArrayFeedQueue
            Another object for the same queue. Its `pop` raises `StateError`.

        See Also
        --------
        expect : For several threads.

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
        producer.__dict__["_parts"] = self._pass_parts()
        producer.__dict__["_made_by"] = self.__dict__.get("_made_by", weakref.ref(self))
        _exit.watch(producer)
        return producer

    @validate(num_producers=integer(1))
    def expect(self, num_producers: int) -> None:
        """Keep the current pass open until a number of producers have ended their ``with`` blocks.

        Without this call, the pass is closed as soon as no block is open: if one thread ends its block before another
        thread begins its own, the other one gets `QueueClosed`, and the consumer does not get its tuples.

        Parameters
        ----------
        num_producers : int
            The number of blocks that have to end from now on, at least 1. A block is counted if it is over this
            object or over a result of its `producer`. The number holds for the current pass only.

        Raises
        ------
        StateError
            The pass has ended: call `reopen` first. Or the queue is restartable, and its first pass has not begun.
        QueueClosed
            The queue is shut down.

        Examples
        --------
        >>> import threading
        >>> import numpy as np
        >>> from pyfeed import py_array_reader
        >>> def push_one(queue, value):
        ...     with queue:
        ...         queue.push((np.array(value),))
        >>> reader, queue = py_array_reader(2, [()])
        >>> queue.expect(2)
        >>> for value in (3, 4):
        ...     threading.Thread(target=push_one, args=[queue.producer(), value]).start()
        >>> sorted(int(x) for x, in reader)
        [3, 4]
        """
        self._pass_parts().expect(self, num_producers)

    @validate(function=_arguments.function, num_threads=integer(1))
    def produce(
        self, function: Callable[[int], Iterable[Sequence[Any]]], num_threads: int = 1
    ) -> list[threading.Thread]:
        """Start threads that push the tuples that a function yields.

        Thread ``i`` calls ``function(i)`` and pushes each tuple of the result. When the last thread has ended, the
        pass is closed. If `produce` is called several times in a pass, this is the last thread of all calls. An
        exception in a thread fails the pass. All pushes are for the pass that is current now, so no tuple is
        delivered in a later pass.

        Parameters
        ----------
        function : callable
            Called with the number of the thread, from 0 to ``num_threads - 1``. It returns an iterable of tuples of
            arrays; usually it is a generator function.
        num_threads : int
            How many threads are started, at least 1.

        Returns
        -------
        list of threading.Thread
            The threads, which are started and are daemons.

        Raises
        ------
        ArgumentTypeError
            `function` cannot be called with one argument.
        StateError
            The pass has ended: call `reopen` first. Or the queue is restartable, and its first pass has not begun.
        QueueClosed
            The queue is shut down.

        Notes
        -----
        The pass ends with the last thread, even if another call of `produce` would follow, which then raises
        `StateError`. For several functions, call `produce` once with ``lambda worker: functions[worker]()``.
        Calls are counted together if they are made through the same object, or through its `producer` objects.

        A thread whose push finds the pass closed ends without an error, and closes its generator. The threads push
        through a `producer`. So they end at their next push when this object and every reader of the queue are gone.
        """
        from ._producing import call_producer, check_call, push_all

        check_call(function, "a function that is called with the number of a thread, such as f(worker)", 0)
        producer, parts = self.producer(), self._pass_parts()
        pass_id = parts.begin_produce(producer, num_threads)

        def run(worker: int) -> None:
            try:
                push_all(partial(producer.push, pass_id=pass_id), call_producer(function, worker))
            except BaseException as e:
                try:
                    producer.fail(e, pass_id)
                except QueueClosed:
                    if not producer.stats()["failed"]:
                        raise e from None  # there is no consumer: threading.excepthook reports the exception
            finally:
                parts.end_thread(producer, pass_id)

        threads = [
            threading.Thread(target=run, args=(i,), name=f"pyfeed-producer-{i}", daemon=True)
            for i in range(num_threads)
        ]
        _exit.daemon_threads.update(threads)
        for i, thread in enumerate(threads):
            try:
                thread.start()
            except BaseException as error:
                try:
                    self.fail(error, pass_id)
                except QueueClosed:
                    pass  # the error propagates from here anyway
                for _ in threads[i:]:
                    parts.end_thread(producer, pass_id)
                raise
        return threads

    def _pass_parts(self) -> PassParts:
        from ._producing import PassParts

        parts: PassParts = self.__dict__.setdefault("_parts", PassParts())
        return parts

    def __enter__(self) -> PyArrayFeedQueue:
        pass_id = self.stats()["pass_id"]
        if pass_id is not None:
            self._pass_parts().begin_block(pass_id)
        self.__dict__.setdefault("_blocks", []).append((threading.get_ident(), pass_id))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        pass_id = self._end_block()
        if error is not None:
            try:
                self.fail(error, pass_id)
            except QueueClosed:
                pass  # the exception propagates from the block anyway
        if pass_id is not None:
            self._pass_parts().end_block(self, pass_id)
        elif error is None:
            self.close()

    def _end_block(self) -> int | None:
        """Return the pass of the ``with`` block that ends: the thread's latest, since threads may share this object."""
        blocks: list[tuple[int, int | None]] = self.__dict__["_blocks"]
        mine = [i for i, (thread, _) in enumerate(blocks) if thread == threading.get_ident()]
        return blocks.pop(mine[-1] if mine else -1)[1]

    def __repr__(self) -> str:
        s = self.stats()
        closed = ", closed" if s["closed"] else ""
        return f"<PyArrayFeedQueue {s['size']}/{s['capacity']} tuples, pass {s['pass_id']}{closed}>"

    def _reserved_slots(self, rows: int | None, shapes: Sequence[Shape] | None, lod: Any) -> tuple[Any, ...]:
        """Check the arguments of `reserve`, and return the slots that C reserves."""
        rows = None if rows is None else _arguments.number("rows", rows, 0)
        shapes = None if shapes is None else _slots.shapes("shapes", shapes)
        if lod is not None:
            every = _arguments.items("lod", lod, "a sequence of levels of offsets, one for each slot")
            levels = "levels of offsets, such as [[0, 2, 5]]"
            lod = [None if x is None else _arguments.items(f"lod: slot {i}", x, levels) for i, x in enumerate(every)]
        return reserved_slots(self._slots(), rows, shapes, lod)


class PyArrayFeedQueueHolder:
    """Makes a queue in a variable of a scope, once its shapes are known.

    Parameters
    ----------
    scope : Scope or ScopeVariable
        The scope of the variable, or the variable itself, as `Scope.var` returns it.
    name : str, optional
        The name of the variable, if `scope` is a scope. `init_once` makes the variable if it does not exist.
        `Scope.create_py_array_reader` takes this name as ``feeder_name``.

    Raises
    ------
    ArgumentTypeError
        `scope` is a scope, and `name` is not given.
    InvalidArgument
        `scope` is a variable, and `name` is given.

    Examples
    --------
    >>> from pyfeed import CPUPlace, PyArrayFeedQueueHolder, Scope
    >>> holder = PyArrayFeedQueueHolder(Scope(), "feeder")
    >>> holder.init_once(2, [(-1, 784), (-1,)], CPUPlace())
    <PyArrayFeedQueue 0/2 tuples, pass 0>
    """

    @validate(scope=instance((Scope, ScopeVariable), "a Scope, or a variable of one"), name=optional(_arguments.text))
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

    @validate(capacity=integer(1, "tuple"), place=optional(check_place), **QUEUE_CHECKS, restartable=flag)
    def init_once(
        self,
        capacity: int,
        shapes: Shapes,
        place: Place | None = None,
        *,
        dtypes: DTypes | None = None,
        bytes_limit: int = 0,
        lod_levels: LoDLevels | None = None,
        names: Sequence[str] | None = None,
        as_dict: bool = False,
        restartable: bool = False,
    ) -> PyArrayFeedQueue:
        """Make the queue. This can be done once for a variable.

        Parameters
        ----------
        capacity : int
            The largest number of tuples that the queue holds, at least 1.
        shapes, place, dtypes, bytes_limit, lod_levels, names, as_dict
            As for `py_array_reader`.
        restartable : bool
            Whether the producer can start over. Then a reset of a reader begins the next pass, and the producer waits
            for passes with `PyArrayFeedQueue.wait_pass`.

        Returns
        -------
        PyArrayFeedQueue

        Raises
        ------
        StateError
            The variable contains a queue already, or something else.
        SlotCountError
            `dtypes` or `lod_levels` do not have an entry for each of `shapes`.
        """
        slots = _structure.describe(shapes, dtypes, lod_levels, names, as_dict=as_dict)
        specs = _slots.to_specs(*slots[:4])
        queue = self._scope._use(
            self._name,
            lambda var: PyArrayFeedQueue._init_once(
                var, capacity, specs, bytes_limit, restartable, place or CPUPlace()
            ),
            make=True,
        )
        queue._set_structure(slots.structure)
        self._feeder = queue
        _exit.watch(queue)
        return queue

    @validate()
    def feeder(self) -> PyArrayFeedQueue:
        """Return the queue that `init_once` made, by this holder or another one of the same variable.

        Returns
        -------
        PyArrayFeedQueue

        Raises
        ------
        StateError
            There is no queue yet.
        """
        if self._feeder is None:
            if self._name not in self._scope or self._scope.kind(self._name) == "empty":
                raise StateError("feeder: the holder has no queue before init_once")
            self._feeder = self._scope._use(self._name, PyArrayFeedQueue._of)
            _exit.watch(self._feeder)
        return self._feeder
