"""Functions that make readers of files and of random data."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from . import _arguments, _native, _ranks, _slots, _structure, unique_name
from ._arguments import (
    anything,
    each,
    flag,
    format_value,
    integer,
    items,
    mapping,
    optional,
    path,
    real,
    refuse,
    text,
    validate,
)
from ._attributes import decode
from ._file_names import decode_file_name, encode_file_name
from ._reader import Reader
from ._recipe import Recipe
from ._scope import Scope, check_scope, global_scope
from ._slots import SLOT_CHECKS, Shape
from ._structure import DTypes, Shapes
from .errors import ArgumentTypeError, DTypeError

if TYPE_CHECKING:
    from typing import Unpack

    import numpy.typing as npt

    from ._options import Columns, Condition, ReadOptions, ReadOptionsWithSlots, TarField, TFRecordFeature

Path = str | os.PathLike[str]


def check_paths(name: str, value: Any) -> list[str]:
    """Accept one file name, or several."""
    if isinstance(value, (str, os.PathLike)):
        return [path(name, value)]
    return [path(name, one) for one in items(name, value, "a str or path, or several")]


# The formats with options that may be mappings.
_TAGS_WITH_MAPPINGS = ("tfrecord", "csv", "tsv", "jsonl", "parquet", "arrow", "mds")


def encode_options(options: Mapping[str, Any], format: str | None, filenames: Sequence[str]) -> dict[str, Any]:
    """Return a format's options as the library takes them. Mappings of features and of columns become lists."""
    given = {key: value for key, value in options.items() if value is not None}
    if isinstance(given.get("columns"), Mapping):
        given["columns"] = check_columns("columns", given["columns"])
    features = given.get("features")
    if isinstance(features, Mapping):
        given["features"] = check_features("features", features)
    elif features is not None and _are_tfrecord(format, filenames):
        given["features"] = check_list_of_features("features", features)
    for key in ("dtype", "output_dtype"):  # of tokens
        if isinstance(given.get(key), (type, np.dtype)):
            given[key] = _slots.dtype(key, given[key])
    for key, value in given.items():  # the options of each format, if there are several
        if key in _TAGS_WITH_MAPPINGS and isinstance(value, Mapping):
            given[key] = encode_options(value, key, ())
    return given


def _are_tfrecord(format: str | None, filenames: Sequence[str]) -> bool:
    """Whether files are of this format, as far as their names tell. An added format may have other ``features``."""
    if format:
        return format == "tfrecord"
    return any(name.startswith("tfrecord:") or ".tfrec" in name for name in filenames)


def with_dtype_name(name: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """Accept the description of a slot, and replace its dtype by its name, which may be "bytes"."""
    dtype = mapping(name, about).get("dtype")
    if dtype is None:
        return dict(about)
    return {**about, "dtype": "bytes" if dtype in (bytes, str, "bytes") else _slots.dtype(f"{name}: dtype", dtype)}


def _suggest_bytes(dtype: Any) -> str:
    """Return a question about a name that other libraries have for the dtype of text; "" for other dtypes."""
    is_text = isinstance(dtype, str) and dtype.lower() in ("str", "string", "text")
    return ': did you mean "bytes"?' if is_text else ""


def check_column(name: str, about: Any) -> dict[str, Any]:
    """Accept the description of columns of text or numbers, and replace their dtype by its name."""
    try:
        found = dict(about) if about.get("dtype") == "json" else with_dtype_name(name, about)
    except DTypeError as error:
        raise type(error)(f"{error}{_suggest_bytes(about['dtype'])}") from None
    if found.get("default") is not None:
        found["default"] = check_missing_value(f"{name}: default", found["default"])
    return found


def _check_selected_column(name: str, value: Any) -> dict[str, Any]:
    """Accept a column as its name or number, several columns, or a description."""
    if isinstance(value, Mapping):
        return check_column(name, value)
    if isinstance(value, str):
        return {"columns": text(name, value)}
    if not isinstance(value, Iterable):
        return {"columns": _column_number(name, value)}
    several = items(name, value, "a name, a number, a sequence of them, or a dict")
    return {"columns": [text(name, one) if isinstance(one, str) else _column_number(name, one) for one in several]}


def _column_number(name: str, value: Any) -> int:
    return _arguments.number(name, value, -(2**63))


def check_columns(name: str, value: Any) -> list[dict[str, Any]]:
    """Accept the columns that become slots: a sequence of columns, or a mapping from the names of slots to columns."""
    if isinstance(value, Mapping):
        return [
            {"name": slot, "columns": slot, **_check_selected_column(f"{name}[{format_value(slot)}]", column)}
            for slot, column in mapping(name, value).items()
        ]
    all_columns = items(name, value, "a sequence of names, numbers or dicts, or a mapping from names of slots to them")
    return [_check_selected_column(f"{name}[{i}]", column) for i, column in enumerate(all_columns)]


def check_conditions(name: str, value: Any) -> list[list[Any]]:
    """Accept conditions of columns: sequences of a column, an operator and a value."""
    return [
        _check_condition(f"{name}[{i}]", one)
        for i, one in enumerate(items(name, value, "a sequence of conditions, such as ('x', '>', 0)"))
    ]


def _check_condition(name: str, value: Any) -> list[Any]:
    parts = items(name, value, "a column, an operator and a value")
    if len(parts) != 3:
        refuse(name, "a column, an operator and a value", value)
    column, operator, bound = parts
    about = f"{name}: {format_value(column)}"
    found = text(name, column) if isinstance(column, str) else _column_number(name, column)
    if text(about, operator) == "in":
        return [found, operator, [_check_bound(about, one) for one in items(about, bound, "a sequence of values")]]
    return [found, operator, _check_bound(about, bound)]


def _check_bound(name: str, value: Any) -> bool | int | float | str:
    if isinstance(value, str):
        return text(name, value)
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)) and math.isfinite(value):
        return float(value)
    refuse(name, "a finite number, a bool or a str", value)


FEATURES = 'a dict from names to dtypes, such as {"label": "int64"}'
# The dtypes that a feature has only if it is the memory of an array.
RAW_DTYPES = ("float16", "bfloat16", "complex64", "complex128")


def _refuse_features(name: str, expected: str, value: Any) -> NoReturn:
    found = format_value(value)
    raise ArgumentTypeError(
        f"{name}: expected {expected}, found {found}: python -m pyfeed inspect FILE prints it"
    ) from None


def check_features(name: str, value: Any) -> list[dict[str, Any]]:
    """Accept the features of an Example: a mapping from names to dtypes or to descriptions."""
    if not isinstance(value, Mapping):
        _refuse_features(name, FEATURES, value)
    return [
        {"name": feature, **check_feature(f"{name}: feature {format_value(feature)}", about)}
        for feature, about in mapping(name, value).items()
    ]


def check_list_of_features(name: str, value: Any) -> list[dict[str, Any]]:
    """Accept the features of an Example in the form of JSON: a sequence of descriptions with names."""
    expected = f'{FEATURES}, or a list of dicts with "name"'
    try:
        listed = items(name, value, expected)
    except ArgumentTypeError:
        _refuse_features(name, expected, value)
    if not all(isinstance(about, Mapping) and isinstance(about.get("name"), str) for about in listed):
        _refuse_features(name, expected, value)
    return [check_feature(f"{name}: feature {format_value(about['name'])}", about) for about in listed]


def check_feature(name: str, about: Any) -> dict[str, Any]:
    """Accept the dtype or the description of a feature, and return the description."""
    described = isinstance(about, Mapping)
    dtype = about.get("dtype") if described else about
    advice = _suggest_bytes(dtype)
    try:
        found = with_dtype_name(name, about if described else {"dtype": about})
        if found.get("raw") or found.get("dtype") not in RAW_DTYPES:
            return found
        advice = ': use "raw": true for the memory of an array'
    except DTypeError:
        if described and about.get("raw"):
            raise  # the numbers in raw bytes may have any dtype
        if not described and not isinstance(about, (str, type, np.dtype)):
            refuse(name, "a dtype, or a dict with dtype and shape", about)
    raise DTypeError(
        f'{name}: dtype: expected "bytes", bool, an integer dtype, float32 or float64, '
        f"found {format_value(dtype)}{advice}"
    ) from None


def check_tar_field(name: str, value: Any) -> str | dict[str, Any]:
    """Accept a slot of a tar file: an extension, or a mapping with more properties."""
    if isinstance(value, str):
        return text(name, value)
    if not isinstance(value, Mapping):
        refuse(name, "a str or a mapping", value)
    about = with_dtype_name(name, value)
    default = about.get("default")
    if isinstance(default, (bytes, bytearray)):
        refuse(f"{name}: default", "a number or a str", default)
    if isinstance(default, (float, np.floating)) and not math.isfinite(default):
        about["default"] = str(float(default))  # JSON has no such numbers
    return about


def check_column_dtypes(name: str, value: Any) -> dict[str, str]:
    """Accept a mapping from the names or numbers of columns to dtypes."""
    if not isinstance(value, Mapping):
        refuse(name, "a mapping from names or numbers of columns to dtypes", value)
    out = {}
    for column, dtype in value.items():
        key = text(name, column) if isinstance(column, str) else str(_column_number(name, column))
        out[key] = check_column(f"{name}: {key}", {"dtype": dtype})["dtype"]
    return out


def check_missing_value(name: str, value: Any) -> str:
    """Accept the value of an empty field: a number, NaN, or text."""
    if isinstance(value, str):
        return text(name, value)
    if isinstance(value, (float, np.floating)) and math.isnan(value):
        return "nan"
    real(name, value)
    return str(value)


# The keyword arguments of `open_files` for any format. The function of each format passes them on.
READ_CHECKS = {
    "num_threads": integer(0),
    "ordered": flag,
    "interleave": integer(1, "file"),
    "shuffle_files": optional(integer(0)),
    "shuffle_records": optional(integer(0)),
    "rank": _ranks.check_optional_rank,
    "world": optional(integer(1)),
    "virtual_shards": optional(integer(1)),
    "even": optional(text),
    "index": flag,
    "index_dir": optional(path),
    "on_corrupt": text,
    "compression": text,
    "io": text,
    "verify_first": flag,
}

# 1, 2, 3, 4, 6, 8, 12, 16, 24 or 48 processes can share them.
_DEFAULT_VIRTUAL_SHARDS = 48

# Their defaults. The signatures of `open_files` and `layers.open_files` repeat them.
READ_DEFAULTS: dict[str, Any] = {
    "num_threads": 2,
    "ordered": True,
    "interleave": 8,
    "shuffle_files": None,
    "shuffle_records": None,
    "rank": None,
    "world": None,
    "virtual_shards": None,
    "even": None,
    "index": False,
    "index_dir": None,
    "on_corrupt": "raise",
    "compression": "auto",
    "io": "auto",
    "verify_first": False,
}
READER_CHECKS = {**READ_CHECKS, "as_dict": flag, "name": optional(text), "scope": optional(check_scope)}


@validate(filenames=check_paths, format=optional(text), **SLOT_CHECKS, **READER_CHECKS, options=anything)
def open_files(
    filenames: Path | Iterable[Path],
    *,
    format: str | None = None,
    shapes: Sequence[Shape] | None = None,
    dtypes: Sequence[npt.DTypeLike | None] | None = None,
    lod_levels: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    num_threads: int = 2,
    ordered: bool = True,
    interleave: int = 8,
    shuffle_files: int | None = None,
    shuffle_records: int | None = None,
    rank: int | str | None = None,
    world: int | None = None,
    virtual_shards: int | None = None,
    even: str | None = None,
    index: bool = False,
    index_dir: str | os.PathLike[str] | None = None,
    on_corrupt: str = "raise",
    verify_first: bool = False,
    compression: str = "auto",
    io: str = "auto",
    as_dict: bool = False,
    name: str | None = None,
    scope: Scope | None = None,
    **options: Any,
) -> Reader:
    """Make a reader of files of any format, which threads of the library read.

    A record of a file, such as a row of an array, a line of a table or a message, is delivered as one tuple.
    `docs/formats.md` describes the formats, their options, and how damage is found.

    Parameters
    ----------
    filenames : str, path or iterable of them
        Paths, directories or patterns. A directory stands for the files directly in it. Patterns have ``*``,
        ``?``, ``[a-z]``, ``**`` (directories at any depth), ``{a,b}`` and ``{000..146}``. A path that exists is
        always that file, whatever characters it contains. The suffix determines the format; the number of a shard
        (``-00000-of-00005``) and a second suffix for the compression may follow. The name of a format and a colon
        before the path take precedence: ``"recordio:part-0001"``.
    format : str, optional
        The format of all files, whatever their names. `pyfeed.formats.list_formats` lists the formats.
    shapes, dtypes, lod_levels, names : sequence, optional
        The slots of a record, as for `py_array_reader`: an entry for each slot. By default, the first file or its
        first record determines them; some formats, such as raw, require `shapes`.
    num_threads : int
        How many threads of the library read files, at most 1024. 0: no thread is started, and the thread that
        calls the reader reads. This is possible for a single file only.
    ordered : bool
        True: the order of the tuples depends on the files and on `interleave` only. The reader takes one record
        of each of `interleave` files in turn. False: tuples are delivered in the order in which threads read
        them.
    interleave : int
        How many files are read in turn if `ordered` is true, at most 4096. 1: one file after the other.
    shuffle_files : int, optional
        A seed. The files are read in another order in each pass; the order depends only on the seed and the
        number of the pass. By default, they are read as they are listed.
    shuffle_records : int, optional
        A seed. All records of all files are read in another order in each pass; the order depends only on the
        seed, the number of the pass and the number of records. A seed implies ``index=True``. `interleave` and
        `ordered` have no effect then.
    rank : int or "auto", optional
        The number of this process, from 0 to ``world - 1``, if several processes share the data. Each reads only
        its own records, and all have the same number of tuples. With "auto", `rank` and `world` are found as by
        `Reader.split_batches`. A rank implies ``index=True``. `interleave` and `ordered` have no effect then. By
        default, this process reads all records.
    world : int, optional
        The number of processes, which divides `virtual_shards`. Not given with ``rank="auto"``.
    virtual_shards : int, optional
        The number of equal parts that the records are divided into: the same in all processes of a job, also when
        it is resumed. Process `rank` reads the parts ``rank``, ``rank + world`` and so on, one record of each in
        turn. By default 48, which 1, 2, 3, 4, 6, 8, 12, 16, 24 and 48 processes can share.
    even : {"drop", "repeat", "pad"}, optional
        What happens if `virtual_shards` does not divide the number of records, so that some parts have one record
        more than others. "drop", the default, leaves out one record of each longer part. "repeat" delivers the
        last record of each shorter part twice. "pad" adds a tuple of zeros to each shorter part.
    index : bool
        Whether each file gets an index, which says where its records are. Then ``len(reader)`` is the number of
        records, and ``reader[i]`` reads any of them. An index is a file ``.NAME.pfindex`` beside the file. It is
        made when it is needed, unless the command ``python -m pyfeed index`` has made it. Arrays (npy, npz, idx,
        raw), Parquet, MDS and tokens need no such file. Files that are compressed as a whole cannot have one.
    index_dir : str or path, optional
        The directory of the indexes, which must exist. A directory implies ``index=True``.
    on_corrupt : {"raise", "skip"}
        What happens if a file is damaged. "raise": a `CorruptRecordError`, after the records before the place
        where the damage is found. "skip": the reader continues after the damage, and `Reader.stats` lists what
        was skipped.
    verify_first : bool
        Whether each file is read twice in each pass. The first time, the whole file is verified, including the
        checksums of its compression, before its first record is delivered. Only regular files can be verified;
        named pipes are refused.
    compression : {"auto", "none", "gzip", "zlib", "zstd", "snappy", "snappy-skippable"}
        The compression of whole files. "auto": the first bytes of a file tell. If the suffix names a compression
        and the file is not compressed, the file is damaged. "snappy-skippable" skips snappy chunks of types that
        no writer emits; otherwise such chunks are damage.
    io : {"auto", "map", "read"}
        "map": files are mapped into memory, and tuples are views of the page cache. "read": files are read in
        large blocks. "auto": all files are mapped except small ones (96 KiB at most), compressed ones, and those
        on a network file system.
    as_dict : bool
        Whether tuples are delivered as dicts from `Reader.names` to arrays.
    name : str, optional
        The name of the reader's variable in the scope. By default, a unique name.
    scope : Scope, optional
        The scope of the variable, by default the global one. The variable is erased with the reader.
    **options
        The options of the format: see the function of the format, such as `open_csv`. TFRecord files need
        ``features``, unless you want their records as bytes: see `open_tfrecord`. If the files have several
        formats, a mapping of options for each format: ``csv={"missing": 0}``.

    Returns
    -------
    Reader

    Raises
    ------
    FileError
        A file cannot be opened or read; `MissingFileError`, which is also a `FileNotFoundError`, if a path does
        not exist.
    CorruptRecordError
        The first file does not conform to its format. The other files are opened later: reads raise their errors.
    InvalidArgument
        A pattern that no file matches, a name without a format, or an option that the format does not have.

    Notes
    -----
    Unless `shapes` are given, the call opens the first file. It may block until a named pipe has a writer. Ctrl-C
    ends the wait. The threads start with the first read.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pyfeed import open_files
    >>> folder = tempfile.TemporaryDirectory()
    >>> for i in range(2):
    ...     np.save(f"{folder.name}/{i}.npy", np.arange(3.0) + 10 * i)
    >>> reader = open_files(f"{folder.name}/*.npy").batch(4)
    >>> [x.tolist() for x, in reader]
    [[0.0, 10.0, 1.0, 11.0], [2.0, 12.0]]
    >>> folder.cleanup()
    """
    return _open_format(
        filenames,
        format,
        options,
        shapes,
        dtypes,
        lod_levels,
        names,
        num_threads=num_threads,
        ordered=ordered,
        interleave=interleave,
        shuffle_files=shuffle_files,
        shuffle_records=shuffle_records,
        rank=rank,
        world=world,
        virtual_shards=virtual_shards,
        even=even,
        index=index,
        index_dir=index_dir,
        on_corrupt=on_corrupt,
        verify_first=verify_first,
        compression=compression,
        io=io,
        as_dict=as_dict,
        name=name,
        scope=scope,
    )


def _open_format(
    filenames: Any,
    format: str | None,
    options: Mapping[str, Any],
    *described: Any,
    as_dict: bool = False,
    name: str | None = None,
    scope: Scope | None = None,
    **reading: Any,
) -> Reader:
    operator, attributes = open_operator(filenames, format, options, *described, **reading)
    return create_reader(operator, "open_files", name, scope, attributes, as_dict=as_dict)


def open_operator(
    filenames: Sequence[str],
    format: str | None,
    options: Mapping[str, Any],
    shapes: Sequence[Shape] | None = None,
    dtypes: Sequence[npt.DTypeLike | None] | None = None,
    lod_levels: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    **given: Any,
) -> tuple[str, dict[str, Any]]:
    """Return the operator that opens files, and its attributes. The arguments were checked already."""
    reading = {**READ_DEFAULTS, **given}
    attributes: dict[str, Any] = {
        "filenames": [encode_file_name(name) for name in filenames],
        "format": format or "",
        "on_corrupt": reading["on_corrupt"],
        "verify_first": reading["verify_first"],
        "storage": {"compression": reading["compression"], "io": reading["io"]},
        "options": encode_options(options, format, filenames),
    }
    wanted = _slots.to_attributes(shapes, dtypes, lod_levels, names)
    if wanted is not None:
        attributes["slots"] = wanted
    for option in ("shuffle_files", "shuffle_records"):
        if reading[option] is not None:
            attributes[option] = reading[option]
    attributes |= _ranks.division(**{name: reading[name] for name in ("rank", "world", "virtual_shards", "even")})
    if attributes.get("virtual_shards", 0) is None:
        attributes["virtual_shards"] = _DEFAULT_VIRTUAL_SHARDS
    if reading["index"]:
        attributes["index"] = True
    if reading["index_dir"] is not None:
        attributes["index_dir"] = encode_file_name(reading["index_dir"])
    if reading["num_threads"] == 0:
        return "create_file_reader", attributes
    attributes |= {name: reading[name] for name in ("num_threads", "ordered", "interleave")}
    return "open_files", attributes


def create_reader(
    operator: str, key: str, name: str | None, scope: Scope | None, attributes: Mapping[str, Any], *, as_dict: bool
) -> Reader:
    """Make a reader in a scope by an operator without inputs. `key` is the beginning of its name if it has none."""
    scope = global_scope() if scope is None else scope
    out = unique_name._generate_process_wide(key) if name is None else name
    scope._create(operator, out, **attributes)
    reader = Reader._wrap_owned(scope, out, None)
    if as_dict:
        reader._set_structure(_structure.by_names(reader.names))
    reader._recipe = Recipe(operator, attributes, structure=reader._structure)
    return reader


@validate(filenames=anything, format=optional(text))
def list_files(filenames: Path | Iterable[Path], format: str | None = None) -> list[str]:
    """List the files that paths, directories and patterns stand for, in the order in which `open_files` reads them.

    Parameters
    ----------
    filenames, format
        As for `open_files`.

    Returns
    -------
    list of str
        The name of the format, a colon and the path of each file, which `open_files` accepts. A part of the list
        is the share of one of several processes: ``list_files("data/*.npy")[rank::world]``.

    Raises
    ------
    MissingFileError
        A path does not exist.
    FileError
        A directory cannot be read.
    InvalidArgument
        A pattern that no file matches, or a name without a format.

    Examples
    --------
    >>> import tempfile
    >>> from pyfeed import list_files
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for i in range(3):
    ...         open(f"{folder}/{i}.npy", "wb").close()
    ...     files = list_files(folder)
    >>> [file[:4] + file[-5:] for file in files]
    ['npy:0.npy', 'npy:1.npy', 'npy:2.npy']
    """
    names = tuple(os.fsencode(name) for name in check_paths("filenames", filenames))
    return [decode_file_name(text) for text in decode(_native._list_files(names, format))]


@validate(filenames=check_paths, records=text, **SLOT_CHECKS, **READER_CHECKS)
def open_recordio(
    filenames: Path | Iterable[Path], *, records: str = "auto", **reading: Unpack[ReadOptionsWithSlots]
) -> Reader:
    """Make a reader of RecordIO files of PaddlePaddle Fluid, in the layout of its C++ code or of the Go library.

    Parameters
    ----------
    filenames : str, path or iterable of them
        As for `open_files`, with any suffix.
    records : {"auto", "tensors", "bytes"}
        What a record contains. "tensors": the tensors of an instance, a slot for each. "bytes": bytes, in one
        slot of uint8; `LoDTensor.bytes_list` returns them. "auto": tensors if one of the first records holds
        tensors, otherwise bytes.
    **reading
        The other keyword arguments of `open_files`.

    Returns
    -------
    Reader

    Raises
    ------
    FileError, CorruptRecordError, InvalidArgument
        As for `open_files`.

    Examples
    --------
    >>> import tempfile
    >>> from pyfeed import open_recordio, open_writer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_writer(f"{folder}/a.recordio", layout="go") as writer:
    ...         for record in b"one", b"two":
    ...             writer.write((record,))
    ...     [x.bytes_list() for x, in open_recordio(f"{folder}/a.recordio")]
    [[b'one'], [b'two']]
    """
    return _open_format(filenames, "recordio", {"records": records}, **reading)


@validate(filenames=check_paths, instances=text, **SLOT_CHECKS, **READER_CHECKS)
def open_npy(
    filenames: Path | Iterable[Path], *, instances: str = "rows", **reading: Unpack[ReadOptionsWithSlots]
) -> Reader:
    """Make a reader of npy files, which hold one array, as `numpy.save` writes them. The tuples have one slot.

    Parameters
    ----------
    filenames : str, path or iterable of them
        As for `open_files`, with any suffix.
    instances : {"rows", "file"}
        "rows": each row along the first dimension is a tuple. "file": the whole array is one tuple.
    **reading
        The other keyword arguments of `open_files`.

    Returns
    -------
    Reader

    Raises
    ------
    FileError, CorruptRecordError, InvalidArgument
        As for `open_files`.
    DTypeError
        The array has a dtype that is not supported, such as objects or strings.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pyfeed import open_npy
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.arange(6).reshape(3, 2))
    ...     [x.tolist() for x, in open_npy(f"{folder}/x.npy")]
    [[0, 1], [2, 3], [4, 5]]
    """
    return _open_format(filenames, "npy", {"instances": instances}, **reading)


@validate(
    filenames=check_paths,
    shapes=_slots.shapes,
    dtypes=_slots.dtypes,
    names=optional(_arguments.names),
    byte_order=text,
    header_bytes=integer(0),
    **READER_CHECKS,
)
def open_raw(
    filenames: Path | Iterable[Path],
    shapes: Sequence[Shape],
    dtypes: Sequence[npt.DTypeLike | None],
    *,
    names: Sequence[str] | None = None,
    byte_order: str = "little",
    header_bytes: int = 0,
    **reading: Unpack[ReadOptions],
) -> Reader:
    """Make a reader of raw binary files: records of a fixed size, in which arrays follow each other without gaps.

    Parameters
    ----------
    filenames : str, path or iterable of them
        As for `open_files`, with any suffix.
    shapes, dtypes : sequence
        The shape and the dtype of each array of a record, which is a slot. The shapes have no -1.
    names : sequence of str, optional
        The names of the slots. By default, they have none.
    byte_order : {"little", "big"}
        The byte order of the numbers in the files.
    header_bytes : int
        How many bytes at the beginning of each file are skipped.
    **reading
        The other keyword arguments of `open_files`.

    Returns
    -------
    Reader

    Raises
    ------
    FileError, CorruptRecordError, InvalidArgument
        As for `open_files`. An incomplete record at the end of a file is damage; reads deliver all records before
        it.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pyfeed import open_raw
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.arange(6, dtype="float32").tofile(f"{folder}/x.bin")
    ...     [(x.item(), y.tolist()) for x, y in open_raw(f"{folder}/x.bin", [(), (2,)], ["float32"] * 2)]
    [(0.0, [1.0, 2.0]), (3.0, [4.0, 5.0])]
    """
    options = {"byte_order": byte_order, "header_bytes": header_bytes}
    return _open_format(filenames, "raw", options, shapes, dtypes, names=names, **reading)


@validate(filenames=check_paths, arrays=optional(_arguments.names), instances=text, **SLOT_CHECKS, **READER_CHECKS)
def open_npz(
    filenames: Path | Iterable[Path],
    *,
    arrays: Sequence[str] | None = None,
    instances: str = "rows",
    **reading: Unpack[ReadOptionsWithSlots],
) -> Reader:
    """Make a reader of npz files, which hold several arrays, as `numpy.savez` writes them. Each array is a slot.

    Parameters
    ----------
    filenames : str, path or iterable of them
        As for `open_files`, with any suffix.
    arrays : sequence of str, optional
        The names of the arrays that are read, in this order. By default all arrays, in the order of the file.
    instances : {"rows", "file"}
        "rows": a row of each array along its first dimension is a tuple, and all arrays must have the same number
        of rows. "file": the whole arrays are one tuple.
    **reading
        The other keyword arguments of `open_files`.

    Returns
    -------
    Reader

    Raises
    ------
    FileError, CorruptRecordError, InvalidArgument
        As for `open_files`.
    DTypeError
        An array has a dtype that is not supported, such as objects or strings.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pyfeed import open_npz
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/a.npz", x=np.arange(4).reshape(2, 2), y=np.array([7, 8]))
    ...     [(y.item(), x.tolist()) for y, x in open_npz(f"{folder}/a.npz", arrays=["y", "x"])]
    [(7, [0, 1]), (8, [2, 3])]
    """
    return _open_format(filenames, "npz", {"arrays": arrays, "instances": instances}, **reading)


@validate(filenames=check_paths, features=optional(check_features), **SLOT_CHECKS, **READER_CHECKS)
def open_tfrecord(
    filenames: Path | Iterable[Path],
    *,
    features: Mapping[str, npt.DTypeLike | TFRecordFeature] | None = None,
    **reading: Unpack[ReadOptionsWithSlots],
) -> Reader:
    """Make a reader of TFRecord files: bytes, ``tf.train.Example`` or ``SequenceExample``. Every CRC is checked.

    Parameters
    ----------
    filenames : str, path or iterable of them
        As for `open_files`, with any suffix.
    features : mapping, optional
        The features of a record that become the slots, in this order. The keys are the names of the features. A
        value is the dtype of a feature with a single value, or a dict (`TFRecordFeature`) with these properties:

        - ``dtype``: ``"bytes"``; float32 or float64 for a list of floats; bool or an integer dtype for a list of
          int64.
        - ``kind``: ``"fixed"``, the default, is as many values as ``shape`` has. ``"variable"`` is a sequence of
          any number of values. ``"ragged"`` is values that other features divide into rows.
        - ``shape``: the shape of the values, ``()`` by default; ``784`` is ``(784,)``. For a variable or ragged
          feature, the shape of one row.
        - ``default``: the value of a fixed feature that an Example lacks.
        - ``row_lengths`` or ``row_splits``: the names of the features that divide a ragged feature, outermost
          first.
        - ``raw``: true if the feature is one value of bytes, which is the memory of an array of that dtype and
          shape, such as an image that is not compressed.
        - ``part``: ``"context"`` or ``"feature_lists"``. If any feature has a part, the records are
          ``tf.train.SequenceExample`` messages, and features without a part are in the context. In
          ``"feature_lists"``, a feature is a list of steps, ``kind`` and ``shape`` describe each step, and the
          slot has one more level of LoD, for the steps.
        - ``allow_missing``: true if a record may lack the list of fixed steps, which is empty then. A list of
          variable steps may always be missing.

        By default, there is one slot of uint8, the record as bytes; `LoDTensor.bytes_list` returns them.
    **reading
        The other keyword arguments of `open_files`.

    Returns
    -------
    Reader

    Raises
    ------
    FileError, CorruptRecordError, InvalidArgument
        As for `open_files`.
    DTypeError
        `features` has a dtype that no feature can have.

    Notes
    -----
    A fixed feature that an Example lacks, and for which there is no default, is a `ShapeError` of the read. A
    feature of another type is a `DTypeError`. Neither is skipped by ``on_corrupt="skip"``, because the record is
    intact.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pyfeed import open_tfrecord, open_writer
    >>> features = {
    ...     "image": {"dtype": "uint8", "shape": [28, 28], "raw": True},  # stored as bytes
    ...     "weights": {"dtype": "float32", "shape": [3]},
    ...     "label": "int64",
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_writer(f"{folder}/a.tfrecord", features=features) as writer:
    ...         for i in range(4):
    ...             writer.write((np.zeros((28, 28), "uint8"), np.ones(3, "float32"), np.int64(i)))
    ...     image, weights, label = open_tfrecord(f"{folder}/a.tfrecord", features=features).batch(4).read()
    >>> image.shape, weights.shape, label.shape
    ((4, 28, 28), (4, 3), (4,))
    """
    return _open_format(filenames, "tfrecord", {"features": features}, **reading)


@validate(
    filenames=check_paths,
    fields=optional(each(check_tar_field, "a sequence of str or dict, one for each slot")),
    end=text,
    **SLOT_CHECKS,
    **READER_CHECKS,
)
def open_tar(
    filenames: Path | Iterable[Path],
    *,
    fields: Sequence[str | TarField] | None = None,
    end: str = "blocks",
    **reading: Unpack[ReadOptionsWithSlots],
) -> Reader:
    """Make a reader of tar files in the layout of WebDataset: consecutive members with the same stem are a record.

    The stem is the path of a member up to the first dot of its last component. The part after this dot is the
    extension.

    Parameters
    ----------
    filenames : str, path or iterable of them
        As for `open_files`, with any suffix.
    fields : sequence, optional
        The slots, in order. Each is the extension of its members, or several extensions to choose from, such as
        ``"jpg;png"``. ``"__key__"`` is the stem. A field may also be a dict (`TarField`), which has such a string
        as its ``name``, and these properties:

        - ``kind``: ``"bytes"``, ``"text"``, ``"npy"``, ``"int"``, ``"float"`` or ``"json"``. The default depends
          on the extension, as in WebDataset.
        - ``path``: for JSON, the names and indexes that lead to a number.
        - ``dtype``: the dtype of a number.
        - ``optional``: true if a record may lack the member. It then gets the ``default``, or an empty sequence.
        - ``default``: the value for a record without the member, a number or text. It makes the field optional.

        By default, the members of the first record are the slots.
    end : {"blocks", "file"}
        "blocks": an archive must end with blocks of zeros; without them it is damaged. "file": the archive ends
        with the file.
    **reading
        The other keyword arguments of `open_files`.

    Returns
    -------
    Reader

    Raises
    ------
    FileError, CorruptRecordError, InvalidArgument
        As for `open_files`.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pyfeed import open_tar, open_writer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_writer(f"{folder}/a.tar", names=["txt", "cls"]) as writer:
    ...         writer.write(("a cat", np.int64(3)))
    ...     reader = open_tar(f"{folder}/a.tar", fields=["cls", "txt"])
    ...     [(label.item(), text.bytes_list()) for label, text in reader]
    [(3, [b'a cat'])]
    """
    return _open_format(filenames, "tar", {"fields": fields, "end": end}, **reading)


@validate(
    filenames=check_paths,
    delimiter=text,
    quote=optional(text),
    comment=optional(text),
    header=optional(flag),
    columns=optional(check_columns),
    column_dtypes=optional(check_column_dtypes),
    missing=optional(check_missing_value),
    **SLOT_CHECKS,
    **READER_CHECKS,
)
def open_csv(
    filenames: Path | Iterable[Path],
    *,
    delimiter: str = ",",
    quote: str | None = '"',
    comment: str | None = None,
    header: bool | None = None,
    columns: Columns | None = None,
    column_dtypes: Mapping[str | int, npt.DTypeLike] | None = None,
    missing: float | str | None = None,
    **reading: Unpack[ReadOptionsWithSlots],
) -> Reader:
    """Make a reader of CSV files (RFC 4180), or of TSV files: each line is a record.

    Parameters
    ----------
    filenames : str, path or iterable of them
        As for `open_files`, with any suffix.
    delimiter : str
        The character between fields; a tab for TSV files.
    quote : str or None
        The character around fields that contain delimiters. None: there are no quotes.
    comment : str or None
        Lines that begin with this character are skipped. None: no lines are skipped.
    header : bool, optional
        Whether the first line has the names of the columns. By default it must have them, and a first line that
        is all numbers is refused, because it is more likely a record.
    columns : sequence or mapping, optional
        The slots, in their order. An item is the name or number of a column, or a dict (`Column`) with these
        properties:

        - ``columns``: the columns that the slot takes. A name, a number from 0 (-1 is the last column), a range
          such as ``"x0:x9"``, or a list of them.
        - ``dtype``: the dtype of the slot, ``"bytes"`` for text. It is inferred by default.
        - ``dims``: the shape of the slot. By default ``()`` for a single column, and one dimension for a list or
          range.
        - ``name``: the name of the slot, by default that of its column.
        - ``default``: the value of an empty field of numbers, in place of `missing`.

        A mapping has the name of each slot, and what it takes: a name, a number, a list of them, or a dict. By
        default, each column is a slot. With ``shapes``, the slots take the columns that have their ``names``,
        or the columns in order.
    column_dtypes : mapping, optional
        The dtypes of columns, by name or number. The dtypes of all other columns are inferred from the first MiB
        of the first file: int64, uint64, float64, bool or text.
    missing : float or str, optional
        The value of an empty field in a column of numbers, such as 0 or ``"nan"``. By default, such a field is an
        error, also with ``on_corrupt="skip"``.
    **reading
        The other keyword arguments of `open_files`.

    Returns
    -------
    Reader

    Raises
    ------
    FileError, CorruptRecordError, InvalidArgument
        As for `open_files`. Text in a column of numbers is damage. An empty field without a default is an
        `InvalidArgument`.
    DTypeError
        No integer dtype can hold all integers of a column. After the first MiB, reads raise this error for a
        number that needs another dtype than the inferred one.

    Examples
    --------
    >>> import tempfile
    >>> from pyfeed import open_csv
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(f"{folder}/a.csv", "w") as file:
    ...         _ = file.write("width,height,kind\\n1.5,2,cat\\n3,4,dog\\n")
    ...     columns = {"size": {"columns": "width:height", "dtype": "float32"}, "kind": "kind"}
    ...     [(x.tolist(), kind.bytes_list()) for x, kind in open_csv(f"{folder}/a.csv", columns=columns)]
    [([1.5, 2.0], [b'cat']), ([3.0, 4.0], [b'dog'])]
    """
    options = {
        "delimiter": delimiter,
        "quote": quote or "",
        "comment": comment or "",
        "header": header,
        "columns": columns,
        "dtypes": column_dtypes,
        "missing": missing,
    }
    return _open_format(filenames, "csv", options, **reading)


@validate(
    filenames=check_paths,
    columns=optional(check_columns),
    default=optional(check_missing_value),
    **SLOT_CHECKS,
    **READER_CHECKS,
)
def open_arrow(
    filenames: Path | Iterable[Path],
    *,
    columns: Columns | None = None,
    default: float | str | None = None,
    **reading: Unpack[ReadOptionsWithSlots],
) -> Reader:
    """Make a reader of Arrow files and streams (IPC, Feather version 2): each row is a record.

    A folder that ``save_to_disk`` of Hugging Face's datasets has written is read in the order of its
    ``state.json``.

    Parameters
    ----------
    filenames : str, path or iterable of them
        As for `open_files`, with any suffix.
    columns : sequence or mapping, optional
        The slots, in their order. Other columns are not read. An item is the name or number of a column, or a
        dict (`Column`) with these properties:

        - ``columns``: the columns that the slot takes. A name, a number from 0 (-1 is the last column), a range
          such as ``"x0:x9"``, or a list of them. Several columns must be numbers of one dtype. The fields of a
          struct are columns with names such as ``"point.x"``.
        - ``dtype``: the dtype that the column must have, ``"bytes"`` for text. Numbers are not converted.
        - ``dims``: the shape of the slot. Lists must then have as many elements, and become an array.
        - ``name``: the name of the slot, by default that of its column.
        - ``default``: the value of nulls, in place of `default`.

        A mapping has the name of each slot, and what it takes: a name, a number, a list of them, or a dict. By
        default, each column is a slot. With ``shapes``, the slots take the columns that have their ``names``,
        or the columns in order.
    default : float or str, optional
        The value of nulls, such as 0 or ``"nan"``; the text of nulls in columns of text. A null list is empty.
        By default, a null is an error, also with ``on_corrupt="skip"``.
    **reading
        The other keyword arguments of `open_files`.

    Returns
    -------
    Reader

    Raises
    ------
    FileError, CorruptRecordError, InvalidArgument
        As for `open_files`. A null without a default is an `InvalidArgument`.
    UnsupportedError
        A column has a type that is not supported, such as a union, or its numbers are big-endian.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pyfeed import open_arrow, open_writer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_writer(f"{folder}/a.arrow", names=["x", "label"]) as writer:
    ...         writer.write([np.float32([1, 2]), np.int64(7)])
    ...         writer.write([np.float32([3, 4]), np.int64(8)])
    ...     [(y.item(), x.tolist()) for y, x in open_arrow(f"{folder}/a.arrow", columns=["label", "x"])]
    [(7, [1.0, 2.0]), (8, [3.0, 4.0])]
    """
    return _open_format(filenames, "arrow", {"columns": columns, "default": default}, **reading)


@validate(filenames=check_paths, **SLOT_CHECKS, **READER_CHECKS)
def open_idx(filenames: Path | Iterable[Path], **reading: Unpack[ReadOptionsWithSlots]) -> Reader:
    """Make a reader of IDX files, the format of the MNIST database. The tuples have one slot.

    A file is one array, and each row along its first dimension is a tuple. Images and labels are in separate
    files: join their readers with `Reader.zip`.

    Parameters
    ----------
    filenames : str, path or iterable of them
        As for `open_files`, with any suffix.
    **reading
        The other keyword arguments of `open_files`.

    Returns
    -------
    Reader

    Raises
    ------
    FileError, CorruptRecordError, InvalidArgument
        As for `open_files`.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pyfeed import open_idx, open_writer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_writer(f"{folder}/labels.idx") as writer:
    ...         for digit in 7, 2, 1:
    ...             writer.write((np.uint8(digit),))
    ...     [x.item() for x, in open_idx(f"{folder}/labels.idx")]
    [7, 2, 1]
    """
    return _open_format(filenames, "idx", {}, **reading)


@validate(filenames=check_paths, columns=optional(check_columns), **SLOT_CHECKS, **READER_CHECKS)
def open_mds(
    filenames: Path | Iterable[Path],
    *,
    columns: Columns | None = None,
    **reading: Unpack[ReadOptionsWithSlots],
) -> Reader:
    """Make a reader of data sets of MosaicML's streaming library (MDS). Each sample is a tuple.

    Parameters
    ----------
    filenames : str, path or iterable of them
        Folders with an ``index.json``, or the path of an ``index.json``: the shards that it lists, in their
        order. Or files, as for `open_files`: shards with any suffix.
    columns : sequence or mapping, optional
        The slots, in their order. Other columns are not read. An item is the name or number of a column, or a
        dict (`Column`) with these properties:

        - ``columns``: the column that the slot takes. A name, or a number from 0 (-1 is the last column).
        - ``dtype``: the dtype that the column must have, or ``"bytes"`` for the data of the column as it is,
          whatever its encoding. Numbers are not converted.
        - ``dims``: the shape of an array whose encoding does not have it.
        - ``name``: the name of the slot, by default that of its column.

        A mapping has the name of each slot, and what it takes: a name, a number, or a dict. By default, each
        column is a slot. With ``shapes``, the slots take the columns that have their ``names``, or the columns
        in order.
    **reading
        The other keyword arguments of `open_files`.

    Returns
    -------
    Reader

    Raises
    ------
    FileError, CorruptRecordError, InvalidArgument
        As for `open_files`.
    UnsupportedError
        A column has pickled objects, or an unknown encoding, and `columns` does not leave it out. Or a shard has
        a compression that is not supported.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pyfeed import open_mds, open_writer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_writer(f"{folder}/shard.00000.mds", update_index=True) as writer:
    ...         writer.write({"text": "a cat", "label": np.int64(3)})
    ...     reader = open_mds(folder, columns=["label", "text"])
    ...     [(label.item(), text.bytes_list()) for label, text in reader]
    [(3, [b'a cat'])]
    """
    return _open_format(filenames, "mds", {"columns": columns}, **reading)


@validate(
    filenames=check_paths,
    columns=optional(check_columns),
    default=optional(check_missing_value),
    column_dtypes=optional(check_column_dtypes),
    **SLOT_CHECKS,
    **READER_CHECKS,
)
def open_jsonl(
    filenames: Path | Iterable[Path],
    *,
    columns: Columns | None = None,
    default: float | str | None = None,
    column_dtypes: Mapping[str | int, npt.DTypeLike] | None = None,
    **reading: Unpack[ReadOptionsWithSlots],
) -> Reader:
    """Make a reader of JSON Lines files (NDJSON): each line is a JSON value, mostly an object, and a record.

    The whole of each line is checked, also the values that are not selected.

    Parameters
    ----------
    filenames : str, path or iterable of them
        As for `open_files`, with any suffix.
    columns : sequence or mapping, optional
        The slots, in their order. An item is the path of a value, or a dict (`Column`) with these properties:

        - ``columns``: the path of the value. Names and indexes have dots between them: ``"a"``, ``"a.b"``,
          ``"a.0"``. A path that begins with a slash is a JSON pointer, such as ``"/a.b/0"``, for names that
          contain dots. A list of paths of numbers makes one slot of them.
        - ``dtype``: the dtype of the numbers; ``"bytes"`` for text, which is UTF-8; ``"json"`` for the JSON text
          of any value. It is inferred by default.
        - ``dims``: the shape. It is inferred by default: ``()`` for a number or text, and a sequence for a list,
          with a level of LoD for each level of lists. -1 at the front stands for lists of any length: ``(-1,)``
          for a list, ``(-1, -1)`` for lists of lists, ``(-1, 3)`` for lists of three numbers. Sizes stand for
          lists of these lengths, which become an array: ``(3,)``.
        - ``name``: the name of the slot, by default the path.
        - ``default``: the value for a record that has null or nothing there, in place of `default`.

        A mapping has the name of each slot, and what it takes: a path, a list of them, or a dict. By default,
        each name of the objects in the first MiB is a slot. With ``shapes``, the slots take the values that have
        their ``names``.
    default : float or str, optional
        The value for a record that has null or nothing where a number or text is expected, such as 0 or
        ``"nan"``. For a list, its JSON text, such as ``"[]"``. By default, such a record is an
        error, also with ``on_corrupt="skip"``.
    column_dtypes : mapping, optional
        The dtypes of values, by path. The dtypes of all others are inferred from the first MiB of the first file:
        int64, uint64, float64, bool or text.
    **reading
        The other keyword arguments of `open_files`.

    Returns
    -------
    Reader

    Raises
    ------
    FileError, CorruptRecordError, InvalidArgument
        As for `open_files`. A value of another kind, or one that its dtype cannot represent, is damage. A missing
        value without a default is an `InvalidArgument`.
    DTypeError
        No integer dtype can hold all integers of a column. After the first MiB, reads raise this error for a
        number that needs another dtype than the inferred one.

    Examples
    --------
    >>> import tempfile
    >>> from pyfeed import open_jsonl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(f"{folder}/a.jsonl", "w") as file:
    ...         _ = file.write('{"text": "a cat", "meta": {"label": 3}, "tokens": [1, 37]}\\n')
    ...         _ = file.write('{"text": "dogs", "meta": {}, "tokens": []}\\n')
    ...     columns = ["text", {"columns": "meta.label", "default": -1}, {"columns": "tokens", "dtype": "int32"}]
    ...     text, label, tokens = open_jsonl(f"{folder}/a.jsonl", columns=columns).batch(2).read()
    >>> text.bytes_list(), label.tolist(), [x.tolist() for x in tokens.sequences()]
    ([b'a cat', b'dogs'], [3, -1], [[1, 37], []])
    """
    options = {"columns": columns, "default": default, "dtypes": column_dtypes}
    return _open_format(filenames, "jsonl", options, **reading)


# The arguments of random_data and layers.random_data.
RANDOM_DATA_CHECKS = {
    "shapes": _slots.shapes,
    "dtypes": optional(_slots.dtypes),
    "low": real,
    "high": real,
    "seed": integer(0),
    "count": optional(integer(0)),
    "names": optional(_arguments.names),
}


@validate(
    filenames=check_paths,
    length=optional(integer(1, "token")),
    stride=optional(integer(1, "token")),
    targets=flag,
    documents=text,
    last=text,
    dtype=optional(_slots.dtype),
    output_dtype=optional(_slots.dtype),
    layout=text,
    **READER_CHECKS,
)
def open_tokens(
    filenames: Path | Iterable[Path],
    length: int | None = None,
    *,
    stride: int | None = None,
    targets: bool = False,
    documents: str = "across",
    last: str = "drop",
    dtype: npt.DTypeLike | None = None,
    output_dtype: npt.DTypeLike | None = None,
    layout: str = "auto",
    **reading: Unpack[ReadOptions],
) -> Reader:
    """Make a reader of files of token ids, the input of language models: each tuple is a window of tokens.

    Windows are views of the mapped file, as those of ``numpy.memmap`` are. A second slot has the targets, if you
    want them. With ``shuffle_records``, each pass has all windows in another order.

    Parameters
    ----------
    filenames : str, path or iterable of them
        As for `open_files`, with any suffix: files without a header, as nanoGPT has them (``train.bin``), files
        of llm.c, or the index files of Megatron-LM (``train.idx``, with the tokens in ``train.bin`` beside it).
    length : int, optional
        The number of tokens of a window, without the additional one that `targets` needs. It must be given
        unless `documents` is "whole".
    stride : int, optional
        The number of tokens from the beginning of a window to that of the next. By default `length`. If it is
        less, windows overlap.
    targets : bool
        Whether tuples have a second slot: the tokens that follow those of the first slot, shifted by one.
    documents : {"across", "within", "whole"}
        "across": windows are made of all tokens of a file. "within": of the tokens of one document each.
        "whole": a window is a document, of any length. Only Megatron-LM's index tells where documents begin.
    last : {"drop", "short"}
        What happens to the tokens at the end of a file, or document, that are fewer than a window. "drop": they
        are left out. "short": they become a shorter window. All slots then have ragged offsets (LoD, level of
        detail).
    dtype : dtype, optional
        The dtype of the tokens in a file without a header, by default uint16. The headers of other files tell it.
    output_dtype : dtype, optional
        An integer dtype that the tokens are converted to, such as int64. By default, that of the file.
    layout : {"auto", "headerless", "llm.c", "megatron"}
        How the files store tokens. "auto": "megatron" if the name ends in ``.idx``; "llm.c" if the file begins
        with the header of llm.c; otherwise "headerless".
    **reading
        The other keyword arguments of `open_files`, without those of slots.

    Returns
    -------
    Reader

    Raises
    ------
    FileError, CorruptRecordError, InvalidArgument
        As for `open_files`. An incomplete token at the end of a file is damage.
    DTypeError
        `dtype` is not that of the file, or `output_dtype` does not hold all of its values.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pyfeed import open_tokens
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.arange(10, dtype="uint16").tofile(f"{folder}/train.bin")
    ...     reader = open_tokens(f"{folder}/train.bin", 4, targets=True, output_dtype="int64")
    ...     [(x.tolist(), y.tolist()) for x, y in reader]
    [([0, 1, 2, 3], [1, 2, 3, 4]), ([4, 5, 6, 7], [5, 6, 7, 8])]
    """
    options = {
        "length": length,
        "stride": stride,
        "targets": targets,
        "documents": documents,
        "last": last,
        "dtype": dtype,
        "output_dtype": output_dtype,
        "layout": layout,
    }
    return _open_format(filenames, "tokens", options, **reading)


@validate(
    filenames=check_paths,
    columns=optional(check_columns),
    default=optional(check_missing_value),
    where=optional(check_conditions),
    **SLOT_CHECKS,
    **READER_CHECKS,
)
def open_parquet(
    filenames: Path | Iterable[Path],
    *,
    columns: Columns | None = None,
    default: float | str | None = None,
    where: Sequence[Condition] | None = None,
    **reading: Unpack[ReadOptionsWithSlots],
) -> Reader:
    """Make a reader of Parquet files: each row is a record, and each column is a slot.

    Parameters
    ----------
    filenames : str, path or iterable of them
        As for `open_files`, with any suffix.
    columns : sequence or mapping, optional
        The slots, in their order. Other columns are not read. An item is the name or number of a column, or a
        dict (`Column`) with these properties:

        - ``columns``: the columns that the slot takes. A name, a number from 0 (-1 is the last column), a range
          such as ``"x0:x9"``, or a list of them. Several columns must be numbers. The fields of a struct are
          columns with names such as ``"point.x"``, those of a map are ``"m.key"`` and ``"m.value"``.
        - ``dtype``: the dtype of the slot, ``"bytes"`` for text. Numbers are converted if it can hold them.
        - ``dims``: the shape of the slot. Lists must then have as many elements, and become an array.
        - ``name``: the name of the slot, by default that of its column.
        - ``default``: the value of nulls, in place of `default`.

        A mapping has the name of each slot, and what it takes: a name, a number, a list of them, or a dict. By
        default, each column is a slot. With ``shapes``, the slots take the columns that have their ``names``,
        or the columns in order.
    default : float or str, optional
        The value of nulls, such as 0 or ``"nan"``; the text of nulls in columns of text. A null list is empty.
        By default, a null is an error, also with ``on_corrupt="skip"``.
    where : sequence of tuple, optional
        Conditions, each a column, an operator and a value. The operators are ``==``, ``!=``, ``<``, ``<=``,
        ``>``, ``>=``, and ``in``, whose value is a sequence. A row group is left out if its statistics show that
        no row meets all conditions. The rows of other row groups are all read, also those that do not meet the
        conditions.
    **reading
        The other keyword arguments of `open_files`.

    Returns
    -------
    Reader

    Raises
    ------
    FileError, CorruptRecordError, InvalidArgument
        As for `open_files`. A null without a default is an `InvalidArgument`.
    UnsupportedError
        The file is encrypted, or has something else that cannot be read; the error names it.

    Examples
    --------
    >>> import tempfile
    >>> from pyfeed import open_parquet, open_writer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_writer(f"{folder}/a.parquet", names=["x", "kind"]) as writer:
    ...         for x, kind in (1.5, b"cat"), (2.5, b"dog"):
    ...             writer.write([x, kind])
    ...     [(x.item(), kind.bytes_list()) for x, kind in open_parquet(f"{folder}/a.parquet")]
    [(1.5, [b'cat']), (2.5, [b'dog'])]
    """
    options = {"columns": columns, "default": default, "where": where}
    return _open_format(filenames, "parquet", options, **reading)


@validate(
    **{**RANDOM_DATA_CHECKS, "shapes": _structure.shapes, "dtypes": _structure.CHECKS["dtypes"]},
    as_dict=flag,
    name=optional(text),
    scope=optional(check_scope),
)
def random_data(
    shapes: Shapes,
    dtypes: DTypes | None = None,
    low: float = 0,
    high: float = 1,
    *,
    seed: int = 0,
    count: int | None = None,
    names: Sequence[str] | None = None,
    as_dict: bool = False,
    name: str | None = None,
    scope: Scope | None = None,
) -> Reader:
    """Make a reader of uniformly distributed random numbers, for tests and measurements.

    Tuple number ``i`` is the same in every pass and on every machine.

    Parameters
    ----------
    shapes : sequence or dict of shapes
        The shape of each slot, without -1. A dict is as for `py_array_reader`.
    dtypes : sequence or dict, optional
        The dtype of each slot, by default float32.
    low, high : float
        The range of the numbers: at least `low` and below `high`. Integers may also be equal to `high`.
    seed : int
        From 0 to ``2**63 - 1``. The same seed gives the same numbers.
    count : int, optional
        The number of tuples in a pass. By default, a pass has no end.
    names : sequence of str, optional
        The names of the slots, if `shapes` is no dict. By default, they have none.
    as_dict, name, scope
        As for `open_files`.

    Returns
    -------
    Reader

    Raises
    ------
    InvalidArgument
        `low` or `high` is not finite, `low` is greater than `high`, or a dtype cannot hold the range.
    ShapeError
        A shape has a dimension of -1.

    Examples
    --------
    >>> from pyfeed import random_data
    >>> image, label = random_data([(28, 28), ()], ["float32", "int64"], high=9).read()
    >>> image.shape, label.shape, bool(0 <= image.min() <= image.max() < 9), int(label) in range(10)
    ((28, 28), (), True, True)
    """
    about = _structure.describe(shapes, dtypes, None, names, as_dict=as_dict)
    every = [dtype or "float32" for dtype in about.dtypes or [None] * len(about.shapes)]
    attributes = {
        "slots": _slots.to_attributes(about.shapes, every, None, about.names),
        "low": low,
        "high": high,
        "seed": seed,
        "count": -1 if count is None else count,
    }
    reader = create_reader("create_random_data_generator", "random_data", name, scope, attributes, as_dict=False)
    reader._set_structure(about.structure)
    reader._recipe = Recipe("create_random_data_generator", attributes, structure=about.structure)
    return reader
