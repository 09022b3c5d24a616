"""What a round reports when pyfeed did something wrong."""

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

# Made once and kept: handles that are no leaks, and the pipes of a wait and of multiprocessing.
pyfeed.global_scope()
pyfeed.default_main_program()
with contextlib.suppress(pyfeed.Timeout):
    pyfeed.py_array_reader(1, [(1,)], scope=pyfeed.Scope())[0].read(timeout=0.3)
multiprocessing.resource_tracker.ensure_running()

# Longer than anything takes that is not stuck, on a busy machine too.
STUCK = 60.0


class Finding(Exception):
    """Something that must not happen, of one of the KINDS."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def expect(right: object, kind: str, text: str) -> None:
    """Raise a finding unless it is right."""
    if not right:
        raise Finding(kind, text)


def drawn(seed: int, part: str, number: int) -> random.Random:
    """The random numbers of one round: the same in every process."""
    return random.Random(f"{seed}/{part}/{number}")


def until(condition: Callable[[], object], seconds: float = STUCK) -> bool:
    """Wait for something that another thread or process is about to do."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


# ---- What must come back to its baseline -----------------------------------------------------


def held() -> dict[str, int]:
    """What a process holds: pyfeed's handles and memory, Python's threads, open files."""
    counts: dict[str, int] = {**pyfeed.memory_stats()}  # type: ignore[dict-item]
    del counts["idle_bytes"]
    counts["threads"] = threading.active_count()
    counts["files"] = len(files())
    return counts


def files() -> list[str]:
    """What descriptors are open, but for those that Go's runtime opens once."""
    once = ("", "anon_inode:[eventpoll]", "anon_inode:[eventfd]")
    names = map(link, os.listdir("/proc/self/fd"))
    return [name for name in names if name not in once and not name.startswith("/sys/fs/cgroup")]


def link(fd: str) -> str:
    """What a descriptor is of."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""  # that of the listing


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Whatever the block made must be gone after it, some moments later at most."""
    gc.collect()
    before = held()
    yield
    left: dict[str, int] = {}

    def gone() -> bool:
        nonlocal left
        gc.collect()
        left = {name: n - before[name] for name, n in held().items() if n > before[name]}
        return not left

    if not until(gone):
        raise Finding("leaks", f"left behind: {left} {files() if 'files' in left else ''}")


def status(field: str) -> int:
    """A number of /proc/self/status, in bytes if it is one of kB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            number, *unit = value.split()
            return int(number) * (1024 if unit else 1)
    raise KeyError(field)
