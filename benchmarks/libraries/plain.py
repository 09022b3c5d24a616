"""The references: code that needs no package except NumPy."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from harness import NotSupported, Timed
from workloads import tables
from workloads.batches import MAX_IN_FLIGHT, PAGE, Arrays, Batches
from workloads.files import (
    RANDOM_ACCESS,
    ArrayDataset,
    Batch,
    Files,
    read_batches,
    shuffled_rows,
)
from workloads.interruption import array, push_until_interrupted, slow_item
from workloads.training import AHEAD, Loop, Passes, Training


def batches_queue(workload: Batches) -> Iterator[Arrays]:
    """``queue.Queue``. It passes references, so producers need new arrays for each batch."""
    if workload.processes:
        raise NotSupported("it connects threads of one process, not processes")
    waiting: queue.Queue[Arrays] = queue.Queue(MAX_IN_FLIGHT)

    def produce(producer: int) -> None:
        for arrays in workload.fresh_batches(producer):
            waiting.put(arrays)
            del arrays  # so that the next batch can reuse the memory

    for producer in range(workload.producers):
        threading.Thread(target=produce, args=(producer,), daemon=True).start()
    return iter(waiting.get, None)


def batches_simple_queue(workload: Batches) -> Iterator[Arrays]:
    """``queue.SimpleQueue``, which is written in C. It has no bound, so a semaphore adds one."""
    if workload.processes:
        raise NotSupported("it connects threads of one process, not processes")
    waiting: queue.SimpleQueue[Arrays] = queue.SimpleQueue()
    free = threading.Semaphore(MAX_IN_FLIGHT)

    def produce(producer: int) -> None:
        for arrays in workload.fresh_batches(producer):
            free.acquire()
            waiting.put(arrays)
            del arrays

    for producer in range(workload.producers):
        threading.Thread(target=produce, args=(producer,), daemon=True).start()
    while True:
        arrays = waiting.get()
        free.release()
        yield arrays
        del arrays


def _put(waiting: multiprocessing.Queue[Arrays], workload: Batches, producer: int) -> None:
    for arrays in workload.fresh_batches(producer):  # new arrays, since put pickles later, in a thread
        waiting.put(arrays)


def batches_multiprocessing(workload: Batches) -> Iterator[Arrays]:
    """``multiprocessing.Queue``, which pickles batches and sends them through a pipe."""
    if not workload.processes:
        raise NotSupported("it is meant for processes; `queue.Queue` is measured for threads")
    context = multiprocessing.get_context("spawn")
    waiting: Any = context.Queue(MAX_IN_FLIGHT)
    for producer in range(workload.producers):
        context.Process(target=_put, args=(waiting, workload, producer), daemon=True).start()
    return iter(waiting.get, None)


def batches_limit(workload: Batches, buffers: int) -> Timed:
    """No transfer: one thread for each producer fills a number of buffers in turn.

    A finished batch ("sent") is copied into the buffers in the cases of processes, and only read in those of threads.
    """

    def pages() -> Arrays:
        """At the beginning of a page, as large arrays are: copies there are faster."""
        memory = np.full(workload.size + PAGE, 7, np.uint8)
        return memory[-memory.ctypes.data % PAGE :][: workload.size], np.zeros(8)

    mine = [workload.make(producer) for producer in range(workload.producers)]
    into = [[pages() for _ in range(buffers)] for _ in range(workload.producers)]

    def work(producer: int, count: int) -> None:
        for n in range(count):
            arrays = into[producer][n % buffers]
            if not workload.sent:
                workload.fill(arrays, n)
            elif not workload.processes:
                workload.check(mine[producer])
            else:
                for to, source in zip(arrays, mine[producer], strict=True):
                    np.copyto(to, source)

    def timed(count: int) -> float:
        each = -(-count // workload.producers)
        threads = [threading.Thread(target=work, args=(producer, each)) for producer in range(workload.producers)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return (time.perf_counter() - start) * count / (each * workload.producers)

    return timed


def interruption_get() -> Callable[[], object]:
    waiting: queue.Queue[Any] = queue.Queue(1)
    return waiting.get


def interruption_put() -> Callable[[], object]:
    waiting: queue.Queue[Any] = queue.Queue(1)
    waiting.put(array())
    return lambda: waiting.put(array())


def interruption_opening(fifo: str) -> Callable[[], object]:
    return lambda: open(fifo, "rb")


def interruption_mp_get(item: Any = slow_item) -> Callable[[], object]:
    """``get`` of a `multiprocessing.Queue` that worker processes put into."""
    waiting = _worked_on(_worker, item)[0]
    return waiting.get  # type: ignore[no-any-return]


def interruption_mp_put() -> Callable[[], object]:
    waiting: Any = multiprocessing.get_context("spawn").Queue(1)
    waiting.put(array())
    return lambda: waiting.put(array())


def interruption_mp_worker_put() -> Callable[[], object]:
    waiting, workers = _worked_on(_putting_worker)

    def join() -> None:
        workers[0].join()
        waiting.close()

    return join


def _worked_on(work: Callable[..., None], *args: Any) -> tuple[Any, list[Any]]:
    context = multiprocessing.get_context("spawn")
    waiting: Any = context.Queue(2)
    workers = [context.Process(target=work, args=(waiting, i, *args), daemon=True) for i in range(2)]
    for worker in workers:
        worker.start()
    return waiting, workers


def _worker(waiting: Any, worker: int, item: Any) -> None:
    while True:
        waiting.put(item(worker))


def _putting_worker(waiting: Any, worker: int) -> None:
    push_until_interrupted(lambda: waiting.put(array()))


def files(workload: Files) -> Callable[[], Iterator[Batch]]:
    """Plain Python and NumPy in one thread. Files of rows are mapped once, and all their rows are permuted."""
    if workload.format == "example":
        raise NotSupported("Python and NumPy have no parser for Protocol Buffers, the encoding of `tf.train.Example`")

    if workload.format == "mds" or workload.kind in ("parquet", "arrow"):
        raise NotSupported("Python and NumPy have no reader for such files")
    dataset = ArrayDataset(workload)  # maps the files in the first pass, as in map-style loaders

    def begin() -> Iterator[Batch]:
        if workload.format == "npy":
            paths = np.random.default_rng().permutation(np.array(workload.paths))
            for i in range(0, len(paths), workload.batch):
                yield (np.stack([np.load(path) for path in paths[i : i + workload.batch]]),)
        elif workload.kind == "jsonl":
            yield from tables.parsed(workload, workload.paths, json.loads)
        elif workload.format in RANDOM_ACCESS:
            for rows in dataset.mapped():
                yield from shuffled_rows(rows, workload.batch)
        elif workload.format == "csv":
            for path in workload.paths:
                yield from shuffled_rows(np.loadtxt(path, np.float32, delimiter=",", skiprows=1), workload.batch)
        else:
            yield from read_batches(workload, workload.paths)

    return begin


def _together(processes: int, work: Callable[[int, int], None]) -> Callable[[int], float]:
    """Make a function that runs `work` in a number of processes at the same time, one of them this process.

    `work` is called with the number of the process and the argument of the function.
    """

    def serve(part: int, orders: Connection) -> None:
        while True:
            work(part, orders.recv())
            orders.send(None)

    others = []
    for part in range(1, processes):
        mine, there = multiprocessing.Pipe()
        multiprocessing.get_context("fork").Process(target=serve, args=(part, there), daemon=True).start()
        others.append(mine)

    def timed(count: int) -> float:
        start = time.perf_counter()
        for orders in others:
            orders.send(count)
        work(0, count)
        for orders in others:
            orders.recv()
        return time.perf_counter() - start

    return timed


def files_read(workload: Files) -> Timed:
    """`read` of all bytes into one buffer, by one process for each core. No reader can be faster."""
    buffer = memoryview(bytearray(1 << 20))
    one = len(workload.paths) == 1  # then each process reads a part of the file

    def read(part: int) -> None:
        for path in workload.paths if one else workload.paths[part :: workload.cores]:
            file = os.open(path, os.O_RDONLY)
            each = -(-os.fstat(file).st_size // workload.cores) if one else sys.maxsize
            at, end = (part * each, (part + 1) * each) if one else (0, each)
            got = asked = 1
            while asked and got == asked:
                asked = min(end - at, len(buffer))
                got = os.preadv(file, [buffer[:asked]], at)
                at += got
            os.close(file)

    def work(part: int, count: int) -> None:
        for _ in range(count):
            read(part)

    return _together(workload.cores, work)


def training_cores(workload: Training) -> Timed:
    """No loader: a loop on each core makes its batches itself, all at the same time. The passes of all loops count."""
    cores = len(os.sched_getaffinity(0))
    own = Loop(workload, workload.batches)

    def work(part: int, count: int) -> None:
        own(count)

    passes = _together(cores, work)  # one pass on each core at a time
    return lambda count: passes(count) / cores


def training_limit(workload: Training) -> Passes:
    """All batches are in memory, so only the steps take time."""
    every = list(workload.batches())
    return lambda: iter(every)


def training_none(workload: Training) -> Passes:
    """No loader: the thread of the step makes each batch itself."""
    return workload.batches


def training_threads(workload: Training, workers: int) -> Passes:
    """Threads with a ``queue.Queue`` each, which continue into the next pass."""
    waiting: list[queue.Queue[Any]] = [queue.Queue(AHEAD // workers) for _ in range(workers)]

    def produce(worker: int) -> None:
        for batch in itertools.cycle(range(workload.steps)):
            if batch % workers == worker:
                waiting[worker].put(workload.batch(batch))

    for worker in range(workers):
        threading.Thread(target=produce, args=(worker,), daemon=True).start()
    return lambda: (waiting[batch % workers].get() for batch in range(workload.steps))


def training_pool(workload: Training, workers: int) -> Passes:
    """``multiprocessing.Pool.imap`` over batches. It does not wait for the consumer, so results pile up in memory."""
    pool = multiprocessing.get_context("spawn").Pool(workers)
    return lambda: pool.imap(workload.batch, range(workload.steps))


def training_processes(workload: Training, workers: int) -> Passes:
    """Processes with a ``multiprocessing.Queue`` each, which continue into the next pass."""
    context = multiprocessing.get_context("spawn")
    waiting: list[Any] = [context.Queue(AHEAD // workers) for _ in range(workers)]
    for worker in range(workers):
        context.Process(target=_train, args=(waiting[worker], workload, worker, workers), daemon=True).start()
    return lambda: (waiting[batch % workers].get() for batch in range(workload.steps))


def _train(waiting: Any, workload: Training, worker: int, workers: int) -> None:
    for batch in itertools.cycle(range(workload.steps)):
        if batch % workers == worker:
            waiting.put(workload.batch(batch))
