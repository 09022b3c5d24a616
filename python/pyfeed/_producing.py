"""Calls of users' functions, and pushes of the tuples that producer functions yield."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from . import _exit, _native
from ._arguments import format_value, refuse
from ._failures import format_exception, note_yield, report_unraisable
from .errors import ArgumentTypeError, ProducerError, QueueClosed, StateError

if TYPE_CHECKING:
    from ._queue import PyArrayFeedQueue
    from ._reader import Reader


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


def exception_for_consumer(exception: BaseException, raised_by: str) -> BaseException:
    """Return the exception that the consumer raises: for a `SystemExit`, which would end its program, another one."""
    if not issubclass(type(exception), SystemExit):  # isinstance may call a method of the exception, which may fail
        return exception
    error = ProducerError()
    error.cause_type, error.cause_message, error.cause_traceback = format_exception(exception)
    error.args = (f"the {raised_by} failed: {error.cause_type}: {error.cause_message}",)
    error.__cause__ = exception
    return error


class PassParts:
    """Who pushes into each pass of a queue: threads of `produce`, and ``with`` blocks.

    The last thread closes the pass, even inside a block, which may wait for the consumer. The last block closes the
    pass if there are no threads. Neither does so before the expected number of blocks have ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: dict[int, int] = {}  # the number of threads that have not ended, by pass
        self._blocks: dict[int, int] = {}
        self._expected: dict[int, int] = {}  # the number of blocks that have yet to end, by pass

    def begin_produce(self, queue: PyArrayFeedQueue, num_threads: int) -> int:
        """Add the threads of a call of `produce` to the current pass, and return its number."""
        with self._lock:  # the last thread of an earlier call may be closing the pass now
            pass_id = _open_pass("produce", queue)
            self._threads[pass_id] = self._threads.get(pass_id, 0) + num_threads
            return pass_id

    def end_thread(self, queue: PyArrayFeedQueue, pass_id: int) -> None:
        """End a thread."""
        with self._lock:
            if _decrease(self._threads, pass_id) and pass_id not in self._expected:
                queue.close(pass_id)

    def expect(self, queue: PyArrayFeedQueue, num_blocks: int) -> None:
        """Keep the current pass open until this number of blocks have ended from now on."""
        with self._lock:
            self._expected = {_open_pass("expect", queue): num_blocks}  # earlier passes are over

    def begin_block(self, pass_id: int) -> None:
        """Add a ``with`` block."""
        with self._lock:
            self._blocks[pass_id] = self._blocks.get(pass_id, 0) + 1

    def end_block(self, queue: PyArrayFeedQueue, pass_id: int) -> None:
        """End a ``with`` block."""
        with self._lock:
            if pass_id in self._expected:
                _decrease(self._expected, pass_id)
            last = _decrease(self._blocks, pass_id)
            if last and pass_id not in self._threads and pass_id not in self._expected:
                queue.close(pass_id)


def _open_pass(caller: str, queue: PyArrayFeedQueue) -> int:
    """Return the number of the current pass, which must be open."""
    stats = queue.stats()
    pass_id: int | None = stats["pass_id"]
    if stats["shut_down"]:
        raise QueueClosed(f"{caller}: the queue is shut down")
    if pass_id is None:
        raise StateError(f"{caller}: the queue has no pass open yet: wait for one with wait_pass")
    if stats["closed"]:
        raise StateError(f"{caller}: pass {pass_id} has ended: reopen() begins the next")
    return pass_id


def _decrease(counts: dict[int, int], pass_id: int) -> bool:
    """Count one less. Return whether it was the last."""
    counts[pass_id] -= 1
    if counts[pass_id] == 0:
        del counts[pass_id]
        return True
    return False


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


def check_call(function: Callable[..., Any], expected: str, /, *arguments: Any, **options: Any) -> None:
    """Refuse a function that cannot be called with these arguments, as far as its signature is known."""
    import inspect

    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments, **options)
    except TypeError:
        name = getattr(function, "__name__", format_value(function))
        raise ArgumentTypeError(f"function: expected {expected}, found {name}{signature}") from None


def push_all(push: Callable[[Any], None], iterable: Any) -> bool:
    """Push the elements of an iterable until the queue is closed. Then call the iterable's ``close``, if it has one.

    Readers and queues are not closed, because the user may iterate over them again. If a push fails, its error gets a
    note that names the tuple and, for a generator, the line that yielded it.

    Returns
    -------
    bool
        True if all elements were pushed, False if the queue was closed before.
    """
    try:
        for number, arrays in enumerate(iterable):
            try:
                push(arrays)
            except QueueClosed:
                return False
            except Exception as error:
                note_yield(error, number, iterable)
                raise
        return True
    finally:
        close = getattr(iterable, "close", None)
        if close is not None and not isinstance(iterable, (_native.Reader, _native.Queue)):
            close()


def start_passes(
    reader: Reader, queue: PyArrayFeedQueue, function: Callable[..., Iterable[Sequence[Any]]], *, copy: bool = True
) -> None:
    """Start a daemon thread that pushes the tuples of each pass of a queue's reader. `copy` is that of `push`."""
    # The thread must hold neither the reader nor the queue's own object. The latter keeps the exception of a pass,
    # whose traceback refers to the reader.
    thread = threading.Thread(
        target=_run_passes, args=(queue.producer(), function, copy), name=f"pyfeed-{reader.name}", daemon=True
    )
    _exit.daemon_threads.add(thread)
    thread.start()
    reader._threads = 1


def _run_passes(queue: PyArrayFeedQueue, function: Callable[..., Iterable[Sequence[Any]]], copy: bool) -> None:
    """Call a function once for each pass, until the queue is shut down.

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
        options = {}
        if takes_start:
            try:
                options["start"] = queue._get_start(pass_id)
                queue._set_start(pass_id, options["start"])
            except QueueClosed:  # the pass is over already
                continue
        try:
            push_all(partial(queue.push, pass_id=pass_id, copy=copy), call_producer(function, **options))
            queue.close(pass_id)
        except BaseException as e:
            fail_pass(queue, e, pass_id)


def fail_pass(queue: PyArrayFeedQueue, error: BaseException, pass_id: int) -> None:
    """Fail the pass. If the reader has begun another pass, report the error to `threading.excepthook` instead."""
    try:
        queue.fail(error, pass_id)
    except QueueClosed:
        report_unraisable(error)
