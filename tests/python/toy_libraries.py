"""Fake libraries for test_benchmarks. Each function returns a timed function, as a library of the benchmarks does.

They write their observations to files in a folder.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STUCK = 30.0
BURNT = 0.3  # seconds of processor time that a worker of `burns` takes

Timed = Callable[[int], float]


def state(pid: int) -> str | None:
    """Return the state of a process (R, S, T, …), or None if it does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def write_pid(folder: Path, name: str, pid: int) -> None:
    """Write a PID to the folder in one step, so that other processes never read an empty file."""
    unfinished = folder / f"{name}.unfinished"
    unfinished.write_text(str(pid))
    unfinished.replace(folder / f"{name}.pid")


def child(folder: Path, name: str, code: str) -> subprocess.Popen[bytes]:
    """Start a process of a library, and write its PID to the folder."""
    process = subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.DEVNULL)
    write_pid(folder, name, process.pid)
    return process


def writes(folder: Path, name: str, line: str) -> None:
    with (folder / "turns").open("a") as out:
        out.write(f"{name} {line}\n")


def watches(folder: Path, name: str) -> Timed:
    """Keep a worker busy. In each turn but the first, wait until the processes of all other libraries are stopped."""
    worker = child(folder, f"{name}-worker", "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass")
    write_pid(folder, name, os.getpid())

    begun = iter(["start"])  # in the first turn, other libraries may still be starting

    def timed(count: int) -> float:
        if next(begun, None):
            writes(folder, name, f"{count} start")
            return 0.1 * count
        mine = {os.getpid(), worker.pid}
        others = {int(file.read_text()) for file in folder.glob("*.pid")} - mine
        end = time.monotonic() + STUCK
        while running := [pid for pid in others if state(pid) not in ("T", None)]:
            if time.monotonic() > end:
                raise TimeoutError(f"expected processes that are stopped, found {running}")
        busy = state(worker.pid)
        writes(folder, name, f"{count} {busy}")
        return 0.1 * count

    return timed


def burns(folder: Path, name: str, stays: bool) -> Timed:
    """In each turn, start a worker that takes processor time and memory; it may stay after the turn."""
    size = 64 << 20
    code = (
        f"import sys, time; x = b'x' * {size}\nbegan = time.process_time()\n"
        f"while time.process_time() < began + {BURNT}: pass\nprint(len(x), flush=True)\n"
        + ("time.sleep(1000)\n" if stays else "")
    )

    def timed(count: int) -> float:
        worker = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
        assert worker.stdout is not None
        assert int(worker.stdout.readline()) == size
        if not stays:
            worker.wait()
        return 1.0

    return timed


def hastens(first: float, later: float) -> Timed:
    """Report `first` seconds for a unit in the first two turns, and `later` seconds after that."""
    seconds = iter([first, first])
    return lambda count: next(seconds, later) * count


def takes(seconds: float, waited: float | None = None) -> Callable[[int], Any]:
    """Report these seconds for each unit."""
    from harness import Seconds

    return lambda count: seconds * count if waited is None else Seconds(seconds * count, waited * count)


def on_cores(folder: Path, name: str) -> Timed:
    """Write the cores that each of its two threads may use. The second thread exists from the start."""
    ended = threading.Event()
    other = threading.Thread(target=ended.wait, daemon=True)
    other.start()

    def timed(count: int) -> float:
        cores = [sorted(os.sched_getaffinity(thread)) for thread in (0, other.native_id or 0)]
        writes(folder, name, json.dumps(cores))
        return 0.1 * count

    return timed


def meets(folder: Path, name: str, other: str) -> Timed:
    """Return only if another library is started at the same time."""
    (folder / f"{name}.here").touch()
    end = time.monotonic() + STUCK
    while not (folder / f"{other}.here").exists():
        if time.monotonic() > end:
            raise TimeoutError(f"expected that {other} is started at the same time")
        time.sleep(0.01)
    return lambda count: 0.1 * count


def hangs(folder: Path, name: str) -> Timed:
    """Hang while it is started."""
    child(folder, f"{name}-worker", "import time; time.sleep(1000)")
    write_pid(folder, name, os.getpid())
    time.sleep(1000)
    raise AssertionError


def strikes(folder: Path, other: str) -> Timed:
    """Send SIGINT to the parent process while another library is being started."""
    end = time.monotonic() + STUCK
    while not (folder / f"{other}.pid").exists():
        if time.monotonic() > end:
            raise TimeoutError(f"expected that {other} is started at the same time")
        time.sleep(0.01)
    os.kill(os.getppid(), signal.SIGINT)
    return lambda count: 1.0


def start_method() -> Timed:
    """Fail unless multiprocessing has the platform's default start method."""
    import multiprocessing

    method = multiprocessing.get_start_method()
    expected = multiprocessing.get_all_start_methods()[0]  # the first one is the platform's default
    if method != expected:
        raise ValueError(f"expected {expected}, found {method}")
    return lambda count: 1.0


def counts(folder: Path, name: str, milliseconds: float) -> Timed:
    """Write each count, and report these milliseconds for each unit."""

    def timed(count: int) -> float:
        writes(folder, name, str(count))
        return milliseconds / 1000 * count

    return timed


def interrupts(folder: Path) -> Timed:
    """Send SIGINT to the parent process, in the second measured turn."""
    child(folder, "interrupts", "import time; time.sleep(1000)")
    turns = iter(range(3))  # the first turn is not measured

    def timed(count: int) -> float:
        if next(turns) == 2:
            os.kill(os.getppid(), signal.SIGINT)
        return 1.0

    return timed


def not_supported() -> Timed:
    from harness import NotSupported

    raise NotSupported("it has no queue")


def not_made(folder: Path) -> Timed:
    child(folder, "not_made", "import time; time.sleep(1000)")
    raise KeyError("no such thing\nand a second line")


def raises(folder: Path, turns: int) -> Timed:
    """Raise an error after this number of turns."""
    child(folder, "raises", "import time; time.sleep(1000)")
    done = iter(range(turns))

    def timed(count: int) -> float:
        if next(done, None) is None:
            raise ValueError("no more\n  File there, line 1\nof it\n")
        return 1.0

    return timed


def dies(folder: Path, turns: int) -> Timed:
    """End the process, with a worker that is still running, after this number of turns."""
    child(folder, "dies", "import time; time.sleep(1000)")
    done = iter(range(turns))

    def timed(count: int) -> float:
        if next(done, None) is None:
            os._exit(3)
        return 1.0

    return timed


class _Numbered:
    """A pipeline of batches of consecutive records in another order. Its state is the number of batches."""

    def __init__(self, workload: Any, lost: int) -> None:
        self._workload = workload
        self._lost = lost
        self._done = 0

    def next_batch(self) -> Any:
        import numpy as np

        size = self._workload.batch
        records = [self._workload.record(self._done * size + i) for i in reversed(range(size))]
        self._done += 1
        return np.frombuffer(b"".join(records), np.uint8).reshape(size, -1)

    def take(self) -> dict[str, int]:
        return {"done": self._done}

    def load(self, state: dict[str, int]) -> None:
        self._done = state["done"] + self._lost


def resumes(workload: Any) -> Callable[[], _Numbered]:
    return lambda: _Numbered(workload, 0)


def loses_a_batch(workload: Any) -> Callable[[], _Numbered]:
    return lambda: _Numbered(workload, 1)


def is_missing(workload: Any) -> Callable[[], _Numbered]:
    raise ImportError("toy")
