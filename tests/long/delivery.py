"""Every pushed tuple is delivered exactly once, in its producer's order, by all push modes and decorators."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import numpy as np

import pyfeed
from pyfeed import PyArrayFeedQueue, Scope

from .failures import Failure, expect, no_leaks


def same(number: Any, producer: Any, data: Any) -> tuple[Any, Any, Any]:
    return number, producer, data


def contents(producer: int, number: int, width: int) -> np.ndarray[Any, Any]:
    """Return the contents of a tuple, which differ from those of all other tuples."""
    return (np.arange(width, dtype=np.int64) * 2654435761 + producer * 131 + number) & 0xFFFFFFFF


def push(queue: PyArrayFeedQueue, rng: random.Random, producer: int, number: int, width: int) -> None:
    data = contents(producer, number, width)
    push_mode = rng.randrange(4)
    if push_mode == 0:
        with queue.reserve() as slots:
            slots[0][...], slots[1][...], slots[2][...] = number, producer, data
    elif push_mode == 1:
        queue.push((np.array(number), np.array(producer), data), copy=False)
    elif push_mode == 2:
        queue.push((np.array(number), np.array(producer), np.repeat(data, 2)[::2]))
    else:
        queue.push((np.array(number), np.array(producer), data))


def run_round(rng: random.Random, folder: Path) -> None:
    with no_leaks():
        once(rng)


def once(rng: random.Random) -> None:
    producers, tuples = rng.randint(1, 4), rng.randint(0, 300)
    width = rng.choice([0, 1, 7, 1000, 70000]) if tuples < 60 else rng.choice([0, 1, 7, 500])
    reader, queue = pyfeed.py_array_reader(
        rng.choice([1, 2, 8, 64]), [(), (), (width,)], dtypes=["int64"] * 3, scope=Scope()
    )
    steps, batched, ordered = [], False, True
    for _ in range(rng.randint(0, 4)):
        kind = rng.choice(["batch", "double_buffer", "map", "shuffle"])
        if kind == "batch":
            reader, batched = (reader.batch(rng.randint(1, 33)), True) if not batched else (reader, True)
        elif kind == "double_buffer":
            reader = reader.double_buffer(depth=rng.randint(1, 4))
        elif kind == "map":
            unordered = rng.random() < 0.3
            ordered = ordered and not unordered
            reader = reader.map(same, rng.randint(1, 3), ordered=not unordered)
        else:
            ordered = False
            reader = reader.shuffle(rng.randint(1, 50), seed=rng.randrange(100))
        steps.append(kind)
    described = f"{producers} producers of {tuples} tuples of {width}, {steps}"
    errors: list[BaseException] = []
    seeds = [rng.randrange(1 << 30) for _ in range(producers)]
    left = [producers]
    lock = threading.Lock()

    def produce(producer: int) -> None:
        mine = random.Random(seeds[producer])
        try:
            for number in range(tuples):
                push(queue, mine, producer, number, width)
        except BaseException as error:
            errors.append(error)
        with lock:
            left[0] -= 1
            if not left[0]:
                queue.close()

    found: list[tuple[int, int]] = []

    def consume() -> None:
        try:
            while True:
                arrays = reader.read()
                rows = [arrays] if not batched else list(zip(*arrays, strict=True))
                for number, producer, data in rows:
                    right = np.array_equal(data, contents(int(producer), int(number), width))
                    if not right:
                        raise Failure("losses", f"{described}: tuple {number} of {producer} has wrong contents")
                    with lock:
                        found.append((int(producer), int(number)))
        except pyfeed.errors.EndOfData:
            pass
        except BaseException as error:
            errors.append(error)

    consumers = rng.randint(1, 3)
    threads = [threading.Thread(target=produce, args=(p,)) for p in range(producers)]
    threads += [threading.Thread(target=consume) for _ in range(consumers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    expected = sorted((p, n) for p in range(producers) for n in range(tuples))
    expect(sorted(found) == expected, "losses", f"{described}: expected {len(expected)} tuples, found {len(found)}")
    if ordered and consumers == 1:
        for producer in range(producers):
            numbers = [n for p, n in found if p == producer]
            expect(numbers == sorted(numbers), "losses", f"{described}: out of order: {numbers[:20]}")
