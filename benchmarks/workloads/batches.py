"""Batches that Python code makes: an array of bytes and one of eight numbers, from threads or processes."""

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

MAX_IN_FLIGHT = 8  # batches between producers and consumer, where a library has a setting for it
PAGE = 4096
NUMBERS = 8


@dataclass(frozen=True)
class Batches:
    """What is made, and by whom.

    Attributes
    ----------
    size : int
        Bytes of the first array.
    producers : int
        Threads or processes that make them.
    processes : bool
        Which of the two.
    sent : bool
        Each producer has one finished batch, and hands it over again and again. Otherwise every batch is made anew.
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
        """Those of the batches that a producer makes: without an end."""
        return itertools.count(int(producer), self.producers)  # some give it as an array

    def item(self, i: int) -> Arrays:
        """For libraries that call a function for each batch."""
        return _finished(self) if self.sent else self.make(i)

    def fresh_batches(self, producer: int) -> Iterator[Arrays]:
        """A producer's batches, each in new arrays that are not written to again."""
        if self.sent:
            return itertools.repeat(self.make(producer))
        return map(self.make, self.numbers(producer))

    def reused_batches(self, producer: int) -> Iterator[Arrays]:
        """A producer's batches, all in the same arrays: for libraries that copy a batch before the next."""
        arrays = self.make(producer)
        for i in self.numbers(producer):
            if not self.sent:
                self.fill(arrays, i)
            yield arrays

    def check(self, arrays: Arrays) -> None:
        """What the consumer does: it looks at a byte of each page, and at a number."""
        data, numbers = arrays
        i = int(numbers[-1])
        expected = 1 + i % 255
        pages = data[::PAGE]
        if len(data) != self.size or data[-1] != expected or pages.tobytes() != bytes((expected,)) * len(pages):
            raise AssertionError(f"batch {i}: expected {self.size} bytes of {expected}, found {data!r}")


@functools.cache
def _finished(workload: Batches) -> Arrays:
    return workload.make(0)


def consume(workload: Batches, function: Callable[..., Iterator[Arrays]], *settings: Any) -> Timed:
    """Time batches in the middle of the stream that a library's function returns."""
    received = function(workload, *settings)

    def take(count: int) -> None:
        for arrays in itertools.islice(received, count):
            workload.check(arrays)
            del arrays  # or it would be kept while the next is waited for

    def timed(count: int) -> float:
        take(2 * MAX_IN_FLIGHT)  # what has waited here since the last turn
        start = time.perf_counter()
        take(count)
        return time.perf_counter() - start

    return timed
