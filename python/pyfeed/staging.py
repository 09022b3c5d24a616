"""StagingBuffer: where tuples lie ready in the memory of the place that computes with them."""

from __future__ import annotations

from . import _native
from ._arguments import integer, takes
from .place import Place, a_place


class StagingBuffer(_native.Buffer):
    """The staging buffer of a place: tuples that were copied there while what came before was computed with.

    First in, first out, for any number of threads; the process has one a place, for good. Made by
    `get_buffer`, not by calling the class. It is what the operators ``stage`` and ``unstage`` of a program use.

    Neither `put` nor `get` holds the GIL while it waits or copies more than some kilobytes. Both take a
    ``timeout`` in seconds (None: for ever; 0: not at all), and end on Ctrl-C in the main thread.

    Examples
    --------
    The buffer is warmed up first, with as many batches as it takes; from then on each batch is computed with
    while a next one is copied.

    >>> import numpy as np
    >>> from pyfeed import CPUPlace, get_buffer
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

    @takes()
    def size(self) -> int:
        """The number of tuples in the buffer."""
        return self.stats()["size"]

    @takes()
    def capacity(self) -> int:
        """The number of tuples, not bytes, that the buffer takes."""
        return self.stats()["capacity"]

    @takes()
    def bytes_limit(self) -> int:
        """The most bytes that the buffer takes; 0: no limit."""
        return self.stats()["bytes_limit"]

    @property
    def place(self) -> Place:
        """Where its tuples are."""
        return Place(*self._place())

    def __len__(self) -> int:
        return self.size()

    def __bool__(self) -> bool:  # it is there, if nothing is in it
        return True

    def __eq__(self, other: object) -> bool:
        return self.place == other.place if isinstance(other, StagingBuffer) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.place)

    def __repr__(self) -> str:
        s = self.stats()
        return f"<StagingBuffer of {self.place}, {s['size']}/{s['capacity']} tuples>"


@takes(place=a_place, capacity=integer(1, "tuple"), bytes_limit=integer(0))
def get_buffer(place: Place, capacity: int, bytes_limit: int = 0) -> StagingBuffer:
    """The staging buffer of a place. The process has one, which the first call makes, for good.

    Parameters
    ----------
    place : Place
        `CPUPlace`, `CUDAPlace` or `CUDAPinnedPlace`.
    capacity : int
        In tuples, at least 1.
    bytes_limit : int
        Most bytes of all tuples in it or being written; 0: no limit.

    Raises
    ------
    StateError
        It was made with other limits: the message says which.
    UnsupportedError
        There is no such place on this machine: the driver's reason.

    Examples
    --------
    >>> from pyfeed import CPUPlace, get_buffer
    >>> get_buffer(CPUPlace(), 2) == get_buffer(CPUPlace(), 2)
    True
    """
    return StagingBuffer._get(place, capacity, bytes_limit)
