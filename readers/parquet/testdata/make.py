"""Writes the Parquet files of the tests, each with another program or other options.

All but types.parquet and nulls.parquet have the same table.

The values are functions of the number of the row, which the test in fixtures_test.go computes again. Needs pyarrow,
pandas, polars, duckdb and fastparquet. parquet_go.go.txt writes the file of parquet-go, and make_spark.py those of
Spark. Fixtures of another version of a program need not have the same bytes.
"""

import datetime
import decimal
from pathlib import Path

import duckdb
import fastparquet
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
ROWS = 60
EPOCH = datetime.datetime(1970, 1, 1)


def flat() -> dict[str, list]:
    rows = range(ROWS)
    return {
        "i": [i * i - 50 for i in rows],
        "f": [i / 4 for i in rows],
        "s": [f"row {i % 7}" * (i % 3) for i in rows],
        "n": [None if i % 5 == 0 else i for i in rows],
        "b": [i % 3 == 0 for i in rows],
        "t": [EPOCH + datetime.timedelta(microseconds=1_000_003 * i) for i in rows],
    }


def lists() -> dict[str, list]:
    rows = range(ROWS)
    return {
        "l": [list(range(i % 4)) for i in rows],
        "ls": [None if i % 6 == 5 else ["x" * k for k in range(i % 3)] for i in rows],
        "ll": [[list(range(k)) for k in range(i % 4)] for i in rows],
    }


SCHEMA = pa.schema(
    [
        pa.field("i", pa.int64(), nullable=False),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("n", pa.int32()),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us")),
    ]
)
LISTS = pa.schema(
    [
        ("l", pa.list_(pa.int32())),
        ("ls", pa.list_(pa.string())),
        ("ll", pa.list_(pa.list_(pa.int64()))),
    ]
)


def by_pyarrow() -> None:
    table = pa.table({**flat(), **lists()}, schema=pa.unify_schemas([SCHEMA, LISTS]))
    for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4"):
        pq.write_table(table, HERE / f"pyarrow_{codec}.parquet", compression=codec, row_group_size=25)
    pq.write_table(
        table,
        HERE / "pyarrow_v2.parquet",
        data_page_version="2.0",
        data_page_size=64,
        write_page_checksum=True,
        compression="zstd",
        row_group_size=35,
    )
    delta = {"i": "DELTA_BINARY_PACKED", "n": "DELTA_BINARY_PACKED", "t": "DELTA_BINARY_PACKED"}
    delta |= {"s": "DELTA_BYTE_ARRAY", "f": "BYTE_STREAM_SPLIT", "b": "RLE", "l.list.element": "DELTA_BINARY_PACKED"}
    delta |= {"ls.list.element": "DELTA_LENGTH_BYTE_ARRAY", "ll.list.element.list.element": "BYTE_STREAM_SPLIT"}
    pq.write_table(table, HERE / "pyarrow_delta.parquet", use_dictionary=False, column_encoding=delta)
    # In the flavor of old Spark: lists with other names, and times of 96 bits.
    pq.write_table(
        table,
        HERE / "pyarrow_spark.parquet",
        flavor="spark",
        use_deprecated_int96_timestamps=True,
        use_compliant_nested_type=False,
        store_schema=False,
    )
    tenths = [decimal.Decimal(i * i - 50).scaleb(-1) for i in range(ROWS)]
    numbers = np.arange(ROWS)
    others = pa.table(
        {
            "d32": pa.array(tenths, pa.decimal32(9, 1)),
            "d64": pa.array(tenths, pa.decimal64(18, 1)),
            "d128": pa.array(tenths, pa.decimal128(38, 1)),
            "date": pa.array(numbers.astype("i4"), pa.date32()),
            "time": pa.array(numbers * 1_000_003, pa.time64("us")),
            "u8": pa.array(numbers.astype("u1")),
            "i16": pa.array(-numbers.astype("i2")),
            "u64": pa.array(np.uint64(2**64 - 1) - numbers.astype("u8")),
            "f16": pa.array((numbers / 4).astype("f2")),
            "fixed": pa.array([b"%04d" % i for i in numbers], pa.binary(4)),
            "st": pa.array([{"x": int(i), "y": {"z": f"z{i}"}} for i in numbers]),
            "m": pa.array([[(f"k{k}", k) for k in range(i % 3)] for i in numbers], pa.map_(pa.string(), pa.int64())),
            "v": pa.array([[i, i + 1, i + 2] for i in numbers], pa.list_(pa.float32(), 3)),
        }
    )
    pq.write_table(others, HERE / "types.parquet", store_decimal_as_integer=True)


def nulls() -> None:
    """Write a null number, a null in a list, null lists, and a null text."""
    table = pa.table(
        {
            "n": pa.array([1, None, 3, 4], pa.int32()),
            "l": pa.array([[1, None], None, [2], []], pa.list_(pa.int64())),
            "whole": pa.array([[1], None, [2], None], pa.list_(pa.int64())),
            "s": pa.array(["a", "b", None, "d"]),
        }
    )
    pq.write_table(table, HERE / "nulls.parquet", compression="none", store_schema=False)


def main() -> None:
    by_pyarrow()
    nulls()
    table = pa.table(flat(), schema=SCHEMA)
    frame = table.to_pandas(types_mapper={pa.int32(): pd.Int32Dtype()}.get)
    frame.to_parquet(HERE / "pandas.parquet", engine="pyarrow")
    fastparquet.write(str(HERE / "fastparquet.parquet"), frame, compression="GZIP", row_group_offsets=[0, 20])
    all_columns = pl.from_arrow(pa.table({**flat(), **lists()}, schema=pa.unify_schemas([SCHEMA, LISTS])))
    all_columns.write_parquet(HERE / "polars.parquet", row_group_size=16)
    everything = all_columns.to_arrow()  # noqa: F841 (DuckDB finds it by its name)
    duckdb.sql("COPY (FROM everything) TO '%s' (FORMAT parquet, COMPRESSION zstd)" % (HERE / "duckdb.parquet"))
    duckdb.sql("COPY (FROM everything) TO '%s' (FORMAT parquet, PARQUET_VERSION v2)" % (HERE / "duckdb_v2.parquet"))


if __name__ == "__main__":
    main()
