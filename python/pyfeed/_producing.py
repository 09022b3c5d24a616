"""Calls of users' functions, and pushes of the tuples that producer functions yield."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from . import _native
from ._arguments import format_value, refuse
from ._failures import report_unraisable
from .errors import QueueClosed

if TYPE_CHECKING:
    import weakref

    from ._queue import PyArrayFeedQueue


def call(kind: str, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
    """Call a user's function. `kind` is the word for it in error messages: ``"function"`` or ``"kernel"``.

    A `StopIteration` that the function raises becomes a `RuntimeError`. Otherwise the loop of the consumer would
    take it for the end of the data.
    """
    try:
        return function(*arguments, **options)
    except StopIteration as stop:
        raise RuntimeError(f"the {kind} raised StopIteration") from stop


def call_producer(function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Iterable[Any]:
    """Call a producer function, and check that the result is iterable."""
    iterable = call("function", function, *arguments, **options)
    if not isinstance(iterable, Iterable):
        name = getattr(function, "__qualname__", format_value(function))
        refuse("function", f"{name} to be a generator, or to return an iterable of tuples of arrays", iterable)
    return iterable


def requires(function: Callable[..., Any], name: str) -> bool:
    """Report whether a function has a parameter of that very name that has to be given, and can be by keyword."""
    import inspect

    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a function that is written in C may have no signature
        return False
    found = parameters.get(name)
    by_keyword = found is not None and found.kind in (found.KEYWORD_ONLY, found.POSITIONAL_OR_KEYWORD)
    return found is not None and by_keyword and found.default is found.empty


def push_all(push: Callable[[Any], None], iterable: Any) -> bool:
    """Push the elements of an iterable until the queue is closed. Then call the iterable's ``close``, if it has one.

    Readers and queues are not closed, because the user may iterate over them again.

    Returns
    -------
    bool
        True if all elements were pushed, False if the queue was closed before.
    """
    try:
        for arrays in iterable:
            try:
                push(arrays)
            except QueueClosed:
                return False
        return True
    finally:
        close = getattr(iterable, "close", None)
        if close is not None and not isinstance(iterable, (_native.Reader, _native.Queue)):
            close()


def run_passes(
    queue: PyArrayFeedQueue,
    readers_queue: weakref.ref[PyArrayFeedQueue],
    function: Callable[..., Iterable[Sequence[Any]]],
) -> None:
    """Call the function of `from_generator` once for each pass, until the queue is shut down.

    A function with a parameter ``start`` without a default begins at that tuple. From any other function, the reader
    drops the tuples before.
    """
    takes_start = requires(function, "start")
    pass_id = None
    while True:
        try:
            pass_id = queue.wait_pass(pass_id)
        except QueueClosed:
            return
        try:
            options = {}
            if takes_start:
                options["start"] = queue._get_start(pass_id)
                queue._set_start(pass_id, options["start"])
            push_all(partial(queue.push, pass_id=pass_id), call_producer(function, **options))
            queue.close(pass_id)
        except BaseException as e:
            _fail(readers_queue() or queue, e, pass_id)


def _fail(queue: PyArrayFeedQueue, error: BaseException, pass_id: int) -> None:
    """Fail the pass. If the reader has begun another pass, report the error to `threading.excepthook` instead."""
    try:
        queue.fail(error, pass_id)
    except QueueClosed:
        report_unraisable(error)
