"""Checks of ragged offsets (LoD, level of detail), which pyfeed and pyfeed_worker share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import DTypeError, ShapeError

if TYPE_CHECKING:
    import numpy.typing as npt


def offsets_of(level: Any, number: int) -> npt.NDArray[np.int64]:
    """Return the offsets of one level as an int64 array. A contiguous int64 array is returned as it is.

    Raises
    ------
    ShapeError
        `level` does not have one dimension.
    DTypeError
        `level` is not an array of integers.
    """
    try:
        offsets = np.asarray(level)
    except (TypeError, ValueError):
        raise DTypeError(f"LoD level {number}: expected an array of integers, found {level!r}") from None
    if offsets.ndim != 1:
        raise ShapeError(f"LoD level {number}: expected one dimension, found {offsets.ndim}")
    if offsets.dtype.kind not in "iu" and offsets.size:
        raise DTypeError(f"LoD level {number}: expected integers, found {offsets.dtype}")
    return np.ascontiguousarray(offsets, dtype=np.int64)


def check_offsets(lod: tuple[npt.NDArray[np.int64], ...], data: Any) -> None:
    """Raise a `ShapeError` if the offsets do not divide `data` into sequences.

    The library checks the offsets of a pushed tensor again, because they can be written to meanwhile.
    """
    for i, level in enumerate(lod):
        if not len(level):  # one offset means no sequences, which a queue refuses in the outermost level
            raise ShapeError(f"LoD level {i}: expected at least 1 offset, found 0")
    for i, level in enumerate(lod):
        if level[0] != 0:
            raise ShapeError(f"LoD level {i}: expected the first offset to be 0, found {level[0]}")
        falls = level[1:] < level[:-1]
        if falls.any():
            at = int(falls.argmax())
            raise ShapeError(f"LoD level {i}: offset {at + 1} decreases from {level[at]} to {level[at + 1]}")
        want, of = _rows(data) if i + 1 == len(lod) else len(lod[i + 1]) - 1, "the first dimension"
        if i + 1 < len(lod):
            of = f"the number of sequences of level {i + 1}"
        if want is not None and level[-1] != want:
            raise ShapeError(f"LoD level {i}: expected the last offset to be {want}, {of}, found {level[-1]}")


def _rows(data: Any) -> int | None:
    """Return the first dimension of `data`, or None if it is unknown, as for an object that has only DLPack."""
    shape = getattr(data, "shape", None)
    if shape is None:
        try:
            return len(data)
        except TypeError:
            return None
    if len(shape) == 0:
        raise ShapeError("LoD: expected a tensor with a first dimension, found a scalar")
    return int(shape[0])
