"""Formats, tested with other libraries: each side reads the files of the other. Damaged files are refused."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import math
import os
import re
import struct
import tarfile
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tfrecord
import webdataset
from pyfeed.typing import Slot

import pyfeed
from pyfeed import (
    LoDTensor,
    open_csv,
    open_files,
    open_idx,
    open_npy,
    open_npz,
    open_raw,
    open_recordio,
    open_tar,
    open_tfrecord,
    open_writer,
)

from . import recordio_reference as reference
from .support import DTYPES, Array, raises, same

IO = ["map", "read"]


def some(dtype: str, shape: tuple[int, ...]) -> Array:
    """Return random bits, which include NaNs and denormals."""
    random = np.random.default_rng(len(shape))
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    return random.integers(0, 256, (*shape, np.dtype(dtype).itemsize), dtype=np.uint8).view(dtype).reshape(shape)


def swapped(array: Array) -> Array:
    return array.astype(array.dtype.newbyteorder(">"))


def column(reader: pyfeed.Reader, slot: int = 0) -> list[Any]:
    """Return a slot of the rest of the pass, with byte strings as bytes."""
    out = [row[slot] for row in reader]
    return [x.bytes_list()[0] if isinstance(x, LoDTensor) else x for x in out]


def rows_of(reader: pyfeed.Reader, array: Array) -> None:
    """Expect the rest of the pass to be the rows of an array."""
    found = column(reader)
    assert len(found) == len(array)
    for row, expected in zip(found, array, strict=True):
        same(row, np.array(expected))


# ---- NumPy ----


@pytest.mark.parametrize("io", IO)
@pytest.mark.parametrize("dtype", DTYPES)
def test_npy_by_numpy(tmp_path: Path, dtype: str, io: str) -> None:
    for shape in ((5,), (4, 3), (2, 3, 4), (7, 0), (3, 1)):
        array = some(dtype, shape)
        for given in (array, np.asfortranarray(array), swapped(array), swapped(np.asfortranarray(array))):
            np.save(tmp_path / "a.npy", given)
            reader = open_npy(tmp_path / "a.npy", io=io)
            assert reader.slots == [Slot("", dtype, shape[1:], 0)]
            rows_of(reader, array)
            (whole,) = column(open_npy(tmp_path / "a.npy", instances="file", io=io))
            same(whole, array)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions_of_npy(tmp_path: Path, version: tuple[int, int]) -> None:
    array = some("float32", (3, 2))
    with open(tmp_path / "a.npy", "wb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the warning that older readers may not know the version
        np.lib.format.write_array(file, array, version=version)
    rows_of(open_npy(tmp_path / "a.npy"), array)


def test_npy_without_dimensions_and_without_rows(tmp_path: Path) -> None:
    for instances in ("rows", "file"):
        np.save(tmp_path / "a.npy", np.array(5, ">i4"))
        (found,) = column(open_npy(tmp_path / "a.npy", instances=instances))
        same(found, np.array(5, "int32"))
    np.save(tmp_path / "a.npy", np.zeros((0, 3), "uint16"))
    reader = open_npy(tmp_path / "a.npy")
    assert (reader.slots, column(reader)) == ([Slot("", "uint16", (3,), 0)], [])
    (found,) = column(open_npy(tmp_path / "a.npy", instances="file"))
    same(found, np.zeros((0, 3), "uint16"))


@pytest.mark.parametrize("array", [np.array([1, "a"], object), np.array(["abc"]), np.array([1], "M8[s]")])
def test_npy_of_what_is_no_number(tmp_path: Path, array: Array) -> None:
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(pyfeed.errors.DTypeError, match=r"a\.npy, byte 20: dtype: expected a bool, an integer, a float"):
        open_npy(tmp_path / "a.npy")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_npy_for_numpy(tmp_path: Path, dtype: str, suffix: str) -> None:
    if suffix == ".zst":
        array = some(dtype, (3, 2))
        with open_writer(tmp_path / "a.npy.zst") as writer:
            for row in array:
                writer.write((row,))
        rows_of(open_npy(tmp_path / "a.npy.zst"), array)
        return
    for shape in ((5,), (4, 3), (2, 3, 4)):
        array = some(dtype, shape)
        with open_writer(tmp_path / f"a.npy{suffix}") as writer:
            for row in array:
                writer.write((row,))
        data = (tmp_path / f"a.npy{suffix}").read_bytes()
        same(np.load(io.BytesIO(gzip.decompress(data) if suffix else data)), array)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("io", IO)
def test_npz_by_numpy(tmp_path: Path, save: Callable[..., None], io: str) -> None:
    arrays = {dtype: some(dtype, (4, 3)) for dtype in DTYPES}
    given = {k: [a, np.asfortranarray(a), swapped(a)][i % 3] for i, (k, a) in enumerate(arrays.items())}
    save(tmp_path / "a.npz", **given)
    reader = open_npz(tmp_path / "a.npz", io=io)
    assert reader.slots == [Slot(dtype, dtype, (3,), 0) for dtype in DTYPES]
    found = list(reader)
    assert len(found) == 4
    for r, row in enumerate(found):
        for x, array in zip(row, arrays.values(), strict=True):
            same(x, array[r])
    (whole,) = open_npz(tmp_path / "a.npz", arrays=["int8", "bool"], instances="file", io=io)
    same(whole[0], arrays["int8"])
    same(whole[1], arrays["bool"])


@pytest.mark.parametrize("compression", ["none", "deflate"])
def test_npz_for_numpy(tmp_path: Path, compression: str) -> None:
    arrays = {dtype: some(dtype, (4, 3)) for dtype in DTYPES}
    with open_writer(tmp_path / "a.npz", names=list(arrays), compression=compression) as writer:
        for row in zip(*arrays.values(), strict=True):
            writer.write(row)
    found = np.load(tmp_path / "a.npz")
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        same(found[name], array)


# ---- TFRecord ----


RECORDS = [b"", b"a", bytes(range(256)), b"long" * 5000, b"last"]


def frame(record: bytes) -> bytes:
    """Frame a record as TensorFlow does: the size and the contents each have a masked CRC-32C."""
    size = struct.pack("<Q", len(record))
    return b"".join(
        (size, struct.pack("<I", reference.masked(size)), record, struct.pack("<I", reference.masked(record)))
    )


PACK: dict[str, Callable[[bytes], bytes]] = {"none": bytes, "gzip": gzip.compress, "zlib": zlib.compress}
UNPACK: dict[str, Callable[[bytes], bytes]] = {"none": bytes, "gzip": gzip.decompress, "zlib": zlib.decompress}


@pytest.mark.parametrize("compression", PACK)
@pytest.mark.parametrize("io", IO)
def test_raw_records_of_tfrecord(tmp_path: Path, compression: str, io: str) -> None:
    framed = b"".join(map(frame, RECORDS))
    (tmp_path / "a.tfrecord").write_bytes(PACK[compression](framed))
    for told in ("auto", compression):
        assert column(open_tfrecord(tmp_path / "a.tfrecord", compression=told, io=io)) == RECORDS
    with open_writer(tmp_path / "b.tfrecord", compression=compression) as writer:
        for record in RECORDS:
            writer.write((record,))
    data = (tmp_path / "b.tfrecord").read_bytes()
    assert UNPACK[compression](data) == framed
    if compression != "zlib":  # the package tfrecord does not support it
        theirs = tfrecord.tfrecord_iterator(
            str(tmp_path / "b.tfrecord"), compression_type="gzip" if compression == "gzip" else None
        )
        assert [bytes(record) for record in theirs] == RECORDS


INTS = [0, 1, -1, 127, 128, 2**31, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -1.5, 3.25e-40, 3.4e38]


def test_examples_by_the_tfrecord_package(tmp_path: Path) -> None:
    with_writer = tfrecord.TFRecordWriter(str(tmp_path / "a.tfrecord"))
    for n in range(1, 9):
        with_writer.write(
            {
                "ints": (INTS[:n], "int"),
                "floats": (FLOATS[: n % 4 + 1], "float"),
                "words": ([b"x" * i for i in range(n)], "byte"),
                "label": (n, "int"),
                "small": ([n, 2 * n], "int"),
                "image": (np.arange(6, dtype="float64").tobytes(), "byte"),
            }
        )
    with_writer.close()
    reader = open_tfrecord(
        tmp_path / "a.tfrecord",
        features={
            "words": {"kind": "variable", "dtype": "bytes"},
            "ints": {"kind": "variable", "dtype": "int64"},
            "floats": {"kind": "variable", "dtype": "float32"},
            "label": "uint8",
            "small": {"dtype": "int32", "shape": (2, 1)},
            "image": {"dtype": "float64", "shape": (2, 3), "raw": True},
            "absent": {"dtype": "float32", "shape": (2,), "default": [1, 2]},
        },
    )
    assert [s.dtype for s in reader.slots] == ["uint8", "int64", "float32", "uint8", "int32", "float64", "float32"]
    found = list(reader)
    assert len(found) == 8
    for n, (words, ints, floats, label, small, image, absent) in enumerate(found, 1):
        assert words.data.tobytes() == b"".join(b"x" * i for i in range(n))
        assert [level.tolist() for level in words.lod] == [[0, n], list(itertools.accumulate(range(n), initial=0))]
        same(ints.data, np.array(INTS[:n]))
        assert ints.lod[0].tolist() == [0, n]
        same(floats.data, np.array(FLOATS[: n % 4 + 1], "float32"))
        same(label, np.array(n, "uint8"))
        same(small, np.array([[n], [2 * n]], "int32"))
        same(image, np.arange(6.0).reshape(2, 3))
        same(absent, np.array([1, 2], "float32"))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if not d.startswith("complex") and d != "float16"])
def test_examples_for_the_tfrecord_package(tmp_path: Path, dtype: str) -> None:
    x = np.array([0, 1, 1, 0, 1]).astype(dtype)
    number = "float" if dtype.startswith("float") else "int"
    features: list[dict[str, Any]] = [
        {"name": "x", "dtype": dtype, "shape": [5]},
        {"name": "y", "kind": "variable", "dtype": dtype},
        {"name": "z", "dtype": "bytes"},
    ]
    with open_writer(tmp_path / "a.tfrecord", features=features) as writer:
        for n in range(1, 5):
            writer.write((x, LoDTensor.from_sequences([x[:n]]), b"z" * n))
    theirs = tfrecord.tfrecord_loader(str(tmp_path / "a.tfrecord"), None, {"x": number, "y": number, "z": "byte"})
    for n, example in enumerate(theirs, 1):
        assert example["x"].tolist() == x.tolist()
        assert np.atleast_1d(example["y"]).tolist() == x[:n].tolist()
        assert bytes(example["z"]) == b"z" * n
    again = list(open_tfrecord(tmp_path / "a.tfrecord", features={f["name"]: f for f in features}))  # type: ignore[misc]
    assert len(again) == 4
    for n, (a, b, c) in enumerate(again, 1):
        same(a, x)
        same(b.data, x[:n])
        assert c.bytes_list() == [b"z" * n]


def test_examples_that_do_not_fit(tmp_path: Path) -> None:
    writer = tfrecord.TFRecordWriter(str(tmp_path / "a.tfrecord"))
    writer.write({"a": ([1, 2], "int")})
    writer.close()
    file = tmp_path / "a.tfrecord"
    with raises(
        pyfeed.errors.ShapeError,
        f'{file}, byte 0, record 0: slot 0: feature "a": expected 3 int64s, shape [3], found 2: use '
        '"shape": [2], or "kind": "variable"',
        slot=0,
    ):
        open_tfrecord(file, features={"a": {"dtype": "int64", "shape": (3,)}}).read()
    with pytest.raises(pyfeed.errors.Error, match=r'feature "a"'):
        open_tfrecord(file, features={"a": "float32"}).read()
    with pytest.raises(pyfeed.errors.Error, match=r'feature "b"'):
        open_tfrecord(file, features={"b": "int64"}).read()


# ---- tar ----


def add(archive: tarfile.TarFile, name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.type = len(data), kind
    archive.addfile(info, io.BytesIO(data))


def npy(array: Array) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array)
    return file.getvalue()


LONG = ["d" * 50 + "/" + "n" * 90, "d" * 120 + "/" + "n" * 40]
LONGER = ["d" * 300 + "/" + "n" * 13, "n" * 200, "d" * 150 + "/" + "n" * 150, "ü/ñ"]


@pytest.mark.parametrize(
    ("form", "names"),
    [
        (tarfile.USTAR_FORMAT, LONG),
        (tarfile.GNU_FORMAT, [*LONG, *LONGER]),
        (tarfile.PAX_FORMAT, [*LONG, *LONGER]),
    ],
)
@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize("io", IO)
def test_tar_by_tarfile(tmp_path: Path, form: int, names: list[str], mode: str, io: str) -> None:
    path = tmp_path / ("a.tar.gz" if mode == "w:gz" else "a.tar")
    with tarfile.open(path, mode, format=form) as archive:  # type: ignore[call-overload]
        add(archive, "dir", kind=tarfile.DIRTYPE)
        for i, name in enumerate(names):
            add(archive, f"{name}.jpg", b"\xff" * (i * 511))
            add(archive, f"{name}.seg.png", b"png%d" % i)
            add(archive, f"{name}.cls", b"%d" % -i)
    reader = open_tar(path, fields=["__key__", "cls", "jpg", "seg.png"], io=io)
    found = [(k.bytes_list()[0].decode(), c.item(), j.bytes_list()[0], p.bytes_list()[0]) for k, c, j, p in reader]
    assert found == [(name, -i, b"\xff" * (i * 511), b"png%d" % i) for i, name in enumerate(names)]


def test_arrays_in_a_tar(tmp_path: Path) -> None:
    arrays = [some(dtype, (3, 2)) for dtype in DTYPES]
    for array in arrays:
        given = [array, np.asfortranarray(array), swapped(array)]
        with tarfile.open(tmp_path / "a.tar", "w") as archive:
            for i, each in enumerate(given):
                add(archive, f"{i}.npy", npy(each))
        found = column(open_tar(tmp_path / "a.tar"))
        assert len(found) == 3
        for each in found:
            same(each, array)


def samples() -> Iterator[dict[str, Any]]:
    for i in range(20):
        yield {
            "__key__": f"sample{i:03d}",
            "jpg": bytes([i]) * (i * 100),
            "cls": i - 3,
            "npy": np.arange(6, dtype="float32").reshape(2, 3) + i,
            "json": i / 8,
            "txt": f"tëxt {i}",
        }


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tgz"])
def test_tar_by_webdataset(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    with webdataset.TarWriter(str(path), compress=suffix != "tar") as writer:
        for sample in samples():
            writer.write(sample)
    fields = ["__key__", "jpg", "cls", "npy", "json", "txt"]
    found = list(open_tar(path, fields=fields))
    assert len(found) == 20
    for (key, jpg, cls, array, number, text), sample in zip(found, samples(), strict=True):
        assert key.bytes_list() == [sample["__key__"].encode()]
        assert jpg.bytes_list() == [sample["jpg"]]
        same(cls, np.array(sample["cls"]))
        same(array, sample["npy"])
        same(number, np.array(sample["json"]))
        assert text.bytes_list() == [sample["txt"].encode()]


def test_tar_for_webdataset(tmp_path: Path) -> None:
    names = ["jpg", "cls", "npy", "json", "txt"]
    with open_writer(tmp_path / "a.tar", names=names) as writer:
        for sample in samples():
            writer.write([np.asarray(x) if isinstance(x, (int, float)) else x for x in map(sample.__getitem__, names)])
    with tarfile.open(tmp_path / "a.tar") as archive:
        assert len(archive.getnames()) == 100
    found = list(webdataset.WebDataset(str(tmp_path / "a.tar"), shardshuffle=False).decode())
    assert len(found) == 20
    for mine, sample in zip(found, samples(), strict=True):
        same(mine["npy"], sample["npy"])
        for name in ("jpg", "cls", "json", "txt"):
            assert mine[name] == sample[name]


# ---- CSV ----

WORDS = [
    "a",
    "",
    "two words",
    "comma, here",
    'a "quote"',
    '"',
    '""',
    "line\nend",
    "line\r\nend",
    "żółć",
    " space ",
    "1",
]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_csv_by_csv(tmp_path: Path, quoting: Any, delimiter: str, end: str) -> None:
    with open(tmp_path / "a.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=quoting)
        writer.writerow(["n", "x, y", "word"])
        for i, word in enumerate(WORDS):
            writer.writerow([i - 5, i / 7, word])
    reader = open_csv(tmp_path / "a.csv", delimiter=delimiter)
    assert reader.slots == [
        Slot("n", "int64", (), 0),
        Slot("x, y", "float64", (), 0),
        Slot("word", "uint8", (-1,), 1),
    ]
    found = [(n.item(), x.item(), word.bytes_list()[0].decode()) for n, x, word in reader]
    assert found == [(i - 5, i / 7, word) for i, word in enumerate(WORDS)]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz"])
def test_csv_for_csv(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    with open_writer(path, names=["n", "x", "flag", "word"]) as writer:
        for i, word in enumerate(WORDS):
            writer.write((np.int64(i - 5), np.float64(i / 7), np.bool_(i % 2), word))
    data = path.read_bytes()
    text = (gzip.decompress(data) if suffix.endswith("gz") else data).decode()
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter="\t" if suffix == "tsv" else ",", strict=True))
    assert rows[0] == ["n", "x", "flag", "word"]
    found = [(int(n), float(x), flag, word) for n, x, flag, word in rows[1:]]
    assert found == [(i - 5, i / 7, ["false", "true"][i % 2], word) for i, word in enumerate(WORDS)]


@pytest.mark.parametrize("dtype", [d for d in DTYPES if not d.startswith("complex")])
def test_numbers_of_csv(tmp_path: Path, dtype: str) -> None:
    if dtype == "bool":
        values = np.array([True, False])
    elif dtype.startswith("float"):
        info = np.finfo(dtype)
        extremes = [info.max, info.min, info.tiny, info.smallest_subnormal, info.eps]
        values = np.array([*extremes, 0, -0.0, 0.1, 1 / 3], dtype)
    else:
        values = np.array([np.iinfo(dtype).min, 0, 1, np.iinfo(dtype).max], dtype)
    with open_writer(tmp_path / "a.csv", names=["x"]) as writer:
        for value in values:
            writer.write((value,))
    lines = (tmp_path / "a.csv").read_text().splitlines()[1:]
    convert: Callable[[str], Any] = {"b": lambda s: s == "true", "f": float}.get(values.dtype.kind, int)
    same(np.array([convert(line) for line in lines], dtype), values)
    if dtype != "float16":
        rows_of(open_csv(tmp_path / "a.csv", column_dtypes={"x": dtype}), values)


def test_dtypes_of_csv_are_told_by_many_records(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,a\n2.5,b\n")
    reader = pyfeed.open_files(tmp_path / "a.csv", on_corrupt="skip")
    assert [slot.dtype for slot in reader.slots] == ["float64", "uint8"]
    assert [x.item() for x, _ in reader] == [1, 2.5]
    assert reader.stats()["details"]["corrupt"] == 0


def test_a_fifo_of_csv_tells_dtypes_by_what_comes_first(tmp_path: Path) -> None:
    pipe = tmp_path / "a.csv"
    os.mkfifo(pipe)
    rows = 200_000  # more than a MiB
    writer = threading.Thread(target=lambda: pipe.write_text("x\n" + "1\n" * 3 + "0.5\n" * rows))
    writer.start()
    reader = pyfeed.open_files(pipe)
    assert reader.slots[0].dtype == "float64"
    assert sum(float(x.sum()) for (x,) in reader.batch(1000)) == 3 + 0.5 * rows
    writer.join()


def test_integers_of_csv_become_no_floats(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,x\n1,2\n18446744073709551617,3\n")
    with pytest.raises(
        pyfeed.errors.DTypeError,
        match=r'byte 9, record 1: line 3, column "id": expected integers that int64 or uint64 holds, found '
        r'"18446744073709551617"; say what it holds by columns=\[\{"columns": "id", "dtype": "float64"\}, ',
    ):
        open_csv(tmp_path / "a.csv", on_corrupt="skip")
    for options in ({"columns": [{"columns": "id", "dtype": "float64"}]}, {"column_dtypes": {"id": "float64"}}):
        assert [row[0].item() for row in open_csv(tmp_path / "a.csv", **options)] == [1, 2.0**64]


def test_misspelt_columns_of_csv(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("label,x\n1,2\n")
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"columns": [{"columns": "lable"}]}, "InvalidArgument", 'there are "label", "x": did you mean "label"?'),
        ({"column_dtypes": {"Label": "int8"}}, "InvalidArgument", 'there are "label", "x": did you mean "label"?'),
        (
            {"columns": [{"columns": "x", "dtpye": "int8"}]},
            "InvalidArgument",
            'columns: unknown field "dtpye"; there are name, columns, dtype, dims, default: did you mean "dtype"?',
        ),
        ({"columns": [{"columns": "x", "dtype": "string"}]}, "DTypeError", "found 'string': did you mean \"bytes\"?"),
        ({"column_dtypes": {"x": "Text"}}, "DTypeError", "found 'Text': did you mean \"bytes\"?"),
    ]
    for options, kind, message in cases:
        with pytest.raises(getattr(pyfeed.errors, kind), match=f"{re.escape(message)}$"):
            open_csv(tmp_path / "a.csv", **options)


def test_csv_that_needs_another_dtype_later_is_not_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.csv").write_text("x\n2\n2.5\n")
    reader = pyfeed.open_files([tmp_path / "a.csv", tmp_path / "b.csv"], interleave=1, on_corrupt="skip")
    assert [reader.read()[0].item() for _ in range(2)] == [1, 2]
    with pytest.raises(pyfeed.errors.DTypeError, match=r'found "2\.5"; the dtype is that of the first MiB') as caught:
        reader.read()
    assert (caught.value.file, caught.value.record, caught.value.slot) == (str(tmp_path / "b.csv"), 1, 0)
    assert reader.stats()["details"]["corrupt"] == 0
    # The dtype is given here, not inferred. A value that does not fit it counts as damage.
    reader = open_csv(
        [tmp_path / "a.csv", tmp_path / "b.csv"], column_dtypes={"x": "int64"}, interleave=1, on_corrupt="skip"
    )
    assert [x.item() for (x,) in reader] == [1, 2]
    assert reader.stats()["details"]["corrupt"] == 1


def test_columns_of_csv(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("# of no use\n1;2;;x\n# nor this\n4;5;6;y\n")
    reader = open_csv(
        tmp_path / "a.csv",
        delimiter=";",
        comment="#",
        header=False,
        missing=-1,
        columns=[{"columns": [2, 0], "dtype": "float32", "name": "v"}, {"columns": -1}],
    )
    found = list(reader)
    same(found[0][0], np.array([-1, 1], "float32"))
    same(found[1][0], np.array([6, 4], "float32"))
    assert [word.bytes_list() for _, word in found] == [[b"x"], [b"y"]]


COLUMNS: dict[str, tuple[Any, list[str], Any]] = {
    "names": (["c", "a"], ["c", "a"], [[3.0, 1]]),
    "numbers": ([-1, 0], ["c", "a"], [[3.0, 1]]),
    "mapping": ({"x": "c", "y": 0}, ["x", "y"], [[3.0, 1]]),
    "range": ({"x": "a:b", "c": {"dtype": "float32"}}, ["x", "c"], [[[1, -7], 3.0]]),
    "list": ([{"columns": ["a", 1], "name": "x"}], ["x"], [[[1, -7]]]),
}


@pytest.mark.parametrize("form", COLUMNS)
def test_columns_select_and_name_slots(tmp_path: Path, form: str) -> None:
    columns, names, values = COLUMNS[form]
    (tmp_path / "a.csv").write_text("a,b,c\n1,,3.0\n")
    reader = open_csv(tmp_path / "a.csv", columns=columns, missing=-7)
    assert reader.names == tuple(names)
    assert [[slot.tolist() for slot in record] for record in reader] == values


def test_a_default_of_one_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n,\n1,2\n")
    columns: Any = {"a": {"default": 5}, "b": {"default": float("nan")}}
    assert str(list(open_csv(tmp_path / "a.csv", columns=columns).batch(2).read())) == str(
        [np.array([5, 1]), np.array([np.nan, 2.0])]
    )
    with pytest.raises(pyfeed.errors.InvalidArgument, match='default: expected "" for text'):
        open_csv(tmp_path / "a.csv", columns={"a": {"dtype": "bytes", "default": "x"}})


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        (3, "ArgumentTypeError", "columns: expected a sequence of names, numbers or dicts, or a mapping"),
        ("a", "ArgumentTypeError", "columns: expected a sequence"),
        ([2.5], "ArgumentTypeError", r"columns\[0\]: expected an integer, found 2.5"),
        ({"x": [None]}, "ArgumentTypeError", r"columns\['x'\]: expected an integer, found None"),
        ({1: "a"}, "ArgumentTypeError", "columns: expected a mapping whose keys are str"),
        ({"x": 9}, "InvalidArgument", "columns: expected the number of a column, -2 to 1, found 9"),
        (["a", "a"], "InvalidArgument", 'expected columns that no other slot has, found column "a"'),
    ],
)
def test_columns_that_are_refused(tmp_path: Path, columns: Any, error: str, message: str) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(getattr(pyfeed.errors, error), match=message):
        open_csv(tmp_path / "a.csv", columns=columns)


# ---- RecordIO ----

LAYOUTS = [("go", "none"), ("go", "snappy"), ("go", "gzip"), ("fluid", "none"), ("fluid", "snappy")]


@pytest.mark.parametrize("layout", ["go", "fluid"])
@pytest.mark.parametrize("io", IO)
def test_golden_recordio(tmp_path: Path, layout: str, io: str) -> None:
    (tmp_path / "a").write_bytes(reference.GOLDEN[layout])
    assert column(open_recordio(tmp_path / "a", records="bytes", io=io)) == reference.GOLDEN_RECORDS
    with open_writer(tmp_path / "b.recordio", layout=layout, records="bytes", compression="none") as writer:
        for record in reference.GOLDEN_RECORDS:
            writer.write((record,))
    assert (tmp_path / "b.recordio").read_bytes() == reference.GOLDEN[layout]


@pytest.mark.parametrize(("layout", "compression"), LAYOUTS)
@pytest.mark.parametrize("io", IO)
def test_records_of_recordio(tmp_path: Path, layout: str, compression: str, io: str) -> None:
    records = [*RECORDS, b"more" * 30000, *(b"%d" % i for i in range(50))]
    for per_chunk in (1, 7, 1000):
        for stored in (False, True):
            (tmp_path / "a").write_bytes(
                reference.encode(records, layout, compression, records_per_chunk=per_chunk, stored=stored)
            )
            assert column(open_recordio(tmp_path / "a", records="bytes", io=io)) == records
        options: dict[str, Any] = {"layout": layout, "compression": compression, "records_per_chunk": per_chunk}
        with open_writer(tmp_path / "b.recordio", records="bytes", **options) as writer:
            for record in records:
                writer.write((record,))
        chunks = list(reference.chunks((tmp_path / "b.recordio").read_bytes()))
        assert [r for c in chunks for r in c.records] == records
        assert {c.compression for c in chunks} == {compression}
        assert max(len(c.records) for c in chunks) <= per_chunk


@pytest.mark.parametrize("dtype", reference.TYPES)
@pytest.mark.parametrize("packed", [False, True])
def test_tensors_of_recordio(tmp_path: Path, dtype: str, packed: bool) -> None:
    def tuple_of(n: int) -> tuple[Any, ...]:
        x = some(dtype, (2, 3))
        steps = some(dtype, (n + 1, 2))
        return x, LoDTensor(steps, [[0, 1, 2], [0, n, n + 1]]), np.int64(n)

    def tensors(row: Sequence[Any]) -> list[reference.Tensor]:
        out = []
        for slot in row:
            data = slot.data if isinstance(slot, LoDTensor) else slot
            lod = tuple(tuple(level.tolist()) for level in slot.lod) if isinstance(slot, LoDTensor) else ()
            out.append(reference.Tensor(data.dtype.name, data.shape, data.tobytes(), lod))
        return out

    expected = [tensors(tuple_of(n)) for n in range(5)]
    (tmp_path / "a").write_bytes(reference.encode([reference.encode_tensors(t, packed=packed) for t in expected]))
    reader = open_recordio(
        tmp_path / "a", shapes=[(2, 3), (-1, 2), ()], dtypes=[dtype, dtype, "int64"], lod_levels=[0, 2, 0]
    )
    assert [tensors(row) for row in reader] == expected
    with open_writer(tmp_path / "b.recordio") as writer:
        for n in range(5):
            writer.write(tuple_of(n))
    data = (tmp_path / "b.recordio").read_bytes()
    assert [reference.decode_tensors(record) for record in reference.decode(data)] == expected


@pytest.mark.parametrize("at", [0, 4, 21, 25], ids=["number of tensors", "version", "description's size", "dtype"])
def test_a_damaged_first_record_of_recordio_makes_no_bytes(tmp_path: Path, at: int) -> None:
    records = [reference.encode_tensors([reference.Tensor("int32", (2,), bytes([i] * 8), ())]) for i in range(3)]
    damaged = bytearray(records[0])
    damaged[at] ^= 0x40
    (tmp_path / "a.recordio").write_bytes(reference.encode([bytes(damaged), *records[1:]]))
    with pytest.raises(pyfeed.errors.CorruptRecordError, match=r'say so by the option records: "bytes"') as caught:
        pyfeed.open_files(tmp_path / "a.recordio")
    assert caught.value.record == 0
    reader = pyfeed.open_files(tmp_path / "a.recordio", on_corrupt="skip")
    assert [x.tolist() for (x,) in reader] == [[0x01010101] * 2, [0x02020202] * 2]
    assert reader.stats()["details"]["corrupt"] == 1


@pytest.mark.parametrize("kind", [".parquet", ".arrow", "zip"])
def test_rows_in_columns_have_the_order_of_the_shuffle(tmp_path: Path, kind: str) -> None:
    """Blocks of more than 4 MiB are not copied at once, and their columns are packed to rows."""
    count = 80_000  # rows of 72 bytes
    labels = np.arange(count)
    rows = (labels[:, None] + np.arange(16) / 16).astype(np.float32)
    np.save(tmp_path / "labels.npy", labels)
    np.save(tmp_path / "rows.npy", rows)
    if kind == "zip":
        reader = pyfeed.open_npy(tmp_path / "rows.npy").zip(pyfeed.open_npy(tmp_path / "labels.npy"))
    else:
        with open_writer(tmp_path / f"a{kind}", shapes=[(16,), ()], dtypes=["float32", "int64"]) as writer:
            for row, label in zip(rows, labels, strict=True):
                writer.write((row, label))
        reader = pyfeed.open_files(tmp_path / f"a{kind}")
    for size in (count, 1000):
        expected = pyfeed.open_npy(tmp_path / "labels.npy").shuffle(size, seed=4).batch(count).read()[0]
        found = list(reader.shuffle(size, seed=4).batch(777).current_pass())
        order = np.concatenate([label for _, label in found])
        assert order.tolist() == expected.tolist() != labels.tolist()
        assert np.array_equal(np.concatenate([row for row, _ in found]), rows[order])
        reader.reset()


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("shuffle", [0, 700], ids=["in order", "shuffled"])
def test_text_beside_numbers(tmp_path: Path, kind: str, shuffle: int) -> None:
    """Texts of any size, also empty ones, and numbers in one batch; and resumed in the middle."""
    count = 3000
    texts = [(f"x{i} " * (i % 50)).encode() for i in range(count)]
    tails = [b"%d" % (i * i) for i in range(count)]
    options: dict[str, Any] = {"row_group_records": 800} if kind == "parquet" else {"batch_records": 800}
    slots: dict[str, Any] = {"shapes": [(-1,), (), (3,), (-1,)], "dtypes": ["uint8", "int16", "float32", "uint8"]}
    with open_writer(tmp_path / f"a.{kind}", **slots, lod_levels=[1, 0, 0, 1], **options) as writer:
        for i in range(count):
            writer.write((texts[i], np.int16(i), np.array([i, 1, 2], np.float32), tails[i]))

    def make() -> pyfeed.Reader:
        reader = pyfeed.open_files(tmp_path / f"a.{kind}")
        return (reader.shuffle(shuffle, seed=2) if shuffle else reader).batch(64)

    def rows(batches: Any) -> list[tuple[int, list[float], bytes, bytes]]:
        return [
            (int(n), v.tolist(), text, tail)
            for first, numbers, vectors, last in batches
            for text, n, v, tail in zip(first.bytes_list(), numbers, vectors, last.bytes_list(), strict=True)
        ]

    found = rows(make())
    order = [n for n, *_ in found]
    assert sorted(order) == list(range(count))
    assert (order != sorted(order)) == bool(shuffle)
    assert found == [(n, [n, 1, 2], texts[n], tails[n]) for n in order]
    reader = make()
    for _ in range(20):
        next(reader)
    again = make()
    again.load_state_dict(reader.state_dict())
    assert rows(again) == found[20 * 64 :]


# ---- Parquet ----

PARQUET = Path(__file__).parents[2] / "readers/parquet/testdata"


@pytest.mark.parametrize("io", IO)
def test_parquet_of_other_programs(io: str) -> None:
    programs = ["pyarrow_zstd", "pandas", "polars", "duckdb", "fastparquet", "spark", "spark_legacy", "parquet_go"]
    for program in programs:
        reader = pyfeed.open_parquet(PARQUET / f"{program}.parquet", columns=["i", "f", "s", "n"], default=-1, io=io)
        assert len(reader) == 60
        found = [(i.item(), f.item(), s.bytes_list()[0], n.item()) for i, f, s, n in reader]
        text = [f"row {i % 7}".encode() * (i % 3) for i in range(60)]
        assert found == [(i * i - 50, i / 4, text[i], i if i % 5 else -1) for i in range(60)]


def test_columns_of_parquet() -> None:
    columns: Any = {
        "all": {"columns": ["u8", "i16"], "dtype": "float32"},
        "v": {"columns": "v", "dims": (3,)},
        "z": "st.y.z",
        "key": "m.key",
    }
    reader = pyfeed.open_parquet(PARQUET / "types.parquet", columns=columns)
    assert reader.names == ("all", "v", "z", "key")
    assert reader.slots == [
        Slot("all", "float32", (2,), 0),
        Slot("v", "float32", (3,), 0),
        Slot("z", "uint8", (-1,), 1),
        Slot("key", "uint8", (-1,), 2),
    ]
    numbers, vectors, texts, _ = reader.shuffle(60, seed=1).batch(60).read()
    order = numbers[:, 0].astype(int).tolist()
    assert sorted(order) == list(range(60))
    assert vectors.tolist() == [[i, i + 1, i + 2] for i in order]
    assert texts.bytes_list() == [b"z%d" % i for i in order]


def test_nulls_of_parquet() -> None:
    with pytest.raises(pyfeed.errors.InvalidArgument, match='column "n", row group 0, row 0 of the file') as caught:
        pyfeed.open_parquet(PARQUET / "pandas.parquet", columns=["n"]).read()
    assert caught.value.record == 0
    columns: Any = {"n": {"dtype": "float64", "default": float("nan")}}
    (found,) = pyfeed.open_parquet(PARQUET / "pandas.parquet", columns=columns).batch(60).read()
    assert np.isnan(found).tolist() == [i % 5 == 0 for i in range(60)]


def test_where_of_parquet() -> None:
    def rows(where: Any) -> list[int]:
        reader = pyfeed.open_parquet(PARQUET / "pyarrow_snappy.parquet", columns=["f"], where=where)
        return [int(4 * f.item()) for (f,) in reader]

    first, second, third = list(range(25)), list(range(25, 50)), list(range(50, 60))
    assert rows([("f", ">=", 12.25)]) == second + third
    assert rows([("i", "in", [-50, np.int64(3431)])]) == first + third
    assert rows([("i", ">", -51), ("i", "<", 575)]) == first
    assert rows([["s", "==", "row 3"]]) == first + second + third
    for where, message in [
        (["i"], r"where\[0\]: expected a column, an operator and a value, found 'i'"),
        ([("i", ">", None)], "'i': expected a finite number, a bool or a str, found None"),
        ([("i", "~", 3)], "where: expected one of the operators"),
        ([("j", ">", 3)], 'found "j"'),
    ]:
        with pytest.raises(pyfeed.errors.Error, match=message):
            rows(where)


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip", "none"])
def test_parquet_is_written_and_read(tmp_path: Path, compression: str) -> None:
    def row(i: int) -> list[Any]:
        tokens = np.arange(i % 5, dtype="int32")
        return [
            np.full((2, 3), i, "float32"),
            f"text {i}",
            LoDTensor(tokens, [[0, len(tokens)]]),
            np.uint64(2**64 - 1 - i),
        ]

    path = tmp_path / "a.parquet"
    with open_writer(path, names=["x", "s", "t", "u"], compression=compression, row_group_records=30) as writer:
        for i in range(100):
            writer.write(row(i))
    reader = pyfeed.open_parquet(path)
    assert reader.names == ("x", "s", "t", "u")
    found = list(reader)
    assert len(found) == 100
    for i, (x, s, t, u) in enumerate(found):
        expected = row(i)
        same(x, expected[0])
        assert s.bytes_list() == [b"text %d" % i]
        same(t.data, expected[2].data)
        same(u, np.array(expected[3]))


def test_parquet_that_is_refused(tmp_path: Path) -> None:
    whole = (PARQUET / "pyarrow_none.parquet").read_bytes()
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress(whole))
    os.mkfifo(tmp_path / "b.parquet")
    (tmp_path / "c.parquet").write_bytes(whole[:-4] + b"PARE")
    with open(tmp_path / "b.parquet", "r+b", buffering=0):  # so that the reader need not wait for a writer
        for name, message in {
            "a.parquet.gz": "compressed as a whole",
            "b.parquet": "a pipe",
            "c.parquet": "encrypted",
        }.items():
            with pytest.raises(pyfeed.errors.UnsupportedError, match=message):
                pyfeed.open_parquet(tmp_path / name)


# ---- Raw records and IDX ----


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("io", IO)
def test_raw_by_and_for_numpy(tmp_path: Path, dtype: str, order: str, io: str) -> None:
    x, y = some(dtype, (20, 2, 3)), some("uint16", (20,))
    kind = np.dtype([("x", dtype, (2, 3)), ("y", "uint16")]).newbyteorder("<" if order == "little" else ">")
    table = np.zeros(20, kind)
    table["x"], table["y"] = x, y
    table = np.frombuffer(table.tobytes(), kind)
    (tmp_path / "a.raw").write_bytes(b"header")
    with open(tmp_path / "a.raw", "ab") as file:
        table.tofile(file)
    shapes: list[tuple[int, ...]] = [(2, 3), ()]
    dtypes = [dtype, "uint16"]
    found = list(open_raw(tmp_path / "a.raw", shapes, dtypes, byte_order=order, header_bytes=6, io=io))
    assert len(found) == 20
    with open_writer(tmp_path / "b.raw", shapes=shapes, dtypes=dtypes, byte_order=order) as writer:
        for (a, b), expected, label in zip(found, table["x"].astype(dtype), y, strict=True):
            same(a, expected)
            same(b, np.array(label))
            writer.write((a, b))
    again = np.fromfile(tmp_path / "b.raw", kind)
    assert again.tobytes() == table.tobytes()


IDX = {"uint8": 0x08, "int8": 0x09, "int16": 0x0B, "int32": 0x0C, "float32": 0x0D, "float64": 0x0E}


@pytest.mark.parametrize("dtype", IDX)
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("io", IO)
def test_idx(tmp_path: Path, dtype: str, suffix: str, io: str) -> None:
    for shape in ((5,), (4, 3), (2, 3, 4), (0, 3)):
        array = some(dtype, shape)
        header = bytes([0, 0, IDX[dtype], len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
        data = header + swapped(array).tobytes()
        (tmp_path / f"a.idx{suffix}").write_bytes(gzip.compress(data) if suffix else data)
        reader = open_idx(tmp_path / f"a.idx{suffix}", io=io)
        assert reader.slots == [Slot("", dtype, shape[1:], 0)]
        rows_of(reader, array)
        with open_writer(tmp_path / f"b.idx{suffix}", shapes=[shape[1:]], dtypes=[dtype]) as writer:
            for row in array:
                writer.write((row,))
        found = (tmp_path / f"b.idx{suffix}").read_bytes()
        assert (gzip.decompress(found) if suffix else found) == data


# ---- Damage ----


def write_small(path: Path, **options: Any) -> None:
    with open_writer(path, names=["x"] if path.suffix == ".csv" else None, **options) as writer:
        for record in SMALL:
            writer.write((record,))


SMALL = [b"first", b"second", b"", b"4" * 20]

# Formats whose records have checksums: name, suffix, options of the writer and of the reader.
CHECKED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "tfrecord": ("tfrecord", {}, {}),
    "tfrecord, gzip": ("tfrecord", {"compression": "gzip"}, {}),
    "tfrecord, zlib": ("tfrecord", {"compression": "zlib"}, {}),
    **{
        f"recordio, {layout}, {compression}": (
            "recordio",
            {"layout": layout, "compression": compression, "records_per_chunk": 1, "records": "bytes"},
            {"records": "bytes"},
        )
        for layout, compression in LAYOUTS
    },
    "csv, gzip": ("csv", {"compression": "gzip"}, {"compression": "gzip"}),
}


def read_until_damage(path: Path, **options: Any) -> tuple[list[Any], pyfeed.errors.CorruptRecordError | None]:
    found: list[Any] = []
    try:
        reader = open_files(path, num_threads=0, **options)
        for (x,) in reader:
            found += x.bytes_list() if isinstance(x, LoDTensor) else [x]
    except pyfeed.errors.CorruptRecordError as error:
        return found, error
    return found, None


@pytest.mark.parametrize("name", CHECKED)
def test_wherever_a_file_is_cut_no_wrong_data(tmp_path: Path, name: str) -> None:
    """A file that is cut between two records is valid, unless the format stores the number of records."""
    suffix, writing, reading = CHECKED[name]
    path = tmp_path / f"a.{suffix}"
    write_small(path, **writing)
    data = path.read_bytes()
    assert read_until_damage(path, **reading) == (SMALL, None)
    whole = 0
    for size in range(len(data)):
        path.write_bytes(data[:size])
        found, error = read_until_damage(path, **reading)
        assert found == SMALL[: len(found)]
        if error is None:
            whole += 1
            assert len(found) < len(SMALL)
        else:
            assert error.file == str(path)
            assert error.offset is not None
            assert error.offset >= 0
    # An empty file is valid, except as CSV, which needs the names of the columns.
    assert whole == {"tfrecord": 4 if not writing else 1, "recordio": 4, "csv": 0}[suffix]


@pytest.mark.parametrize("name", CHECKED)
def test_whichever_byte_is_wrong_no_wrong_data(tmp_path: Path, name: str) -> None:
    suffix, writing, reading = CHECKED[name]
    path = tmp_path / f"a.{suffix}"
    write_small(path, **writing)
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        try:
            found, error = read_until_damage(path, **reading)
        except pyfeed.errors.Error:
            continue  # the changed first bytes name a format that does not exist
        assert error is not None or found == SMALL
        if suffix != "csv":  # gzip's checksum is at the end, so wrong records are read before the error
            assert found == SMALL[: len(found)]


@pytest.mark.parametrize("suffix", ["npy", "npz", "idx", "raw", "tar"])
@pytest.mark.parametrize("io", IO)
def test_wherever_a_file_is_cut(tmp_path: Path, suffix: str, io: str) -> None:
    """Formats without checksums report missing bytes too."""
    array = np.arange(12, dtype="int32").reshape(4, 3)
    path = tmp_path / f"a.{suffix}"
    reading: dict[str, Any] = {"shapes": [(3,)], "dtypes": ["int32"]} if suffix == "raw" else {}
    with open_writer(path, names=["npy"] if suffix == "tar" else None) as writer:
        for row in array:
            writer.write((row,))
    data = path.read_bytes()
    whole = []
    for size in range(0, len(data), 1 if len(data) < 1000 else 37):
        path.write_bytes(data[:size])
        found, error = read_until_damage(path, io=io, **reading)
        for row, expected in zip(found, array, strict=False):
            same(row, expected)
        if error is None:
            whole.append(size)
            assert len(found) == (4 if suffix == "tar" else size // 12)
        else:
            assert error.file == str(path)
    # A tar file ends at its first block of zeros, so bytes after it may be cut. A raw file has no number of records.
    assert [size for size in whole if size < 4608] == ([0, 12, 24, 36] if suffix == "raw" else [])


def test_damage_is_raised_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "a.recordio"
    write_small(file, layout="go", compression="none", records_per_chunk=1)
    data = bytearray(file.read_bytes())
    data[29 + 24] ^= 1  # the first byte of the second chunk's record, after 20 bytes of header and 4 of size
    file.write_bytes(data)
    reader = open_recordio(file)
    assert reader.read()[0].bytes_list() == [b"first"]
    for _ in range(2):
        with pytest.raises(pyfeed.errors.CorruptRecordError, match="checksum of a chunk: expected") as caught:
            reader.read()
        assert (caught.value.file, caught.value.offset, caught.value.record) == (str(file), 29, 1)
        assert str(caught.value).startswith(f"{file}, byte 29, record 1: ")
    reader.reset()
    assert reader.read()[0].bytes_list() == [b"first"]

    reader = open_recordio(file, on_corrupt="skip")
    for pass_id in (1, 2):
        assert column(reader) == [b"first", b"", b"4" * 20]
        details = reader.stats()["details"]
        assert details["corrupt"] == pass_id
        (place,) = details["ledger"]  # listed once, whatever the number of passes
        assert place["reason"].startswith("checksum of a chunk: expected ")
        assert (place["file"], place["offset"], place["record"], place["times"]) == (str(file), 29, 1, pass_id)
        reader.reset()


def test_damage_of_other_formats_is_skipped(tmp_path: Path) -> None:
    record = tmp_path / "a.tfrecord"
    write_small(record)
    data = bytearray(record.read_bytes())
    at = 16 + 5  # the end of the first record
    data[at + 12] ^= 1
    record.write_bytes(data)
    with pytest.raises(pyfeed.errors.CorruptRecordError) as caught:
        list(open_tfrecord(record))
    assert (caught.value.file, caught.value.record) == (str(record), 1)
    reader = open_tfrecord(record, on_corrupt="skip")
    assert column(reader) == [b"first", b"", b"4" * 20]
    (place,) = reader.stats()["details"]["ledger"]
    assert (place["file"], place["offset"], place["record"]) == (str(record), caught.value.offset, 1)

    table = tmp_path / "a.csv"
    table.write_text("x,y\n1,a\nq,b\n3,c\n4\n5,e\n")
    reader = open_csv(table, column_dtypes={"x": "int64"}, on_corrupt="skip")
    assert [(x.item(), y.bytes_list()[0]) for x, y in reader] == [(1, b"a"), (3, b"c"), (5, b"e")]
    ledger = reader.stats()["details"]["ledger"]
    assert [place["offset"] for place in ledger] == [8, 17]
    assert ledger[0]["reason"] == 'column "x": expected a number of int64, found "q"'

    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w", format=tarfile.USTAR_FORMAT) as made:
        for i in range(5):
            add(made, f"{i}.bin", b"%d" % i)
    data = bytearray(archive.read_bytes())
    data[1024] ^= 1  # changes the name in the second header, whose checksum is then wrong
    archive.write_bytes(data)
    with pytest.raises(pyfeed.errors.CorruptRecordError) as caught:
        list(open_tar(archive, fields=["bin"]))
    assert (caught.value.file, caught.value.offset, caught.value.record) == (str(archive), 1024, 1)
    reader = open_tar(archive, on_corrupt="skip")
    assert column(reader) == [b"0", b"2", b"3", b"4"]
    assert [place["offset"] for place in reader.stats()["details"]["ledger"]] == [1024]


def test_optional_members_of_tar_files(tmp_path: Path) -> None:
    for names, row in ((["txt"], (b"a",)), (["txt", "cls"], (b"b", np.int64(3)))):
        with pyfeed.open_writer(tmp_path / f"{len(names)}.tar", names=names) as writer:
            writer.write(row)
    fields: list[Any] = ["txt", {"name": "cls", "default": -1}, {"name": "score", "kind": "float", "default": math.nan}]
    fields.append({"name": "jpg", "optional": True})
    found = [
        (text.bytes_list(), label.item(), score.item(), image.bytes_list())
        for text, label, score, image in pyfeed.open_tar(tmp_path / "*.tar", fields=fields)
    ]
    assert str(found) == "[([b'a'], -1, nan, [b'']), ([b'b'], 3, nan, [b''])]"
    with pytest.raises(pyfeed.errors.InvalidArgument, match="default: expected an integer, int64"):
        pyfeed.open_tar(tmp_path / "1.tar", fields=[{"name": "cls", "optional": True}])


def test_open_files_takes_columns_as_a_mapping(tmp_path: Path) -> None:
    files = {name: tmp_path / f"a.{name}" for name in ("csv", "tsv", "jsonl", "parquet", "arrow", "mds")}
    for file in files.values():
        with open_writer(file, names=["x", "y"]) as writer:
            writer.write([np.int64(1), np.int64(2)])
    columns = {"b": "y", "a": {"columns": "x"}}
    for file in files.values():
        reader = open_files(file, columns=columns)
        assert reader.names == ("b", "a")
        assert [array.item() for array in reader.read()] == [2, 1]
    options: dict[str, Any] = {name: {"columns": columns} for name in files}
    reader = open_files(list(files.values()), **options)
    assert [[array.item() for array in record] for record in reader] == [[2, 1]] * len(files)
