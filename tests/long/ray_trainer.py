"""A trainer of the campaign with Ray, which ray_kills.py kills, and the readers of its service.

It writes each batch to a log, and its position to a checkpoint. Started again, it cuts the log to the checkpoint, as a
training loses the steps behind its checkpoint, and goes on. Two trainers go in step, as an all-reduce makes them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import ray

import pyfeed

ROWS = 3000
STREAMS = 6
STEP = 0.01  # seconds of training for a batch


def make_feed(work: float) -> Callable[[int, int], pyfeed.Reader]:
    """Return a `make_reader` of numbers, in streams of unequal lengths. A row takes `work` seconds."""
    rows = ROWS

    def make_reader(stream: int, streams: int) -> pyfeed.Reader:
        import time

        import numpy as np

        import pyfeed

        def preprocess(x: Any) -> Any:
            time.sleep(work)
            return x, np.full((500,), x)

        own = [np.array(x) for x in range(rows) if x * x % (streams + 1) % streams == stream]
        source = pyfeed.from_generator(lambda start: ((x,) for x in own[start:]), [()], dtypes=["int64"])
        return source.shuffle(64, seed=1).map(preprocess, shapes=[(), (500,)], dtypes=["int64"] * 2).batch(16)

    return make_reader


def passes() -> Iterator[list[list[int]]]:
    """Yield the rows of each batch of each pass: one batch of each stream in turn, from readers of this process."""
    readers = [make_feed(0)(stream, STREAMS) for stream in range(STREAMS)]
    while True:
        streams = [[x.tolist() for x, _ in reader] for reader in readers]
        longest = max(map(len, streams))
        yield [batches[i] for i in range(longest) for batches in streams if i < len(batches)]


def wait_for(other: Path, step: int, parent: int) -> None:
    """Wait until the other trainer has made a step, too."""
    while os.getppid() == parent:
        try:
            if int(other.read_text() or 0) >= step:
                return
        except FileNotFoundError:
            pass
        time.sleep(0.002)
    sys.exit()


def main(service: str, address: str, folder: Path, rank: int) -> None:
    parent = os.getppid()
    ray.init(address, log_to_driver=False)
    reader = ray.cloudpickle.loads(bytes.fromhex(service)).reader(rank, 2)
    checkpoint, steps = folder / f"checkpoint-{rank}", folder / f"steps-{rank}"
    step = number = 0
    with open(folder / f"log-{rank}", "a") as log:
        if checkpoint.exists():
            saved = json.loads(checkpoint.read_text())
            reader.load_state_dict(saved["reader"])
            log.truncate(saved["log"])
            step, number = saved["step"], saved["number"]
        restarted = True
        while not (folder / "end").exists():
            batches = iter(reader)
            while True:
                asked = time.time()
                batch = next(batches, None)
                if batch is None:
                    break
                x, wide = batch
                assert np.array_equal(wide, np.repeat(x[:, None], 500, 1))
                line = [number, x.tolist(), 0.0 if restarted else time.time() - asked, asked]
                restarted = False
                log.write(json.dumps(line) + "\n")
                log.flush()
                step += 1
                state = {"reader": reader.state_dict(), "log": log.tell(), "step": step, "number": number}
                for path, text in ((checkpoint, json.dumps(state)), (steps, str(step))):
                    partial = path.with_suffix(".partial")
                    partial.write_text(text)
                    partial.replace(path)
                wait_for(folder / f"steps-{1 - rank}", step - 1, parent)
                time.sleep(STEP)
                if (folder / "end").exists():
                    return
            number += 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
