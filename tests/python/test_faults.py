"""Faults below the file system: the errors of a disk or a server that is broken, gone or full."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyfeed.__main__ import main

import pyfeed

from . import faulty_disk
from .support import FILE_FORMATS

RECORDS, WIDTH = 400, 250
SECTOR = 4096


@pytest.fixture(scope="module")
def module_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[faulty_disk.Disk]:
    try:
        disk = faulty_disk.Disk(tmp_path_factory.mktemp("faults") / "disk")
    except faulty_disk.Unmountable as refused:
        pytest.skip(f"a file system of the test's own takes the right to mount one: {refused}")
    yield disk
    disk.close()


@pytest.fixture
def disk(module_disk: faulty_disk.Disk) -> Iterator[faulty_disk.Disk]:
    module_disk.fault()
    yield module_disk
    module_disk.fault()
    for file in module_disk.folder.iterdir():
        file.unlink()


def row(format: str, i: int) -> Any:
    """Return random data, which cannot be compressed."""
    noise = np.random.default_rng(i).integers(-(2**31), 2**31, WIDTH, dtype="int32")
    return (
        noise.tobytes() if format == "tfrecord" else noise.astype("int64")[0] if format in ("csv", "jsonl") else noise
    )


TOKENS = {"format": "tokens", "dtype": "int32"}


def write(path: Path, records: int, **options: Any) -> None:
    format = path.name.split(".")[1]
    named = {"npz": ["x"], "csv": ["x"], "jsonl": ["x"], "tar": ["npy"]}.get(format)
    if format == "tokens":
        options |= TOKENS
    with pyfeed.open_writer(path, names=named, **options) as writer:
        for i in range(records):
            writer.write((row(format, i),))


# Options of writers, so that an error costs few records.
SMALL_PARTS = {
    "recordio": {"records_per_chunk": 20},
    "arrow": {"batch_records": 20},
    "arrows": {"batch_records": 20},
    "parquet": {"row_group_records": 20},
}


def records_of(name: str) -> int:
    return 20 * RECORDS if ".csv" in name or ".jsonl" in name else RECORDS


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], bytes]:
    """Return a function that gives the bytes of a file with a name and a number of records."""

    @functools.cache
    def make(name: str, records: int) -> bytes:
        path = tmp_path_factory.mktemp("stored") / name
        write(path, records, **SMALL_PARTS.get(path.name.split(".")[1], {}))
        return path.read_bytes()

    return make


def how(path: Path) -> dict[str, Any]:
    if ".tokens" in path.name:
        return {**TOKENS, "length": WIDTH}
    return {"shapes": [(WIDTH,)], "dtypes": ["int32"]} if ".raw" in path.name else {}


def take(reader: pyfeed.Reader) -> tuple[list[bytes], pyfeed.errors.Error | None]:
    """Read to the end of the pass, or to an error; return the records and the error."""
    records: list[bytes] = []
    try:
        while reader.has_next():
            records.append(np.asarray(reader.read()[0]).tobytes())
    except pyfeed.errors.Error as error:
        return records, error
    return records, None


def read(path: Path, **options: Any) -> tuple[list[bytes], pyfeed.errors.Error | None]:
    try:
        reader = pyfeed.open_files(path, **{"num_threads": 0, **how(path), **options})
    except pyfeed.errors.Error as error:
        return [], error
    return take(reader)


def put(disk: faulty_disk.Disk, name: str, data: bytes) -> tuple[Path, list[bytes]]:
    """Write a file to the disk; return its path and its records."""
    path = disk.folder / name
    path.write_bytes(data)
    records, error = read(path)
    assert error is None
    return path, records


def is_file_error(error: Exception | None, path: Path, code: int, least: int, end: int) -> None:
    """Expect a FileError with this errno and file, and with an offset from `least` to `end`."""
    assert type(error) is pyfeed.errors.FileError
    assert (error.errno, error.file) == (code, str(path))
    assert f"read: {os.strerror(code).lower()}" in str(error).lower()
    assert error.offset is not None
    assert least <= error.offset <= end


PACKED = ["", ".gz", ".zst", ".sz", ".zlib"]
CODES = {"EIO": errno.EIO, "ESTALE": errno.ESTALE}
# The codecs that deliver the bytes before an error. The others deliver only complete blocks.
IN_SMALL_PIECES = (".gz", ".zlib")


def packed(format: str) -> list[str]:
    if format == "parquet":  # its pages are compressed, not the file
        return ["a.parquet"]
    return [f"a.{format}{end}" for end in PACKED if (format, end) not in {("tfrecord", ".zst"), ("tfrecord", ".sz")}]


NAMES = [name for format in FILE_FORMATS for name in packed(format)]


CASES = [
    (name, io, "EIO") for name in NAMES for io in (["map", "read"] if name.endswith(tuple(FILE_FORMATS)) else ["auto"])
]
CASES += [(f"a.{format}", io, "ESTALE") for format in FILE_FORMATS for io in ("map", "read")]


@pytest.mark.parametrize(("name", "io", "code"), CASES, ids=["-".join(case) for case in CASES])
def test_a_sector_that_cannot_be_read(
    disk: faulty_disk.Disk, stored: Callable[[str, int], bytes], name: str, io: str, code: str
) -> None:
    number = getattr(errno, code)
    data = stored(name, records_of(name))
    path, expected = put(disk, name, data)
    start = len(data) * 6 // 10 // SECTOR * SECTOR
    packed = not name.endswith(tuple(FILE_FORMATS))
    # The smallest number of records that must be delivered before the error: with block compression, those before the
    # damaged block; in recordio and arrow, those of the chunks before; none in npz, whose directory or
    # checksum may be damaged, and in compressed arrow, whose footer is needed.
    known = start - (0 if not packed else 1 << 10 if name.endswith(IN_SMALL_PIECES) else 128 << 10)
    least = known * len(expected) // len(data) - (22 if name.split(".")[1] in SMALL_PARTS else 2)
    if ".npz" in name or (packed and ".arrow." in name):
        least = 0
    views = io == "map" and name in ("a.npy", "a.raw", "a.arrow", "a.arrows", "a.tokens", "a.mds")

    def check(records: list[bytes], error: Exception | None, batch: int = 1) -> None:
        if packed:
            is_file_error(error, path, number, 0, 2 * len(data))
        else:
            is_file_error(error, path, number, start, start)
        assert least <= len(records) + batch - 1
        assert len(records) < len(expected)
        assert records == expected[: len(records)]

    disk.fault(errno=number, start=start, end=start + SECTOR)
    for on_corrupt, threads in [("raise", 0), ("skip", 0), ("raise", 2)]:
        found, error = read(path, io=io, on_corrupt=on_corrupt, num_threads=threads)
        if (
            views and found[-1] != expected[len(found) - 1]
        ):  # this test, not the reader, was the first to access the missing page, and got zeros
            del found[-1]
        check(found, error)
    batched, error = read_batches(path, io=io)
    check(batched, error, 7)

    disk.fault()
    assert read(path, io=io) == (expected, None)


def read_batches(path: Path, **options: Any) -> tuple[list[bytes], pyfeed.errors.Error | None]:
    """Read the records in batches, which are copies."""
    if ".tfrecord" in path.name:  # a batch concatenates byte strings
        return read(path, **options)
    records: list[bytes] = []
    try:
        for (batch,) in pyfeed.open_files(path, num_threads=0, **how(path), **options).batch(7):
            records += [instance.tobytes() for instance in np.asarray(batch)]
    except pyfeed.errors.Error as error:
        return records, error
    return records, None


@pytest.mark.parametrize("io", ["auto", "read", "map"])
def test_a_reader_goes_on_after_a_reset_once_the_sector_can_be_read(
    disk: faulty_disk.Disk, stored: Callable[[str, int], bytes], io: str
) -> None:
    path, expected = put(disk, "a.tfrecord", stored("a.tfrecord", RECORDS))
    start = 200 * 1024
    disk.fault(errno=errno.EIO, start=start, end=start + SECTOR)
    reader = pyfeed.open_files(path, io=io, num_threads=0)
    for _ in range(2):
        found, error = take(reader)
        is_file_error(error, path, errno.EIO, start, start)
        assert found == expected[: len(found)]
        assert take(reader)[0] == []
        reader.reset()
    disk.fault()
    reader.reset()
    assert take(reader) == (expected, None)


@pytest.mark.parametrize("io", ["auto", "read", "map"])
def test_a_small_file_is_delivered_up_to_a_bad_sector(
    disk: faulty_disk.Disk, stored: Callable[[str, int], bytes], io: str
) -> None:
    path, expected = put(disk, "a.tfrecord", stored("a.tfrecord", 40))
    disk.fault(errno=errno.EIO, start=5 * SECTOR, end=6 * SECTOR)
    for _ in range(3):  # with the same result each time
        found, error = read(path, io=io)
        is_file_error(error, path, errno.EIO, 5 * SECTOR, 5 * SECTOR)
        assert found == expected[:20]


@pytest.mark.parametrize("way", ["map", "read"])
def test_a_file_that_is_verified_first_delivers_nothing(
    disk: faulty_disk.Disk, stored: Callable[[str, int], bytes], way: str
) -> None:
    path, _ = put(disk, "a.tfrecord", stored("a.tfrecord", RECORDS))
    start = 50 * SECTOR
    disk.fault(errno=errno.EIO, start=start, end=start + SECTOR)
    for on_corrupt in ("raise", "skip"):
        found, error = read(path, io=way, verify_first=True, on_corrupt=on_corrupt)
        is_file_error(error, path, errno.EIO, start, start)
        assert found == []


def test_damage_that_was_skipped_before_a_page_is_told_once(
    disk: faulty_disk.Disk, stored: Callable[[str, int], bytes]
) -> None:
    data = bytearray(stored("a.tfrecord", RECORDS))
    path, expected = put(disk, "a.tfrecord", bytes(data))
    size = len(data) // RECORDS
    for record in (20, 100, 236):  # the last one is just before the page
        data[record * size + 500] ^= 1
        del expected[record - (0 if record == 20 else 1 if record == 100 else 2)]
    path.write_bytes(data)
    start = 237 * size // SECTOR * SECTOR + SECTOR
    disk.fault(errno=errno.EIO, start=start, end=start + SECTOR)
    ledgers = []
    for way in ("map", "read"):
        reader = pyfeed.open_files(path, io=way, on_corrupt="skip", num_threads=0)
        found, error = take(reader)
        is_file_error(error, path, errno.EIO, start, start)
        assert found == expected[: len(found)]
        assert len(found) >= start // size - 4
        ledgers.append([(place["offset"], place["record"]) for place in reader.stats()["details"]["ledger"]])
    assert ledgers[0] == ledgers[1]
    assert [offset // size for offset, _ in ledgers[0]] == [20, 100, 236]


@pytest.mark.parametrize("name", ["a.npy", "a.tfrecord", "a.csv"])
@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
def test_a_page_that_was_missing_for_a_moment_is_an_error(
    disk: faulty_disk.Disk, stored: Callable[[str, int], bytes], name: str, on_corrupt: str
) -> None:
    data = stored(name, records_of(name))
    path, expected = put(disk, name, data)
    start = len(data) // 2 // SECTOR * SECTOR
    disk.fault(errno=errno.EIO, start=start, end=start + SECTOR, passing=True)
    found, error = read(path, io="map", on_corrupt=on_corrupt)
    is_file_error(error, path, errno.EIO, start, start)
    if name == "a.npy":
        del found[-1]  # the record in the missing page is zeros; the error follows it
    assert found == expected[: len(found)]
    assert read(path, io="map", on_corrupt=on_corrupt) == (expected, None)


@pytest.mark.parametrize("name", NAMES)
def test_short_reads_are_harmless_and_a_size_of_0_is_not_believed(
    disk: faulty_disk.Disk, stored: Callable[[str, int], bytes], name: str
) -> None:
    path, expected = put(disk, name, stored(name, records_of(name)))
    disk.fault(direct_io=True, short=7001)
    assert read(path, io="read") == (expected, None)
    disk.fault(direct_io=True, short=7001, no_size=True)
    assert path.stat().st_size == 0
    for way in ("auto", "read"):
        found, error = read(path, io=way)
        if name == "a.parquet":  # the footer at the end is read first
            assert (found, type(error)) == ([], pyfeed.errors.UnsupportedError)
        else:
            assert (found, error) == (expected, None)


@pytest.mark.parametrize("name", [f"a.{format}" for format in FILE_FORMATS])
def test_an_error_with_direct_io(disk: faulty_disk.Disk, stored: Callable[[str, int], bytes], name: str) -> None:
    data = stored(name, records_of(name))
    path, expected = put(disk, name, data)
    start = len(data) // 2 + 5
    for no_size in (False,) if name == "a.parquet" else (False, True):
        disk.fault(errno=errno.EIO, start=start, direct_io=True, no_size=no_size)
        found, error = read(path, io="auto")
        footer = name in ("a.arrow", "a.parquet")  # which is read first, and is at the end
        is_file_error(error, path, errno.EIO, start, len(data) if footer else start)
        assert found == expected[: len(found)]
        assert ".npz" in name or footer or len(found) >= len(expected) // 2 - 22


@pytest.mark.parametrize("where", ["open", "getattr"])
@pytest.mark.parametrize("code", ["ESTALE", "EIO"])
@pytest.mark.parametrize("io", ["auto", "read", "map"])
def test_a_file_that_cannot_be_opened(
    disk: faulty_disk.Disk, stored: Callable[[str, int], bytes], where: str, code: str, io: str
) -> None:
    path, _ = put(disk, "a.npy", stored("a.npy", RECORDS))
    number = getattr(errno, code)
    disk.fault(**{f"{where}_errno": number})
    _, error = read(path, io=io)
    assert type(error) is pyfeed.errors.FileError
    assert (error.errno, error.file) == (number, str(path))


def test_a_page_that_cannot_be_read_under_a_view(
    disk: faulty_disk.Disk, stored: Callable[[str, int], bytes], tmp_path: Path
) -> None:
    """Calls that copy from the page are refused. Copies of data before the page are not."""
    path, _expected = put(disk, "a.npy", stored("a.npy", RECORDS))
    start = 50 * SECTOR
    disk.fault(errno=errno.ESTALE, start=start, end=start + SECTOR)
    reader = pyfeed.open_files(path, io="map", num_threads=0)
    views = [reader.read()[0] for _ in range(250)]
    _, queue = pyfeed.py_array_reader(4, [(WIDTH,)], dtypes=["int32"])
    for at in (206, 206, 220):  # data behind the page is refused too
        with pytest.raises(pyfeed.errors.FileError) as caught:
            queue.push((views[at],))
        is_file_error(caught.value, path, errno.ESTALE, start, start)
        assert caught.value.slot == 0
        queue.push((views[100],), timeout=1)
    with pytest.raises(pyfeed.errors.FileError), pyfeed.open_writer(tmp_path / "b.npy") as writer:
        writer.write((views[220],))
    assert list(tmp_path.iterdir()) == []


# ---- A full disk ----


def convert(path: Path, source: Path) -> None:
    """Run the command `convert`, which prints an error without a traceback; raise OSError if it fails."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        to = ["--to", "tokens", "--to-option", "dtype=int32"] if path.suffix == ".tokens" else []
        status = main(["convert", str(source), "-o", str(path), "--names", "npy", *to])
    if status:
        assert "Traceback" not in said.getvalue()
        raise OSError(
            errno.ENOSPC if os.strerror(errno.ENOSPC).lower() in said.getvalue().lower() else 0, said.getvalue()
        )


WRITERS = [(name, "writer") for name in NAMES if not name.endswith((".sz", ".zlib"))]
WRITERS += [(f"a.{format}", "convert") for format in FILE_FORMATS]


@pytest.mark.parametrize(("name", "by"), WRITERS, ids=["-".join(case) for case in WRITERS])
def test_a_full_disk(disk: faulty_disk.Disk, tmp_path: Path, name: str, by: str) -> None:
    path = disk.folder / name
    source = tmp_path / "source.npy"
    np.save(source, np.random.default_rng(0).integers(-(2**31), 2**31, (RECORDS, WIDTH), dtype="int32"))
    refused: list[str] = []
    for from_then_on in (False, True):
        for number in range(1, 1000):
            disk.fault(errno=errno.ENOSPC, **{"full_from" if from_then_on else "full_at": number})
            error: OSError | None = None
            try:
                if by == "writer":
                    write(path, RECORDS)
                else:
                    convert(path, source)
            except OSError as caught:
                error = caught
            calls = disk.fault()
            if error is None and (
                len(calls) < number or "rename" in calls[: number - 1]
            ):  # all calls succeeded, or only a call after the rename has failed
                break
            assert error is not None, f"{calls[number - 1]} failed without an error: {calls}"
            assert error.errno == errno.ENOSPC
            if by == "writer":
                assert type(error) is pyfeed.errors.FileError
                assert error.file == str(path)
            assert list(disk.folder.iterdir()) == [], f"{calls[number - 1]} failed and left files: {calls}"
            refused.append(calls[number - 1])
        assert error is None
        assert list(disk.folder.iterdir()) == [path]
        assert len(read(path)[0]) > 0
        path.unlink()
    assert {"create", "write", "chmod", "fsync", "close", "rename"} <= set(refused)


@pytest.mark.parametrize("io", ["map", "read"])
@pytest.mark.parametrize("batch", [0, 7])
@pytest.mark.parametrize("num_threads", [0, 2])
def test_large_records_before_a_bad_sector_are_delivered(
    disk: faulty_disk.Disk, tmp_path: Path, io: str, batch: int, num_threads: int
) -> None:
    size, bad = 10 * SECTOR, 17  # a record of that size is verified when it is copied or handed out
    with pyfeed.open_writer(tmp_path / "a.tfrecord") as writer:
        for i in range(30):
            writer.write((bytes([i]) * size,))
    path = disk.folder / "a.tfrecord"
    path.write_bytes((tmp_path / "a.tfrecord").read_bytes())
    start = (bad * (size + 16) // SECTOR + 5) * SECTOR  # within the data of the record
    disk.fault(errno=errno.EIO, start=start, end=start + SECTOR)
    reader = pyfeed.open_files(path, io=io, num_threads=num_threads)
    if batch:
        reader = reader.batch(batch)
    found: list[int] = []
    for _ in range(2):
        with pytest.raises(pyfeed.errors.FileError) as caught:
            found.extend(data[0] for (record,) in reader for data in record.bytes_list())
        is_file_error(caught.value, path, errno.EIO, start, start)
    assert found == list(range(bad))
