"""The exceptions. They are named as pyfeed's are, and are others: workers need not have pyfeed."""

from __future__ import annotations


class Error(Exception):
    """What all of pyfeed_worker's own exceptions are.

    Attributes
    ----------
    slot : int or None
        The slot of the tuple it is about.
    """

    slot: int | None = None


class QueueClosed(Error):
    """The queue takes no more tuples in this pass, or the pass is over."""


class TrainerGone(QueueClosed):
    """There is no trainer any more."""


class Timeout(Error, TimeoutError):
    """The time to wait went by."""


class InvalidArgument(Error, ValueError):
    """An argument that can never be right."""


class ShapeError(Error, ValueError):
    """A wrong rank, dimension or level of detail."""


class SlotCountError(Error, ValueError):
    """A tuple with a wrong number of slots."""


class TooLargeError(Error, ValueError):
    """A tuple larger than a cell of the ring: the queue's ``cell_bytes``."""


class DTypeError(Error, TypeError):
    """A wrong or unsupported type of element, or something that is no array."""


class ByteOrderError(DTypeError):
    """An array that is not in the machine's byte order."""


class StateError(Error, RuntimeError):
    """Not now: not attached, closed already, or in the trainer's own process."""


class CorruptRingError(Error, RuntimeError):
    """The queue's memory is not what it has to be: no ring of pyfeed's, or overwritten by some process."""


class UnsupportedError(Error, NotImplementedError):
    """This version, or this machine, cannot."""


class OutOfMemoryError(Error, MemoryError):
    """The operating system gave no memory."""


for _class in list(globals().values()):
    if isinstance(_class, type) and issubclass(_class, Error):
        _class.__module__ = "pyfeed_worker"  # where users find it, and pickle looks
