"""Types of the keyword arguments of functions such as `open_files`, imported on demand because that takes long."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy.typing as npt

from ._scope import Scope
from ._slots import Shape


class ReadOptions(TypedDict, total=False):
    """The keyword arguments that the function of each format, such as `open_csv`, passes on to `open_files`.

    `open_files` describes them in detail.

    Attributes
    ----------
    num_threads : int
        How many threads of the library read files.
    ordered : bool
        Whether the order of the tuples depends on the files and options only.
    interleave : int
        How many files are read in turn.
    shuffle_files : int or None
        A seed, by which the files are read in another order in each pass.
    shuffle_records : int or None
        A seed, by which all records of all files are read in another order in each pass.
    rank : int, "auto" or None
        The number of this process among `world`, if several processes share the records.
    world : int or None
        The number of processes.
    virtual_shards : int or None
        Into how many equal parts the records are divided, for any number of processes; by default 48.
    even : str or None
        What happens to records that cannot be divided evenly: ``"drop"``, ``"repeat"`` or ``"pad"``.
    index : bool
        Whether each file gets an index, so that its records can be read by their numbers.
    index_dir : str or path or None
        The directory of the indexes. By default, each index is beside its file.
    on_corrupt : str
        Whether damage is an error, ``"raise"``, or is skipped, ``"skip"``.
    verify_first : bool
        Whether each file is verified completely before its first record is delivered.
    compression : str
        The compression of whole files.
    io : str
        Whether files are mapped, ``"map"``, or read in blocks, ``"read"``.
    as_dict : bool
        Whether tuples are delivered as dicts from `Reader.names` to arrays.
    name : str or None
        The name of the reader's variable.
    scope : Scope or None
        The scope of the reader's variable.
    """

    num_threads: int
    ordered: bool
    interleave: int
    shuffle_files: int | None
    shuffle_records: int | None
    rank: int | str | None
    world: int | None
    virtual_shards: int | None
    even: str | None
    index: bool
    index_dir: str | os.PathLike[str] | None
    on_corrupt: str
    verify_first: bool
    compression: str
    io: str
    as_dict: bool
    name: str | None
    scope: Scope | None


class ReadOptionsWithSlots(ReadOptions, total=False):
    """`ReadOptions`, and the keyword arguments of `open_files` that describe the slots.

    Attributes
    ----------
    shapes : sequence of shapes or None
        The shape of each slot.
    dtypes : sequence or None
        The dtype of each slot.
    lod_levels : sequence of int or None
        The number of levels of ragged offsets (LoD, level of detail) of each slot.
    names : sequence of str or None
        The name of each slot.
    """

    shapes: Sequence[Shape] | None
    dtypes: Sequence[npt.DTypeLike | None] | None
    lod_levels: Sequence[int] | None
    names: Sequence[str] | None


class TFRecordFeature(TypedDict, total=False):
    """A feature of a ``tf.train.Example`` or ``SequenceExample``, for the argument ``features`` of `open_tfrecord`.

    Attributes
    ----------
    part : str
        ``"context"`` or ``"feature_lists"`` of a ``SequenceExample``.
    allow_missing : bool
        Whether a record may lack the feature list, if its steps are fixed.
    kind : str
        ``"fixed"``, ``"variable"`` or ``"ragged"``.
    dtype : dtype
        The dtype of the values, or ``"bytes"``.
    raw : bool
        Whether the feature is one value of bytes, which is the memory of an array.
    shape : int or sequence of int
        The shape of the values, or of one row.
    default : object
        The value of a fixed feature that an Example lacks.
    row_lengths : sequence of str
        The features with the lengths of the rows of a ragged feature, outermost first.
    row_splits : sequence of str
        The features with the offsets of the rows of a ragged feature, outermost first.
    """

    part: str
    allow_missing: bool
    kind: str
    dtype: npt.DTypeLike
    raw: bool
    shape: int | Sequence[int]
    default: Any
    row_lengths: Sequence[str]
    row_splits: Sequence[str]


class TarField(TypedDict, total=False):
    """A slot of a tar file, for the argument ``fields`` of `open_tar`.

    Attributes
    ----------
    name : str
        The extension of the slot's members, or several extensions to choose from.
    kind : str
        ``"bytes"``, ``"text"``, ``"npy"``, ``"int"``, ``"float"`` or ``"json"``.
    path : sequence of str
        For JSON, the names and indexes that lead to a number.
    dtype : dtype
        The dtype of a number.
    optional : bool
        Whether a record may lack the member.
    default : float or str
        The value for a record without the member.
    """

    name: str
    kind: str
    path: Sequence[str]
    dtype: npt.DTypeLike
    optional: bool
    default: float | str


class Column(TypedDict, total=False):
    """A slot of a table, for the argument ``columns`` of functions such as `open_csv`.

    Attributes
    ----------
    name : str
        The name of the slot.
    columns : str, int or sequence of them
        The columns that the slot takes, by name or number, or the path of a value in JSON Lines.
    dtype : dtype
        The dtype of the slot, ``"bytes"`` for text, ``"json"`` for the JSON text of a value in JSON Lines.
    dims : sequence of int
        The shape of the slot.
    default : float or str
        The value where a record has none. MDS has no such records, and CSV only in columns of numbers.
    """

    name: str
    columns: str | int | Sequence[str | int]
    dtype: npt.DTypeLike
    dims: Sequence[int]
    default: float | str


Columns = Sequence[str | int | Column] | Mapping[str, str | int | Sequence[str | int] | Column]

# A column, an operator, and the value or the values that it compares the column with.
Condition = tuple[str | int, str, bool | float | str | Sequence[bool | float | str]]
