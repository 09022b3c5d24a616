"""Kills workers of `pyfeed.torch`, drops iterators and presses Ctrl-C at random, and looks for what is left.

    python -m tests.long.torch_loader [--kills 200] [--drops 1000] [--interrupts 100] [--seed 1]

The environment needs torch: it is that of `make test-adapters`. A kill must raise PyTorch's RuntimeError, or come after
the last batch. Every batch that arrives must be right. At the end, no process, descriptor, thread or segment may be
left. A Ctrl-C, which all processes get, must raise one KeyboardInterrupt in the trainer, and print nothing. The exit
status is 1 if one of this fails.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from pyfeed.torch import DataLoader
from torch.utils.data import Dataset


class Squares(Dataset[Any]):  # type: ignore[misc]  # torch is not installed where types are checked
    """A tensor of the square of the index."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.full((1000,), float(i * i)), i


def left() -> tuple[int, int, int, int]:
    """Count processes, descriptors, threads and segments."""
    gc.collect()
    segments = Path("/proc/self/maps").read_text().count("pyfeed-torch")
    children = len(multiprocessing.active_children())
    return children, len(os.listdir("/proc/self/fd")), threading.active_count(), segments


def start(random_: random.Random) -> Any:
    return iter(
        DataLoader(
            Squares(),
            batch_size=random_.choice([1, 4, 16]),
            num_workers=random_.choice([1, 2]),
            multiprocessing_context="fork",
            persistent_workers=random_.random() < 0.5,
        )
    )


def take(iterator: Any, batches: int) -> bool:
    """Take batches and check them. Return whether there were as many."""
    for _ in range(batches):
        batch = next(iterator, None)
        if batch is None:
            return False
        x, i = batch
        if not torch.equal(x[:, 999], (i * i).float()):
            raise AssertionError(f"a wrong batch: {i.tolist()}")
    return True


def interrupt(method: str, seconds: float) -> str:
    """Press Ctrl-C in a script that works with loaders. Return what was wrong."""
    command = [sys.executable, "-m", "tests.long.torch_interrupted", method]
    script = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert script.stdout is not None
    script.stdout.readline()
    time.sleep(seconds)
    os.killpg(script.pid, signal.SIGINT)
    try:
        out, err = script.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(script.pid, signal.SIGKILL)
        return f"no end within a minute\n{script.communicate()[1]}"
    wrong = "" if (out, err, script.returncode) == ("interrupted\n", "", 0) else f"{script.returncode} {out!r}\n{err}"
    until = time.monotonic() + 10  # other processes, such as the forkserver, end after the trainer
    while left_in_session(script.pid):
        if time.monotonic() > until:
            os.killpg(script.pid, signal.SIGKILL)
            return wrong + "processes are left"
        time.sleep(0.02)
    return wrong


def left_in_session(session: int) -> bool:
    """Whether a process of the session still runs."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, found = (process / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue  # it has just ended
        if int(found) == session and state not in "ZX":
            return True
    return False


def main() -> int:
    """Run all rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--drops", type=int, default=1000)
    parser.add_argument("--interrupts", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    random_ = random.Random(args.seed)
    take(start(random_), 1)
    before = left()
    raised = 0
    for _ in range(args.kills):
        iterator = start(random_)
        take(iterator, random_.randrange(20))
        os.kill(random_.choice(iterator._workers).pid, signal.SIGKILL)
        try:
            take(iterator, 1000)
        except RuntimeError as error:
            if "exited unexpectedly" not in str(error) and "killed by signal" not in str(error):
                raise
            raised += 1
        del iterator
    after_kills = left()
    for _ in range(args.drops):
        take(start(random_), random_.randrange(5))
    after_drops = left()
    print(f"{args.kills} kills, {raised} errors; processes, descriptors, threads, segments:")
    print(f"before {before}, after the kills {after_kills}, after {args.drops} drops {after_drops}")
    noisy = 0
    for k in range(args.interrupts):
        method, seconds = ("fork", "spawn", "forkserver")[k % 3], random_.uniform(0, 1 if k % 3 == 0 else 12)
        wrong = interrupt(method, seconds)
        if wrong:
            noisy += 1
            print(f"Ctrl-C {seconds:.3f} s after the start, {method}: {wrong}", flush=True)
    print(f"{args.interrupts} times Ctrl-C, {noisy} with noise")
    return int(noisy > 0 or not before == after_kills == after_drops)


if __name__ == "__main__":
    sys.exit(main())
