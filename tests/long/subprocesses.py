"""The processes that kills.py kills. Workers import only pyfeed_worker."""

from __future__ import annotations

import os
import sys
import zlib
from typing import Any

import numpy as np
from pyfeed_worker import Producer

TUPLES = 200


def contents(worker: int, number: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.full(number * 7919 % 3000, worker * 31 + number & 255, np.uint8)


def work(producer: Producer, worker: int, push_modes: str) -> None:
    """Produce tuples of (worker, number, bytes, their CRC-32); push_modes has "p" for push and "s" for reserve."""
    for number in range(TUPLES):
        data = contents(worker, number)
        sum_ = np.array(zlib.crc32(data.tobytes()))
        if push_modes[number % len(push_modes)] == "s":
            with producer.reserve(shapes=[(), (), data.shape, ()]) as slots:
                slots[0][...], slots[1][...], slots[2][...], slots[3][...] = worker, number, data, sum_
        else:
            producer.push((np.array(worker), np.array(number), data, sum_))


def train(method: str, workers: int, persistent: bool) -> None:
    """Run a trainer that reads pass after pass until it is killed."""
    from pyfeed import Scope
    from pyfeed.shared import SharedFeedQueue

    queue = SharedFeedQueue(
        [(), (), (-1,), ()], dtypes=["int64", "int64", "uint8", "int64"], ring_cells=4, cell_bytes=8192, scope=Scope()
    )
    queue.start(work, ("ps",), num_workers=workers, method=method, persistent=persistent)
    print("ready", flush=True)
    while True:
        for _ in queue:
            pass
        queue.reopen()
        if not persistent:
            queue.start(work, ("ps",), num_workers=workers, method=method)


class Samples:
    """A dataset of tuples of a number, another one, and an array of the number."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        return i, -i, np.full(self.size, i)


def checksum(number: np.ndarray[tuple[()], np.dtype[np.int64]]) -> tuple[object, ...]:
    """Make a tuple of (number, bytes, their CRC-32); a function of map."""
    data = contents(0, int(number))
    return number, data[:1] if len(data) else np.zeros(1, np.uint8), zlib.crc32(data.tobytes())


def train_with_map(method: str, workers: int, _: bool) -> None:
    """Run a trainer whose function of map is called in processes, until it is killed."""
    import pyfeed

    reader = pyfeed.from_generator(lambda: ((i,) for i in range(100)), [()], dtypes=["int64"]).map(
        checksum,
        shapes=[(), (-1,), ()],
        dtypes=["int64", "uint8", "int64"],
        num_workers=workers,
        method=method,
        cell_bytes=1 << 16,
    )
    print("ready", flush=True)
    while True:
        for _ in reader:
            pass


def write(path: str, rows: int) -> None:
    """Write a file, which may replace an old one; kills.py kills this process meanwhile."""
    import pyfeed

    print("ready", flush=True)
    with pyfeed.open_writer(path) as writer:
        for number in range(rows):
            writer.write((np.full(100, number, "int64"),))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    if sys.argv[1] == "train":
        train(sys.argv[2], int(sys.argv[3]), sys.argv[4] == "1")
    elif sys.argv[1] == "train_with_map":
        train_with_map(sys.argv[2], int(sys.argv[3]), sys.argv[4] == "1")
    else:
        write(sys.argv[2], int(sys.argv[3]))
