"""The worker's side of `pyfeed.torch`: receives indices, and sends batches in shared memory."""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import marshal
import math
import os
import pickle
import queue
import select
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from multiprocessing import reduction
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch._utils import ExceptionWrapper

from . import _torch_collate
from ._descriptors_linux import memory_file
from ._torch_memory import WorkerSegment
from ._torch_messages import encode

_FIRST_SEGMENT_BYTES = 16 << 20  # sparse, so a generous size costs nothing
_CHECKED_EVERY = 64  # batches, after which segments that were not needed are freed
_LEAST_KEPT_BYTES, _MOST_KEPT_BYTES = 1 << 20, 1 << 30
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD = -1, -3, 32 << 20  # of malloc.h
_LARGEST_DATAGRAM = 64 << 10
_FD_SPACE = socket.CMSG_SPACE(253 * 4)  # 253 is the limit of Linux


def send(sock: socket.socket, data: bytes, fds: Sequence[int] = ()) -> bool:
    """Send a message without waiting. Return False if there is no room for it now."""
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    try:
        sock.sendmsg([data], ancillary, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except BlockingIOError:
        return False
    return True


def receive(sock: socket.socket, buffer: bytearray) -> tuple[int, list[int]] | None:
    """Receive a message into `buffer`. Return its size and the descriptors, or None if there is none now."""
    try:
        nbytes, ancillary, flags, _ = sock.recvmsg_into(
            [buffer], _FD_SPACE, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
        )
    except BlockingIOError:
        return None
    fds = array.array("i")
    for _, _, data in ancillary:
        fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    if flags & socket.MSG_CTRUNC:  # the limit of descriptors is reached
        for fd in fds:
            os.close(fd)
        os.close(os.dup(sock.fileno()))  # raises the error of the system
        raise OSError("the descriptor of a batch was lost")
    return nbytes, fds.tolist()


class BatchMemory:
    """The shared memory of a worker: the segments, and the batch that is being written."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # threads of the dataset may collate too
        self._segments: list[WorkerSegment] = []
        self._serial = 0
        self._capacity = _FIRST_SEGMENT_BYTES
        self._parts: list[WorkerSegment] = []  # of the current batch
        self._views: list[npt.NDArray[np.uint8]] = []  # of `_parts`
        self._dropped: list[int] = []
        self._batches = self._most_in_use = self._largest_batch = 0
        self._kept_bytes = 0

    def _add_part(self, nbytes: int) -> None:
        while self._capacity < nbytes + 4096:
            self._capacity *= 2
        segment = next((s for s in self._segments if s.nbytes >= self._capacity and s.is_free), None)
        if segment is None:
            self._serial += 1
            segment = WorkerSegment(self._serial, self._capacity)
            self._segments.append(segment)
        self._parts.append(segment)
        self._views.append(segment.begin())

    def allocate(self, nbytes: int) -> tuple[int, int, int]:
        """Return the number of a part of the current batch, the offset of `nbytes` bytes in it, and their address."""
        with self._lock:
            at = self._parts[-1].allocate(nbytes) if self._parts else None
            if at is None:
                if self._parts:  # the batch is larger than a segment, and so may be the next
                    self._capacity *= 2
                self._add_part(nbytes)
                at = self._parts[-1].allocate(nbytes)
                assert at is not None
            part = len(self._parts) - 1
            return part, at, self._parts[part].address + at

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor in the current batch. It must have elements."""
        count = math.prod(shape)
        part, at, _ = self.allocate(count * dtype.itemsize)
        return torch.frombuffer(self._views[part], dtype=dtype, count=count, offset=at).view(shape)

    def find(self, address: int) -> tuple[int, int] | None:
        """Return the part of the current batch that has the address, and the offset in it."""
        for i, segment in enumerate(self._parts):
            if 0 <= address - segment.address < segment.nbytes:
                return i, address - segment.address
        return None

    def finish(self) -> tuple[list[WorkerSegment], list[int]]:
        """End the batch. Return its segments, and the serials of the segments that were freed since the last batch."""
        with self._lock:
            parts, self._parts, self._views = self._parts, [], []
            for segment in parts:
                segment.mark_in_use()
            self._batches += 1
            nbytes = sum(s.end for s in parts)
            self._largest_batch = max(self._largest_batch, nbytes)
            if nbytes > self._kept_bytes:
                self._kept_bytes = nbytes * 5 // 4
                _keep_freed_memory(2 * self._kept_bytes)
            in_use = sum(not s.is_free for s in self._segments)
            self._most_in_use = max(self._most_in_use, in_use)
            # A smaller capacity than the current one is of no use, and a retired segment belongs to a child of fork.
            self._drop([s for s in self._segments if s.is_retired or (s.nbytes < self._capacity and s.is_free)])
            if self._batches >= _CHECKED_EVERY:
                free = [s for s in self._segments if s.is_free]
                surplus = max(0, len(self._segments) - self._most_in_use - 1)
                wasteful = [s for s in free if s.written > 4 * self._largest_batch + (1 << 20)]
                self._drop(free[len(free) - surplus :] + [s for s in wasteful if s not in free[len(free) - surplus :]])
                self._batches = self._most_in_use = self._largest_batch = 0
            dropped, self._dropped = self._dropped, []
            return parts, dropped

    def cancel(self) -> None:
        """Forget the current batch."""
        with self._lock:
            self._parts, self._views = [], []

    def _drop(self, segments: list[WorkerSegment]) -> None:
        for segment in segments:
            self._segments.remove(segment)
            if segment.fd is None:  # the trainer has it too
                self._dropped.append(segment.serial)


def _keep_freed_memory(nbytes: int) -> None:
    """Make malloc keep up to `nbytes` bytes of freed memory, unless the environment configures malloc.

    glibc gives the memory of the samples back to the system after each batch, and the system clears new pages for the
    next. For 64 samples of 600 kB, these page faults took 15 of the 20 ms in which the samples were made.
    """
    if nbytes < _LEAST_KEPT_BYTES or any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return
    with contextlib.suppress(AttributeError):  # a C library without mallopt
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, min(nbytes, _LARGEST_MMAP_THRESHOLD))
        mallopt(_M_TRIM_THRESHOLD, min(nbytes, _MOST_KEPT_BYTES))


class IndexReceiver:
    """The worker's end of an index queue."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._buffer = bytearray(_LARGEST_DATAGRAM)

    def __reduce__(self) -> Any:
        return IndexReceiver, (self._socket,)

    def get(self, timeout: float | None = None) -> Any:
        """Return the next object, or raise queue.Empty. End the process if the other end is closed."""
        message = receive(self._socket, self._buffer)
        if message is None:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            if not poll.poll(None if timeout is None else timeout * 1000):
                raise queue.Empty
            message = receive(self._socket, self._buffer)
        if message is None:
            raise queue.Empty
        nbytes, fds = message
        if fds:
            with open(fds[0], "rb") as file:
                return pickle.load(file)
        if nbytes == 0:
            # The trainer has ended. PyTorch's own check compares the parent process with the one at the time when the
            # check was set up, and sees no change if the trainer had ended before.
            raise SystemExit
        return pickle.loads(memoryview(self._buffer)[:nbytes])

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class ResultSender:
    """The worker's end of the result queue."""

    def __init__(self, sock: socket.socket, worker: int, *, with_state: bool) -> None:
        self._socket, self._worker, self._with_state = sock, worker, with_state
        self._parent = 0
        self._memory: BatchMemory | None = None

    def __reduce__(self) -> Any:
        return _result_sender, (self._socket, self._worker, self._with_state)

    def open(self) -> None:
        """Begin the work in the worker process: from now on, collation writes into shared memory."""
        self._parent = os.getppid()
        self._memory = memory = BatchMemory()
        _torch_collate.install(memory)

    def put(self, obj: Any) -> None:
        """Send an object to the trainer. An object that cannot be pickled is replaced by its error."""
        memory = self._memory
        assert memory is not None
        try:
            body = encode(obj, memory.allocate, memory.find)
        except Exception:
            memory.cancel()
            error = ExceptionWrapper(where=f"in DataLoader worker process {self._worker}")
            key, data = obj
            # The results of a StatefulDataLoader are tuples: data, worker, state.
            replaced = (error, *data[1:]) if self._with_state and isinstance(data, tuple) else error
            try:
                body = encode((key, replaced), memory.allocate, memory.find)
            except Exception:
                memory.cancel()
                unpicklable = ExceptionWrapper(where=f"in DataLoader worker process {self._worker}")
                replaced = (unpicklable, self._worker, None) if self._with_state else unpicklable
                body = encode((key, replaced), memory.allocate, memory.find)
        parts, dropped = memory.finish()
        new = [s for s in parts if s.fd is not None]
        message = (self._worker, [(s.serial, s.nbytes) for s in new], dropped, [s.serial for s in parts], body)
        self._send(marshal.dumps(message), [s.fd for s in new if s.fd is not None])
        for segment in new:
            segment.close_fd()

    def _send(self, data: bytes, fds: list[int]) -> None:
        try:
            while not send(self._socket, data, fds):
                poll = select.poll()
                poll.register(self._socket, select.POLLOUT)
                if not poll.poll(1000) and os.getppid() != self._parent:
                    return
        except (BrokenPipeError, ConnectionError):
            pass  # the trainer takes no more results

    def cancel_join_thread(self) -> None:
        """Do nothing: there is no thread."""

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def _result_sender(sock: socket.socket, worker: int, with_state: bool) -> ResultSender:
    return ResultSender(sock, worker, with_state=with_state)


class WorkerStart:
    """What a worker process calls. For a process that does not inherit it, it is pickled into a memfd.

    `multiprocessing` writes the arguments of a process into a pipe. It waits until the process reads them, so that
    processes with large arguments start one after the other. A memfd takes them at once.
    """

    def __init__(
        self, target: Callable[..., object], args: tuple[Any, ...], sender: ResultSender, inherited: Sequence[Any] = ()
    ) -> None:
        self._target, self._args, self._sender = target, args, sender
        self._inherited = inherited  # ends of sockets that a forked worker does not need
        self._fd: int | None = None

    def __reduce__(self) -> Any:
        self._fd = fd = memory_file("pyfeed-torch-start")
        with open(fd, "wb", closefd=False) as file:
            reduction.ForkingPickler(file, pickle.HIGHEST_PROTOCOL).dump((self._target, self._args, self._sender))
        os.lseek(fd, 0, os.SEEK_SET)
        return _load_start, (reduction.DupFd(fd),)

    def close_fd(self) -> None:
        """Close the memfd, after the process has been started."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def take(self) -> tuple[Callable[..., object], tuple[Any, ...], ResultSender]:
        """Return the parts, and let go of them, so that only the function that is called keeps the dataset."""
        for end in self._inherited:
            end.close()
        taken = self._target, self._args, self._sender
        self._args, self._inherited = (), ()
        return taken


def _load_start(duplicate: Any) -> WorkerStart:
    with open(duplicate.detach(), "rb") as file:
        return WorkerStart(*pickle.load(file))


def run(start: WorkerStart) -> None:
    """Run a worker. A worker ignores SIGINT: a terminal sends it to all processes, and the trainer handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # blocked by the trainer until now
    gc.freeze()  # else a collection writes to, and so copies, the pages of all objects that a fork shares
    target, args, sender = start.take()
    del start
    sender.open()
    target(*args)
