"""Every test must leave the process as it found it."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import pytest

import pyfeed
from pyfeed import registry

# Made once and kept: handles that are no leaks.
pyfeed.global_scope()
pyfeed.default_main_program()


def pytest_collection_finish() -> None:
    # What is there now stays: looking through it again and again would take most of the time.
    gc.collect()
    gc.freeze()


def alive() -> dict[str, int]:
    """What must be no more after a test than before it."""
    counts: dict[str, int] = {**pyfeed.memory_stats()}  # type: ignore[dict-item]
    del counts["idle_bytes"]
    counts["threads"] = sum(t.name.startswith("pyfeed") for t in threading.enumerate())
    for name in ("handles", "threads"):  # a format stays for good, with the thread that waits for its files
        counts[name] -= len(registry._formats)
    return counts


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    before = alive()
    yield
    end = time.monotonic() + 5  # threads may be on their way out
    while (left := {name: n for name, n in alive().items() if n > before[name]}) and time.monotonic() < end:
        time.sleep(0.001)
        gc.collect()
    assert left == {}, "left behind"
