"""LoDTensor: an array whose first dimension is divided into sequences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from ._errors import DTypeError, ShapeError


class _Named(type):
    """pyfeed.LoDTensor, of a worker that has pyfeed too, is as good."""

    def __instancecheck__(cls, instance: object) -> bool:
        kind = type(instance)
        return kind is cls or (kind.__name__ == "LoDTensor" and kind.__module__.partition(".")[0] == "pyfeed")


class LoDTensor(metaclass=_Named):
    """An array with a level of detail: its first dimension divided into sequences.

    Parameters
    ----------
    data : array
        The values. Kept as it is, not copied.
    lod : iterable of 1-d arrays of int
        Offsets, outermost level first. Each level starts with 0 and never decreases; its last offset is the number
        of sequences of the next level, or, for the last level, ``len(data)``.

    Raises
    ------
    ShapeError
        The offsets do not divide `data` so.
    DTypeError
        They are not integers.
    """

    __slots__ = ("data", "lod")

    def __init__(self, data: Any, lod: Iterable[npt.ArrayLike] = ()) -> None:
        self.data = data
        self.lod: tuple[npt.NDArray[np.int64], ...] = tuple(offsets_of(level, i) for i, level in enumerate(lod))
        _check(self.lod, data)

    @classmethod
    def _over(cls, data: Any, lod: tuple[npt.NDArray[np.int64], ...]) -> LoDTensor:
        """Make one of offsets that were checked."""
        tensor = cls.__new__(cls)
        tensor.data, tensor.lod = data, lod
        return tensor

    def __repr__(self) -> str:
        return f"LoDTensor({self.data!r}, {self.lod!r})"


def offsets_of(level: Any, number: int) -> npt.NDArray[np.int64]:
    """One level of detail as an int64 array: the very array, if it is one already.

    Raises
    ------
    ShapeError, DTypeError
        It is not a one-dimensional array of integers.
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


def _check(lod: tuple[npt.NDArray[np.int64], ...], data: Any) -> None:
    """Refuse offsets that divide nothing into sequences. Pushes check them again: arrays can be written to."""
    for i, level in enumerate(lod):
        if not len(level):  # one stands for no sequences, which a queue does not take in its outermost level
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
    """The first dimension of data; None if data does not say, as objects with DLPack alone do not."""
    shape = getattr(data, "shape", None)
    if shape is None:
        try:
            return len(data)
        except TypeError:
            return None
    if len(shape) == 0:
        raise ShapeError("LoD: expected a tensor with a first dimension, found a scalar")
    return int(shape[0])
