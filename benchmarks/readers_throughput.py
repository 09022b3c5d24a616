"""How fast files come out as shuffled batches, beside what reads the same bytes elsewhere.

    python benchmarks/readers_throughput.py [--json FILE] [--runs 5] [--megabytes 512] [--rows tfrecord,npy]

Files are made by our writers in a temporary folder and read once before anything is timed, so that they come from
the page cache. Each row is measured on one core and on two, in a process of its own that is bound to them before
anything is imported. In each run ours and the peer take turns; a ratio is the median over runs of the two rates in
the same run. Both deliver batches, and the consumer looks at the size of every array. Shuffling is in blocks (ours) or
a buffer (theirs) of the same number of records.

    row                 what is read                              beside it
    tfrecord large      100 KB records, both CRCs checked         tf.data: TFRecordDataset, shuffle, batch
    tfrecord small      100 B records, the same                   the same
    tfrecord example    784 floats and a label, parsed            tf.data: the same, then parse_example on batches
    npy files           one array of 4 or 64 KiB a file           np.load and np.stack
    npy rows            rows of 3 KiB of one file                 np.load(mmap_mode="r"), rows, np.stack
    tar                 1 KiB of bytes and a class                webdataset, batched
    csv                 20 columns of numbers                     pyarrow's streaming reader; pandas in chunks
    recordio            100 B and 100 KB records                  os.readv of the same bytes into one buffer
    raw                 100 B and 100 KB records                  the same

A peer that is not installed is listed as such, with the reason.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

# ---- The files -------------------------------------------------------------------------------


def make_files(folder: Path, megabytes: int) -> None:
    import numpy as np

    import pyfeed

    random = np.random.default_rng(1)
    total = megabytes * 1_000_000

    def write(name: str, count: int, make: Callable[[int], Any], **options: Any) -> None:
        with pyfeed.open_writer(folder / name, **options) as writer:
            for i in range(count):
                writer.write(make(i))

    noise = random.integers(0, 256, 1 << 20, dtype=np.uint8)

    def record(size: int) -> Callable[[int], Any]:
        lod = [np.array([0, size])]
        return lambda i: [pyfeed.LoDTensor(noise[i % 1000 : i % 1000 + size], lod)]

    for kind, size in (("large", 100_000), ("small", 100)):
        count = total // size if kind == "large" else min(total // size, 500_000)
        write(f"{kind}.tfrecord", count, record(size))
        write(f"{kind}.recordio", count, record(size), records="bytes")
        fixed = noise[:size].copy()
        write(f"{kind}.raw", count, partial(always, [fixed]))
    image = random.random(784, np.float32)
    write("example.tfrecord", 20_000, lambda i: [image, np.int64(i)], features=FEATURES)
    for each, shape in (("4 KiB", (4, 256)), ("64 KiB", (64, 256))):
        (folder / each).mkdir()
        for i in range(2000):
            np.save(folder / each / f"{i:05d}.npy", random.random(shape, np.float32))
    np.save(folder / "rows.npy", random.random((total // 3072, 768), np.float32))
    write(
        "samples.tar",
        30_000,
        lambda i: [pyfeed.LoDTensor(noise[:1024], [np.array([0, 1024])]), np.int64(i)],
        names=["bin", "cls"],
    )
    values = random.random((20_000, 20))
    with (folder / "table.csv").open("w") as f:
        f.write(",".join(f"x{j}" for j in range(20)) + "\n")
        for line in values:
            f.write(",".join(f"{v:.6f}" for v in line) + "\n")


def always(tuple_: list[Any], _: int) -> list[Any]:
    return tuple_


# ---- Ours ------------------------------------------------------------------------------------


def count_bytes(slot: Any) -> int:
    return int(getattr(slot, "data", slot).nbytes) if hasattr(slot, "lod") else int(slot.nbytes)


def ours(files: Any, shuffle: int, batch: int, cores: int, **options: Any) -> Callable[[], int]:
    import pyfeed

    def run() -> int:
        reader = pyfeed.open_files(files, thread_num=cores, **options)
        if shuffle:
            reader = reader.shuffle(shuffle)
        reader = reader.batch(batch)
        if cores > 1:
            reader = reader.double_buffer(depth=2)
        return sum(count_bytes(slot) for tuple_ in reader for slot in tuple_)

    return run


# ---- The peers: each at its best documented setting ---------------------------------------------


def tf_data(path: Path, shuffle: int, batch: int, cores: int, *, example: bool = False) -> Callable[[], int]:
    import tensorflow as tf

    spec = {"image": tf.io.FixedLenFeature([784], tf.float32), "label": tf.io.FixedLenFeature([], tf.int64)}

    def run() -> int:
        data = tf.data.TFRecordDataset([str(path)], buffer_size=8 << 20)
        data = data.shuffle(shuffle).batch(batch)
        if example:
            data = data.map(lambda x: tf.io.parse_example(x, spec), num_parallel_calls=cores)
        data = data.prefetch(tf.data.AUTOTUNE)
        options = tf.data.Options()
        options.threading.private_threadpool_size = cores
        n = 0
        for b in data.with_options(options):
            n += sum(int(t.shape[0]) for t in b.values()) if example else int(b.shape[0])
        return n

    return run


def numpy_files(folder: Path, batch: int) -> Callable[[], int]:
    import numpy as np

    names = sorted(folder.iterdir())

    def run() -> int:
        return sum(
            np.stack([np.load(n) for n in names[i : i + batch]]).nbytes for i in range(0, len(names), batch)
        )  # fmt: skip

    return run


def numpy_rows(path: Path, shuffle: int, batch: int) -> Callable[[], int]:
    import numpy as np

    def run() -> int:
        rows = np.load(path, mmap_mode="r")
        random = np.random.default_rng(1)
        n = 0
        for begin in range(0, len(rows), shuffle):
            order = begin + random.permutation(min(shuffle, len(rows) - begin))
            for i in range(0, len(order), batch):
                n += np.stack([rows[j] for j in order[i : i + batch]]).nbytes
        return n

    return run


def web_dataset(path: Path, shuffle: int, batch: int) -> Callable[[], int]:
    import webdataset

    def run() -> int:
        data = webdataset.WebDataset(str(path), shardshuffle=False, empty_check=False).shuffle(shuffle)
        data = data.to_tuple("bin", "cls").batched(batch)
        return sum(sum(map(len, b[0])) + len(b[1]) for b in data)

    return run


def arrow_csv(path: Path, batch: int) -> Callable[[], int]:
    import pyarrow.csv

    def run() -> int:
        n = 0
        for chunk in pyarrow.csv.open_csv(path, read_options=pyarrow.csv.ReadOptions(block_size=4 << 20)):
            for i in range(0, chunk.num_rows, batch):
                n += sum(column.to_numpy(zero_copy_only=False).nbytes for column in chunk.slice(i, batch).columns)
        return n

    return run


def pandas_csv(path: Path, batch: int) -> Callable[[], int]:
    import pandas

    return lambda: sum(chunk.to_numpy().nbytes for chunk in pandas.read_csv(path, chunksize=batch))


def plain_read(path: Path) -> Callable[[], int]:
    buffer = bytearray(1 << 20)

    def run() -> int:
        n = 0
        with path.open("rb", buffering=0) as f:
            while got := f.readinto(buffer):
                n += got
        return n

    return run


# ---- Rows ------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One line of the table. Peers are made, not only run, where their packages are."""

    name: str
    path: Path
    records: int
    ours: Callable[[], int]
    peers: Mapping[str, Callable[[], Callable[[], int]]]


FEATURES = [
    {"name": "image", "kind": "fixed", "dtype": "float32", "shape": [784]},
    {"name": "label", "kind": "fixed", "dtype": "int64", "shape": []},
]


def rows(folder: Path, cores: int, batch: int) -> Iterator[Row]:
    def records(path: Path, size: int) -> int:
        return path.stat().st_size // size

    for kind, size, block in (("large", 100_000, 256), ("small", 100, 10_000)):
        path = folder / f"{kind}.tfrecord"
        peers = {"tf.data": partial(tf_data, path, block, batch, cores)}
        yield Row(f"tfrecord {kind}", path, records(path, size + 16), ours(path, block, batch, cores), peers)
        path = folder / f"{kind}.recordio"
        read = {"read": partial(plain_read, path)}
        yield Row(
            f"recordio {kind}", path, records(path, size + 4), ours(path, block, batch, cores, records="bytes"), read
        )
        path = folder / f"{kind}.raw"
        read = {"read": partial(plain_read, path)}
        mine = ours(path, block, batch, cores, shapes=[(size,)], dtypes=["uint8"])
        yield Row(f"raw {kind}", path, records(path, size), mine, read)
    path = folder / "example.tfrecord"
    peers = {"tf.data": partial(tf_data, path, 10_000, batch, cores, example=True)}
    yield Row("tfrecord example", path, 20_000, ours(path, 10_000, batch, cores, features=FEATURES), peers)
    for each in ("4 KiB", "64 KiB"):
        path = folder / each
        peers = {"np.load + stack": partial(numpy_files, path, batch)}
        yield Row(f"npy files {each}", path, 2000, ours(path, 0, batch, cores, instances="file"), peers)
    path = folder / "rows.npy"
    peers = {"np.load mmap + stack": partial(numpy_rows, path, 10_000, batch)}
    yield Row("npy rows", path, records(path, 3072), ours(path, 10_000, batch, cores), peers)
    path = folder / "samples.tar"
    peers = {"webdataset": partial(web_dataset, path, 1000, batch)}
    yield Row("tar", path, 30_000, ours(path, 1000, batch, cores), peers)
    path = folder / "table.csv"
    peers = {"pyarrow": partial(arrow_csv, path, batch), "pandas": partial(pandas_csv, path, batch)}
    yield Row("csv", path, 20_000, ours(path, 0, batch, cores, shapes=[(20,)], dtypes=["float64"]), peers)


def bytes_of(path: Path) -> int:
    return sum(p.stat().st_size for p in path.iterdir()) if path.is_dir() else path.stat().st_size


def timed(run: Callable[[], int]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def measure(folder: Path, cores: int, batches: list[int], runs: int, only: list[str], out: Any) -> None:
    """In a process of its own: all rows on so many cores."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    results = []
    for batch in batches:
        for planned in rows(folder, cores, batch):
            if only and not any(planned.name.startswith(o) for o in only):
                continue
            ways: dict[str, Callable[[], int]] = {"ours": planned.ours}
            missing = {}
            for peer, make in planned.peers.items():
                try:
                    ways[peer] = make()
                except ImportError as e:
                    missing[peer] = str(e)
            for run in ways.values():
                run()
            seconds: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(runs):
                for way, run in ways.items():
                    seconds[way].append(timed(run))
            row = {"row": planned.name, "cores": cores, "batch": batch, "records": planned.records}
            row |= {"bytes": bytes_of(planned.path), "seconds": seconds, "missing": missing}
            results.append(row)
            show(row)
    out.send(results)


def show(row: dict[str, Any]) -> None:
    mine = statistics.median(row["seconds"]["ours"])
    text = f"{row['row']:18} {row['cores']} core{'s' * (row['cores'] > 1):1} batch {row['batch']:3}"
    text += f"  {row['bytes'] / mine / 1e9:6.2f} GB/s {row['records'] / mine / 1e6:7.3f} M records/s"
    for peer, seconds in row["seconds"].items():
        if peer != "ours":
            ratios = [p / o for p, o in zip(seconds, row["seconds"]["ours"], strict=True)]
            text += f"  {statistics.median(ratios):6.2f} x {peer} ({min(ratios):.2f} to {max(ratios):.2f})"
    for peer in row["missing"]:
        text += f"  {peer} is not installed"
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=512, help="of the large files")
    parser.add_argument("--rows", default="", help="only those that begin so, separated by commas")
    parser.add_argument("--batches", default="32,256")
    parser.add_argument("--cores", default="1,2")
    args = parser.parse_args()
    only = [r for r in args.rows.split(",") if r]
    spawn = multiprocessing.get_context("spawn")
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="pyfeed-bench-") as name:
        folder = Path(name)
        make_files(folder, args.megabytes)
        for cores in map(int, args.cores.split(",")):
            there, here = spawn.Pipe(duplex=False)
            process = spawn.Process(
                target=measure, args=(folder, cores, list(map(int, args.batches.split(","))), args.runs, only, here)
            )
            process.start()
            here.close()
            try:
                results += there.recv()
            except EOFError:
                process.join()
                print(f"the measurements on {cores} cores ended with status {process.exitcode}", file=sys.stderr)
                return 1
            process.join()
    if args.json:
        machine = {"machine": platform.machine(), "cpus": os.cpu_count(), "python": platform.python_version()}
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps({"machine": machine, "rows": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
