"""The exceptions. They have the names of those of pyfeed, but are other classes: a worker need not import pyfeed."""

from __future__ import annotations


class Error(Exception):
    """The base class of all exceptions of pyfeed_worker.

    Attributes
    ----------
    slot : int or None
        The slot of the tuple that the error is about.
    """

    slot: int | None = None


class QueueClosed(Error):
    """The queue takes no more tuples in this pass, or the pass is over."""


class TrainerGone(QueueClosed):
    """The trainer process has ended."""


class Timeout(Error, TimeoutError):
    """The timeout has passed."""


class InvalidArgument(Error, ValueError):
    """An argument that is never valid."""


class ArgumentTypeError(InvalidArgument, TypeError):
    """An argument of a wrong type, or a missing or an unknown one."""


class ShapeError(Error, ValueError):
    """A wrong rank, dimension or level of detail (LoD)."""


class SlotCountError(Error, ValueError):
    """A tuple with a wrong number of slots."""


class TooLargeError(Error, ValueError):
    """A tuple larger than a cell of the ring: the queue's ``cell_bytes``."""


class DTypeError(Error, TypeError):
    """A wrong or unsupported type of element, or something that is no array."""


class ByteOrderError(DTypeError):
    """An array that is not in the machine's byte order."""


class StateError(Error, RuntimeError):
    """The wrong state for the call: not attached, already closed, or in the trainer's own process."""


class CorruptRingError(Error, RuntimeError):
    """The queue's memory is damaged: it is no ring of pyfeed, or a process has overwritten it."""


class UnsupportedError(Error, NotImplementedError):
    """This version or this machine cannot do it."""


class OutOfMemoryError(Error, MemoryError):
    """Out of memory."""


for _class in list(globals().values()):
    if isinstance(_class, type) and issubclass(_class, Error):
        _class.__module__ = "pyfeed_worker"  # the public place of the class, where pickle looks for it
