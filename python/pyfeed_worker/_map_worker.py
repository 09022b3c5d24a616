"""The worker process of a map reader: takes tuples, calls the function, and returns the results."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from ._failures import format_exception
from ._map_call import FlatFunction, MapCall, ResultWriter
from ._native import Ring
from ._producer import Producer
from .errors import Error, QueueClosed

# The first byte of what fail_task gets: which of these errors it is. The pickle follows.
_ABOUT_RESULT = b"r"  # the result does not fit
_BY_FUNCTION = b"f"  # an Exception of the function, which on_error="skip" skips
_BY_SAMPLE = b"s"  # the same, of pyfeed_worker, about a sample of a dataset
_NO_EXCEPTION = b"b"  # another BaseException of the function
_MOST_PICKLED = 40 << 10  # bytes; there is room for more in the memory of a task


def work(
    producer: Producer,
    worker: int,
    function: Callable[..., Any],
    with_position: bool,
    seed: int | None,
    arguments: Any,
    results: Any,
) -> None:
    """Call the function of a map reader for one task after the other, until the pass of the queue ends.

    It is a target of ``SharedFeedQueue.start``.

    Parameters
    ----------
    function, with_position, seed
        As for `MapCall`.
    arguments, results
        The structures of the arguments of the function, a tuple, and of its results; None: tuples of arrays.
    """
    _compute_in_one_thread()
    ring = producer._attached()
    if isinstance(function, ResultWriter):
        _write_results(ring, function, arguments)
    call = MapCall(function, with_position=with_position, seed=seed)
    while True:
        given, position, task = ring.take(arguments)
        try:
            result = call(given, position)
        except BaseException as error:
            kind = _kind_of(error, function)
            ring.fail_task(task, *format_exception(error), kind + _pickled(error))
        else:
            try:
                ring.complete(task, result, results)
            except QueueClosed:
                raise
            except Exception as error:
                ring.fail_task(task, *format_exception(error), _ABOUT_RESULT + _pickled(error))
            del result
        del given, task  # gives the memory of the task back


def _write_results(ring: Ring, function: ResultWriter, arguments: Any) -> NoReturn:
    """Do the same for a function that writes its results."""
    while True:
        given, _, task = ring.take(arguments)
        try:
            slots = (*function.slots(given), ("int64", (), 0, ""))
            reservation, memory = ring.reserve(tuple((*slot[:2], ()) for slot in slots), None)
            try:
                function.fill(given, memory[:-1])
            except BaseException:
                ring.abandon(*reservation)
                raise
            memory[-1][...] = task.ticket
            del memory
            ring.commit(*reservation)
        except QueueClosed:
            raise
        except BaseException as error:
            ring.fail_task(task, *format_exception(error), _kind_of(error, function) + _pickled(error))
        del given, task


def _kind_of(error: BaseException, function: Any) -> bytes:
    if isinstance(error, Error) and isinstance(function, FlatFunction):
        return _BY_SAMPLE
    return _BY_FUNCTION if isinstance(error, Exception) else _NO_EXCEPTION


def _compute_in_one_thread() -> None:
    """Have PyTorch compute in this thread only, as its own worker processes do: there is one for each core."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def _pickled(error: BaseException) -> bytes:
    """Pickle an exception; return b"" if that is impossible, if it is too large, or if it could not be loaded again."""
    try:
        data = pickle.dumps(error)
        if len(data) > _MOST_PICKLED:
            return b""
        pickle.loads(data)
    except BaseException:
        return b""
    return data
