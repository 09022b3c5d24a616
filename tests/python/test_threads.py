"""Many producers and consumers: every tuple is delivered once, in its producer's order, and no resource is left."""

from __future__ import annotations

import collections
import gc
import itertools
import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyfeed
from pyfeed import PyArrayFeedQueue, Scope

from .support import Array, Background, feed, tuple_of, value_of

STRESS_TUPLES = int(os.environ.get("PYFEED_STRESS_TUPLES", "100000"))


@pytest.mark.parametrize("producers", [[2, 3, 4], [9], [0, 7, 15, 6]], ids=str)
@pytest.mark.parametrize("capacity", [2, 10])
@pytest.mark.parametrize("consumers", [2, 20])
def test_the_same_multiset_comes_out(producers: list[int], capacity: int, consumers: int) -> None:
    _, queue = feed(capacity)

    def produce(worker: int, number: int) -> None:
        for i in range(number):
            queue.push(tuple_of(100 * worker + i))

    def consume() -> list[float]:
        found = []
        while True:
            try:
                found.append(value_of(queue.pop()))
            except pyfeed.errors.EndOfData:
                return found

    taking = [Background(consume) for _ in range(consumers)]
    giving = [Background(lambda w=w, n=n: produce(w, n)) for w, n in enumerate(producers)]  # type: ignore[misc]
    for producer in giving:
        producer.result()
    queue.close()
    found = list(itertools.chain(*(t.result() for t in taking)))
    expected = [100 * w + i for w, n in enumerate(producers) for i in range(n)]
    assert collections.Counter(found) == collections.Counter(expected)


@pytest.mark.parametrize("slow", ["producer", "consumer"])
def test_order_is_kept_for_the_slow_too(slow: str) -> None:
    _, queue = feed(3)
    pause = threading.Event()

    def produce() -> None:
        for i in range(60):
            if slow == "producer":
                pause.wait(0.001)
            queue.push(tuple_of(i))
        queue.close()

    producer = Background(produce)
    found = []
    while True:
        if slow == "consumer":
            pause.wait(0.001)
        try:
            found.append(value_of(queue.pop()))
        except pyfeed.errors.EndOfData:
            break
    producer.result()
    assert found == list(range(60))
    waited = queue.stats()["producers_waited" if slow == "consumer" else "consumers_waited"]
    assert 0 < waited < 30


def test_a_large_tuple_gets_its_turn_among_small_ones() -> None:
    _, queue = feed(1000, [(-1,)], bytes_limit=1000)
    stop = threading.Event()

    def small() -> None:
        while not stop.is_set():
            try:
                queue.push((np.zeros(100, np.uint8),), timeout=1)
            except pyfeed.errors.Timeout:
                pass

    def consume() -> None:
        while True:
            try:
                queue.pop()
            except pyfeed.errors.EndOfData:
                return

    threads = [Background(small) for _ in range(3)] + [Background(consume)]
    try:
        for _ in range(20):
            queue.push((np.ones(1000, np.uint8),), timeout=20)
    finally:
        stop.set()
        queue.close()
    for thread in threads[:3]:
        try:
            thread.result()
        except pyfeed.errors.QueueClosed:
            pass
    threads[3].result()


class Stress:
    """Pushes and pops tuples of a producer's number, its count, and data that follow from both.

    Producers push new tuples and count those that were queued. Consumers record the tuples that they get. Meanwhile the
    passes end, by a close or a failure, and new passes begin.
    """

    SIZES = (1, 1, 1, 7, 64, 1000, 5000, 20000)

    def __init__(self, number: int, producers: int, consumers: int) -> None:
        self.queue: PyArrayFeedQueue = feed(16, [(), (), (-1,)], dtypes=["int64"] * 3, bytes_limit=1 << 20)[1]
        self.number, self.producers, self.consumers = number, producers, consumers
        self.pushed = [0] * producers
        self.popped: list[list[tuple[int, int]]] = []
        self.wrong: list[str] = []
        self.gone = [0] * producers  # pushes that were refused at the end of a pass; they are repeated later
        self.ends = 0
        self.done = threading.Event()
        self.beginning = threading.Lock()

    def make(self, worker: int, count: int, size: int) -> tuple[Any, ...]:
        return (np.array(worker), np.array(count), np.full(size, worker * 1000003 + count))

    def push(self, worker: int, count: int, dice: random.Random) -> None:
        size, way = dice.choice(self.SIZES), dice.random()
        timeout = None if dice.random() < 0.9 else dice.random() * 0.001
        if way < 0.5:
            self.queue.push(self.make(worker, count, size), timeout=timeout)
        elif way < 0.75:
            self.queue.push(self.make(worker, count, size), copy=False, timeout=timeout)
        else:
            with self.queue.reserve(size, timeout=timeout) as (who, number, filling):
                who[...], number[...] = worker, count
                filling[:] = worker * 1000003 + count

    def produce(self, worker: int) -> None:
        dice = random.Random(worker)
        count = 0
        while count < self.number // self.producers:
            try:
                self.push(worker, count, dice)
            except pyfeed.errors.Timeout:
                continue
            except pyfeed.errors.QueueClosed:
                self.gone[worker] += 1
                self.done.wait(0.001)
                continue
            count += 1
            if dice.random() < 0.0003:
                self.end(dice)
        self.pushed[worker] = count

    def end(self, dice: random.Random) -> None:
        """End the pass by a close or a failure. Its tuples are delivered before the next pass begins."""
        self.ends += 1
        try:
            if dice.random() < 0.5:
                self.queue.close()
            else:
                self.queue.fail(KeyError("one of many"))
        except pyfeed.errors.QueueClosed:
            pass

    def consume(self, seed: int) -> None:
        dice = random.Random(1000 + seed)
        mine: list[tuple[int, int]] = []
        self.popped.append(mine)
        kept: list[Array] = []
        while not self.done.is_set() or self.queue.size():
            try:
                who, count, filling = self.queue.pop(timeout=None if dice.random() < 0.5 else dice.random() * 0.01)
            except pyfeed.errors.Timeout:
                continue
            except (pyfeed.errors.EndOfData, KeyError):
                with self.beginning:
                    stats = self.queue.stats()
                    ended = stats["closed"] and not stats["size"] and not self.done.is_set()
                    if ended and self.queue.reopen():
                        self.wrong.append("reopen dropped queued tuples")
                continue
            w, n = int(who), int(count)
            if not (filling == w * 1000003 + n).all():
                self.wrong.append(f"tuple {n} of producer {w} has the data of another tuple")
            mine.append((w, n))
            if dice.random() < 0.01:
                kept.append(filling)
                del kept[:-3]

    def run(self) -> None:
        taking = [Background(lambda i=i: self.consume(i)) for i in range(self.consumers)]  # type: ignore[misc]
        giving = [Background(lambda i=i: self.produce(i)) for i in range(self.producers)]  # type: ignore[misc]
        for producer in giving:
            producer.thread.join()
            producer.result()
        self.done.set()
        with self.beginning:
            self.queue.close()
        for consumer in taking:
            consumer.result()


@pytest.mark.timeout(60 + STRESS_TUPLES // 1000)
def test_stress() -> None:
    stress = Stress(STRESS_TUPLES, producers=8, consumers=4)
    stress.run()
    assert stress.wrong == []
    everything = sorted(itertools.chain(*stress.popped))
    assert everything == [(w, n) for w in range(8) for n in range(stress.pushed[w])]
    assert sum(stress.pushed) == STRESS_TUPLES // 8 * 8
    for mine in stress.popped:
        last = [-1] * 8
        for worker, count in mine:
            assert count > last[worker]
            last[worker] = count
    stats = stress.queue.stats()
    assert stress.ends > 0
    assert (stats["size"], stats["reserved"], stats["bytes"], stats["dropped"]) == (0, 0, 0, 0)
    assert stats["pushed"] == stats["popped"] == len(everything)


def test_queues_come_and_go_while_others_are_used() -> None:
    """Threads create and drop queues without an effect on the queues of other threads."""

    def use(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(150):
            reader, queue = feed(dice.randrange(1, 4), [(-1,)])
            calls: list[Callable[[], Any]] = [
                lambda: queue.push((np.zeros(dice.randrange(3000)),), timeout=0),  # noqa: B023
                lambda: queue.pop(timeout=0),  # noqa: B023
                lambda: reader.batch(2).read(timeout=0),  # noqa: B023
                lambda: queue.reopen(),  # noqa: B023
                lambda: queue.close(),  # noqa: B023
            ]
            for _ in range(10):
                try:
                    dice.choice(calls)()
                except pyfeed.errors.Error:
                    pass

    for user in [Background(lambda i=i: use(i)) for i in range(4)]:  # type: ignore[misc]
        user.result()


class Chaos:
    """Random calls of all kinds on shared objects, from many threads."""

    def __init__(self) -> None:
        self.sources = [self.fresh(seed) for seed in range(3)]
        self.end = time.monotonic() + 1.5

    def fresh(self, seed: int) -> dict[str, Any]:
        dice, scope = random.Random(seed), Scope()
        slots: Any = {"shapes": [(-1,), (2,)], "dtypes": ["float64", "float32"], "scope": scope}
        reader, queue = pyfeed.py_array_reader(dice.randrange(1, 5), **slots)
        generated = pyfeed.from_generator(
            lambda: (Chaos.arrays(dice) for _ in range(dice.randrange(30))), capacity=dice.randrange(1, 4), **slots
        )
        readers = [reader, generated, reader.batch(dice.randrange(1, 4)), generated.batch(2)]
        return {"scope": scope, "queue": queue, "readers": readers}

    @staticmethod
    def arrays(dice: random.Random) -> tuple[Array, Array]:
        return np.zeros(dice.choice([1, 10, 1000, 20000])), np.zeros(2, np.float32)

    def act(self, dice: random.Random) -> Any:
        source = dice.choice(self.sources)
        queue, reader, scope = source["queue"], dice.choice(source["readers"]), source["scope"]
        timeout = dice.choice([0, 0.001, 0.01])

        def fill() -> None:
            with queue.reserve(dice.randrange(2000), timeout=timeout) as (x, _):
                x[:] = 1
                if dice.random() < 0.2:
                    raise KeyError

        def read_op() -> Any:
            scope.read(reader.name, ["x", "y"], timeout=timeout)
            return scope["x"]

        def renew() -> None:
            self.sources[dice.randrange(3)] = self.fresh(dice.randrange(1000))

        often: list[Callable[[], Any]] = [
            lambda: queue.push(self.arrays(dice), timeout=timeout),
            lambda: queue.push(self.arrays(dice), copy=False, timeout=timeout),
            fill,
            lambda: queue.pop(timeout=timeout),
            lambda: reader.read(timeout=timeout),
            lambda: reader.has_next(timeout=timeout),
            read_op,
        ]
        seldom: list[Callable[[], Any]] = [
            queue.close,
            queue.reopen,
            lambda: queue.fail(KeyError("chaos")),
            reader.reset,
            lambda: repr(queue),
        ]
        rarely: list[Callable[[], Any]] = [renew, queue.shutdown, gc.collect]
        return dice.choice(often if dice.random() < 0.7 else seldom if dice.random() < 0.95 else rarely)()

    def run(self, seed: int) -> None:
        dice = random.Random(seed)
        kept: list[Any] = []
        while time.monotonic() < self.end:
            try:
                kept.append(self.act(dice))
            except (pyfeed.errors.Error, KeyError):
                pass
            if len(kept) > 5:
                del kept[dice.randrange(5)]


def test_chaos() -> None:
    chaos = Chaos()
    for thread in [Background(lambda i=i: chaos.run(i)) for i in range(6)]:  # type: ignore[misc]
        thread.result()
