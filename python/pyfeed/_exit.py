"""What happens to threads that wait for pyfeed when the interpreter ends.

At its end the interpreter joins every thread that is no daemon, so that one that waits for room in a
queue which nobody will ever read again would keep the process alive for ever. As long as any thread
that could change that is doing something else there is hope; when all that are left wait for pyfeed,
nothing can move any more, and their queues and the staging buffers are shut down: each wait ends with
`QueueClosed` or the end of data. Those threads are the ones that are joined, and the daemons that use pyfeed.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from typing import Any, TypeVar

from . import _native
from ._attributes import decode

T = TypeVar("T")

readers: weakref.WeakSet[_native.Reader] = weakref.WeakSet()
queues: weakref.WeakSet[_native.Queue] = weakref.WeakSet()
movers: weakref.WeakSet[threading.Thread] = weakref.WeakSet()  # daemons that use a queue
_pid = os.getpid()  # of the one process in which the library works
_installed = False

# How long all must have been waiting: what a hand-over between two of them takes, many times over.
_PATIENCE = 0.1
_LOOK = 0.005
_WORK = 2_000_000  # nanoseconds


def note() -> None:
    """Every thread that uses a queue calls this before anything else."""
    if threading.get_ident() != threading.main_thread().ident:  # which nobody joins: one that reads files needs no help
        _install()
    thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
    if thread is not None and thread.daemon:
        movers.add(thread)


def watch(queue: _native.Queue) -> None:
    """Has a queue shut down if threads are stuck in it at the end."""
    _install()
    queues.add(queue)


def _install() -> None:
    global _installed
    if _installed or os.getpid() != _pid:
        return
    _installed = True
    try:
        # Its threads are joined by a hook of this very kind: importing it first puts ours before it.
        import concurrent.futures.thread  # noqa: F401

        threading._register_atexit(_start)  # type: ignore[attr-defined]
    except RuntimeError:  # of either: the end has begun
        _start()


def _start() -> None:
    # In a thread of its own: some threads are idle only until a hook after this one tells them to end.
    if os.getpid() == _pid and not sys.is_finalizing():  # when no other thread runs any more
        _native._start_thread(_release_stuck_threads)


def _snapshot(weak: weakref.WeakSet[T]) -> list[T]:
    while True:
        try:
            return list(weak)
        except RuntimeError:  # another thread has added to it
            pass


def _progress() -> int:
    moved = sum(s["pushed"] + s["popped"] for s in (q.stats() for q in _snapshot(queues)))
    # The library's own threads read files for those that wait.
    return moved + sum(_read(decode(r._stats())) for r in _snapshot(readers))


def _read(stats: dict[str, Any]) -> int:
    return int(stats["tuples"]) + sum(map(_read, stats.get("below", ())))


def _asleep(thread: threading.Thread) -> bool:
    """Whether it is not merely kept from running by others, as on a busy machine."""
    try:
        with open(f"/proc/self/task/{thread.native_id}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "S"
    except OSError:  # it has ended, or nobody can see
        return True


def _release_stuck_threads() -> None:
    since, progress = time.monotonic(), -1
    main = threading.main_thread()
    while True:
        joined = [t for t in threading.enumerate() if not t.daemon and t is not main]
        concerned = joined + [t for t in _snapshot(movers) if t.is_alive()]
        waiting = _native._waiting_threads()
        # A thread that runs a program may be at work. One that sleeps, if only for a while each time, uses hardly
        # any CPU time.
        now, moved = time.monotonic(), _progress() + sum(waiting.values()) // _WORK
        if moved != progress or not all(t.ident in waiting and _asleep(t) for t in concerned):
            since, progress = now, moved
        elif joined and now - since >= _PATIENCE:
            for queue in _snapshot(queues):
                queue.shutdown()
            _native._shutdown_buffers()
        time.sleep(_LOOK)


atexit.register(_native._stop)
