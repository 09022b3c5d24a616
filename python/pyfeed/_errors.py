"""The exceptions: one class a reason, each also the built-in class that fits it."""

from __future__ import annotations

import errno
import os


class Error(Exception):
    """What all of pyfeed's own exceptions are.

    Attributes
    ----------
    slot : int or None
        The slot of the tuple it is about.
    file : str or None
        The file that was read or written.
    offset : int or None
        The place in the file, in bytes; of a compressed one, in decompressed bytes.
    record : int or None
        The number of the record in the file, from 0; of damage, that of the first that is not delivered.
    approximate : bool
        `record` is not exact: damage before it was skipped, of which it is not known how many records it was.
    op : str or None
        The operator of a program that it ended, such as ``"block 1, op 3: read"``.
    """

    slot: int | None = None
    file: str | None = None
    offset: int | None = None
    record: int | None = None
    approximate: bool = False
    op: str | None = None


class QueueClosed(Error):
    """The queue takes no more tuples in this pass, or the pass the push belongs to is over."""


class EndOfData(Error, EOFError):
    """This pass has no more tuples."""


class Timeout(Error, TimeoutError):
    """The time to wait went by."""


class Cancelled(Error):
    """The wait was ended from outside, as by a reset of the reader waited in, or a `CancelToken`."""


class ProducerError(Error, RuntimeError):
    """A producer or kernel failed that is not Python's, or whose exception is not in this process.

    Attributes
    ----------
    cause_type, cause_message, cause_traceback : str
        What is known of its error.
    """

    cause_type = ""
    cause_message = ""
    cause_traceback = ""


class WorkerError(ProducerError):
    """A worker process of a `SharedFeedQueue` died.

    Attributes
    ----------
    pid : int
        Its process id.
    exit_status : int
        Its exit status, or minus the signal that killed it; 0 also if it is not known.
    """

    pid = 0
    exit_status = 0


class InvalidArgument(Error, ValueError):
    """An argument that can never be right."""


class ArgumentTypeError(InvalidArgument, TypeError):
    """An argument of a wrong type, one that the function does not have, or one that is missing."""


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
    """No variable, or kernel, of that name."""


class UnsupportedError(Error, NotImplementedError):
    """This version, or this machine, cannot."""


class OutOfMemoryError(Error, MemoryError):
    """The operating system gave no memory."""


class ForkError(Error, RuntimeError):
    """pyfeed was called in a child of ``fork``. Start processes with spawn or forkserver."""


class PoisonedError(Error, SystemError):
    """A fault inside the library stopped it; the first one was printed to standard error."""


class CorruptRecordError(Error, ValueError):
    """A file is not what its format says: damaged, cut short, or of another format."""


class CudaError(Error, RuntimeError):
    """The CUDA driver said no.

    Attributes
    ----------
    code : int
        The driver's number, a ``CUresult``.
    name : str
        The driver's name of it, such as ``"CUDA_ERROR_ILLEGAL_ADDRESS"``.
    """

    code = 0
    name = ""


class CudaMemoryError(CudaError, MemoryError):
    """A device, or the driver, has no memory left."""


class FileError(Error, OSError):
    """The operating system could not open, read or write a file.

    ``errno``, ``strerror`` and ``filename`` are as of any `OSError`.
    """

    _message: str | None = None

    def __str__(self) -> str:
        return super().__str__() if self._message is None else self._message


class MissingFileError(FileError, FileNotFoundError):
    """There is no such file or directory."""


class FilePermissionError(FileError, PermissionError):
    """This user may not read or write the file."""


_BY_NUMBER = {errno.ENOENT: MissingFileError, errno.EACCES: FilePermissionError, errno.EPERM: FilePermissionError}


def _file_error(message: str, number: int, filename: str | None) -> FileError:
    """The exception for a number of the system's. C calls this."""
    kind = _BY_NUMBER.get(number, FileError)
    error = kind(number or None, os.strerror(number) if number else message, filename)
    error._message = message
    return error


for _class in list(globals().values()):
    if isinstance(_class, type) and issubclass(_class, Error):
        _class.__module__ = "pyfeed"  # where users find it, tracebacks name it, and pickle looks
