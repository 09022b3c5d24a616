"""Damaged files: no record is lost or altered without an error."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyfeed
from pyfeed import open_files, open_raw, open_writer

from .support import Background

SUFFIXES = [".gz", ".zst", ".sz", ".zlib"]


def numbers(*filenames: Path, **options: object) -> list[int]:
    reader = open_raw(filenames, [()], ["int64"], **options)  # type: ignore[arg-type]
    return [x.item() for (x,) in reader]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_compressed_file_is_never_read_as_raw_bytes(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"d.raw{suffix}"
    with open_writer(path) as writer:
        for i in range(1000):
            writer.write((np.int64(i),))
    assert numbers(path) == list(range(1000))
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    for name in path, tmp_path, tmp_path / "*":
        with pytest.raises(
            pyfeed.errors.CorruptRecordError, match=f"as the suffix {suffix} says, found the bytes"
        ) as caught:
            numbers(name)
        assert (caught.value.file, caught.value.offset) == (str(path), 0)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_download_is_no_empty_data_set(tmp_path: Path, suffix: str) -> None:
    empty, fine = tmp_path / f"a.raw{suffix}", tmp_path / "b.raw"
    empty.touch()
    np.arange(3).tofile(fine)
    with pytest.raises(pyfeed.errors.CorruptRecordError, match="found an empty file"):
        numbers(empty)
    with pytest.raises(pyfeed.errors.CorruptRecordError, match="found an empty file"):
        numbers(fine, empty)
    assert numbers(empty, fine, on_corrupt="skip") == [0, 1, 2]


@pytest.mark.parametrize("suffix", ["raw", "csv", "tfrecord", "tar"])
@pytest.mark.parametrize("compression", SUFFIXES)
def test_a_writer_without_tuples_writes_an_empty_data_set(tmp_path: Path, suffix: str, compression: str) -> None:
    if suffix == "tfrecord" and compression in (".zst", ".sz"):
        return  # the writer refuses these compressions
    path = tmp_path / f"a.{suffix}{compression}"
    with open_writer(path, shapes=[()], dtypes=["int64"], names=["x.count" if suffix == "tar" else "x"]):
        pass
    assert path.stat().st_size > 0
    if suffix == "tfrecord":
        assert list(open_files(path)) == []
    else:
        assert list(open_files(path, shapes=[()], dtypes=["int64"], names=["count" if suffix == "tar" else "x"])) == []


def test_streams_of_zlib_that_follow_one_another(tmp_path: Path) -> None:
    data = zlib.compress(np.arange(5).tobytes())
    path = tmp_path / "a.raw.zlib"
    path.write_bytes(data + data)
    assert numbers(path) == [*range(5), *range(5)]
    path.write_bytes(data + b"garbage")
    with pytest.raises(pyfeed.errors.CorruptRecordError, match="another zlib stream"):
        numbers(path)


def test_a_file_among_others_that_are_alike(tmp_path: Path) -> None:
    for i in range(40):
        np.save(tmp_path / f"{i:02}.npy", np.full(4, i))
    (tmp_path / "30.npy").rename(tmp_path / "30.npy.gz")
    reader = open_files(sorted(tmp_path.iterdir()), interleave=1, instances="file")
    assert [reader.read()[0][0] for _ in range(30)] == list(range(30))
    with pytest.raises(pyfeed.errors.CorruptRecordError, match=r"30\.npy\.gz.*as the suffix \.gz says"):
        reader.read()
    (tmp_path / "30.npy.gz").write_bytes(gzip.compress((tmp_path / "31.npy").read_bytes()))
    reader.reset()
    assert [x[0].item() for (x,) in reader] == [31 if i == 30 else i for i in range(40)]


def test_the_number_of_a_record_is_exact_or_called_approximate(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    with open_writer(path) as writer:
        for i in range(100):
            writer.write((f"record {i:02}",))
    data, size = bytearray(path.read_bytes()), path.stat().st_size // 100
    data[10 * size + 12] ^= 1  # in the data of a record
    path.write_bytes(data)
    with pytest.raises(pyfeed.errors.CorruptRecordError, match=r"a\.tfrecord, byte 262, record 10: ") as caught:
        list(open_files(path))
    assert (caught.value.record, caught.value.approximate) == (10, False)

    data[20 * size] ^= 1  # in the length of a record, so that the reader must search for the next record
    data[30 * size + 12] ^= 1
    path.write_bytes(data)
    reader = open_files(path, on_corrupt="skip")
    assert len(list(reader)) == 97
    ledger = reader.stats()["details"]["ledger"]
    assert [(place["record"], place["approximate"]) for place in ledger] == [(10, False), (20, False), (30, True)]


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "npy", "idx.gz"])
def test_damage_of_the_header_is_before_record_0(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    with open_writer(path, names=["x"]) as writer:
        writer.write((np.int32(1),))
    data = path.read_bytes() if suffix[-2:] != "gz" else gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(b"\xff\xfe" + data) if suffix[-2:] == "gz" else b"\xff\xfe" + data)
    with pytest.raises(pyfeed.errors.CorruptRecordError) as caught:
        open_files(path)
    assert (caught.value.record, caught.value.approximate) == (0, False)


def test_a_tuple_that_does_not_fit_behind_skipped_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.recordio"
    with open_writer(path, shapes=[(-1,)], dtypes=["float32"], records_per_chunk=1) as writer:
        for n in 3, 3, 3, 2:
            writer.write((np.zeros(n, "float32"),))
    data = bytearray(path.read_bytes())
    data[len(data) // 4 + 30] ^= 1
    path.write_bytes(data)
    reader = open_files(path, shapes=[(3,)], dtypes=["float32"], on_corrupt="skip")
    assert [reader.read()[0].shape for _ in range(2)] == [(3,), (3,)]
    with pytest.raises(pyfeed.errors.ShapeError, match="about record 2") as caught:
        reader.read()
    assert (caught.value.record, caught.value.approximate) == (2, True)


def test_damage_before_the_first_record_of_a_pipe_is_in_the_ledger(tmp_path: Path) -> None:
    path, pipe = tmp_path / "a.recordio", tmp_path / "pipe.recordio"
    with open_writer(path, records_per_chunk=1) as writer:
        for i in range(3):
            writer.write((np.int64(i),))
    data = bytearray(path.read_bytes())
    data[len(data) // 3 - 1] ^= 1
    os.mkfifo(pipe)
    written = Background(lambda: pipe.write_bytes(data))
    reader = open_files(pipe, records="tensors", on_corrupt="skip")
    assert [x.item() for (x,) in reader] == [1, 2]
    assert written.result() == len(data)
    (place,) = reader.stats()["details"]["ledger"]
    assert (place["file"], place["record"], place["approximate"]) == (str(pipe), 0, False)


def altered(path: Path) -> None:
    """Write a compressed file of 100 numbers, one of which was altered."""
    data = bytearray(gzip.compress(np.arange(100).tobytes(), compresslevel=0))
    data[100] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_file_is_verified_before_its_first_record(tmp_path: Path, num_threads: int) -> None:
    path, fine = tmp_path / "a.raw.gz", tmp_path / "b.raw.gz"
    altered(path)
    fine.write_bytes(gzip.compress(np.arange(5).tobytes()))
    for first, count in (False, 100), (True, 0):
        reader = open_raw(path, [()], ["int64"], num_threads=num_threads, verify_first=first)
        for _ in range(2):
            values: list[int] = []
            with pytest.raises(pyfeed.errors.CorruptRecordError, match="invalid checksum") as caught:
                values.extend(value.item() for (value,) in reader)
            assert (len(values), caught.value.record, caught.value.offset) == (count, count, 800)
            reader.reset()
    reader = open_raw(fine, [()], ["int64"], num_threads=num_threads, verify_first=True)
    for _ in range(2):
        assert [value.item() for (value,) in reader] == list(range(5))
        reader.reset()


def test_a_file_that_cannot_be_verified_is_skipped_as_a_whole(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.raw.gz").write_bytes(gzip.compress(np.arange(5).tobytes()))
    altered(tmp_path / "b.raw.gz")
    reader = open_raw(tmp_path, [()], ["int64"], interleave=1, on_corrupt="skip", verify_first=True)
    assert [value.item() for (value,) in reader] == [*range(5), *range(5)]
    (place,) = reader.stats()["details"]["ledger"]
    assert (place["file"], place["record"]) == (str(tmp_path / "b.raw.gz"), 0)
    assert "verify_first found it at record 100" in place["reason"]


def test_pipes_cannot_be_verified_first(tmp_path: Path) -> None:
    pipe = tmp_path / "a.raw"
    os.mkfifo(pipe)
    for num_threads in 0, 1:
        with pytest.raises(pyfeed.errors.InvalidArgument, match=r"verify_first: .*a\.raw.*a pipe.*read twice"):
            open_raw(pipe, [()], ["int64"], num_threads=num_threads, verify_first=True)


def test_verify_first_in_a_program(tmp_path: Path) -> None:
    path = tmp_path / "a.raw.gz"
    altered(path)
    main, startup = pyfeed.Program(), pyfeed.Program()
    with pyfeed.program.program_guard(main, startup):
        reader = pyfeed.layers.open_files(path, shapes=[()], dtypes=["int64"], verify_first=True)
        value = pyfeed.layers.read_file(reader)
    scope, executor = pyfeed.Scope(), pyfeed.Executor()
    executor.run(startup, scope=scope)
    with pytest.raises(pyfeed.errors.CorruptRecordError, match="verify_first found it at record 100"):
        executor.run(main, fetch=[value], scope=scope)


def test_a_format_of_ones_own_is_verified_first(tmp_path: Path) -> None:
    calls = []

    @pyfeed.formats.register_format("verified", [".verified"], shapes=[()], dtypes=["int64"])
    def read(path: str) -> Iterator[tuple[np.int64]]:
        calls.append(path)
        yield from ((np.int64(i),) for i in range(3))
        if len(calls) > 2:
            raise ValueError("the third time")

    (tmp_path / "a.verified").touch()
    reader = open_files(tmp_path / "a.verified", verify_first=True)
    assert [value.item() for (value,) in reader] == [0, 1, 2]
    assert len(calls) == 2
    reader.reset()
    with pytest.raises(ValueError, match="the third time"):
        reader.read()


@pytest.mark.parametrize("num_threads", [0, 2])
@pytest.mark.parametrize("suffix", ["raw", "tfrecord"])
def test_a_verification_without_end_is_left(tmp_path: Path, num_threads: int, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b"x" * 12)
    os.truncate(path, 60 << 30)
    slots: dict[str, Any] = {"shapes": [()], "dtypes": ["int64"]} if suffix == "raw" else {}
    reader = open_files(path, num_threads=num_threads, verify_first=True, on_corrupt="skip", **slots)
    for _ in range(2):
        with pytest.raises(pyfeed.errors.Timeout):
            reader.read(timeout=0.1)
        reader.reset()


LARGE = 100_000  # bytes of a record, which is verified when it is copied or handed out


def large_records(path: Path, damaged: int | None = None) -> Path:
    """Write 30 records that begin with their numbers. Change one byte of record `damaged`."""
    options: dict[str, Any] = {"records": "bytes", "records_per_chunk": 1} if path.suffix == ".recordio" else {}
    with open_writer(path, **options) as writer:
        for i in range(30):
            writer.write((np.uint32(i).tobytes() + bytes([i]) * LARGE,))
    if damaged is not None:
        data = bytearray(path.read_bytes())
        data[data.index(bytes([damaged]) * LARGE) + LARGE // 2] ^= 1
        path.write_bytes(data)
    return path


def first_numbers(reader: pyfeed.Reader) -> Iterator[int]:
    """Yield the numbers of the records, of single ones and of those in a batch."""
    for record in reader:
        for data in record[0].bytes_list():
            number = int.from_bytes(data[:4], sys.byteorder)
            assert data[4:] == bytes([number]) * LARGE
            yield number


def same(*record: object) -> tuple[object, ...]:
    return record


def counting() -> pyfeed.Reader:
    return pyfeed.from_generator(lambda: ((np.int64(i),) for i in range(30)), [()], dtypes=["int64"])


LARGE_CHAINS: dict[str, Callable[[pyfeed.Reader], pyfeed.Reader]] = {
    "files": lambda reader: reader,
    "shuffle": lambda reader: reader.shuffle(12, seed=5),
    "batch": lambda reader: reader.batch(7),
    "shuffle, batch, double_buffer": lambda reader: reader.shuffle(12, seed=5).batch(4).double_buffer(depth=4),
    "map": lambda reader: reader.shuffle(12, seed=5).map(same),
    "map in processes": lambda reader: reader.map(same, num_workers=2),
    "zip": lambda reader: reader.zip(counting()),
    "shard": lambda reader: reader.shard(1, 2),
}


@pytest.mark.parametrize("chain", LARGE_CHAINS.values(), ids=LARGE_CHAINS)
@pytest.mark.parametrize("suffix", ["tfrecord", "recordio"])
def test_damage_of_a_large_record_comes_where_the_record_would(
    tmp_path: Path, suffix: str, chain: Callable[[pyfeed.Reader], pyfeed.Reader]
) -> None:
    intact, path = large_records(tmp_path / f"a.{suffix}"), large_records(tmp_path / f"b.{suffix}", 17)
    order = list(first_numbers(chain(open_files(intact))))
    with pytest.raises(pyfeed.errors.CorruptRecordError) as early:  # where damage is found when the file is read
        list(open_files(path, verify_first=True))
    reader = chain(open_files(path))
    found: list[int] = []
    for _ in range(3):
        with pytest.raises(pyfeed.errors.CorruptRecordError, match="record 17: ") as caught:
            found.extend(first_numbers(reader))
        assert (caught.value.file, caught.value.offset, caught.value.record) == (str(path), early.value.offset, 17)
    assert found == order[: order.index(17)]  # and nothing behind it


@pytest.mark.parametrize("suffix", ["tfrecord", "recordio"])
def test_a_large_record_that_is_not_handed_out_is_not_verified(tmp_path: Path, suffix: str) -> None:
    path = large_records(tmp_path / f"a.{suffix}", 17)
    assert list(first_numbers(open_files(path).shard(0, 2))) == list(range(0, 30, 2))
    assert list(first_numbers(open_files(path).batch(16, drop_last=True))) == list(range(16))
    skipping = open_files(path, on_corrupt="skip")
    assert list(first_numbers(skipping.shard(1, 2))) == [i for k, i in enumerate([*range(17), *range(18, 30)]) if k % 2]
    assert skipping.stats()["details"]["corrupt"] == 1
