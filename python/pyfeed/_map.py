"""The threads of a map reader. Each takes a tuple, calls the function and returns the result, again and again."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _exit, _failures, _native, _slots, _structure
from .errors import OutOfMemoryError, QueueClosed

if TYPE_CHECKING:
    from ._reader import Reader


class MapTask:
    """The function of a map reader, and how to call it.

    The reader owns it. The threads hold only a weak reference, since the function may refer to the reader.
    """

    def __init__(
        self,
        upstream: Reader,
        function: Callable[..., Any],
        failures: int,
        *,
        with_position: bool,
        seed: int | None,
        skips: bool,
    ) -> None:
        from ._producing import call, exception_for_consumer

        self._call, self._exception_for_consumer = call, exception_for_consumer
        self._upstream = upstream
        self.function = function
        # The exceptions of the latest tuples, which the consumer may still raise, or raise again.
        self.failures: deque[_native.Failure] = deque(maxlen=failures)
        self.with_position = with_position
        self.seed = seed  # of the generators that the function gets; None: it gets none
        self.skips = skips  # tuples whose function raises an exception are left out
        self._generators = threading.local()

    def run(self, workers: _native.Workers, ticket: int, arrays: tuple[Any, ...]) -> None:
        """Call the function and complete the ticket, with a result or with an error."""
        try:
            options = self._options(workers.position(ticket)) if self.with_position or self.seed is not None else {}
            try:
                result = self._call("function", self.function, *arrays, **options)
            except Exception as error:
                if not self.skips:
                    raise
                workers.skip(ticket, 0, *_failures.format_exception(error))
                return
            workers.complete(ticket, result if isinstance(result, (tuple, list, Mapping)) else (result,))
        except BaseException as error:
            failure = _native.Failure._new(self._exception_for_consumer(error, "function"))
            self.failures.append(failure)
            workers.fail(ticket, failure.token, *_failures.format_exception(error))

    def _options(self, position: tuple[int, int]) -> dict[str, Any]:
        options: dict[str, Any] = {"position": position} if self.with_position else {}
        if self.seed is not None:
            options["rng"] = self._generator(self.seed, *position)
        return options

    def _generator(self, seed: int, pass_id: int, index: int) -> np.random.Generator:
        """Return the thread's generator, set to a position: this takes a tenth of the time of making a new one."""
        mine = self._generators
        if not hasattr(mine, "generator"):
            mine.philox = np.random.Philox(key=seed)
            mine.state = mine.philox.state
            mine.generator = np.random.Generator(mine.philox)
        # The lowest of the four words counts the draws of four numbers.
        mine.state["state"]["counter"][:] = (0, 0, index, pass_id)
        mine.philox.state = mine.state
        generator: np.random.Generator = mine.generator
        return generator

    def start(self, reader: Reader, num_threads: int) -> None:
        """Start the threads for a map reader. They end when the reader is gone."""
        slots, below = reader.slots, self._upstream._structure
        arguments = below if below is None or isinstance(below, tuple) else (below,)
        results = _structure.accepted(reader._structure, [slot.name for slot in slots])
        for i in range(num_threads):
            workers = reader._workers(_slots.kinds(slots), arguments, results)
            thread = threading.Thread(
                target=_run, args=(workers, weakref.ref(self)), name=f"pyfeed-{reader.name}-{i}", daemon=True
            )
            _exit.map_threads[thread] = weakref.ref(self)
            thread.start()


def _run(workers: _native.Workers, reader_work: weakref.ref[MapTask]) -> None:
    while True:
        try:
            arrays, ticket = workers.next()
        except QueueClosed:
            return
        except (OutOfMemoryError, MemoryError):
            continue  # the library has already failed the ticket
        work = reader_work()
        if work is None:
            message = "the Python object of the map reader was deleted, and its function with it"
            workers.fail(ticket, 0, "", message, "")
        else:
            work.run(workers, ticket, arrays)
        del arrays, work
