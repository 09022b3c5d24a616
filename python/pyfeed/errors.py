"""The exceptions of pyfeed: a class for each cause, which is also a subclass of the built-in class that fits.

All of them are subclasses of `Error`. An error message says what was expected, what was found, and where.
Exceptions that a producer, a kernel or a function of `Reader.map` raises in this process are not wrapped: a
read raises the exception object itself.
"""

from __future__ import annotations

import errno
import os

__all__ = [
    "ArgumentTypeError",
    "ByteOrderError",
    "Cancelled",
    "CorruptRecordError",
    "CudaError",
    "CudaMemoryError",
    "DTypeError",
    "EndOfData",
    "Error",
    "FileError",
    "FilePermissionError",
    "ForkError",
    "InvalidArgument",
    "MissingFileError",
    "NotFoundError",
    "OutOfMemoryError",
    "PoisonedError",
    "ProducerError",
    "QueueClosed",
    "RecordIndexError",
    "ShapeError",
    "SlotCountError",
    "StaleHandleError",
    "StateError",
    "Timeout",
    "TooLargeError",
    "UnsupportedError",
    "WorkerError",
]


class Error(Exception):
    """The base class of pyfeed's exceptions.

    Attributes that do not apply to an error are None, or False.

    Attributes
    ----------
    slot : int or None
        The number of the slot that the error is about, from 0.
    file : str or None
        The file that was read or written.
    offset : int or None
        The position in the file, in bytes. For a compressed file, it is counted in the decompressed data.
    record : int or None
        The number of the record in the file, from 0. For damage, that of the first record that is not delivered.
    approximate : bool
        True: ``record`` is an estimate, because it is unknown how many records were skipped with earlier damage.
    op : str or None
        In a run of a program, the operator that failed, such as ``"block 1, op 3: read"``.
    """

    slot: int | None = None
    file: str | None = None
    offset: int | None = None
    record: int | None = None
    approximate: bool = False
    op: str | None = None


class QueueClosed(Error):
    """The queue is closed or shut down, or the pass that a push belongs to is over."""


class RecordIndexError(Error, IndexError):
    """The reader does not have a record of that number."""


class EndOfData(Error, EOFError):
    """The pass has no more tuples."""


class Timeout(Error, TimeoutError):
    """The timeout of a call has passed. The queue or reader stays usable."""


class Cancelled(Error):
    """A reset of the reader, or a `CancelToken`, ended the call."""


class ProducerError(Error, RuntimeError):
    """A producer, function or kernel failed that is not written in Python, or that runs in another process.

    Attributes
    ----------
    cause_type : str
        The type of its error, or "".
    cause_message : str
        The message of its error, or "".
    cause_traceback : str
        The traceback of its error, in several lines, or "".
    """

    cause_type = ""
    cause_message = ""
    cause_traceback = ""


class WorkerError(ProducerError):
    """A worker process of a `SharedFeedQueue` ended before it had closed its producer.

    Attributes
    ----------
    pid : int
        The process id of the worker.
    exit_status : int
        The exit status of the worker, or minus the number of the signal that killed it. 0 if it is unknown.
    """

    pid = 0
    exit_status = 0


class InvalidArgument(Error, ValueError):
    """An argument has a value that is never valid."""


class ArgumentTypeError(InvalidArgument, TypeError):
    """An argument has a wrong type, is missing, or does not exist."""


class ShapeError(Error, ValueError):
    """An array has a wrong rank or dimension, or wrong ragged offsets (LoD, level of detail)."""


class SlotCountError(Error, ValueError):
    """A tuple, or a list with an entry for each slot, has a wrong number of slots."""


class TooLargeError(Error, ValueError):
    """A tuple is larger than the limit of the queue or buffer, such as ``bytes_limit``."""


class DTypeError(Error, TypeError):
    """An array has a wrong or unsupported dtype, or an object is not an array."""


class ByteOrderError(DTypeError):
    """An array is not in the byte order of the machine."""


class StaleHandleError(Error, ValueError):
    """A handle is not valid, or no longer valid, or belongs to another kind of object."""


class StateError(Error, RuntimeError):
    """The object is in the wrong state for the call: it exists already, does not exist yet, or cannot start over."""


class NotFoundError(Error, LookupError):
    """There is no variable, kernel or operator of that name."""


class UnsupportedError(Error, NotImplementedError):
    """This version of the library, or this machine, does not support the operation."""


class OutOfMemoryError(Error, MemoryError):
    """The operating system refused memory."""


class ForkError(Error, RuntimeError):
    """A function was called in a child process of ``fork``. Start processes with spawn or forkserver."""


class PoisonedError(Error, SystemError):
    """The library has stopped after a fault inside it. The first fault was printed to standard error."""


class CorruptRecordError(Error, ValueError):
    """A file does not conform to its format: it is damaged, truncated, or of another format."""


class CudaError(Error, RuntimeError):
    """The CUDA driver returned an error.

    Attributes
    ----------
    code : int
        The number of the driver's error, a ``CUresult``.
    name : str
        The name of the driver's error, such as ``"CUDA_ERROR_ILLEGAL_ADDRESS"``.
    """

    code = 0
    name = ""


class CudaMemoryError(CudaError, MemoryError):
    """The CUDA device has no memory left, or the driver cannot pin any more host memory."""


class FileError(Error, OSError):
    """The operating system could not open, read or write a file.

    ``errno``, ``strerror`` and ``filename`` are those of `OSError`.
    """

    _message: str | None = None

    def __str__(self) -> str:
        return super().__str__() if self._message is None else self._message


class MissingFileError(FileError, FileNotFoundError):
    """The file or directory does not exist."""


class FilePermissionError(FileError, PermissionError):
    """The user has no permission to read or write the file."""


_BY_NUMBER = {errno.ENOENT: MissingFileError, errno.EACCES: FilePermissionError, errno.EPERM: FilePermissionError}


def _file_error(message: str, number: int, filename: str | None) -> FileError:
    """Make the exception for an errno of the operating system. C calls this."""
    kind = _BY_NUMBER.get(number, FileError)
    error = kind(number or None, os.strerror(number) if number else message, filename)
    error._message = message
    return error
