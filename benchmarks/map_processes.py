"""Measures a Python function that holds the GIL, called for each record by two workers.

    python benchmarks/map_processes.py [--runs 3] [--seconds 4] [--json FILE] [--libraries ...] [--only TEXT]

The function runs Python code for a given time, and returns its argument plus 1. A record is 16 floats, or an image of
3 x 224 x 224 uint8. It comes from memory. Batches of 32 results are read.

    pyfeed, records     from_generator(...).map(function, num_workers=2).batch(32).double_buffer()
    pyfeed, batches     from_generator(...).batch(32).map(each(function), num_workers=2).double_buffer()
    pyfeed, threads     from_generator(...).map(function, num_threads=2).batch(32).double_buffer()
    grain               MapDataset.source(...).map(function).batch(32).to_iter_dataset().mp_prefetch(2 workers)
    spdl, records       PipelineBuilder().add_source().pipe(function, ProcessPoolExecutor(2)).aggregate(32).pipe(stack)
    spdl, batches       PipelineBuilder().add_source().pipe(each(function), ProcessPoolExecutor(2)), of batches of 32
    torch               DataLoader(dataset whose items are function(record), batch_size=32, num_workers=2)

Each value comes from a new process: records/s of the batches behind the first 8, for some seconds. The libraries take
turns. The ratio of a run is the rate of the faster of "pyfeed, records" and "pyfeed, batches", divided by that of the
fastest peer.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

WORKERS, BATCH, WARMUP = 2, 32, 8
COSTS = {"1 ms": 1e-3, "100 us": 1e-4, "10 us": 1e-5}
SHAPES: dict[str, tuple[tuple[int, ...], str]] = {"16 floats": ((16,), "float32"), "images": ((3, 224, 224), "uint8")}
PEERS = ("grain", "spdl, records", "spdl, batches", "torch")
LIBRARIES = ("pyfeed, records", "pyfeed, batches", "pyfeed, threads", *PEERS)


def loops_per_second() -> float:
    """Return how many turns of the loop of `Function` this machine makes in a second, on an idle core."""
    best = 0.0
    for _ in range(5):
        begin = time.thread_time()
        for _ in range(200_000):
            pass
        best = max(best, 200_000 / (time.thread_time() - begin))
    return best


class Function:
    """Runs Python code for a number of loops, and returns the record plus 1."""

    def __init__(self, loops: int) -> None:
        self.loops = loops

    def __call__(self, record: Any) -> Any:
        for _ in range(self.loops):
            pass
        return record + 1


class OfBatch:
    """The same for each record of a batch."""

    def __init__(self, function: Function) -> None:
        self.function = function

    def __call__(self, batch: Any) -> Any:
        return np.stack([self.function(record) for record in batch])


class Records:
    """A dataset: records in memory, which repeat, and a function that is applied to each."""

    def __init__(self, shape: tuple[int, ...], dtype: str, function: Function | None = None) -> None:
        self.records = np.random.default_rng(0).integers(0, 100, (64, *shape)).astype(dtype)
        self.function = function

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, i: int) -> Any:
        record = self.records[i % 64]
        return record if self.function is None else self.function(record)


def batches(library: str, size: str, function: Function) -> Iterator[Any]:
    """Return an iterator of batches."""
    shape, dtype = SHAPES[size]
    records = Records(shape, dtype)
    if library.startswith("pyfeed"):
        import pyfeed

        def generate() -> Iterator[Any]:
            i = 0
            while True:
                yield (records[i],)
                i += 1

        reader = pyfeed.from_generator(generate, [shape], dtypes=[dtype], capacity=64)
        if library.endswith("records"):
            reader = reader.map(function, num_workers=WORKERS).batch(BATCH)
        elif library.endswith("batches"):
            reader = reader.batch(BATCH).map(OfBatch(function), num_workers=WORKERS)
        else:
            reader = reader.map(function, num_threads=WORKERS).batch(BATCH)
        return iter(reader.double_buffer())
    if library == "grain":
        import grain

        dataset = grain.MapDataset.source(records).map(function).batch(BATCH).to_iter_dataset()
        return iter(dataset.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(WORKERS)))
    if library.startswith("spdl"):
        import itertools

        from spdl.pipeline import PipelineBuilder

        executor = ProcessPoolExecutor(WORKERS)
        if library.endswith("records"):
            source = (records[i] for i in itertools.count())
            builder = PipelineBuilder().add_source(source).pipe(function, executor=executor, concurrency=2 * WORKERS)
            builder = builder.aggregate(BATCH).pipe(np.stack)
        else:
            source = (np.stack([records[i + k] for k in range(BATCH)]) for i in itertools.count(0, BATCH))
            builder = PipelineBuilder().add_source(source)
            builder = builder.pipe(OfBatch(function), executor=executor, concurrency=2 * WORKERS)
        pipeline = builder.add_sink(4).build(num_threads=2)
        pipeline.start()
        return iter(pipeline)
    from torch.utils.data import DataLoader

    return iter(DataLoader(Records(shape, dtype, function), batch_size=BATCH, num_workers=WORKERS, prefetch_factor=4))


def measure(library: str, size: str, loops: int, seconds: float) -> float:
    """Return the records per second of a library in this process."""
    source = batches(library, size, Function(loops))
    for _ in range(WARMUP):
        next(source)
    begin = end = time.perf_counter()
    read = 0
    while end - begin < seconds:
        next(source)
        read += BATCH
        end = time.perf_counter()
    return read / (end - begin)


def run(library: str, size: str, loops: int, seconds: float) -> float:
    command = [sys.executable, __file__, "--measure", library, size, str(loops), str(seconds)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        while line and not line.startswith("rate "):
            line = process.stdout.readline()
        os.killpg(process.pid, signal.SIGKILL)  # some libraries do not end while data is left
        if not line:
            raise SystemExit(f"{library}: {process.communicate()[1][-2000:]}")
    return float(line.split()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--libraries", default=";".join(LIBRARIES), help="separated by semicolons")
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    parser.add_argument("--json", type=Path, help="write the results there")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        library, size, loops, seconds = args.measure
        print("rate", measure(library, size, int(loops), float(seconds)), flush=True)
        time.sleep(60)  # the parent ends this process, and those that it has started
    libraries = args.libraries.split(";")
    per_second = loops_per_second()
    results: dict[str, dict[str, list[float]]] = {}
    report: Callable[..., None] = print
    for size in SHAPES:
        for cost, time_of_call in COSTS.items():
            case = f"{size}, {cost}"
            if args.only not in case:
                continue
            found: dict[str, list[float]] = {library: [] for library in libraries}
            for turn in range(args.runs):
                for library in libraries if turn % 2 == 0 else reversed(libraries):
                    found[library].append(run(library, size, round(time_of_call * per_second), args.seconds))
            results[case] = found
            medians = {library: statistics.median(rates) for library, rates in found.items()}
            report(f"{case}:", ", ".join(f"{library} {rate:,.0f}" for library, rate in medians.items()), flush=True)
            peers = [found[peer] for peer in PEERS if peer in found]
            own = [found[name] for name in ("pyfeed, records", "pyfeed, batches") if name in found]
            if peers and own:
                ratios = [
                    max(of_own) / max(of_peers)
                    for of_own, of_peers in zip(zip(*own, strict=True), zip(*peers, strict=True), strict=True)
                ]
                report(
                    f"    ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True
                )
    if args.json:
        args.json.write_text(json.dumps({"records_per_second": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
