"""Damaged files: nothing is lost, or altered, without an error."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
import pytest

import pyfeed
from pyfeed import open_files, open_raw, open_writer

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
        with pytest.raises(pyfeed.CorruptRecordError, match=f"as the suffix {suffix} says, found the bytes") as caught:
            numbers(name)
        assert (caught.value.file, caught.value.offset) == (str(path), 0)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_download_is_no_empty_data_set(tmp_path: Path, suffix: str) -> None:
    empty, fine = tmp_path / f"a.raw{suffix}", tmp_path / "b.raw"
    empty.touch()
    np.arange(3).tofile(fine)
    with pytest.raises(pyfeed.CorruptRecordError, match="found an empty file"):
        numbers(empty)
    with pytest.raises(pyfeed.CorruptRecordError, match="found an empty file"):
        numbers(fine, empty)
    assert numbers(empty, fine, on_corrupt="skip") == [0, 1, 2]


@pytest.mark.parametrize("suffix", ["raw", "csv", "tfrecord", "tar"])
@pytest.mark.parametrize("compression", SUFFIXES)
def test_a_writer_without_tuples_writes_an_empty_data_set(tmp_path: Path, suffix: str, compression: str) -> None:
    if suffix == "tfrecord" and compression in (".zst", ".sz"):
        return  # which are refused
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
    with pytest.raises(pyfeed.CorruptRecordError, match="another zlib stream"):
        numbers(path)


def test_a_file_among_others_that_are_alike(tmp_path: Path) -> None:
    for i in range(40):
        np.save(tmp_path / f"{i:02}.npy", np.full(4, i))
    (tmp_path / "30.npy").rename(tmp_path / "30.npy.gz")
    reader = open_files(sorted(tmp_path.iterdir()), interleave=1, instances="file")
    assert [reader.read()[0][0] for _ in range(30)] == list(range(30))
    with pytest.raises(pyfeed.CorruptRecordError, match=r"30\.npy\.gz.*as the suffix \.gz says"):
        reader.read()
    (tmp_path / "30.npy.gz").write_bytes(gzip.compress((tmp_path / "31.npy").read_bytes()))
    reader.reset()
    assert [x[0].item() for (x,) in reader] == [31 if i == 30 else i for i in range(40)]
