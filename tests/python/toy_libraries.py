"""Libraries for test_benchmarks: they write what they observe to files of a folder."""

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
BURNT = 0.3  # seconds of processor time

Timed = Callable[[int], float]


def state(pid: int) -> str | None:
    """Of a process: R, S, T, …; None if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def child(folder: Path, name: str, code: str) -> subprocess.Popen[bytes]:
    """A process of a library, whose PID is in the folder."""
    process = subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.DEVNULL)
    (folder / f"{name}.pid").write_text(str(process.pid))
    return process


def writes(folder: Path, name: str, line: str) -> None:
    with (folder / "turns").open("a") as out:
        out.write(f"{name} {line}\n")


def watches(folder: Path, name: str) -> Timed:
    """It has a worker that is always busy, and waits in each turn but the first until all others are stopped."""
    worker = child(folder, f"{name}-worker", "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass")
    (folder / f"{name}.pid").write_text(str(os.getpid()))

    begun = iter(["start"])  # others may be started meanwhile

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
    """A worker of its own takes processor time and memory in each turn, and may stay after that."""
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
    """Says that a unit takes so long, at first: when it is made, and the next time."""
    seconds = iter([first, first])
    return lambda count: next(seconds, later) * count


def takes(seconds: float, waited: float | None = None) -> Callable[[int], Any]:
    """Says that a unit has taken so long."""
    from harness import Seconds

    return lambda count: seconds * count if waited is None else Seconds(seconds * count, waited * count)


def on_cores(folder: Path, name: str) -> Timed:
    """Writes down which cores each of its threads may use; the other thread is there from the start."""
    ended = threading.Event()
    other = threading.Thread(target=ended.wait, daemon=True)
    other.start()

    def timed(count: int) -> float:
        cores = [sorted(os.sched_getaffinity(thread)) for thread in (0, other.native_id or 0)]
        writes(folder, name, json.dumps(cores))
        return 0.1 * count

    return timed


def meets(folder: Path, name: str, other: str) -> Timed:
    """It is made only while another is being made."""
    (folder / f"{name}.here").touch()
    end = time.monotonic() + STUCK
    while not (folder / f"{other}.here").exists():
        if time.monotonic() > end:
            raise TimeoutError(f"expected that {other} is started at the same time")
        time.sleep(0.01)
    return lambda count: 0.1 * count


def hangs(folder: Path, name: str) -> Timed:
    """It is never made."""
    child(folder, f"{name}-worker", "import time; time.sleep(1000)")
    (folder / f"{name}.pid").write_text(str(os.getpid()))
    time.sleep(1000)
    raise AssertionError


def strikes(folder: Path, other: str) -> Timed:
    """SIGINT to the parent process, while another library is being made."""
    end = time.monotonic() + STUCK
    while not (folder / f"{other}.pid").exists():
        if time.monotonic() > end:
            raise TimeoutError(f"expected that {other} is started at the same time")
        time.sleep(0.01)
    os.kill(os.getppid(), signal.SIGINT)
    return lambda count: 1.0


def start_method() -> Timed:
    """Fails unless processes are started as in any program."""
    import multiprocessing

    method = multiprocessing.get_start_method()
    expected = multiprocessing.get_all_start_methods()[0]  # the platform's own is the first
    if method != expected:
        raise ValueError(f"expected {expected}, found {method}")
    return lambda count: 1.0


def counts(folder: Path, name: str, milliseconds: float) -> Timed:
    """A unit takes so long, it says."""

    def timed(count: int) -> float:
        writes(folder, name, str(count))
        return milliseconds / 1000 * count

    return timed


def interrupts(folder: Path) -> Timed:
    """SIGINT to the parent process, in the second turn."""
    child(folder, "interrupts", "import time; time.sleep(1000)")
    turns = iter(range(3))  # one is not measured

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
    """An error in the turn after so many."""
    child(folder, "raises", "import time; time.sleep(1000)")
    done = iter(range(turns))

    def timed(count: int) -> float:
        if next(done, None) is None:
            raise ValueError("no more\n  File there, line 1\nof it\n")
        return 1.0

    return timed


def dies(folder: Path, turns: int) -> Timed:
    """Its process ends, with a worker that is still at work, in the turn after so many."""
    child(folder, "dies", "import time; time.sleep(1000)")
    done = iter(range(turns))

    def timed(count: int) -> float:
        if next(done, None) is None:
            os._exit(3)
        return 1.0

    return timed
