"""The workload of `resume.py`: a pipeline whose state is taken at a step, and one that goes on from the state.

A record begins with its number, in eight bytes. So no two batches are equal, and a batch that is compared byte for byte
also has the right records.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pickle
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from workloads.files import NOISE, Batch
from workloads.interruption import emit

Rows = npt.NDArray[np.uint8]
PIECE = 8 << 20  # bytes that are read at a time, to bring files into the page cache


class Pipeline(Protocol):
    """Shuffled batches of one library."""

    def next_batch(self) -> Rows:
        """The records of the next batch, a row each."""

    def take(self) -> Any:
        """Return the state, or None if the library itself has written it to `Records.state`."""

    def load(self, state: Any) -> None:
        """Go to a state. The pipeline is new."""


@dataclass(frozen=True)
class Records:
    """Files of records of one size, and what is read from them.

    Attributes
    ----------
    folder : str
        Has a folder for each format.
    files : int
    records : int
        In each file.
    size : int
        Bytes of a record.
    buffer : int
        Records in the buffer of the shuffle.
    step : int
        The number of batches before the state is taken.
    batch : int
    takes : int
        The number of states that are taken, each after a batch of its own, the last one at the step.
    following : int
        The number of batches after the state that are compared.
    seed : int
    scratch : str
        The folder of the state, and of what follows it.
    """

    folder: str
    files: int
    records: int
    size: int
    buffer: int
    step: int
    takes: int = 25
    batch: int = 32
    following: int = 200
    seed: int = 1
    scratch: str = ""

    @property
    def count(self) -> int:
        return self.files * self.records

    @property
    def state(self) -> str:
        """The file of the state. A library that writes the state itself may add suffixes."""
        return f"{self.scratch}/state"

    @property
    def expected(self) -> Path:
        """The file with the digests of the batches that follow."""
        return Path(self.scratch, "expected")

    def record(self, i: int) -> bytes:
        begin = i * 97 % (len(NOISE) - self.size)
        return i.to_bytes(8, "little") + NOISE[begin : begin + self.size - 8].tobytes()

    def shard(self, k: int) -> Iterator[bytes]:
        """The records of file k."""
        return map(self.record, range(k * self.records, (k + 1) * self.records))

    def own(self, name: str, write: Callable[[Path], None]) -> Path:
        """The folder of a format. The first call writes it; no call leaves files that are not in the page cache."""
        folder = Path(self.folder, name)
        if not folder.exists():
            unfinished = folder.with_name(f"{name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            write(unfinished)
            unfinished.rename(folder)
        piece = bytearray(PIECE)
        for path in filter(Path.is_file, folder.rglob("*")):
            with path.open("rb", buffering=0) as file:
                while file.readinto(piece):
                    pass
        return folder

    def tfrecord(self) -> list[str]:
        return self._paths("tfrecord", functools.partial(_write_tfrecord, self))

    def raw(self) -> list[str]:
        """Files of nothing but records."""
        return self._paths("raw", functools.partial(_write_raw, self))

    def _paths(self, format: str, write: Callable[[Path], None]) -> list[str]:
        return sorted(map(str, self.own(format, write).iterdir()))

    def names(self, folder: Path, suffix: str) -> Iterator[tuple[int, Path]]:
        """The numbers of the files, and their names."""
        return ((k, folder / f"{k:03}.{suffix}") for k in range(self.files))


def _write_tfrecord(workload: Records, folder: Path) -> None:
    import pyfeed

    for k, path in workload.names(folder, "tfrecord"):
        with pyfeed.open_writer(path) as writer:
            for record in workload.shard(k):
                writer.write((record,))


def _write_raw(workload: Records, folder: Path) -> None:
    for k, path in workload.names(folder, "raw"):
        with path.open("wb") as file:
            file.writelines(workload.shard(k))


class MappedRows:
    """A random access source of the records of mapped plain files."""

    def __init__(self, paths: list[str], workload: Records) -> None:
        self._files = [np.memmap(path, np.uint8, "r", shape=(workload.records, workload.size)) for path in paths]
        self._each = workload.records

    def __len__(self) -> int:
        return len(self._files) * self._each

    def __getitem__(self, i: int) -> Rows:
        row: Rows = self._files[i // self._each][i % self._each]
        return row

    def __getitems__(self, indexes: list[int]) -> list[Rows]:
        return [self[i] for i in indexes]


class Stateful:
    """A pipeline of an object with `state_dict` and `load_state_dict`, over which a loop goes on.

    Parameters
    ----------
    loader
    rows : callable
        Makes an array of the records of a batch.
    """

    def __init__(self, loader: Any, rows: Callable[[Any], Rows]) -> None:
        self._loader = loader
        self._rows = rows
        self._batches: Iterator[Any] | None = None

    def next_batch(self) -> Rows:
        if self._batches is None:
            self._batches = iter(self._loader)  # not before the state was loaded
        return self._rows(next(self._batches))

    def take(self) -> Any:
        return self._loader.state_dict()

    def load(self, state: Any) -> None:
        self._loader.load_state_dict(state)


Prepared = Callable[[], Pipeline]
Prepare = Callable[[Records], Prepared]
"""A function of `libraries`: it imports the library, and writes its files; what it returns makes a pipeline."""


def write_state(path: str, state: Any) -> None:
    """Write a state as JSON, or by pickle if JSON cannot hold it."""
    try:
        data = json.dumps(state, separators=(",", ":")).encode()
    except TypeError:
        data = pickle.dumps(state)
    Path(path).write_bytes(data)


def read_state(path: str) -> Any:
    data = Path(path).read_bytes()
    return pickle.loads(data) if data[:1] == b"\x80" else json.loads(data)


def digests(pipeline: Pipeline, count: int) -> Iterator[str]:
    for _ in range(count):
        yield _digest(pipeline.next_batch())


def _digest(rows: Rows) -> str:
    return hashlib.sha256(np.ascontiguousarray(rows).data).hexdigest()


def check(workload: Records, batches: list[Batch]) -> None:
    """Check that batches have whole records, no record twice, and another order than the files."""
    numbers: list[int] = []
    for (rows,) in batches:
        assert rows.shape == (workload.batch, workload.size), rows.shape
        numbers += np.ascontiguousarray(rows[:, :8]).view("<i8").ravel().tolist()
        assert rows[0].tobytes() == workload.record(numbers[-workload.batch])
    assert len(set(numbers)) == len(numbers)
    assert sorted(numbers) != numbers


def save(prepare: Prepare, workload: Records) -> None:
    """Read up to the step, take the state, and write what follows. Emits the size, and the times of all takes."""
    pipeline = prepare(workload)()
    check(workload, [(pipeline.next_batch().copy(),), (pipeline.next_batch().copy(),)])
    take_text = getattr(pipeline, "take_text", None)
    times, texts = [], []
    state = None
    for done in range(3, workload.step + 1):
        pipeline.next_batch()
        if done > workload.step - workload.takes:
            began = time.perf_counter()
            state = pipeline.take()
            times.append(time.perf_counter() - began)
            if take_text is not None:
                began = time.perf_counter()
                take_text()
                texts.append(time.perf_counter() - began)
    if state is not None:
        write_state(workload.state, state)
    size = sum(path.stat().st_size for path in Path(workload.scratch).iterdir())
    expected = list(digests(pipeline, workload.following))
    assert len(set(expected)) == workload.following
    workload.expected.write_text("\n".join(expected))
    emit("saved", size, json.dumps(times), json.dumps(texts))
    os._exit(0)  # some libraries take seconds to end


def restore(prepare: Prepare, workload: Records) -> None:
    """Make a pipeline, load the state, and take the first batch; then do so again.

    Emits the seconds for all of that in a new process, those without making the pipeline, those of the second time, and
    the number of batches that differ from those that followed the state.
    """
    make = prepare(workload)
    state = workload.state if Path(workload.state).exists() else None
    expected = workload.expected.read_text().split("\n")

    def resumed() -> tuple[Pipeline, Rows, float, float]:
        began = time.perf_counter()
        pipeline = make()
        made = time.perf_counter()
        pipeline.load(read_state(state) if state else None)
        first = pipeline.next_batch()
        ended = time.perf_counter()
        return pipeline, first, ended - began, ended - made

    pipeline, first, total, without = resumed()
    following = [_digest(first), *digests(pipeline, workload.following - 1)]
    differ = sum(one != other for one, other in zip(following, expected, strict=True))
    del pipeline, first
    _, first, again, _ = resumed()
    if not differ:
        assert _digest(first) == expected[0]
    emit("restored", total, without, again, differ)
    os._exit(0)
