"""Every tuple that is pushed comes out once, in its producer's order, whatever ways in and decorators there are."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import numpy as np

import pyfeed
from pyfeed import PyArrayFeedQueue, Scope

from .finding import Finding, expect, nothing_left


def same(number: Any, producer: Any, data: Any) -> tuple[Any, Any, Any]:
    return number, producer, data


def contents(producer: int, number: int, width: int) -> np.ndarray[Any, Any]:
    """What a tuple of that number holds: views of others would not."""
    return (np.arange(width, dtype=np.int64) * 2654435761 + producer * 131 + number) & 0xFFFFFFFF


def push(queue: PyArrayFeedQueue, draw: random.Random, producer: int, number: int, width: int) -> None:
    data = contents(producer, number, width)
    way = draw.randrange(4)
    if way == 0:
        with queue.slot() as slots:
            slots[0][...], slots[1][...], slots[2][...] = number, producer, data
    elif way == 1:
        queue.push((np.array(number), np.array(producer), data), copy=False)
    elif way == 2:
        queue.push((np.array(number), np.array(producer), np.repeat(data, 2)[::2]))
    else:
        queue.push((np.array(number), np.array(producer), data))


def play(draw: random.Random, folder: Path) -> None:
    with nothing_left():
        once(draw)


def once(draw: random.Random) -> None:
    producers, tuples = draw.randint(1, 4), draw.randint(0, 300)
    width = draw.choice([0, 1, 7, 1000, 70000]) if tuples < 60 else draw.choice([0, 1, 7, 500])
    reader, queue = pyfeed.py_array_reader(
        draw.choice([1, 2, 8, 64]), [(), (), (width,)], dtypes=["int64"] * 3, scope=Scope()
    )
    steps, batched, ordered = [], False, True
    for _ in range(draw.randint(0, 4)):
        kind = draw.choice(["batch", "double_buffer", "map", "shuffle"])
        if kind == "batch":
            reader, batched = (reader.batch(draw.randint(1, 33)), True) if not batched else (reader, True)
        elif kind == "double_buffer":
            reader = reader.double_buffer(depth=draw.randint(1, 4))
        elif kind == "map":
            unordered = draw.random() < 0.3
            ordered = ordered and not unordered
            reader = reader.map(same, draw.randint(1, 3), ordered=not unordered)
        else:
            ordered = False
            reader = reader.shuffle(draw.randint(1, 50), seed=draw.randrange(100))
        steps.append(kind)
    told = f"{producers} producers of {tuples} tuples of {width}, {steps}"
    errors: list[BaseException] = []
    seeds = [draw.randrange(1 << 30) for _ in range(producers)]
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
                        raise Finding("losses", f"{told}: tuple {number} of {producer} holds something else")
                    with lock:
                        found.append((int(producer), int(number)))
        except pyfeed.EndOfData:
            pass
        except BaseException as error:
            errors.append(error)

    consumers = draw.randint(1, 3)
    threads = [threading.Thread(target=produce, args=(p,)) for p in range(producers)]
    threads += [threading.Thread(target=consume) for _ in range(consumers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    expected = sorted((p, n) for p in range(producers) for n in range(tuples))
    expect(sorted(found) == expected, "losses", f"{told}: expected {len(expected)} tuples, found {len(found)}")
    if ordered and consumers == 1:
        for producer in range(producers):
            numbers = [n for p, n in found if p == producer]
            expect(numbers == sorted(numbers), "losses", f"{told}: out of order: {numbers[:20]}")
