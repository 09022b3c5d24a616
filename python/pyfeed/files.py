"""Readers of files, of every format, and of random data."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _arguments, _native, slots, unique_name
from ._arguments import (
    anything,
    each,
    flag,
    integer,
    items,
    mapping,
    optional,
    path,
    real,
    refuse,
    takes,
    text,
)
from ._attributes import decode
from ._names import name_of, text_of
from .readers import Reader
from .scope import Scope, a_scope, global_scope
from .slots import SLOTS, Shape

if TYPE_CHECKING:
    from typing import Unpack

    import numpy.typing as npt

    from ._told import Columns, Feature, Field, Reading, ReadingSlots

Path = str | os.PathLike[str]


def paths(name: str, value: Any) -> list[str]:
    """Names of files: one, or several."""
    if isinstance(value, (str, os.PathLike)):
        return [path(name, value)]
    return [path(name, one) for one in items(name, value, "a str or path, or several")]


def told(options: Mapping[str, Any]) -> dict[str, Any]:
    """A format's options as the library takes them: features by name become a list, for their order."""
    given = {key: value for key, value in options.items() if value is not None}
    if isinstance(given.get("features"), Mapping):
        given["features"] = features_by_name("features", given["features"])
    return given


def typed(name: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of a slot or column, with its dtype, if it has one, by name: "bytes" is one of theirs."""
    dtype = mapping(name, about).get("dtype")
    if dtype is None:
        return dict(about)
    return {**about, "dtype": "bytes" if dtype in (bytes, str, "bytes") else slots.dtype(f"{name}: dtype", dtype)}


def features_by_name(name: str, value: Any) -> list[dict[str, Any]]:
    """Features of examples: of each a dtype, or more."""
    return [
        {"name": feature, **typed(f"{name}: {feature}", about if isinstance(about, Mapping) else {"dtype": about})}
        for feature, about in mapping(name, value).items()
    ]


def field_of_slot(name: str, value: Any) -> str | dict[str, Any]:
    """An extension, or a mapping that says more of a slot of a tar file."""
    if isinstance(value, str):
        return text(name, value)
    if not isinstance(value, Mapping):
        refuse(name, "a str or a mapping", value)
    about = typed(name, value)
    default = about.get("default")
    if isinstance(default, (bytes, bytearray)):
        refuse(f"{name}: default", "a number or a str", default)
    if isinstance(default, (float, np.floating)) and not math.isfinite(default):
        about["default"] = str(float(default))  # which JSON numbers cannot be
    return about


def dtypes_of_columns(name: str, value: Any) -> dict[str, str]:
    """Dtypes by the names or numbers of columns."""
    if not isinstance(value, Mapping):
        refuse(name, "a mapping from names or numbers of columns to dtypes", value)
    out = {}
    for column, dtype in value.items():
        key = text(name, column) if isinstance(column, str) else str(_arguments.number(name, column, -(2**63)))
        out[key] = typed(f"{name}: {key}", {"dtype": dtype})["dtype"]
    return out


def missing_value(name: str, value: Any) -> str:
    """What an empty field stands for: nan, too."""
    if isinstance(value, str):
        return text(name, value)
    if isinstance(value, (float, np.floating)) and math.isnan(value):
        return "nan"
    real(name, value)
    return str(value)


# What open_files takes of any format, and each format's function hands on to it.
READING = {
    "num_threads": integer(0),
    "ordered": flag,
    "interleave": integer(1, "file"),
    "shuffle_files": optional(integer(0)),
    "on_corrupt": text,
    "compression": text,
    "io": text,
    "verify_first": flag,
}
ANY_READING = {**READING, "name": optional(text), "scope": optional(a_scope)}


@takes(filenames=paths, format=optional(text), **SLOTS, **ANY_READING, options=anything)
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
    on_corrupt: str = "raise",
    verify_first: bool = False,
    compression: str = "auto",
    io: str = "auto",
    name: str | None = None,
    scope: Scope | None = None,
    **options: Any,
) -> Reader:
    """A reader of files, by threads of the library: one record after the other, of many files at a time.

    Parameters
    ----------
    filenames : str, path or iterable of them
        Paths, directories, or patterns: ``*``, ``?``, ``[a-z]``, ``**`` for directories at any depth,
        ``{a,b}`` and ``{000..146}``. A path that exists is that file. The format is that of the suffix
        (a further one for compression may follow), unless a format's name and a colon come before:
        ``"recordio:part-0001"``.
    format : str, optional
        That of all the files, whatever their names. `formats` lists them.
    shapes, dtypes, lod_levels, names : sequence, optional
        What an instance looks like, one a slot, as for `py_array_reader`. If `shapes` are not given,
        the first file says, or its first record; some formats must be told.
    num_threads : int
        Threads that read. 0: the reading thread itself does, for one file that is no pipe.
    ordered : bool
        The order depends on the files alone: one instance of each file in turn, of `interleave` files
        at a time. Else they come as they are read.
    interleave : int
        How many files are open at a time, if `ordered`.
    shuffle_files : int, optional
        A seed: the files come in another order in each pass, which depends on nothing but the seed
        and the pass. As they are listed, if not given.
    on_corrupt : {"raise", "skip"}
        What to do where a file is damaged: raise `CorruptRecordError`, after the records before the
        place where the damage is found, or go on behind it, which `Reader.stats` then tells of.
    verify_first : bool
        Read each file twice, in each pass: the first time to verify all of it, checksums of its
        compression included, before its first record is delivered. See `docs/formats.md` for what
        each format can be verified by. Refused of named pipes, which can be read once only.
    compression : {"auto", "none", "gzip", "zlib", "zstd", "snappy", "snappy-skippable"}
        Of the files as a whole. By their first bytes, if "auto": a file whose suffix says that it is
        compressed must be, or it is damaged. "snappy-skippable" passes over chunks of types that no
        writer emits, which are damage otherwise.
    io : {"auto", "map", "read"}
        Whether files are mapped or read in large blocks. Mapped, if "auto", but for compressed ones
        and those on a network.
    name : str, optional
        The reader's variable. Made up if not given.
    scope : Scope, optional
        The global one by default. The variable is erased with the reader.
    **options
        The format's own: see its function, such as `open_csv`.

    Raises
    ------
    FileError
        A file cannot be read: `MissingFileError`, which is a `FileNotFoundError`, if there is none.
    CorruptRecordError
        The first file is not what its format says. Others are opened, and may raise it, when their
        turn comes.
    InvalidArgument
        A name without a format, or options that the format does not have. Those of files of several
        formats are by tag.

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
    return _open(
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
        on_corrupt=on_corrupt,
        verify_first=verify_first,
        compression=compression,
        io=io,
        name=name,
        scope=scope,
    )


def _open(
    filenames: Any,
    format: str | None,
    options: Mapping[str, Any],
    *described: Any,
    name: str | None = None,
    scope: Scope | None = None,
    **reading: Any,
) -> Reader:
    operator, attributes = creation(filenames, format, options, *described, **reading)
    return _made(operator, "open_files", name, scope, attributes)


def creation(
    filenames: Sequence[str],
    format: str | None,
    options: Mapping[str, Any],
    shapes: Sequence[Shape] | None = None,
    dtypes: Sequence[npt.DTypeLike | None] | None = None,
    lod_levels: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    *,
    num_threads: int = 2,
    ordered: bool = True,
    interleave: int = 8,
    shuffle_files: int | None = None,
    on_corrupt: str = "raise",
    verify_first: bool = False,
    compression: str = "auto",
    io: str = "auto",
) -> tuple[str, dict[str, Any]]:
    """The operator that opens files, and its attributes, of arguments that were checked."""
    attributes: dict[str, Any] = {
        "filenames": [text_of(name) for name in filenames],
        "format": format or "",
        "on_corrupt": on_corrupt,
        "verify_first": verify_first,
        "storage": {"compression": compression, "io": io},
        "options": told(options),
    }
    wanted = slots.attributes(shapes, dtypes, lod_levels, names)
    if wanted is not None:
        attributes["slots"] = wanted
    if num_threads == 0:
        return "create_file_reader", attributes
    attributes |= {"num_threads": num_threads, "ordered": ordered, "interleave": interleave}
    if shuffle_files is not None:
        attributes["shuffle_files"] = shuffle_files
    return "open_files", attributes


def _made(operator: str, key: str, name: str | None, scope: Scope | None, attributes: Mapping[str, Any]) -> Reader:
    scope = global_scope() if scope is None else scope
    out = unique_name.of_process(key) if name is None else name
    scope._create(operator, out, **attributes)
    return Reader._owning(scope, out, None)


@takes(filenames=anything, format=optional(text))
def list_files(filenames: Path | Iterable[Path], format: str | None = None) -> list[str]:
    """The files that names stand for, in the order in which `open_files` reads them.

    Parameters
    ----------
    filenames, format
        As for `open_files`.

    Returns
    -------
    list of str
        A format's name, a colon and a path each: to be opened whole, or in parts, such as
        ``list_files("data/*.npy")[rank::world]``.

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
    names = tuple(os.fsencode(name) for name in paths("filenames", filenames))
    return [name_of(text) for text in decode(_native._list_files(names, format))]


@takes(filenames=paths, records=text, **SLOTS, **ANY_READING)
def open_recordio(
    filenames: Path | Iterable[Path], *, records: str = "auto", **reading: Unpack[ReadingSlots]
) -> Reader:
    """A reader of RecordIO files, of both layouts: the Go library's and that of PaddlePaddle Fluid.

    Parameters
    ----------
    filenames
        As for `open_files`, whatever their suffix.
    records : {"auto", "tensors", "bytes"}
        What a record holds: the tensors of an instance, as Fluid wrote them, a slot each; or bytes, in
        one slot of uint8: see `LoDTensor.bytes_list`. If "auto", the first records tell: tensors if one of
        them holds some.
    **reading
        What `open_files` takes besides.

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
    return _open(filenames, "recordio", {"records": records}, **reading)


@takes(filenames=paths, instances=text, **SLOTS, **ANY_READING)
def open_npy(filenames: Path | Iterable[Path], *, instances: str = "rows", **reading: Unpack[ReadingSlots]) -> Reader:
    """A reader of NumPy's files of one array, made by `numpy.save`: one slot.

    Parameters
    ----------
    filenames
        As for `open_files`, whatever their suffix.
    instances : {"rows", "file"}
        Each row along the first dimension is an instance, or the whole array is.
    **reading
        What `open_files` takes besides.

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
    return _open(filenames, "npy", {"instances": instances}, **reading)


@takes(
    filenames=paths,
    shapes=slots.shapes,
    dtypes=slots.dtypes,
    names=optional(_arguments.names),
    byte_order=text,
    header_bytes=integer(0),
    **ANY_READING,
)
def open_raw(
    filenames: Path | Iterable[Path],
    shapes: Sequence[Shape],
    dtypes: Sequence[npt.DTypeLike | None],
    *,
    names: Sequence[str] | None = None,
    byte_order: str = "little",
    header_bytes: int = 0,
    **reading: Unpack[Reading],
) -> Reader:
    """A reader of records of one size: arrays behind one another without anything between, as C writes them.

    Parameters
    ----------
    filenames
        As for `open_files`, whatever their suffix.
    shapes, dtypes : sequence
        Of the arrays of a record, one a slot, without -1.
    names : sequence of str, optional
        Of the slots.
    byte_order : {"little", "big"}
        Of the numbers in the file.
    header_bytes : int
        How many bytes at the beginning of each file are skipped.
    **reading
        What `open_files` takes besides.

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
    return _open(filenames, "raw", options, shapes, dtypes, names=names, **reading)


@takes(filenames=paths, arrays=optional(_arguments.names), instances=text, **SLOTS, **ANY_READING)
def open_npz(
    filenames: Path | Iterable[Path],
    *,
    arrays: Sequence[str] | None = None,
    instances: str = "rows",
    **reading: Unpack[ReadingSlots],
) -> Reader:
    """A reader of NumPy's files of several arrays, made by `numpy.savez`: a slot each.

    Parameters
    ----------
    filenames
        As for `open_files`, whatever their suffix.
    arrays : sequence of str, optional
        Which are read, in this order. All, in the file's order, if not given.
    instances : {"rows", "file"}
        A row along the first dimension of each, of which all have as many, is an instance; or all
        arrays whole are.
    **reading
        What `open_files` takes besides.

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
    return _open(filenames, "npz", {"arrays": arrays, "instances": instances}, **reading)


@takes(filenames=paths, features=optional(features_by_name), **SLOTS, **ANY_READING)
def open_tfrecord(
    filenames: Path | Iterable[Path],
    *,
    features: Mapping[str, npt.DTypeLike | Feature] | None = None,
    **reading: Unpack[ReadingSlots],
) -> Reader:
    """A reader of TFRecord files: records of bytes, or ``tf.train.Example`` messages. Every CRC is checked.

    Parameters
    ----------
    filenames
        As for `open_files`, whatever their suffix.
    features : mapping, optional
        Which features of an Example become the slots, in this order. To each name belongs a dtype,
        of a single value, ``"bytes"`` among them, or a dict:

        - ``dtype``: ``"bytes"``; float32 or float64 of a list of floats; bool or any type of integers
          of a list of int64.
        - ``kind``: ``"fixed"``, the default: as many values as ``shape`` has, () if it is not given,
          or the ``default`` where an example lacks them. ``"variable"``: any number of them, as a
          sequence. ``"ragged"``: divided by the features named in ``row_lengths`` or ``row_splits``,
          outermost first.
        - ``raw``: true if it is one value of bytes, the memory of an array of that dtype and shape.

        If not given, there is one slot of uint8, the record: see `LoDTensor.bytes_list`.
    **reading
        What `open_files` takes besides.

    Examples
    --------
    >>> import tempfile
    >>> from pyfeed import open_tfrecord, open_writer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_writer(f"{folder}/a.tfrecord") as writer:
    ...         writer.write((b"one",))
    ...     [x.bytes_list() for x, in open_tfrecord(f"{folder}/a.tfrecord")]
    [[b'one']]
    """
    return _open(filenames, "tfrecord", {"features": features}, **reading)


@takes(
    filenames=paths,
    fields=optional(each(field_of_slot, "a sequence of str or dict, one a slot")),
    end=text,
    **SLOTS,
    **ANY_READING,
)
def open_tar(
    filenames: Path | Iterable[Path],
    *,
    fields: Sequence[str | Field] | None = None,
    end: str = "blocks",
    **reading: Unpack[ReadingSlots],
) -> Reader:
    """A reader of tar files as WebDataset names their members: those that share a stem are an instance.

    Parameters
    ----------
    filenames
        As for `open_files`, whatever their suffix.
    fields : sequence, optional
        The slots, in order: of each the extension of its members, or several to choose from, such as
        ``"jpg;png"``; ``"__key__"`` is the stem. Or a dict of that ``name`` and:

        - ``kind``: ``"bytes"``, ``"text"``, ``"npy"``, ``"int"``, ``"float"`` or ``"json"``. By the
          extension, as WebDataset has them, if not given.
        - ``path``: leads to a number in JSON: names and indexes.
        - ``dtype``: of a number.
        - ``optional``: true if an instance may lack the member: it has the ``default`` then, or an
          empty sequence.
        - ``default``: what an instance without the member has: a number, or text. The field is optional.

        If not given, the members of the first instance are.
    end : {"blocks", "file"}
        An archive ends with its blocks of zeros, without which it is damaged, or with the file.
    **reading
        What `open_files` takes besides.

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
    return _open(filenames, "tar", {"fields": fields, "end": end}, **reading)


@takes(
    filenames=paths,
    delimiter=text,
    quote=optional(text),
    comment=optional(text),
    header=optional(flag),
    columns=optional(each(typed, "a sequence of dict, one a slot")),
    column_dtypes=optional(dtypes_of_columns),
    missing=optional(missing_value),
    **SLOTS,
    **ANY_READING,
)
def open_csv(
    filenames: Path | Iterable[Path],
    *,
    delimiter: str = ",",
    quote: str | None = '"',
    comment: str | None = None,
    header: bool | None = None,
    columns: Sequence[Columns] | None = None,
    column_dtypes: Mapping[str | int, npt.DTypeLike] | None = None,
    missing: float | str | None = None,
    **reading: Unpack[ReadingSlots],
) -> Reader:
    """A reader of tables of text, a record a line, as CSV (RFC 4180) and TSV have them.

    Parameters
    ----------
    filenames
        As for `open_files`, whatever their suffix.
    delimiter : str
        One character.
    quote, comment : str or None
        One character: around fields; at the beginning of lines that are skipped. None: there is none.
    header : bool, optional
        Whether the first line names the columns. If not given, it must, and one of numbers only is
        refused as more likely a record.
    columns : sequence of dict, optional
        The slots: of each the ``columns`` it takes: a name, a number from 0 (or from -1 backwards), a
        range such as ``"x0:x9"``, or a list of them; and, where they are not to be found out, ``dtype``
        (``"bytes"`` for text), ``dims`` and ``name``. If not given, `names` of slots are those of
        columns, or each column is a slot.
    column_dtypes : mapping, optional
        The dtypes of columns by name or number. Those of others are told by the first MiB of the first
        file: int64, uint64, float64, bool or text. A `DTypeError` says so where that does not do.
    missing : float or str, optional
        What an empty field of numbers stands for. An error if not given.
    **reading
        What `open_files` takes besides.

    Examples
    --------
    >>> import tempfile
    >>> from pyfeed import open_csv
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(f"{folder}/a.csv", "w") as file:
    ...         _ = file.write("width,height,kind\\n1.5,2,cat\\n3,4,dog\\n")
    ...     columns = [{"columns": "width:height", "dtype": "float32"}, {"columns": "kind"}]
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
    return _open(filenames, "csv", options, **reading)


@takes(filenames=paths, **SLOTS, **ANY_READING)
def open_idx(filenames: Path | Iterable[Path], **reading: Unpack[ReadingSlots]) -> Reader:
    """A reader of IDX files, as the MNIST database of handwritten digits has them: one slot.

    Each row along the first dimension is an instance. Images and labels are in files of their own:
    join their readers with `Reader.zip`.

    Parameters
    ----------
    filenames
        As for `open_files`, whatever their suffix.
    **reading
        What `open_files` takes besides.

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
    return _open(filenames, "idx", {}, **reading)


# What random_data takes, eager or of a program.
RANDOM = {
    "shapes": slots.shapes,
    "dtypes": optional(slots.dtypes),
    "low": real,
    "high": real,
    "seed": integer(0),
    "count": optional(integer(0)),
    "names": optional(_arguments.names),
}


@takes(**RANDOM, name=optional(text), scope=optional(a_scope))
def random_data(
    shapes: Sequence[Shape],
    dtypes: Sequence[npt.DTypeLike] | None = None,
    low: float = 0,
    high: float = 1,
    *,
    seed: int = 0,
    count: int | None = None,
    names: Sequence[str] | None = None,
    name: str | None = None,
    scope: Scope | None = None,
) -> Reader:
    """A reader of random numbers, drawn evenly from a range: for tests, and to see how fast the rest is.

    Instance number i is the same in every pass and on every machine.

    Parameters
    ----------
    shapes : sequence of shapes
        One a slot, without -1.
    dtypes : sequence, optional
        One a slot; float32 if not given.
    low, high : float
        The range: from `low` to below `high`; of integers, `high` is included.
    seed : int
        From 0 to 2**63 - 1.
    count : int, optional
        Instances a pass; without end if not given.
    names : sequence of str, optional
        Of the slots.
    name, scope
        As for `open_files`.

    Examples
    --------
    >>> from pyfeed import random_data
    >>> image, label = random_data([(28, 28), ()], ["float32", "int64"], high=9).read()
    >>> image.shape, label.shape, bool(0 <= image.min() <= image.max() < 9), int(label) in range(10)
    ((28, 28), (), True, True)
    """
    every = ["float32"] * len(shapes) if dtypes is None else dtypes
    return _made(
        "create_random_data_generator",
        "random_data",
        name,
        scope,
        {
            "slots": slots.attributes(shapes, every, None, names),
            "low": low,
            "high": high,
            "seed": seed,
            "count": -1 if count is None else count,
        },
    )
