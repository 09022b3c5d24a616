"""How a round reports a failure, and the resources that must be released after it."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing.resource_tracker
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyfeed

KINDS = ("crashes", "hangs", "losses", "leaks")

# Create the handles and pipes that the process creates once and keeps, so that no round counts them as leaks.
pyfeed.global_scope()
pyfeed.default_main_program()
with contextlib.suppress(pyfeed.errors.Timeout):
    pyfeed.py_array_reader(1, [(1,)], scope=pyfeed.Scope())[0].read(timeout=0.3)
multiprocessing.resource_tracker.ensure_running()

TIMEOUT = 60.0  # seconds, enough for every step on a busy machine


class Failure(Exception):
    """A failure of a round: one of the KINDS, and a text."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def expect(condition: object, kind: str, text: str) -> None:
    """Raise a failure unless the condition is true."""
    if not condition:
        raise Failure(kind, text)


def random_of_round(seed: int, part: str, number: int) -> random.Random:
    """Return the random numbers of one round, which are the same in every process."""
    return random.Random(f"{seed}/{part}/{number}")


def wait_until(condition: Callable[[], object], seconds: float = TIMEOUT) -> bool:
    """Wait until another thread or process makes the condition true; return False after a timeout."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


# ---- Resources -------------------------------------------------------------------------------


def resources() -> dict[str, int]:
    """Count what the process holds: pyfeed's handles and memory, Python threads, open files."""
    counts: dict[str, int] = {**pyfeed.diagnostics.memory_stats()}  # type: ignore[dict-item]
    del counts["idle_bytes"]
    counts["threads"] = threading.active_count()
    counts["files"] = len(open_files())
    return counts


def open_files() -> list[str]:
    """Return the targets of all open descriptors, except those that Go's runtime opens once."""
    once = ("", "anon_inode:[eventpoll]", "anon_inode:[eventfd]")
    names = map(target, os.listdir("/proc/self/fd"))
    return [name for name in names if name not in once and not name.startswith("/sys/fs/cgroup")]


def target(fd: str) -> str:
    """Return the file of a descriptor, or an empty string if the descriptor is closed."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""  # the descriptor that listdir had open


@contextlib.contextmanager
def no_leaks() -> Iterator[None]:
    """Fail with "leaks" unless the resources that the block acquires are released within a timeout."""
    gc.collect()
    before = resources()
    yield
    left: dict[str, int] = {}

    def released() -> bool:
        nonlocal left
        gc.collect()
        left = {name: n - before[name] for name, n in resources().items() if n > before[name]}
        return not left

    if not wait_until(released):
        raise Failure("leaks", f"left behind: {left} {open_files() if 'files' in left else ''}")


def process_status(field: str) -> int:
    """Return a number of /proc/self/status; sizes are converted from kB to bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            number, *unit = value.split()
            return int(number) * (1024 if unit else 1)
    raise KeyError(field)
