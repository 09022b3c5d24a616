"""The workload of `files.py`: the files, their contents, and the consumer.

Instance i begins with the number i: in the first four bytes of a record, or the first number of an array. Its label, if
it has one, is i too. The consumer collects these numbers from every batch, and one byte of every page. After it has
stopped the clock, it checks that every instance came exactly once, with its own label, and in another order than in the
files.
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
from harness import NotSupported, Timed

T = TypeVar("T")
Batch = tuple[npt.NDArray[Any], ...]
"""An array for each slot, with the batch as its first dimension."""

PAGE = 4096
SHARDS = 4
NOISE = np.random.default_rng(1).integers(0, 256, 1 << 20, dtype=np.uint8)
FLOATS = (NOISE / 256).astype(np.float32)


@dataclass(frozen=True)
class Files:
    """Files of one format, and the parameters for reading them.

    Attributes
    ----------
    format : str
        tfrecord, recordio, raw: records of `shape[0]` bytes; example: TFRecord of tf.train.Example with `image` and
        `label`; npy: one array a file; rows: rows of one npy file; tar: members ``bin`` and ``cls`` of an instance;
        csv: a line of headings, then floats; "parquet snappy", "parquet zstd", arrow, jsonl: see `tables`; mds: bytes
        and a label; tokens: tokens without a header, in windows.
    paths : tuple of str
    count : int
        The number of instances in all files.
    shape, dtype
        The shape and dtype of the first array of an instance. In example, tar and mds, an int64 label follows. In
        tables, the dtype float32 means columns of numbers, int32 lists of tokens, and str text.
    block : int
        The least number of instances in the block or buffer of the shuffle.
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
    def kind(self) -> str:
        """The format without the codec."""
        return self.format.partition(" ")[0]

    @property
    def content(self) -> str:
        """What the rows of a table are: numbers, tokens or text; "" for other formats."""
        if self.kind not in ("parquet", "arrow", "jsonl"):
            return ""
        return {"float32": "numbers", "int32": "tokens", "str": "text"}[self.dtype]

    @property
    def labelled(self) -> bool:
        return self.format in ("example", "tar", "mds")

    @property
    def size(self) -> int:
        """Bytes of an instance's first array."""
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize

    @property
    def bytes(self) -> int:
        return sum(os.path.getsize(path) for path in self.paths)

    @property
    def folder(self) -> Path:
        """The folder of the files, and of their copies in the formats of libraries."""
        return Path(self.paths[0]).parent

    def array(self, i: int) -> npt.NDArray[Any]:
        """The first array of instance i."""
        begin = i * 97 % 900_000
        if self.dtype == "uint16":
            window = NOISE[begin : begin + self.size].view(np.uint16).copy()
            window[0] = i
            return window
        if self.dtype == "uint8":
            out = NOISE[begin : begin + self.size].copy()
            out[:4].view(np.uint32)[0] = i
            return out
        numbers = FLOATS[begin : begin + self.size // 4].copy()
        numbers[0] = i
        return numbers.reshape(self.shape)

    def own(self, name: str, write: Callable[[Path], None]) -> Path:
        """A folder with the same instances in a library's own format. The first call writes it."""
        folder = self.folder / name
        if not folder.exists():
            unfinished = folder.with_name(f"{name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            write(unfinished)
            unfinished.rename(folder)
        return folder


# ---- Writing the files -----------------------------------------------------------------------------


def make(
    folder: Path, name: str, format: str, count: int, shape: tuple[int, ...], dtype: str, block: int
) -> Callable[[int], Files]:
    """Write the files of a case, unless they exist. Return a function that makes the workload for a number of cores."""
    here = folder / f"{name.replace(' ', '-')}-{count}"

    def workload(paths: list[Path], cores: int) -> Files:
        return Files(format, tuple(map(str, paths)), count, shape, dtype, block, cores=cores)

    if format == "npy":
        paths = [here / f"{i:05d}.npy" for i in range(count)]
    elif format == "rows":
        paths = [here / "rows.npy"]
    elif format == "mds":
        paths = [here / "mds" / f"shard.{k:05d}.mds" for k in range(SHARDS)]
    else:
        suffix = {"example": "tfrecord", "tokens": "bin"}.get(format, format.partition(" ")[0])
        paths = [here / f"{k}.{suffix}" for k in range(SHARDS)]
    if not (here / "complete").exists():
        shutil.rmtree(here, ignore_errors=True)
        here.mkdir(parents=True)
        _write(workload(paths, 1), paths)
        (here / "complete").touch()
    for path in paths:
        path.read_bytes()  # brings the file into the page cache
    return lambda cores: workload(paths, cores)


def shard(workload: Files, k: int) -> range:
    """The numbers of the instances in file k."""
    n = len(workload.paths)
    return range(workload.count * k // n, workload.count * (k + 1) // n)


def _write(workload: Files, paths: list[Path]) -> None:
    if workload.format == "npy":
        for i, path in enumerate(paths):
            np.save(path, workload.array(i))
    elif workload.format == "rows":
        np.save(paths[0], np.stack([workload.array(i) for i in range(workload.count)]))
    elif workload.format in ("raw", "tokens"):
        for k, path in enumerate(paths):
            with path.open("wb") as file:
                for i in shard(workload, k):
                    file.write(workload.array(i).tobytes())
    elif workload.format == "csv":
        for k, path in enumerate(paths):
            with path.open("w") as text:
                text.write(",".join(columns(workload)) + "\n")
                for i in shard(workload, k):
                    text.write(",".join(f"{value:.6f}" for value in workload.array(i)) + "\n")
    elif workload.content or workload.format == "mds":
        from . import tables

        tables.write(workload, paths)
    else:
        _write_with_ours(workload, paths)


def _write_with_ours(workload: Files, paths: list[Path]) -> None:
    import pyfeed

    options: dict[str, dict[str, Any]] = {
        "tfrecord": {},
        "recordio": {"records": "bytes"},
        "example": {"features": FEATURES},
        "tar": {"names": ["bin", "cls"]},
    }
    for k, path in enumerate(paths):
        with pyfeed.open_writer(path, **options[workload.format]) as writer:
            for i in shard(workload, k):
                array = workload.array(i)
                first = array if workload.format == "example" else array.tobytes()
                writer.write((first, np.int64(i)) if workload.labelled else (first,))


FEATURES = [
    {"name": "image", "kind": "fixed", "dtype": "float32", "shape": [784]},
    {"name": "label", "kind": "fixed", "dtype": "int64", "shape": []},
]


def columns(workload: Files) -> list[str]:
    return [f"x{j}" for j in range(workload.shape[0])]


# ---- Reading and shuffling, for libraries that leave it to the user ------------------------------------


def stack_bytes(records: list[bytes]) -> npt.NDArray[np.uint8]:
    """Make an array of records of one size, with one copy: the fastest way in NumPy."""
    return np.frombuffer(b"".join(records), np.uint8).reshape(len(records), -1)


def recordio(path: str) -> Iterator[bytes]:
    """Read an uncompressed RecordIO file chunk by chunk, in plain Python."""
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
    """Read a TFRecord file in plain Python. Python has no CRC-32C, so the checksums are not verified."""
    length = struct.Struct("<Q4x").unpack
    with open(path, "rb") as file:
        while head := file.read(12):
            yield file.read(length(head)[0] + 4)[:-4]


def raw(path: str, size: int) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while record := file.read(size):
            yield record


def tar(path: str) -> Iterator[tuple[bytes, int]]:
    """Read the instances of an archive: the bytes of ``bin``, and the number in ``cls``."""
    with tarfile.open(path) as archive:
        first = b""
        for member in archive:
            contents = archive.extractfile(member)
            assert contents is not None
            if member.name.endswith(".bin"):
                first = contents.read()
            else:
                yield first, int(contents.read())


def records(workload: Files, path: str) -> Iterator[bytes]:
    """Read the records of one file, in plain Python."""
    if workload.format == "raw":
        return raw(path, workload.size)
    return {"recordio": recordio, "tfrecord": tfrecord, "example": tfrecord}[workload.format](path)


def example(record: Any) -> tuple[npt.NDArray[np.float32], int]:
    """Parse an Example with the classes of the package `tfrecord`, which needs only Protocol Buffers."""
    from tfrecord import example_pb2

    features = example_pb2.Example.FromString(record).features.feature
    return np.array(features["image"].float_list.value, np.float32), features["label"].int64_list.value[0]


def shuffled(instances: Iterable[T], block: int, batch: int) -> Iterator[list[T]]:
    """Shuffle instances block by block, and yield them as batches: for libraries that leave shuffling to the user."""
    source = iter(instances)
    while some := list(itertools.islice(source, block)):
        random.shuffle(some)
        for i in range(0, len(some), batch):
            yield some[i : i + batch]


GATHERED = 1 << 20  # bytes of rows that one call of NumPy gathers: more do not stay in the cache


def shuffled_rows(rows: npt.NDArray[Any], batch: int) -> Iterator[Batch]:
    """Yield all rows of an array once, in random order, as batches: views of the rows that one call has gathered.

    A call for each batch took twice as long with rows of 100 bytes, and as long with rows of 3 KiB.
    """
    order = np.random.default_rng().permutation(len(rows))
    each = max(1, GATHERED // (rows[:1].nbytes * batch or 1)) * batch
    for i in range(0, len(order), each):
        gathered = rows.take(order[i : i + each], axis=0)
        for j in range(0, len(gathered), batch):
            yield (gathered[j : j + batch],)


def collate(workload: Files, some: list[Any]) -> Batch:
    """Make the arrays of a batch from a list of `shuffled`."""
    if workload.format == "example":
        some = list(map(example, some))
        return np.stack([image for image, _ in some]), np.array([label for _, label in some])
    if workload.format == "tar":
        return stack_bytes([record for record, _ in some]), np.array([label for _, label in some])
    return (stack_bytes(some),)


def lists(workload: Files, paths: Iterable[str]) -> Iterator[list[Any]]:
    """Yield shuffled lists of instances from files of records, for `collate`, in plain Python."""
    parse = tar if workload.format == "tar" else functools.partial(records, workload)
    return shuffled(itertools.chain.from_iterable(map(parse, paths)), workload.block, workload.batch)


def table(path: str) -> npt.NDArray[np.float32]:
    """Read a CSV file with pyarrow, which has the fastest parser for Python."""
    import pyarrow
    from pyarrow import csv

    types = csv.ConvertOptions(column_types={f"x{j}": pyarrow.float32() for j in range(20)})
    return np.column_stack([column.to_numpy() for column in csv.read_csv(path, convert_options=types).columns])


def read_batches(workload: Files, paths: Iterable[str]) -> Iterator[Batch]:
    """Yield shuffled batches of files, in plain Python: for libraries that leave reading and shuffling to the user."""
    if workload.format == "csv":
        for path in paths:
            yield from shuffled_rows(table(path), workload.batch)
    elif workload.kind == "jsonl":
        import orjson

        from . import tables

        yield from tables.parsed(workload, paths, orjson.loads)
    elif workload.content:
        from . import tables

        for path in paths:
            for some in tables.tables(workload, path):
                yield from tables.shuffled_table(workload, some)
    else:
        yield from (collate(workload, some) for some in lists(workload, paths))


class ArrayDataset:
    """A map-style dataset of arrays: npy files, rows of one npy file, or records of one size."""

    def __init__(self, workload: Files) -> None:
        self.workload = workload
        self._mapped: list[npt.NDArray[Any]] | None = None

    def __len__(self) -> int:
        return self.workload.count

    def __getitem__(self, i: int) -> npt.NDArray[Any]:
        if self.workload.format == "npy":
            array: npt.NDArray[Any] = np.load(self.workload.paths[i])
            return array
        mapped = self.mapped()
        each = len(mapped[0])
        row: npt.NDArray[Any] = mapped[i // each][i % each]
        return row

    def __getitems__(self, indexes: list[int]) -> list[npt.NDArray[Any]]:
        return [self[i] for i in indexes]

    def mapped(self) -> list[npt.NDArray[Any]]:
        """The files as arrays of rows. All have the same number of rows."""
        if self._mapped is None:  # each process maps them itself
            workload = self.workload
            if workload.format == "rows":
                self._mapped = [np.load(workload.paths[0], mmap_mode="r")]
            else:
                mapped = (np.memmap(path, workload.dtype, "r") for path in workload.paths)
                self._mapped = [array.reshape(-1, *workload.shape) for array in mapped]
            self._mapped = [np.asarray(array) for array in self._mapped]
        return self._mapped


RANDOM_ACCESS = ("npy", "rows", "raw", "tokens")
"""The formats that `ArrayDataset` reads."""


# ---- The consumer ------------------------------------------------------------------------------------


def not_supported() -> Timed:
    raise NotSupported("it has no reader for such files")


def passes(function: Callable[..., Callable[[], Iterator[Batch]]], workload: Files, **setting: Any) -> Timed:
    """Make a function that times passes. A library's function returns a function that begins a pass."""
    begin = function(workload, **setting)

    def timed(count: int) -> float:
        return sum(_pass(begin, workload) for _ in range(count))

    return timed


def _pass_of_tables(begin: Callable[[], Iterator[Batch]], workload: Files) -> float:
    from .tables import Consumer

    consumer = Consumer(workload)
    start = time.perf_counter()
    for batch in begin():
        consumer.take(batch)
    seconds = time.perf_counter() - start
    _check_numbers(workload, consumer.check())
    return seconds


def _pass(begin: Callable[[], Iterator[Batch]], workload: Files) -> float:
    if workload.content:
        return _pass_of_tables(begin, workload)
    numbers: list[bytes] = []
    labels: list[bytes] = []
    pages: list[bytes] = []
    whole = workload.size // PAGE
    step = PAGE // np.dtype(workload.dtype).itemsize
    bytes_ = workload.dtype == "uint8"
    start = time.perf_counter()
    for batch in begin():
        first = batch[0] if len(workload.shape) == 1 else batch[0].reshape(len(batch[0]), -1)
        numbers.append((first[:, :4] if bytes_ else first[:, 0]).tobytes())
        if whole:
            pages.append(first[:, ::step].tobytes())
        if workload.labelled:
            labels.append(batch[1].tobytes())
    seconds = time.perf_counter() - start
    _check(workload, b"".join(numbers), b"".join(labels), b"".join(pages))
    return seconds


def _check(workload: Files, numbers: bytes, labels: bytes, pages: bytes) -> None:
    seen = np.frombuffer(numbers, np.uint32 if workload.dtype == "uint8" else workload.dtype)
    _check_numbers(workload, seen)
    if workload.labelled and not np.array_equal(np.frombuffer(labels, np.int64), seen):
        raise ValueError("expected every instance's label beside it, found another's")
    if pages and np.frombuffer(pages, workload.dtype).sum(dtype=np.float64) != _pages(workload):
        raise ValueError("expected the bytes of the files, found others")


def _check_numbers(workload: Files, seen: npt.NDArray[Any]) -> None:
    if len(seen) != workload.count:
        raise ValueError(f"expected {workload.count} instances, found {len(seen)}")
    if not np.array_equal(np.sort(seen), np.arange(workload.count)):
        raise ValueError(f"expected every instance once, found {len(np.unique(seen))} of {workload.count}")
    if np.count_nonzero(np.diff(seen.astype(np.int64)) == 1) > workload.count // 10:
        raise ValueError("expected another order than that of the files")


_PAGES: dict[Files, float] = {}


def _pages(workload: Files) -> float:
    if workload not in _PAGES:
        step = PAGE // np.dtype(workload.dtype).itemsize
        every = (workload.array(i).reshape(-1)[::step] for i in range(workload.count))
        _PAGES[workload] = sum(float(each.sum(dtype=np.float64)) for each in every)
    return _PAGES[workload]
