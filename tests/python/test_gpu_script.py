"""benchmarks/gpu.py, on emulated devices. It is run by hand, on machines with limited time, so it must work at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .support import SLOWNESS

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.py"
PARTS = ["tests", "torch", "cupy", "jax", "bandwidth", "overlap", "next", "peers", "stress"]
METRICS = {"tests", "bandwidth", "overlap", "next", "peers", "stress"}  # parts that need only NumPy


def run(out: Path, *options: str, status: int, **environment: str) -> tuple[str, dict[str, Any]]:
    """Run the script; return its output and the results in gpu.json."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--out", str(out), *options],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100 * SLOWNESS,
    )
    log = out / "gpu.log"
    assert done.returncode == status, done.stdout + done.stderr + (log.read_text() if log.exists() else "")
    report = out / "gpu.json"
    return done.stdout + done.stderr, json.loads(report.read_text()) if report.exists() else {}


def test_every_part_runs_on_emulated_devices(tmp_path: Path) -> None:
    output, found = run(tmp_path, "--emulated", "--quick", status=0)
    assert list(found["parts"]) == PARTS
    assert found["failed"] == []
    for name, part in found["parts"].items():
        assert part["status"] == "done"
        assert all(check["right"] for check in part["checks"]), part["checks"]
        assert "memory is given back" in [check["check"] for check in part["checks"]]
        assert len(part["metrics"]) + len(part["missing"]) > 0
        assert name not in METRICS or part["metrics"]
        assert not any(metric["goal"] for metric in part["metrics"])  # emulation does not show a GPU's speed
        assert f"\n{name}: done, " in output
    assert f"{len(PARTS)} of {len(PARTS)} parts are right; all of it is in {tmp_path}" in output
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any(event.get("cat") == "transfer" for event in events)


def test_a_machine_without_a_gpu_is_a_failure(tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.1"
    library.touch()
    output, found = run(
        tmp_path / "out", "--quick", "--parts", "next,stress", status=1, LD_LIBRARY_PATH=str(tmp_path), PYFEED_CUDA=""
    )
    assert found["failed"] == ["next", "stress"]
    assert output.count(f"WRONG: there is a device: {library}: file too short") == 2
    assert "0 of 2 parts are right" in output


def test_an_emulated_device_is_not_taken_for_a_gpu(tmp_path: Path) -> None:
    output, found = run(tmp_path, "--quick", "--parts", "next", status=1, PYFEED_CUDA="host")
    assert found["failed"] == ["next"]
    assert "WRONG: there is a device: expected a GPU, found the host emulation: PYFEED_CUDA is set" in output


def test_a_part_that_does_not_end_is_stopped(tmp_path: Path) -> None:
    output, found = run(tmp_path, "--emulated", "--quick", "--seconds", "0.01", "--parts", "next,stress", status=1)
    assert found["failed"] == ["next", "stress"]
    for name in found["failed"]:
        assert found["parts"][name]["status"] == "stopped: expected an end within 0 s"
        assert f"{name}: stopped" in output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--parts", "next,nothing"], "--parts: expected some of tests, torch"),
        (["--wheel", "none.whl"], "--wheel: expected a file, found none.whl"),
    ],
)
def test_wrong_options(tmp_path: Path, options: list[str], message: str) -> None:
    output, found = run(tmp_path, *options, status=2)
    assert message in output
    assert found == {}
