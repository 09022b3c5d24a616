"""Files to shuffled batches: the files, what is in them, and the consumer.

Instance number i begins with i: the first four bytes of a record, the first number of an array, the label beside it.
The consumer collects that of every instance of every batch, and a byte of every page, and when the clock has been
stopped it looks whether every instance came once, with its own label, in another order than in the files.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import shutil
import struct
import tarfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from measuring import Timed

T = TypeVar("T")
Batch = tuple[npt.NDArray[Any], ...]
"""An array a slot, with the batch as its first dimension."""

PAGE = 4096
SHARDS = 4
NOISE = np.random.default_rng(1).integers(0, 256, 1 << 20, dtype=np.uint8)
FLOATS = (NOISE / 256).astype(np.float32)


@dataclass(frozen=True)
class Files:
    """Some files of one format, and how they are to be read.

    Attributes
    ----------
    format : str
        tfrecord, recordio, raw: records of `shape[0]` bytes; example: TFRecord of tf.train.Example with `image` and
        `label`; npy: one array a file; rows: rows of one npy file; tar: members ``bin`` and ``cls`` of an instance;
        csv: a line of headings, then floats.
    paths : tuple of str
    count : int
        Instances of all files.
    shape, dtype
        Of an instance's first array. Those of example and tar have an int64 beside it.
    block : int
        Instances in the shuffle's block or buffer, at least.
    batch : int
    cores : int
    """

    format: str
    paths: tuple[str, ...]
    count: int
    shape: tuple[int, ...]
    dtype: str
    block: int
    batch: int = 32
    cores: int = 1

    @property
    def labelled(self) -> bool:
        return self.format in ("example", "tar")

    @property
    def size(self) -> int:
        """Bytes of an instance's first array."""
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize

    @property
    def bytes(self) -> int:
        return sum(os.path.getsize(path) for path in self.paths)

    @property
    def folder(self) -> Path:
        """Where the files are, and the same instances in a library's own format."""
        return Path(self.paths[0]).parent

    def array(self, i: int) -> npt.NDArray[Any]:
        """The first array of instance i."""
        begin = i * 97 % 900_000
        if self.dtype == "uint8":
            out = NOISE[begin : begin + self.size].copy()
            out[:4].view(np.uint32)[0] = i
            return out
        numbers = FLOATS[begin : begin + self.size // 4].copy()
        numbers[0] = i
        return numbers.reshape(self.shape)

    def own(self, name: str, write: Callable[[Path], None]) -> Path:
        """The same instances in a library's own format: a folder, which is made when it is first asked for."""
        folder = self.folder / name
        if not folder.exists():
            unfinished = folder.with_name(f"{name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            write(unfinished)
            unfinished.rename(folder)
        return folder


# ---- Making of the files ---------------------------------------------------------------------------


def make(
    folder: Path, name: str, format: str, count: int, shape: tuple[int, ...], dtype: str, block: int
) -> Callable[[int], Files]:
    """Write the files of a row, unless they are there; what is returned makes the task on so many cores."""
    here = folder / f"{name.replace(' ', '-')}-{count}"

    def task(paths: list[Path], cores: int) -> Files:
        return Files(format, tuple(map(str, paths)), count, shape, dtype, block, cores=cores)

    if format == "npy":
        paths = [here / f"{i:05d}.npy" for i in range(count)]
    elif format == "rows":
        paths = [here / "rows.npy"]
    else:
        suffix = "tfrecord" if format == "example" else format
        paths = [here / f"{k}.{suffix}" for k in range(SHARDS)]
    if not (here / "complete").exists():
        shutil.rmtree(here, ignore_errors=True)
        here.mkdir(parents=True)
        _write(task(paths, 1), paths)
        (here / "complete").touch()
    for path in paths:
        path.read_bytes()  # from now on they come from the page cache
    return lambda cores: task(paths, cores)


def shard(task: Files, k: int) -> range:
    """The numbers of the instances in file k."""
    n = len(task.paths)
    return range(task.count * k // n, task.count * (k + 1) // n)


def _write(task: Files, paths: list[Path]) -> None:
    if task.format == "npy":
        for i, path in enumerate(paths):
            np.save(path, task.array(i))
    elif task.format == "rows":
        np.save(paths[0], np.stack([task.array(i) for i in range(task.count)]))
    elif task.format == "raw":
        for k, path in enumerate(paths):
            with path.open("wb") as file:
                for i in shard(task, k):
                    file.write(task.array(i).tobytes())
    elif task.format == "csv":
        for k, path in enumerate(paths):
            with path.open("w") as text:
                text.write(",".join(columns(task)) + "\n")
                for i in shard(task, k):
                    text.write(",".join(f"{value:.6f}" for value in task.array(i)) + "\n")
    else:
        _write_with_ours(task, paths)


def _write_with_ours(task: Files, paths: list[Path]) -> None:
    import pyfeed

    options: dict[str, dict[str, Any]] = {
        "tfrecord": {},
        "recordio": {"records": "bytes"},
        "example": {"features": FEATURES},
        "tar": {"names": ["bin", "cls"]},
    }
    for k, path in enumerate(paths):
        with pyfeed.open_writer(path, **options[task.format]) as writer:
            for i in shard(task, k):
                array = task.array(i)
                first = array if task.format == "example" else array.tobytes()
                writer.write((first, np.int64(i)) if task.labelled else (first,))


FEATURES = [
    {"name": "image", "kind": "fixed", "dtype": "float32", "shape": [784]},
    {"name": "label", "kind": "fixed", "dtype": "int64", "shape": []},
]


def columns(task: Files) -> list[str]:
    return [f"x{j}" for j in range(task.shape[0])]


# ---- Parts of formats, for libraries that leave them to the user --------------------------------------


def stack_bytes(records: list[bytes]) -> npt.NDArray[np.uint8]:
    """Records of one size as an array: one copy, the quickest that NumPy has."""
    return np.frombuffer(b"".join(records), np.uint8).reshape(len(records), -1)


def recordio(path: str) -> Iterator[bytes]:
    """The records of a RecordIO file that is not compressed, as plain Python reads them, chunk by chunk."""
    header = struct.Struct("<5I")
    length = struct.Struct("<I").unpack_from
    with open(path, "rb") as file:
        while head := file.read(header.size):
            _, count, crc, _, size = header.unpack(head)
            chunk = file.read(size)
            if zlib.crc32(chunk) != crc:
                raise ValueError(f"{path}: a chunk is damaged")
            at = 0
            for _ in range(count):
                end = at + 4 + length(chunk, at)[0]
                yield chunk[at + 4 : end]
                at = end


def tfrecord(path: str) -> Iterator[bytes]:
    """The records of a TFRecord file, as plain Python reads them: CRC-32C, which Python lacks, is not checked."""
    length = struct.Struct("<Q4x").unpack
    with open(path, "rb") as file:
        while head := file.read(12):
            yield file.read(length(head)[0] + 4)[:-4]


def raw(path: str, size: int) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while record := file.read(size):
            yield record


def tar(path: str) -> Iterator[tuple[bytes, int]]:
    """The instances of an archive: what is in ``bin``, and the number in ``cls``."""
    with tarfile.open(path) as archive:
        first = b""
        for member in archive:
            contents = archive.extractfile(member)
            assert contents is not None
            if member.name.endswith(".bin"):
                first = contents.read()
            else:
                yield first, int(contents.read())


def records(task: Files, path: str) -> Iterator[bytes]:
    """The records of one file of bytes, in plain Python."""
    if task.format == "raw":
        return raw(path, task.size)
    return {"recordio": recordio, "tfrecord": tfrecord, "example": tfrecord}[task.format](path)


def example(record: Any) -> tuple[npt.NDArray[np.float32], int]:
    """An Example by the classes of the package `tfrecord`, which needs Protocol Buffers alone."""
    from tfrecord import example_pb2

    features = example_pb2.Example.FromString(record).features.feature
    return np.array(features["image"].float_list.value, np.float32), features["label"].int64_list.value[0]


def shuffled(instances: Iterable[T], block: int, batch: int) -> Iterator[list[T]]:
    """Shuffled batches of what comes one by one, for libraries that leave shuffling to the user: block by block."""
    source = iter(instances)
    while some := list(itertools.islice(source, block)):
        random.shuffle(some)
        for i in range(0, len(some), batch):
            yield some[i : i + batch]


def shuffled_rows(rows: npt.NDArray[Any], batch: int) -> Iterator[Batch]:
    """All rows of an array once, in any order."""
    order = np.random.default_rng().permutation(len(rows))
    for i in range(0, len(order), batch):
        yield (rows[order[i : i + batch]],)


def collate(task: Files, some: list[Any]) -> Batch:
    """Arrays of what `shuffled` gives of a file of records."""
    if task.format == "example":
        some = list(map(example, some))
        return np.stack([image for image, _ in some]), np.array([label for _, label in some])
    if task.format == "tar":
        return stack_bytes([record for record, _ in some]), np.array([label for _, label in some])
    return (stack_bytes(some),)


def lists(task: Files, paths: Iterable[str]) -> Iterator[list[Any]]:
    """Shuffled lists of the instances of files of records, still to be collated, in plain Python."""
    parse = tar if task.format == "tar" else functools.partial(records, task)
    return shuffled(itertools.chain.from_iterable(map(parse, paths)), task.block, task.batch)


def table(path: str) -> npt.NDArray[np.float32]:
    """A CSV file by pyarrow, which has the fastest parser in Python."""
    import pyarrow
    from pyarrow import csv

    types = csv.ConvertOptions(column_types={f"x{j}": pyarrow.float32() for j in range(20)})
    return np.column_stack([column.to_numpy() for column in csv.read_csv(path, convert_options=types).columns])


def read_batches(task: Files, paths: Iterable[str]) -> Iterator[Batch]:
    """Shuffled batches of files, in plain Python, for libraries that leave reading and shuffling to the user."""
    if task.format == "csv":
        for path in paths:
            yield from shuffled_rows(table(path), task.batch)
    else:
        yield from (collate(task, some) for some in lists(task, paths))


class Rows:
    """Random access to arrays: npy files, rows of one, records of one size."""

    def __init__(self, task: Files) -> None:
        self.task = task
        self._mapped: list[npt.NDArray[Any]] | None = None

    def __len__(self) -> int:
        return self.task.count

    def __getitem__(self, i: int) -> npt.NDArray[Any]:
        if self.task.format == "npy":
            array: npt.NDArray[Any] = np.load(self.task.paths[i])
            return array
        mapped = self.mapped()
        each = len(mapped[0])
        row: npt.NDArray[Any] = mapped[i // each][i % each]
        return row

    def __getitems__(self, indexes: list[int]) -> list[npt.NDArray[Any]]:
        return [self[i] for i in indexes]

    def mapped(self) -> list[npt.NDArray[Any]]:
        """The files as arrays of rows; all of one length."""
        if self._mapped is None:  # each process maps them itself
            task = self.task
            if task.format == "rows":
                self._mapped = [np.load(task.paths[0], mmap_mode="r")]
            else:
                self._mapped = [np.memmap(path, np.uint8, "r").reshape(-1, task.size) for path in task.paths]
            self._mapped = [np.asarray(array) for array in self._mapped]
        return self._mapped


RANDOM_ACCESS = ("npy", "rows", "raw")
"""The formats of which `Rows` gives any instance."""


# ---- The consumer ------------------------------------------------------------------------------------


def passes(way: Callable[..., Callable[[], Iterator[Batch]]], task: Files, **setting: Any) -> Timed:
    """Passes over the files: a way is given the task and its setting, and returns what begins a pass."""
    begin = way(task, **setting)

    def timed(count: int) -> float:
        return sum(_pass(begin, task) for _ in range(count))

    return timed


def _pass(begin: Callable[[], Iterator[Batch]], task: Files) -> float:
    numbers: list[bytes] = []
    labels: list[bytes] = []
    pages: list[bytes] = []
    whole = task.size // PAGE
    step = PAGE // np.dtype(task.dtype).itemsize
    bytes_ = task.dtype == "uint8"
    start = time.perf_counter()
    for batch in begin():
        first = batch[0] if len(task.shape) == 1 else batch[0].reshape(len(batch[0]), -1)
        numbers.append((first[:, :4] if bytes_ else first[:, 0]).tobytes())
        if whole:
            pages.append(first[:, ::step].tobytes())
        if task.labelled:
            labels.append(batch[1].tobytes())
    seconds = time.perf_counter() - start
    _check(task, b"".join(numbers), b"".join(labels), b"".join(pages))
    return seconds


def _check(task: Files, numbers: bytes, labels: bytes, pages: bytes) -> None:
    seen = np.frombuffer(numbers, np.uint32 if task.dtype == "uint8" else task.dtype)
    if len(seen) != task.count:
        raise ValueError(f"expected {task.count} instances, found {len(seen)}")
    if not np.array_equal(np.sort(seen), np.arange(task.count)):
        raise ValueError(f"expected every instance once, found {len(np.unique(seen))} of {task.count}")
    if task.labelled and not np.array_equal(np.frombuffer(labels, np.int64), seen):
        raise ValueError("expected every instance's label beside it, found another's")
    if np.count_nonzero(np.diff(seen.astype(np.int64)) == 1) > task.count // 10:
        raise ValueError("expected another order than that of the files")
    if pages and np.frombuffer(pages, task.dtype).sum(dtype=np.float64) != _pages(task):
        raise ValueError("expected the bytes of the files, found others")


_PAGES: dict[Files, float] = {}


def _pages(task: Files) -> float:
    if task not in _PAGES:
        step = PAGE // np.dtype(task.dtype).itemsize
        every = (task.array(i).reshape(-1)[::step] for i in range(task.count))
        _PAGES[task] = sum(float(each.sum(dtype=np.float64)) for each in every)
    return _PAGES[task]
