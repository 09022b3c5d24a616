"""Trainer: the process in which one way does its work, in turns with others."""

from __future__ import annotations

import ctypes
import functools
import multiprocessing
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import ClassVar, NamedTuple

from . import processes


class Seconds(NamedTuple):
    total: float
    waited: float  # of them, for data


Timed = Callable[[int], float | Seconds]
"""Does so many units of work and returns the seconds that they took."""

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


class NotOffered(Exception):
    """The library has nothing for this task. The text says what it lacks."""


class Failed(Exception):
    """A way did not do its work. The text says why, on one line."""


class Turn(NamedTuple):
    seconds: float
    cpu_seconds: float  # of all processes of the way
    peak_bytes: int  # so far
    waited: float | None = None  # of the seconds, for data, if the way says so


def _said(error: BaseException) -> str:
    """The first and the last line: some put a traceback between, with paths of this machine."""
    lines = str(error).strip().splitlines() or [""]
    return lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"


def _failed(error: BaseException) -> Failed:
    return Failed(f"{type(error).__name__}: {_said(error)}")


def _serve(make: Callable[[], Timed], cores: set[int], log: str, orders: Connection) -> None:
    """What the process does: as many units as it is asked for, as often as it is."""
    os.setsid()  # so that its workers are known if it ends before them
    with open(log, "wb") as out:
        for fd in (1, 2):
            os.dup2(out.fileno(), fd)
    if cores:
        os.sched_setaffinity(0, cores)
    multiprocessing.set_start_method(
        None, force=True
    )  # the platform's own, as in programs, not what this was started by
    # Workers of workers whose parents have ended stay descendants of this process.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        timed = make()
        timed(1)
    except BaseException as error:
        traceback.print_exc()
        orders.send(NotOffered(_said(error)) if isinstance(error, NotOffered) else _failed(error))
        return
    orders.send(Seconds(0, 0))
    while True:
        try:
            count = orders.recv()
        except (EOFError, ConnectionResetError):
            break
        try:
            orders.send(timed(count))
        except Exception as error:
            traceback.print_exc()
            orders.send(_failed(error))
    sys.stdout.flush()


@functools.cache
def start_tracker() -> None:
    """Start multiprocessing's, for all ways, without a voice: it has much to say of those that unlink twice.

    It is to be called before threads are at work.
    """
    from multiprocessing import resource_tracker

    kept = os.dup(2)
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)
        resource_tracker.ensure_running()
        os.dup2(kept, 2)
    os.close(kept)


class Trainer:
    """A way in a process of its own, which is stopped with all its workers but for its turns.

    Parameters
    ----------
    make : callable
        Called in the process; picklable. What it returns is given the number of units of each turn.
    cores : int
        How many of the machine's cores the process and its workers may use; 0: all. Turns are on the first ones.
    place : int
        The core, or the first of them, to start on: others may be started at the same time.
    patience : float
        Seconds after which a turn has failed.
    """

    running: ClassVar[set[Trainer]] = set()

    def __init__(self, make: Callable[[], Timed], cores: int = 0, place: int = 0, patience: float = 120) -> None:
        start_tracker()
        context = multiprocessing.get_context("spawn")
        self._patience = patience
        self._log = tempfile.NamedTemporaryFile(prefix="pyfeed-bench-", suffix=".log")  # noqa: SIM115
        self._orders, there = context.Pipe()
        all_cores = sorted(os.sched_getaffinity(0))
        first = {all_cores[(place + core) % len(all_cores)] for core in range(cores)}
        self._process = context.Process(target=_serve, args=(make, first, self._log.name, there))
        self.running.add(self)
        self._process.start()
        there.close()
        try:
            self._answer()
        except BaseException:
            self.close()
            raise
        self._stop()
        if cores and self._process.pid is not None:
            processes.pin(self._process.pid, set(all_cores[:cores]))

    def _answer(self) -> float | Seconds:
        if not self._orders.poll(self._patience):
            raise Failed(f"no answer in {self._patience:g} s")
        try:
            answer = self._orders.recv()
        except (EOFError, ConnectionResetError):
            raise self._ended() from None
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, float | Seconds)
        return answer

    def _ended(self) -> Failed:
        self._process.join()
        return Failed(f"its process ended with status {self._process.exitcode}")

    def _stop(self) -> processes.Usage:
        assert self._process.pid is not None
        processes.tell(self._process.pid, signal.SIGSTOP)
        return processes.usage(self._process.pid)

    def turn(self, count: int) -> Turn:
        """Have so many units done. All others must be stopped."""
        assert self._process.pid is not None
        before = processes.usage(self._process.pid)
        processes.tell(self._process.pid, signal.SIGCONT)
        try:
            self._orders.send(count)
        except BrokenPipeError:
            raise self._ended() from None
        answer = self._answer()
        after = self._stop()
        seconds, waited = answer if isinstance(answer, Seconds) else (answer, None)
        return Turn(seconds, after.cpu_seconds - before.cpu_seconds, after.peak_bytes, waited)

    def log(self) -> str:
        """What the process has printed."""
        return Path(self._log.name).read_text(errors="replace")

    def kill(self) -> None:
        """End its processes, from any thread: whoever waits for an answer is told, and is to close it."""
        if self._process.pid is not None:
            processes.kill(processes.tree(self._process.pid))

    def close(self) -> None:
        self.running.discard(self)
        pid = self._process.pid
        if pid is None:
            return
        processes.tell(pid, signal.SIGCONT)
        workers = processes.tree(pid)[1:]
        self._orders.close()
        self._process.join(10)  # some tidy up what they have in /dev/shm
        self._process.kill()
        self._process.join()
        processes.kill(workers + processes.session(pid))
        self._log.close()
