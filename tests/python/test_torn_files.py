"""Files that change while they are mapped: a copy must have the right bytes, or fail with an error."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyfeed

from .support import FILE_FORMATS

ROWS, WIDTH = 400, 1000  # 3 MB of ones
SHRANK = "the file shrank before this was read"


def save(path: Path) -> Path:
    np.save(path, np.ones((ROWS, WIDTH), "float64"))
    os.utime(path, (1_000_000_000, 1_000_000_000))  # an old time, which every later write changes
    return path


def last_of(path: Path, **options: Any) -> tuple[pyfeed.Reader, Any]:
    """Return a reader that has delivered all tuples, and the last view, whose memory was not accessed."""
    reader = pyfeed.open_files(path, io="map", num_threads=0, **options)
    for _ in range(ROWS - 1):
        reader.read()
    return reader, reader.read()[0]


def queue_of(tmp_path: Path, slots: int = 1, **options: Any) -> pyfeed.PyArrayFeedQueue:
    _, queue = pyfeed.py_array_reader(4, [(WIDTH,)] * slots, dtypes=["float64"] * slots, **options)
    return queue


def push(view: Any, tmp_path: Path) -> None:
    queue_of(tmp_path).push((view,))


def push_little(view: Any, tmp_path: Path) -> None:
    _, queue = pyfeed.py_array_reader(4, [(3,)], dtypes=["float64"])
    queue.push((view[:3],))


def push_much(view: Any, tmp_path: Path) -> None:
    _, queue = pyfeed.py_array_reader(4, [(20, WIDTH)], dtypes=["float64"])
    queue.push((np.broadcast_to(view, (20, WIDTH)),))


def push_backwards(view: Any, tmp_path: Path) -> None:
    queue_of(tmp_path).push((view[::-1],))


def push_lent(view: Any, tmp_path: Path) -> None:
    queue = queue_of(tmp_path)
    queue.push((view,), copy=False)
    queue.close()


def batch_lent(view: Any, tmp_path: Path) -> None:
    reader, queue = pyfeed.py_array_reader(4, [(WIDTH,)], dtypes=["float64"])
    queue.push((view,), copy=False)
    queue.close()
    reader.batch(1).read()


def write_in_place(view: Any, tmp_path: Path) -> None:
    with queue_of(tmp_path).reserve() as (room,):
        room[...] = view


def write_npy(view: Any, tmp_path: Path) -> None:
    with pyfeed.open_writer(tmp_path / "copy.npy") as writer:
        writer.write((view,))


def write_strided(view: Any, tmp_path: Path) -> None:
    with pyfeed.open_writer(tmp_path / "copy.raw") as writer:
        writer.write((view[::2],))


WAYS = [push, push_little, push_much, push_backwards, push_lent, batch_lent, write_in_place, write_npy, write_strided]


def test_the_error_names_the_slot_of_a_strided_view(tmp_path: Path) -> None:
    _, view = last_of(save(tmp_path / "a.npy"))
    os.truncate(tmp_path / "a.npy", 4096)
    with (
        pytest.raises(pyfeed.errors.CorruptRecordError, match="shrank") as caught,
        pyfeed.open_writer(tmp_path / "copy.npz", names=["whole", "cut"]) as writer,
    ):
        writer.write((np.ones(WIDTH), view[::2]))
    assert (caught.value.file, caught.value.slot) == (str(tmp_path / "a.npy"), 1)


@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
@pytest.mark.parametrize("met", [False, True], ids=["first met by the copy", "met before"])
def test_views_of_a_file_that_shrank_are_refused(tmp_path: Path, way: Callable[[Any, Path], None], met: bool) -> None:
    reader, view = last_of(save(tmp_path / "a.npy"))
    way(view, tmp_path)  # works as long as the file is whole
    for copy in tmp_path.glob("copy.*"):
        copy.unlink()
    os.truncate(tmp_path / "a.npy", 4096)
    if met or way is push_lent:  # push_lent does not access the memory
        assert view[-1] == 0
    for _ in range(2):
        with pytest.raises(pyfeed.errors.CorruptRecordError, match=r"shrank") as caught:
            way(view, tmp_path)
        if way is not write_in_place:  # the library does not know where these bytes come from
            assert (caught.value.file, caught.value.slot) == (str(tmp_path / "a.npy"), 0)
            assert SHRANK in str(caught.value)
        assert not list(tmp_path.glob("copy.*"))
    # Other memory is not refused.
    way(np.ones(WIDTH), tmp_path)
    del reader, view
    way(np.ones(WIDTH), tmp_path)


def test_map_refuses_results_that_are_views_of_a_file_that_shrank(tmp_path: Path) -> None:
    save(tmp_path / "a.npy")
    reader, view = last_of(tmp_path / "a.npy")
    os.truncate(tmp_path / "a.npy", 4096)
    mapped = pyfeed.random_data([(1,)], ["float32"]).map(lambda _: (view,), shapes=[(WIDTH,)], dtypes=["float64"])
    with pytest.raises(pyfeed.errors.CorruptRecordError, match=SHRANK):
        mapped.read()
    del reader


def row_of(format: str, i: int) -> Any:
    if format == "tfrecord":
        return b"%1000d" % i
    return np.int64(i) if format in ("csv", "jsonl") else np.full(100, i, "int32")


@pytest.mark.parametrize("format", FILE_FORMATS)
@pytest.mark.parametrize("io", ["map", "read"])
def test_a_file_written_to_while_it_is_read_is_an_error_at_its_end(tmp_path: Path, format: str, io: str) -> None:
    path = tmp_path / f"a.{format}"
    rows = 100_000 if format in ("csv", "jsonl") else 4000
    named = {"npz": ["x"], "csv": ["x"], "tar": ["npy"]}.get(format)
    large = {"compression": "none"} if format == "parquet" else {}  # a small file is read at once
    with pyfeed.open_writer(path, "tokens" if format == "tokens" else None, names=named, **large) as writer:
        for i in range(rows):
            writer.write((row_of(format, i),))
    os.utime(path, (1_000_000_000, 1_000_000_000))
    given: dict[str, Any] = {"shapes": [(100,)], "dtypes": ["int32"]} if format == "raw" else {}
    if format == "tokens":
        given = {"format": format, "length": 100}
    for on_corrupt in ("raise", "skip"):
        reader = pyfeed.open_files(path, io=io, num_threads=0, on_corrupt=on_corrupt, **given)
        reader.read()
        with open(path, "r+b") as file:  # writes the same bytes, so only the file's time changes
            byte = file.read(1)
            file.seek(0)
            file.write(byte)
        if on_corrupt == "raise":
            with pytest.raises(
                pyfeed.errors.CorruptRecordError,
                match=r"the file was written to while it was read: expected .* bytes, written at 2001-09-0",
            ) as caught:
                for _ in reader:
                    pass
            assert caught.value.file == str(path)
        else:
            assert sum(1 for _ in reader) == rows - 1
            (entry,) = reader.stats()["details"]["ledger"]
            assert "the file was written to while it was read" in entry["reason"]
        os.utime(path, (1_000_000_000, 1_000_000_000))
        # The error does not persist: the next pass reads the file as it is now.
        reader.reset()
        assert sum(1 for _ in reader) == rows


def test_what_is_held_of_a_file_written_to_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npy")
    reader = pyfeed.open_files(path, io="map", num_threads=0)
    (view,) = reader.read()
    np.save(path, np.zeros((ROWS, WIDTH)))
    with pytest.raises(pyfeed.errors.CorruptRecordError, match="the file was written to while it was read"):
        for _ in reader:
            pass
    with pytest.raises(pyfeed.errors.CorruptRecordError, match="the file was written to before this was read"):
        push(view, tmp_path)


def test_a_file_that_is_replaced_is_read_as_it_was(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npy")
    reader = pyfeed.open_files(path, io="map", num_threads=0)
    first = reader.read()[0]
    with pyfeed.open_writer(path) as writer:
        writer.write((np.zeros(3),))
    assert first.sum() + sum(float(x.sum()) for (x,) in reader) == ROWS * WIDTH
    reader.reset()
    with pytest.raises(pyfeed.errors.ShapeError):
        reader.read()
