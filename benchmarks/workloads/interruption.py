"""The workload of `interruption.py`: functions for programs that block in a state and emit events."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

FOR_EVER = 3600.0  # seconds; longer than every timeout of the benchmark


def emit(event: str, *values: object) -> None:
    """Write an event to the FIFO that `harness.programs.Program` reads, from any process of the program."""
    line = "\t".join(map(str, (event, time.monotonic_ns(), *values)))
    fd = os.open(os.environ["PYFEED_BENCHMARK_EVENTS"], os.O_WRONLY)
    os.write(fd, line.encode() + b"\n")
    os.close(fd)


def array(i: int = 0) -> npt.NDArray[np.float32]:
    return np.full((32, 20), i, np.float32)


def slow() -> Iterator[npt.NDArray[np.float32]]:
    """A generator that never yields its first item."""
    emit("worker", os.getpid())
    time.sleep(FOR_EVER)
    yield array()


def slow_item(i: int) -> npt.NDArray[np.float32]:
    """A function that never returns its item."""
    emit("worker", os.getpid())
    time.sleep(FOR_EVER)
    return array(i)


def quick_item(i: int) -> npt.NDArray[np.float32]:
    """A function that makes items at once, so that workers soon wait for the trainer."""
    return array(i)


def push_until_interrupted(push: Callable[[], object]) -> None:
    """Push, in a worker, until KeyboardInterrupt."""
    emit("worker", os.getpid())
    try:
        while True:
            push()
    except KeyboardInterrupt:
        emit("worker interrupted")
