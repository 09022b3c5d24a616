"""Staging buffers, which hold tuples in the memory of the place that computes with them."""

from __future__ import annotations

from . import _native
from ._arguments import integer, validate
from ._place import Place, check_place

__all__ = ["StagingBuffer", "get_buffer"]


class StagingBuffer(_native.Buffer):
    """The staging buffer of a place: a first-in-first-out queue of tuples in the memory of this place.

    One tuple is copied to the place while the consumer computes with the previous one. The process has one buffer
    for each place, which stays until the process ends. It is made by `get_buffer`, not by calling the class. The
    operators ``stage`` and ``unstage`` of programs use the same buffers.

    Notes
    -----
    Any number of threads may use a buffer. `put` waits for room, and `get` waits for a tuple. Both take a
    ``timeout`` in seconds: None waits for ever, and 0 does not wait. Ctrl-C ends a wait in the main thread.
    Neither holds the GIL while it waits, or while it copies more than a few kilobytes.

    Examples
    --------
    First fill the buffer. Then put a batch after each `get`: it is copied while the consumer computes with the
    batch before.

    >>> import numpy as np
    >>> from pyfeed import CPUPlace
    >>> from pyfeed.staging import get_buffer
    >>> buffer = get_buffer(CPUPlace(), capacity=2)
    >>> batches = iter([(np.full((4, 3), i, np.float32),) for i in range(5)])  # one iterator, for all of it
    >>> for _ in range(buffer.capacity()):
    ...     buffer.put(next(batches))
    >>> sums = []
    >>> while buffer.size() > 0:
    ...     (image,) = buffer.get()
    ...     if (batch := next(batches, None)) is not None:
    ...         buffer.put(batch)
    ...     sums.append(float(image.sum()))
    >>> sums
    [0.0, 12.0, 24.0, 36.0, 48.0]
    """

    @validate()
    def size(self) -> int:
        """Return the number of tuples in the buffer.

        Returns
        -------
        int
        """
        return self.stats()["size"]

    @validate()
    def capacity(self) -> int:
        """Return the largest number of tuples that the buffer holds.

        Returns
        -------
        int
            In tuples, not in bytes.
        """
        return self.stats()["capacity"]

    @validate()
    def bytes_limit(self) -> int:
        """Return the largest number of bytes that the buffer holds.

        Returns
        -------
        int
            0: there is no limit.
        """
        return self.stats()["bytes_limit"]

    @property
    def place(self) -> Place:
        """The place of the buffer, where its tuples are."""
        return Place(*self._place())

    def __len__(self) -> int:
        return self.size()

    def __bool__(self) -> bool:  # an empty buffer is true, too
        return True

    def __eq__(self, other: object) -> bool:
        return self.place == other.place if isinstance(other, StagingBuffer) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.place)

    def __repr__(self) -> str:
        s = self.stats()
        return f"<StagingBuffer of {self.place}, {s['size']}/{s['capacity']} tuples>"


@validate(place=check_place, capacity=integer(1, "tuple"), bytes_limit=integer(0))
def get_buffer(place: Place, capacity: int, bytes_limit: int = 0) -> StagingBuffer:
    """Return the staging buffer of a place. The first call makes it, and it stays until the process ends.

    Parameters
    ----------
    place : Place
        `CPUPlace`, `CUDAPlace` or `CUDAPinnedPlace`.
    capacity : int
        The largest number of tuples in the buffer, at least 1.
    bytes_limit : int
        The largest number of bytes of all tuples that are in the buffer or being written. 0: no limit.

    Returns
    -------
    StagingBuffer

    Raises
    ------
    StateError
        The buffer was made with other limits, which the message states.
    UnsupportedError
        This machine does not have the place. The message has the driver's reason.

    Examples
    --------
    >>> from pyfeed import CPUPlace
    >>> from pyfeed.staging import get_buffer
    >>> get_buffer(CPUPlace(), 2) == get_buffer(CPUPlace(), 2)
    True
    """
    return StagingBuffer._get(place, capacity, bytes_limit)
