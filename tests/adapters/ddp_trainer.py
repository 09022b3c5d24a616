"""One process of a training with DistributedDataParallel, which test_ranks.py starts.

It notes in a file which rows it has trained with in each step.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

import pyfeed


def make_reader(how: str, names: str, batch_size: int, rank: int | str, world: int) -> pyfeed.Reader:
    """Make a reader of one rank's part of three passes: of each batch, or of its own virtual shards."""
    if how == "split":
        batches = pyfeed.open_files(names, interleave=2, shuffle_files=5).shuffle(40, seed=3).batch(batch_size)
        reader = batches.split_batches(rank, None if rank == "auto" else world)
    else:
        given = None if rank == "auto" else world
        own = pyfeed.open_files(names, shuffle_files=5, rank=rank, world=given, virtual_shards=12)
        reader = own.shuffle(48 // world, seed=3).batch(batch_size // world)
    return reader.multi_pass(3).double_buffer()


def train(how: str, folder: Path, log: Path, batch_size: int, kill_step: int | None = None) -> None:
    """Train from the last checkpoint, or from the beginning. The process kills itself in the step `kill_step`."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.distributed.init_process_group("gloo", os.environ.get("INIT_METHOD"), rank=rank, world_size=world)
    reader = make_reader(how, str(folder / "*.npy"), batch_size, "auto", world)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1, dtype=torch.float64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = 0
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        saved: dict[str, Any] = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        reader.load_state_dict(saved["reader"])
        step = saved["step"]

    with log.with_suffix(f".{rank}").open("w") as notes:
        for (rows,) in reader:
            numbers = [int(row[0]) for row in rows]
            print(json.dumps([step, numbers]), file=notes, flush=True)
            if step == kill_step:
                os.kill(os.getpid(), signal.SIGKILL)
            x = torch.sin(torch.tensor(rows) * torch.tensor([1, 0.5, 0.25, 0.125], dtype=torch.float64))
            optimizer.zero_grad()
            (model(x) - 1).square().mean().backward()
            optimizer.step()
            step += 1
            if rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                torch.save(state | {"reader": reader.state_dict()}, checkpoint.with_suffix(".partial"))
                checkpoint.with_suffix(".partial").rename(checkpoint)
    torch.distributed.destroy_process_group()
    # The model is in a cycle of references, and keeps the process group. A thread of the group needs the GIL to drop
    # its last task: while the interpreter ends, that would end the process by std::terminate.
    del model, optimizer
    gc.collect()


def train_rank(rank: int, world: int, rendezvous: Path, *arguments: Any) -> None:
    """Train as a rank of a job that no launcher has started."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "INIT_METHOD": f"file://{rendezvous}"}
    torch.set_num_threads(1)
    train(*arguments)


if __name__ == "__main__":
    train(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
