"""The process that test_resume.py kills, in a module that the process can import."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any


def train(command: list[str], output: Connection[Any, Any], halt: tuple[int, float]) -> None:
    """Run an example with its output in a pipe.

    The process stops when it has renamed halt[0] checkpoints and has written the part halt[1] of the next one.
    """
    os.dup2(output.fileno(), 1)
    output.close()
    checkpoints = 0

    def stop(file: int) -> None:
        nonlocal checkpoints
        if checkpoints == halt[0]:
            os.truncate(file, round(os.fstat(file).st_size * halt[1]))
            print("halts", flush=True)
            signal.pause()
        checkpoints += 1

    os.fsync = stop  # type: ignore[assignment]
    sys.argv = command
    runpy.run_path(command[0], run_name="__main__")
