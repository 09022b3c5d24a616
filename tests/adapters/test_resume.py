"""The training of examples/resume_torch is killed at random moments, and ends with the weights of one that was not."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
import torch

from .trainer import train

EXAMPLE = Path(__file__).parents[2] / "examples" / "resume_torch" / "train.py"
STEPS, EVERY = 480, 7  # of the whole training, and between two checkpoints
KILLS = 8


def command(folder: Path) -> list[str]:
    return [str(EXAMPLE), str(folder), "--passes", "8", "--every", str(EVERY)]


def run(folder: Path) -> list[str]:
    """Run the example to its end; return its lines of output."""
    done = subprocess.run([sys.executable, *command(folder)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@contextlib.contextmanager
def killed(context: ForkServerContext, folder: Path, halt: tuple[int, float]) -> Iterator[Iterator[str]]:
    """Start the example, and kill it at the end of the block, which gets the lines of its output."""
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=train, args=(command(folder), writer, halt))
    process.start()
    writer.close()
    try:
        with open(reader.fileno(), closefd=False) as file:
            yield (line.rstrip("\n") for line in file)
    finally:
        process.kill()
        process.join()
        reader.close()
    assert process.exitcode == -signal.SIGKILL


def until(lines: Iterator[str], event: str) -> list[str]:
    """Return the lines before the one that begins with `event`, which must come."""
    out: list[str] = []
    for line in lines:
        if line.startswith(event):
            return out
        out.append(line)
    raise AssertionError(f"expected a line that begins with {event!r}, found {out}")


def step_of(line: str) -> int:
    match = re.fullmatch(r"step (\d+): loss \d+\.\d{4}", line)
    assert match, line
    return int(match[1])


def saved(folder: Path) -> dict[str, Any]:
    out: dict[str, Any] = torch.load(folder / "checkpoint.pt")
    return out


def same(found: Any, expected: Any) -> None:
    """Expect two parts of checkpoints to be equal, tensors bit for bit."""
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.numpy().tobytes() == expected.numpy().tobytes()
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            same(found[key], expected[key])
    else:
        assert found == expected


def without_reader(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Return a checkpoint without the state of the reader, which has the time of the last change of the files."""
    return {name: part for name, part in checkpoint.items() if name != "reader"}


@pytest.mark.timeout(600)  # it imports PyTorch in four processes
def test_a_training_that_is_killed_again_and_again(tmp_path: Path) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "killed"
    printed = run(whole)
    assert [step_of(line) for line in printed[:-1]] == list(range(1, STEPS + 1))

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch._dynamo"])
    rng, done = random.Random(1), 0  # `done`: the steps of the last checkpoint
    for number in range(KILLS):
        begins = [f"goes on after step {done}"] if done else []
        if number % 4 == 1:  # within the writing of a checkpoint
            checkpoints = rng.randint(0, 4)
            with killed(context, folder, (checkpoints, rng.random())) as lines:
                found = until(lines, "halts")
            done += checkpoints * EVERY
            assert found == begins + printed[done - checkpoints * EVERY : done + EVERY]
            assert (folder / "checkpoint.pt.partial").exists()
            assert saved(folder)["step"] == done if done else not (folder / "checkpoint.pt").exists()
        else:
            last = done + rng.randint(1, 30)
            # It goes on until it is killed, but if this process has to wait for a processor, not much further.
            with killed(context, folder, ((last - done) // EVERY + 2, rng.random())) as lines:
                found = until(lines, f"step {last}:")
            assert found == begins + printed[done : last - 1]
            done = saved(folder)["step"] if (folder / "checkpoint.pt").exists() else 0
            assert (last - 1) // EVERY * EVERY <= done <= last + 2 * EVERY
            assert done % EVERY == 0
    assert EVERY * KILLS < done < STEPS - EVERY

    assert run(folder) == [f"goes on after step {done}", *printed[done:]]
    same(without_reader(saved(folder)), without_reader(saved(whole)))
    assert run(folder) == [f"goes on after step {STEPS}", printed[-1]]  # it has nothing left to do
