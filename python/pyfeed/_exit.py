"""Ends the waits of threads that are stuck in pyfeed when the interpreter exits.

At exit the interpreter joins every thread that is not a daemon. A thread that waits for room in a queue without a
consumer would keep the process alive for ever. While another thread that could consume or produce runs, the wait may
still end by itself. When all such threads wait in pyfeed, no wait can end. Then the queues and the staging buffers are
shut down, and each wait ends with `QueueClosed` or the end of the data. The threads that count are those that the
interpreter joins, and the daemons that use pyfeed.

The threads of a map reader count only while one of those threads may get a tuple from that reader, or room in a queue
below it. They call the function ahead of demand, which does not help a thread that waits for something else. The same
holds for worker processes, which count while they may push a tuple.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from . import _native
from ._attributes import decode
from .errors import StateError

if TYPE_CHECKING:
    from .shared import SharedFeedQueue

T = TypeVar("T")

readers: weakref.WeakSet[_native.Reader] = weakref.WeakSet()
queues: weakref.WeakSet[_native.Queue] = weakref.WeakSet()
daemon_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()  # daemons that use a queue
# The threads of map readers, each with the MapTask of its reader.
map_threads: weakref.WeakKeyDictionary[threading.Thread, weakref.ref[Any]] = weakref.WeakKeyDictionary()
# The queues that worker processes fill, each with the MapProcesses that collects its tuples, or None.
worker_queues: weakref.WeakKeyDictionary[SharedFeedQueue, weakref.ref[Any] | None] = weakref.WeakKeyDictionary()
UNKNOWN = object()  # in a reader's chain: readers below that Python did not make
_pid = os.getpid()  # the library works in this process only, not in forked children
_installed = False

# All threads must have waited for this long, without progress: many times the time that a hand-over between two takes.
_STUCK_SECONDS = 0.1
_POLL_SECONDS = 0.005
_CPU_STEP_NS = 2_000_000  # CPU time that counts as progress, in nanoseconds


def register_thread() -> None:
    """Register the calling thread. Every thread that uses a queue calls this first."""
    if threading.get_ident() != threading.main_thread().ident:  # the main thread is not joined
        install()
    thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
    if thread is not None and thread.daemon:
        daemon_threads.add(thread)


def watch(queue: _native.Queue) -> None:
    """Register a queue, which is shut down at exit if threads are stuck."""
    install()
    queues.add(queue)


def watch_workers(queue: SharedFeedQueue, collector: weakref.ref[Any] | None) -> None:
    """Register a queue that worker processes fill.

    `collector` is the MapProcesses that collects its tuples, or None. With a collector, the queue is not shut down at
    exit: its waits end with those of the reader below.
    """
    worker_queues[queue] = collector
    if collector is None:
        watch(queue)
    else:
        install()


def install() -> None:
    """Register the hook for the exit. Call it before the first thread: a fork during its imports breaks `logging`."""
    global _installed
    if _installed or os.getpid() != _pid:
        return
    _installed = True
    try:
        # concurrent.futures joins its threads in such a hook too. Hooks run in reverse order, so import it before ours
        # is registered.
        import concurrent.futures.thread  # noqa: F401

        threading._register_atexit(_start)  # type: ignore[attr-defined]
    except RuntimeError:  # from the import or the registration: the exit has begun
        _start()


def _start() -> None:
    # In a separate thread, because some idle threads end only when a later hook tells them to.
    # While the interpreter is finalizing, no other thread runs any more.
    if os.getpid() == _pid and not sys.is_finalizing():
        _native._start_thread(_release_stuck_threads)


def snapshot(weak: Iterable[T]) -> list[T]:
    while True:
        try:
            return list(weak)
        except RuntimeError:  # another thread has added an element
            pass


def _progress(reading: bool) -> int:
    moved = sum(s["pushed"] + s["popped"] for s in (q.stats() for q in snapshot(queues)))
    # Threads of the library may be reading files for the threads that wait.
    return moved + sum(_tuples_read(r) for r in snapshot(readers)) if reading else moved


def _tuples_read(reader: _native.Reader) -> int:
    try:
        stats = reader._stats()
    except StateError:  # another thread has just closed the reader
        return 0
    return _count_tuples(decode(stats))


def _count_tuples(stats: dict[str, Any]) -> int:
    return int(stats["tuples"]) + sum(map(_count_tuples, stats.get("below", ())))


def _asleep(thread: threading.Thread) -> bool:
    """Whether the thread sleeps. On a busy machine, a thread that can run may have no processor."""
    try:
        with open(f"/proc/self/task/{thread.native_id}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "S"
    except OSError:  # the thread has ended, or /proc is not readable
        return True


def _chain(top: Any) -> Iterator[Any]:
    """Yield a reader and all that is below it: readers, MapTasks and queues."""
    rest = [top]
    while rest:
        found = rest.pop()
        yield found
        below = getattr(found, "_upstream", None)
        rest += below if isinstance(below, tuple) else () if below is None else (below,)


def _helps(work: Any, kind: str, reader: Any) -> bool:
    """Whether the producers of `work` may end a wait of that kind: see `_native._waiting_threads`.

    `work` is a MapTask or MapProcesses, or a queue that worker processes fill.
    """
    if kind == "call":  # of `push` by this process or, for such a queue, by others
        return reader is work
    if kind == "room":  # in a queue below
        below = (found for found in _chain(work) if found is not work)
        return any(found is UNKNOWN or isinstance(found, _native.Queue) for found in below)
    return kind == "any" or any(found is UNKNOWN or found is work for found in _chain(reader))


def _at_work(waits: Iterable[tuple[int, str, Any]]) -> list[threading.Thread]:
    """Return the threads of map readers that may end one of the waits."""
    return [
        thread
        for thread in snapshot(map_threads)
        if thread.is_alive()
        and (work := map_threads[thread]()) is not None
        and any(_helps(work, kind, reader) for _, kind, reader in waits)
    ]


def _processes_at_work(waits: Iterable[tuple[int, str, Any]]) -> bool:
    """Whether a worker process may end one of the waits."""
    for queue in snapshot(worker_queues):
        collector = worker_queues[queue]
        work = queue if collector is None else collector()
        if work is not None and any(_helps(work, kind, reader) for _, kind, reader in waits) and queue._at_work():
            return True
    return False


class _Quiet:
    """The seconds without progress that were watched. The whole machine may stand still between two looks."""

    def __init__(self, now: float) -> None:
        self._last, self._seconds = now, 0.0

    def look(self, now: float) -> float:
        self._seconds += min(now - self._last, 2 * _POLL_SECONDS)
        self._last = now
        return self._seconds

    def reset(self) -> None:
        self._seconds = 0.0


def _release_stuck_threads() -> None:
    quiet, progress = _Quiet(time.monotonic()), -1
    main = threading.main_thread()
    while True:
        joined = [t for t in threading.enumerate() if not t.daemon and t is not main]
        concerned = joined + [t for t in snapshot(daemon_threads) if t.is_alive()]
        waiting = _native._waiting_threads()
        waits = [waiting[t.ident] for t in concerned if t.ident in waiting]
        if len(waits) == len(concerned):
            concerned += _at_work(waits)
        # A thread that waits in a run of a program may be computing: then its CPU time grows. Prefetching by readers
        # is progress only if some thread waits for more than a call.
        seconds = quiet.look(time.monotonic())
        moved = _progress(reading=any(kind != "call" for _, kind, _ in waits))
        moved += sum(cpu_time for cpu_time, _, _ in waiting.values()) // _CPU_STEP_NS
        if moved != progress or not all(t.ident in waiting and _asleep(t) for t in concerned):
            progress = moved
            quiet.reset()
        elif _processes_at_work(waits):
            quiet.reset()
        elif joined and seconds >= _STUCK_SECONDS:
            for queue in snapshot(queues):
                queue.shutdown()
            _native._shutdown_buffers()
        del waiting, waits  # they hold references to readers
        time.sleep(_POLL_SECONDS)


atexit.register(_native._stop)
