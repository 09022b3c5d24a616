"""Programs: scripts that run in their own processes and are observed from outside."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

from . import processes
from .runner import PR_SET_CHILD_SUBREAPER, Failed, NotSupported

BENCHMARKS = Path(__file__).parent.parent
SHARED_MEMORY = Path("/dev/shm")
POLL_INTERVAL = 0.01  # seconds
ASLEEP_POLLS = 10  # consecutive polls in which all main threads sleep


class Program:
    """A script in its own process and session, like a program that is started from a terminal.

    The script and its workers write events to a FIFO, whose path is in the environment variable
    `PYFEED_BENCHMARK_EVENTS`. Each event has a time from `time.monotonic_ns`, which is the same clock in all processes.

    Parameters
    ----------
    source : str
        The script.
    timeout : float
        The default time limit for an event, in seconds.
    path : str
        A folder that the script imports from before all others; empty: none.
    """

    _running: ClassVar[set[Program]] = set()

    def __init__(self, source: str, timeout: float = 60, path: str = "") -> None:
        # Orphans of the program become children of this process instead of init, so that `close` can find them.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._timeout = timeout
        self._folder = tempfile.TemporaryDirectory(prefix="pyfeed-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        self.temporary = folder / "t"
        self.temporary.mkdir()
        script, fifo = folder / "program.py", folder / "events"
        script.write_text(source)
        os.mkfifo(fifo)
        self._fifo = os.open(fifo, os.O_RDWR)  # also for writing, since a FIFO without writers is at its end
        self._unparsed = b""
        self._events: list[tuple[str, int, list[str]]] = []
        self._shared_memory: set[str] = set()
        path = os.pathsep.join(filter(None, [path, str(BENCHMARKS), os.environ.get("PYTHONPATH")]))
        with (folder / "log").open("wb") as log:
            self.began = time.monotonic_ns()
            self._process = subprocess.Popen(
                [sys.executable, str(script)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": path,
                    "PYTHONDONTWRITEBYTECODE": "",
                    "PYFEED_BENCHMARK_EVENTS": str(fifo),
                    "TMPDIR": str(self.temporary),
                    "RAY_TMPDIR": str(self.temporary),
                },
            )
        self.pid = self._process.pid
        self._running.add(self)
        self._exit_time: int | None = None
        self._watching = threading.Thread(target=self._watch, args=(os.pidfd_open(self.pid),), daemon=True)
        self._watching.start()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def wait_for(self, event: str, timeout: float | None = None) -> tuple[int, list[str]]:
        """Wait for an event, and return its time and its values. Other events are kept for later calls."""
        timeout = self._timeout if timeout is None else timeout
        until = time.monotonic() + timeout
        while True:
            self._receive(POLL_INTERVAL)
            for i, (name, at, values) in enumerate(self._events):
                if name == event:
                    del self._events[i]
                    return at, values
            self.raise_errors()
            if self._exit_time is not None and not self._receive(0):
                raise Failed(f"ended with status {self._process.wait()} before {event!r}: {self.log()}")
            if time.monotonic() > until:
                raise Failed(f"the program did not report {event!r} in {timeout:g} s")

    def raise_errors(self) -> None:
        """Raise an error if an event says that the program cannot run the case."""
        self._receive(0)
        for name, _, values in self._events:
            if name == "not supported":
                raise NotSupported(values[0])
            if name == "raised":
                raise Failed(f"raised {values[0]}")

    def _receive(self, seconds: float) -> bool:
        """Read events, waiting for at most `seconds`. Return False if there were none."""
        if not select.select([self._fifo], [], [], 0 if self._events else seconds)[0]:
            return False
        *lines, self._unparsed = (self._unparsed + os.read(self._fifo, 1 << 16)).split(b"\n")
        for line in lines:
            name, at, *values = line.decode().split("\t")
            self._events.append((name, int(at), values))
        return True

    def log(self) -> str:
        """The last line of the output of the process."""
        lines = (Path(self._folder.name) / "log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def resume(self) -> None:
        """Write a line to the standard input of the program, which waits for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def wait_until_asleep(self, timeout: float = 20) -> None:
        """Wait until the main threads of the process and of its workers sleep, in several polls in a row."""
        until = time.monotonic() + timeout
        asleep = 0
        while asleep < ASLEEP_POLLS:
            time.sleep(POLL_INTERVAL)
            asleep = asleep + 1 if all(map(_sleeps, processes.tree(self.pid))) else 0
            if time.monotonic() > until:
                raise Failed(f"did not come to rest in {timeout:g} s")

    def interrupt(self) -> int:
        """Send SIGINT as a terminal does for Ctrl-C; return the time."""
        at = time.monotonic_ns()
        os.killpg(self.pid, signal.SIGINT)
        return at

    def kill(self) -> list[processes.Member]:
        """Kill the process but not its workers, and return the workers."""
        workers = processes.tree(self.pid)[1:]
        self._shared_memory = _shared_memory_of(processes.tree(self.pid))
        self._process.kill()
        self._process.wait()
        return workers

    def wait_for_exit(self, timeout: float = 10) -> int:
        """Wait for the exit of the process; return its time."""
        self._watching.join(timeout)
        if self._exit_time is None:
            raise Failed(f"the program did not end in {timeout:g} s")
        return self._exit_time

    def _watch(self, pidfd: int) -> None:
        select.select([pidfd], [], [])
        self._exit_time = time.monotonic_ns()
        os.close(pidfd)

    def leftovers(self, workers: list[processes.Member]) -> dict[str, list[str]]:
        """The processes, shared memory and temporary files that remain after the process has ended."""
        alive = [_command(w) for w in workers if _alive(w)]
        return {
            "processes": alive,
            "shared memory": sorted(name for name in self._shared_memory if (SHARED_MEMORY / name).exists()),
            "files": sorted(str(p.relative_to(self.temporary)) for p in self.temporary.rglob("*") if not p.is_dir()),
        }

    def _orphans(self) -> list[processes.Member]:
        """The orphaned descendants, which are now children of this process."""
        others = {member for program in self._running for member in processes.tree(program.pid)}
        sessions = {program.pid for program in self._running}
        mine = (m for m in processes.tree(os.getpid())[1:] if m not in others and _session(m) not in sessions)
        return [m for m in mine if _session(m) != os.getsid(0)]

    def close(self) -> None:
        """End the process and its descendants, and remove their leftovers."""
        self._running.discard(self)
        members = [] if self._process.returncode is not None else processes.tree(self.pid)  # its PID may be reused
        used = self._shared_memory | _shared_memory_of([*members, *self._orphans()])
        self._process.kill()
        processes.kill(members)
        self._process.wait()
        while orphans := self._orphans():
            processes.kill(orphans)
            for orphan in orphans:
                with contextlib.suppress(ChildProcessError):  # the parent may be another orphan
                    os.waitpid(orphan.pid, 0)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._watching.join()
        for name in used:
            with contextlib.suppress(OSError):
                (SHARED_MEMORY / name).unlink()
        os.close(self._fifo)
        self._folder.cleanup()


def context_switches(pid: int) -> dict[tuple[int, int], int]:
    """The voluntary and involuntary context switches of each thread of a process and its workers."""
    found = {}
    for member in processes.tree(pid):
        for task in _tasks(member.pid):
            try:
                lines = (task / "status").read_text().splitlines()
            except (FileNotFoundError, ProcessLookupError):
                continue
            counts = [int(line.split()[1]) for line in lines if "voluntary_ctxt_switches" in line]
            found[member.pid, int(task.name)] = sum(counts)
    return found


def wake_ups(before: dict[tuple[int, int], int], after: dict[tuple[int, int], int]) -> int:
    """The number of times that threads woke between two calls of `context_switches`."""
    return sum(count - before.get(thread, 0) for thread, count in after.items())


Metrics = dict[str, "float | Failed"]
Measurement = Generator[None, None, Metrics]
"""The measurement of a program. It yields when the program has started and when it sleeps, and returns the metrics."""


def interleave(
    programs: Mapping[str, Callable[[], Measurement]], runs: int, together: bool = False
) -> Iterator[tuple[str, dict[str, list[float] | Failed] | Failed | NotSupported]]:
    """Measure programs in turns, every other run in the opposite order. Yield each name with its metrics, or its error.

    Parameters
    ----------
    programs : mapping of str to callable
        Each starts a program.
    runs : int
    together : bool
        Start all programs, and wait until they sleep, before the first one is measured. This is faster, and sleeping
        programs do not disturb the measurement.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in background jobs; children inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    found: dict[str, dict[str, list[float] | Failed]] = {name: {} for name in programs}
    failed: dict[str, Failed | NotSupported] = {}
    for run in range(runs):
        order = [name for name in list(programs)[:: 1 if run % 2 == 0 else -1] if name not in failed]
        for group in [order] if together else [[name] for name in order]:
            running = {name: programs[name]() for name in group}
            try:
                while running:
                    for name in list(running):
                        try:
                            next(running[name])
                        except StopIteration as end:
                            del running[name]
                            _add(found[name], end.value)
                        except (Failed, NotSupported) as error:
                            del running[name]
                            failed[name] = error
            finally:
                for left in running.values():
                    left.close()
    for name in programs:
        yield name, failed.get(name, found[name])


def _add(found: dict[str, list[float] | Failed], metrics: Metrics) -> None:
    """Add the metrics of a run. A metric that fails in one run fails as a whole."""
    for name, value in metrics.items():
        before = found.setdefault(name, [])
        if isinstance(value, Failed):
            found[name] = value
        elif isinstance(before, list):
            before.append(value)


def library_lines(
    metric: str,
    found: Mapping[str, dict[str, list[float] | Failed] | Failed | NotSupported],
    kind_of: Callable[[str], str],
) -> list[dict[str, Any]]:
    """The libraries of a case, with the values of one metric from `interleave`."""
    libraries: list[dict[str, Any]] = []
    for library, metrics in found.items():
        value = metrics.get(metric) if isinstance(metrics, dict) else metrics
        if isinstance(value, NotSupported):
            libraries.append({"library": library, "kind": kind_of(library), "not_supported": str(value)})
        elif isinstance(value, Failed):
            libraries.append({"library": library, "kind": kind_of(library), "failed": str(value)})
        elif value is not None:
            libraries.append({"library": library, "kind": kind_of(library), "values": value})
    return libraries


def case(name: str, unit: str, parameters: dict[str, Any], libraries: list[dict[str, Any]]) -> dict[str, Any]:
    """A case in which less is better, in the form of `harness.measure`."""
    return {
        "case": name,
        "unit": unit,
        "better": "lower",
        "cores": 0,
        "parameters": parameters,
        "libraries": libraries,
    }


def _tasks(pid: int) -> list[Path]:
    try:
        return list((processes.PROC / str(pid) / "task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []


def _stat(pid: int) -> list[str]:
    try:
        return (processes.PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _sleeps(member: processes.Member) -> bool:
    stat = _stat(member.pid)
    return not stat or stat[0] in "SZ"


def _alive(member: processes.Member) -> bool:
    stat = _stat(member.pid)
    return bool(stat) and stat[19] == member.started and stat[0] != "Z"


def _session(member: processes.Member) -> int:
    stat = _stat(member.pid)
    return int(stat[3]) if stat else -1


def _command(member: processes.Member) -> str:
    try:
        return (processes.PROC / str(member.pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:80]
    except (FileNotFoundError, ProcessLookupError):
        return "?"


def _shared_memory_of(members: list[processes.Member]) -> set[str]:
    """The entries of /dev/shm that the processes have mapped or open, or whose names contain one of their PIDs."""
    found: set[str] = set()
    for pid, _ in members:
        at = processes.PROC / str(pid)
        with contextlib.suppress(OSError):
            names = [line.partition("/dev/shm/")[2] for line in (at / "maps").read_text(errors="replace").splitlines()]
            names += [os.readlink(fd).partition("/dev/shm/")[2] for fd in (at / "fd").iterdir()]
            found.update(name for name in names if name and not name.endswith(" (deleted)"))
    numbers = {str(pid) for pid, _ in members}
    entries = SHARED_MEMORY.iterdir() if SHARED_MEMORY.is_dir() else []
    return found | {entry.name for entry in entries if numbers & set(re.findall(r"\d+", entry.name))}
