"""Measures a shuffle of all records of many files: its start, its rate and its memory.

    python benchmarks/global_shuffle.py [--records 10000000] [--runs 3] [--folder DIR] [--json FILE] [--libraries all]

The records have 100 bytes, in 10 files. Batches of 256 records are read.

    pyfeed, all records         open_files(shuffle_records=1), TFRecord
    pyfeed, all records, raw    the same, of plain files of records
    pyfeed, blocks              open_files().shuffle(100,000), TFRecord
    pyfeed, in order            open_files(), TFRecord
    pyfeed, rank of 4           open_files(rank=0, world=4), TFRecord
    pyfeed, split of 4          open_files().batch().split_batches(0, 4), TFRecord
    grain, mapped, n threads    MapDataset.source(...).shuffle(), of mapped plain files of records; ReadOptions(n)
    grain, ArrayRecord          the same with ArrayRecordDataSource, 16 threads
    grain, rank of 4, n threads MapDataset.source(...)[0::4] of mapped plain files of records, in order; ReadOptions(n)

    index       s             the time to make the indexes of all files, with 2 threads
    start       ms            from the call that makes the pipeline to the first batch, with indexes that are there
    rate        records/s     of the batches behind the first, for 2 million records or 20 s
    memory      MiB           the largest memory of the process that is not of files (RssAnon), less that before

Each value comes from a new process, and is the median of the runs. The libraries take turns. The files are written
once, and are read before each run, so that they are in the page cache if there is room. The ratios are those of the
rates of pyfeed, from TFRecord, and of Grain in the fastest of its settings, in each run. One of 4 processes reads
batches of 64 records.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

SIZE, FILES, BATCH, SEED, WORLD = 100, 10, 256, 1, 4
NUM_READ, MAX_SECONDS = 2_000_000, 20.0
GRAIN_THREADS = (0, 2, 16)

# ---- The libraries -----------------------------------------------------------------------------


def tfrecords(folder: Path, records: int) -> list[str]:
    """Write the files of pyfeed, unless they are there."""
    import pyfeed

    def write(path: Path, count: int) -> None:
        some = path.with_suffix(".some.tfrecord")
        with pyfeed.open_writer(some) as writer:
            for i in range(min(count, 100_000)):
                writer.write((i.to_bytes(8, "little") * (SIZE // 8) + bytes(SIZE % 8),))
        frames = memoryview(some.read_bytes())
        some.unlink()
        each = len(frames) // min(count, 100_000)
        with path.open("wb") as file:
            for begin in range(0, count, 100_000):
                file.write(frames[: each * min(count - begin, 100_000)])

    return written(folder / "tfrecord", ".tfrecord", records, write)


def array_records(folder: Path, records: int) -> list[str]:
    """Write the files of Grain, whose groups have one record each, as its documentation advises for random access."""
    from array_record.python import array_record_module

    def write(path: Path, count: int) -> None:
        writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
        for i in range(count):
            writer.write(i.to_bytes(8, "little") * (SIZE // 8) + bytes(SIZE % 8))
        writer.close()

    return written(folder / "array_record", ".array_record", records, write)


def rows(folder: Path, records: int) -> list[str]:
    """Write plain files of records."""

    def write(path: Path, count: int) -> None:
        np.arange(count * (SIZE // 4), dtype=np.uint32).tofile(path)

    return written(folder / "raw", ".raw", records, write)


class MappedRows:
    """A random access source of the records of mapped plain files."""

    def __init__(self, paths: list[str]) -> None:
        self._files = [np.memmap(path, np.uint8, "r").reshape(-1, SIZE) for path in paths]
        self._each = len(self._files[0])

    def __len__(self) -> int:
        return len(self._files) * self._each

    def __getitem__(self, i: int) -> Any:
        return self._files[i // self._each][i % self._each]


def written(folder: Path, suffix: str, records: int, write: Callable[[Path, int], None]) -> list[str]:
    folder = folder.with_name(f"{folder.name}-{records}")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{i}{suffix}" for i in range(FILES)]
    for path in paths:
        if not path.exists():
            unfinished = path.with_name(f"unfinished-{path.name}")
            write(unfinished, records // FILES)
            unfinished.rename(path)
        with path.open("rb") as file:
            while file.read(1 << 24):
                pass
    return [str(path) for path in paths]


def pyfeed_batches(how: str, paths: list[str]) -> Iterator[Any]:
    import pyfeed

    if how == "all records":
        return iter(pyfeed.open_files(paths, shuffle_records=SEED).batch(BATCH))
    if how == "all records, raw":
        return iter(pyfeed.open_raw(paths, [(SIZE,)], ["uint8"], shuffle_records=SEED).batch(BATCH))
    if how == "rank of 4":
        return iter(pyfeed.open_files(paths, rank=0, world=WORLD).batch(BATCH // WORLD))
    reader = pyfeed.open_files(paths)
    if how == "split of 4":
        return iter(reader.batch(BATCH).split_batches(0, WORLD))
    return iter((reader.shuffle(100_000, SEED) if how == "blocks" else reader).batch(BATCH))


def grain_batches(how: str, paths: list[str]) -> Iterator[Any]:
    import grain

    source: Any
    join: Any
    if how == "ArrayRecord":
        source, join, threads = grain.sources.ArrayRecordDataSource(paths), list, 16
    else:
        source, join, threads = MappedRows(paths), np.stack, int(how.split()[-2])
    if how.startswith("rank of 4"):
        own = grain.MapDataset.source(source)[0::WORLD].batch(BATCH // WORLD, batch_fn=join)
        return iter(own.to_iter_dataset(grain.ReadOptions(threads, 2 * threads)))
    batches = grain.MapDataset.source(source).shuffle(SEED).batch(BATCH, batch_fn=join)
    return iter(batches.to_iter_dataset(grain.ReadOptions(threads, 2 * threads)))


# ---- The programs ------------------------------------------------------------------------------


def anonymous() -> float:
    """The memory of this process that is not of files, in MiB."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("RssAnon:")[2].split()[0]) / 1024


def measure(name: str, folder: Path, records: int) -> dict[str, float]:
    """Run one library in this process."""
    library, _, how = name.partition(", ")
    if library == "pyfeed":
        import pyfeed

        paths = rows(folder, records) if how.endswith("raw") else tfrecords(folder, records)
        if how == "index":
            for file in (folder / f"tfrecord-{records}").glob(".*.pfindex"):
                file.unlink()
            begin = time.perf_counter()
            pyfeed.open_files(paths, index=True, num_threads=2).close()
            return {"index": time.perf_counter() - begin}
        make = pyfeed_batches
    else:
        import grain  # noqa: F401

        paths = (array_records if how == "ArrayRecord" else rows)(folder, records)
        make = grain_batches
    before = anonymous()
    most, ended = before, threading.Event()

    def watch() -> None:
        nonlocal most
        while not ended.wait(0.02):
            most = max(most, anonymous())

    watching = threading.Thread(target=watch)
    watching.start()
    begin = time.perf_counter()
    batches = make(how, paths)
    next(batches)
    start = time.perf_counter()
    read = 0
    for _ in batches:
        read += BATCH // WORLD if "of 4" in how else BATCH
        if read >= NUM_READ or time.perf_counter() - start > MAX_SECONDS:
            break
    end = time.perf_counter()
    ended.set()
    watching.join()
    return {"start": (start - begin) * 1e3, "rate": read / (end - start), "memory": most - before}


def run(name: str, folder: Path, records: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", name, "--folder", str(folder), "--records", str(records)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    values: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return values


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--libraries", default="all", help="all, or pyfeed")
    parser.add_argument("--folder", type=Path, help="keep the files there, instead of in a temporary folder")
    parser.add_argument("--json", type=Path, help="write the results there")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure, args.folder, args.records)))
        return 0
    names = ["pyfeed, index", "pyfeed, all records", "pyfeed, all records, raw", "pyfeed, blocks", "pyfeed, in order"]
    names += ["pyfeed, rank of 4", "pyfeed, split of 4"]
    peers = {
        "pyfeed, all records": [*(f"grain, mapped, {n} threads" for n in GRAIN_THREADS), "grain, ArrayRecord"],
        "pyfeed, rank of 4": [f"grain, rank of 4, {n} threads" for n in GRAIN_THREADS],
    }
    if args.libraries == "all":
        names += [name for of_case in peers.values() for name in of_case]
    with tempfile.TemporaryDirectory(prefix="pyfeed-bench-") as scratch:
        folder = args.folder or Path(scratch)
        tfrecords(folder, args.records)
        rows(folder, args.records)
        if args.libraries == "all":
            array_records(folder, args.records)
        found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for turn in range(args.runs):
            for name in names if turn % 2 == 0 else reversed(names):
                found[name].append(run(name, folder, args.records))
    results = {
        name: {key: statistics.median(values[key] for values in runs) for key in runs[0]}
        for name, runs in found.items()
    }
    for name, metrics in results.items():
        print(f"{name:28}", *(f"{key} {value:,.1f}" for key, value in metrics.items()))
    if args.libraries == "all":
        for own_name, of_case in peers.items():
            pairs = zip(found[own_name], *(found[name] for name in of_case), strict=True)
            ratios = [own["rate"] / max(peer["rate"] for peer in of_peers) for own, *of_peers in pairs]
            middle = statistics.median(ratios)
            print(f"rate of {own_name} / rate of Grain: {middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    if args.json:
        args.json.write_text(json.dumps({"records": args.records, "runs": found, "medians": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
