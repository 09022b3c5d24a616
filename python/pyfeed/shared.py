"""SharedFeedQueue: a queue that other processes fill."""

from __future__ import annotations

import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import _arguments, _exit, _native, slots, unique_name
from ._arguments import flag, integer, items, optional, refuse, takes, text
from ._errors import Error, InvalidArgument, StateError
from .place import CPUPlace, Place, a_place
from .queue import PyArrayFeedQueue
from .readers import Reader, _erase
from .scope import Scope, a_scope, global_scope
from .slots import Shape

if TYPE_CHECKING:  # what few need is imported when it is needed
    from multiprocessing.process import BaseProcess

    from pyfeed_worker import Producer

_ALIGNMENT = 256
_HEARSAY = 0.1  # seconds in which whoever has joined a worker says how it ended
_UNKNOWN = -(2**31)


def arguments_of_target(name: str, value: Any) -> tuple[Any, ...]:
    """What a function is called with."""
    return tuple(items(name, value, "a tuple or list"))


def start_method(name: str, value: Any) -> str:
    """One of multiprocessing's."""
    if value not in ("spawn", "forkserver", "fork"):
        refuse(name, "spawn, forkserver or fork", value, InvalidArgument)
    return str(value)


class SharedFeedQueue(PyArrayFeedQueue):
    """A queue of tuples of arrays that worker processes fill, through a ring of cells in shared memory.

    A worker writes a tuple once, into a cell; the consumer gets arrays over that very memory, and the cell goes
    back to the workers when it is done with them. For the consumer it is as any queue: `pop`, iteration, and the
    `reader` with all of its decorators.

    Workers import ``pyfeed_worker`` only, which has neither Go nor this library in it, and push through a
    ``pyfeed_worker.Producer``. `start` runs a function in processes of multiprocessing's; with `producer` and
    `expect` they may be anybody's.

    A worker that dies, at any moment, fails the queue: after what was pushed, the consumer gets a `WorkerError`
    with its exit status. One that raises fails it with a `ProducerError`. When the trainer dies, workers that
    wait for it are told, and nothing is left behind.

    Parameters
    ----------
    shapes : sequence of shapes
        One a slot. -1 matches any size; a first dimension of -1 is the batch's, equal in all slots.
    dtypes : sequence, optional
        One a slot; None, in place of one or of all: what the first tuple has.
    ring_cells : int
        Tuples in the ring at one time: being written, queued, or with the consumer. From 1 to 4096. One cell is
        kept for workers: a consumer that holds all others, as a shuffle may, gets copies, and so does one that
        holds a tuple while it asks for the next, with fewer than 3.
    cell_bytes : int, optional
        The most bytes of a tuple, with the LoD and each array aligned to 256 bytes. May be left out if all sizes
        and dtypes are given. Only what is used takes memory, on a `CPUPlace`.
    lod_levels : sequence of int, optional
        Levels of detail, one number a slot: such a slot takes and gives `LoDTensor`.
    place : Place, optional
        Where the tuples are consumed. `CPUPlace`, the default; for others the ring is registered with the driver,
        once, and copied from as it is.
    name : str, optional
        The queue's variable; the reader's is ``name + "_reader"``. Made up if not given.
    scope : Scope, optional
        The global one by default.

    Examples
    --------
    >>> def work(producer, worker, per_worker):
    ...     for i in range(per_worker):
    ...         producer.push((np.full((32, 784), i, np.float32),))
    >>> queue = SharedFeedQueue([(-1, 784)], ["float32"], cell_bytes=1 << 20)
    >>> processes = queue.start(work, (10,), num_workers=2)  # doctest: +SKIP
    >>> sum(len(image) for image, in queue.reader)  # doctest: +SKIP
    640
    """

    _fd: int
    _scope: Scope
    _name: str
    _made: weakref.ref[Reader] | None
    _started: tuple[int | None, int]  # a pass, and the workers it has
    _crews: list[_Crew]  # those who stay
    _turn: threading.Lock  # the end of one of them is told before the next pass begins, or to it

    @takes(
        shapes=slots.shapes,
        dtypes=optional(slots.dtypes),
        ring_cells=integer(1, most=4096),
        cell_bytes=optional(integer(1, most=2**40)),
        lod_levels=optional(slots.lod_levels),
        place=optional(a_place),
        name=optional(text),
        scope=optional(a_scope),
    )
    def __new__(
        cls,
        shapes: Sequence[Shape],
        dtypes: Sequence[npt.DTypeLike | None] | None = None,
        *,
        ring_cells: int = 8,
        cell_bytes: int | None = None,
        lod_levels: Sequence[int] | None = None,
        place: Place | None = None,
        name: str | None = None,
        scope: Scope | None = None,
    ) -> SharedFeedQueue:
        described = slots.specs(shapes, dtypes, lod_levels)
        size = _bytes_of(described) if cell_bytes is None else cell_bytes
        scope = global_scope() if scope is None else scope
        name = unique_name.of_process("shared_feed_queue") if name is None else name
        queue: SharedFeedQueue
        queue, fd = scope._use(
            name,
            lambda var: _native._shared_init(cls, var, described, ring_cells, size, place or CPUPlace()),
            make=True,
        )
        queue._fd, queue._scope, queue._name, queue._made, queue._started = fd, scope, name, None, (None, 0)
        queue._crews, queue._turn = [], threading.Lock()
        weakref.finalize(queue, _erase, scope, name).atexit = False
        _exit.watch(queue)
        return queue

    @takes()
    def capacity(self) -> int:
        """The number of tuples that the ring takes."""
        return self.stats()["capacity"] - 1  # there is room for a copy besides

    @property
    def reader(self) -> Reader:
        """A reader of what the workers push."""
        reader = self._made() if self._made else None
        if reader is None:
            out = f"{self._name}_reader"
            self._scope.create_py_array_reader(out, self._name)
            reader = Reader._owning(self._scope, out, self, direct=True)
            self._made = weakref.ref(reader)
        return reader

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.reader)

    @takes()
    def producer(self) -> Producer:  # type: ignore[override]
        """A producer for a worker, which may be sent to it by pickle.

        One is enough for any number of workers: each gets its own copy. See `expect` for how the pass ends.
        """
        from pyfeed_worker import Producer

        producer = Producer(self._fd)
        producer._lender = (os.getpid(), self._fd)
        return producer

    @takes(num_workers=integer(1, most=2**31))
    def expect(self, num_workers: int) -> None:
        """Have the current pass end when so many workers have closed their producers. `start` does that.

        One that closes and attaches again in the same pass counts twice.
        """
        _native._shared_expect(self.handle, num_workers)

    @takes(pid=integer(1, most=2**31 - 1), exit_status=integer(-(2**31), most=2**31 - 1))
    def exited(self, pid: int, exit_status: int) -> None:
        """Tell how a worker has ended that is not this process's child, for the `WorkerError`.

        One that has not begun to push yet fails the pass by that, unless its status is 0 and `expect` was not called.
        `start` does that.

        Parameters
        ----------
        pid : int
        exit_status : int
            Its exit status, or minus the signal that killed it.
        """
        _native._shared_exited(self.handle, pid, exit_status)

    @takes(
        target=_arguments.function,
        args=arguments_of_target,
        num_workers=integer(1, most=2**31),
        method=start_method,
        daemon=flag,
        persistent=flag,
    )
    def start(
        self,
        target: Callable[..., object],
        args: Sequence[Any] = (),
        *,
        num_workers: int = 1,
        method: str = "spawn",
        daemon: bool = True,
        persistent: bool = False,
    ) -> list[BaseProcess]:
        """Run ``target(producer, worker, *args)`` in processes, for ``worker`` from 0 to ``num_workers - 1``.

        The pass ends when all have returned. An exception in one fails it, and so does the death of one, or a process
        that cannot be started; `reopen` begins the next. A worker whose queue takes no more, or is at another pass by
        the time that the worker gets there, ends without a word.

        Workers ignore SIGINT, so that Ctrl-C in a terminal is a KeyboardInterrupt in the trainer alone, which decides
        whether they go on. ``signal.signal`` in ``target`` sets a handler.

        Persistent workers stay: `reopen` has each of them call ``target`` again, where it can ask for
        ``producer.pass_id``. They sleep between passes, and end with the queue. One that has died is started anew by
        `reopen`, with a warning.

        Parameters
        ----------
        target : callable
            A function of a module, where `method` is not ``"fork"``.
        args : sequence
            The same for all workers.
        num_workers : int
            At least 1.
        method : str
            ``"spawn"``, ``"forkserver"`` or ``"fork"``: how multiprocessing is to start them. Workers run no Go, so
            that all three work.
        daemon : bool
            They are ended with this process. Daemons cannot have children of multiprocessing's.
        persistent : bool
            The processes are those of all passes to come. They must be daemons.

        Returns
        -------
        list of multiprocessing.Process
            The processes, started. Persistent ones that are started anew take the place of those that have died.
        """
        import multiprocessing

        stats = self.stats()
        pass_id = stats["pass_id"]
        if stats["closed"]:
            raise StateError(f"start: pass {pass_id} has ended: reopen() begins the next")
        if persistent and not daemon:
            raise InvalidArgument("daemon: expected True: persistent workers end with their trainer, found False")
        producer = self.producer()
        if not persistent:
            producer._pass = pass_id  # late ones are not to join the next
        crew = _Crew(multiprocessing.get_context(method), producer, target, tuple(args), daemon, persistent)
        before = self._started[1] if self._started[0] == pass_id else 0
        self._started = (pass_id, before + num_workers)
        self.expect(before + num_workers)
        try:
            for i in range(num_workers):
                crew.processes.append(crew.started(i))
        except BaseException as error:
            for process in crew.processes:
                process.terminate()
            try:
                self.fail(error, pass_id)
            except Error:
                pass  # it propagates from here anyway
            raise
        if persistent:
            self._crews.append(crew)
        if not daemon:  # multiprocessing waits for them at exit, and they for the queue
            self._end_at_exit()
        self._watch(crew, crew.processes)
        crew.given = list(crew.processes)
        return crew.given

    @takes()
    def reopen(self) -> int:
        """Begin the next pass, as of any queue; persistent workers begin their part of it.

        Returns
        -------
        int
            How many tuples of the pass before were dropped, which nobody had taken.

        Warns
        -----
        RuntimeWarning
            A persistent worker has died, and another takes its place.
        """
        if not self._crews:
            return super().reopen()
        with self._turn:
            dead = [(crew, i) for crew in self._crews for i, p in enumerate(crew.processes) if crew.has_ended(p)]
            dropped = super().reopen()  # who dies from here on fails the new pass
            num_workers = sum(len(crew.processes) for crew in self._crews)
            pass_id = self.stats()["pass_id"]
            self._started = (pass_id, num_workers)
            self.expect(num_workers)
            for crew, i in dead:
                self._replace(crew, i, pass_id)
        return dropped

    def _replace(self, crew: _Crew, i: int, pass_id: int | None) -> None:
        process = crew.processes[i]
        crew.replaced.add(process.pid or 0)
        try:
            crew.processes[i] = crew.started(i)
        except BaseException as error:
            try:
                self.fail(error, pass_id)
            except Error:
                pass  # it propagates from here anyway
            raise
        if i < len(crew.given) and crew.given[i] is process:
            crew.given[i] = crew.processes[i]
        self._watch(crew, [crew.processes[i]])
        status = process.exitcode
        if status is None:
            how = "has ended"
        else:
            how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
        warnings.warn(
            f"persistent worker {i} (process {process.pid}) {how}: another takes its place", RuntimeWarning, 4
        )

    def _watch(self, crew: _Crew, processes: list[BaseProcess]) -> None:
        pass_id = None if crew.persistent else self.stats()["pass_id"]
        endings = [_Ending(p, ours=crew.ours) for p in processes]
        threading.Thread(
            target=_watch, args=(weakref.ref(self), crew.replaced, pass_id, endings), name="pyfeed-workers", daemon=True
        ).start()

    def _end_at_exit(self) -> None:
        from multiprocessing.util import Finalize

        queue = weakref.ref(self)

        def end() -> None:
            q = queue()
            if q is not None:
                try:
                    q.close()
                except Error:
                    pass  # it is shut down

        Finalize(self, end, exitpriority=1000)

    def __reduce__(self) -> Any:
        raise StateError("a SharedFeedQueue stays in its process: send its producer() to the workers")

    def __repr__(self) -> str:
        s = self.stats()
        closed = ", closed" if s["closed"] else ""
        return f"<SharedFeedQueue {s['size']}/{self.capacity()} tuples, pass {s['pass_id']}{closed}>"


def _bytes_of(slots: Sequence[tuple[Any, tuple[int, ...], int]]) -> int:
    """What a tuple takes, if that can be said."""
    total = 0
    for i, (dtype, dims, levels) in enumerate(slots):
        if dtype is None or levels or any(n < 0 for n in dims):
            raise InvalidArgument(
                f"cell_bytes: expected a number, since a tuple may be of any size: slot {i} is {dtype or 'any dtype'}, "
                f"dims {list(dims)}, {levels} levels of detail"
            )
        item = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
        size = item * int(np.prod(dims, dtype=object))
        total += -(-size // _ALIGNMENT) * _ALIGNMENT
    return _arguments.number("cell_bytes", max(total, 1), 1, most=2**40)


class _Crew:
    """The workers of one `start`."""

    def __init__(
        self,
        context: Any,  # multiprocessing's
        producer: Producer,
        target: Callable[..., object],
        args: tuple[Any, ...],
        daemon: bool,
        persistent: bool,
    ) -> None:
        self.context, self.persistent = context, persistent
        self.ours = context.get_start_method() != "forkserver"  # children of this process
        self.processes: list[BaseProcess] = []
        self.given: list[BaseProcess] = []  # the same, for whoever has started them to do with what he likes
        self.replaced: set[int] = set()  # ids of processes that no pass is to hear of any more
        self._work, self._daemon = (producer, target), daemon
        self._args = args

    def has_ended(self, process: BaseProcess) -> bool:
        if process.exitcode is not None:
            return True
        # Somebody else may have taken the status. Of a forkserver's the sentinel is what says it, to one who asks.
        return self.ours and bool(_wait([process.sentinel], 0))

    def started(self, worker: int) -> BaseProcess:
        import signal

        from pyfeed_worker._producer import _run, _stay

        process: BaseProcess = self.context.Process(
            target=_stay if self.persistent else _run,
            args=(*self._work, worker, self._args),
            name=f"pyfeed-worker-{worker}",
            daemon=self._daemon,
        )
        method = self.context.get_start_method()
        if method == "forkserver":  # it gives its own signal mask to those that it starts for others, too
            process.start()
            return process
        if method == "spawn":  # to start it would let the signal through
            from multiprocessing import resource_tracker

            resource_tracker.ensure_running()
        # What comes before the worker ignores it waits there: a process is not to end while it imports.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return process


class _Ending:
    """How a process has ended, without taking that from others: it can be asked for once only."""

    def __init__(self, process: BaseProcess, *, ours: bool) -> None:
        self.process, self.pid, self.sentinel = process, process.pid or 0, process.sentinel
        self._popen: Any = process._popen  # type: ignore[attr-defined]
        self._ours, self._poll, self._lock = ours, self._popen.poll, threading.Lock()
        if not ours:  # a pipe, of which join and we would each read a part
            self._popen.poll = self._poll_alone

    def _poll_alone(self, flag: int = os.WNOHANG) -> int | None:
        if flag != os.WNOHANG and self._popen.returncode is None:
            _wait([self.sentinel])
        with self._lock:
            status: int | None = self._poll(os.WNOHANG)
            return status

    def status(self) -> int:
        """Once the sentinel is ready."""
        if not self._ours:
            return self._poll_alone(0) or 0
        try:
            info = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:  # somebody has joined it, and is about to say what he heard
            until = time.monotonic() + _HEARSAY
            while self._popen.returncode is None and time.monotonic() < until:
                time.sleep(0.0005)
            return _UNKNOWN if self._popen.returncode is None else int(self._popen.returncode)
        assert info is not None
        return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status


def _watch(
    queue_: weakref.ref[SharedFeedQueue], replaced: set[int], pass_id: int | None, endings: list[_Ending]
) -> None:
    """Wait for workers to end, and tell how: to the pass that they are of; None: to any."""
    left = {e.sentinel: e for e in endings}
    while left:
        for sentinel in _wait(list(left)):
            ending = left.pop(sentinel)
            status = ending.status()
            queue = queue_()
            if queue is not None:
                try:
                    with queue._turn:
                        of_pass = pass_id is None or queue.stats()["pass_id"] == pass_id
                        if of_pass and ending.pid not in replaced:
                            queue.exited(ending.pid, status)
                except Error:
                    pass  # it is shut down
            del queue


def _wait(sentinels: list[int], timeout: float | None = None) -> list[int]:
    """Those that are ready."""
    from multiprocessing.connection import wait

    return [s for s in wait(sentinels, timeout) if isinstance(s, int)]
