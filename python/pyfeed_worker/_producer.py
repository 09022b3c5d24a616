"""Producer: what a worker pushes through."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import numpy.typing as npt

from . import _lod, _native
from ._errors import DTypeError, Error, InvalidArgument, QueueClosed, ShapeError, SlotCountError, StateError


class Producer:
    """A worker's way into a trainer's `pyfeed.SharedFeedQueue`.

    Given to a worker by ``queue.start``, or made by ``queue.producer()`` and sent to it: as an argument of a process
    started by spawn or forkserver, through a fork, or by pickle to any process of the same user on this machine.

    The first push, or `attach`, makes the process a worker of the queue's current pass. A worker ends its part with
    `close`, or `fail`; one that dies before fails the queue. As a context manager, it is closed at the end of the
    block, or failed by its exception.

    Every wait takes a ``timeout`` in seconds (None: for ever; 0: not at all), ends on Ctrl-C in the main thread, and
    when the trainer is gone. All methods may be called from any thread. In a child of ``fork`` it is a worker of its
    own.

    Parameters
    ----------
    fd : int
        The ring's file descriptor, as ``producer.fileno()`` gives it to those that inherit it. It is duplicated.
    """

    _fd = -1
    _lender: tuple[int, int] | None = None  # whose descriptor any process may open
    _pass: int | None = None  # the only one that it is for; None: the current one

    def __init__(self, fd: int) -> None:
        self._fd = os.dup(fd)
        self._ring: _native.Ring | None = None
        self._closed = self._failed = False

    def fileno(self) -> int:
        """The ring's file descriptor, for ``pass_fds`` and the like."""
        return self._fd

    def attach(self) -> None:
        """Become a worker of the current pass, which the first push does otherwise; again, after `close`.

        Whoever closes and attaches again in the same pass is another worker, for the queue's ``expect``.

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
        """Wait for a pass after the last that this was a worker of, and become a worker of it.

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
            The queue is gone, or, `TrainerGone`, its trainer is.
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
        """The number of the pass that it is a worker of, or was last, from 0; None before the first."""
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

    def push(self, arrays: Sequence[Any], *, timeout: float | None = None) -> None:
        """Put a tuple of arrays in; wait while all cells of the ring are in use.

        Parameters
        ----------
        arrays : tuple or list
            One array a slot: NumPy's, or anything with the buffer protocol, ``__array_interface__`` or DLPack in the
            host's memory, or a `LoDTensor`. Strided ones are gathered. The arrays are copied, once.
        timeout : float, optional
            Seconds to wait for a cell.

        Raises
        ------
        ShapeError, DTypeError, ByteOrderError, SlotCountError, TooLargeError
            The tuple does not fit: what was expected, what was found, in which slot.
        QueueClosed
            The queue takes no more, or, `TrainerGone`, nobody is there to take it.
        Timeout
        """
        self._attached().push(arrays, timeout)

    def slot(
        self,
        rows: int | None = None,
        *,
        shapes: Sequence[Sequence[int]] | None = None,
        lod: Sequence[Sequence[npt.ArrayLike] | None] | None = None,
        timeout: float | None = None,
    ) -> Slot:
        """A tuple to be written in place: a context manager that gives its arrays, and pushes them at its end.

        They lie in the memory that the trainer reads, so nothing is copied. They hold whatever was there before. An
        exception in the block drops the tuple. After the block they cannot be written any more; views of them that
        were made in the block must not be, since the consumer has the memory.

        Parameters
        ----------
        rows : int, optional
            The size of first dimensions of -1.
        shapes : sequence of shapes, optional
            All sizes of all slots, instead.
        lod : sequence, optional
            The offsets of each slot's levels of detail, or None.
        timeout : float, optional
            Seconds to wait for a cell of the ring.
        """
        return Slot(self, rows, shapes, lod, timeout)

    def close(self) -> None:
        """End this worker's part well. What it has pushed is delivered. Twice is fine.

        Raises
        ------
        StateError
            A tuple is still being written.
        """
        if self._closed:
            return
        try:
            self._attached().end()  # one that pushes nothing is counted too
        except QueueClosed:
            pass
        self._closed = True

    def fail(self, exception: BaseException) -> None:
        """End the pass with an error, and this worker's part.

        What was pushed is still delivered; then the consumer gets a `pyfeed.ProducerError` with the exception's type,
        text and traceback.

        Raises
        ------
        QueueClosed
            The pass has ended already: the exception would be lost.
        """
        if not isinstance(exception, BaseException):
            raise TypeError(f"exception: expected an instance of an exception class, found {exception!r}")
        self._attached().fail(*_told(exception))
        self._closed = self._failed = True

    def __enter__(self) -> Producer:
        self._attached()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            try:
                self.close()
            except BaseException as own:
                self._told_of(own)
                raise
        elif not isinstance(error, SystemExit):  # the trainer hears of a status by itself
            self._told_of(error)

    def _told_of(self, error: BaseException) -> None:
        try:
            if not self._closed:
                self.fail(error)
        except Error:
            pass  # it propagates from here anyway

    def __reduce__(self) -> tuple[Callable[..., Producer], tuple[Any, ...]]:
        from multiprocessing import context

        if context.get_spawning_popen() is not None:
            from multiprocessing.reduction import DupFd

            return _inherited, (DupFd(self._fd), self._pass)
        pid, fd = self._lender or (os.getpid(), self._fd)
        return _borrowed, (pid, fd, self._mapped().identity, self._pass)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "attached" if self._ring and self._ring.attached() else "not attached"
        return f"<Producer of ring {self._fd}, {state}>"


class Slot:
    """A tuple that is being written in place. Made by `Producer.slot`."""

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
        self._wanted = _wanted(producer._mapped().slots(), rows, shapes, lod)

    def __enter__(self) -> tuple[Any, ...]:
        if self._held is not None:
            raise StateError("slot: it was entered already: make a new one with producer.slot()")
        self._ring = self._producer._attached()
        self._held, self._arrays = self._ring.reserve(self._wanted, self._timeout)
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


def _wanted(
    slots: Sequence[tuple[str | None, tuple[int, ...], int]],
    rows: int | None,
    shapes: Sequence[Sequence[int]] | None,
    lod: Sequence[Sequence[npt.ArrayLike] | None] | None,
) -> tuple[Any, ...]:
    """What C is to reserve: dtype, shape and LoD of every slot."""
    for name, given in (("shapes", shapes), ("lod", lod)):
        if given is not None and len(given) != len(slots):
            raise SlotCountError(f"{name}: expected {len(slots)}, one a slot, found {len(given)}")
    out = []
    for i, (dtype, dims, _) in enumerate(slots):
        if shapes is not None:
            dims = tuple(shapes[i])
        elif dims[:1] == (-1,):
            if rows is None:
                raise _about(i, InvalidArgument, "rows: expected a number for its first dimension of -1, found None")
            dims = (rows, *dims[1:])
        try:
            levels = tuple(
                _lod.offsets_of(level, j) for j, level in enumerate((lod[i] if lod is not None else None) or ())
            )
        except (ShapeError, DTypeError) as e:
            raise _about(i, type(e), str(e)) from None
        out.append((dtype, dims, levels))
    return tuple(out)


def _about(slot: int, kind: type[Error], text: str) -> Error:
    error = kind(f"slot {slot}: {text}")
    error.slot = slot
    return error


def _told(exception: BaseException) -> tuple[str, str, str]:
    """Type, text and traceback, as C takes them."""
    import traceback

    kind = type(exception)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(exception)
    except BaseException:
        message = "<its str() failed>"
    text = "".join(traceback.format_exception(kind, exception, exception.__traceback__))
    return _for_c(name), _for_c(message), _for_c(text)


def _for_c(text: str) -> str:
    """C's strings end at a NUL, and are UTF-8."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")


def _inherited(fd: Any, pass_id: int | None) -> Producer:
    """In a process that multiprocessing starts, with a descriptor of its own."""
    own = fd.detach()
    try:
        producer = Producer(own)
    finally:
        os.close(own)
    producer._pass = pass_id
    return producer


def _borrowed(pid: int, fd: int, identity: bytes, pass_id: int | None) -> Producer:
    """In any process, through that which has pickled the producer."""
    try:
        own = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        raise StateError(
            f"process {pid}, which this producer is of, is gone, or does not have its queue any more"
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
        raise StateError(f"process {pid}, which this producer is of, does not have its queue any more")
    producer._lender, producer._pass = (pid, fd), pass_id
    return producer


def _ignore_ctrl_c() -> None:
    """It comes to all processes of a terminal at once, and the trainer decides what is to become of its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # it was held back until now


def _run(producer: Producer, target: Callable[..., object], worker: int, args: Sequence[Any]) -> None:
    """A worker of ``SharedFeedQueue.start``, from its beginning to its end."""
    _ignore_ctrl_c()
    try:
        with producer:
            target(producer, worker, *args)
    except QueueClosed:
        pass  # the trainer has all it wants, or is gone
    except SystemExit:
        raise
    except BaseException:
        if not producer._failed:
            raise
        raise SystemExit(1) from None  # the consumer is told, with the traceback


def _stay(producer: Producer, target: Callable[..., object], worker: int, args: Sequence[Any]) -> None:
    """A persistent one: pass after pass, until there is no trainer, or no queue."""
    _ignore_ctrl_c()
    while True:
        try:
            producer.attach_next()
        except QueueClosed:
            return
        try:
            with producer:
                target(producer, worker, *args)
        except QueueClosed:
            pass  # the trainer has all it wants of this pass
        except Exception:
            if not producer._failed:
                raise
        except BaseException:
            if not producer._failed:
                raise
            raise SystemExit(1) from None  # the consumer is told, with the traceback
