"""The slots of tuples: their names, dtypes, shapes and levels of detail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _native
from ._arguments import Check, each, index, integer, items, names, optional, refuse
from .errors import Error, InvalidArgument, SlotCountError

if TYPE_CHECKING:
    import numpy.typing as npt

Shape = Sequence[int]


class Slot(NamedTuple):
    """The description of a slot: one of the arrays in a reader's tuples.

    Attributes
    ----------
    name : str
        The name of the slot, such as the name of a column in the file; "" if it has none.
    dtype : str or None
        The name of the dtype, such as ``"float32"``. None: the first tuple determines it.
    shape : tuple of int
        -1 stands for any size. A first dimension of -1 is the one along which batches are concatenated.
    lod_levels : int
        The number of levels of ragged offsets (LoD, level of detail). If it is not 0, the slot is delivered as a
        `LoDTensor`.
    """

    name: str
    dtype: str | None
    shape: tuple[int, ...]
    lod_levels: int


# ---- Checks ----------------------------------------------------------------------------------


def shape(name: str, value: Any, slot: int | None = None) -> tuple[int, ...]:
    """Accept a shape. None stands for any size, as -1 does."""
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes, bytearray, Mapping, set, frozenset)):
        refuse(name, "a shape, such as (-1, 784)", value, slot=slot)
    return tuple(_dimension(f"{name}: dimension {i}", n, slot) for i, n in enumerate(items(name, value, "a shape")))


def _dimension(name: str, n: Any, slot: int | None) -> int:
    size = -1 if n is None else index(name, n, "a size or -1", slot)
    if not -(2**63) <= size < 2**63:
        refuse(name, f"at most {2**63 - 1}", n, InvalidArgument, slot)
    return size


def shapes(name: str, value: Any) -> list[tuple[int, ...]]:
    """Accept a shape for each slot."""
    expected = "a sequence of shapes, one for each slot, such as [(-1, 784), (-1,)]"
    every = items(name, value, expected)
    if every and all(n is None or isinstance(n, (int, np.integer)) for n in every):
        refuse(name, expected, value)  # this is the shape of a single slot
    return [shape(f"{name}: slot {i}", one, i) for i, one in enumerate(every)]


def dtype(name: str, value: Any) -> str | None:
    """Accept a dtype, and return its name; None stands for any dtype."""
    return _dtype_name_of(name, value, None)


def _dtype_name_of(name: str, value: Any, slot: int | None) -> str | None:
    try:
        return _native._dtype_name(value)
    except Error as error:
        raise _with_slot(type(error)(f"{name}: {str(error).removeprefix('dtype: ')}"), slot) from None


def _with_slot(error: Error, slot: int | None) -> Error:
    error.slot = slot
    return error


def dtypes(name: str, value: Any) -> list[str | None]:
    """Accept a dtype, or None, for each slot."""
    every = items(name, value, "a sequence of dtypes, one for each slot")
    return [_dtype_name_of(f"{name}: slot {i}", one, i) for i, one in enumerate(every)]


lod_levels = each(integer(0, most=2**31 - 1), "a sequence of numbers of levels, one for each slot")


def check_length(name: str, given: Sized | None, slots: int) -> None:
    """Raise `SlotCountError` unless an argument has an entry for each slot."""
    if given is not None and len(given) != slots:
        raise SlotCountError(f"{name}: expected {slots}, one for each slot, found {len(given)}")


# The checks of the arguments that describe slots: for `open_files`, `open_writer`, `map`, `register_format` and others.
SLOT_CHECKS: dict[str, Check] = {
    "shapes": optional(shapes),
    "dtypes": optional(dtypes),
    "lod_levels": optional(lod_levels),
    "names": optional(names),
}


def refuse_without_shapes(dtypes: object, lod_levels: object, names: object) -> None:
    """Raise `InvalidArgument` if one of these is given. It is called where shapes are not given."""
    for what, given in (("dtypes", dtypes), ("lod_levels", lod_levels), ("names", names)):
        if given is not None:
            raise InvalidArgument(f"{what}: expected shapes along with it, found none")


# ---- Conversions -----------------------------------------------------------------------------


def to_attributes(
    shapes: Sequence[Shape] | None,
    dtypes: Sequence[npt.DTypeLike | None] | None,
    lod_levels: Sequence[int] | None,
    names: Sequence[str] | None,
) -> list[dict[str, Any]] | None:
    """Return slots as attributes of operators, made of checked arguments; None if `shapes` is None."""
    if shapes is None:
        refuse_without_shapes(dtypes, lod_levels, names)
        return None
    for what, given in (("dtypes", dtypes), ("lod_levels", lod_levels), ("names", names)):
        check_length(what, given, len(shapes))
    return [
        {
            "name": "" if names is None else names[i],
            "dtype": "" if dtypes is None else dtypes[i] or "",
            "dims": list(shape),
            "lod_levels": 0 if lod_levels is None else lod_levels[i],
        }
        for i, shape in enumerate(shapes)
    ]


def to_specs(
    shapes: Sequence[Shape],
    dtypes: Sequence[npt.DTypeLike | None] | None,
    lod_levels: Sequence[int] | None,
    names: Sequence[str] | None,
) -> tuple[tuple[Any, tuple[int, ...], int, str], ...]:
    """Return slots as a queue takes them: tuples of dtype, shape, number of levels of detail, and name."""
    for what, given in (("dtypes", dtypes), ("lod_levels", lod_levels), ("names", names)):
        check_length(what, given, len(shapes))
    return tuple(
        (
            None if dtypes is None else dtypes[i],
            tuple(shape),
            0 if lod_levels is None else lod_levels[i],
            "" if names is None else names[i],
        )
        for i, shape in enumerate(shapes)
    )


def from_attributes(all_slots: Iterable[dict[str, Any]]) -> list[Slot]:
    """Return the slots that attributes of operators describe: the reverse of `to_attributes`."""
    return [
        Slot(
            name=s.get("name", ""),
            dtype=None if s.get("dtype", "") in ("", "any") else s["dtype"],
            shape=tuple(s.get("dims", ())),
            lod_levels=s.get("lod_levels", 0),
        )
        for s in all_slots
    ]


def kinds(all_slots: Iterable[Slot]) -> tuple[tuple[str | None, int], ...]:
    """Return the dtypes and the numbers of levels of slots, by which C converts numbers and text of Python."""
    return tuple((s.dtype, s.lod_levels) for s in all_slots)
