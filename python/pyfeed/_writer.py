"""Writers of files."""

from __future__ import annotations

import atexit
import os
import threading
import warnings
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from . import _arguments, _attributes, _native, _slots, _structure
from ._arguments import anything, optional, text, validate
from ._open import encode_options
from ._slots import Slot
from ._structure import DTypes, LoDLevels, Shapes
from .errors import Error

_unclosed: weakref.WeakSet[Writer] = weakref.WeakSet()


@atexit.register
def _abort_unclosed() -> None:
    """Remove the unfinished files of writers that are alive at exit: their ``__del__`` may never run."""
    for writer in list(_unclosed):
        try:
            writer.abort()
        except Error:
            pass  # in a forked child: the file belongs to the parent


class Writer(_native.Writer):
    """Writes tuples of arrays to a file. It is made by `open_writer`.

    Use it in a ``with`` block. At the end of the block, the file is complete. If the block raises an exception,
    no file appears, and an old file of that name stays as it was. Any thread may write; calls of several threads
    run one after the other.

    Attributes
    ----------
    filename : str
        The name that `open_writer` was given.
    """

    filename: str
    _lock: threading.RLock
    _takes_names: bool  # the first tuple decides the slots and their names

    @classmethod
    def _open(cls, filename: str, format: str | None, attributes: dict[str, Any], slots: list[Slot]) -> Self:
        writer = cls._create(os.fsencode(filename), format, _attributes.encode(attributes), _slots.kinds(slots))
        writer.filename = filename
        writer._takes_names = not attributes.keys() & {"slots", "names"}
        writer._lock = threading.RLock()
        _unclosed.add(writer)
        return writer

    @validate()
    def write(self, arrays: Sequence[Any] | Mapping[str, Any]) -> None:
        """Write a tuple.

        Parameters
        ----------
        arrays : tuple, list or dict
            An array for each slot, as for `PyArrayFeedQueue.push`. `bytes` and `str` become a sequence of bytes, as
            by `LoDTensor.from_bytes`. The keys of a dict are the names of the slots. If `open_writer` was given
            neither names nor shapes, the first tuple decides them.

        Raises
        ------
        ShapeError, DTypeError, SlotCountError, InvalidArgument
            The format cannot hold the tuple, or its slots differ from those of the tuples before. The message says
            which slot is wrong, what was expected and what was found.
        FileError
            The system could not write, for example because the disk is full.
        StateError
            The writer is closed, or an earlier write has failed. Then the writer can only `abort`.
        """
        with self._lock:
            if self._takes_names and isinstance(arrays, Mapping):
                self._set_structure(*_structure.of_value(arrays))
            self._write(arrays)
            self._takes_names = False

    @validate()
    def close(self) -> None:
        """Complete the file, and wait until its bytes are on the disk. A second call does nothing.

        Before this call, the file does not exist under its name, or is the old file.

        Raises
        ------
        FileError
            The system could not write. There is no new file, and the writer is closed.
        StateError
            An earlier write has failed. The writer can only `abort`.
        """
        with self._lock:
            self._close()

    @validate()
    def abort(self) -> None:
        """Remove the unfinished file. After `close`, or a second time, it does nothing."""
        with self._lock:
            self._abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is not None:
            self.abort()
            return
        try:
            self.close()
        finally:
            self.abort()  # if the file could not be completed

    def __del__(self) -> None:
        if not self.closed:
            warnings.warn(f"{self!r} was not closed: its file is not written", ResourceWarning, 2, self)

    def __repr__(self) -> str:
        return f"<Writer {self.filename!r}{', closed' if self.closed else ''}>"


@validate(filename=_arguments.path, format=optional(text), **_structure.OPTIONAL_CHECKS, options=anything)
def open_writer(
    filename: str | os.PathLike[str],
    format: str | None = None,
    *,
    shapes: Shapes | None = None,
    dtypes: DTypes | None = None,
    lod_levels: LoDLevels | None = None,
    names: Sequence[str] | None = None,
    **options: Any,
) -> Writer:
    """Make a writer, which writes tuples of arrays to a file.

    The file is written completely or not at all: the writer writes to a temporary file in the same directory, and
    `Writer.close` renames it.

    Parameters
    ----------
    filename : str or path
        The name of the file. As for `open_files`, its suffix determines the format, unless the name of a format
        and a colon come before. A second suffix determines the compression, such as ``.csv.gz``. The part before
        a colon is always a format here: write ``./npy:y.npy`` to create a file with this name.
    format : str, optional
        The format of the file, whatever its name.
    shapes, dtypes, lod_levels : sequence, optional
        The slots of the tuples, as for `py_array_reader`: an entry for each slot. By default, the first tuple
        determines them.
    names : sequence of str, optional
        The names of the slots. They are the first line of a CSV file, and the extensions in a tar file. By
        default, they are the keys of `shapes` or of the first tuple, if it is a dict.
    **options
        The options of the format: see `docs/formats.md`.

    Returns
    -------
    Writer

    Raises
    ------
    FileError
        The file cannot be created.
    InvalidArgument
        A name without a format, or an option that the format does not have.
    UnsupportedError
        The format can only be read.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pyfeed import open_files, open_writer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_writer(f"{folder}/x.recordio", compression="snappy") as writer:
    ...         for i in range(3):
    ...             writer.write((np.full(2, i), np.int64(10 * i)))
    ...     [(x.tolist(), y.item()) for x, y in open_files(f"{folder}/x.recordio")]
    [([0, 0], 0), ([1, 1], 10), ([2, 2], 20)]
    """
    path = os.fspath(filename)
    attributes: dict[str, Any] = {"options": encode_options(options, format, (path,))}
    slots: list[Slot] = []
    structure = None
    if shapes is not None:
        about = _structure.describe(shapes, dtypes, lod_levels, names, as_dict=False)
        attributes["slots"] = _slots.to_attributes(*about[:4])
        slots = _slots.from_attributes(attributes["slots"])
        structure, names = about.structure, about.names
    else:
        _slots.refuse_without_shapes(dtypes, lod_levels, None)
        if names is not None:
            attributes["names"] = list(names)
    writer = Writer._open(path, format, attributes, slots)
    structure = _structure.accepted(structure, names or ())
    if structure:
        writer._set_structure(structure, None)
    return writer
