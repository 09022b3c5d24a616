"""How fast tuples go from Python producers to a Python consumer, beside what Python has for it.

    python benchmarks/queue_throughput.py [--json FILE] [--runs 5] [--seconds 0.2]

The queues hold 16 tuples. One tuple is two arrays: `size` bytes of uint8 and 8 float64. Producer
threads push it, the main thread takes it and lets go of it. In each run all ways take turns, so that a
machine that slows down slows them all; a ratio is the median over runs of the two ways' rates in the
same run.

    copied      PyArrayFeedQueue.push(arrays)
    lent        PyArrayFeedQueue.push(arrays, copy=False)
    in place    with PyArrayFeedQueue.slot(rows) as arrays: nothing is written into them, so that
                the figure is the cost of handing over, as it is for lent
    queue ref   queue.Queue.put(arrays): by reference, which leaves the producer no array of its own
    queue copy  queue.Queue.put([a.copy() for a in arrays])
    copyto      numpy.copyto into as many rotating buffers as the queue holds, by the same number of
                threads and with no hand-over at all: the limit for a copy
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import queue
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pyfeed

Arrays = tuple[np.ndarray[Any, Any], ...]

SIZES = {"64 B": 64, "4 KiB": 4 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "32 MiB": 32 << 20}
CAPACITY = 16  # tuples, of every queue
OURS = ("copied", "lent", "in place")
PEERS = ("queue ref", "queue copy", "copyto")


def arrays(size: int) -> Arrays:
    return np.full(size, 7, np.uint8), np.arange(8.0)


def run_threads(producers: int, produce: Callable[[], None], consume: Callable[[], None] | None) -> float:
    """Seconds until all producers have produced and the consumer has consumed."""
    threads = [threading.Thread(target=produce) for _ in range(producers)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    if consume is not None:
        consume()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def time_pyfeed(way: str, size: int, producers: int, count: int) -> float:
    _, q = pyfeed.py_array_reader(CAPACITY, [(-1,), (8,)], dtypes=["uint8", "float64"], scope=pyfeed.Scope())

    def produce() -> None:
        mine = arrays(size)
        if way == "in place":
            for _ in range(count):
                with q.slot(size):
                    pass
        elif way == "lent":
            for _ in range(count):
                q.push(mine, copy=False)
        else:
            for _ in range(count):
                q.push(mine)

    def consume() -> None:
        for _ in range(producers * count):
            q.pop()

    return run_threads(producers, produce, consume)


def time_queue(copy: bool, size: int, producers: int, count: int) -> float:
    q: queue.Queue[Any] = queue.Queue(CAPACITY)

    def produce() -> None:
        mine = arrays(size)
        if copy:
            for _ in range(count):
                q.put([a.copy() for a in mine])
        else:
            for _ in range(count):
                q.put(mine)

    def consume() -> None:
        for _ in range(producers * count):
            q.get()

    return run_threads(producers, produce, consume)


def time_copyto(size: int, producers: int, count: int) -> float:
    each = CAPACITY // producers
    rotating = [[arrays(size) for _ in range(each)] for _ in range(producers)]
    turn = iter(rotating)

    def produce() -> None:
        mine, buffers = arrays(size), next(turn)
        for i in range(count):
            for to, source in zip(buffers[i % each], mine, strict=True):
                np.copyto(to, source)

    return run_threads(producers, produce, None)


def time_way(way: str, *args: int) -> float:
    if way in OURS:
        return time_pyfeed(way, *args)
    if way == "copyto":
        return time_copyto(*args)
    return time_queue(way == "queue copy", *args)


def measure(size: int, producers: int, runs: int, seconds: float) -> dict[str, list[float]]:
    """Microseconds a tuple, run by run, for each way."""
    counts = {}
    for way in OURS + PEERS:  # the first round only finds how many tuples fill the time
        count = 16
        while (took := time_way(way, size, producers, count)) < seconds / 4:
            count *= 4
        counts[way] = max(16, int(count * seconds / took))
    out: dict[str, list[float]] = {way: [] for way in OURS + PEERS}
    for _ in range(runs):
        for way in out:
            took = time_way(way, size, producers, counts[way])
            out[way].append(took / (producers * counts[way]) * 1e6)
    return out


def ratio(theirs: list[float], ours: list[float]) -> float:
    return statistics.median(t / o for t, o in zip(theirs, ours, strict=True))


def machine() -> dict[str, Any]:
    with open("/proc/cpuinfo") as f:
        model = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), "")
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pyfeed": pyfeed.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the figures here")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each way in each run")
    options = parser.parse_args()
    here = machine()
    print(", ".join(f"{key} {value}" for key, value in here.items()))
    print("\nmedian microseconds a tuple; x: the rate over queue.Queue's, by reference and copied, and over copyto's")
    print(
        f"{'size':>7} {'producers':>9} {'way':>9} {'us':>9} {'spread':>15} {'x ref':>6} {'x copy':>6} {'x copyto':>8}"
    )
    rows = []
    for name, size in SIZES.items():
        for producers in (1, 2):
            times = measure(size, producers, options.runs, options.seconds)
            for way in OURS + PEERS:
                mine = times[way]
                row = {
                    "size": size,
                    "producers": producers,
                    "way": way,
                    "us": statistics.median(mine),
                    "us_all": mine,
                    **{f"x_{peer.replace(' ', '_')}": ratio(times[peer], mine) for peer in PEERS},
                }
                rows.append(row)
                print(
                    f"{name:>7} {producers:>9} {way:>10} {row['us']:>9.2f} {min(mine):>7.2f}-{max(mine):<7.2f}"
                    f" {row['x_queue_ref']:>6.2f} {row['x_queue_copy']:>6.2f} {row['x_copyto']:>8.2f}"
                )
            sys.stdout.flush()
    if options.json:
        with open(options.json, "w") as f:
            json.dump(
                {"benchmark": "queue_throughput", "machine": here, "runs": options.runs, "rows": rows}, f, indent=1
            )
            f.write("\n")
        print(f"written to {options.json}")


if __name__ == "__main__":
    main()
