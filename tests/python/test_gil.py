"""Calls that wait or copy do not keep Python's other threads from running."""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import pyfeed
from pyfeed import Scope, py_array_reader

from .support import Background, feed, needs_gil, tuple_of, wait_for_consumers, wait_for_producers

LARGE = 64 << 20
WINDOW = 0.1  # seconds of one measurement
WANTED = 0.8  # the required share of the idle rate


class Counter:
    """A thread that counts without a pause."""

    def __init__(self) -> None:
        self.count = 0
        self.stop = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.stop:
            self.count += 1

    def _no_processor(self) -> float:
        """Return the seconds in which the thread was ready to run but had no processor."""
        try:
            with open(f"/proc/self/task/{self.thread.native_id}/schedstat") as file:
                return int(file.read().split()[1]) / 1e9
        except OSError:
            return 0

    def rate(self) -> float:
        """Return the counts a second, without the time in which other programs kept the thread from a processor."""
        count, start, without = self.count, time.perf_counter(), self._no_processor()
        time.sleep(WINDOW)
        taken = time.perf_counter() - start - (self._no_processor() - without)
        return (self.count - count) / max(taken, WINDOW / 10)


@pytest.fixture
def counter() -> Iterator[Counter]:
    counter = Counter()
    yield counter
    counter.stop = True
    counter.thread.join()


class Work:
    """Repeats each call in a thread of its own, and can be paused."""

    def __init__(self, *calls: Callable[[], object]) -> None:
        self.go = threading.Event()
        self.idle = [threading.Event() for _ in calls]
        self.ended = False
        self.rounds = 0
        self.threads = [Background(lambda c=c, i=i: self._run(c, i)) for c, i in zip(calls, self.idle, strict=True)]  # type: ignore[misc]

    def _run(self, call: Callable[[], object], idle: threading.Event) -> None:
        while not self.ended:
            if not self.go.is_set():
                idle.set()
                self.go.wait()
                idle.clear()
                continue
            call()
            self.rounds += 1

    def pause(self) -> None:
        self.go.clear()
        for idle in self.idle:
            idle.wait()

    def stop(self) -> None:
        self.ended = True
        self.go.set()
        for thread in self.threads:
            thread.result()


def share(counter: Counter, begin: Callable[[], object], end: Callable[[], object]) -> float:
    """Return the rate of counting beside some work, as a share of the rate without it. The two alternate."""
    shares = []
    for _ in range(3):
        alone = counter.rate()
        begin()
        beside = counter.rate()
        end()
        shares.append(beside / ((alone + counter.rate()) / 2))
    return statistics.median(shares)


def best_share(counter: Counter, begin: Callable[[], object], end: Callable[[], object], tries: int = 10) -> float:
    """Return the best of several measurements, since disturbances only make a measurement worse."""
    best = 0.0
    for _ in range(tries):
        best = max(best, share(counter, begin, end))
        if best >= WANTED:
            break
    print(f"counted at {best:.0%} of the idle rate")
    return best


def best_share_beside(counter: Counter, *calls: Callable[[], object], tries: int = 3) -> float:
    """Expect the counting to keep its rate beside the work.

    A machine may have too few processors, or too little memory bandwidth, for the counting and a copy together. Then
    another process copies while the counting is measured without the work, so that only the GIL makes a difference.
    """
    work = Work(*calls)
    work.pause()
    best = best_share(counter, work.go.set, work.pause, tries)
    if best < WANTED and tries > 1:
        program = f"import numpy as np; a, b = np.zeros((2, {LARGE}), np.uint8)\nwhile True: np.copyto(a, b)"
        stand_in = subprocess.Popen([sys.executable, "-c", program])

        def begin() -> None:
            stand_in.send_signal(signal.SIGSTOP)
            work.go.set()

        def end() -> None:
            work.pause()
            stand_in.send_signal(signal.SIGCONT)

        try:
            best = max(best, best_share(counter, begin, end))
        finally:
            stand_in.kill()
            stand_in.wait()
    work.stop()
    assert work.rounds > 0
    return best


@needs_gil("the copy holds the GIL")
def test_the_measure_notices_a_copy_under_the_gil(counter: Counter) -> None:
    to, copy = bytearray(LARGE), bytes(LARGE)

    def copy_under_the_gil() -> None:
        to[:] = copy

    assert best_share_beside(counter, copy_under_the_gil, tries=1) < 0.7


def test_counting_beside_copied_pushes(counter: Counter) -> None:
    _, queue = feed(1, [(-1,)])
    given = (np.zeros(LARGE, np.uint8),)

    def push_and_pop() -> None:
        queue.push(given)
        queue.pop()

    assert best_share_beside(counter, push_and_pop) >= WANTED


def test_counting_beside_gathered_pushes(counter: Counter) -> None:
    _, queue = feed(1, [(-1, -1)])
    given = (np.zeros((LARGE >> 10, 2, 512), np.uint8)[:, 0],)

    def push_and_pop() -> None:
        queue.push(given)
        queue.pop()

    assert best_share_beside(counter, push_and_pop) >= WANTED


@pytest.mark.parametrize("way", ["next", "has_next", "read op"])
def test_counting_beside_batches(counter: Counter, way: str) -> None:
    scope = Scope()
    reader, queue = py_array_reader(2, [(LARGE >> 1,)], scope=scope)
    batch = reader.batch(2)
    given = (np.zeros(LARGE >> 1, np.uint8),)

    def push_and_read() -> None:
        queue.push(given, copy=False)
        queue.push(given, copy=False)
        if way == "next":
            next(batch)
        elif way == "has_next":
            batch.has_next()
            batch.read()
        else:
            scope.read(batch.name, ["x"])

    assert best_share_beside(counter, push_and_read) >= WANTED


def test_counting_beside_tensors_set(counter: Counter) -> None:
    scope = Scope()
    given = np.zeros(LARGE, np.uint8)

    def set_tensor() -> None:
        scope["x"] = given

    assert best_share_beside(counter, set_tensor) >= WANTED


@pytest.mark.parametrize("place", ["a full queue", "an empty queue", "a batch", "a pass to come"])
def test_counting_beside_threads_that_wait(counter: Counter, place: str) -> None:
    reader, queue = feed(1)
    if place == "a full queue":
        queue.push(tuple_of(0))
        calls: list[Callable[[], object]] = [lambda: queue.push(tuple_of(1), timeout=0.05)]
        calls += [lambda: queue.push(tuple_of(1), copy=False, timeout=0.05)] * 2
    elif place == "an empty queue":
        calls = [lambda: queue.pop(0.05), lambda: reader.read(0.05), lambda: reader.has_next(0.05)]
    elif place == "a batch":
        batch = reader.batch(2)
        calls = [lambda: batch.read(0.05), lambda: batch.has_next(0.05)]
    else:
        calls = [lambda: queue.wait_pass(1, 0.05)] * 2

    def until_timeout(call: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            with pytest.raises(pyfeed.errors.Timeout):
                call()

        return run

    assert best_share_beside(counter, *map(until_timeout, calls)) >= WANTED


def test_counting_beside_threads_that_wait_for_ever(counter: Counter) -> None:
    _, full = feed(1)
    full.push(tuple_of(0))
    reader, empty = feed(1)
    waiting: list[Background[object]] = []

    def begin() -> None:
        waiting.extend(Background(lambda: full.push(tuple_of(1))) for _ in range(4))
        waiting.extend(Background(reader.read) for _ in range(4))
        wait_for_producers(full, 4)
        wait_for_consumers(empty, 4)

    def end() -> None:
        full.reopen()
        full.push(tuple_of(0))
        empty.reopen()
        for each in waiting:
            with pytest.raises((pyfeed.errors.QueueClosed, pyfeed.errors.EndOfData)):
                each.result()
        waiting.clear()

    assert best_share(counter, begin, end) >= WANTED
