"""One process of a training with DistributedDataParallel, which test_ranks.py starts.

It notes in a file which rows it has trained with in each step.
"""

from __future__ import annotations

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


def train(folder: Path, log: Path, batch_size: int, kill_step: int | None = None) -> None:
    """Train from the last checkpoint, or from the beginning. The process kills itself in the step `kill_step`."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.distributed.init_process_group("gloo", os.environ.get("INIT_METHOD"), rank=rank, world_size=world)
    batches = pyfeed.open_files(str(folder / "*.npy"), interleave=2, shuffle_files=5).shuffle(40, seed=3)
    reader = batches.batch(batch_size).split_batches("auto").multi_pass(3).double_buffer()
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


def train_rank(rank: int, world: int, rendezvous: Path, *arguments: Any) -> None:
    """Train as a rank of a job that no launcher has started."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "INIT_METHOD": f"file://{rendezvous}"}
    torch.set_num_threads(1)
    train(*arguments)


if __name__ == "__main__":
    train(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
