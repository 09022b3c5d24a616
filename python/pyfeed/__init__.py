"""pyfeed feeds training and inference: tuples of arrays, from Python to whoever consumes them.

Python threads push tuples of arrays into a bounded `PyArrayFeedQueue` without holding the GIL; a
`Reader` takes them out, here or in a C++ executor that has never heard of Python.

Examples
--------
>>> import numpy as np, pyfeed
>>> reader, queue = pyfeed.py_array_reader(capacity=8, shapes=[(-1, 784), (-1,)], place=pyfeed.CPUPlace())
>>> def batches(worker):
...     for i in range(3):
...         yield np.zeros((32, 784), np.float32), np.full(32, i)
>>> threads = queue.produce(batches)
>>> [int(label[0]) for image, label in reader]
[0, 1, 2]
"""

from __future__ import annotations

import os as _os
import typing as _typing

from . import _loading as _loading
from . import unique_name
from ._arguments import takes as _takes
from ._errors import (
    ArgumentTypeError,
    ByteOrderError,
    Cancelled,
    CorruptRecordError,
    CudaError,
    CudaMemoryError,
    DTypeError,
    EndOfData,
    Error,
    FileError,
    FilePermissionError,
    ForkError,
    InvalidArgument,
    MissingFileError,
    NotFoundError,
    OutOfMemoryError,
    PoisonedError,
    ProducerError,
    QueueClosed,
    ShapeError,
    SlotCountError,
    StaleHandleError,
    StateError,
    Timeout,
    TooLargeError,
    UnsupportedError,
    WorkerError,
)
from ._lod import LoDTensor
from ._native import DeviceArray, __version__, memory_stats
from .files import (
    list_files,
    open_csv,
    open_files,
    open_idx,
    open_npy,
    open_npz,
    open_raw,
    open_recordio,
    open_tar,
    open_tfrecord,
    random_data,
)
from .place import CPUPlace, CUDAPinnedPlace, CUDAPlace, Place
from .queue import PyArrayFeedQueue, PyArrayFeedQueueHolder
from .readers import Reader, from_generator, py_array_reader
from .scope import Scope, ScopeVariable, global_scope
from .slots import Slot

# What a loop over a reader does without is imported when it is first asked for.
if _typing.TYPE_CHECKING:
    from . import cuda, layers
    from ._kernels import Kernel, kernel, kernels, load_kernels, register_kernel
    from .executor import CancelToken, Executor
    from .program import (
        Block,
        Operator,
        Program,
        Variable,
        default_main_program,
        default_startup_program,
        program_guard,
    )
    from .registry import Format, formats, register_format
    from .shared import SharedFeedQueue
    from .staging import StagingBuffer, get_buffer
    from .tracing import Trace, trace
    from .writer import Writer, open_writer
else:
    _LATER = {
        "_kernels": ("Kernel", "kernel", "kernels", "load_kernels", "register_kernel"),
        "cuda": (),
        "executor": ("CancelToken", "Executor"),
        "layers": (),
        "program": (
            "Block",
            "Operator",
            "Program",
            "Variable",
            "default_main_program",
            "default_startup_program",
            "program_guard",
        ),
        "registry": ("Format", "formats", "register_format"),
        "shared": ("SharedFeedQueue",),
        "staging": ("StagingBuffer", "get_buffer"),
        "tracing": ("Trace", "trace"),
        "writer": ("Writer", "open_writer"),
    }

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _LATER:
            return import_module(f".{name}", __name__)
        for module, names in _LATER.items():
            if name in names:
                value = globals()[name] = getattr(import_module(f".{module}", __name__), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "ArgumentTypeError",
    "Block",
    "ByteOrderError",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "CancelToken",
    "Cancelled",
    "CorruptRecordError",
    "CudaError",
    "CudaMemoryError",
    "DTypeError",
    "DeviceArray",
    "EndOfData",
    "Error",
    "Executor",
    "FileError",
    "FilePermissionError",
    "ForkError",
    "Format",
    "InvalidArgument",
    "Kernel",
    "LoDTensor",
    "MissingFileError",
    "NotFoundError",
    "Operator",
    "OutOfMemoryError",
    "Place",
    "PoisonedError",
    "ProducerError",
    "Program",
    "PyArrayFeedQueue",
    "PyArrayFeedQueueHolder",
    "QueueClosed",
    "Reader",
    "Scope",
    "ScopeVariable",
    "ShapeError",
    "SharedFeedQueue",
    "Slot",
    "SlotCountError",
    "StagingBuffer",
    "StaleHandleError",
    "StateError",
    "Timeout",
    "TooLargeError",
    "Trace",
    "UnsupportedError",
    "Variable",
    "WorkerError",
    "Writer",
    "__version__",
    "cuda",
    "default_main_program",
    "default_startup_program",
    "formats",
    "from_generator",
    "get_buffer",
    "get_cmake_dir",
    "get_include",
    "get_library_dir",
    "global_scope",
    "kernel",
    "kernels",
    "layers",
    "list_files",
    "load_kernels",
    "memory_stats",
    "open_csv",
    "open_files",
    "open_idx",
    "open_npy",
    "open_npz",
    "open_raw",
    "open_recordio",
    "open_tar",
    "open_tfrecord",
    "open_writer",
    "program_guard",
    "py_array_reader",
    "random_data",
    "register_format",
    "register_kernel",
    "trace",
    "unique_name",
]


@_takes()
def get_include() -> str:
    """The folder with ``pyfeed.h`` and ``pyfeed.hpp``."""
    return _os.path.join(_os.path.dirname(__file__), "include")


@_takes()
def get_cmake_dir() -> str:
    """The folder with ``pyfeedConfig.cmake``: pass it to CMake as ``-Dpyfeed_DIR=``."""
    return _os.path.join(get_library_dir(), "cmake", "pyfeed")


@_takes()
def get_library_dir() -> str:
    """The folder that ``-lpyfeed`` finds ``libpyfeed.so.0`` in. A process must map one only: link this one."""
    return _os.path.join(_os.path.dirname(__file__), "lib")
