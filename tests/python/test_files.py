"""Files: readers, writers, and formats that are written in Python."""

from __future__ import annotations

import errno
import gc
import itertools
import json
import os
import pickle
import signal
import threading
import traceback
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyfeed.errors import _file_error
from pyfeed.formats import register_format
from pyfeed.typing import Slot

import pyfeed
from pyfeed import LoDTensor, Reader, Scope, open_files, open_npy, open_writer

from .support import (
    FILE_FORMATS,
    Background,
    Process,
    ends_within_a_second,
    raises,
    run,
    same,
    together,
    wait_for_readers,
    wait_until,
)


def save(folder: Path, *sizes: int) -> list[Path]:
    """Write files with these numbers of rows: row r of file f is [100 f + r, -r]."""
    files = []
    for f, size in enumerate(sizes):
        files.append(folder / f"part{f}.npy")
        np.save(files[-1], np.stack([100 * f + np.arange(size), -np.arange(size)], 1))
    return files


def firsts(reader: Iterable[tuple[Any, ...]]) -> list[int]:
    """Return the first number of each tuple."""
    return [int(x[0].flat[0]) for x in reader]


def in_turn(sizes: list[int], width: int) -> list[int]:
    """Return the order that ordered=True promises for files written by save."""
    waiting = [[100 * f + r for r in range(size)] for f, size in enumerate(sizes)]
    lanes = [waiting.pop(0) for _ in range(min(width, len(waiting)))]
    out, turn = [], 0
    while lanes:
        if lanes[turn]:
            out.append(lanes[turn].pop(0))
            turn += 1
        elif waiting:
            lanes[turn] = waiting.pop(0)
        else:
            del lanes[turn]
        turn = 0 if turn >= len(lanes) else turn
    return out


# ---- Which files, in which order ----


def test_rows_of_a_file(tmp_path: Path) -> None:
    (file,) = save(tmp_path, 4)
    reader = open_files(file)
    for _ in range(2):
        rows = [x for (x,) in reader]
        for r, row in enumerate(rows):
            same(row, np.array([r, -r]))
        assert len(rows) == 4
        reader.reset()
    assert reader.slots == [Slot("", "int64", (2,), 0)]


@pytest.mark.parametrize("kind", ["path", "str", "list", "tuple", "generator", "glob", "folder", "tagged"])
def test_names_of_files(tmp_path: Path, kind: str) -> None:
    files = save(tmp_path, 2) if kind in ("path", "str", "tagged") else save(tmp_path, 2, 1)
    names: dict[str, Callable[[], Any]] = {
        "path": lambda: files[0],
        "str": lambda: str(files[0]),
        "list": lambda: files,
        "tuple": lambda: tuple(map(str, files)),
        "generator": lambda: iter(files),
        "glob": lambda: tmp_path / "*.npy",
        "folder": lambda: tmp_path,
        "tagged": lambda: f"npy:{files[0]}",
    }
    assert firsts(open_files(names[kind]())) == ([0, 1] if len(files) == 1 else [0, 100, 1])


@pytest.mark.parametrize("name", ["a b.npy", "łąka.npy", "[1].npy", "x:y.npy", "-.npy", "a.npy.npy", "🐍.npy"])
def test_strange_names(tmp_path: Path, name: str) -> None:
    (file,) = save(tmp_path, 3)
    file.rename(tmp_path / name)
    assert firsts(open_files(tmp_path / name)) == [0, 1, 2]


def test_a_format_whatever_the_name(tmp_path: Path) -> None:
    (file,) = save(tmp_path, 3)
    other = file.rename(tmp_path / "x.dat")
    for reader in (open_files(other, format="npy"), open_files(f"npy:{other}"), open_npy(other)):
        assert firsts(reader) == [0, 1, 2]


@pytest.mark.parametrize("num_threads", [1, 2, 5, np.int64(3)])
@pytest.mark.parametrize("interleave", [1, 2, 8])
def test_the_order_depends_on_the_files_alone(tmp_path: Path, num_threads: int, interleave: int) -> None:
    sizes = [5, 0, 1, 400, 7, 3]
    files = [f for f, size in zip(save(tmp_path, *sizes), sizes, strict=True)]
    reader = open_files(files, num_threads=num_threads, interleave=interleave)
    assert firsts(reader) == in_turn(sizes, interleave)
    reader.reset()
    assert firsts(reader.batch(1)) == in_turn(sizes, interleave)


def test_features_by_name_for_reader_and_writer(tmp_path: Path) -> None:
    features: dict[str, Any] = {"y": "int64", "x": {"dtype": np.float32, "shape": [2]}, "s": "bytes"}
    file = tmp_path / "a.tfrecord"
    with open_writer(file, features=features) as writer:
        writer.write((np.int64(7), np.array([1, 2], np.float32), b"abc"))
    for reader in (pyfeed.open_tfrecord(file, features=features), open_files(file, features=features)):
        ((y, x, s),) = list(reader)
        same(x, np.array([1, 2], np.float32))
        assert (y.item(), s.bytes_list()) == (7, [b"abc"])


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"a": None, "b": [True, False, 1, -(2**70), "x y", ()], "c": {"d": {}, "e": [[], [1]]}},
        {"a": 'quoted " and \\'},
        {'quoted "': 1},
        {"line": "a\nb"},
        {"other": "łąka"},
        {"surrogate": "\udc80"},
        {"delete": "\x7f"},
        {1: 2},
        {"none": {None: 1}},
        {"float": [1.5, 1e300]},
        {"numpy": [np.int64(3), np.bool_(True), np.array([1, 2])]},
        {"path": Path("a")},
        {"integer's heir": [signal.SIGINT]},
    ],
)
def test_attributes_are_json(value: dict[Any, Any]) -> None:
    from pyfeed import _attributes

    text = _attributes.encode(value)
    assert text == json.dumps(value, default=_attributes._to_jsonable)


def test_attributes_within_themselves(tmp_path: Path) -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(pyfeed.errors.InvalidArgument, match=r"a value that JSON can represent, found .*Circular"):
        open_writer(tmp_path / "a.csv", columns=circle)


@pytest.mark.parametrize("ordered", [True, False])
def test_files_are_shuffled(tmp_path: Path, ordered: bool) -> None:
    files = save(tmp_path, *[3] * 20)
    reader = open_files(files, shuffle_files=5, interleave=1, ordered=ordered, num_threads=1)
    passes = []
    for _ in range(3):
        passes.append(firsts(reader))
        reader.reset()
    assert all(sorted(found) == sorted(in_turn([3] * 20, 1)) for found in passes)
    assert len({tuple(found) for found in [in_turn([3] * 20, 1), *passes]}) == 4
    again = open_files(files, shuffle_files=5, interleave=1, num_threads=3)
    assert firsts(again) == passes[0]
    with pytest.raises(pyfeed.errors.InvalidArgument, match="shuffle_files: expected at least 0, found -1"):
        open_files(files, shuffle_files=-1)


def test_unordered_files_come_whole(tmp_path: Path) -> None:
    reader = open_files(save(tmp_path, 90, 300, 1), num_threads=3, ordered=False)
    found = firsts(reader)
    assert sorted(found) == sorted(in_turn([90, 300, 1], 3))
    # Each file is in order. The first file's rows are the numbers below 90; the second file begins at 100.
    assert [x for x in found if x < 90] == list(range(90))


def test_one_file_in_the_reading_thread(tmp_path: Path) -> None:
    files = save(tmp_path, 3, 3)
    reader = open_files(files[0], num_threads=0)
    assert reader.stats()["reader"] == "create_file_reader"
    assert firsts(reader) == [0, 1, 2]
    with pytest.raises(pyfeed.errors.InvalidArgument, match="expected 1 file, found 2"):
        open_files(files, num_threads=0)


def test_list_files(tmp_path: Path) -> None:
    files = save(tmp_path, 1, 1, 1)
    assert pyfeed.list_files(tmp_path) == [f"npy:{file}" for file in files]
    assert pyfeed.list_files(files[::-1], "npy") == [f"npy:{file}" for file in files[::-1]]
    assert firsts(open_files(pyfeed.list_files(tmp_path / "*")[1::2])) == [100]


def test_many_threads_read_each_tuple_once(tmp_path: Path) -> None:
    sizes = [300, 300, 300]
    reader = open_files(save(tmp_path, *sizes))
    found = together(*[lambda: firsts(reader.current_pass())] * 4)
    assert sorted(itertools.chain(*found)) == sorted(in_turn(sizes, 3))


def test_in_a_scope_by_name(tmp_path: Path) -> None:
    scope = Scope()
    reader = open_files(save(tmp_path, 2), name="files", scope=scope)
    assert scope.kind("files") == "reader"
    scope.read("files", ["x"])
    assert scope["x"].tolist() == [0, 0]
    assert firsts(Reader.in_variable(scope, "files")) == [1]
    del reader
    assert "files" not in scope


# ---- Slots of instances ----


def test_scalars_are_arrays_without_dimensions(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([1.5, 2.5]))
    reader = open_npy(tmp_path / "x.npy")
    assert reader.slots == [Slot("", "float64", (), 0)]
    rows = [x for (x,) in reader]
    same(rows[0], np.array(1.5))
    assert [x.item() for x in rows] == [1.5, 2.5]
    reader.reset()
    same(reader.batch(2).read()[0], np.array([1.5, 2.5]))


def test_slots_that_are_given(tmp_path: Path) -> None:
    (file,) = save(tmp_path, 2)
    reader = open_files(file, shapes=[(-1,)], dtypes=["int64"], names=["row"])
    assert reader.slots == [Slot("row", "int64", (-1,), 0)]
    assert firsts(reader) == [0, 1]
    reader = open_files(file, shapes=[(2,)])
    assert reader.slots == [Slot("", None, (2,), 0)]
    reader.read()
    assert reader.slots == [Slot("", "int64", (2,), 0)]


def test_instances_of_another_kind_are_refused_by_place(tmp_path: Path) -> None:
    (file,) = save(tmp_path, 2)
    reader = open_files(file, shapes=[(3,)])
    for _ in range(2):
        with pytest.raises(pyfeed.errors.ShapeError, match="slot 0: dimension 0: expected 3, found 2") as caught:
            reader.read()
        assert (caught.value.file, caught.value.record, caught.value.slot) == (str(file), 0, 0)
        assert str(caught.value).startswith(f"{file}, record 0: ")
    with pytest.raises(pyfeed.errors.DTypeError, match="slot 0: dtype: expected float32, found int64") as wrong:
        open_files(file, shapes=[(2,)], dtypes=["float32"]).read()
    assert (wrong.value.file, wrong.value.record, wrong.value.slot) == (str(file), 0, 0)


def test_a_later_file_of_another_kind(tmp_path: Path) -> None:
    files = save(tmp_path, 2)
    np.save(tmp_path / "z.npy", np.zeros((2, 3)))
    reader = open_files([*files, tmp_path / "z.npy"], interleave=1)
    assert [reader.read()[0][0], reader.read()[0][0]] == [0, 1]
    with pytest.raises(pyfeed.errors.DTypeError, match="expected int64, found float64") as caught:
        reader.read()
    assert caught.value.file == str(tmp_path / "z.npy")
    reader.reset()
    assert reader.read()[0][0] == 0


def test_arguments_that_do_not_go_together(tmp_path: Path) -> None:
    (file,) = save(tmp_path, 1)
    with raises(pyfeed.errors.InvalidArgument, "dtypes: expected shapes along with it, found none"):
        open_files(file, dtypes=["int64"])
    with raises(pyfeed.errors.SlotCountError, "names: expected 1, one for each slot, found 2"):
        open_files(file, shapes=[(2,)], names=["x", "y"])
    with raises(pyfeed.errors.DTypeError, None, slot=1):
        open_files(file, shapes=[(2,), (2,)], dtypes=["int64", "U3"])
    with raises(pyfeed.errors.InvalidArgument, "interleave: expected at least 1 file, found 0"):
        open_files(file, interleave=0)
    with raises(pyfeed.errors.InvalidArgument, "num_threads: expected at least 0, found -1"):
        open_files(file, num_threads=-1)
    with pytest.raises(pyfeed.errors.InvalidArgument, match="on_corrupt: expected raise or skip, found"):
        open_files(file, on_corrupt="ignore")
    with pytest.raises(pyfeed.errors.InvalidArgument, match="compression: expected auto, none, gzip"):
        open_files(file, compression="rar")
    with pytest.raises(pyfeed.errors.InvalidArgument, match="io: expected auto, map or read"):
        open_files(file, io="fast")
    with pytest.raises(pyfeed.errors.InvalidArgument, match='unknown field "rows"; there are instances'):
        open_files(file, rows=1)
    with pytest.raises(pyfeed.errors.InvalidArgument, match="expected rows or file, found"):
        open_npy(file, instances="all")
    with pytest.raises(pyfeed.errors.InvalidArgument, match=r"a value that JSON can represent, found .*Out of"):
        open_files(file, x=float("nan"))
    for wrong in (5, [5], [None], b"x.npy"):
        with pytest.raises(TypeError):
            open_files(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        open_npy(file, rows=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        open_files(file, x=object())
    with raises(pyfeed.errors.InvalidArgument, "filenames: expected at least 1, found 0"):
        open_files([])
    with pytest.raises(
        pyfeed.errors.InvalidArgument, match=r"filenames: expected a name that utf-8 can encode, found '\\ud800.npy'"
    ):
        open_files("\ud800.npy")
    unknown = file.rename(tmp_path / "x.what")
    with pytest.raises(pyfeed.errors.InvalidArgument, match=r"the formats are .*npy"):
        open_files(unknown)
    with pytest.raises(pyfeed.errors.InvalidArgument, match=r"format: expected one of .*recordio.*, found \"what\"$"):
        open_files(unknown, format="what")
    with pytest.raises(pyfeed.errors.InvalidArgument, match=r'found "TFRecord": did you mean "tfrecord"\?$'):
        open_files(unknown, format="TFRecord")
    with pytest.raises(pyfeed.errors.InvalidArgument, match=r'found "tf_record": did you mean "tfrecord"\?$'):
        open_writer(unknown, format="tf_record")


def test_options_as_numpy_has_them(tmp_path: Path) -> None:
    np.arange(6, dtype="<i2").tofile(tmp_path / "x.bin")
    reader = pyfeed.open_raw(tmp_path / "x.bin", [np.array([2]).tolist()], [np.int16], header_bytes=np.uint8(4))  # type: ignore[arg-type]
    assert [x.tolist() for (x,) in reader] == [[2, 3], [4, 5]]


# ---- Missing and damaged files ----


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    name = str(tmp_path / "none.npy")
    with raises(pyfeed.errors.MissingFileError, f"{name}: no such file or directory", also=FileNotFoundError):
        open_files(name)
    for kind in (pyfeed.errors.FileError, OSError, FileNotFoundError):
        with pytest.raises(kind) as caught:
            open_files(name)
        error = caught.value
        assert isinstance(error, pyfeed.errors.FileError)
        assert (error.errno, error.strerror) == (errno.ENOENT, os.strerror(errno.ENOENT))
        assert (error.filename, error.file) == (name, name)
        assert (error.offset, error.record, error.slot) == (None, None, None)
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.errno, again.file) == (type(error), str(error), error.errno, name)
    with pytest.raises(pyfeed.errors.InvalidArgument, match="expected files that match, found none"):
        open_files(tmp_path / "*.npy")


def test_a_file_that_goes_before_its_turn(tmp_path: Path) -> None:
    files = save(tmp_path, 2, 2)
    reader = open_files(files, interleave=1, num_threads=1)
    files[1].unlink()
    assert firsts_until(reader, pyfeed.errors.MissingFileError) == [0, 1]
    save(tmp_path, 2, 2)
    reader.reset()
    assert firsts(reader) == [0, 1, 100, 101]


def firsts_until(reader: Reader, kind: type[BaseException]) -> list[int]:
    out: list[int] = []
    with pytest.raises(kind):
        out.extend(int(x[0].flat[0]) for x in reader)
    return out


@pytest.mark.parametrize(
    ("number", "kind", "built_in"),
    [
        (errno.ENOENT, pyfeed.errors.MissingFileError, FileNotFoundError),
        (errno.EACCES, pyfeed.errors.FilePermissionError, PermissionError),
        (errno.EPERM, pyfeed.errors.FilePermissionError, PermissionError),
        (errno.EIO, pyfeed.errors.FileError, OSError),
        (errno.ENOSPC, pyfeed.errors.FileError, OSError),
    ],
)
def test_the_systems_numbers(number: int, kind: type[pyfeed.errors.FileError], built_in: type[OSError]) -> None:
    error = _file_error("f: why", number, "f")
    assert type(error) is kind
    assert isinstance(error, built_in)
    assert (str(error), error.errno, error.filename) == ("f: why", number, "f")


def test_a_refusal_without_a_number(tmp_path: Path) -> None:
    (tmp_path / "x.npy").mkdir()
    np.save(tmp_path / "x.npy" / "y.npy", np.zeros(2))
    assert len(list(open_files(tmp_path / "x.npy"))) == 2
    error = _file_error("f: why", 0, None)
    assert (type(error), str(error), error.errno, error.filename) == (pyfeed.errors.FileError, "f: why", None, None)


def damaged(folder: Path) -> Path:
    """Write the records 0 to 9 in chunks of 3, of which the second is damaged."""
    file = folder / "x.recordio"
    with open_writer(file, records_per_chunk=3) as writer:
        for i in range(10):
            writer.write((np.full(2, i),))
    whole = bytearray(file.read_bytes())
    second = whole.index(b"\x04\x03\x02\x01", 4)
    whole[second + 30] ^= 0xFF
    file.write_bytes(whole)
    return file


def test_damage_is_raised_in_its_place(tmp_path: Path) -> None:
    file = damaged(tmp_path)
    reader = open_files(file)
    for _ in range(2):
        assert firsts_until(reader, pyfeed.errors.CorruptRecordError) == [0, 1, 2]
        for call in (reader.read, reader.has_next, lambda: next(reader)):
            with pytest.raises(pyfeed.errors.CorruptRecordError) as caught:
                call()
            error = caught.value
            assert isinstance(error, ValueError)
            assert (error.file, error.record, error.slot) == (str(file), 3, None)
            assert error.offset is not None
            assert 0 < error.offset < file.stat().st_size
            assert str(error).startswith(f"{file}, byte {error.offset}, record 3: ")
        reader.reset()
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.offset, again.record) == (str(error), error.offset, 3)


def test_damage_that_is_skipped_is_told_of(tmp_path: Path) -> None:
    file = damaged(tmp_path)
    reader = open_files(file, on_corrupt="skip").batch(4)
    assert [x[:, 0].tolist() for (x,) in reader] == [[0, 1, 2, 6], [7, 8, 9]]
    (below,) = reader.stats()["below"]
    assert below["details"]["corrupt"] == 1
    (place,) = below["details"]["ledger"]
    assert (place["file"], place["record"]) == (str(file), 3)
    assert place["offset"] > 0
    assert place["reason"]


def test_a_first_file_that_is_something_else(tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    file.write_bytes(b"something else")
    with pytest.raises(pyfeed.errors.CorruptRecordError, match="expected an npy file") as caught:
        open_files(file)
    assert (caught.value.file, caught.value.offset, caught.value.record) == (str(file), 0, 0)


def test_counters_of_files(tmp_path: Path) -> None:
    files = save(tmp_path, 50)
    before = pyfeed.diagnostics.memory_stats()
    mapped = open_files(files, io="map")
    mapped.read()
    assert pyfeed.diagnostics.memory_stats()["live_mapped_bytes"] > before["live_mapped_bytes"]
    read = open_files(files, io="read")
    row = read.read()
    assert pyfeed.diagnostics.memory_stats()["live_file_bytes"] > before["live_file_bytes"]
    assert firsts(mapped) == firsts(read) == list(range(1, 50))
    del mapped, read
    assert row[0].tolist() == [0, 0]
    stats = pyfeed.diagnostics.memory_stats()
    assert stats["live_mapped_bytes"] == before["live_mapped_bytes"]


# ---- Writing ----


@pytest.mark.parametrize("suffix", [*FILE_FORMATS, "tsv"])
def test_what_is_written_can_be_read(tmp_path: Path, suffix: str) -> None:
    options: dict[str, dict[str, Any]] = {
        "tar": {"names": ["cls"]},
        "raw": {"shapes": [()], "dtypes": ["int32"]},
        "tfrecord": {"names": ["x"]},
        "tokens": {"format": "tokens"},
    }
    file = tmp_path / f"x.{suffix}"
    with open_writer(file, **options.get(suffix, {})) as writer:
        for i in range(5):
            writer.write((np.int32(i),))
    reading: dict[str, dict[str, Any]] = {
        "tfrecord": {"features": [{"name": "x", "dtype": "int32"}]},
        "raw": options["raw"],
        "tokens": {"format": "tokens", "length": 1},
    }
    assert firsts(open_files(file, **reading.get(suffix, {}))) == [0, 1, 2, 3, 4]
    if suffix == "tfrecord":
        assert firsts(pyfeed.open_tfrecord(file, features={"x": np.int32})) == [0, 1, 2, 3, 4]
    if suffix == "parquet":  # pipes are refused: see test_formats.py
        return
    pipe = tmp_path / f"pipe.{suffix}"
    os.mkfifo(pipe)
    for num_threads in (0, 2):
        # The writer opens the pipe once, and can write only while a reader has it open.
        written = Background(lambda: pipe.write_bytes(file.read_bytes()))
        reader = open_files(pipe, num_threads=num_threads, **reading.get(suffix, {}))
        assert firsts(reader) == [0, 1, 2, 3, 4]
        written.wait()
        reader.reset()
        written = Background(lambda: pipe.write_bytes(file.read_bytes()))
        assert firsts(reader) == [0, 1, 2, 3, 4]
        written.wait()


def test_a_pipe_that_is_written_when_somebody_waits_already(tmp_path: Path) -> None:
    save(tmp_path, 1000)
    pipe = tmp_path / "pipe.npy"
    os.mkfifo(pipe)
    opened = Background(lambda: firsts(open_files(pipe)))
    wait_until(lambda: opened.thread.ident in pyfeed._native._waiting_threads())
    pipe.write_bytes((tmp_path / "part0.npy").read_bytes())
    assert opened.result() == list(range(1000))


def test_bytes_and_text(tmp_path: Path) -> None:
    with open_writer(tmp_path / "x.tfrecord") as writer:
        for item in (b"one", "łąka", b"", bytearray(b"\0\xff"), LoDTensor.from_bytes(b"last")):
            if isinstance(item, LoDTensor):
                writer.write([item])
            else:
                writer.write((item,))
    reader = open_files(tmp_path / "x.tfrecord")
    (slot,) = reader.slots
    assert slot == Slot("record", "uint8", (-1,), 1)
    expected = [b"one", "łąka".encode(), b"", b"\0\xff", b"last"]
    assert [x.bytes_list() for (x,) in reader] == [[item] for item in expected]
    reader.reset()
    assert reader.batch(5).read()[0].bytes_list() == expected


def test_a_file_is_there_when_it_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    writer = open_writer(file)
    assert repr(writer) == f"<Writer {str(file)!r}>"
    assert not writer.closed
    writer.write((np.arange(2),))
    assert not file.exists()
    writer.close()
    assert writer.closed
    assert repr(writer) == f"<Writer {str(file)!r}, closed>"
    writer.close()
    writer.abort()
    assert np.load(file).tolist() == [[0, 1]]
    assert [p.name for p in tmp_path.iterdir()] == ["x.npy"]
    with raises(pyfeed.errors.StateError, "write: expected an open writer, found a closed one", also=RuntimeError):
        writer.write((np.arange(2),))


def write_and_raise(writer: pyfeed.formats.Writer, error: BaseException) -> None:
    writer.write((np.float64(1),))
    raise error


def test_an_exception_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    np.save(file, np.zeros(3))
    writer = open_writer(file)
    error = KeyError("why")
    with pytest.raises(KeyError) as caught, writer:
        write_and_raise(writer, error)
    assert caught.value is error
    assert writer.closed
    assert np.load(file).tolist() == [0, 0, 0]
    assert [p.name for p in tmp_path.iterdir()] == ["x.npy"]
    with open_writer(file) as writer:
        writer.write((np.float64(1),))
    assert np.load(file).tolist() == [1]


def test_abort(tmp_path: Path) -> None:
    writer = open_writer(tmp_path / "x.npy")
    writer.write((np.zeros(3),))
    writer.abort()
    writer.abort()
    writer.close()
    assert list(tmp_path.iterdir()) == []


def test_after_a_tuple_that_could_not_be_written(tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    writer = open_writer(file)
    writer.write((np.zeros(3),))
    with pytest.raises(pyfeed.errors.DTypeError, match="expected an array"):
        writer.write((None,))  # refused before the file is begun
    writer.write((np.ones(3),))
    with pytest.raises(pyfeed.errors.ShapeError) as caught:
        writer.write((np.zeros(4),))
    assert caught.value.slot == 0
    message = "expected an open writer, found one whose last write failed: abort() is all that is left"
    with raises(pyfeed.errors.StateError, f"write: {message}"):
        writer.write((np.zeros(3),))
    with raises(pyfeed.errors.StateError, f"close: {message}"):
        writer.close()
    with raises(pyfeed.errors.StateError, f"close: {message}"), writer:
        pass
    assert writer.closed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("error")
def test_a_writer_that_is_forgotten(tmp_path: Path) -> None:
    writer = open_writer(tmp_path / "x.npy")
    writer.write((np.zeros(3),))
    with pytest.warns(ResourceWarning, match=r"x.npy'> was not closed: its file is not written"):
        del writer
    assert list(tmp_path.iterdir()) == []


def test_writers_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(pyfeed.errors.MissingFileError) as missing:
        open_writer(tmp_path / "none" / "x.npy")
    assert missing.value.errno == errno.ENOENT
    assert missing.value.filename is not None
    with pytest.raises(pyfeed.errors.InvalidArgument, match="the formats are"):
        open_writer(tmp_path / "x.what")
    with pytest.raises(pyfeed.errors.InvalidArgument, match="unknown field"):
        open_writer(tmp_path / "x.npy", what=1)
    with raises(pyfeed.errors.SlotCountError, "names: expected 1, one for each slot, found 2"):
        open_writer(tmp_path / "x.npy", shapes=[(2,)], names=["a", "b"])
    with pytest.raises(TypeError, match="filename: expected a str or path, found"):
        open_writer(b"x.npy")  # type: ignore[arg-type]
    with pytest.raises(pyfeed.errors.InvalidArgument, match="filename: expected a name that utf-8 can encode"):
        open_writer("\ud800.npy")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """The test uses the process's limit of file sizes in place of a full disk."""
    (out,) = run(
        f"""
        import errno, resource
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        writer = pyfeed.open_writer({str(tmp_path / "x.npy")!r})
        try:
            for _ in range(1000):
                writer.write((np.zeros(10000),))
            writer.close()
        except OSError as error:
            say(type(error).__name__, error.errno == errno.EFBIG, os.path.basename(error.filename).startswith("x.npy"))
        writer.abort()
        """
    )
    assert out == "FileError True True"
    assert list(tmp_path.iterdir()) == []


def test_threads_write_one_at_a_time(tmp_path: Path) -> None:
    with open_writer(tmp_path / "x.npy") as writer:

        def write(worker: int) -> None:
            for i in range(200):
                writer.write((np.int64(1000 * worker + i),))

        together(*[lambda w=w: write(w) for w in range(3)])
    found = np.load(tmp_path / "x.npy").tolist()
    assert sorted(found) == [1000 * w + i for w in range(3) for i in range(200)]
    for w in range(3):
        assert [v for v in found if v // 1000 == w] == [1000 * w + i for i in range(200)]


def test_what_is_read_can_be_written_on(tmp_path: Path) -> None:
    save(tmp_path, 5, 5)
    with open_writer(tmp_path / "all.recordio") as writer:
        for arrays in open_files(tmp_path / "part*.npy"):
            writer.write(arrays)
    assert firsts(open_files(tmp_path / "all.recordio")) == in_turn([5, 5], 2)


# ---- Formats ----


def test_formats() -> None:
    tags = [f.tag for f in pyfeed.formats.list_formats()]
    assert tags == sorted(tags)
    assert {
        "arrow",
        "csv",
        "idx",
        "jsonl",
        "mds",
        "npy",
        "npz",
        "parquet",
        "raw",
        "recordio",
        "tar",
        "tfrecord",
        "tokens",
        "tsv",
    } <= set(tags)
    (npy,) = (f for f in pyfeed.formats.list_formats() if f.tag == "npy")
    assert npy == pyfeed.formats.Format("npy", (".npy",), True)


def unique() -> str:
    return f"t{uuid.uuid4().hex}"


Function = Callable[..., Iterator[Any]]


def opened(folder: Path, function: Function, *, number: int = 1, shapes: Any = ((2,),), **options: Any) -> Reader:
    """Return a reader of `number` files of a format that the function reads."""
    tag = unique()
    register_format(tag, [f".{tag}"], shapes=shapes)(function)
    for i in range(number):
        (folder / f"{i}.{tag}").write_bytes(b"")
    return open_files(folder / f"*.{tag}", **options)


def test_an_exception_of_a_python_reader_names_the_file_and_the_record(tmp_path: Path) -> None:
    def function(path: str) -> Iterator[Any]:
        yield (np.zeros(2),)
        yield (np.zeros(2),)
        raise KeyError("third")

    reader = opened(tmp_path, function)
    reader.read()
    reader.read()
    for _ in range(2):
        with pytest.raises(KeyError, match="third") as caught:
            reader.read()
        (file,) = tmp_path.iterdir()
        assert (caught.value.file, caught.value.record) == (str(file), 2)  # type: ignore[attr-defined]
        assert caught.value.__notes__ == [f"in {file}, record 2"]


def count_to(n: int) -> Function:
    def function(path: str, start: int = 0) -> Iterator[Any]:
        for i in range(start, n):
            yield (np.full(2, i),)

    return function


def none_alive() -> bool:
    """Return whether no file of a Python format is being read."""
    names = [t.name for t in threading.enumerate()]
    return not any(n.startswith("pyfeed-") and not n.startswith("pyfeed-format-") for n in names)


def test_a_format_of_ones_own(tmp_path: Path) -> None:
    paths: list[str] = []

    def function(path: str, *, add: int, words: list[str]) -> Iterator[Any]:
        paths.append(path)
        assert words == ["a", "b"]
        for i in range(3):
            yield (np.full(2, i + add),)

    reader = opened(tmp_path, function, add=10, words=("a", "b"))
    assert paths == []
    for _ in range(3):
        assert firsts(reader) == [10, 11, 12]
        reader.reset()
    assert {Path(p).parent for p in paths} == {tmp_path}
    (own,) = (f for f in pyfeed.formats.list_formats() if "." + f.tag == Path(paths[0]).suffix)
    assert own == pyfeed.formats.Format(own.tag, ("." + own.tag,), False)
    with pytest.raises(pyfeed.errors.UnsupportedError, match="is only read"):
        open_writer(paths[0])


def test_many_files_at_a_time(tmp_path: Path) -> None:
    """All interleaved files are open at the same time, each with its own thread."""
    everyone = threading.Barrier(5)

    def function(path: str) -> Iterator[Any]:
        first = 100 * int(Path(path).name.split(".")[0])
        for i in range(3):
            if i == 1:
                everyone.wait(30)
            yield (np.full(2, first + i),)

    reader = opened(tmp_path, function, number=5, interleave=5, num_threads=5)
    assert firsts(reader) == [0, 100, 200, 300, 400, 1, 101, 201, 301, 401, 2, 102, 202, 302, 402]
    wait_until(none_alive)


def test_bytes_in_a_format(tmp_path: Path) -> None:
    tag = unique()

    @register_format(tag, shapes=[(-1,), ()], dtypes=["uint8", "int64"], lod_levels=[1, 0], names=["text", "length"])
    def function(path: str) -> Iterator[Any]:
        for word in Path(path).read_text().split():
            yield word, np.int64(len(word))

    (tmp_path / "x").write_text("to be or not")
    reader = open_files(f"{tag}:{tmp_path / 'x'}")
    assert reader.slots == [Slot("text", "uint8", (-1,), 1), Slot("length", "int64", (), 0)]
    text, length = reader.batch(10).read()
    assert text.bytes_list() == [b"to", b"be", b"or", b"not"]
    assert length.tolist() == [2, 2, 2, 3]


def below() -> None:
    raise ZeroDivisionError("from deep below")


def test_an_exception_of_a_format_is_the_very_one(tmp_path: Path) -> None:
    error = None
    fails = True

    def function(path: str) -> Iterator[Any]:
        nonlocal error
        yield (np.zeros(2),)
        yield (np.ones(2),)
        if fails:
            try:
                below()
            except ZeroDivisionError as e:
                error = e
                raise

    reader = opened(tmp_path, function)
    for _ in range(2):
        assert firsts_until(reader, ZeroDivisionError) == [0, 1]
        for call in (reader.read, reader.has_next, lambda: next(reader)):
            with pytest.raises(ZeroDivisionError, match="from deep below") as caught:
                call()
            assert caught.value is error
            frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
            assert frames[-2:] == ["function", "below"]
            assert len(frames) < 8
        reader.reset()
    fails = False
    error = None  # the function stays registered, with all objects that it refers to
    reader.reset()
    assert firsts(reader) == [0, 1]


def test_an_exception_of_a_format_above(tmp_path: Path) -> None:
    def function(path: str) -> Iterator[Any]:
        yield from count_to(5)(path)
        below()

    top = opened(tmp_path, function).shuffle(3).batch(2).double_buffer()
    found: list[int] = []
    with pytest.raises(ZeroDivisionError):
        found.extend(int(v) for (x,) in top for v in x[:, 0])
    assert sorted(found) == [0, 1, 2, 3, 4]
    with pytest.raises(ZeroDivisionError):
        top.read()


def test_an_exception_is_not_kept_longer_than_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Marked(Exception):
        pass

    # If the reader is gone already, the thread's exception goes to this hook. pytest's own hook would keep it.
    monkeypatch.setattr(threading, "excepthook", lambda unread: None)

    references: list[weakref.ref[Marked]] = []

    def function(path: str) -> Iterator[Any]:
        yield (np.zeros(2),)
        error = Marked()
        references.append(weakref.ref(error))
        raise error

    def use(again: bool) -> None:
        reader = opened(tmp_path, function)
        reader.circle = reader  # type: ignore[attr-defined]
        with pytest.raises(Marked):
            list(reader)
        if again:
            reader.reset()
            reader.read()

    use(False)
    use(True)
    wait_until(lambda: (gc.collect(), len(references) > 1 and all(r() is None for r in references))[1])


def test_an_exception_nobody_reads(tmp_path: Path) -> None:
    reader = opened(tmp_path, lambda path: below())  # type: ignore[arg-type,return-value]
    assert not none_alive() or reader.name
    with pytest.raises(ZeroDivisionError):
        reader.has_next()
    del reader
    wait_until(none_alive)


def test_functions_that_raise_stop_iteration(tmp_path: Path) -> None:
    def function(path: str) -> Iterator[Any]:
        raise StopIteration

    with pytest.raises(RuntimeError, match="the function raised StopIteration") as caught:
        list(opened(tmp_path, function))
    assert type(caught.value.__cause__) is StopIteration


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        ((np.zeros(3),), pyfeed.errors.ShapeError),
        ((np.zeros(2), np.zeros(2)), pyfeed.errors.SlotCountError),
        ((3,), pyfeed.errors.ShapeError),
        ((None,), pyfeed.errors.DTypeError),
        (3, pyfeed.errors.DTypeError),
    ],
)
def test_tuples_that_do_not_fit(tmp_path: Path, item: Any, kind: type[pyfeed.errors.Error]) -> None:
    reader = opened(tmp_path, lambda path: iter([(np.zeros(2),), item]))
    assert reader.read()[0].tolist() == [0, 0]
    with pytest.raises(kind):
        reader.read()


def test_options_a_function_does_not_take(tmp_path: Path) -> None:
    reader = opened(tmp_path, count_to(3), stop=3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'stop'"):
        reader.read()
    assert firsts(opened(tmp_path, count_to(3), start=1)) == [1, 2]


@pytest.mark.parametrize("leave", ["del", "reset", "end of a shard"])
def test_a_generator_is_closed_when_nobody_reads_on(tmp_path: Path, leave: str) -> None:
    events: list[str] = []

    def function(path: str) -> Iterator[Any]:
        events.append("began")
        try:
            while True:
                yield (np.zeros(2),)
        finally:
            events.append("closed")

    reader = opened(tmp_path, function)
    reader.read()
    if leave == "reset":
        reader.reset()
        wait_until(lambda: events == ["began", "closed"])
        reader.read()
        wait_until(lambda: events == ["began", "closed", "began"])
    del reader
    wait_until(lambda: events[-1] == "closed" and events.count("began") == events.count("closed"))
    wait_until(none_alive)


def test_a_generator_that_is_closed_with_an_exception(tmp_path: Path) -> None:
    def function(path: str) -> Iterator[Any]:
        try:
            while True:
                yield (np.zeros(2),)
        finally:
            below()

    heard: list[Any] = []
    hook, threading.excepthook = threading.excepthook, lambda args: heard.append(args.exc_type)
    try:
        reader = opened(tmp_path, function)
        reader.read()
        del reader
        wait_until(lambda: heard)
    finally:
        threading.excepthook = hook
    assert heard == [ZeroDivisionError]


def test_a_reader_that_goes_while_its_function_is_busy(tmp_path: Path) -> None:
    goes_on = threading.Event()
    busy = threading.Event()

    def function(path: str) -> Iterator[Any]:
        yield (np.zeros(2),)
        busy.set()
        goes_on.wait(30)
        yield (np.ones(2),)

    reader = opened(tmp_path, function)
    for _ in range(2):
        reader.read()
        assert busy.wait(30)
        waiting = Background(reader.read)
        wait_for_readers(reader)
        reader.reset()
        with pytest.raises(pyfeed.errors.Cancelled):
            waiting.result()
        busy.clear()
    reader.read()
    assert busy.wait(30)
    del reader, waiting
    assert not goes_on.is_set()
    goes_on.set()
    wait_until(none_alive)


def test_a_format_that_does_not_say_what_it_holds(tmp_path: Path) -> None:
    tag = unique()
    register_format(tag)(count_to(2))
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(pyfeed.errors.InvalidArgument, match="does not say what its instances look like: give slots"):
        open_files(tmp_path / "x", format=tag)
    assert firsts(open_files(tmp_path / "x", format=tag, shapes=[(2,)])) == [0, 1]


def test_formats_that_are_refused() -> None:
    with raises(pyfeed.errors.StateError, 'register: there is a format "npy" already'):
        register_format("npy")(count_to(1))
    with pytest.raises(pyfeed.errors.StateError, match=r"the suffix .npy is that of format"):
        register_format(unique(), [".npy"])(count_to(1))
    with pytest.raises(pyfeed.errors.InvalidArgument, match="expected a tag without any of"):
        register_format("a:b")(count_to(1))
    with pytest.raises(pyfeed.errors.InvalidArgument, match="expected suffixes such as"):
        register_format(unique(), ["npy"])(count_to(1))
    with raises(pyfeed.errors.InvalidArgument, "suffixes: expected at most 64, found 65"):
        register_format(unique(), [f".s{i}" for i in range(65)])(count_to(1))
    with pytest.raises(pyfeed.errors.ShapeError):
        register_format(unique(), shapes=[(2,) * 9])(count_to(1))
    tag = unique()
    register_format(tag)(count_to(1))

    def other(path: str) -> Iterator[Any]:
        yield ()

    with pytest.raises(pyfeed.errors.StateError, match="already"):
        register_format(tag)(other)
    with pytest.raises(pyfeed.errors.StateError, match="already"):
        register_format(tag, [".more"])(count_to(1))


def test_a_format_that_is_defined_again(tmp_path: Path) -> None:
    tag = unique()
    (tmp_path / "x").write_bytes(b"")
    for n in (2, 3):
        function = count_to(n)
        assert register_format(tag, shapes=[(2,)])(function) is function
        assert len(firsts(open_files(tmp_path / "x", format=tag))) == n


FORMAT = """
import tempfile
folder = tempfile.TemporaryDirectory()
file = folder.name + "/x.mine"
open(file, "w").close()

@pyfeed.formats.register_format("mine", [".mine"], shapes=[(2,)])
def mine(path, n=None):
    i = 0
    while n is None or i < n:
        yield tuple_of(i)
        i += 1
    never.wait()

never = threading.Event()
"""


@pytest.mark.parametrize("num_threads", [0, 2])
def test_ctrl_c_in_a_read_of_a_format(num_threads: int) -> None:
    out, err = Process(
        FORMAT
        + f"""
reader = pyfeed.open_files(file, n=1, num_threads={num_threads})
reader.read()
try:
    reader.read(timeout=0.01)
except pyfeed.errors.Timeout:
    say("timeout")
when_waiting(2, lambda: os.kill(os.getpid(), signal.SIGINT))
try:
    reader.read()
except KeyboardInterrupt:
    say("interrupted")
"""
    ).end()
    assert (out, err) == (["timeout", "interrupted"], "")


def test_the_thread_of_a_format_does_not_import_what_the_exit_needs() -> None:
    """A fork during this import would break the locks of `logging`, which Python reports on standard error."""
    assert run(
        """
begin = threading.Thread.start
def start_thread(thread):
    say(thread.name, "concurrent.futures.thread" in sys.modules)
    begin(thread)
threading.Thread.start = start_thread
@pyfeed.formats.register_format("mine")
def mine(file):
    yield (file,)
"""
    ) == ["pyfeed-format-mine True"]


@pytest.mark.parametrize("n", [1, None])
def test_the_end_while_a_format_is_being_read(n: int | None) -> None:
    out, err = ends_within_a_second(
        FORMAT
        + f"""
readers = [pyfeed.open_files(file, n={n}) for _ in range(3)]
for reader in readers:
    reader.read()
start(readers[0].read if {n} else lambda: None, daemon=True)
say("ready")
"""
    )
    assert (out, err) == ([], "")


def test_a_forked_child_cannot_read_or_write_files(tmp_path: Path) -> None:
    save(tmp_path, 3)
    out = run(
        FORMAT
        + f"""
reader = pyfeed.open_files({str(tmp_path / "part0.npy")!r})
mapped = reader.map(lambda x: x)
writer = pyfeed.open_writer({str(tmp_path / "y.npy")!r})
writer.write((np.zeros(2),))
calls = {{
    "open_files": lambda: pyfeed.open_files(file),
    "random_data": lambda: pyfeed.random_data([()]),
    "list_files": lambda: pyfeed.list_files(file),
    "formats": lambda: pyfeed.formats.list_formats(),
    "register_format": lambda: pyfeed.formats.register_format("other")(mine),
    "open_writer": lambda: pyfeed.open_writer({str(tmp_path / "z.npy")!r}),
    "close": lambda: writer.close(),
    "stats": lambda: reader.stats(),
    "slots": lambda: reader.slots,
    "map": lambda: reader.map(lambda x: x),
    "shuffle": lambda: reader.shuffle(2),
    "read": lambda: mapped.read(),
}}
pid = os.fork()
if pid == 0:
    for name, call in calls.items():
        try:
            call()
            say(name, "no error")
        except pyfeed.errors.ForkError:
            pass
        except BaseException as error:
            say(name, repr(error))
    writer.abort()
    del reader, mapped, writer
    os._exit(0)
say(os.waitpid(pid, 0)[1])
writer.write((np.ones(2),))
writer.close()
say(sum(1 for _ in mapped))
"""
    )
    assert out == ["0", "3"]
    assert np.load(tmp_path / "y.npy").tolist() == [[0, 0], [1, 1]]


# ---- Sequences ----


def test_sequences_of_a_lod_tensor() -> None:
    two = LoDTensor(np.arange(6), [[0, 2, 3], [0, 1, 1, 6]])
    first, second = two.sequences()
    assert [s.tolist() for s in first.sequences()] == [[0], []]
    assert [s.tolist() for s in second.sequences()] == [[1, 2, 3, 4, 5]]
    one = LoDTensor.from_lengths(np.arange(8).reshape(4, 2), [[1, 0, 3]])
    assert [s.tolist() for s in one.sequences()] == [[[0, 1]], [], [[2, 3], [4, 5], [6, 7]]]
    assert np.shares_memory(one.sequences()[2], one.data)
    with pytest.raises(ValueError, match="expected at least one level"):
        LoDTensor(np.arange(3)).sequences()
    again = LoDTensor.from_sequences(one.sequences())
    assert again.lod[0].tolist() == [0, 1, 1, 4]
    same(again.data, one.data)


def test_bytes_of_a_lod_tensor() -> None:
    t = LoDTensor.from_bytes(["ą", b"", memoryview(b"xyz"), bytearray(b"\0")])
    assert t.bytes_list() == ["ą".encode(), b"", b"xyz", b"\0"]
    assert LoDTensor.from_bytes(b"abc").bytes_list() == [b"abc"]
    assert LoDTensor.from_bytes("").bytes_list() == [b""]
    assert LoDTensor.from_bytes([]).bytes_list() == []
    assert LoDTensor(np.arange(3, dtype="<u2"), [[0, 1, 3]]).bytes_list() == [b"\0\0", b"\1\0\2\0"]
    with pytest.raises(ValueError, match="expected at least one level"):
        LoDTensor(np.arange(3)).bytes_list()
    with pytest.raises(TypeError):
        LoDTensor.from_bytes([3])  # type: ignore[list-item]
