"""SIGKILL of workers, trainers and writers at any moment: what they leave, and what others are told."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np

import pyfeed
from pyfeed import Scope, SharedFeedQueue

from . import crews
from .finding import Finding, expect, nothing_left, until

MARK = "PYFEED_LONG_ROUND"


def marked(mark: str) -> list[int]:
    """Processes that this round has started, and theirs."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environment = (folder / "environ").read_bytes().split(b"\0")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if wanted in environment and state not in "ZX" and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found


def shared() -> set[str]:
    return set(os.listdir("/dev/shm"))


def later(draw: random.Random, seconds: float) -> float:
    """A moment, more often an early one."""
    return draw.random() ** 2 * seconds


# ---- Workers ---------------------------------------------------------------------------------


def worker(draw: random.Random, folder: Path) -> None:
    with nothing_left(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a worker that was killed is replaced with a warning
        lose_workers(draw)


def lose_workers(draw: random.Random) -> None:
    workers, persistent = draw.randint(1, 3), draw.random() < 0.5
    method, ways = draw.choice(["fork", "fork", "spawn"]), draw.choice(["p", "s", "ps"])
    queue = SharedFeedQueue(
        [(), (), (-1,), ()],
        ["int64", "int64", "uint8", "int64"],
        ring_slots=draw.choice([1, 2, 3, 8]),
        slot_bytes=8192,
        scope=Scope(),
    )
    processes: list[Any] = []
    killed = False
    for number in range(draw.randint(1, 3)):
        if number:
            queue.reopen()
        if number == 0 or not persistent:
            processes = queue.start(crews.work, (ways,), num_workers=workers, method=method, persistent=persistent)
        killer = None
        if draw.random() < 0.8:
            wait = later(draw, 0.3 if method == "fork" else 2.0)
            killer = threading.Thread(target=kill, args=(processes[draw.randrange(workers)], wait))
            killer.start()
        killed = (killed and persistent) or killer is not None  # one that dies at the end of a pass may fail the next
        consume(queue, workers, killed)
        if killer:
            killer.join()
    queue.shutdown()
    if not until(lambda: not multiprocessing.active_children()):  # it reaps them, too
        raise Finding("hangs", f"workers {multiprocessing.active_children()} are still there")


def kill(victim: Any, wait: float) -> None:
    time.sleep(wait)
    if victim.is_alive():
        os.kill(victim.pid, signal.SIGKILL)


def consume(queue: SharedFeedQueue, workers: int, killed: bool) -> None:
    """All tuples up to the end or the death of a worker: whole, each worker's in order and none missing."""
    following = [0] * workers
    try:
        for worker, number, data, sum_ in queue:
            expect(zlib.crc32(data.tobytes()) == int(sum_), "losses", f"tuple {number} of {worker} is torn")
            expect(
                np.array_equal(data, crews.contents(int(worker), int(number))),
                "losses",
                f"tuple {number} of {worker} holds something else",
            )
            expect(
                following[int(worker)] == int(number),
                "losses",
                f"tuple {number} of {worker} came when {following[int(worker)]} was next",
            )
            following[int(worker)] += 1
    except pyfeed.WorkerError as error:
        expect(killed, "crashes", f"without a kill: {error}")
        return
    expect(
        following == [crews.TUPLES] * workers,
        "losses",
        f"the pass ended without an error after {following} tuples of each worker",
    )


# ---- Trainers and writers --------------------------------------------------------------------


def started(mark: str, *arguments: object) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.crews", *map(str, arguments)],
        env={**os.environ, MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert process.stdout
    line = process.stdout.readline()
    expect(line == b"ready\n", "crashes", f"{arguments} did not begin, but said {line!r}")
    return process


def killed(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdout
    process.stdout.close()


def trainer(draw: random.Random, folder: Path) -> None:
    mark = f"{os.getpid()}-{draw.randrange(1 << 40)}"
    before = shared()
    method, workers = draw.choice(["fork", "spawn", "forkserver"]), draw.randint(1, 3)
    process = started(mark, "train", method, workers, draw.randrange(2))
    time.sleep(later(draw, 1.5))
    killed(process)
    if not until(lambda: not marked(mark)):
        left = marked(mark)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise Finding("leaks", f"{method}: processes {left} outlive their trainer")
    expect(shared() <= before, "leaks", f"left in /dev/shm: {shared() - before}")


def writer(draw: random.Random, folder: Path) -> None:
    suffix = draw.choice(["recordio", "npy", "npz", "tfrecord", "raw", "recordio.gz", "csv"])
    path, rows = folder / f"a.{suffix}", draw.choice([1, 100, 5000])
    if suffix in ("npz", "tfrecord", "csv"):
        suffix, path = "recordio", folder / "a.recordio"  # these want names
    old = draw.random() < 0.5
    if old:
        with pyfeed.open_writer(path) as file:
            file.write((np.full(100, 7, "int64"),))
    process = started("writer", "write", path, rows)
    time.sleep(later(draw, 0.3))
    killed(process)
    if not path.exists():
        expect(not old, "losses", "the old file is gone")
        return
    told: dict[str, Any] = {"shapes": [(100,)], "dtypes": ["int64"]} if "raw" in suffix else {}
    found = [int(row[0]) for (row,) in pyfeed.open_files(path, scope=Scope(), **told)]
    expect(found == list(range(rows)) or (old and found == [7]), "losses", f"{path.name}: {len(found)} of {rows} rows")
    for partial in folder.glob(".*.partial"):  # a killed process cannot remove its own
        partial.unlink()
    expect({p.name for p in folder.iterdir()} == {path.name}, "leaks", f"left: {os.listdir(folder)}")


def play(draw: random.Random, folder: Path) -> None:
    draw.choice([worker, worker, trainer, writer])(draw, folder)
