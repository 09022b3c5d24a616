"""Several processes share the records of some files. Later, another number of processes goes on.

    python train.py

Four processes train for some steps and save their position. Then two processes go on there, to the end of the second
epoch. Each process reads only its own records. At the end, the program checks that each record was read once in each
epoch.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import pyfeed

BATCH, SHUFFLE = 24, 480  # of all processes together: 48, the number of virtual shards, divides SHUFFLE
EPOCHS = 2


def make_reader(folder: Path, rank: int, world: int) -> pyfeed.Reader:
    reader = pyfeed.open_files(f"{folder}/*.npy", rank=rank, world=world)
    return reader.shuffle(SHUFFLE // world, seed=1).batch(BATCH // world).double_buffer()


def train(folder: Path, rank: int, world: int, barrier: Any, last_step: int, output: Any) -> None:
    """Train as one process, until step `last_step` of the job, or to the end of the last epoch."""
    reader = make_reader(folder, rank, world)
    checkpoint = folder / "checkpoint.json"
    epoch = step = 0
    if checkpoint.exists():
        saved = json.loads(checkpoint.read_text())
        epoch, step = saved["epoch"], saved["step"]
        reader.load_state_dict(saved["reader"])
    seen = []
    while epoch < EPOCHS and step < last_step:
        for (batch,) in reader:  # the rest of the epoch, or a whole epoch
            seen.append((epoch, batch.tolist()))
            step += 1
            if step == last_step:
                break
        else:
            epoch += 1
    barrier.wait()  # all processes have finished the same step
    if rank == 0:
        checkpoint.write_text(json.dumps({"epoch": epoch, "step": step, "reader": reader.state_dict()}))
    output.put(seen)


def run(folder: Path, world: int, last_step: int) -> list[Any]:
    """Run a job of `world` processes, and return what they have seen."""
    context = multiprocessing.get_context("spawn")
    barrier, output = context.Barrier(world), context.Queue()
    processes = [
        context.Process(target=train, args=(folder, rank, world, barrier, last_step, output)) for rank in range(world)
    ]
    for process in processes:
        process.start()
    seen = [part for _ in processes for part in output.get()]
    for process in processes:
        process.join()
    return seen


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        records = np.arange(960)
        for i, part in enumerate(np.split(records, [500, 510, 900])):
            np.save(folder / f"{i}.npy", part)
        seen = run(folder, world=4, last_step=55)
        seen += run(folder, world=2, last_step=sys.maxsize)
    for epoch in range(EPOCHS):
        read = sorted(x for of_epoch, batch in seen if of_epoch == epoch for x in batch)
        print(f"epoch {epoch}: {len(read)} records, each once: {read == records.tolist()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
