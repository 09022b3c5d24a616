"""The slots of a tuple that is written in place, for queues of pyfeed and for producers of pyfeed_worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._lod_offsets import offsets_of
from .errors import DTypeError, Error, InvalidArgument, ShapeError, SlotCountError


def reserved_slots(
    specs: Sequence[tuple[str | None, tuple[int, ...], int]],
    rows: int | None,
    shapes: Sequence[Sequence[int]] | None,
    lod: Sequence[Any] | None,
) -> tuple[Any, ...]:
    """Return the dtype, the shape and the ragged offsets (LoD, level of detail) of every slot that C reserves.

    Parameters
    ----------
    specs : sequence of (dtype, dims, number of levels)
        What the queue was made with, for each slot.
    rows, shapes, lod
        The arguments of ``reserve``.

    Raises
    ------
    InvalidArgument
        A slot has a first dimension of -1, and neither `rows` nor `shapes` give its size.
    SlotCountError
        `shapes` or `lod` do not have an entry for each slot.
    ShapeError, DTypeError
        The offsets are not one-dimensional arrays of integers.
    """
    for name, given in (("shapes", shapes), ("lod", lod)):
        if given is not None and len(given) != len(specs):
            raise SlotCountError(f"{name}: expected {len(specs)}, one for each slot, found {len(given)}")
    out = []
    for i, (dtype, dims, _) in enumerate(specs):
        if shapes is not None:
            dims = tuple(shapes[i])
        elif dims[:1] == (-1,):
            if rows is None:
                expected = "rows: expected a number for its first dimension of -1, found None"
                raise _slot_error(i, InvalidArgument, expected)
            dims = (rows, *dims[1:])
        levels = () if lod is None or lod[i] is None else lod[i]
        try:
            offsets = tuple(offsets_of(level, j) for j, level in enumerate(levels))
        except (ShapeError, DTypeError) as e:
            raise _slot_error(i, type(e), f"lod: {e}") from None
        out.append((dtype, dims, offsets))
    return tuple(out)


def _slot_error(slot: int, kind: type[Error], text: str) -> Error:
    error = kind(f"slot {slot}: {text}")
    error.slot = slot
    return error
