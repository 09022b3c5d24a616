"""The example with Ray, and those of the page about many machines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/distributed.md").read_text()
BLOCKS = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "import ray\n" in block]

pytestmark = pytest.mark.timeout(600)  # processes of Ray start slowly on a busy machine


def run(*command: str, folder: Path) -> list[str]:
    environment = {**os.environ, "RAY_ADDRESS": "local"}  # not a cluster that runs already
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, cwd=folder, timeout=500, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_training_that_loses_a_node_has_the_same_weights(tmp_path: Path) -> None:
    lines = run(str(ROOT / "examples/ray_digits/train.py"), folder=tmp_path)
    assert any(re.fullmatch(r"node killed after \d+ steps", line) for line in lines)
    assert lines[-1] == "the losses and weights of both runs are equal"


@pytest.mark.parametrize("block", BLOCKS)
def test_the_page_about_many_machines(block: str, tmp_path: Path) -> None:
    expected = re.findall(r"print\(.*\)  # (.*)", block)
    assert expected
    assert run("-c", block, folder=tmp_path) == expected
