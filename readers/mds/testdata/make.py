"""Make the data sets of this folder with mosaicml-streaming 0.13, and expected.json with what it reads from them.

pip install mosaicml-streaming && python make.py
"""

import decimal
import json
import pathlib
import shutil

import numpy as np
from streaming import MDSWriter
from streaming.base.format import reader_from_json

HERE = pathlib.Path(__file__).parent
COLUMNS = {
    "b": "bytes",
    "d": "str_decimal",
    "f": "str_float",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "i": "int",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "i8": "int8",
    "j": "json",
    "n": "ndarray",
    "nd": "ndarray:int32",
    "nds": "ndarray:float32:2,3",
    "s": "str",
    "si": "str_int",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "u8": "uint8",
    "wide": "ndarray:uint8",
}


def sample(i):
    return {
        "b": bytes(range(i)),
        "d": decimal.Decimal("1.10") + i,
        "f": i / 3,
        "f16": np.float16(i / 4),
        "f32": np.float32(i / 5),
        "f64": np.float64(i / 7),
        "i": -i,
        "i16": np.int16(-300 * i),
        "i32": np.int32(-70000 * i),
        "i64": np.int64(-(2**40) * i),
        "i8": np.int8(-i),
        "j": {"i": i, "list": [1, None, "ł"]},
        "n": np.arange(2 * (i + 1), dtype="int64").reshape(i + 1, 2) * i,
        "nd": np.arange(i + 1, dtype="int32"),
        "nds": np.arange(6, dtype="float32").reshape(2, 3) + i,
        "s": "łąka " * (i % 3),
        "si": 10**17 + i,
        "u16": np.uint16(65535 - i),
        "u32": np.uint32(2**32 - 1 - i),
        "u64": np.uint64(2**64 - 1 - i),
        "u8": np.uint8(255 - i),
        "wide": np.full((1, 300), i, "uint8"),
    }


def plain(value):
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "shape": list(value.shape), "values": value.ravel().tolist()}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (dict, decimal.Decimal)):
        return json.dumps(value) if isinstance(value, dict) else str(value)
    return value.item() if isinstance(value, np.generic) else value


def write(name, columns, samples, **options):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    with MDSWriter(out=str(folder), columns=columns, **options) as writer:
        for one in samples:
            writer.write(one)
    return folder


def main():
    samples = [sample(i) for i in range(10)]
    folder = write("plain", COLUMNS, samples, hashes=["md5", "sha1", "xxh32", "xxh64"], size_limit=5000)
    expected = []
    for shard in json.loads((folder / "index.json").read_text())["shards"]:
        reader = reader_from_json(str(folder), "", shard)
        expected += [{key: plain(value) for key, value in reader[i].items()} for i in range(len(reader))]
    (HERE / "expected.json").write_text("[\n" + ",\n".join(map(json.dumps, expected)) + "\n]\n")
    few = {"s": "str", "u8": "uint8"}
    for compression in ("zstd", "gz", "snappy", "br", "bz2"):
        write(compression, few, samples, compression=compression, hashes=["sha1"], size_limit=300)
    write("xxh3", few, samples, hashes=["xxh3_64"])
    write("fixed", {"nds": "ndarray:float32:2,3", "u8": "uint8"}, samples)
    write("pkl", {"p": "pkl", "u8": "uint8"}, [{"p": {1, 2}, "u8": np.uint8(i)} for i in range(3)])


if __name__ == "__main__":
    main()
