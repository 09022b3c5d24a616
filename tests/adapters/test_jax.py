"""`pyfeed.jax`. JAX counts its devices once in a process, so the tests run in processes of their own."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import pyfeed

HERE = Path(__file__).parent


def environment(devices: int, **variables: str) -> dict[str, str]:
    return os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        **variables,
    }


def test_on_four_devices() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(HERE / "on_jax.py")],
        env=environment(4, PYFEED_CUDA="host"),
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r" \d\d passed\b", done.stdout.splitlines()[-1])


def test_each_process_gives_its_part_of_global_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(26, dtype="int32"))
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, str(HERE / "jax_trainer.py"), str(port), str(rank), str(tmp_path / "x.npy")],
            env=environment(2),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    ranks: list[list[Any]] = []
    for process in processes:
        out, err = process.communicate(timeout=100)
        assert process.returncode == 0, err
        ranks.append([json.loads(line) for line in out.splitlines() if line.startswith("[[")])  # Gloo prints too
    reader = pyfeed.open_files(tmp_path / "x.npy").shuffle(24, seed=1).batch(8, drop_last=True)
    expected = [batch.tolist() for (batch,) in reader]
    assert len(expected) == 3
    for batch, *steps in zip(expected, *ranks, strict=True):
        assert [shape for shape, _, _ in steps] == [[8]] * 2
        assert [mine for _, mine, _ in steps] == [[batch[0:2], batch[2:4]], [batch[4:6], batch[6:8]]]
        assert [total for _, _, total in steps] == [sum(batch)] * 2


def test_pyfeed_imports_no_framework() -> None:
    program = "import sys, pyfeed; print(*{'jax', 'torch', 'lightning', 'keras', 'transformers'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("\n", "")
