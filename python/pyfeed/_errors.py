"""The exceptions: one class a reason, each also the built-in class that fits it."""

from __future__ import annotations


class Error(Exception):
    """What all of pyfeed's own exceptions are.

    Attributes
    ----------
    slot : int or None
        The slot of the tuple it is about.
    """

    slot: int | None = None


class QueueClosed(Error):
    """The queue takes no more tuples in this pass, or the pass the push belongs to is over."""


class EndOfData(Error, EOFError):
    """This pass has no more tuples."""


class Timeout(Error, TimeoutError):
    """The time to wait went by."""


class Cancelled(Error):
    """The wait was ended from outside, as by a reset of the reader waited in."""


class ProducerError(Error, RuntimeError):
    """A producer failed that is not Python's, or whose exception is not in this process.

    Attributes
    ----------
    cause_type, cause_message, cause_traceback : str
        What is known of its error.
    """

    cause_type = ""
    cause_message = ""
    cause_traceback = ""


class InvalidArgument(Error, ValueError):
    """An argument that can never be right."""


class ShapeError(Error, ValueError):
    """A wrong rank, dimension or level of detail."""


class SlotCountError(Error, ValueError):
    """A tuple with a wrong number of slots."""


class TooLargeError(Error, ValueError):
    """A tuple larger than the queue's ``bytes_limit``."""


class DTypeError(Error, TypeError):
    """A wrong or unsupported type of element, or something that is no array."""


class ByteOrderError(DTypeError):
    """An array that is not in the machine's byte order."""


class StaleHandleError(Error, ValueError):
    """A handle that is not, or no longer, valid."""


class StateError(Error, RuntimeError):
    """Not now: made twice, not made yet, or nothing to start over from."""


class NotFoundError(Error, LookupError):
    """No variable of that name."""


class UnsupportedError(Error, NotImplementedError):
    """This version, or this machine, cannot."""


class OutOfMemoryError(Error, MemoryError):
    """The operating system gave no memory."""


class ForkError(Error, RuntimeError):
    """pyfeed was called in a child of ``fork``. Start processes with spawn or forkserver."""


class PoisonedError(Error, SystemError):
    """A fault inside the library stopped it; the first one was printed to standard error."""


for _class in list(globals().values()):
    if isinstance(_class, type) and issubclass(_class, Error):
        _class.__module__ = "pyfeed"  # where users find it, tracebacks name it, and pickle looks
