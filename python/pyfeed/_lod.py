"""LoDTensor: an array whose first dimension is divided into sequences."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ._arguments import anything, integer, items, refuse, takes
from ._errors import DTypeError, InvalidArgument, ShapeError

if TYPE_CHECKING:
    import numpy.typing as npt

Bytes = bytes | bytearray | memoryview | str


def lengths(name: str, value: Any) -> list[npt.NDArray[np.int64]]:
    """The lengths of sequences, level by level."""
    levels = items(name, value, "levels of lengths, such as [[2, 3]]")
    try:
        return [offsets_of(level, i) for i, level in enumerate(levels)]
    except (ShapeError, DTypeError) as error:
        raise type(error)(f"{name}: {error}") from None


def arrays(name: str, value: Any) -> list[npt.NDArray[Any]]:
    """Sequences: arrays that can be joined along their first dimension."""
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
    """Tensors that can be joined."""
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
    """Bytes and text."""
    if isinstance(value, Bytes):
        return [value]
    every = items(name, value, "bytes or text, or several of them")
    for i, one in enumerate(every):
        if not isinstance(one, Bytes):
            refuse(f"{name}[{i}]", "bytes or text", one)
    return every


class LoDTensor:
    """An array with a level of detail: its first dimension divided into sequences.

    Parameters
    ----------
    data : array
        The values. Kept as it is, not copied.
    lod : iterable of 1-d arrays of int
        Offsets, outermost level first. Each level starts with 0 and never decreases; its last offset
        is the number of sequences of the next level, or, for the last level, ``len(data)``. int64
        arrays are kept as they are.

    Raises
    ------
    ShapeError
        The offsets do not divide `data` so.
    DTypeError
        They are not integers.

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
    >>> t.sequences()
    [array([0., 1.]), array([2., 3., 4.])]
    """

    __slots__ = ("data", "lod")

    @takes()
    def __init__(self, data: Any, lod: Iterable[npt.ArrayLike] = ()) -> None:
        self.data = data
        levels = items("lod", lod, "levels of offsets, such as [[0, 2, 5]]")
        self.lod: tuple[npt.NDArray[np.int64], ...] = tuple(offsets_of(level, i) for i, level in enumerate(levels))
        _check(self.lod, data)

    @classmethod
    def _over(cls, data: Any, lod: tuple[npt.NDArray[np.int64], ...]) -> LoDTensor:
        """Make one of offsets that were checked."""
        tensor = cls.__new__(cls)
        tensor.data, tensor.lod = data, lod
        return tensor

    @classmethod
    @takes(lengths=lengths, data=anything)
    def from_lengths(cls, data: Any, lengths: Sequence[Sequence[int]]) -> LoDTensor:
        """Make one from the length of each sequence, level by level, instead of offsets."""
        levels = []
        for i, sizes in enumerate(lengths):
            if len(sizes) and min(sizes) < 0:
                raise InvalidArgument(f"lengths: level {i}: expected lengths of at least 0, found {min(sizes)}")
            levels.append(np.concatenate([[0], np.cumsum(sizes)]))
        return cls(data, levels)

    @classmethod
    @takes(sequences=arrays)
    def from_sequences(cls, sequences: Iterable[npt.ArrayLike]) -> LoDTensor:
        """Make one of a level from its sequences: at least one, arrays that differ in their first dimension only."""
        every = list(sequences)
        return cls.from_lengths(np.concatenate(every), [[len(a) for a in every]])  # type: ignore[arg-type]

    @classmethod
    @takes(items=bytes_or_text)
    def from_bytes(cls, items: Bytes | Iterable[Bytes]) -> LoDTensor:
        """Make one of uint8 and one level from pieces of bytes; text becomes UTF-8.

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

    @takes(num_parts=integer(1))
    def split(self, num_parts: int) -> list[LoDTensor]:
        """Parts for so many places, of about equally many sequences of the outermost level, in order.

        The first ones have one more where there is a remainder, and there are fewer parts than places where
        there are fewer sequences. Without a level of detail, rows are counted. Views, not copies.

        Examples
        --------
        >>> import numpy as np
        >>> from pyfeed import LoDTensor
        >>> t = LoDTensor(np.arange(20), [[0, 2, 4, 5, 6], [0, 1, 6, 8, 13, 15, 20]])
        >>> [[level.tolist() for level in part.lod] for part in t.split(2)]
        [[[0, 2, 4], [0, 1, 6, 8, 13]], [[0, 1, 2], [0, 2, 7]]]
        """
        _check(self.lod, self.data)  # they may have been written to since
        count, out, begin = len(self), [], 0
        for part in range(min(num_parts, count)):
            end = begin + count // num_parts + (part < count % num_parts)
            out.append(self._part(begin, end))
            begin = end
        return out

    def _part(self, i: int, j: int) -> LoDTensor:
        """Some sequences of the outermost level."""
        levels = []
        for level in self.lod:
            levels.append(level[i : j + 1] - level[i])
            i, j = int(level[i]), int(level[j])
        return LoDTensor._over(self.data[i:j], tuple(levels))

    @classmethod
    @takes(tensors=tensors)
    def merge(cls, tensors: Iterable[LoDTensor]) -> LoDTensor:
        """One of all the sequences of several, which have as many levels of detail: undoes `split`.

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
            _check(each.lod, each.data)
        levels = [
            np.concatenate([[0], np.cumsum(np.concatenate([np.diff(level) for level in same]))])
            for same in zip(*(each.lod for each in every), strict=True)
        ]
        return cls(np.concatenate([np.asarray(each.data) for each in every]), levels)

    @takes()
    def sequences(self) -> list[Any]:
        """The sequences of the outermost level: arrays, or where there are more levels, `LoDTensor`.

        Views, not copies.
        """
        if not self.lod:
            raise InvalidArgument("sequences: expected at least one level of detail, found none")
        _check(self.lod, self.data)  # they may have been written to since
        first, *rest = self.lod
        out: list[Any] = []
        for i, j in itertools.pairwise(first.tolist()):
            levels = []
            for level in rest:
                levels.append(level[i : j + 1] - level[i])
                i, j = int(level[i]), int(level[j])
            part = self.data[i:j]
            out.append(LoDTensor._over(part, tuple(levels)) if rest else part)
        return out

    @takes()
    def bytes_list(self) -> list[bytes]:
        """The sequences of the innermost level as `bytes`: what a slot of bytes or text holds.

        Examples
        --------
        >>> from pyfeed import LoDTensor
        >>> LoDTensor.from_bytes([b"ab", b"", b"c"]).bytes_list()
        [b'ab', b'', b'c']
        """
        if not self.lod:
            raise InvalidArgument("bytes_list: expected at least one level of detail, found none")
        _check(self.lod, self.data)
        data = np.asarray(self.data)
        return [data[i:j].tobytes() for i, j in itertools.pairwise(self.lod[-1].tolist())]

    @takes()
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


def with_bytes(arrays: Any, slots: Container[int]) -> Any:
    """A tuple's arrays, with bytes and text for some of its slots as the sequences they stand for."""
    if not isinstance(arrays, (tuple, list)):
        return arrays
    return tuple(
        LoDTensor.from_bytes(a) if isinstance(a, (bytes, bytearray, str)) and i in slots else a
        for i, a in enumerate(arrays)
    )
