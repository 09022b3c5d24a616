"""Compares what `pyfeed.open_arrow` and pyarrow read from Arrow's integration files.

The files are read from a checkout of apache/arrow-testing, which is not a part of this repository:

    PYFEED_ARROW_TESTING=/checkouts/arrow-testing python tests/peers/arrow_files.py

The environment needs pyarrow. Each column of each file must have pyarrow's values, or be refused by name; nulls have a
default. The inputs of Arrow's fuzzers must be read or refused, without a crash. The exit status is 1 if one differs.
"""

from __future__ import annotations

import collections
import decimal
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import ipc

import pyfeed
from pyfeed import errors

# Types of which pyarrow makes no arrays. pyfeed has to read as many rows, or to refuse them.
WITHOUT_ARRAYS = ("month_interval", "day_time_interval")

# What pyfeed refuses, as its errors say it, besides big-endian files.
REFUSED = {
    "a dictionary of values of type list",
    "a dictionary of values of type struct",
    "interval",
    "large_list_view",
    "list_view",
    "run_end_encoded",
    "union",
}

ANY = "*"  # the name of a field of a map: pyarrow has its own names, not those of the file

# Types whose values pyarrow returns as they are stored.
STORED = {
    pa.types.is_date32: pa.int32(),
    pa.types.is_date64: pa.int64(),
    pa.types.is_time32: pa.int32(),
    pa.types.is_time64: pa.int64(),
    pa.types.is_timestamp: pa.int64(),
    pa.types.is_duration: pa.int64(),
}


def leaves(name: str, array: pa.Array) -> Iterator[tuple[str, list[Any]]]:
    """Yield the columns that pyfeed makes of an array, and their values, with nulls."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        yield from leaves(name, array.storage)
    elif pa.types.is_dictionary(kind) and pa.types.is_nested(kind.value_type):
        yield name, [None] * len(array)  # refused
    elif pa.types.is_dictionary(kind):
        yield from leaves(name, array.dictionary_decode())
    elif pa.types.is_struct(kind):
        missing = array.is_null().to_pylist()
        for i, field in enumerate(kind):
            for path, values in leaves(f"{name}.{field.name}", array.field(i)):
                yield path, [None if null else v for null, v in zip(missing, values, strict=True)]
    elif pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        missing, offsets = array.is_null().to_pylist(), array.offsets.to_pylist()
        if pa.types.is_map(kind):
            inner = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
            found = [(f"{name}.{ANY}", v) for _, v in leaves("", inner)]
        else:
            found = list(leaves(name, array.values))
        for path, values in found:
            lists = [values[a:b] for a, b in itertools.pairwise(offsets)]
            yield path, [None if null else v for null, v in zip(missing, lists, strict=True)]
    elif pa.types.is_fixed_size_list(kind):
        missing, size = array.is_null().to_pylist(), kind.list_size
        for path, values in leaves(name, array.values):
            rows = [values[(array.offset + i) * size :][:size] for i in range(len(array))]
            yield path, [[None] * size if null else v for null, v in zip(missing, rows, strict=True)]
    else:
        for is_type, stored in STORED.items():
            if is_type(kind):
                array = array.view(stored)
        yield name, array.to_pylist()


def shape_of(value: Any) -> Any:
    """Return a value without types: text as bytes, decimals as floats."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, decimal.Decimal):
        return float(value)
    return [shape_of(v) for v in value] if isinstance(value, list) else value


def filled(value: Any, null: Any, lists: int) -> Any:
    """Replace nulls; lists is the number of levels of lists around the elements."""
    if value is None:
        return [] if lists > 0 else null
    if isinstance(value, list):
        return [filled(v, null, lists - 1) for v in value]
    return value


def plain(slot: Any) -> Any:
    """Return a slot of pyfeed as lists and numbers, or byte strings."""
    if isinstance(slot, np.ndarray):
        return slot.tolist()
    levels = len(slot.lod)
    if slot.dtype == np.uint8 and len(slot.shape) == 1:
        texts = slot.bytes_list()
        return texts[0] if levels == 1 else texts
    data = np.asarray(slot).tolist()
    for level in reversed(slot.lod[1:]):
        data = [data[a:b] for a, b in itertools.pairwise(level)]
    return data


def same_name(found: str, expected: str) -> bool:
    a, b = found.split("."), expected.split(".")
    return len(a) == len(b) and all(y in (x, ANY) for x, y in zip(a, b, strict=True))


def same(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, bytes) and isinstance(b, list):  # of fixed size
        return list(a) == b
    return bool(a == b or (a != a and b != b))


def compare(path: Path, counts: collections.Counter[str]) -> list[str]:
    """Compare the columns of a file."""
    try:
        with pa.memory_map(str(path)) as source:
            head = source.read(6)
            source.seek(0)
            opened = ipc.open_file(source) if head == b"ARROW1" else ipc.open_stream(source)
            table = opened.read_all()
            big = "bigendian" in str(path)
    except pa.ArrowException as error:
        return [f"{path}: pyarrow: {error}"]
    wrong = []
    expected: list[tuple[str, list[Any] | None]] = []
    for field, column in zip(table.schema, table.columns, strict=True):
        if str(field.type) in WITHOUT_ARRAYS:
            expected.append((field.name, None))
            continue
        try:
            chunks = [list(leaves(field.name, c)) for c in column.chunks] or [
                list(leaves(field.name, pa.array([], field.type)))
            ]
        except (pa.ArrowException, NotImplementedError, KeyError) as error:
            return [f"{path}: {field.name}: pyarrow makes no values of {field.type}: {error!r}"]
        expected += [(chunks[0][i][0], [v for c in chunks for v in c[i][1]]) for i in range(len(chunks[0]))]
    if not big:
        try:
            pyfeed.open_arrow(path, columns=[len(expected)], num_threads=0)
            wrong.append(f"{path}: expected {len(expected)} columns, found more")
        except errors.InvalidArgument:
            pass
    for number, (name, values) in enumerate(expected):
        try:
            reader = pyfeed.open_arrow(path, columns=[number], default="1", num_threads=0)
            (spec,) = reader.slots
            found = [plain(row[0]) for row in reader]
        except errors.UnsupportedError as error:
            reason = str(error).split("found ", 1)[-1].split(": ")[0]
            counts[f"refused: {reason}"] += 1
            if reason not in ({"big-endian ones"} if big else REFUSED):
                wrong.append(f"{path}: {name}: {error}")
            continue
        except errors.Error as error:
            wrong.append(f"{path}: {name}: {error}")
            continue
        if big:
            wrong.append(f"{path}: {name}: expected a big-endian file to be refused")
        if not same_name(spec.name, name):
            wrong.append(f"{path}: expected a column {name!r}, found {spec.name!r}")
        if values is None:
            counts["not compared: pyarrow makes no arrays of the type"] += 1
            if len(found) != table.num_rows:
                wrong.append(f"{path}: {name}: expected {table.num_rows} rows, found {len(found)}")
            continue
        lists = spec.lod_levels - (spec.dtype == "uint8" and tuple(spec.shape) == (-1,))
        one: Any = b"1" if lists < spec.lod_levels else 1
        if spec.dtype == "uint8" and spec.shape and spec.shape[-1] >= 0:  # bytes of fixed size
            one = bytes([1] * spec.shape[-1])
        expect = [filled(shape_of(v), one, lists) for v in values]
        if same(expect, found):
            counts["equal"] += 1
        else:
            wrong.append(f"{path}: {name}: expected {str(expect)[:300]}, found {str(found)[:300]}")
    return wrong


def main() -> int:
    root = Path(os.environ["PYFEED_ARROW_TESTING"])
    counts: collections.Counter[str] = collections.Counter()
    wrong = []
    for path in sorted(root.rglob("*")):
        if path.suffix in (".arrow_file", ".stream"):
            wrong += compare(path, counts)
        elif path.is_file() and "ipc" in path.parent.name:
            try:
                for _ in pyfeed.open_arrow(path, num_threads=0, default="1", on_corrupt="skip"):
                    pass
                counts["fuzz input: read, with damage skipped"] += 1
            except (errors.CorruptRecordError, errors.UnsupportedError) as error:
                counts[f"fuzz input: {type(error).__name__}"] += 1
            except errors.Error as error:
                wrong.append(f"{path}: expected damage, or something that is not supported, found {error}")
    for what, count in sorted(counts.items()):
        print(f"{count:6} {what}")
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
