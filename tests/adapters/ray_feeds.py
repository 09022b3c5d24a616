"""Readers for the tests with Ray, and the order that they must have. Run as a program, it is a trainer."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import ray

import pyfeed

ROWS = 2070
BATCH = 16
STREAMS = 3

MakeReader = Callable[[int, int], pyfeed.Reader]


def feed_of(path: str, rows: int = ROWS, fail_at: int = -1, die_at: int = -1, hang_at: int = -1) -> MakeReader:
    """Return a `make_reader` of the numbers below `rows`, in streams of unequal lengths.

    Row `fail_at` raises, and row `die_at` ends the process. Row `hang_at` hangs once: it writes the number of the
    process to `path`.hung, and waits for `path`.go.
    """

    def make_reader(stream: int, streams: int) -> pyfeed.Reader:
        import pyfeed

        def double(x: Any, y: Any) -> tuple[Any, Any]:
            if y == fail_at:
                raise ValueError(f"row {y} is bad")
            if y == die_at:
                os._exit(1)
            if y == hang_at and not os.path.exists(f"{path}.hung"):
                Path(f"{path}.partial").write_text(str(os.getpid()))
                os.replace(f"{path}.partial", f"{path}.hung")
                while not os.path.exists(f"{path}.go"):
                    time.sleep(0.01)
            return 2 * x, y

        with np.load(path) as arrays:
            bounds = [0, rows // 5, rows // 5 + rows // 3, rows]
            first, end = bounds[stream], bounds[stream + 1]
            x, y = arrays["x"][first:end], arrays["y"][first:end]
        source = pyfeed.from_generator(lambda: zip(x, y, strict=True), [(4,), ()], dtypes=["float32", "int64"])
        return source.shuffle(50, seed=1).map(double).batch(BATCH)

    return make_reader


def write_numbers(path: Path, rows: int = ROWS) -> str:
    """Write the file that `feed_of` reads."""
    y = np.arange(rows)
    np.savez(path, x=np.repeat(y[:, None], 4, 1).astype("float32"), y=y)
    return str(path)


def expected(make_reader: MakeReader, passes: int = 1, streams: int = STREAMS) -> list[list[list[int]]]:
    """Return the batches of each pass: one of each stream in turn, by a chain of readers in this process."""
    readers = [make_reader(i, streams) for i in range(streams)]
    every = []
    for _ in range(passes):
        loops: list[Iterator[Any] | None] = [iter(reader) for reader in readers]
        batches: list[list[int]] = []
        while any(loops):
            for i, loop in enumerate(loops):
                batch = None if loop is None else next(loop, None)
                if batch is None:
                    loops[i] = None
                else:
                    batches.append(batch[1].tolist())
        every.append(batches)
    return every


def flat(parts: Iterable[list[int]]) -> list[int]:
    """Return the rows of several parts of a batch."""
    return list(itertools.chain.from_iterable(parts))


def labels(batch: Any) -> list[int]:
    """Return the labels of a batch, and check the other slot."""
    x, y = batch
    np.testing.assert_array_equal(x, np.repeat(2 * y[:, None], 4, 1))
    return [int(i) for i in y]


def main(service: str, checkpoint: str, log: str, address: str) -> None:
    """Write the batches of a pass to a log, and save the position after each. Go on where a killed process was."""
    ray.init(address, log_to_driver=False)
    reader = ray.cloudpickle.loads(bytes.fromhex(service)).reader()
    with open(log, "a") as file:
        if os.path.exists(checkpoint):
            state = json.loads(Path(checkpoint).read_text())
            reader.load_state_dict(state["reader"])
            file.truncate(state["log"])  # what was trained behind the checkpoint is lost with the process
        for batch in reader:
            file.write(json.dumps(labels(batch)) + "\n")
            file.flush()
            state = {"reader": reader.state_dict(), "log": file.tell()}
            Path(checkpoint + ".partial").write_text(json.dumps(state))
            os.replace(checkpoint + ".partial", checkpoint)
            print("batch", flush=True)
    print("end", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
