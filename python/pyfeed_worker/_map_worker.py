"""The worker process of a map reader: takes tuples, calls the function, and returns the results."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from ._failures import format_exception
from ._map_call import MapCall
from ._producer import Producer
from .errors import QueueClosed


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
    call = MapCall(function, with_position=with_position, seed=seed)
    ring = producer._attached()
    while True:
        given, position, task = ring.take(arguments)
        try:
            ring.complete(task, call(given, position), results)
        except QueueClosed:
            raise
        except BaseException as error:
            ring.fail_task(task, *format_exception(error), _pickled(error))
        del given, task  # gives the memory of the task back


def _pickled(error: BaseException) -> bytes:
    """Pickle an exception; return b"" if that is impossible, or if it could not be loaded again."""
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:
        return b""
    return data
