"""The threads of a map reader: each takes a tuple, calls the function, gives the result, again and again."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from . import _exit, _failures, _native
from ._errors import OutOfMemoryError, QueueClosed
from ._lod import with_bytes


class Work:
    """What the threads do. It belongs to the reader, and they do not keep it: the function may lead to the reader."""

    def __init__(self, below: object, function: Callable[..., Any], bytes_slots: frozenset[int], failures: int) -> None:
        self.below = below
        self.function = function
        self.bytes_slots = bytes_slots
        # Those that the consumer may still be told of, or be told again.
        self.failures: deque[_native.Failure] = deque(maxlen=failures)

    def do(self, workers: _native.Workers, ticket: int, arrays: tuple[Any, ...]) -> None:
        """See to it that there is a result for the ticket."""
        try:
            try:
                result = self.function(*arrays)
            except StopIteration as stop:  # it would end the consumer's loop without a word
                raise RuntimeError("the function raised StopIteration") from stop
            if not isinstance(result, (tuple, list)):
                result = (result,)
            workers.give(ticket, with_bytes(result, self.bytes_slots) if self.bytes_slots else result)
        except BaseException as error:
            failure = _native.Failure._new(error)
            self.failures.append(failure)
            workers.fail(ticket, failure.token, *_failures.told(error))

    def start(self, workers: Callable[[], _native.Workers], name: str, num_threads: int) -> None:
        """Start the threads: they end when the reader is gone."""
        for i in range(num_threads):
            thread = threading.Thread(
                target=_run, args=(workers(), weakref.ref(self)), name=f"pyfeed-{name}-{i}", daemon=True
            )
            _exit.movers.add(thread)
            thread.start()


def _run(workers: _native.Workers, reader_work: weakref.ref[Work]) -> None:
    while True:
        try:
            arrays, ticket = workers.take()
        except QueueClosed:
            return
        except (OutOfMemoryError, MemoryError):
            continue  # the consumer has been told
        work = reader_work()
        if work is None:
            workers.fail(ticket, 0, "", "the Python object of the map reader is gone, and the function with it", "")
        else:
            work.do(workers, ticket, arrays)
        del arrays, work
