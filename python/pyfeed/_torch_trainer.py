"""The trainer's side of `pyfeed.torch`: the queues and processes that PyTorch's iterators use."""

from __future__ import annotations

import _thread
import contextlib
import io
import marshal
import os
import pickle
import queue
import select
import signal
import socket
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from functools import partial
from types import CodeType, FrameType
from typing import Any

import torch.multiprocessing
from pyfeed_worker import _torch_worker
from pyfeed_worker._descriptors_linux import memory_file
from pyfeed_worker._torch_memory import Segment
from pyfeed_worker._torch_messages import IndexPickler, decode, encode
from pyfeed_worker._torch_worker import IndexReceiver, ResultSender, WorkerStart, receive, send
from torch.utils.data import dataloader

_RECEIVE_BYTES = 256 << 10
_INDEX_BYTES = 32 << 10  # larger indices are sent as a memfd
_END_WAIT = 5.0  # seconds


class IndexQueue:
    """The queue of the indices for one worker. A put never waits."""

    def __init__(self) -> None:
        self._trainer_end, self._worker_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._backlog: deque[tuple[bytes, int | None]] = deque()

    def put(self, obj: Any) -> None:
        """Queue an object."""
        file = io.BytesIO()
        IndexPickler(file, pickle.HIGHEST_PROTOCOL).dump(obj)
        data, fd = file.getvalue(), None
        if len(data) > _INDEX_BYTES:
            fd = memory_file("pyfeed-torch-indices")
            with open(fd, "wb", closefd=False) as target:
                target.write(data)
            os.lseek(fd, 0, os.SEEK_SET)
            data = b"-"
        self._backlog.append((data, fd))
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes."""
        while self._backlog:
            data, fd = self._backlog[0]
            try:
                if not send(self._trainer_end, data, () if fd is None else (fd,)):
                    return
            except OSError:
                pass  # the worker has ended, or the queue is closed
            self._backlog.popleft()
            if fd is not None:
                os.close(fd)

    def receiver(self) -> IndexReceiver:
        """Return the worker's end."""
        return IndexReceiver(self._worker_end)

    def close_worker_end(self) -> None:
        """Close the worker's end, after the worker has been started."""
        self._worker_end.close()

    def cancel_join_thread(self) -> None:
        """Do nothing: there is no thread."""

    def close(self) -> None:
        """Close the sockets, and drop what was not sent."""
        for _, fd in self._backlog:
            if fd is not None:
                os.close(fd)
        self._backlog.clear()
        self._trainer_end.close()
        self._worker_end.close()


class ResultQueue:
    """The queue of the results of all workers."""

    def __init__(self, context: Context) -> None:
        self._receiver, self.sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._segments: dict[tuple[int, int], Segment] = {}
        self._context = weakref.ref(context)
        self._poll = select.poll()
        self._poll.register(self._receiver, select.POLLIN)
        self._sentinels: dict[int, Any] = {}  # processes by descriptor

    def add_process(self, process: Any) -> None:
        """Watch a worker process: its end wakes `get`."""
        self._sentinels[process.sentinel] = process
        self._poll.register(process.sentinel, select.POLLIN)

    def put(self, obj: Any) -> None:
        """Wake a thread of the trainer that waits in `get`. The object must be small, and have no tensors."""
        send(self.sender, marshal.dumps((-1, [], [], [], encode(obj, _no_memory, lambda _: None))))

    def get(self, timeout: float | None = None) -> Any:
        """Return the next result. queue.Empty: the time is over, or a worker ended that should not have."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            context = self._context()
            if context is not None:
                context.flush()
            message = receive(self._receiver, self._buffer)
            if message is not None:
                return self._load(*message)
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise queue.Empty
            ready = [fd for fd, _ in self._poll.poll(None if left is None else left * 1000)]
            if self._receiver.fileno() in ready:
                continue
            for fd in ready:
                process = self._sentinels.pop(fd)
                self._poll.unregister(fd)
                _wait_for_end(process)  # the caller asks is_alive
                if context is None or context.is_needed(process):
                    raise queue.Empty

    def _load(self, nbytes: int, fds: list[int]) -> Any:
        worker, new, dropped, parts, body = marshal.loads(memoryview(self._buffer)[:nbytes])
        try:
            for fd, (serial, size) in zip(fds, new, strict=True):
                self._segments[worker, serial] = Segment(fd, size)
        finally:
            for fd in fds:
                os.close(fd)
        for serial in dropped:
            self._segments.pop((worker, serial), None)
        return decode(body, [self._segments[worker, serial].lease() for serial in parts])

    def cancel_join_thread(self) -> None:
        """Do nothing: there is no thread."""

    def close(self) -> None:
        """Close the sockets. Batches that are in use stay valid."""
        self._receiver.close()
        self.sender.close()
        self._segments.clear()


def _wait_for_end(process: Any) -> None:
    """Wait until a process whose sentinel is ready has ended, and leave its exit status.

    PyTorch's handler of SIGCHLD looks at the status, and raises an error with the signal that killed a worker.
    """
    until = time.monotonic() + _END_WAIT
    try:
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            if time.monotonic() > until:
                return
            time.sleep(0.001)  # the descriptors of a process are closed shortly before its end
    except ChildProcessError:  # it belongs to a forkserver, or another thread has taken the status
        process.join(_END_WAIT)


def _no_memory(nbytes: int) -> tuple[int, int, int]:
    raise AssertionError("the trainer sends no tensors")


class Context:
    """A multiprocessing context for one iterator, whose queues and processes are those of this module.

    Parameters
    ----------
    inner
        The context that the processes and events are taken from.
    iterator
        The iterator, which has the list `_workers` and knows in `_workers_status` which of them are needed.
    with_state : bool
        The results are those of torchdata's worker loop.
    """

    def __init__(self, inner: Any, iterator: Any, *, with_state: bool) -> None:
        self._inner, self._iterator, self._with_state = inner, weakref.ref(iterator), with_state
        self._results: ResultQueue | None = None
        self._indices: list[IndexQueue] = []
        self._num_made = 0
        self.processes: list[Any] = []  # that were started

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def Queue(self) -> ResultQueue | IndexQueue:  # noqa: N802
        """Return the result queue first, then an index queue for each worker."""
        if self._results is None:
            self._results = ResultQueue(self)
            return self._results
        self._indices.append(IndexQueue())
        return self._indices[-1]

    def Process(self, target: Any, args: tuple[Any, ...]) -> Any:  # noqa: N802
        """Return a process that runs PyTorch's worker loop with the worker's ends of the queues."""
        results = self._results
        assert results is not None
        sender = ResultSender(results.sender, self._num_made, with_state=self._with_state)
        self._num_made += 1
        index_queue = next(a for a in args if isinstance(a, IndexQueue))
        ends = {id(results): sender, id(index_queue): index_queue.receiver()}
        method = self._inner.get_start_method()
        inherited: list[Any] = []
        if method == "fork":
            inherited = [results._receiver, *(q._trainer_end for q in self._indices)]
        start = WorkerStart(target, tuple(ends.get(id(a), a) for a in args), sender, inherited)
        process = self._inner.Process(target=_torch_worker.run, args=(start,))
        process.start = partial(self._start, process, start, index_queue)
        return process

    def _start(self, process: Any, start: WorkerStart, index_queue: IndexQueue) -> None:
        assert self._results is not None
        del process.start  # the instance is pickled
        with _interrupt_at_end():
            try:
                with _interrupt_blocked(self._inner.get_start_method()):
                    process.start()
            finally:
                start.close_fd()
                index_queue.close_worker_end()
            self.processes.append(process)
            self._results.add_process(process)

    def is_needed(self, process: Any) -> bool:
        """Whether the iterator expects results of the worker process."""
        iterator = self._iterator()
        if iterator is None or process not in iterator._workers:  # the iterator is being made
            return True
        return bool(iterator._workers_status[iterator._workers.index(process)])

    def flush(self) -> None:
        """Send the indices that the sockets did not take before."""
        for index_queue in self._indices:
            index_queue.flush()

    def stop_receiving(self) -> None:
        """Make workers that wait in a send drop their results."""
        if self._results is not None:
            with contextlib.suppress(OSError):
                self._results._receiver.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close all descriptors."""
        if self._results is not None:
            self._results.close()
        for index_queue in self._indices:
            index_queue.close()


class LoaderView:
    """A DataLoader whose multiprocessing context is replaced."""

    def __init__(self, loader: Any, context: Context) -> None:
        self._loader = loader
        self.multiprocessing_context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _gets_interrupts() -> bool:
    """Whether a Ctrl-C raises an exception in this thread."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    return in_main_thread and callable(signal.getsignal(signal.SIGINT)) and not sys.is_finalizing()


@contextlib.contextmanager
def _interrupt_blocked(method: str) -> Iterator[None]:
    """Block SIGINT in processes that are started in the block, until they ignore it: they print nothing at a Ctrl-C.

    Processes of the fork server do not take part. A server that starts in the block would pass the mask on to all its
    later processes.
    """
    if method == "forkserver":
        yield
        return
    if method == "spawn":  # start the resource tracker first: starting it unblocks the signal
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextlib.contextmanager
def _interrupt_at_end() -> Iterator[None]:
    """In the main thread, raise the KeyboardInterrupt of a Ctrl-C at the end of the block.

    A worker process whose start is interrupted would print a traceback, because it gets only a part of its data.
    """
    if not _gets_interrupts():
        yield
        return
    received = []
    handler = signal.signal(signal.SIGINT, lambda signum, _frame: received.append(signum))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if received:
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def _interrupt_deferred(function: CodeType) -> Iterator[None]:
    """In the main thread, raise the KeyboardInterrupt of a Ctrl-C just after the calling function has returned.

    `function` is the code of that function.
    """
    handler = signal.getsignal(signal.SIGINT)
    if not _gets_interrupts() or not callable(handler):
        yield
        return
    deferred, received = True, False

    def interrupt(signum: int, frame: FrameType | None) -> None:
        nonlocal received
        if deferred:
            received = True
        elif _is_running(function, frame):
            _send_interrupt()
        else:
            signal.signal(signal.SIGINT, handler)
            handler(signum, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if received:
            deferred = False
            signal.signal(signal.SIGINT, interrupt)
            _send_interrupt()


def _is_running(function: CodeType, frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code is function:
            return True
        frame = frame.f_back
    return False


def _send_interrupt() -> None:
    # The new thread needs the GIL, which this thread usually keeps until the function has returned. If the signal comes
    # earlier, the handler sends it again.
    _thread.start_new_thread(os.kill, (os.getpid(), signal.SIGINT))


class SharedMemoryIterator:
    """What an iterator of PyTorch or torchdata gets as a first base class: the transport, and the release of it."""

    _with_state = False
    _context: Context | None = None
    _workers: list[Any]
    _index_queues: list[Any]

    def __init__(self, loader: Any, *args: Any) -> None:
        # PyTorch's __init__ sets these too. If a KeyboardInterrupt ends it early, _shutdown_workers needs them.
        self._shutdown, self._worker_pids_set = True, False
        self._workers, self._index_queues = [], []
        self._workers_done_event = threading.Event()
        self._workers_status = [True] * loader.num_workers
        inner = loader.multiprocessing_context or torch.multiprocessing
        self._context = Context(inner, self, with_state=self._with_state)
        super().__init__(LoaderView(loader, self._context), *args)  # type: ignore[call-arg]

    def _shutdown_workers(self) -> None:
        context = self._context
        if context is None:
            return
        if not hasattr(self, "_pin_memory_thread"):
            context.stop_receiving()
        try:
            super()._shutdown_workers()  # type: ignore[misc]
        finally:
            if self._shutdown:
                self._context = None
                context.close()
                for process in context.processes:
                    if process not in self._workers:  # a Ctrl-C came when it had just been started
                        process.terminate()
                    process.join(_END_WAIT)
                    if process.is_alive():  # it ignores SIGTERM
                        process.kill()
                        process.join()

    def __del__(self) -> None:
        # Python drops the exceptions of __del__, and of the finalizers of what the attributes hold.
        with _interrupt_deferred(SharedMemoryIterator.__del__.__code__):
            self._shutdown_workers()
            vars(self).clear()


class DataLoaderIterator(SharedMemoryIterator, dataloader._MultiProcessingDataLoaderIter):  # type: ignore[misc]
    """PyTorch's iterator of a loader with workers, with the transport of this module."""
