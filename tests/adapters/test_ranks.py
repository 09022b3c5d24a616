"""Processes that train one model with DistributedDataParallel (DDP): they end together, and resume in any number."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from .ddp_trainer import make_reader, train_rank

TRAINER = Path(__file__).with_name("ddp_trainer.py")


def store(folder: Path, count: int) -> None:
    """Write rows whose first number is their index, into three files of different sizes."""
    folder.mkdir()
    rows = np.arange(count)[:, None].repeat(4, axis=1)
    for i, part in enumerate(np.split(rows, [count // 2, count // 2 + 5])):
        np.save(folder / f"{i}.npy", part)


def run_ranks(how: str, folder: Path, log: Path, world: int, killed: int | None = None, kill_step: int = 0) -> None:
    """Run the training to its end, or until the rank `killed` kills itself: then all others fail."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch._dynamo", "torch.distributed"])
    ranks = []
    for rank in range(world):
        arguments = (
            rank,
            world,
            log.with_suffix(".rendezvous"),
            how,
            folder,
            log,
            24,
            *([kill_step] if rank == killed else []),
        )
        ranks.append(context.Process(target=train_rank, args=arguments))
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    failed = 0 if killed is None else 1
    assert [process.exitcode for process in ranks] == [
        -signal.SIGKILL if rank == killed else failed for rank in range(world)
    ]


def steps_of(log: Path, world: int) -> dict[int, list[int]]:
    """Return the rows of all ranks, in their order, for each step that all ranks have begun."""
    ranks: list[dict[int, list[int]]] = []
    for rank in range(world):
        lines = [json.loads(line) for line in log.with_suffix(f".{rank}").read_text().splitlines()]
        ranks.append(dict(lines))
        assert [step for step, _ in lines] == list(range(lines[0][0], lines[0][0] + len(lines)))
    shared = set(ranks[0]).intersection(*ranks)
    return {step: [row for rows in ranks for row in rows[step]] for step in sorted(shared)}


def global_batches(how: str, folder: Path, batch_size: int) -> list[list[int]]:
    """Return the batches that one process reads in three passes."""
    return [
        [int(row[0]) for row in rows] for (rows,) in make_reader(how, str(folder / "*.npy"), batch_size, 0, world=1)
    ]


@pytest.mark.parametrize("how", ["split", "own"])
def test_ranks_are_killed_and_go_on_in_another_number(how: str, tmp_path: Path) -> None:
    """Every step has the rows of an undisturbed run, and the weights at the end are the same."""
    in_order = list[int] if how == "split" else sorted
    store(tmp_path / "killed", 108)
    store(tmp_path / "whole", 108)
    expected = global_batches(how, tmp_path / "whole", 24)
    assert [len(rows) for rows in expected] == [24, 24, 24, 24, 12] * 3
    run_ranks(how, tmp_path / "whole", tmp_path / "whole.log", 1)

    covered: set[int] = set()
    for n, (world, *kill) in enumerate([(4, 2, 4), (2, 0, 9), (3,)]):
        log = tmp_path / f"{n}.log"
        run_ranks(how, tmp_path / "killed", log, world, *kill)
        steps = steps_of(log, world)
        assert {step: in_order(rows) for step, rows in steps.items()} == {
            step: in_order(expected[step]) for step in steps
        }
        covered |= set(steps)
    assert covered == set(range(15))

    def saved(folder: str) -> dict[str, Any]:
        out: dict[str, Any] = torch.load(tmp_path / folder / "checkpoint.pt")
        return out

    found, whole = saved("killed"), saved("whole")
    assert found["step"] == whole["step"] == 15
    for name, weights in whole["model"].items():
        torch.testing.assert_close(found["model"][name], weights, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("how", ["split", "own"])
def test_ranks_end_together(how: str, tmp_path: Path) -> None:
    """97 rows, 3 ranks of torchrun, batches of 33: the last row is left out, and no rank waits for another."""
    store(tmp_path / "data", 97)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    command += [str(TRAINER), how, str(tmp_path / "data"), str(tmp_path / "log"), "33"]
    done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    steps = steps_of(tmp_path / "log", 3)
    expected = [rows[: len(rows) // 3 * 3] for rows in global_batches(how, tmp_path / "data", 33)]
    in_order = list[int] if how == "split" else sorted
    assert [in_order(rows) for rows in steps.values()] == [in_order(rows) for rows in expected]
    assert len(steps) == 9
