"""Interruption: programs that wait in some state, and say where they are."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

FOR_EVER = 3600.0  # seconds: longer than anybody waits


def say(word: str, *values: object) -> None:
    """Tell whoever watches this program, from any of its processes."""
    line = "\t".join(map(str, (word, time.monotonic_ns(), *values)))
    fd = os.open(os.environ["PYFEED_BENCHMARK_SAYS"], os.O_WRONLY)
    os.write(fd, line.encode() + b"\n")
    os.close(fd)


def array(i: int = 0) -> npt.NDArray[np.float32]:
    return np.full((32, 20), i, np.float32)


def slow() -> Iterator[npt.NDArray[np.float32]]:
    """A generator whose next item takes for ever."""
    say("worker", os.getpid())
    time.sleep(FOR_EVER)
    yield array()


def slow_item(i: int) -> npt.NDArray[np.float32]:
    """A function that takes for ever to make an item."""
    say("worker", os.getpid())
    time.sleep(FOR_EVER)
    return array(i)


def quick_item(i: int) -> npt.NDArray[np.float32]:
    """A function that makes items at once, so that workers come to wait for the trainer."""
    return array(i)


def tells_of_interruption(push: Callable[[], object]) -> None:
    """Push, in a worker, until somebody interrupts it."""
    say("worker", os.getpid())
    try:
        while True:
            push()
    except KeyboardInterrupt:
        say("worker interrupted")
