"""The workload of `batches.py`: batches from threads or processes, an array of bytes and an array of eight numbers."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from harness import Timed

Arrays = tuple[npt.NDArray[Any], npt.NDArray[Any]]

MAX_IN_FLIGHT = 8  # most batches between producers and consumer, if a library has a setting for that
PAGE = 4096
NUMBERS = 8


@dataclass(frozen=True)
class Batches:
    """The batches, and their producers.

    Attributes
    ----------
    size : int
        Bytes of the first array.
    producers : int
        The number of threads or processes that make batches.
    processes : bool
        Whether the producers are processes.
    sent : bool
        True: each producer has one finished batch, and sends it repeatedly. False: every batch is written anew.
    """

    size: int
    producers: int
    processes: bool
    sent: bool = False

    def empty(self) -> Arrays:
        return np.empty(self.size, np.uint8), np.empty(NUMBERS)

    def fill(self, arrays: Arrays, i: int) -> None:
        """Write every byte of batch `i`."""
        arrays[0].fill(1 + i % 255)
        arrays[1].fill(i)

    def make(self, i: int) -> Arrays:
        arrays = self.empty()
        self.fill(arrays, i)
        return arrays

    def numbers(self, producer: int) -> Iterator[int]:
        """The numbers of the batches that a producer makes, without an end."""
        return itertools.count(int(producer), self.producers)  # some libraries pass the producer as an array

    def item(self, i: int) -> Arrays:
        """Batch `i`, for libraries that call a function for each batch."""
        return _finished(self) if self.sent else self.make(i)

    def fresh_batches(self, producer: int) -> Iterator[Arrays]:
        """The batches of a producer, each in new arrays that are not written to again."""
        if self.sent:
            return itertools.repeat(self.make(producer))
        return map(self.make, self.numbers(producer))

    def reused_batches(self, producer: int) -> Iterator[Arrays]:
        """The batches of a producer, all in the same arrays: for libraries that copy each batch before the next."""
        arrays = self.make(producer)
        for i in self.numbers(producer):
            if not self.sent:
                self.fill(arrays, i)
            yield arrays

    def check(self, arrays: Arrays) -> None:
        """Check a batch, as the consumer does: one byte of each page, and one number."""
        data, numbers = arrays
        i = int(numbers[-1])
        expected = 1 + i % 255
        pages = data[::PAGE]
        if len(data) != self.size or data[-1] != expected or pages.tobytes() != bytes((expected,)) * len(pages):
            raise AssertionError(f"batch {i}: expected {self.size} bytes of {expected}, found {data!r}")


@dataclass(frozen=True)
class BatchSource:
    """The batches as a map-style dataset. They have no end, so its length is as large as a library can take."""

    workload: Batches
    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> Arrays:
        return self.workload.item(i)


@functools.cache
def _finished(workload: Batches) -> Arrays:
    return workload.make(0)


def consume(workload: Batches, function: Callable[..., Iterator[Arrays]], **settings: Any) -> Timed:
    """Make a function that times batches in the middle of the stream that a library's function returns."""
    received = function(workload, **settings)

    def take(count: int) -> None:
        for arrays in itertools.islice(received, count):
            workload.check(arrays)
            del arrays  # release the batch before waiting for the next one

    def timed(count: int) -> float:
        take(2 * MAX_IN_FLIGHT)  # skip the batches that were made before this turn
        start = time.perf_counter()
        take(count)
        return time.perf_counter() - start

    return timed
