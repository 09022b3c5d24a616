"""Writes the files of this folder, and expected.json with the rows of each as readers/formattest formats them.

It was run with pyarrow 26.0.1, polars 2.1.0 and datasets 5.2.0: pip install pyarrow polars datasets Pillow.
"""

import datetime
import decimal
import json
import pathlib
import shutil

import datasets
import numpy as np
import polars
import pyarrow as pa
from pyarrow import ipc

HERE = pathlib.Path(__file__).parent
EXPECTED = {}


def number(v):
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, float):
        return f"{v:g}"
    return str(v)


def quoted(v):
    return json.dumps(v if isinstance(v, str) else v.decode(), ensure_ascii=False)


def flat(v):
    """Return all numbers of nested lists."""
    return [n for x in v for n in flat(x)] if isinstance(v, list) else [number(v)]


def numbers(v):
    return "[" + " ".join(flat(v)) + "]"


def splits(lengths):
    return "[" + " ".join(str(sum(lengths[:i])) for i in range(len(lengths) + 1)) + "]"


def nested(v):
    """Return a list of lists of numbers."""
    return f"{numbers(v)}lod[{splits([len(x) for x in v])}]"


def texts(v):
    return f"{quoted(''.join(v))}lod[{splits([len(x.encode()) for x in v])}]"


def array(*dims):
    return lambda v: f"{numbers(v)}dims[{' '.join(map(str, dims))}]"


def write(name, batches, formats, options=None):
    """Write record batches, and note their rows; formats has a function for each column."""
    new = ipc.new_stream if name.endswith("s") else ipc.new_file
    with new(str(HERE / name), batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    rows = []
    for batch in batches:
        columns = [[f(v) for v in c.to_pylist()] for f, c in zip(formats, batch.columns, strict=True)]
        rows += [" ".join(row) for row in zip(*columns, strict=True)]
    EXPECTED[name] = rows


def batch(**columns):
    return pa.record_batch(columns)


def write_numbers():
    integers = {
        f"{k}{n}": pa.type_for_alias(f"{'u' if k == 'u' else ''}int{8 * n}") for n in (1, 2, 4, 8) for k in "iu"
    }
    types = integers | {"f4": pa.float32(), "f8": pa.float64()}
    batches = []
    for first, n in [(0, 4), (4, 0), (4, 7)]:
        columns = {name: pa.array([k * 3 for k in range(first, first + n)], t) for name, t in types.items()}
        columns["f2"] = pa.array(np.arange(first, first + n, dtype="float16"), pa.float16())
        columns["b"] = pa.array([k % 3 == 0 for k in range(first, first + n)], pa.bool_())
        batches.append(batch(**columns))
    formats = [number] * 10 + [
        lambda v: f"{np.float16(v).view('uint16'):04x}"[2:] + f"{np.float16(v).view('uint16'):04x}"[:2],
        number,
    ]
    for name in ["numbers.arrow", "numbers.arrows"]:
        write(name, batches, formats)


def write_times():
    day = datetime.datetime(2024, 2, 29, 12, 30)
    columns = {
        "date32": pa.array([1, 2], pa.int32()).cast(pa.date32()),
        "date64": pa.array([86400000, 0], pa.int64()).cast(pa.date64()),
        "time32": pa.array([5, 6], pa.int32()).cast(pa.time32("ms")),
        "time64": pa.array([7, 8], pa.int64()).cast(pa.time64("ns")),
        "timestamp": pa.array([day, day], pa.timestamp("us", "UTC")),
        "duration": pa.array([9, -9], pa.duration("s")),
        "decimal": pa.array([decimal.Decimal("12.25"), decimal.Decimal("-0.5")], pa.decimal128(10, 3)),
        "decimal256": pa.array([decimal.Decimal("-3.5"), decimal.Decimal("1e30")], pa.decimal256(60, 2)),
        "half": pa.array([[1, 2], [3, 4]], pa.list_(pa.int16(), 2)),
    }
    micro = int(day.replace(tzinfo=datetime.UTC).timestamp()) * 10**6
    batches = [batch(**columns)]
    write("times.arrow", batches, [str] * 9)
    EXPECTED["times.arrow"] = [f"1 86400000 5 7 {micro} 9 12.25 -3.5 [1 2]", f"2 0 6 8 {micro} -9 -0.5 1e+30 [3 4]"]


def write_texts():
    def columns(words):
        return {
            "utf8": pa.array(words),
            "binary": pa.array([w.encode() for w in words], pa.binary()),
            "large": pa.array(words, pa.large_utf8()),
            "view": pa.array(words, pa.string_view()),
            "n": pa.array(range(len(words)), pa.int16()),
            "bytes4": pa.array([w.encode().ljust(4, b"_")[:4] for w in words], pa.binary(4)),
        }

    batches = [
        batch(**columns(words))
        for words in (
            ["a", "", "bcd"],
            ["a word that is longer than twelve bytes", "é", "x" * 13, "another longer word"],
        )
    ]
    formats = [quoted] * 4 + [number, lambda v: numbers(list(v))]
    write("texts.arrow", batches, formats)
    write("texts.arrows", batches, formats)
    write("word.arrow", [b.select(["utf8"]) for b in batches], [quoted])
    for codec in ("lz4", "zstd"):
        options = ipc.IpcWriteOptions(compression=codec)
        words = [f"word {i % 5} of many that repeat" for i in range(100)]
        write(
            f"{codec}.arrow",
            [batch(n=pa.array(range(100), pa.int32()), s=words), batch(n=pa.array([7], pa.int32()), s=["end"])],
            [number, quoted],
            options,
        )
    polars.DataFrame(
        {"n": [1, 2, 3], "s": ["a", "a text of more than twelve bytes", ""], "l": [[1.5], [], [2.0, 3.0]]}
    ).write_ipc(HERE / "polars.ipc", compression="lz4")
    EXPECTED["polars.ipc"] = ['1 "a" [1.5]', '2 "a text of more than twelve bytes" []', '3 "" [2 3]']


def write_lists():
    ints = [[1, 2, 3], [], [4], [5, 6]]
    deep = [[[1.0], [2.0, 3.0]], [], [[], [4.0]], [[5.0]]]
    words = [["a", "bc"], [], [""], ["def", "g", "h"]]
    columns = {
        "ints": pa.array(ints, pa.list_(pa.int32())),
        "large": pa.array(ints, pa.large_list(pa.float32())),
        "deep": pa.array(deep, pa.list_(pa.list_(pa.float64()))),
        "words": pa.array(words),
        "fixed": pa.array([[[k, k + 1, k + 2], [k, k, k]] for k in range(4)], pa.list_(pa.list_(pa.int16(), 3), 2)),
        "pairs": pa.array([[[1, 2]], [], [[3, 4], [5, 6]], [[7, 8]]], pa.list_(pa.list_(pa.uint8(), 2))),
        "point": pa.array([{"x": k, "name": {"text": f"n{k}"}} for k in range(4)]),
        "map": pa.array([[("k", 1)], [], [("a", 2), ("b", 3)], [("c", 4)]], pa.map_(pa.string(), pa.int64())),
        "flags": pa.array([[True, False], [], [True], [False] * 9]),
    }

    def write_both(name, options=None):
        one = batch(**columns)
        batches = [one.slice(0, 3), one.slice(1, 3)]
        write(name, batches, [str] * len(columns), options)
        rows = []
        for k in [0, 1, 2, 1, 2, 3]:
            pairs = columns["pairs"][k].as_py()
            entries = columns["map"][k].as_py()
            rows.append(
                " ".join(
                    [
                        numbers(ints[k]),
                        numbers([float(v) for v in ints[k]]),
                        nested(deep[k]),
                        texts(words[k]),
                        array(2, 3)(columns["fixed"][k].as_py()),
                        f"{numbers(pairs)}dims[{len(pairs)} 2]",
                        number(k),
                        quoted(f"n{k}"),
                        texts([key for key, _ in entries]),
                        numbers([v for _, v in entries]),
                        numbers(columns["flags"][k].as_py()),
                    ]
                )
            )
        EXPECTED[name] = rows

    write_both("lists.arrow")
    write_both("lists.arrows", ipc.IpcWriteOptions(compression="zstd"))


def write_nulls():
    columns = {
        "n": pa.array([1, None, 3, 4], pa.int32()),
        "f": pa.array([0.5, None, None, 1.5]),
        "s": pa.array(["a", "b", None, "d"]),
        "l": pa.array([[1, None], None, [2], []], pa.list_(pa.int64())),
        "b": pa.array([True, None, False, True]),
        "point": pa.array([{"x": 1}, None, {"x": None}, {"x": 4}]),
        "none": pa.nulls(4),
    }
    write("nulls.arrow", [batch(**columns)], [str] * 7)
    # Read with the default 1.
    EXPECTED["nulls.arrow"] = [
        '1 0.5 "a" [1 1] true 1 1',
        '1 1 "b" [] true 1 1',
        '3 1 "1" [2] false 1 1',
        '4 1.5 "d" [] true 4 1',
    ]


def write_dictionaries():
    schema = pa.schema(
        {
            "s": pa.dictionary(pa.int8(), pa.string()),
            "n": pa.dictionary(pa.uint16(), pa.int64()),
            "l": pa.list_(pa.dictionary(pa.int32(), pa.string())),
        }
    )

    def one(words, numbers_, lists):
        values = pa.array([w for words in lists for w in words]).dictionary_encode()
        offsets = pa.array(np.cumsum([0] + [len(w) for w in lists]), pa.int32())
        return pa.record_batch(
            [
                pa.array(words).dictionary_encode().cast(schema.field("s").type),
                pa.array(numbers_, pa.int64()).dictionary_encode().cast(schema.field("n").type),
                pa.ListArray.from_arrays(offsets, values).cast(schema.field("l").type),
            ],
            schema=schema,
        )

    first = one(["a", "b", "a"], [10, 10, 20], [["x"], ["y", "x"], []])
    # Each dictionary begins with the one before, so it is written as a delta; or it replaces it.
    grown = pa.record_batch(
        [
            pa.DictionaryArray.from_arrays(pa.array([2, 0], pa.int8()), pa.array(["a", "b", "c"])),
            pa.DictionaryArray.from_arrays(pa.array([2, 1], pa.uint16()), pa.array([10, 20, 30])),
            pa.ListArray.from_arrays(
                pa.array([0, 2, 2], pa.int32()),
                pa.DictionaryArray.from_arrays(pa.array([2, 1], pa.int32()), pa.array(["x", "y", "zz"])),
            ),
        ],
        schema=schema,
    )
    other = one(["q", "r"], [5, 6], [["m"], ["n"]])
    formats = [quoted, number, texts]
    delta = ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    write("dictionary.arrow", [first, first], formats)
    write("delta.arrow", [first, grown], formats, delta)
    write("replaced.arrows", [first, grown, other, first], formats, delta)


def write_refused():
    n = pa.array([1, 2], pa.int32())
    words = pa.array(["a", "b"])
    deep = pa.array([[[[1]]], []], pa.list_(pa.list_(pa.list_(pa.int8()))))
    columns = {
        "first": n,
        "dense": pa.UnionArray.from_dense(pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [n, words]),
        "sparse": pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [n, words]),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), n),
        "interval": pa.array([(1, 2, 3), (4, 5, 6)], pa.month_day_nano_interval()),
        "deep": deep,
        "deep_words": pa.array([[["a"]], []]),
        "list_view": pa.array([[1], [2]], pa.list_view(pa.int8())),
        "fixed_words": pa.array([["a"], ["b"]], pa.list_(pa.string(), 1)),
        "fixed_lists": pa.array([[[1]], [[2]]], pa.list_(pa.list_(pa.int8()), 1)),
        "null_lists": pa.array([[None], []], pa.list_(pa.null())),
        "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), pa.array([[1]])),
        "views": pa.array(["a view of more than twelve bytes", "b"], pa.string_view()),
        "last": n,
    }
    write("refused.arrow", [batch(**columns)], [str] * len(columns))
    del EXPECTED["refused.arrow"]


def write_external_image():
    """Write images of Hugging Face, the second of which is in a file of its own."""
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    values = [{"bytes": b"png0", "path": None}, {"bytes": None, "path": "images/1.png"}]
    about = {"info": {"features": {"image": {"_type": "Image"}}}}
    schema = pa.schema({"image": image, "label": pa.int64()}, {"huggingface": json.dumps(about)})
    with ipc.new_file(str(HERE / "images.arrow"), schema) as writer:
        writer.write_batch(pa.record_batch([pa.array(values, image), pa.array([0, 1])], schema=schema))


def write_hugging_face():
    folder = HERE / "dataset"
    shutil.rmtree(folder, ignore_errors=True)
    features = datasets.Features(
        {
            "tokens": datasets.List(datasets.Value("int32")),
            "label": datasets.ClassLabel(names=["no", "yes"]),
            "matrix": datasets.Array2D((2, 3), "float32"),
            "grow": datasets.Array2D((None, 2), "int64"),
            "image": datasets.Image(decode=False),
            "pair": datasets.List(datasets.Value("int64"), length=2),
        }
    )
    rows = {
        "tokens": [[1, 2], [], [3], [4, 5, 6]],
        "label": [0, 1, 1, 0],
        "matrix": [[[k, 1, 2], [3, 4, 5]] for k in range(4)],
        "grow": [[[k, 1]] * k for k in range(4)],
        "image": [{"bytes": f"png{k}".encode(), "path": None} for k in range(4)],
        "pair": [[k, -k] for k in range(4)],
    }
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(folder, num_shards=2)
    EXPECTED["dataset"] = [
        " ".join(
            [
                numbers(rows["tokens"][k]),
                number(rows["label"][k]),
                array(2, 3)(rows["matrix"][k]),
                f"{numbers(rows['grow'][k])}dims[{k} 2]",
                f'"png{k}"',
                numbers(rows["pair"][k]),
            ]
        )
        for k in range(4)
    ]


if __name__ == "__main__":
    for file in HERE.glob("*.arrow*"):
        file.unlink()
    write_numbers()
    write_times()
    write_texts()
    write_lists()
    write_nulls()
    write_external_image()
    write_dictionaries()
    write_refused()
    write_hugging_face()
    (HERE / "expected.json").write_text(json.dumps(EXPECTED, indent=1, ensure_ascii=False) + "\n")
