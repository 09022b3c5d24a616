"""The sizes of tuples in the cells of a ring in shared memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from . import _arguments
from .errors import InvalidArgument

_ALIGNMENT = 256
MOST_CELL_BYTES = 2**40


def cell_bytes_of(slots: Sequence[tuple[Any, tuple[int, ...], int, str]]) -> int:
    """Return the size of a tuple in a cell, or raise an error if it is not known."""
    for i, (dtype, dims, levels, _) in enumerate(slots):
        if dtype is None or levels or any(n < 0 for n in dims):
            raise InvalidArgument(
                f"cell_bytes: expected a number, since a tuple may be of any size: slot {i} is {dtype or 'any dtype'}, "
                f"dims {list(dims)}, {levels} levels of detail"
            )
    return _arguments.number("cell_bytes", size_of_tuple(slots), 1, most=MOST_CELL_BYTES)


def size_of_tuple(slots: Iterable[tuple[Any, tuple[int, ...], int, str]]) -> int:
    """Return the size of a tuple in a cell whose shapes are known, in bytes."""
    total = 0
    for dtype, dims, _, _ in slots:
        item = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
        size = item * int(np.prod(dims, dtype=object))
        total += -(-size // _ALIGNMENT) * _ALIGNMENT
    return max(total, 1)
