"""LoDTensor: an array whose first dimension is divided into sequences by ragged offsets (LoD, level of detail)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from ._lod_offsets import check_offsets, offsets_of


class _Named(type):
    """Accepts pyfeed.LoDTensor as well, in a worker that also imports pyfeed."""

    def __instancecheck__(cls, instance: object) -> bool:
        kind = type(instance)
        return kind is cls or (kind.__name__ == "LoDTensor" and kind.__module__.partition(".")[0] == "pyfeed")


class LoDTensor(metaclass=_Named):
    """An array whose first dimension is divided into sequences by ragged offsets (LoD, level of detail).

    Parameters
    ----------
    data : array
        The values. The object is kept, not copied.
    lod : iterable of 1-d arrays of int
        The levels of offsets, outermost first. Each level starts with 0 and never decreases. Its last offset is the
        number of sequences of the next level; in the last level it is ``len(data)``.

    Raises
    ------
    ShapeError
        The offsets do not divide `data` in this way.
    DTypeError
        The offsets are not integers.
    """

    __slots__ = ("data", "lod")

    def __init__(self, data: Any, lod: Iterable[npt.ArrayLike] = ()) -> None:
        self.data = data
        self.lod: tuple[npt.NDArray[np.int64], ...] = tuple(offsets_of(level, i) for i, level in enumerate(lod))
        check_offsets(self.lod, data)

    @classmethod
    def _wrap(cls, data: Any, lod: tuple[npt.NDArray[np.int64], ...]) -> LoDTensor:
        """Make a tensor from offsets that were already checked."""
        tensor = cls.__new__(cls)
        tensor.data, tensor.lod = data, lod
        return tensor

    def __repr__(self) -> str:
        return f"LoDTensor({self.data!r}, {self.lod!r})"
