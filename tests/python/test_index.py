"""Indexes of files: records by their numbers, and a shuffle of all records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyfeed.errors import ArgumentTypeError, InvalidArgument, RecordIndexError, UnsupportedError

import pyfeed

from .support import raises


def texts(folder: Path, *counts: int) -> list[str]:
    """Write TFRecord files of texts, which are numbered through all files."""
    number, names = 0, []
    for i, count in enumerate(counts):
        names.append(str(folder / f"{i}.tfrecord"))
        with pyfeed.open_writer(names[-1]) as writer:
            for _ in range(count):
                writer.write((pyfeed.LoDTensor.from_bytes([str(number).encode()]),))
                number += 1
    return names


def numbers(reader: pyfeed.Reader) -> list[int]:
    return [int(x.bytes_list()[0]) for (x,) in reader]


def test_records_by_number(tmp_path: Path) -> None:
    reader = pyfeed.open_files(texts(tmp_path, 3, 1, 5), index=True)
    assert len(reader) == 9
    assert [int(reader[i][0].bytes_list()[0]) for i in (8, 0, 3, -1, -9, np.int64(4))] == [8, 0, 3, 8, 0, 4]
    assert numbers(reader) == [0, 3, 4, 1, 5, 2, 6, 7, 8]
    for i, shown in ((9, 9), (-10, -1), (2**70, None)):
        with pytest.raises(RecordIndexError) as info:
            reader[i]
        assert isinstance(info.value, IndexError)
        found = f"index: expected the number of one of 9 records, found {shown}"
        assert shown is None or str(info.value) == found
    with raises(ArgumentTypeError, "index: expected an integer, found slice(None, 3, None)"):
        reader[:3]  # type: ignore[index]


def test_readers_without_an_index(tmp_path: Path) -> None:
    names = texts(tmp_path, 3)
    reader = pyfeed.open_files(names)
    with pytest.raises(UnsupportedError, match="has no records by number: expected one of open_files with index=True"):
        reader[0]
    with pytest.raises(TypeError, match=r"open_files\(\.\.\., index=True\) does so once"):
        len(reader)
    assert len(pyfeed.open_files(names, index=True).batch(2)) == 2


def test_a_shuffle_of_all_records(tmp_path: Path) -> None:
    names = texts(tmp_path, 30, 1, 50)
    passes = []
    for threads in (1, 4):
        reader = pyfeed.open_tfrecord(names, shuffle_records=3, num_threads=threads)
        passes.append([numbers(reader), numbers(reader)])
        assert [sorted(p) for p in passes[-1]] == [list(range(81))] * 2
        assert int(reader[7][0].bytes_list()[0]) == 7
    assert passes[0] == passes[1]
    assert passes[0][0] != passes[0][1] != list(range(81))

    reader = pyfeed.open_tfrecord(names, shuffle_records=3).batch(10)
    for _ in range(3):
        reader.read()
    state = reader.state_dict()
    again = pyfeed.open_tfrecord(names, shuffle_records=3, num_threads=1).batch(10)
    again.load_state_dict(state)
    rest = [int(text) for (x,) in again for text in x.bytes_list()]
    assert rest == passes[0][0][30:]


def test_where_indexes_are(tmp_path: Path) -> None:
    names = texts(tmp_path, 3)
    folder = tmp_path / "indexes \udcff"
    folder.mkdir()
    assert len(pyfeed.open_files(names, index_dir=folder)) == 3
    assert [f.name[:12] for f in folder.iterdir()] == [".0.tfrecord-"]
    assert not list(tmp_path.glob(".*"))
    with pytest.raises(pyfeed.errors.MissingFileError):
        pyfeed.open_files(names, index_dir=tmp_path / "missing")


def test_what_does_not_fit(tmp_path: Path) -> None:
    names = texts(tmp_path, 3)
    message = "shuffle_files: expected none with shuffle_records, which permutes the records of all files, found 2"
    with raises(InvalidArgument, message):
        pyfeed.open_files(names, shuffle_records=1, shuffle_files=2)
    with pytest.raises(InvalidArgument, match="create_file_reader: expected no index"):
        pyfeed.open_files(names, num_threads=0, index=True)


def test_programs_have_them_too(tmp_path: Path) -> None:
    from pyfeed.program import Executor, Program, layers, program_guard

    np.save(tmp_path / "x.npy", np.arange(20))
    main, startup, scope = Program(), Program(), pyfeed.Scope()
    with program_guard(main, startup):
        reader = layers.batch(layers.open_files(str(tmp_path / "x.npy"), shuffle_records=5), 20)
        x = layers.read_file(reader)
    executor = Executor()
    executor.run(startup, scope=scope)
    found = executor.run(main, fetch=[x], scope=scope)[0]
    expected = next(iter(pyfeed.open_npy(tmp_path / "x.npy", shuffle_records=5).batch(20)))[0]
    assert np.asarray(found).tolist() == expected.tolist()
    assert sorted(expected.tolist()) == list(range(20))
