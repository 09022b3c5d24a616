"""A check after every test: the test must release all resources that it has acquired."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import pytest

import pyfeed
from pyfeed import formats

# Handles that the process creates once and keeps, so that they do not count as leaks.
pyfeed.global_scope()
pyfeed.default_main_program()


def pytest_collection_finish() -> None:
    # Objects that exist now stay alive. Without the freeze, the many collections would take most of the tests' time.
    gc.collect()
    gc.freeze()


def alive() -> dict[str, int]:
    """Return the counts that must not be larger after a test than before it."""
    counts: dict[str, int] = {**pyfeed.diagnostics.memory_stats()}  # type: ignore[dict-item]
    del counts["idle_bytes"]
    counts["threads"] = sum(t.name.startswith("pyfeed") for t in threading.enumerate())
    for name in ("handles", "threads"):  # a format stays registered, with the thread that waits for its files
        counts[name] -= len(formats._formats)
    return counts


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    before = alive()
    yield
    end = time.monotonic() + 60  # threads may still be ending
    while (left := {name: n for name, n in alive().items() if n > before[name]}) and time.monotonic() < end:
        time.sleep(0.001)
        gc.collect()
    assert left == {}, "left behind"
