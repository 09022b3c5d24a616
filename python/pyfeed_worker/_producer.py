"""Producer: the worker's end of a queue."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy.typing as npt

from . import _lod, _native
from ._descriptors_linux import path_of
from ._failures import format_exception, note_yield
from ._reserved_slots import reserved_slots
from .errors import Error, InvalidArgument, QueueClosed, StateError


class Producer:
    """The end of a trainer's `pyfeed.shared.SharedFeedQueue` that a worker pushes into.

    ``queue.start`` gives a producer to each worker. ``queue.producer()`` makes one to send to a worker: as an argument
    of a process started by spawn or forkserver, through a fork, or by pickle to any process of the same user on this
    machine.

    The first push, or `attach`, makes the process a worker of the current pass of the queue. A worker ends its part
    with `close` or `fail`; a worker that dies before that fails the queue. A producer is a context manager: the end of
    the block calls `close`, and an exception in the block calls `fail`.

    Every wait takes a ``timeout`` in seconds (None: for ever; 0: not at all). It also ends on Ctrl-C in the main
    thread, and when the trainer ends. All methods may be called from any thread. In a child of ``fork`` the producer is
    a separate worker.

    Parameters
    ----------
    fd : int
        The file descriptor of the ring, from ``producer.fileno()`` in the parent process. It is duplicated.
    """

    _fd = -1
    _lender: tuple[int, int] | None = None  # process id and descriptor that any process may open the ring by
    _structure: Any = None  # of the tuples that are pushed; None: tuples of arrays
    _pass: int | None = None  # the only pass to attach to; None: the current pass

    def __init__(self, fd: int) -> None:
        self._fd = os.dup(fd)
        self._ring: _native.Ring | None = None
        self._closed = self._failed = False

    def fileno(self) -> int:
        """The file descriptor of the ring, such as for ``pass_fds``."""
        return self._fd

    def attach(self) -> None:
        """Become a worker of the current pass; without this call, the first push does so.

        It may be called again after `close`. In the same pass that counts as another worker for the queue's ``expect``.

        Raises
        ------
        QueueClosed
            The queue takes no more.
        StateError
            This is the trainer's own process.
        """
        self._closed = self._failed = False
        self._pass = None
        self._attached()

    def attach_next(self, *, timeout: float | None = None) -> int:
        """Wait for a pass after the last one that this was a worker of, and become a worker of it.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait.

        Returns
        -------
        int
            The number of the pass.

        Raises
        ------
        QueueClosed
            The queue is gone. `TrainerGone` if the trainer is.
        StateError
            The producer has not been closed, or another thread waits in this.
        Timeout
        """
        pass_id = self._mapped().attach_next(timeout)
        self._closed = self._failed = False
        self._pass = None
        return pass_id

    @property
    def pass_id(self) -> int | None:
        """The number, from 0, of the pass that this is or was last a worker of; None before the first."""
        return self._mapped().pass_id

    def _mapped(self) -> _native.Ring:
        if self._ring is None:
            self._ring = _native.open(self._fd)
        return self._ring

    def _attached(self) -> _native.Ring:
        ring = self._mapped()
        if not ring.attached():
            if self._closed:
                raise StateError("the producer is closed: attach() begins anew")
            ring.attach(self._pass)
        return ring

    def push(self, arrays: Sequence[Any] | Mapping[str, Any], *, timeout: float | None = None) -> None:
        """Push a tuple of arrays; wait while all cells of the ring are in use.

        Parameters
        ----------
        arrays : tuple, list or dict
            One array for each slot: a NumPy array, an object in host memory with the buffer protocol,
            ``__array_interface__`` or DLPack, or a `LoDTensor`. The arrays may be strided. They are copied once.
            Numbers of Python take the dtype of their slot. Text and bytes become uint8; for a slot with a level of
            offsets, they are one sequence. If the slots of the queue have names, a dict with these keys may be pushed.
        timeout : float, optional
            Seconds to wait for a cell.

        Raises
        ------
        ShapeError, DTypeError, ByteOrderError, SlotCountError, TooLargeError
            The tuple does not fit the queue. The message says what was expected, what was found, and in which slot.
        QueueClosed
            The queue takes no more tuples. `TrainerGone` if the trainer has ended.
        Timeout
        """
        self._attached().push(arrays, timeout, self._structure)

    def reserve(
        self,
        rows: int | None = None,
        *,
        shapes: Sequence[Sequence[int]] | None = None,
        lod: Sequence[Sequence[npt.ArrayLike] | None] | None = None,
        timeout: float | None = None,
    ) -> Reservation:
        """Reserve a tuple to be written in place, in memory that the trainer reads.

        The result is a context manager. Entering it waits for a cell and returns the arrays, with arbitrary contents.
        Leaving it pushes the tuple without a copy; an exception in the block drops the tuple. After the block the
        arrays are read-only. Do not write to views of them that were made in the block: the consumer owns the memory.

        Parameters
        ----------
        rows : int, optional
            The size of first dimensions of -1.
        shapes : sequence of shapes, optional
            The shape of every slot, in place of `rows`.
        lod : sequence, optional
            The levels of offsets (LoD) of each slot, or None for a slot without.
        timeout : float, optional
            Seconds to wait for a cell of the ring.
        """
        return Reservation(self, rows, shapes, lod, timeout)

    def close(self) -> None:
        """End this worker's part of the pass. What it has pushed is delivered. A second call does nothing.

        Raises
        ------
        StateError
            A tuple is still being written.
        """
        if self._closed:
            return
        try:
            self._attached().end()  # attaches first: a worker that pushed nothing counts too
        except QueueClosed:
            pass
        self._closed = True

    def fail(self, exception: BaseException) -> None:
        """End the pass with an error, and this worker's part.

        Tuples that were pushed are still delivered. Then the consumer gets a `pyfeed.errors.ProducerError` with the
        type, the text and the traceback of the exception.

        Raises
        ------
        QueueClosed
            The pass has ended already, so the consumer would not get the exception.
        """
        if not isinstance(exception, BaseException):
            raise TypeError(f"exception: expected an instance of an exception class, found {exception!r}")
        self._attached().fail(*format_exception(exception))
        self._closed = self._failed = True

    def __enter__(self) -> Producer:
        self._attached()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is None:
            try:
                self.close()
            except BaseException as own:
                self._report_failure(own)
                raise
        else:
            self._report_failure(error)

    def _report_failure(self, error: BaseException) -> None:
        try:
            if not self._closed:
                self.fail(error)
        except Error:
            pass  # the caller raises `error` anyway

    def __reduce__(self) -> tuple[Callable[..., Producer], tuple[Any, ...]]:
        from multiprocessing import context

        if context.get_spawning_popen() is not None:
            from multiprocessing.reduction import DupFd

            return _from_inherited_fd, (DupFd(self._fd), self._pass, self._structure)
        pid, fd = self._lender or (os.getpid(), self._fd)
        return _from_process, (pid, fd, self._mapped().identity, self._pass, self._structure)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "attached" if self._ring and self._ring.attached() else "not attached"
        return f"<Producer of ring {self._fd}, {state}>"


class Reservation:
    """A tuple that is being written in place. Made by `Producer.reserve`."""

    _held: tuple[int, int] | None = None
    _ring: _native.Ring
    _arrays: tuple[Any, ...] = ()

    def __init__(
        self,
        producer: Producer,
        rows: int | None,
        shapes: Sequence[Sequence[int]] | None,
        lod: Sequence[Sequence[npt.ArrayLike] | None] | None,
        timeout: float | None,
    ) -> None:
        self._producer, self._timeout = producer, timeout
        self._slots = reserved_slots(producer._mapped().slots(), rows, shapes, lod)

    def __enter__(self) -> tuple[Any, ...]:
        if self._held is not None:
            raise StateError("reservation: it was entered already: make a new one with producer.reserve()")
        self._ring = self._producer._attached()
        self._held, self._arrays = self._ring.reserve(self._slots, self._timeout)
        return self._arrays

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        held, arrays = self._held, self._arrays
        self._held, self._arrays = None, ()
        if held is None:
            return
        for array in arrays:
            _native._seal(getattr(array, "data", array) if isinstance(array, _lod.LoDTensor) else array)
        if error is None:
            self._ring.commit(*held)
        else:
            self._ring.abandon(*held)

    def __del__(self) -> None:
        if self._held is not None:
            self._ring.abandon(*self._held)


def _from_inherited_fd(fd: Any, pass_id: int | None, structure: Any) -> Producer:
    """Unpickle a producer in a process that multiprocessing starts, which has inherited the descriptor."""
    own = fd.detach()
    try:
        producer = Producer(own)
    finally:
        os.close(own)
    producer._pass, producer._structure = pass_id, structure
    return producer


def _from_process(pid: int, fd: int, identity: bytes, pass_id: int | None, structure: Any) -> Producer:
    """Unpickle a producer in any process, by way of the process that it comes from."""
    try:
        own = os.open(path_of(fd, pid), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        raise StateError(
            f"process {pid}, which this producer comes from, has ended or does not have its queue any more"
        ) from None
    try:
        producer = Producer(own)
    finally:
        os.close(own)
    try:
        same = producer._mapped().identity == identity
    except Error:
        same = False
    if not same:
        raise StateError(f"process {pid}, which this producer comes from, does not have its queue any more")
    producer._lender, producer._pass, producer._structure = (pid, fd), pass_id, structure
    return producer


def _ignore_ctrl_c() -> None:
    """Ignore SIGINT. A terminal sends it to all processes at once, and the trainer decides whether workers end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # blocked by the trainer until now


_Work = tuple[Callable[..., object], Sequence[Any]]  # a target, and its further arguments


def _call(producer: Producer, work: _Work, worker: int) -> None:
    """Call the target for a pass. What it returns is ignored, unless it looks like code that has not run."""
    target, args = work
    result = target(producer, worker, *args)
    if isinstance(result, (Iterator, Coroutine)):
        raise InvalidArgument(
            "target: expected a function that calls producer.push(...), found one that returns "
            f"{type(result)}, from which nothing is pushed"
        )


class _Yielding:
    """A target that pushes what a generator function yields."""

    def __init__(self, function: Callable[..., Generator[Any, Any, Any]]) -> None:
        self._function = function

    def __call__(self, producer: Producer, worker: int, *args: Any) -> None:
        tuples = self._function(worker, *args)
        try:
            for number, arrays in enumerate(tuples):
                try:
                    producer.push(arrays)
                except QueueClosed:
                    raise
                except Exception as error:
                    note_yield(error, number, tuples)
                    raise
        finally:
            tuples.close()


def _run(producer: Producer, work: _Work, worker: int) -> None:
    """Run a worker of ``SharedFeedQueue.start``."""
    _ignore_ctrl_c()
    try:
        producer._mapped().set_number(worker)
        with producer:
            _call(producer, work, worker)
    except QueueClosed:
        pass  # the trainer takes no more tuples, or has ended
    except SystemExit:
        raise
    except BaseException:
        if not producer._failed:
            raise
        raise SystemExit(1) from None  # the consumer gets the exception with its traceback


def _run_persistent(producer: Producer, work: _Work, worker: int) -> None:
    """Run a persistent worker: one call of the target for each pass, until the queue or the trainer is gone."""
    _ignore_ctrl_c()
    producer._mapped().set_number(worker)
    while True:
        try:
            producer.attach_next()
        except QueueClosed:
            return
        try:
            with producer:
                _call(producer, work, worker)
        except QueueClosed:
            pass  # the trainer takes no more tuples in this pass
        except (Exception, SystemExit):
            if not producer._failed:
                raise
        except BaseException:
            if not producer._failed:
                raise
            raise SystemExit(1) from None  # the consumer gets the exception with its traceback
