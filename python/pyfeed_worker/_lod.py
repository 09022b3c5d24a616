"""LoDTensor: an array whose first dimension is divided into sequences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt


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
    """

    __slots__ = ("data", "lod")

    def __init__(self, data: Any, lod: Iterable[npt.ArrayLike] = ()) -> None:
        self.data = data
        self.lod: tuple[npt.NDArray[np.int64], ...] = tuple(
            np.ascontiguousarray(level, dtype=np.int64) for level in lod
        )

    def __repr__(self) -> str:
        return f"LoDTensor({self.data!r}, {self.lod!r})"
