"""Reads Parquet files with pyfeed and with pyarrow, and compares all values, column by column.

The files are those of folders of yours, such as a checkout of apache/parquet-testing, which is not a part of this
repository:

    PYFEED_PARQUET_TESTING=/checkouts/parquet-testing python tests/peers/parquet_files.py

Several folders are separated by colons. The environment needs pyfeed and pyarrow. A column or file that pyfeed refuses
is listed with the error. The exit status is 1 if a value differs, or if pyfeed refuses a file as damaged that pyarrow
reads.
"""

from __future__ import annotations

import argparse
import datetime
import decimal
import itertools
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import pyfeed

# Nulls are read as this number or this text.
NUMBER, TEXT = 77, b"77"

Step = Callable[[Any], Any]


def leaves(name: str, kind: pa.DataType, get: Step) -> Iterator[tuple[str, pa.DataType, Step]]:
    """Yield the columns of a field: the name, the type, and what returns its value in a row."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from leaves(f"{name}.{field.name}", field.type, lambda v, f=field.name: over(get(v), lambda s: s[f]))
    elif pa.types.is_map(kind):
        for part, (below_name, of_type) in enumerate((("key", kind.key_type), ("value", kind.item_type))):
            for below, of, inner in leaves(f"{name}.{below_name}", of_type, lambda pair, part=part: pair[part]):
                yield below, of, lambda v, inner=inner: each(get(v), inner)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        for below, of, inner in leaves(name, kind.value_type, lambda v: v):
            yield below, of, lambda v, inner=inner: each(get(v), inner)
    else:
        yield name, kind, get


def over(value: Any, step: Step) -> Any:
    return None if value is None else step(value)


def each(value: Any, step: Step) -> list[Any] | None:
    return None if value is None else [step(one) for one in value]


def plain(value: Any, kind: pa.DataType, depth: int) -> Any:
    """Return a value of pyarrow as pyfeed reads it: nulls replaced, text as bytes, times as numbers."""
    if depth > 0:
        return [] if value is None else [plain(one, kind, depth - 1) for one in value]
    text = pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind)
    if value is None:
        if pa.types.is_boolean(kind):
            return True
        if pa.types.is_fixed_size_binary(kind):
            return bytes([NUMBER]) * kind.byte_width
        return TEXT if text else NUMBER
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, datetime.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    return value


def stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which dates, times and timestamps are the numbers that are stored, at any depth."""
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_dictionary(kind):
        return stored_type(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(stored_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(stored_type(kind.key_type), stored_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(stored_type(kind.value_type)))
    return kind


def as_numbers(table: pa.Table) -> pa.Table:
    """Convert dates, times and timestamps to numbers."""
    for i, field in enumerate(table.schema):
        column, wanted = table.column(i), stored_type(field.type)
        if wanted != column.type:
            table = table.set_column(i, pa.field(field.name, wanted), column.cast(wanted))
    return table


def nested(slot: Any, text: bool) -> Any:
    """Return a slot of pyfeed as nested lists."""
    if not hasattr(slot, "lod"):
        return slot.tobytes() if slot.dtype == np.uint8 and slot.ndim == 1 else slot.item()
    data = slot.data
    levels = [level.tolist() for level in slot.lod]
    values: list[Any]
    if text:
        ends = levels.pop()
        values = [data[a:b].tobytes() for a, b in itertools.pairwise(ends)]
    else:
        values = [one.tobytes() for one in data] if data.ndim > 1 else data.tolist()
    for ends in reversed(levels):
        values = [values[a:b] for a, b in itertools.pairwise(ends)]
    return values[0]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (a != a and b != b)


def compare(path: Path) -> list[str]:
    """Return what differs in a file, and print what is refused."""
    try:
        table: pa.Table | None = as_numbers(pq.ParquetFile(path).read())
    except Exception as error:  # whatever pyarrow raises
        table, why = None, error
    try:
        count = len(pyfeed.open_parquet(path, default=NUMBER))
    except pyfeed.errors.Error as error:
        kind = "refused by both" if table is None else type(error).__name__
        print(f"{path}: {kind}: {error}")
        return [f"{path}: {error}"] if table is not None and isinstance(error, pyfeed.errors.CorruptRecordError) else []
    if table is None:
        try:
            for _ in pyfeed.open_parquet(path, default=NUMBER):
                pass
        except pyfeed.errors.Error as error:
            print(f"{path}: refused by both: {error}")
            return []
        print(f"{path}: read, but refused by pyarrow: {why}")
        return []
    if count != table.num_rows:
        return [f"{path}: expected {table.num_rows} rows, found {count}"]
    rows = table.to_pylist() if table.num_columns else []
    wrong = []
    columns = [leaf for i, f in enumerate(table.schema) for leaf in leaves(f.name, f.type, lambda r, n=f.name: r[n])]
    for number, (name, kind, get) in enumerate(columns):
        try:
            read = list(pyfeed.open_parquet(path, columns=[number], default=1 if pa.types.is_boolean(kind) else NUMBER))
        except pyfeed.errors.Error as error:
            print(f"{path}: {name}: {type(error).__name__}: {error}")
            if isinstance(error, pyfeed.errors.CorruptRecordError):
                wrong.append(f"{path}: {name}: {error}")
            continue
        text = pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind)
        for i, (row, (slot,)) in enumerate(zip(rows, read, strict=True)):
            value = get(row)
            depth = len(getattr(slot, "lod", ())) - text
            expected, found = plain(value, kind, depth), nested(slot, text)
            if not same(expected, found):
                wrong.append(f"{path}: {name}, row {i}: expected {expected!r}, found {found!r}")
                break
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    folders = os.environ.get("PYFEED_PARQUET_TESTING", "").split(":")
    parser.add_argument("folders", nargs="*", default=[folder for folder in folders if folder])
    folders = parser.parse_args().folders
    files = sorted(path for folder in folders for path in Path(folder).rglob("*.parquet"))
    if not files:
        parser.error("expected folders with Parquet files, of PYFEED_PARQUET_TESTING or as arguments, found none")
    wrong = [line for path in files for line in compare(path)]
    print(f"{len(files)} files, {len(wrong)} that differ")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
