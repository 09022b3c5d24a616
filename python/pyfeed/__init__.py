"""pyfeed loads training data from files, Python threads and worker processes.

A `Reader` delivers the data as tuples of arrays: one array for each slot (component), such as images and
labels. `open_files` makes a reader of files. `py_array_reader` makes a reader of a bounded queue that Python
threads push into. Methods such as `Reader.shuffle` and `Reader.batch` make a reader on top of another one.
The library reads, shuffles and batches without holding the GIL. The same readers work in C and C++, without
Python.

Every function checks its arguments before it does anything else. It raises `ArgumentTypeError` for a wrong
type, and `InvalidArgument` for a wrong value. Both name the argument, what was expected and what was found.

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
from . import errors, unique_name
from ._arguments import validate as _validate
from ._lod import LoDTensor
from ._native import __version__
from ._open import (
    list_files,
    open_arrow,
    open_csv,
    open_files,
    open_idx,
    open_jsonl,
    open_mds,
    open_npy,
    open_npz,
    open_parquet,
    open_raw,
    open_recordio,
    open_tar,
    open_tfrecord,
    open_tokens,
    random_data,
)
from ._place import CPUPlace, CUDAPinnedPlace, CUDAPlace
from ._queue import PyArrayFeedQueue, PyArrayFeedQueueHolder
from ._reader import Reader, from_generator, py_array_reader
from ._scope import Scope, global_scope

# A loop over a reader needs none of these, so they are imported on first access.
if _typing.TYPE_CHECKING:
    from . import cuda, diagnostics, formats, program, shared, staging, typing
    from ._dataset import from_dataset
    from ._writer import open_writer
    from .program import Executor, Program, default_main_program, layers
else:
    _MODULES = {"cuda", "diagnostics", "formats", "program", "shared", "staging", "typing"}
    _MODULE_OF_NAME = {
        "Executor": "program",
        "Program": "program",
        "default_main_program": "program",
        "from_dataset": "_dataset",
        "layers": "program",
        "open_writer": "_writer",
    }

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _MODULES:
            return import_module(f".{name}", __name__)
        if name in _MODULE_OF_NAME:
            value = globals()[name] = getattr(import_module(f".{_MODULE_OF_NAME[name]}", __name__), name)
            return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_hint(name)}")

    def _hint(name: str) -> str:
        """Return which name was probably meant."""
        import difflib

        elsewhere = {
            **dict.fromkeys(errors.__all__, "errors"),
            "SharedFeedQueue": "shared",
            "StagingBuffer": "staging",
            "trace": "diagnostics",
        }
        if name in elsewhere:
            return f": did you mean {__name__}.{elsewhere[name]}.{name}?"
        if name in ("jax", "torch"):
            return f": write import {__name__}.{name}"
        close = difflib.get_close_matches(name, __all__, 1)
        return f": did you mean {__name__}.{close[0]}?" if close else ""

    def __dir__() -> list[str]:
        return list(__all__)


__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "Executor",
    "LoDTensor",
    "Program",
    "PyArrayFeedQueue",
    "PyArrayFeedQueueHolder",
    "Reader",
    "Scope",
    "__version__",
    "cuda",
    "default_main_program",
    "diagnostics",
    "errors",
    "formats",
    "from_dataset",
    "from_generator",
    "get_cmake_dir",
    "get_include",
    "get_library_dir",
    "global_scope",
    "layers",
    "list_files",
    "open_arrow",
    "open_csv",
    "open_files",
    "open_idx",
    "open_jsonl",
    "open_mds",
    "open_npy",
    "open_npz",
    "open_parquet",
    "open_raw",
    "open_recordio",
    "open_tar",
    "open_tfrecord",
    "open_tokens",
    "open_writer",
    "program",
    "py_array_reader",
    "random_data",
    "shared",
    "staging",
    "typing",
    "unique_name",
]


@_validate()
def get_include() -> str:
    """Return the directory of the C and C++ headers, ``pyfeed.h`` and ``pyfeed.hpp``.

    Returns
    -------
    str
        A path for the compiler's option ``-I``.
    """
    return _os.path.join(_os.path.dirname(__file__), "include")


@_validate()
def get_cmake_dir() -> str:
    """Return the directory of ``pyfeedConfig.cmake``, for CMake's variable ``pyfeed_DIR``.

    Returns
    -------
    str
        A path. ``find_package(pyfeed)`` then defines the target ``pyfeed::pyfeed``.
    """
    return _os.path.join(get_library_dir(), "cmake", "pyfeed")


@_validate()
def get_library_dir() -> str:
    """Return the directory of the library ``libpyfeed.so.0``, in which ``-lpyfeed`` finds it.

    Link programs and kernels against this copy: a process must not map two copies of the library.

    Returns
    -------
    str
        A path for the linker's options ``-L`` and ``-Wl,-rpath``.
    """
    return _os.path.join(_os.path.dirname(__file__), "lib")
