"""The process in which one library runs a case, in turns with other libraries."""

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
    waited: float  # the part of them spent waiting for data


Timed = Callable[[int], float | Seconds]
"""A function that does a number of units of work, and returns the seconds that they took."""

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


class NotSupported(Exception):
    """The library cannot run this case. The message says what the library lacks."""


class Failed(Exception):
    """A library has failed to run a case. The message gives the reason on one line."""


class Turn(NamedTuple):
    seconds: float
    cpu_seconds: float  # of all processes of the library
    peak_bytes: int  # so far
    waited: float | None = None  # the part of the seconds spent waiting for data, if it is measured


def _first_and_last_line(error: BaseException) -> str:
    """The first and the last line of a message. Some messages have a traceback with local paths in between."""
    lines = str(error).strip().splitlines() or [""]
    return lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"


def _failure(error: BaseException) -> Failed:
    return Failed(f"{type(error).__name__}: {_first_and_last_line(error)}")


def _serve(make: Callable[[], Timed], cores: set[int], log: str, connection: Connection) -> None:
    """The main function of the process: runs the number of units of each request."""
    os.setsid()  # so that workers can be found by their session if this process ends first
    with open(log, "wb") as out:
        for fd in (1, 2):
            os.dup2(out.fileno(), fd)
    if cores:
        os.sched_setaffinity(0, cores)
    multiprocessing.set_start_method(
        None, force=True
    )  # use the default of the platform, as a program would, not the method that started this process
    # A worker whose parent ends stays a descendant of this process.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        timed = make()
        timed(1)
    except BaseException as error:
        traceback.print_exc()
        connection.send(
            NotSupported(_first_and_last_line(error)) if isinstance(error, NotSupported) else _failure(error)
        )
        return
    connection.send(Seconds(0, 0))
    while True:
        try:
            count = connection.recv()
        except (EOFError, ConnectionResetError):
            break
        try:
            connection.send(timed(count))
        except Exception as error:
            traceback.print_exc()
            connection.send(_failure(error))
    sys.stdout.flush()


@functools.cache
def start_resource_tracker() -> None:
    """Start one resource tracker of multiprocessing for all runners, without stderr.

    The tracker would print a warning for every second unlink. Call this before other threads start.
    """
    from multiprocessing import resource_tracker

    stderr = os.dup(2)
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)
        resource_tracker.ensure_running()
        os.dup2(stderr, 2)
    os.close(stderr)


class Runner:
    """A library in its own process. The process and its workers are stopped except during their turns.

    Parameters
    ----------
    make : callable
        Picklable; called in the process. It returns a `Timed`, which is called with the number of units of each turn.
    cores : int
        The number of cores that the process and its workers may use; 0: all. Turns use the first cores of the machine.
    first_core : int
        The first core to use while starting, since other runners may start at the same time.
    timeout : float
        The time limit of a turn, in seconds.
    """

    running: ClassVar[set[Runner]] = set()

    def __init__(self, make: Callable[[], Timed], cores: int = 0, first_core: int = 0, timeout: float = 120) -> None:
        start_resource_tracker()
        context = multiprocessing.get_context("spawn")
        self._timeout = timeout
        self._log = tempfile.NamedTemporaryFile(prefix="pyfeed-bench-", suffix=".log")  # noqa: SIM115
        self._connection, there = context.Pipe()
        all_cores = sorted(os.sched_getaffinity(0))
        start_on = {all_cores[(first_core + core) % len(all_cores)] for core in range(cores)}
        self._process = context.Process(target=_serve, args=(make, start_on, self._log.name, there))
        self.running.add(self)
        self._process.start()
        there.close()
        try:
            self._receive()
        except BaseException:
            self.close()
            raise
        self._pause()
        if cores and self._process.pid is not None:
            processes.pin(self._process.pid, set(all_cores[:cores]))

    def _receive(self) -> float | Seconds:
        if not self._connection.poll(self._timeout):
            raise Failed(f"no answer in {self._timeout:g} s")
        try:
            answer = self._connection.recv()
        except (EOFError, ConnectionResetError):
            raise self._exit_failure() from None
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, float | Seconds)
        return answer

    def _exit_failure(self) -> Failed:
        self._process.join()
        return Failed(f"its process ended with status {self._process.exitcode}")

    def _pause(self) -> processes.Usage:
        assert self._process.pid is not None
        processes.send_signal(self._process.pid, signal.SIGSTOP)
        return processes.usage(self._process.pid)

    def turn(self, count: int) -> Turn:
        """Run a number of units. All other runners must be stopped."""
        assert self._process.pid is not None
        before = processes.usage(self._process.pid)
        processes.send_signal(self._process.pid, signal.SIGCONT)
        try:
            self._connection.send(count)
        except BrokenPipeError:
            raise self._exit_failure() from None
        answer = self._receive()
        after = self._pause()
        seconds, waited = answer if isinstance(answer, Seconds) else (answer, None)
        return Turn(seconds, after.cpu_seconds - before.cpu_seconds, after.peak_bytes, waited)

    def log(self) -> str:
        """The output of the process."""
        return Path(self._log.name).read_text(errors="replace")

    def kill(self) -> None:
        """Kill the processes, from any thread. A thread that waits for an answer fails, and must then call `close`."""
        if self._process.pid is not None:
            processes.kill(processes.tree(self._process.pid))

    def close(self) -> None:
        self.running.discard(self)
        pid = self._process.pid
        if pid is None:
            return
        processes.send_signal(pid, signal.SIGCONT)
        workers = processes.tree(pid)[1:]
        self._connection.close()
        self._process.join(10)  # some libraries clean up /dev/shm at exit
        self._process.kill()
        self._process.join()
        processes.kill(workers + processes.session(pid))
        self._log.close()
