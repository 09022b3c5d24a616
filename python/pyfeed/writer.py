"""Writing files."""

from __future__ import annotations

import atexit
import os
import threading
import warnings
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy.typing as npt

from . import _arguments, _attributes, _native, slots
from ._arguments import anything, optional, takes, text
from ._errors import Error
from ._lod import with_bytes
from .files import told
from .slots import SLOTS, Shape

_unclosed: weakref.WeakSet[Writer] = weakref.WeakSet()


@atexit.register
def _abort_unclosed() -> None:
    """Remove the unfinished files of writers that are alive at exit, whose memory is not freed."""
    for writer in list(_unclosed):
        try:
            writer.abort()
        except Error:
            pass  # in a forked child the file is its parent's


class _Every:
    def __contains__(self, _: object) -> bool:
        return True


class Writer(_native.Writer):
    """Writes tuples of arrays to a file, made by `open_writer`.

    Use it in a ``with`` block: at its end the file is complete, or, after an exception, as it was
    before. Any thread may write; one at a time does.

    Attributes
    ----------
    filename : str
    """

    filename: str
    _lock: threading.RLock
    _bytes_slots: Any

    @classmethod
    def _open(cls, filename: str, format: str | None, attributes: dict[str, Any], bytes_slots: Any) -> Self:
        writer = cls._create(os.fsencode(filename), format, _attributes.encode(attributes))
        writer.filename, writer._bytes_slots = filename, bytes_slots
        writer._lock = threading.RLock()
        _unclosed.add(writer)
        return writer

    @takes()
    def write(self, arrays: Sequence[Any]) -> None:
        """Add a tuple.

        Parameters
        ----------
        arrays : tuple or list
            One array a slot, as for `PyArrayFeedQueue.push`. `bytes` and `str` stand for a sequence
            of bytes, see `LoDTensor.from_bytes`.

        Raises
        ------
        ShapeError, DTypeError, SlotCountError, InvalidArgument
            The format cannot hold the tuple, or it is unlike those before it.
        FileError
            The system could not write, as when the disk is full.
        StateError
            An earlier write has failed: `abort` is all that is left.
        """
        ready = with_bytes(arrays, self._bytes_slots)
        with self._lock:
            self._write(ready)

    @takes()
    def close(self) -> None:
        """Complete the file and see its bytes to the disk. Until then there is none of its name, or the old one.

        Twice is fine.

        Raises
        ------
        FileError
            The system could not write: there is no new file, and the writer is closed.
        StateError
            An earlier write has failed: `abort` is all that is left.
        """
        with self._lock:
            self._close()

    @takes()
    def abort(self) -> None:
        """Leave nothing of the file behind. After `close`, and the second time, it does nothing."""
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
            self.abort()  # of what could not be completed

    def __del__(self) -> None:
        if not self.closed:
            warnings.warn(f"{self!r} was not closed: its file is not written", ResourceWarning, 2, self)

    def __repr__(self) -> str:
        return f"<Writer {self.filename!r}{', closed' if self.closed else ''}>"


@takes(filename=_arguments.path, format=optional(text), **SLOTS, options=anything)
def open_writer(
    filename: str | os.PathLike[str],
    format: str | None = None,
    *,
    shapes: Sequence[Shape] | None = None,
    dtypes: Sequence[npt.DTypeLike | None] | None = None,
    lod_levels: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    **options: Any,
) -> Writer:
    """Begin to write a file.

    Parameters
    ----------
    filename : str or path
        As for `open_files`, it tells the format by its suffix or a prefix with a colon, which is always a
        prefix here: ``./npy:y.npy`` is a file of that name.
    format : str, optional
        The format, whatever the name.
    shapes, dtypes, lod_levels : sequence, optional
        What the tuples look like, one a slot, as for `py_array_reader`. As the first tuple, if they
        are not given.
    names : sequence of str, optional
        Of the slots: what a CSV file has in its first line, a tar file as extensions.
    **options
        The format's own, see ``docs/formats.md``.

    Returns
    -------
    Writer

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
    attributes: dict[str, Any] = {"options": told(options)}
    bytes_slots: Any = _Every()
    if shapes is None and names is not None:
        attributes["names"] = list(names)
        names = None
    wanted = slots.attributes(shapes, dtypes, lod_levels, names)
    if wanted is not None:
        attributes["slots"] = wanted
        bytes_slots = slots.of_bytes(slots.described(wanted))
    return Writer._open(path, format, attributes, bytes_slots)
