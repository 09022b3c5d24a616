"""Writes the Parquet files of Spark, with the same table as make.py. Needs pyspark and Java.

spark_legacy.parquet is written as Spark before 1.6 and Hive do: other names in lists, and times of 96 bits.
"""

import datetime
import shutil
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import types as t

HERE = Path(__file__).parent
ROWS = 60
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

SCHEMA = t.StructType(
    [
        t.StructField("i", t.LongType()),
        t.StructField("f", t.DoubleType()),
        t.StructField("s", t.StringType()),
        t.StructField("n", t.IntegerType()),
        t.StructField("b", t.BooleanType()),
        t.StructField("t", t.TimestampType()),
        t.StructField("l", t.ArrayType(t.IntegerType())),
        t.StructField("ls", t.ArrayType(t.StringType())),
        t.StructField("ll", t.ArrayType(t.ArrayType(t.LongType()))),
    ]
)


def row(i: int) -> tuple:
    return (
        i * i - 50,
        i / 4,
        f"row {i % 7}" * (i % 3),
        None if i % 5 == 0 else i,
        i % 3 == 0,
        EPOCH + datetime.timedelta(microseconds=1_000_003 * i),
        list(range(i % 4)),
        None if i % 6 == 5 else ["x" * k for k in range(i % 3)],
        [list(range(k)) for k in range(i % 4)],
    )


def write(name: str, compression: str, **settings: str) -> None:
    spark = SparkSession.builder.master("local[1]").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    for key, value in settings.items():
        spark.conf.set("spark.sql.parquet." + key, value)
    with tempfile.TemporaryDirectory() as folder:
        table = spark.createDataFrame([row(i) for i in range(ROWS)], SCHEMA).coalesce(1)
        table.write.parquet(folder + "/table", compression=compression)
        (part,) = Path(folder, "table").glob("part-*.parquet")
        shutil.copyfile(part, HERE / name)


write("spark.parquet", "snappy", outputTimestampType="TIMESTAMP_MICROS")
write("spark_legacy.parquet", "gzip", outputTimestampType="INT96", writeLegacyFormat="true")
