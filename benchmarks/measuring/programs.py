"""Programs: scripts in processes of their own, watched from the outside from their start to their end."""

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
from .trainer import PR_SET_CHILD_SUBREAPER, Failed, NotOffered

BENCHMARKS = Path(__file__).parent.parent
SHARED_MEMORY = Path("/dev/shm")
LOOK = 0.01  # seconds between two looks at a process
LOOKS = 10  # that find all asleep, until it is believed


class Program:
    """A script in a process and a session of its own, as one that is started from a terminal.

    It says words through a FIFO whose name is in its environment, each with a time of `time.monotonic_ns`, which is
    the same clock in all processes: its workers may speak as well.

    Parameters
    ----------
    source : str
        The script.
    patience : float
        Seconds after which a word, or the end, has failed to come.
    """

    _running: ClassVar[set[Program]] = set()

    def __init__(self, source: str, patience: float = 60) -> None:
        # What a process that has ended leaves behind must not become a child of init's, or nobody would find it.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._patience = patience
        self._folder = tempfile.TemporaryDirectory(prefix="pyfeed-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        self.temporary = folder / "t"
        self.temporary.mkdir()
        script, fifo = folder / "program.py", folder / "says"
        script.write_text(source)
        os.mkfifo(fifo)
        self._says = os.open(fifo, os.O_RDWR)  # else a reader would be told of an end after each word
        self._heard = b""
        self._words: list[tuple[str, int, list[str]]] = []
        self._shared_memory: set[str] = set()
        path = os.pathsep.join(filter(None, [str(BENCHMARKS), os.environ.get("PYTHONPATH")]))
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
                    "PYFEED_BENCHMARK_SAYS": str(fifo),
                    "TMPDIR": str(self.temporary),
                    "RAY_TMPDIR": str(self.temporary),
                },
            )
        self.pid = self._process.pid
        self._running.add(self)
        self._end: int | None = None
        self._watching = threading.Thread(target=self._watch, args=(os.pidfd_open(self.pid),), daemon=True)
        self._watching.start()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def heard(self, word: str, patience: float | None = None) -> tuple[int, list[str]]:
        """Wait for a word: when it was said, and what with it. Others are kept until somebody waits for them."""
        patience = self._patience if patience is None else patience
        until = time.monotonic() + patience
        while True:
            self._listen(LOOK)
            for i, (said, at, values) in enumerate(self._words):
                if said == word:
                    del self._words[i]
                    return at, values
            self.objections()
            if self._end is not None and not self._listen(0):
                raise Failed(f"ended with status {self._process.wait()} before {word!r}: {self.log()}")
            if time.monotonic() > until:
                raise Failed(f"{word!r} did not come in {patience:g} s")

    def objections(self) -> None:
        """Raise what the program has said of why it cannot do what it should."""
        self._listen(0)
        for said, _, values in self._words:
            if said == "not offered":
                raise NotOffered(values[0])
            if said == "raised":
                raise Failed(f"raised {values[0]}")

    def _listen(self, seconds: float) -> bool:
        """Whether there was anything to hear."""
        if not select.select([self._says], [], [], 0 if self._words else seconds)[0]:
            return False
        *lines, self._heard = (self._heard + os.read(self._says, 1 << 16)).split(b"\n")
        for line in lines:
            said, at, *values = line.decode().split("\t")
            self._words.append((said, int(at), values))
        return True

    def log(self) -> str:
        """The last line that the process has printed."""
        lines = (Path(self._folder.name) / "log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def tell(self) -> None:
        """Let go on a program that waits for its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def at_rest(self, patience: float = 20) -> None:
        """Wait until the main threads of the process and of its workers sleep, look after look."""
        until = time.monotonic() + patience
        asleep = 0
        while asleep < LOOKS:
            time.sleep(LOOK)
            asleep = asleep + 1 if all(map(_sleeps, processes.tree(self.pid))) else 0
            if time.monotonic() > until:
                raise Failed(f"did not come to rest in {patience:g} s")

    def interrupt(self) -> int:
        """What a terminal does when somebody presses Ctrl-C; when that was."""
        at = time.monotonic_ns()
        os.killpg(self.pid, signal.SIGINT)
        return at

    def kill(self) -> list[processes.Member]:
        """Kill the process, not its workers; who these are."""
        workers = processes.tree(self.pid)[1:]
        self._shared_memory = _shared_memory_of(processes.tree(self.pid))
        self._process.kill()
        self._process.wait()
        return workers

    def ended(self, patience: float = 10) -> int:
        """Wait for the end of the process; when that was."""
        self._watching.join(patience)
        if self._end is None:
            raise Failed(f"did not end in {patience:g} s")
        return self._end

    def _watch(self, pidfd: int) -> None:
        select.select([pidfd], [], [])
        self._end = time.monotonic_ns()
        os.close(pidfd)

    def left_behind(self, workers: list[processes.Member]) -> dict[str, list[str]]:
        """What there still is of a process that has ended: processes, shared memory and temporary files."""
        alive = [_command(w) for w in workers if _alive(w)]
        return {
            "processes": alive,
            "shared memory": sorted(name for name in self._shared_memory if (SHARED_MEMORY / name).exists()),
            "files": sorted(str(p.relative_to(self.temporary)) for p in self.temporary.rglob("*") if not p.is_dir()),
        }

    def _orphans(self) -> list[processes.Member]:
        """Those of its descendants that have become this process's, in its session or in one of their own."""
        others = {member for program in self._running for member in processes.tree(program.pid)}
        sessions = {program.pid for program in self._running}
        mine = (m for m in processes.tree(os.getpid())[1:] if m not in others and _session(m) not in sessions)
        return [m for m in mine if _session(m) != os.getsid(0)]

    def close(self) -> None:
        """End everything that comes from it, and remove what it has left behind."""
        self._running.discard(self)
        members = [] if self._process.returncode is not None else processes.tree(self.pid)  # or it is another's number
        used = self._shared_memory | _shared_memory_of([*members, *self._orphans()])
        self._process.kill()
        processes.kill(members)
        self._process.wait()
        while orphans := self._orphans():
            processes.kill(orphans)
            for orphan in orphans:
                with contextlib.suppress(ChildProcessError):  # it is still another orphan's
                    os.waitpid(orphan.pid, 0)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._watching.join()
        for name in used:
            with contextlib.suppress(OSError):
                (SHARED_MEMORY / name).unlink()
        os.close(self._says)
        self._folder.cleanup()


def switches(pid: int) -> dict[tuple[int, int], int]:
    """How often each thread of a process and its workers has been put to sleep, or set aside."""
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
    """How often threads were woken from one look to the next."""
    return sum(count - before.get(thread, 0) for thread, count in after.items())


Found = dict[str, "float | Failed"]
Running = Generator[None, None, Found]
"""A program that is measured: it yields where it has started, and then is at rest, and returns figures by name."""


def in_turns(
    ways: Mapping[str, Callable[[], Running]], runs: int, together: bool = False
) -> Iterator[tuple[str, dict[str, list[float] | Failed] | Failed | NotOffered]]:
    """Run programs in turns, every other time in the opposite order: the figures of each, one a run.

    Parameters
    ----------
    ways : mapping of str to callable
        Each starts a program.
    runs : int
    together : bool
        Have all of them started, and at rest, before the first is measured: they start faster so, and what sleeps does
        not disturb.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a job in the background, and so in all its children
        signal.signal(signal.SIGINT, signal.default_int_handler)
    found: dict[str, dict[str, list[float] | Failed]] = {name: {} for name in ways}
    failed: dict[str, Failed | NotOffered] = {}
    for run in range(runs):
        order = [name for name in list(ways)[:: 1 if run % 2 == 0 else -1] if name not in failed]
        for group in [order] if together else [[name] for name in order]:
            running = {name: ways[name]() for name in group}
            try:
                while running:
                    for name in list(running):
                        try:
                            next(running[name])
                        except StopIteration as end:
                            del running[name]
                            _keep(found[name], end.value)
                        except (Failed, NotOffered) as error:
                            del running[name]
                            failed[name] = error
            finally:
                for left in running.values():
                    left.close()
    for name in ways:
        yield name, failed.get(name, found[name])


def _keep(found: dict[str, list[float] | Failed], values: Found) -> None:
    """Add the figures of a run; one that has failed once has failed."""
    for what, value in values.items():
        before = found.setdefault(what, [])
        if isinstance(value, Failed):
            found[what] = value
        elif isinstance(before, list):
            before.append(value)


def figures(
    figure: str, found: Mapping[str, dict[str, list[float] | Failed] | Failed | NotOffered], kinds: Callable[[str], str]
) -> list[dict[str, Any]]:
    """What a row says of one of the figures that `in_turns` has found, way by way."""
    ways: list[dict[str, Any]] = []
    for way, all_of_it in found.items():
        value = all_of_it.get(figure) if isinstance(all_of_it, dict) else all_of_it
        if isinstance(value, NotOffered):
            ways.append({"way": way, "kind": kinds(way), "not offered": str(value)})
        elif isinstance(value, Failed):
            ways.append({"way": way, "kind": kinds(way), "failed": str(value)})
        elif value is not None:
            ways.append({"way": way, "kind": kinds(way), "values": value})
    return ways


def row(name: str, unit: str, parameters: dict[str, Any], ways: list[dict[str, Any]]) -> dict[str, Any]:
    """A row of figures of which less is better, as `measuring.measure` makes them of rates."""
    return {"row": name, "unit": unit, "better": "lower", "cores": 0, "parameters": parameters, "ways": ways}


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
    """What they have of it, mapped or open, and what bears the number of one of them in its name."""
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
