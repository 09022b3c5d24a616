"""LoDTensor: an array whose first dimension is divided into sequences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


class LoDTensor:
    """An array with a level of detail: its first dimension divided into sequences.

    Parameters
    ----------
    data : array
        The values. Kept as it is, not copied.
    lod : iterable of 1-d arrays of int
        Offsets, outermost level first. Each level starts with 0 and never decreases; its last offset
        is the number of sequences of the next level, or, for the last level, ``len(data)``. int64
        arrays are kept as they are. Checked when the tensor is pushed.

    Notes
    -----
    Level-1 offsets are what Arrow calls list offsets, TensorFlow row splits and PyTorch's jagged
    layout offsets: hand ``t.data`` and ``t.lod[0]`` to any of the three, or take theirs.

    Examples
    --------
    >>> import numpy as np
    >>> t = LoDTensor.from_lengths(np.arange(5.0), [[2, 3]])
    >>> t.lod
    (array([0, 2, 5]),)
    >>> t.recursive_sequence_lengths()
    [[2, 3]]
    """

    __slots__ = ("data", "lod")

    def __init__(self, data: Any, lod: Iterable[npt.ArrayLike] = ()) -> None:
        self.data = data
        self.lod: tuple[npt.NDArray[np.int64], ...] = tuple(
            np.ascontiguousarray(level, dtype=np.int64) for level in lod
        )

    @classmethod
    def from_lengths(cls, data: Any, lengths: Sequence[Sequence[int]]) -> LoDTensor:
        """Make one from the length of each sequence, level by level, instead of offsets."""
        return cls(data, [np.concatenate([[0], np.cumsum(level, dtype=np.int64)]) for level in lengths])

    def recursive_sequence_lengths(self) -> list[list[int]]:
        """The length of each sequence, level by level."""
        return [np.diff(level).tolist() for level in self.lod]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the values."""
        return tuple(self.data.shape)

    @property
    def dtype(self) -> Any:
        """The type of the values."""
        return self.data.dtype

    def __len__(self) -> int:
        """The number of sequences of the outermost level, or of rows if there is none."""
        return len(self.lod[0]) - 1 if self.lod else len(self.data)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy:
            return np.array(self.data, dtype=dtype)
        return np.asarray(self.data, dtype=dtype)

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.data.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.data.__dlpack_device__()
        return device

    def __repr__(self) -> str:
        return f"LoDTensor({self.data!r}, lod={[level.tolist() for level in self.lod]})"
