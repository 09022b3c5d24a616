"""The worker processes of a map reader, and the thread that looks after them."""

from __future__ import annotations

import pickle
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pyfeed_worker

from . import _exit, _native, _slots, errors
from ._cells import cell_bytes_of
from ._map import MapWork, structures_of
from ._place import CPUPlace
from ._scope import Scope
from .errors import ArgumentTypeError, InvalidArgument, ProducerError, QueueClosed
from .shared import SharedFeedQueue

if TYPE_CHECKING:
    from ._reader import Reader

# The memory of a tuple whose size is not known. Only pages that are written take memory.
_UNKNOWN_BYTES = 64 << 20
_MOST_TASKS = 4096  # maxTasks in pyfeed/shared/tasks.go


class MapProcesses(MapWork):
    """Worker processes that call the function of a map reader.

    The reader owns it, and it owns the queue of the results. The library posts the tuples and collects the results. A
    thread handles what needs Python: exceptions of the function, and processes that have died. It holds only a weak
    reference.

    `sizes` are those of a tuple and of a result in shared memory, in bytes. None: the size follows from the slots, or
    it is `_UNKNOWN_BYTES`.
    """

    def __init__(
        self,
        upstream: Reader,
        function: Callable[..., Any],
        failures: int,
        *,
        method: str,
        sizes: tuple[int | None, int | None],
        with_position: bool,
        seed: int | None,
        skips: bool,
        same_slots: bool,
    ) -> None:
        super().__init__(upstream, failures, skips=skips, same_slots=same_slots)
        self._function = (function, with_position, seed)
        self._method, self._sizes = method, sizes
        self._replacing = threading.Lock()
        self._exiting = False  # the interpreter is ending; under the lock
        self._queue: SharedFeedQueue
        self._workers: _native.Workers

    def start(self, reader: Reader, num_workers: int, capacity: int) -> None:
        """Start the processes for a map reader. They end when the reader is gone."""
        from multiprocessing.util import Finalize

        from pyfeed_worker._map_call import FlatFunction
        from pyfeed_worker._map_worker import work

        slots, below = reader.slots, self._upstream.slots
        arguments, results = structures_of(reader, self._upstream, flat=isinstance(self._function[0], FlatFunction))
        specs = tuple((s.dtype, s.shape, s.lod_levels, s.name) for s in slots)
        ticket = ("int64", (), 0, "")
        tasks = (
            # Half of the capacity, so that the library posts several tuples when results were delivered, instead of one
            # for each result. Each worker may keep the arguments of one call, and so its task.
            min(max(capacity // 2, num_workers + 1), _MOST_TASKS),
            len(below),
            self._sizes[0] or _size_of((s.dtype, s.shape, s.lod_levels, s.name) for s in below),
        )
        self._queue = SharedFeedQueue._make(
            (*specs, ticket),
            min(2 * capacity + num_workers, 4096),
            self._sizes[1] or _size_of((*specs, ticket)),
            CPUPlace(),
            scope=Scope(),
            tasks=tasks,
            collector=weakref.ref(self),
        )
        self._workers = reader._workers(_slots.kinds(slots), arguments, results)
        processes = self._workers.processes(self._queue.handle)
        target_args = (*self._function, arguments, results)
        try:
            self._queue.start(work, target_args, num_workers=num_workers, method=self._method, persistent=True)
        except ArgumentTypeError as error:  # pickle refuses the function
            raise ArgumentTypeError(str(error).replace("target, args:", "function:", 1)) from error.__cause__
        # multiprocessing ends the daemons that it knows at exit. This comes before: no process starts any more.
        Finalize(self, _note_exit, (weakref.ref(self),), exitpriority=1000)
        thread = threading.Thread(
            target=_look_after, args=(processes, weakref.ref(self)), name=f"pyfeed-{reader.name}", daemon=True
        )
        _exit.daemon_threads.add(thread)
        thread.start()

    def replace_workers(self, ticket: int) -> None:
        """Replace the processes that have died, because a tuple waits for them. If that fails, its ticket fails."""
        with self._replacing:
            if self._exiting:
                return
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # the reader has raised the error
                    self._queue.reopen()
            except BaseException as error:
                self.fail(self._workers, ticket, error)

    def fail_task(self, ticket: int, kind: str, message: str, traceback: str, detail: bytes) -> None:
        """Fail or skip a ticket, because a worker has no result for it. `_map_worker` says what `detail` contains."""
        if self.skips and detail[:1] in (b"f", b"s"):
            self._workers.skip(ticket, 0, kind, message, traceback)
            return
        try:
            error = _load(kind, message, traceback, detail[1:], of_worker=detail[:1] in (b"r", b"s"))
        except BaseException:  # the exception has methods that fail
            error = _producer_error(kind, message, traceback)
        self.fail(self._workers, ticket, error, (kind, message, traceback))


def _size_of(specs: Iterable[tuple[Any, tuple[int, ...], int, str]]) -> int:
    """Return the memory for a tuple with these slots."""
    try:
        return cell_bytes_of(tuple(specs))
    except InvalidArgument:  # its size is not known
        return _UNKNOWN_BYTES


def _note_exit(work: weakref.ref[MapProcesses]) -> None:
    task = work()
    if task is not None:
        with task._replacing:  # waits for processes that are being started
            task._exiting = True


def _look_after(processes: _native.MapProcesses, work: weakref.ref[MapProcesses]) -> None:
    while True:
        try:
            ticket, failure = processes.next()
        except QueueClosed:
            return
        task = work()
        if task is None:
            return
        if failure is None:
            task.replace_workers(ticket)
        else:
            task.fail_task(ticket, *failure)
        del task


def _load(kind: str, message: str, traceback: str, pickled: bytes, *, of_worker: bool) -> BaseException:
    """Return the exception of a worker, with its traceback as a note.

    `of_worker`: if it is one of pyfeed_worker, it becomes that of pyfeed with the same name.
    """
    error = pickle.loads(pickled) if pickled else _producer_error(kind, message, traceback)
    if not isinstance(error, BaseException):
        return _producer_error(kind, message, traceback)
    if of_worker and isinstance(error, pyfeed_worker.Error):
        found = getattr(errors, type(error).__name__, errors.Error)(*error.args)
        found.slot = error.slot
        error = found
    if traceback:
        error.add_note(f"In a worker process:\n{traceback.rstrip()}")
    return error


def _producer_error(kind: str, message: str, traceback: str) -> ProducerError:
    """Return the error for an exception that cannot be loaded in this process."""
    error = ProducerError(f"the function failed: {kind}: {message}")
    error.cause_type, error.cause_message, error.cause_traceback = kind, message, traceback
    return error
