"""What the tuples of a reader look like."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _native
from ._errors import Error, InvalidArgument, SlotCountError

if TYPE_CHECKING:
    import numpy.typing as npt

Shape = Sequence[int]


class Slot(NamedTuple):
    """What one array of a reader's tuples looks like.

    Attributes
    ----------
    name : str
        What the file calls it, or "".
    dtype : str or None
        ``"float32"`` and the like; None: not known before the first tuple.
    shape : tuple of int
        -1 stands for any size; a first dimension of -1 is the one along which batches grow.
    lod_levels : int
        Levels of detail: with any, the slot comes as a `LoDTensor`.
    """

    name: str
    dtype: str | None
    shape: tuple[int, ...]
    lod_levels: int


def attributes(
    shapes: Sequence[Shape] | None,
    dtypes: Sequence[npt.DTypeLike | None] | None,
    lod_levels: Sequence[int] | None,
    names: Sequence[str] | None,
) -> list[dict[str, Any]] | None:
    """Slots as operators take them; None if the shapes are not given."""
    others = (("dtypes", dtypes), ("lod_levels", lod_levels), ("names", names))
    for what, given in others:
        if given is None:
            continue
        if shapes is None:
            raise InvalidArgument(f"{what}: expected shapes along with it, found none")
        if len(given) != len(shapes):
            raise SlotCountError(f"{what}: expected {len(shapes)}, one a slot, found {len(given)}")
    if shapes is None:
        return None
    return [
        {
            "name": "" if names is None else names[i],
            "dtype": "" if dtypes is None else _dtype(dtypes[i], i),
            "dims": [int(n) for n in shape],
            "lod_levels": 0 if lod_levels is None else int(lod_levels[i]),
        }
        for i, shape in enumerate(shapes)
    ]


def _dtype(dtype: npt.DTypeLike | None, slot: int) -> str:
    try:
        return _native._dtype_name(dtype) or ""
    except Error as error:
        error.slot = slot
        raise


def described(all_slots: Iterable[dict[str, Any]]) -> list[Slot]:
    """The other way round."""
    return [
        Slot(
            name=s.get("name", ""),
            dtype=None if s.get("dtype", "") in ("", "any") else s["dtype"],
            shape=tuple(s.get("dims", ())),
            lod_levels=s.get("lod_levels", 0),
        )
        for s in all_slots
    ]


def of_bytes(all_slots: Iterable[Slot]) -> frozenset[int]:
    """The numbers of those that hold bytes or text: a sequence an instance."""
    return frozenset(
        i for i, s in enumerate(all_slots) if s.lod_levels == 1 and s.dtype in ("uint8", None) and s.shape == (-1,)
    )
