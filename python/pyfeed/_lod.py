"""LoDTensor: an array whose first dimension is divided into sequences."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ._arguments import anything, integer, items, refuse, validate
from ._lod_offsets import check_offsets, offsets_of
from .errors import DTypeError, InvalidArgument, ShapeError

if TYPE_CHECKING:
    import numpy.typing as npt

Bytes = bytes | bytearray | memoryview | str


def lengths(name: str, value: Any) -> list[npt.NDArray[np.int64]]:
    """Accept the lengths of sequences, level by level."""
    levels = items(name, value, "levels of lengths, such as [[2, 3]]")
    try:
        return [offsets_of(level, i) for i, level in enumerate(levels)]
    except (ShapeError, DTypeError) as error:
        raise type(error)(f"{name}: {error}") from None


def arrays(name: str, value: Any) -> list[npt.NDArray[Any]]:
    """Accept arrays that can be concatenated along their first dimension."""
    every = items(name, value, "a sequence of arrays")
    if not every:
        refuse(name, "at least one array", value, InvalidArgument)
    out: list[npt.NDArray[Any]] = []
    for i, one in enumerate(every):
        try:
            array = np.asarray(one)
        except (TypeError, ValueError):
            refuse(f"{name}[{i}]", "an array", one)
        if array.ndim == 0 or array.dtype == object:
            refuse(f"{name}[{i}]", "an array of at least one dimension", one)
        if out and array.shape[1:] != out[0].shape[1:]:
            refuse(f"{name}[{i}]", f"an array of shape {(-1, *out[0].shape[1:])}", array.shape, ShapeError)
        out.append(array)
    return out


def tensors(name: str, value: Any) -> list[LoDTensor]:
    """Accept tensors that can be concatenated."""
    every = items(name, value, "a sequence of LoDTensor")
    if not every:
        refuse(name, "at least one LoDTensor", value, InvalidArgument)
    for i, one in enumerate(every):
        if not isinstance(one, LoDTensor):
            refuse(f"{name}[{i}]", "a LoDTensor", one)
        if len(one.lod) != len(every[0].lod):
            refuse(f"{name}[{i}]", f"{len(every[0].lod)} levels of detail", len(one.lod), ShapeError)
        if one.shape[1:] != every[0].shape[1:]:
            refuse(f"{name}[{i}]", f"a tensor of shape {(-1, *every[0].shape[1:])}", one.shape, ShapeError)
        if one.dtype != every[0].dtype:
            refuse(f"{name}[{i}]", f"a tensor of {every[0].dtype}", one.dtype, DTypeError)
    return every


def bytes_or_text(name: str, value: Any) -> list[Bytes]:
    """Accept a piece of bytes or text, or several."""
    if isinstance(value, Bytes):
        return [value]
    every = items(name, value, "bytes or text, or several of them")
    for i, one in enumerate(every):
        if not isinstance(one, Bytes):
            refuse(f"{name}[{i}]", "bytes or text", one)
    return every


class LoDTensor:
    """An array whose first dimension is divided into sequences of different lengths.

    Ragged offsets (LoD, level of detail) say where each sequence begins. With one level, sequence ``i`` is
    ``data[lod[0][i]:lod[0][i + 1]]``. With several levels, each level divides the sequences of the next one into
    groups. A reader delivers a `LoDTensor` for each slot that has levels of detail, such as a slot of text.

    Parameters
    ----------
    data : array
        The values. The object is kept as it is, not copied.
    lod : iterable of 1-d arrays of int
        The offsets, outermost level first. By default there is no level. Each level begins with 0 and never
        decreases. Its last offset is the number of sequences of the next level, or, for the last level,
        ``len(data)``. Contiguous int64 arrays are kept as they are; others are converted.

    Raises
    ------
    ShapeError
        The offsets do not divide `data` as described.
    DTypeError
        The offsets are not integers.

    Notes
    -----
    The offsets of a tensor with one level are the same numbers as list offsets in Arrow, row splits in TensorFlow
    and the offsets of PyTorch's jagged layout. So ``t.data`` and ``t.lod[0]`` can be passed to these libraries,
    and their arrays can be used here.

    ``len()`` is the number of sequences of the outermost level, or the number of rows if there is no level.
    ``numpy.asarray()`` and DLPack give the values.

    Attributes
    ----------
    data : array
        The values.
    lod : tuple of numpy.ndarray
        The int64 offsets of each level, outermost first.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed import LoDTensor
    >>> t = LoDTensor.from_lengths(np.arange(5.0), [[2, 3]])
    >>> t.lod
    (array([0, 2, 5]),)
    >>> t.recursive_sequence_lengths()
    [[2, 3]]
    >>> t.sequences()
    [array([0., 1.]), array([2., 3., 4.])]
    """

    __slots__ = ("data", "lod")

    @validate()
    def __init__(self, data: Any, lod: Iterable[npt.ArrayLike] = ()) -> None:
        self.data = data
        levels = items("lod", lod, "levels of offsets, such as [[0, 2, 5]]")
        self.lod: tuple[npt.NDArray[np.int64], ...] = tuple(offsets_of(level, i) for i, level in enumerate(levels))
        check_offsets(self.lod, data)

    @classmethod
    def _wrap(cls, data: Any, lod: tuple[npt.NDArray[np.int64], ...]) -> LoDTensor:
        """Make a tensor with offsets that were checked already."""
        tensor = cls.__new__(cls)
        tensor.data, tensor.lod = data, lod
        return tensor

    @classmethod
    @validate(lengths=lengths, data=anything)
    def from_lengths(cls, data: Any, lengths: Sequence[Sequence[int]]) -> LoDTensor:
        """Make a tensor from the lengths of the sequences instead of their offsets.

        Parameters
        ----------
        data : array
            The values. The object is kept as it is, not copied.
        lengths : sequence of sequences of int
            The length of each sequence, for each level, outermost first.

        Returns
        -------
        LoDTensor

        Raises
        ------
        InvalidArgument
            A length is negative.
        ShapeError
            The lengths do not add up to the sequences of the next level, or to ``len(data)``.
        DTypeError
            The lengths are not integers.

        Examples
        --------
        >>> import numpy as np
        >>> from pyfeed import LoDTensor
        >>> LoDTensor.from_lengths(np.arange(5), [[2, 3]])
        LoDTensor(array([0, 1, 2, 3, 4]), lod=[[0, 2, 5]])
        """
        levels = []
        for i, sizes in enumerate(lengths):
            if len(sizes) and min(sizes) < 0:
                raise InvalidArgument(f"lengths: level {i}: expected lengths of at least 0, found {min(sizes)}")
            levels.append(np.concatenate([[0], np.cumsum(sizes)]))
        return cls(data, levels)

    @classmethod
    @validate(sequences=arrays)
    def from_sequences(cls, sequences: Iterable[npt.ArrayLike]) -> LoDTensor:
        """Concatenate sequences to a tensor with one level of detail.

        Parameters
        ----------
        sequences : sequence of arrays
            At least one array. Only the first dimensions may differ.

        Returns
        -------
        LoDTensor
            A copy of the values.

        Raises
        ------
        InvalidArgument
            There is no array.
        ShapeError
            The other dimensions differ.

        Examples
        --------
        >>> import numpy as np
        >>> from pyfeed import LoDTensor
        >>> LoDTensor.from_sequences([np.arange(2), np.arange(3)])
        LoDTensor(array([0, 1, 0, 1, 2]), lod=[[0, 2, 5]])
        """
        every = list(sequences)
        return cls.from_lengths(np.concatenate(every), [[len(a) for a in every]])  # type: ignore[arg-type]

    @classmethod
    @validate(items=bytes_or_text)
    def from_bytes(cls, items: Bytes | Iterable[Bytes]) -> LoDTensor:
        """Make a uint8 tensor with one level of detail from pieces of bytes or text. `bytes_list` is the reverse.

        Parameters
        ----------
        items : iterable of bytes or str
            The pieces, or a single one. Text is encoded as UTF-8.

        Returns
        -------
        LoDTensor
            A sequence for each piece.

        Examples
        --------
        >>> from pyfeed import LoDTensor
        >>> LoDTensor.from_bytes([b"ab", "c"])
        LoDTensor(array([97, 98, 99], dtype=uint8), lod=[[0, 2, 3]])
        """
        pieces: list[Any] = list(items)
        raw = [p.encode() if isinstance(p, str) else memoryview(p).cast("B") for p in pieces]
        data = np.frombuffer(raw[0] if len(raw) == 1 else b"".join(raw), np.uint8)
        return cls.from_lengths(data, [[len(r) for r in raw]])

    @validate(num_parts=integer(1))
    def split(self, num_parts: int) -> list[LoDTensor]:
        """Split the tensor into parts of about equal numbers of sequences. `merge` is the reverse.

        The sequences of the outermost level are distributed in order. If they cannot be divided equally, the first
        parts have one sequence more than the others. A tensor without levels is split into rows.

        Parameters
        ----------
        num_parts : int
            The number of parts, at least 1. If there are fewer sequences, there is one part for each.

        Returns
        -------
        list of LoDTensor
            Views of the values.

        Raises
        ------
        ShapeError
            The offsets were changed, and do not divide the values any more.

        Examples
        --------
        >>> import numpy as np
        >>> from pyfeed import LoDTensor
        >>> t = LoDTensor(np.arange(20), [[0, 2, 4, 5, 6], [0, 1, 6, 8, 13, 15, 20]])
        >>> [[level.tolist() for level in part.lod] for part in t.split(2)]
        [[[0, 2, 4], [0, 1, 6, 8, 13]], [[0, 1, 2], [0, 2, 7]]]
        """
        check_offsets(self.lod, self.data)  # the arrays may have been written to
        count, out, begin = len(self), [], 0
        for part in range(min(num_parts, count)):
            end = begin + count // num_parts + (part < count % num_parts)
            out.append(self._part(begin, end))
            begin = end
        return out

    def _part(self, i: int, j: int) -> LoDTensor:
        """Return the sequences `i` to `j` - 1 of the outermost level."""
        levels = []
        for level in self.lod:
            levels.append(level[i : j + 1] - level[i])
            i, j = int(level[i]), int(level[j])
        return LoDTensor._wrap(self.data[i:j], tuple(levels))

    @classmethod
    @validate(tensors=tensors)
    def merge(cls, tensors: Iterable[LoDTensor]) -> LoDTensor:
        """Concatenate tensors with the same number of levels of detail. `split` is the reverse.

        Parameters
        ----------
        tensors : iterable of LoDTensor
            At least one tensor. Their dtypes and all dimensions except the first must agree.

        Returns
        -------
        LoDTensor
            A copy of the values.

        Raises
        ------
        InvalidArgument
            There is no tensor.
        ShapeError
            The numbers of levels differ, or the dimensions after the first.
        DTypeError
            The dtypes differ.

        Examples
        --------
        >>> import numpy as np
        >>> from pyfeed import LoDTensor
        >>> t = LoDTensor(np.arange(5), [[0, 2, 3, 5]])
        >>> LoDTensor.merge(t.split(2))
        LoDTensor(array([0, 1, 2, 3, 4]), lod=[[0, 2, 3, 5]])
        """
        every = list(tensors)
        for each in every:
            check_offsets(each.lod, each.data)
        levels = [
            np.concatenate([[0], np.cumsum(np.concatenate([np.diff(level) for level in same]))])
            for same in zip(*(each.lod for each in every), strict=True)
        ]
        return cls(np.concatenate([np.asarray(each.data) for each in every]), levels)

    @validate()
    def sequences(self) -> list[Any]:
        """Return the sequences of the outermost level, as views.

        Returns
        -------
        list
            An array for each sequence, or a `LoDTensor` if the tensor has more than one level.

        Raises
        ------
        InvalidArgument
            The tensor has no level of detail.
        ShapeError
            The offsets were changed, and do not divide the values any more.

        Examples
        --------
        >>> import numpy as np
        >>> from pyfeed import LoDTensor
        >>> LoDTensor(np.arange(5), [[0, 2, 5]]).sequences()
        [array([0, 1]), array([2, 3, 4])]
        """
        if not self.lod:
            raise InvalidArgument("sequences: expected at least one level of detail, found none")
        check_offsets(self.lod, self.data)  # the arrays may have been written to
        first, *rest = self.lod
        out: list[Any] = []
        for i, j in itertools.pairwise(first.tolist()):
            levels = []
            for level in rest:
                levels.append(level[i : j + 1] - level[i])
                i, j = int(level[i]), int(level[j])
            part = self.data[i:j]
            out.append(LoDTensor._wrap(part, tuple(levels)) if rest else part)
        return out

    @validate()
    def bytes_list(self) -> list[bytes]:
        """Return the sequences of the innermost level as `bytes`, for a slot of bytes or text.

        Returns
        -------
        list of bytes
            A copy of each sequence.

        Raises
        ------
        InvalidArgument
            The tensor has no level of detail.
        ShapeError
            The offsets were changed, and do not divide the values any more.

        Examples
        --------
        >>> from pyfeed import LoDTensor
        >>> LoDTensor.from_bytes([b"ab", b"", b"c"]).bytes_list()
        [b'ab', b'', b'c']
        """
        if not self.lod:
            raise InvalidArgument("bytes_list: expected at least one level of detail, found none")
        check_offsets(self.lod, self.data)
        data = np.asarray(self.data)
        return [data[i:j].tobytes() for i, j in itertools.pairwise(self.lod[-1].tolist())]

    @validate()
    def recursive_sequence_lengths(self) -> list[list[int]]:
        """Return the lengths of the sequences, level by level.

        Returns
        -------
        list of list of int
            The lengths for each level, outermost first.

        Examples
        --------
        >>> import numpy as np
        >>> from pyfeed import LoDTensor
        >>> LoDTensor(np.arange(5), [[0, 2, 5]]).recursive_sequence_lengths()
        [[2, 3]]
        """
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
        """Return the number of sequences of the outermost level, or of rows if there is no level."""
        return len(self.lod[0]) - 1 if self.lod else len(self.data)

    def __getitem__(self, index: object) -> NoReturn:
        raise TypeError("a LoDTensor has no elements: use sequences(), a list of arrays, or data, an array")

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
