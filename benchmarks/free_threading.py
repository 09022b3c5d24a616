"""Measures a free-threaded Python with its GIL off and on: threads that push, and threads that compute for a reader.

    python3.14t benchmarks/free_threading.py [--runs 5] [--seconds 1] [--json FILE]

    push, N threads      N threads push float32 tuples of a size into one queue of capacity 64, and a thread pops them
    queue.Queue, ...     the same with Python's own queue of that capacity, which passes references and copies nothing
    compute, N threads   from_dataset whose __getitem__ runs Python code for 100 us, with N threads

Each value comes from a new process of the interpreter that runs this script, with PYTHON_GIL=0 or 1. The settings take
turns. A ratio is that of one run: GIL off, divided by GIL on. The rates are tuples, or samples, per second.
"""

from __future__ import annotations

import argparse
import json
import os
import queue as queues
import statistics
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

THREADS = (1, 2, 4)
SIZES = {"64 B": 64, "4 KiB": 4 << 10, "64 KiB": 64 << 10, "2 MiB": 2 << 20}
CAPACITY = 64
COMPUTE = 100e-6  # seconds


def cases() -> Iterator[str]:
    for size in SIZES:
        for n in THREADS:
            yield f"push {size}, {n} threads"
    for n in THREADS:
        yield f"queue.Queue 64 B, {n} threads"
    for n in THREADS:
        yield f"compute, {n} threads"


def rate_of_queue(
    push: Callable[[Any], object], pop: Callable[[], object], size: int, threads: int, seconds: float
) -> float:
    """Return the tuples per second that a thread pops while others push."""
    stop = threading.Event()

    def produce() -> None:
        arrays = (np.zeros(size // 4, np.float32),)
        while not stop.is_set():
            push(arrays)

    producers = [threading.Thread(target=produce, daemon=True) for _ in range(threads)]
    for producer in producers:
        producer.start()
    popped, begin, now = -CAPACITY, 0.0, 0.0
    while now - begin < seconds or popped < 0:
        for _ in range(CAPACITY):
            pop()
        now = time.perf_counter()
        begin = begin if popped >= 0 else now
        popped += CAPACITY
    stop.set()
    while any(producer.is_alive() for producer in producers):
        try:
            pop()
        except Exception:  # the queue is empty at this moment
            time.sleep(0.001)
    return popped / (now - begin)


def compute(threads: int, seconds: float) -> float:
    """Return the samples per second of a dataset that computes."""
    import pyfeed

    class Dataset:
        def __len__(self) -> int:
            return 1 << 30

        def __getitem__(self, i: int) -> Any:
            until = time.thread_time() + COMPUTE
            while time.thread_time() < until:
                pass
            return np.float32(i)

    with pyfeed.from_dataset(Dataset(), batch_size=32, num_threads=threads) as reader:
        for _ in range(8):
            reader.read()
        begin, read = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            reader.read()
            read += 32
        return read / (time.perf_counter() - begin)


def measure(case: str, seconds: float) -> float:
    """Return the rate of a case in this process."""
    kind, _, rest = case.partition(", ")
    threads = int(rest.split()[0])
    if kind == "compute":
        return compute(threads, seconds)
    name, _, size = kind.partition(" ")
    if name == "queue.Queue":
        plain: queues.Queue[Any] = queues.Queue(CAPACITY)
        return rate_of_queue(plain.put, lambda: plain.get(timeout=1), SIZES[size], threads, seconds)
    import pyfeed

    _, queue = pyfeed.py_array_reader(CAPACITY, [(SIZES[size] // 4,)], dtypes=["float32"])
    return rate_of_queue(queue.push, lambda: queue.pop(timeout=1), SIZES[size], threads, seconds)


def measure_in_process(case: str, seconds: float, gil: str) -> float:
    command = [sys.executable, __file__, "--case", case, "--seconds", str(seconds)]
    environment = os.environ | {"PYTHON_GIL": gil}
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(measure(args.case, args.seconds))
        return
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        sys.exit(f"expected a free-threaded Python, found {sys.version}")
    rows: dict[str, dict[str, Any]] = {}
    values: dict[str, dict[str, list[float]]] = {case: {"0": [], "1": []} for case in cases()}
    for run in range(args.runs):
        for case, of in values.items():
            for gil in ("0", "1") if run % 2 == 0 else ("1", "0"):
                of[gil].append(measure_in_process(case, args.seconds, gil))
    print(f"{'':32} {'GIL off':>12} {'GIL on':>12} {'ratio':>8}  least to most")
    for case, of in values.items():
        ratios = sorted(off / on for off, on in zip(of["0"], of["1"], strict=True))
        rows[case] = {"off": of["0"], "on": of["1"], "ratio": [statistics.median(ratios), ratios[0], ratios[-1]]}
        print(
            f"{case:32} {statistics.median(of['0']):12.0f} {statistics.median(of['1']):12.0f} "
            f"{statistics.median(ratios):8.2f}  {ratios[0]:.2f} to {ratios[-1]:.2f}"
        )
    if args.json:
        about = {"python": sys.version, "cores": len(os.sched_getaffinity(0)), "runs": args.runs, "rates": rows}
        args.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
