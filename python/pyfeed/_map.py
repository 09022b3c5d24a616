"""The threads of a map reader. Each takes a tuple, calls the function and returns the result, again and again."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _exit, _failures, _native, _slots, _structure
from ._map_call import FlatFunction, MapCall, ResultWriter
from .errors import DTypeError, OutOfMemoryError, QueueClosed, ShapeError, SlotCountError

if TYPE_CHECKING:
    from ._reader import Reader
    from ._structure import Structure

_SAME_SLOTS = "map has no shapes: it expects results with the slots of its arguments; otherwise pass shapes and dtypes"


class MapWork:
    """What a map reader owns to have its function called: in threads, or in worker processes.

    Threads hold only a weak reference to it, since the function may refer to the reader.
    """

    def __init__(self, upstream: Reader, failures: int, *, skips: bool, same_slots: bool) -> None:
        self._upstream = upstream
        self.skips = skips  # tuples whose function raises an exception are left out
        self._same_slots = same_slots  # the results have the slots of the arguments
        # The exceptions of the latest tuples, which the consumer may still raise, or raise again.
        self._failures: deque[_native.Failure] = deque(maxlen=failures)

    def fail(
        self, workers: _native.Workers, ticket: int, error: BaseException, texts: tuple[str, str, str] | None = None
    ) -> None:
        """Fail a ticket: the consumer raises the exception. The texts are those of `format_exception`."""
        from ._producing import exception_for_consumer

        if self._same_slots and issubclass(type(error), (SlotCountError, ShapeError, DTypeError)):
            error.add_note(_SAME_SLOTS)
        failure = _native.Failure._new(exception_for_consumer(error, "function"))
        self._failures.append(failure)
        workers.fail(ticket, failure.token, *(texts or _failures.format_exception(error)))


class MapTask(MapWork):
    """The function of a map reader, which threads call."""

    def __init__(
        self,
        upstream: Reader,
        function: Callable[..., Any],
        failures: int,
        *,
        with_position: bool,
        seed: int | None,
        skips: bool,
        same_slots: bool,
    ) -> None:
        super().__init__(upstream, failures, skips=skips, same_slots=same_slots)
        self._function = function
        self._call = MapCall(function, with_position=with_position, seed=seed)

    def run(self, workers: _native.Workers, ticket: int, arrays: tuple[Any, ...]) -> None:
        """Call the function and complete the ticket, with a result or with an error."""
        try:
            if isinstance(self._function, ResultWriter):
                self._write(workers, ticket, arrays, self._function)
                return
            position = workers.position(ticket) if self._call.needs_position else (0, 0)
            try:
                result = self._call(arrays, position)
            except Exception as error:
                if not self.skips:
                    raise
                workers.skip(ticket, 0, *_failures.format_exception(error))
                return
            workers.complete(ticket, result)
        except BaseException as error:
            self.fail(workers, ticket, error)

    @staticmethod
    def _write(workers: _native.Workers, ticket: int, arrays: tuple[Any, ...], function: ResultWriter) -> None:
        reserved: list[Any] = list(workers.reserve(function.slots(arrays)))
        try:
            function.fill(arrays, reserved.pop())
            workers.commit(ticket, reserved[0])
        finally:
            reserved.clear()

    def start(self, reader: Reader, num_threads: int) -> None:
        """Start the threads for a map reader. They end when the reader is gone."""
        arguments, results = structures_of(reader, self._upstream, flat=isinstance(self._function, FlatFunction))
        for i in range(num_threads):
            workers = reader._workers(_slots.kinds(reader.slots), arguments, results)
            thread = threading.Thread(
                target=_run, args=(workers, weakref.ref(self)), name=f"pyfeed-{reader.name}-{i}", daemon=True
            )
            _exit.map_threads[thread] = weakref.ref(self)
            thread.start()


def structures_of(reader: Reader, upstream: Reader, *, flat: bool) -> tuple[Structure, Structure]:
    """Return the structures of the arguments of a map reader's function, a tuple, and of its results.

    `flat`: the function returns tuples of arrays, whatever structure the reader delivers.
    """
    below = upstream._structure
    arguments = below if below is None or isinstance(below, tuple) else (below,)
    if flat:
        return arguments, None
    return arguments, _structure.accepted(reader._structure, [slot.name for slot in reader.slots])


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
