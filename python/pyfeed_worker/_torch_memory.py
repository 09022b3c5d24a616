"""Shared memory for the batches of `pyfeed.torch`: segments, and leases that say when a segment is free again."""

from __future__ import annotations

import os
import weakref

import numpy as np
import numpy.typing as npt
import torch

from ._descriptors_linux import memory_file, path_of

_HEADER_BYTES = 64
_FREE, _IN_USE, _RETIRED = 0, 1, 2  # the values of the first word of a segment


class Segment:
    """A memfd that one worker writes and the trainer reads. Neither keeps a descriptor of it.

    The first word of the segment is its state. The worker sets it before it sends a batch. The trainer sets it when
    the last view of the batch is gone: the worker may then write the next batch into the segment.
    """

    def __init__(self, fd: int, nbytes: int) -> None:
        # mmap.mmap would keep a duplicate of the descriptor.
        storage = torch.UntypedStorage.from_file(path_of(fd), True, nbytes)
        self.bytes: npt.NDArray[np.uint8] = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
        self.state: npt.NDArray[np.int64] = self.bytes[:8].view(np.int64)
        self.address = self.bytes.ctypes.data
        self.nbytes = nbytes
        self.leased = False
        self.shared_by_fork = False  # a child of fork may read it forever
        self.inherited = False  # this process is that child
        _segments.add(self)

    def lease(self) -> Lease:
        """Return an array over the segment that frees the segment when its last view is gone."""
        lease = self.bytes.view(Lease)
        lease.segment = self
        self.leased = True
        return lease


class Lease(np.ndarray[tuple[int], np.dtype[np.uint8]]):
    """The bytes of a segment in the trainer. The segment is free when this array is deleted."""

    segment: Segment | None = None  # None in views of this array

    def __del__(self) -> None:
        segment = self.segment
        if segment is not None and not segment.inherited:
            segment.leased = False
            segment.state[0] = _RETIRED if segment.shared_by_fork else _FREE


class WorkerSegment(Segment):
    """A segment in the worker that made it."""

    def __init__(self, serial: int, nbytes: int) -> None:
        fd = memory_file("pyfeed-torch")
        try:
            os.ftruncate(fd, nbytes)  # sparse: pages are allocated when they are written
            super().__init__(fd, nbytes)
        except BaseException:
            os.close(fd)
            raise
        self.serial = serial
        self.fd: int | None = fd  # until it is sent
        self.end = _HEADER_BYTES  # of the part that is allocated in the current batch
        self.written = 0  # the largest `end` so far
        self._views: weakref.ref[npt.NDArray[np.uint8]] | None = None

    @property
    def is_free(self) -> bool:
        """Neither the trainer nor this process has views of the segment."""
        return self.state[0] == _FREE and (self._views is None or self._views() is None)

    @property
    def is_retired(self) -> bool:
        """The segment cannot be used again."""
        return bool(self.state[0] == _RETIRED)

    def begin(self) -> npt.NDArray[np.uint8]:
        """Begin a batch, and return an array that lives as long as this process has views of the batch."""
        self.end = _HEADER_BYTES
        views = self.bytes.view(_Views)
        self._views = weakref.ref(views)
        return views

    def allocate(self, nbytes: int) -> int | None:
        """Return the offset of `nbytes` bytes, or None if they do not fit."""
        at = (self.end + 63) & ~63
        if at + nbytes > self.nbytes:
            return None
        self.end = at + nbytes
        self.written = max(self.written, self.end)
        return at

    def mark_in_use(self) -> None:
        """Give the segment to the trainer."""
        self.state[0] = _IN_USE

    def close_fd(self) -> None:
        """Close the descriptor, which the trainer has got."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def __del__(self) -> None:
        if getattr(self, "fd", None) is not None:
            self.close_fd()


class _Views(np.ndarray[tuple[int], np.dtype[np.uint8]]):
    """An array of its own type, so that NumPy makes it the base of its views, and not the segment's array."""


_segments: weakref.WeakSet[Segment] = weakref.WeakSet()


def _before_fork() -> None:
    for segment in list(_segments):
        if segment.leased:
            segment.shared_by_fork = True


def _after_fork_in_child() -> None:
    for segment in list(_segments):
        segment.inherited = True


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
