"""SharedFeedQueue, a queue that worker processes fill through shared memory.

`docs/shared.md` describes it in detail.
"""

from __future__ import annotations

import functools
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from . import _arguments, _exit, _native, _slots, _structure, unique_name
from ._arguments import flag, format_value, integer, items, optional, text, validate
from ._cells import MOST_CELL_BYTES, cell_bytes_of
from ._place import CPUPlace, Place, check_place
from ._queue import PyArrayFeedQueue
from ._reader import Reader, _erase
from ._scope import Scope, check_scope, global_scope
from ._structure import DTypes, LoDLevels, Shapes, Structure
from .errors import ArgumentTypeError, Error, InvalidArgument, StateError

__all__ = ["SharedFeedQueue"]

if TYPE_CHECKING:  # few programs need these modules, so functions import them on demand
    from multiprocessing.process import BaseProcess

    from pyfeed_worker import Producer

_EXIT_STATUS_WAIT = 0.1  # seconds to wait for the exit status, if another thread has joined the worker
_UNKNOWN = -(2**31)  # an exit status that is not known, for report_exit


def _arguments_of_target(name: str, value: Any) -> tuple[Any, ...]:
    """Accept the arguments of a function."""
    return tuple(items(name, value, "a tuple or list"))


def _target(name: str, value: Any) -> Any:
    """Accept a function that pushes, or a generator function, and return a function that pushes.

    Calls of other functions that return before they have run would push nothing.
    """
    import inspect

    function = value
    while isinstance(function, functools.partial):
        function = function.func
    if callable(value) and not inspect.isroutine(function) and not isinstance(function, type):
        function = type(function).__call__
    if inspect.isgeneratorfunction(function):
        from pyfeed_worker._producer import _Yielding

        return _Yielding(value)
    for kind, is_kind in (
        ("a coroutine function", inspect.iscoroutinefunction),
        ("an asynchronous generator function", inspect.isasyncgenfunction),
    ):
        if is_kind(function):
            found = getattr(function, "__qualname__", format_value(function))
            raise ArgumentTypeError(
                f"{name}: expected a function that calls producer.push(...), or a generator function, "
                f"found {kind}, {found}"
            ) from None
    return _arguments.function(name, value)


def _refused_pickle(error: BaseException, method: str) -> ArgumentTypeError | None:
    """Return the error for a target or arguments that pickle refuses, or None if it refused nothing."""
    import pickle

    # Python 3.13 says "can't get", other versions "can't pickle" or raise a PicklingError.
    refusals: dict[type[BaseException], tuple[str, ...]] = {
        AttributeError: ("can't pickle", "can't get local object"),
        TypeError: ("cannot pickle",),
    }
    texts = refusals.get(type(error), ())
    if not isinstance(error, pickle.PicklingError) and not str(error).lower().startswith(texts):
        return None
    return ArgumentTypeError(
        f"target, args: expected a function at the top level of a module, and arguments that pickle accepts, "
        f"for method {method!r}, found: {error}"
    )


class SharedFeedQueue(PyArrayFeedQueue):
    """A queue of tuples of arrays that worker processes fill, through a ring of cells in shared memory.

    A worker writes a tuple once, into a cell of the ring. The consumer gets arrays over the same memory. When the
    consumer has released these arrays, the cell goes back to the workers. To the consumer it is a queue like any
    other, with `pop`, a loop over the queue, and a `reader` with all decorators.

    Workers import only ``pyfeed_worker``, which contains neither Go nor this library, and push through a
    `pyfeed_worker.Producer`. `start` runs a function in processes that multiprocessing starts. Processes that are
    started otherwise can be workers too, with `producer` and `expect`.

    A worker that dies fails the pass: after the tuples that were pushed, the consumer gets a `WorkerError` with
    the exit status. A worker that raises an exception fails the pass with a `ProducerError`. When the trainer
    process dies, workers that wait get `pyfeed_worker.TrainerGone`, and no shared memory is left behind.

    Parameters
    ----------
    shapes : sequence or dict of shapes
        The shape of each slot, as for `pyfeed.py_array_reader`.
    place : Place, optional
        Where the consumer wants the tuples, by default `CPUPlace`. For other places, the ring is registered with
        the CUDA driver once, and devices copy from it directly.
    dtypes : sequence or dict, optional
        The dtype of each slot. The first tuple determines dtypes that are None or not given.
    ring_cells : int
        The largest number of tuples in the ring at one time, from 1 to 4096: tuples that are being written,
        queued, or held by the consumer. One cell is never lent to the consumer. If the consumer holds all other
        cells, as a shuffle may, it gets copies of further tuples. With fewer than 3 cells, it also gets a copy if
        it still holds a tuple when it asks for the next one.
    cell_bytes : int, optional
        The largest size of a tuple in bytes, with each array and each level of ragged offsets (LoD, level of
        detail) aligned to 256 bytes. It may be left out if all sizes and dtypes are given and there is no LoD.
        For a `CPUPlace`, only the part of a cell that is used takes memory.
    lod_levels : sequence or dict of int, optional
        The number of levels of ragged offsets of each slot, by default 0. Slots with levels are pushed and
        delivered as `LoDTensor`.
    names, as_dict
        As for `pyfeed.py_array_reader`.
    name : str, optional
        The name of the queue's variable; that of the reader is ``name + "_reader"``. By default, a unique name.
    scope : Scope, optional
        The scope of the variables, by default the global one. The variables are erased with the objects.

    Raises
    ------
    InvalidArgument
        `cell_bytes` is not given, and the size of a tuple is not known.
    StateError
        The variable `name` contains a queue already, or something else.
    UnsupportedError
        `place` is not a `CPUPlace`, and there is no CUDA driver or no device.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed.shared import SharedFeedQueue
    >>> def work(producer, worker, per_worker):
    ...     for i in range(per_worker):
    ...         producer.push((np.full((32, 784), i, np.float32),))
    >>> queue = SharedFeedQueue([(-1, 784)], dtypes=["float32"], cell_bytes=1 << 20)
    >>> processes = queue.start(work, (10,), num_workers=2)  # doctest: +SKIP
    >>> sum(len(image) for image, in queue.reader)  # doctest: +SKIP
    640
    """

    _fd: int
    _scope: Scope
    _name: str
    _reader_ref: weakref.ref[Reader] | None
    _expected_workers: tuple[int | None, int]  # a pass, and the number of its workers
    _groups: list[_WorkerGroup]  # of persistent workers
    # That `start` has started, each with the only pass that it may attach to, or None. multiprocessing keeps those that
    # live.
    _processes: weakref.WeakKeyDictionary[BaseProcess, int | None]
    _accepted: Structure  # of the tuples that workers may push
    _pass_lock: threading.Lock  # so that a worker's exit is reported to the pass that it was in, not to the next

    @validate(
        **_structure.CHECKS,
        place=optional(check_place),
        as_dict=flag,
        ring_cells=integer(1, most=4096),
        cell_bytes=optional(integer(1, most=MOST_CELL_BYTES)),
        name=optional(text),
        scope=optional(check_scope),
    )
    def __new__(
        cls,
        shapes: Shapes,
        place: Place | None = None,
        *,
        dtypes: DTypes | None = None,
        ring_cells: int = 8,
        cell_bytes: int | None = None,
        lod_levels: LoDLevels | None = None,
        names: Sequence[str] | None = None,
        as_dict: bool = False,
        name: str | None = None,
        scope: Scope | None = None,
    ) -> SharedFeedQueue:
        slots = _structure.describe(shapes, dtypes, lod_levels, names, as_dict=as_dict)
        specs = _slots.to_specs(*slots[:4])
        size = cell_bytes_of(specs) if cell_bytes is None else cell_bytes
        queue = cls._make(specs, ring_cells, size, place or CPUPlace(), name=name, scope=scope)
        queue._set_structure(slots.structure)
        queue._accepted = _structure.accepted(slots.structure, slots.names or ())
        return queue

    @classmethod
    def _make(
        cls,
        specs: tuple[Any, ...],
        ring_cells: int,
        cell_bytes: int,
        place: Place,
        *,
        name: str | None = None,
        scope: Scope | None = None,
        tasks: tuple[int, int, int] = (0, 0, 0),
        collector: weakref.ref[Any] | None = None,
    ) -> SharedFeedQueue:
        """Make a queue.

        `tasks` are the number, the slots and the bytes of tuples for the workers. `collector` takes the results: see
        MapProcesses.
        """
        scope = global_scope() if scope is None else scope
        name = unique_name._generate_process_wide("shared_feed_queue") if name is None else name
        queue: SharedFeedQueue
        queue, fd = scope._use(
            name,
            lambda var: _native._shared_init(cls, var, specs, ring_cells, cell_bytes, place, tasks),
            make=True,
        )
        queue._fd, queue._scope, queue._name, queue._reader_ref, queue._expected_workers = (
            fd,
            scope,
            name,
            None,
            (None, 0),
        )
        queue._groups, queue._processes, queue._pass_lock = [], weakref.WeakKeyDictionary(), threading.Lock()
        queue._accepted = None
        weakref.finalize(queue, _erase, scope, name).atexit = False
        _exit.watch_workers(queue, collector)
        return queue

    @validate()
    def capacity(self) -> int:
        """Return the largest number of tuples that the ring holds.

        Returns
        -------
        int
        """
        return self.stats()["capacity"] - 1  # the queue has room for one more, which is a copy

    @property
    def reader(self) -> Reader:
        """The reader of the tuples that workers push. A loop over the queue is a loop over this reader."""
        reader = self._reader_ref() if self._reader_ref else None
        if reader is None:
            out = f"{self._name}_reader"
            self._scope.create_py_array_reader(out, self._name)
            reader = Reader._wrap_owned(self._scope, out, self, direct=True, structure=self._structure)
            self._reader_ref = weakref.ref(reader)
        return reader

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.reader)

    @validate()
    def producer(self) -> Producer:  # type: ignore[override]
        """Return a producer for worker processes, which can be sent to them by pickle.

        One producer suffices for any number of workers: each gets a copy. `expect` says when the pass ends.

        Returns
        -------
        pyfeed_worker.Producer
        """
        from pyfeed_worker import Producer

        producer = Producer(self._fd)
        producer._lender, producer._structure = (os.getpid(), self._fd), self._accepted
        return producer

    @property
    def produce(self) -> NoReturn:
        """Raise `StateError`, since only worker processes fill this queue: `start` starts them."""
        raise StateError("produce: this queue is filled by worker processes: start(function, num_workers=2) starts two")

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in ("produce", "push", "reserve")]

    @validate(num_workers=integer(1, most=2**31))
    def expect(self, num_workers: int) -> None:
        """Make the current pass end when a number of workers have closed their producers. `start` calls this.

        A worker that closes its producer and attaches again in the same pass counts twice.

        Parameters
        ----------
        num_workers : int
            The number of workers, at least 1. It holds for the current pass only.
        """
        _native._shared_expect(self.handle, num_workers)

    @validate(pid=integer(1, most=2**31 - 1), exit_status=integer(-(2**31), most=2**31 - 1))
    def report_exit(self, pid: int, exit_status: int) -> None:
        """Report the exit status of a worker that is not a child of this process, for the `WorkerError`.

        If the worker has not attached in this pass, the report fails the pass, unless the status is 0 and `expect`
        was not called. `start` reports the exit status of its workers.

        Parameters
        ----------
        pid : int
            The process id of the worker.
        exit_status : int
            The exit status of the worker, or minus the number of the signal that killed it.
        """
        _native._shared_exited(self.handle, pid, exit_status)

    @validate(
        target=_target,
        args=_arguments_of_target,
        num_workers=integer(1, most=2**31),
        method=_arguments.start_method,
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
        """Start worker processes that run ``target(producer, worker, *args)``.

        ``worker`` is the number of the worker, from 0 to ``num_workers - 1``. The pass ends when `target` has
        returned in all workers. It fails if a worker raises an exception or dies, or if a process cannot be started.
        `reopen` begins the next pass. Without `persistent`, call `start` again for it.

        Parameters
        ----------
        target : callable
            The function that the workers call. It pushes its tuples by ``producer.push`` or ``producer.reserve``.
            Or it is a generator function: the workers call ``target(worker, *args)``, and push what it yields.
            Unless `method` is ``"fork"``, it must be a function of a module, so that it can be pickled. A function
            that is defined in a notebook or at a prompt needs the package cloudpickle.
        args : sequence
            Further arguments of `target`, the same for all workers. By default, there are none.
        num_workers : int
            The number of processes, at least 1.
        method : str
            How multiprocessing starts the processes: ``"spawn"``, ``"forkserver"`` or ``"fork"``. All three work,
            because workers do not run Go.
        daemon : bool
            True: the processes are ended with this process, and cannot have children that multiprocessing starts.
        persistent : bool
            True: the processes stay for all later passes, and must be daemons. `reopen` makes each of them call
            `target` again, in which ``producer.pass_id`` is the number of the pass. They sleep between passes, and
            end when the queue is shut down.

        Returns
        -------
        list of multiprocessing.Process
            The processes, which are started. A persistent worker that has died is replaced in this list by `reopen`.

        Raises
        ------
        StateError
            The current pass has ended. Call `reopen` first.
        ArgumentTypeError
            `target` is a coroutine function or an asynchronous generator function; or pickle refuses `target`
            or `args`; or they are of a notebook or a prompt, and cloudpickle is not installed.
        InvalidArgument
            `persistent` is true, and `daemon` is false.

        Notes
        -----
        A worker ends without an error if the queue is closed, or is at another pass when the worker attaches.
        ``sys.exit`` in `target` is an error, whatever its argument.

        Workers ignore SIGINT. So Ctrl-C in a terminal raises a `KeyboardInterrupt` only in the trainer, which decides
        whether the workers continue. ``signal.signal`` in `target` installs a handler.
        """
        import multiprocessing

        stats = self.stats()
        pass_id = stats["pass_id"]
        if stats["closed"]:
            raise StateError(f"start: pass {pass_id} has ended: reopen() begins the next")
        if persistent and not daemon:
            raise InvalidArgument("daemon: expected True: persistent workers end with their trainer, found False")
        work: Any = (target, tuple(args))
        if method != "fork":
            from ._pickling import portable

            work = portable("target, args", work)
        producer = self.producer()
        if not persistent:
            producer._pass = pass_id  # so that a late worker does not join the next pass
        group = _WorkerGroup(multiprocessing.get_context(method), producer, work, daemon, persistent)
        before = self._expected_workers[1] if self._expected_workers[0] == pass_id else 0
        self._expected_workers = (pass_id, before + num_workers)
        self.expect(before + num_workers)
        try:
            for i in range(num_workers):
                group.processes.append(group.start_worker(i))
        except BaseException as raised:
            error = _refused_pickle(raised, method) or raised
            for process in group.processes:
                process.terminate()
            try:
                self.fail(error, pass_id)
            except Error:
                pass  # the error propagates from here anyway
            if error is not raised:
                raise error from raised
            raise
        if persistent:
            self._groups.append(group)
        if not daemon:  # at exit, multiprocessing waits for the workers, and they wait for the queue
            self._end_at_exit()
        self._watch(group, group.processes)
        group.returned = list(group.processes)
        return group.returned

    @validate()
    def reopen(self) -> int:
        """Begin the next pass. Persistent workers call their function again.

        A persistent worker that has died is replaced.

        Returns
        -------
        int
            The number of tuples of the previous pass that were dropped, because they were not read.

        Raises
        ------
        QueueClosed
            The queue was shut down.

        Warns
        -----
        RuntimeWarning
            A persistent worker has died, and another one takes its place.
        """
        with self._pass_lock:
            if not self._groups:
                return super().reopen()
            dead = [(group, i) for group in self._groups for i, p in enumerate(group.processes) if group.has_ended(p)]
            dropped = super().reopen()  # a worker that dies from here on fails the new pass
            num_workers = sum(len(group.processes) for group in self._groups)
            pass_id = self.stats()["pass_id"]
            self._expected_workers = (pass_id, num_workers)
            self.expect(num_workers)
            for group, i in dead:
                self._replace(group, i, pass_id)
        return dropped

    def _replace(self, group: _WorkerGroup, i: int, pass_id: int | None) -> None:
        process = group.processes[i]
        group.replaced.add(process.pid or 0)
        try:
            group.processes[i] = group.start_worker(i)
        except BaseException as error:
            try:
                self.fail(error, pass_id)
            except Error:
                pass  # the error propagates from here anyway
            raise
        if i < len(group.returned) and group.returned[i] is process:
            group.returned[i] = group.processes[i]
        self._watch(group, [group.processes[i]])
        status = process.exitcode
        if status is None:
            how = "has ended"
        else:
            how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
        warnings.warn(
            f"persistent worker {i} (process {process.pid}) {how}: another takes its place", RuntimeWarning, 4
        )

    def _watch(self, group: _WorkerGroup, processes: list[BaseProcess]) -> None:
        pass_id = None if group.persistent else self.stats()["pass_id"]
        self._processes.update(dict.fromkeys(processes, pass_id))
        exit_statuses = [_ExitStatus(p, is_child=group.is_child) for p in processes]
        threading.Thread(
            target=_report_exits,
            args=(weakref.ref(self), group.replaced, pass_id, exit_statuses),
            name="pyfeed-workers",
            daemon=True,
        ).start()

    def _at_work(self) -> bool:
        """Whether a worker process may push a tuple, even if none is taken from the queue."""
        pass_id, coming = self.stats()["pass_id"], []
        for process in _exit.snapshot(self._processes):
            pid = _live_pid(process)
            if pid is not None and self._processes.get(process) in (None, pass_id):
                coming.append(pid)
        return _native._shared_at_work(self.handle, tuple(coming))

    def _end_at_exit(self) -> None:
        from multiprocessing.util import Finalize

        queue = weakref.ref(self)

        def end() -> None:
            q = queue()
            if q is not None:
                try:
                    q.close()
                except Error:
                    pass  # the queue is shut down

        Finalize(self, end, exitpriority=1000)

    def __reduce__(self) -> Any:
        raise StateError("a SharedFeedQueue stays in its process: send its producer() to the workers")

    def __repr__(self) -> str:
        s = self.stats()
        closed = ", closed" if s["closed"] else ""
        return f"<SharedFeedQueue {s['size']}/{self.capacity()} tuples, pass {s['pass_id']}{closed}>"


class _WorkerGroup:
    """The workers that one call of `start` has started."""

    def __init__(
        self,
        context: Any,  # multiprocessing's
        producer: Producer,
        work: Any,  # a function and its further arguments, or an object that is loaded as both
        daemon: bool,
        persistent: bool,
    ) -> None:
        self.context, self.persistent = context, persistent
        self.is_child = context.get_start_method() != "forkserver"  # workers are children of this process
        self.processes: list[BaseProcess] = []
        self.returned: list[BaseProcess] = []  # the same list, for the caller of start to keep
        self.replaced: set[int] = set()  # ids of processes whose exit is not reported any more
        self._producer, self._work, self._daemon = producer, work, daemon

    def has_ended(self, process: BaseProcess) -> bool:
        if process.exitcode is not None:
            return True
        # Another thread may have taken the status, so look at the sentinel. For a worker of a forkserver, the sentinel
        # is the pipe that delivers the status.
        return self.is_child and bool(_wait([process.sentinel], 0))

    def start_worker(self, worker: int) -> BaseProcess:
        import signal

        from pyfeed_worker._producer import _run, _run_persistent

        process: BaseProcess = self.context.Process(
            target=_run_persistent if self.persistent else _run,
            args=(self._producer, self._work, worker),
            name=f"pyfeed-worker-{worker}",
            daemon=self._daemon,
        )
        method = self.context.get_start_method()
        if method == "forkserver":  # a server that starts now would pass the mask on to all its later processes
            process.start()
            return process
        if method == "spawn":  # start the resource tracker first: starting it unblocks the signal
            from multiprocessing import resource_tracker

            resource_tracker.ensure_running()
        # SIGINT stays blocked until the worker ignores it: Ctrl-C must not end a process while it imports.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return process


class _ExitStatus:
    """The exit status of a process, read without taking it from other code, since the system gives it once only."""

    def __init__(self, process: BaseProcess, *, is_child: bool) -> None:
        self.process, self.pid, self.sentinel = process, process.pid or 0, process.sentinel
        self._popen: Any = process._popen  # type: ignore[attr-defined]
        self._is_child, self._poll, self._lock = is_child, self._popen.poll, threading.Lock()
        if not is_child:  # the status comes from a pipe: join and this object must not each read a part
            self._popen.poll = self._poll_alone

    def _poll_alone(self, flag: int = os.WNOHANG) -> int | None:
        if flag != os.WNOHANG and self._popen.returncode is None:
            _wait([self.sentinel])
        with self._lock:
            status: int | None = self._poll(os.WNOHANG)
            return status

    def status(self) -> int:
        """Return the exit status. Call it when the sentinel is ready."""
        if not self._is_child:
            return self._poll_alone(0) or 0
        try:
            info = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:  # another thread has joined the process, and is about to set returncode
            until = time.monotonic() + _EXIT_STATUS_WAIT
            while self._popen.returncode is None and time.monotonic() < until:
                time.sleep(0.0005)
            return _UNKNOWN if self._popen.returncode is None else int(self._popen.returncode)
        assert info is not None
        return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status


def _report_exits(
    queue_: weakref.ref[SharedFeedQueue], replaced: set[int], pass_id: int | None, exit_statuses: list[_ExitStatus]
) -> None:
    """Wait for workers to end, and report each exit status to the queue if it is still in that pass; None: in any."""
    left = {e.sentinel: e for e in exit_statuses}
    while left:
        for sentinel in _wait(list(left)):
            exit_status_of = left.pop(sentinel)
            status = exit_status_of.status()
            queue = queue_()
            if queue is not None:
                try:
                    with queue._pass_lock:
                        of_pass = pass_id is None or queue.stats()["pass_id"] == pass_id
                        if of_pass and exit_status_of.pid not in replaced:
                            queue.report_exit(exit_status_of.pid, status)
                except Error:
                    pass  # the queue is shut down
            del queue


def _live_pid(process: BaseProcess) -> int | None:
    """Return the process id, or None if the process has ended. The exit status stays for other callers."""
    try:
        return None if _wait([process.sentinel], 0) else process.pid
    except (ValueError, AttributeError):  # another thread has closed the object of a process that has ended
        return None


def _wait(sentinels: list[int], timeout: float | None = None) -> list[int]:
    """Return the sentinels that are ready."""
    from multiprocessing.connection import wait

    return [s for s in wait(sentinels, timeout) if isinstance(s, int)]
