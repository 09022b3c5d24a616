"""What the functions of `files` are told. Only type checkers look at it: to import it takes long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy.typing as npt

from .scope import Scope
from .slots import Shape


class Reading(TypedDict, total=False):
    """What every format's function takes besides its own, and hands on to `open_files`."""

    num_threads: int
    ordered: bool
    interleave: int
    shuffle_files: int | None
    on_corrupt: str
    verify_first: bool
    compression: str
    io: str
    name: str | None
    scope: Scope | None


class ReadingSlots(Reading, total=False):
    """The same, and what the instances look like."""

    shapes: Sequence[Shape] | None
    dtypes: Sequence[npt.DTypeLike | None] | None
    lod_levels: Sequence[int] | None
    names: Sequence[str] | None


class Feature(TypedDict, total=False):
    """What `open_tfrecord` is told about a feature of a ``tf.train.Example``."""

    kind: str
    dtype: npt.DTypeLike
    raw: bool
    shape: Sequence[int]
    default: Any
    row_lengths: Sequence[str]
    row_splits: Sequence[str]


class Field(TypedDict, total=False):
    """What `open_tar` is told about a slot."""

    name: str
    kind: str
    path: Sequence[str]
    dtype: npt.DTypeLike
    optional: bool
    default: float | str


class Columns(TypedDict, total=False):
    """What `open_csv` is told about a slot."""

    name: str
    columns: str | int | Sequence[str | int]
    dtype: npt.DTypeLike
    dims: Sequence[int]
