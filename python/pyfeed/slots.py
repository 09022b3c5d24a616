"""What the tuples of a reader look like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _native
from ._arguments import Check, each, index, integer, items, names, optional, refuse
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


# ---- Checks ----------------------------------------------------------------------------------


def shape(name: str, value: Any, slot: int | None = None) -> tuple[int, ...]:
    """Sizes; None stands for any, as -1 does."""
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes, bytearray, Mapping, set, frozenset)):
        refuse(name, "a shape, such as (-1, 784)", value, slot=slot)
    return tuple(_dimension(f"{name}: dimension {i}", n, slot) for i, n in enumerate(items(name, value, "a shape")))


def _dimension(name: str, n: Any, slot: int | None) -> int:
    size = -1 if n is None else index(name, n, "a size or -1", slot)
    if not -(2**63) <= size < 2**63:
        refuse(name, f"at most {2**63 - 1}", n, InvalidArgument, slot)
    return size


def shapes(name: str, value: Any) -> list[tuple[int, ...]]:
    """A shape for each slot."""
    expected = "a sequence of shapes, one a slot, such as [(-1, 784), (-1,)]"
    every = items(name, value, expected)
    if every and all(n is None or isinstance(n, (int, np.integer)) for n in every):
        refuse(name, expected, value)  # the shape of a single slot
    return [shape(f"{name}: slot {i}", one, i) for i, one in enumerate(every)]


def dtype(name: str, value: Any) -> str | None:
    """The name of a dtype; None: any."""
    return _named(name, value, None)


def _named(name: str, value: Any, slot: int | None) -> str | None:
    try:
        return _native._dtype_name(value)
    except Error as error:
        raise _at(type(error)(f"{name}: {str(error).removeprefix('dtype: ')}"), slot) from None


def _at(error: Error, slot: int | None) -> Error:
    error.slot = slot
    return error


def dtypes(name: str, value: Any) -> list[str | None]:
    """A dtype, or None, for each slot."""
    every = items(name, value, "a sequence of dtypes, one a slot")
    return [_named(f"{name}: slot {i}", one, i) for i, one in enumerate(every)]


lod_levels = each(integer(0, most=2**31 - 1), "a sequence of numbers of levels, one a slot")


def unlike(name: str, given: Sized | None, slots: int) -> None:
    """Refuse what is given for each slot, where there are more or fewer."""
    if given is not None and len(given) != slots:
        raise SlotCountError(f"{name}: expected {slots}, one a slot, found {len(given)}")


# What open_files and its like, open_writer, map and register_format are told of slots.
SLOTS: dict[str, Check] = {
    "shapes": optional(shapes),
    "dtypes": optional(dtypes),
    "lod_levels": optional(lod_levels),
    "names": optional(names),
}


# ---- Forms -----------------------------------------------------------------------------------


def attributes(
    shapes: Sequence[Shape] | None,
    dtypes: Sequence[npt.DTypeLike | None] | None,
    lod_levels: Sequence[int] | None,
    names: Sequence[str] | None,
) -> list[dict[str, Any]] | None:
    """Slots as operators take them, of arguments that were checked; None if the shapes are not given."""
    for what, given in (("dtypes", dtypes), ("lod_levels", lod_levels), ("names", names)):
        if given is not None and shapes is None:
            raise InvalidArgument(f"{what}: expected shapes along with it, found none")
        if shapes is not None:
            unlike(what, given, len(shapes))
    if shapes is None:
        return None
    return [
        {
            "name": "" if names is None else names[i],
            "dtype": "" if dtypes is None else dtypes[i] or "",
            "dims": list(shape),
            "lod_levels": 0 if lod_levels is None else lod_levels[i],
        }
        for i, shape in enumerate(shapes)
    ]


def specs(
    shapes: Sequence[Shape], dtypes: Sequence[npt.DTypeLike | None] | None, lod_levels: Sequence[int] | None
) -> tuple[tuple[Any, tuple[int, ...], int], ...]:
    """Slots as a queue takes them: (dtype, shape, levels of detail)."""
    unlike("dtypes", dtypes, len(shapes))
    unlike("lod_levels", lod_levels, len(shapes))
    return tuple(
        (None if dtypes is None else dtypes[i], tuple(shape), 0 if lod_levels is None else lod_levels[i])
        for i, shape in enumerate(shapes)
    )


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
