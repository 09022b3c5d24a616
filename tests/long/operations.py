"""Random calls on queues, readers, slots and traces, from several threads, while others reset, close and drop them.

Only errors of pyfeed's may come, each call ends, and what the process holds is as before in the end.
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
from pyfeed import PyArrayFeedQueue, Reader, Scope, tracing

from .finding import nothing_left

Operation = Callable[[random.Random], object]


class DrawnError(Exception):
    """With which a queue fails: its consumers get it as it is."""


class Stage:
    """Everything that threads take, make and drop. Names in a table: any of them may be replaced at any time."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        self.scope = Scope()
        self.queues: list[PyArrayFeedQueue] = []
        self.readers: list[Reader] = []
        self.held: list[Any] = []  # views, slots and iterators that a caller keeps for a while
        self.traces: list[Any] = []
        self.files = []
        for suffix in ("recordio", "npy"):
            path = folder / f"a.{suffix}"
            with pyfeed.open_writer(path) as writer:
                for i in range(draw.choice([0, 1, 50, 3000]) if suffix == "recordio" else 40):
                    writer.write((np.full(3, i, "int64"),))
                if suffix == "recordio":
                    writer.write((np.full(3, -1, "int64"),))
            self.files.append(path)
        for _ in range(2):
            self.make(draw)

    def make(self, draw: random.Random) -> None:
        kind = draw.randrange(4)
        if kind == 0:
            reader, queue = pyfeed.py_array_reader(
                draw.choice([1, 2, 8]), [(-1, 3)], dtypes=["int64"], scope=draw.choice([self.scope, Scope()])
            )
            self.queues.append(queue)
            if draw.random() < 0.5:
                queue.produce(rows, num_threads=draw.randint(1, 2))
        elif kind == 1:
            reader = pyfeed.open_files(
                draw.choice(self.files), thread_num=draw.randint(0, 3), scope=draw.choice([self.scope, Scope()])
            )
        elif kind == 2:
            reader = pyfeed.from_generator(lambda: rows(0), [(-1, 3)], dtypes=["int64"], scope=Scope())
        else:
            reader = pyfeed.random_data(
                [(3,)], dtypes=["int64"], high=9, count=draw.choice([0, 5, 1000]), scope=Scope()
            )
        self.readers.append(reader)

    # ---- What threads do ----

    def decorate(self, draw: random.Random) -> None:
        reader = draw.choice(self.readers)
        how = draw.randrange(6)
        if how == 0:
            self.readers.append(reader.batch(draw.randint(1, 9)))
        elif how == 1:
            self.readers.append(reader.shuffle(draw.randint(1, 99)))
        elif how == 2:
            self.readers.append(reader.double_buffer(depth=draw.randint(1, 3)))
        elif how == 3:
            self.readers.append(reader.map(lambda x: (x,), draw.randint(1, 2)))
        elif how == 4:
            self.readers.append(reader.multi_pass(draw.randint(1, 3)))
        else:
            self.readers.append(reader.shard(0, 2))

    def read(self, draw: random.Random) -> None:
        self.keep(draw, draw.choice(self.readers).read(timeout=draw.choice([0, 0.001, 0.02])))

    def has_next(self, draw: random.Random) -> None:
        draw.choice(self.readers).has_next(timeout=draw.choice([0, 0.01]))

    def iterate(self, draw: random.Random) -> None:
        reader = draw.choice(self.readers)
        for _ in range(draw.randint(1, 20)):
            self.keep(draw, reader.read(timeout=0.01))

    def reset(self, draw: random.Random) -> None:
        draw.choice(self.readers).reset()

    def push(self, draw: random.Random) -> None:
        array = np.full((draw.randint(0, 5), 3), draw.randrange(99), "int64")
        draw.choice(self.queues).push((array,), copy=draw.random() < 0.6, timeout=0.01)

    def slot(self, draw: random.Random) -> None:
        slot = draw.choice(self.queues).slot(draw.randint(1, 4), timeout=0.01)
        with slot as (x,):
            x[:] = 1
            if draw.random() < 0.3:
                self.keep(draw, x)
            if draw.random() < 0.2:
                raise pyfeed.Cancelled("the slot is dropped")

    def pop(self, draw: random.Random) -> None:
        self.keep(draw, draw.choice(self.queues).pop(timeout=draw.choice([0, 0.01])))

    def end(self, draw: random.Random) -> None:
        queue = draw.choice(self.queues)
        how = draw.randrange(8)
        if how < 3:
            queue.close()
        elif how < 6:
            queue.reopen()
        elif how == 6:
            queue.fail(DrawnError())
        else:
            queue.shutdown()

    def look(self, draw: random.Random) -> None:
        every: list[PyArrayFeedQueue | Reader] = [*self.queues, *self.readers]
        one = draw.choice(every)
        one.stats()
        repr(one)

    def trace(self, draw: random.Random) -> None:
        if not self.traces:
            self.traces.append(tracing.trace(max_events=draw.choice([10, 1000])))
        else:
            one = self.traces.pop()
            one.stop()
            for text in (str(one), one.table(), one.summary, one.chrome()):
                assert text

    def drop(self, draw: random.Random) -> None:
        for things in (self.readers, self.queues, self.held):
            if things and draw.random() < 0.3:
                things.pop(draw.randrange(len(things)))

    def keep(self, draw: random.Random, thing: Any) -> None:
        if draw.random() < 0.3 and len(self.held) < 50:
            self.held.append(thing)

    def step(self, draw: random.Random) -> None:
        operations: list[Operation] = [
            *[self.read] * 4, *[self.push] * 4, *[self.pop] * 2, self.slot, self.has_next, self.iterate, self.reset,
            self.end, self.look, self.trace, self.drop, self.drop, self.decorate, self.make,
        ]  # fmt: skip
        try:
            draw.choice(operations)(draw)
        except (pyfeed.Error, StopIteration, DrawnError):
            pass
        except IndexError:  # of a list that another thread has emptied
            if len(self.readers) < 2 or not self.queues:
                self.make(draw)


def rows(worker: int) -> Any:
    for i in range(200):
        yield (np.full((2, 3), i, "int64"),)


def play(draw: random.Random, folder: Path) -> None:
    with nothing_left():
        act(draw, folder)


def act(draw: random.Random, folder: Path) -> None:
    stage = Stage(folder, draw)
    errors: list[BaseException] = []

    def run(stage: Stage, seed: int, steps: int) -> None:
        mine = random.Random(seed)
        try:
            for _ in range(steps):
                stage.step(mine)
        except BaseException as error:
            errors.append(error)

    steps = draw.choice([50, 200, 400])
    threads = [
        threading.Thread(target=run, args=(stage, draw.randrange(1 << 30), steps)) for _ in range(draw.randint(1, 4))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del threads[:]
    for one in stage.traces:
        one.stop()
    if draw.random() < 0.5:  # else they are dropped as they are
        for queue in stage.queues:
            queue.shutdown()
    del stage
    gc.collect()
    if errors:
        raise errors[0]
