"""Random calls on queues, readers, slots and traces from several threads, while other threads reset and close them.

Only pyfeed's errors may be raised, every call must return, and all resources must be released at the end.
"""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pyfeed
from pyfeed import PyArrayFeedQueue, Reader, Scope, diagnostics

from .failures import no_leaks

Operation = Callable[[random.Random], object]


class ProducerFailure(Exception):
    """The error with which a queue fails. Its consumers get the same object."""


class Objects:
    """The objects that the threads share, and their random operations. Any object may be replaced at any time."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.scope = Scope()
        self.queues: list[PyArrayFeedQueue] = []
        self.readers: list[Reader] = []
        self.held: list[Any] = []  # views, slots and iterators that a caller keeps for a while
        self.traces: list[Any] = []
        self.files = []
        for suffix in ("recordio", "npy"):
            path = folder / f"a.{suffix}"
            with pyfeed.open_writer(path) as writer:
                for i in range(rng.choice([0, 1, 50, 3000]) if suffix == "recordio" else 40):
                    writer.write((np.full(3, i, "int64"),))
                if suffix == "recordio":
                    writer.write((np.full(3, -1, "int64"),))
            self.files.append(path)
        for _ in range(2):
            self.make(rng)

    def make(self, rng: random.Random) -> None:
        kind = rng.randrange(4)
        if kind == 0:
            reader, queue = pyfeed.py_array_reader(
                rng.choice([1, 2, 8]), [(-1, 3)], dtypes=["int64"], scope=rng.choice([self.scope, Scope()])
            )
            self.queues.append(queue)
            if rng.random() < 0.5:
                queue.produce(rows, num_threads=rng.randint(1, 2))
        elif kind == 1:
            reader = pyfeed.open_files(
                rng.choice(self.files), num_threads=rng.randint(0, 3), scope=rng.choice([self.scope, Scope()])
            )
        elif kind == 2:
            reader = pyfeed.from_generator(lambda: rows(0), [(-1, 3)], dtypes=["int64"], scope=Scope())
        else:
            reader = pyfeed.random_data([(3,)], dtypes=["int64"], high=9, count=rng.choice([0, 5, 1000]), scope=Scope())
        self.readers.append(reader)

    # ---- Operations ----

    def decorate(self, rng: random.Random) -> None:
        reader = rng.choice(self.readers)
        how = rng.randrange(6)
        if how == 0:
            self.readers.append(reader.batch(rng.randint(1, 9)))
        elif how == 1:
            self.readers.append(reader.shuffle(rng.randint(1, 99)))
        elif how == 2:
            self.readers.append(reader.double_buffer(depth=rng.randint(1, 3)))
        elif how == 3:
            self.readers.append(reader.map(lambda x: (x,), rng.randint(1, 2)))
        elif how == 4:
            self.readers.append(reader.multi_pass(rng.randint(1, 3)))
        else:
            self.readers.append(reader.shard(0, 2))

    def read(self, rng: random.Random) -> None:
        self.keep(rng, rng.choice(self.readers).read(timeout=rng.choice([0, 0.001, 0.02])))

    def has_next(self, rng: random.Random) -> None:
        rng.choice(self.readers).has_next(timeout=rng.choice([0, 0.01]))

    def iterate(self, rng: random.Random) -> None:
        reader = rng.choice(self.readers)
        for _ in range(rng.randint(1, 20)):
            self.keep(rng, reader.read(timeout=0.01))

    def reset(self, rng: random.Random) -> None:
        rng.choice(self.readers).reset()

    def push(self, rng: random.Random) -> None:
        array = np.full((rng.randint(0, 5), 3), rng.randrange(99), "int64")
        rng.choice(self.queues).push((array,), copy=rng.random() < 0.6, timeout=0.01)

    def reserve(self, rng: random.Random) -> None:
        reservation = rng.choice(self.queues).reserve(rng.randint(1, 4), timeout=0.01)
        with reservation as (x,):
            x[:] = 1
            if rng.random() < 0.3:
                self.keep(rng, x)
            if rng.random() < 0.2:
                raise pyfeed.errors.Cancelled("the reservation is dropped")

    def pop(self, rng: random.Random) -> None:
        self.keep(rng, rng.choice(self.queues).pop(timeout=rng.choice([0, 0.01])))

    def end(self, rng: random.Random) -> None:
        queue = rng.choice(self.queues)
        how = rng.randrange(8)
        if how < 3:
            queue.close()
        elif how < 6:
            queue.reopen()
        elif how == 6:
            queue.fail(ProducerFailure())
        else:
            queue.shutdown()

    def look(self, rng: random.Random) -> None:
        every: list[PyArrayFeedQueue | Reader] = [*self.queues, *self.readers]
        one = rng.choice(every)
        one.stats()
        repr(one)

    def trace(self, rng: random.Random) -> None:
        if not self.traces:
            self.traces.append(diagnostics.trace(max_events=rng.choice([10, 1000])))
        else:
            one = self.traces.pop()
            one.stop()
            for text in (str(one), one.table(), one.summary, one.chrome()):
                assert text

    def drop(self, rng: random.Random) -> None:
        for things in (self.readers, self.queues, self.held):
            if things and rng.random() < 0.3:
                things.pop(rng.randrange(len(things)))

    def keep(self, rng: random.Random, thing: Any) -> None:
        if rng.random() < 0.3 and len(self.held) < 50:
            self.held.append(thing)

    def step(self, rng: random.Random) -> None:
        operations: list[Operation] = [
            *[self.read] * 4, *[self.push] * 4, *[self.pop] * 2, self.reserve, self.has_next, self.iterate, self.reset,
            self.end, self.look, self.trace, self.drop, self.drop, self.decorate, self.make,
        ]  # fmt: skip
        try:
            rng.choice(operations)(rng)
        except (pyfeed.errors.Error, StopIteration, ProducerFailure):
            pass
        except IndexError:  # another thread has emptied the list
            if len(self.readers) < 2 or not self.queues:
                self.make(rng)


def rows(worker: int) -> Any:
    for i in range(200):
        yield (np.full((2, 3), i, "int64"),)


def run_round(rng: random.Random, folder: Path) -> None:
    with no_leaks():
        run_threads(rng, folder)


def run_threads(rng: random.Random, folder: Path) -> None:
    objects = Objects(folder, rng)
    errors: list[BaseException] = []

    def run(objects: Objects, seed: int, steps: int) -> None:
        mine = random.Random(seed)
        try:
            for _ in range(steps):
                objects.step(mine)
        except BaseException as error:
            errors.append(error)

    steps = rng.choice([50, 200, 400])
    threads = [
        threading.Thread(target=run, args=(objects, rng.randrange(1 << 30), steps)) for _ in range(rng.randint(1, 4))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del threads[:]
    for one in objects.traces:
        one.stop()
    if rng.random() < 0.5:  # otherwise the queues are dropped without a shutdown
        for queue in objects.queues:
            queue.shutdown()
    del objects
    gc.collect()
    if errors:
        raise errors[0]
