"""The functions of the worker processes in test_shared. This module must not import pyfeed."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt
import pyfeed_worker
from pyfeed_worker import LoDTensor, Producer


def count(producer: Producer, worker: int, number: int, size: int = 1000) -> None:
    """Push tuples of (worker, number, bytes, sum of the bytes)."""
    for i in range(number):
        data = (np.arange(i * 7919 % size, dtype=np.int64) * (worker + 3)).astype(np.uint8)
        producer.push((np.array(worker), np.array(i), data, np.array(data.sum(dtype=np.int64))))


def count_in_place(producer: Producer, worker: int, number: int) -> None:
    for i in range(number):
        with producer.reserve(i + 1) as (x, y):
            x[:] = i
            y[:] = worker


def maps(producer: Producer, worker: int) -> None:
    """Push whether Go's library, or pyfeed, is loaded in this process."""
    with open("/proc/self/maps") as f:
        mapped = "libpyfeed" in f.read()
    producer.push((np.array(mapped), np.array("pyfeed" in sys.modules)))


def raises(producer: Producer, worker: int, after: int) -> None:
    for i in range(after):
        producer.push((np.full(2, i, np.float64),))
    raise KeyError("no such key \N{SNOWMAN}")


def ones(producer: Producer, worker: int, number: int) -> None:
    for _ in range(number):
        producer.push((np.ones(2),))


def leaves_a_reservation_open(producer: Producer, worker: int) -> None:
    global _open
    _open = producer.reserve()
    _open.__enter__()


_open: Any = None


def closes_and_raises(producer: Producer, worker: int) -> None:
    producer.push((np.zeros(2),))
    producer.close()
    producer.push((np.zeros(2),))


def exits(producer: Producer, worker: int, status: int, how: str) -> None:
    producer.push((np.zeros(2),))
    if how == "sys":
        sys.exit(status)
    os._exit(status)


def yields(worker: int, count: int = 1) -> Iterator[Any]:
    for i in range(count):
        yield (np.full(2, 10.0 * worker + i),)


def yields_forever(worker: int) -> Iterator[Any]:
    while True:
        yield (np.zeros(2),)


def yields_another_shape(worker: int) -> Iterator[Any]:
    yield (np.zeros(2),)
    yield (np.zeros(3),)  # the wrong one


async def awaits(producer: Producer, worker: int) -> None:
    producer.push((np.zeros(2),))


class YieldsWhenCalled:
    def __call__(self, worker: int) -> Iterator[Any]:
        yield (np.zeros(2),)


def returns_a_generator(producer: Producer, worker: int) -> Iterator[Any]:
    return ((np.zeros(2),) for _ in range(3))


def stays(producer: Producer, worker: int, where: str, pipe: Connection) -> None:
    """Push a tuple, report that, and stay in the given state for ever."""
    producer.push((np.full(2, worker, np.float64),))
    pipe.send(os.getpid())
    if where == "reserve":
        with producer.reserve() as (x,):
            x[0] = 1
            pipe.send("there")
            signal.pause()
    pipe.send("there")
    while where == "push":
        producer.push((np.zeros(2),))
    signal.pause()


def tells_of_the_end(producer: Producer, worker: int, pipe: Connection) -> None:
    """Push until a push fails, and report the error."""
    try:
        while True:
            producer.push((np.zeros(2),))
    except pyfeed_worker.QueueClosed as error:
        pipe.send((type(error).__name__, str(error)))
        raise


def kinds(producer: Producer, worker: int) -> None:
    """Push arrays of all kinds."""
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    lod = LoDTensor(np.arange(5.0, dtype=np.float32), [np.array([0, 2, 5])])
    producer.push((base[::2, ::-3], lod))
    producer.push((np.asfortranarray(base[:2]), lod))
    producer.push((_DLPack(base[1:3]), LoDTensor(np.ones(0, np.float32).data, [[0, 0, 0]])))
    with producer.reserve(shapes=[(2, 2), (3,)], lod=[None, [[0, 1, 3]]]) as (x, y):
        x[:] = 7
        y.data[:] = 8


def large(producer: Producer, worker: int, sizes: list[int]) -> None:
    """Push bytes that begin at an odd address."""
    for size in sizes:
        producer.push((np.resize(np.arange(251, dtype=np.uint8), size + 1)[1:], np.ones((3, 5))[:, ::2]))


class _DLPack:
    """An array that can be read through DLPack only."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> object:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def forks(producer: Producer, worker: int, pipe: Connection) -> None:
    """Fork: the worker's child is a worker too. A message says that the queue expects both."""
    producer.push((np.zeros(2),))
    pipe.recv()
    pid = os.fork()
    if pid == 0:
        producer.push((np.ones(2),))
        producer.close()
        os._exit(0)
    os.waitpid(pid, 0)
    producer.push((np.full(2, 2.0),))


def counts_for_ever(producer: Producer, worker: int) -> None:
    """Push tuples of (process, number) for ever."""
    for i in itertools.count():
        producer.push((np.array(os.getpid()), np.array(i)))


def counts_passes(producer: Producer, worker: int, number: int) -> None:
    """Push tuples of (process, pass, number)."""
    for i in range(number):
        producer.push((np.array(os.getpid()), np.array(producer.pass_id), np.array(i)))


def counts_threads(producer: Producer, worker: int) -> None:
    """Push the number of threads, when those that have been joined are gone from /proc, too."""
    limit = time.monotonic() + 10
    while (threads := len(os.listdir("/proc/self/task"))) > 2 and time.monotonic() < limit:
        time.sleep(0.001)
    producer.push((np.array(os.getpid()), np.array(producer.pass_id), np.array(threads)))


def raises_in_odd_passes(producer: Producer, worker: int) -> None:
    producer.push((np.array(os.getpid()), np.array(producer.pass_id), np.array(0)))
    assert producer.pass_id is not None
    if producer.pass_id % 2:
        raise ValueError(f"pass {producer.pass_id} is odd")


def exits_in_pass(producer: Producer, worker: int, pass_id: int, how: str) -> None:
    producer.push((np.array(os.getpid()), np.array(producer.pass_id), np.array(0)))
    if producer.pass_id == pass_id and worker == 0:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "sys":
            sys.exit(3)
        os._exit(3)


def leaves_when_told(producer: Producer, worker: int, go: Any, how: str) -> None:
    producer.push((np.array(os.getpid()), np.array(producer.pass_id), np.array(0)))
    if producer.pass_id == 0:
        producer.close()
        go.acquire()
        if how == "os":
            os._exit(0)
        sys.exit(0)
