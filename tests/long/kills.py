"""SIGKILL of workers, trainers and writers at any moment: what is left behind, and the errors of other processes."""

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import pyfeed
from pyfeed import Scope
from pyfeed.shared import SharedFeedQueue

from . import subprocesses
from .failures import Failure, expect, no_leaks, wait_until

MARK = "PYFEED_LONG_ROUND"


def marked(mark: str) -> list[int]:
    """Return the running processes that this round has started, and their descendants."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environment = (folder / "environ").read_bytes().split(b"\0")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if wanted in environment and state not in "ZX" and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found


def shared_memory() -> set[str]:
    return set(os.listdir("/dev/shm"))


def delay(rng: random.Random, seconds: float) -> float:
    """Return a random time in seconds; short times are more frequent."""
    return rng.random() ** 2 * seconds


# ---- Workers ---------------------------------------------------------------------------------


def worker(rng: random.Random, folder: Path) -> None:
    with no_leaks(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a worker that was killed is replaced with a warning
        lose_workers(rng)


def lose_workers(rng: random.Random) -> None:
    workers, persistent = rng.randint(1, 3), rng.random() < 0.5
    method, push_modes = rng.choice(["fork", "fork", "spawn"]), rng.choice(["p", "s", "ps"])
    queue = SharedFeedQueue(
        [(), (), (-1,), ()],
        dtypes=["int64", "int64", "uint8", "int64"],
        ring_cells=rng.choice([1, 2, 3, 8]),
        cell_bytes=8192,
        scope=Scope(),
    )
    processes: list[Any] = []
    killed = False
    for number in range(rng.randint(1, 3)):
        if number:
            queue.reopen()
        if number == 0 or not persistent:
            processes = queue.start(
                subprocesses.work, (push_modes,), num_workers=workers, method=method, persistent=persistent
            )
        killer = None
        if rng.random() < 0.8:
            wait = delay(rng, 0.3 if method == "fork" else 2.0)
            killer = threading.Thread(target=kill, args=(processes[rng.randrange(workers)], wait))
            killer.start()
        # A persistent worker that is killed at the end of a pass may fail the next pass.
        killed = (killed and persistent) or killer is not None
        consume(queue, workers, killed)
        if killer:
            killer.join()
    queue.shutdown()
    if not wait_until(lambda: not multiprocessing.active_children()):  # the call also reaps them
        raise Failure("hangs", f"workers {multiprocessing.active_children()} are still running")


def kill(victim: Any, wait: float) -> None:
    time.sleep(wait)
    if victim.is_alive():
        os.kill(victim.pid, signal.SIGKILL)


def consume(queue: SharedFeedQueue, workers: int, killed: bool) -> None:
    """Read until the pass ends or a worker dies; check that tuples are complete and in each worker's order."""
    following = [0] * workers
    try:
        for worker, number, data, sum_ in queue:
            expect(zlib.crc32(data.tobytes()) == int(sum_), "losses", f"tuple {number} of {worker}: wrong checksum")
            expect(
                np.array_equal(data, subprocesses.contents(int(worker), int(number))),
                "losses",
                f"tuple {number} of {worker}: wrong contents",
            )
            expect(
                following[int(worker)] == int(number),
                "losses",
                f"worker {worker}: expected tuple {following[int(worker)]}, found {number}",
            )
            following[int(worker)] += 1
    except pyfeed.errors.WorkerError as error:
        expect(killed, "crashes", f"no worker was killed, but: {error}")
        return
    expect(
        following == [subprocesses.TUPLES] * workers,
        "losses",
        f"the pass ended without an error after {following} tuples of each worker",
    )


# ---- Workers of map --------------------------------------------------------------------------


def map_worker(rng: random.Random, folder: Path) -> None:
    with no_leaks():
        rng.choice([lose_map_workers, lose_dataset_workers])(rng)
        if not wait_until(lambda: not multiprocessing.active_children()):  # the call also reaps them
            raise Failure("hangs", f"workers {multiprocessing.active_children()} are still running")


def lose_map_workers(rng: random.Random) -> None:
    """Kill the processes of a map reader again and again. What a pass delivers before an error must be right."""
    workers, count = rng.randint(1, 3), rng.choice([20, 200])
    step = rng.choice([1, 7])
    reader = (
        pyfeed.from_generator(lambda: ((i,) for i in range(count)), [()], dtypes=["int64"], scope=Scope())
        .map(
            subprocesses.checksum,
            shapes=[(), (-1,), ()],
            dtypes=["int64", "uint8", "int64"],
            num_workers=workers,
            method=rng.choice(["fork", "fork", "spawn"]),
            capacity=rng.choice([None, 1, 5]),
            cell_bytes=1 << 16,
        )
        .batch(step)
    )

    def check(number: int, sum_: Any) -> None:
        right = int(sum_) == zlib.crc32(subprocesses.contents(0, number).tobytes())
        expect(right, "losses", f"tuple {number}: wrong checksum")

    with killing(rng):
        for _ in range(rng.randint(2, 6)):
            check_pass(reader, range(count), check)
            reader.reset()


def lose_dataset_workers(rng: random.Random) -> None:
    """Do the same for processes that write batches of samples."""
    count = rng.choice([20, 200])
    size = rng.choice([20, 8192])  # numbers; the larger samples are written one by one
    reader = pyfeed.from_dataset(
        subprocesses.Samples(count, size),
        rng.choice([7, 30]),
        num_workers=rng.randint(1, 3),
        method=rng.choice(["fork", "fork", "spawn"]),
        scope=Scope(),
    )

    def check(number: int, row: Any) -> None:
        expect(bool((row == number).all()), "losses", f"sample {number}: wrong values")

    with killing(rng):
        for _ in range(rng.randint(2, 6)):
            check_pass(reader, range(count), check)
            reader.reset()


def check_pass(reader: Any, numbers: range, check: Callable[[int, Any], None]) -> None:
    """Read a pass, and check what it delivers before an error."""
    following = 0
    try:
        while True:
            for number, row in zip(*reader.read()[::2], strict=True):
                expect(following == int(number), "losses", f"expected tuple {following}, found {number}")
                check(following, row)
                following += 1
    except pyfeed.errors.EndOfData:
        expect(following == len(numbers), "losses", f"the pass ended without an error after {following} tuples")
    except pyfeed.errors.WorkerError:
        pass


@contextlib.contextmanager
def killing(rng: random.Random) -> Iterator[None]:
    """Kill worker processes again and again."""
    over = threading.Event()
    killer = threading.Thread(target=kill_map_workers, args=(random.Random(rng.random()), over))
    killer.start()
    try:
        yield
    finally:
        over.set()
        killer.join()


def kill_map_workers(rng: random.Random, over: threading.Event) -> None:
    while not over.wait(delay(rng, 0.3)):
        children = multiprocessing.active_children()
        for child in rng.sample(children, min(len(children), rng.choice([1, 1, 2]))):
            with contextlib.suppress(ProcessLookupError):  # multiprocessing has just reaped it
                kill(child, 0)


# ---- Trainers and writers --------------------------------------------------------------------


def start(mark: str, *arguments: object) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.subprocesses", *map(str, arguments)],
        env={**os.environ, MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert process.stdout
    line = process.stdout.readline()
    expect(line == b"ready\n", "crashes", f"{arguments} did not start, but printed {line!r}")
    return process


def kill_process(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdout
    process.stdout.close()


def trainer(rng: random.Random, folder: Path) -> None:
    mark = f"{os.getpid()}-{rng.randrange(1 << 40)}"
    before = shared_memory()
    method, workers = rng.choice(["fork", "spawn", "forkserver"]), rng.randint(1, 3)
    command = rng.choice(["train", "train", "train_with_map"])
    process = start(mark, command, method, workers, rng.randrange(2))
    time.sleep(delay(rng, 1.5))
    kill_process(process)
    if not wait_until(lambda: not marked(mark)):
        left = marked(mark)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise Failure("leaks", f"{method}: processes {left} outlive their trainer")
    expect(shared_memory() <= before, "leaks", f"left in /dev/shm: {shared_memory() - before}")


def writer(rng: random.Random, folder: Path) -> None:
    suffix = rng.choice(["recordio", "npy", "npz", "tfrecord", "raw", "recordio.gz", "csv", "arrow"])
    path, rows = folder / f"a.{suffix}", rng.choice([1, 100, 5000])
    if suffix in ("npz", "tfrecord", "csv"):
        suffix, path = "recordio", folder / "a.recordio"  # these formats need names of columns
    old = rng.random() < 0.5
    if old:
        with pyfeed.open_writer(path) as file:
            file.write((np.full(100, 7, "int64"),))
    process = start("writer", "write", path, rows)
    time.sleep(delay(rng, 0.3))
    kill_process(process)
    if not path.exists():
        expect(not old, "losses", "the old file is gone")
        return
    options: dict[str, Any] = {"shapes": [(100,)], "dtypes": ["int64"]} if "raw" in suffix else {}
    found = [int(row[0]) for (row,) in pyfeed.open_files(path, scope=Scope(), **options)]
    expect(found == list(range(rows)) or (old and found == [7]), "losses", f"{path.name}: {len(found)} of {rows} rows")
    for partial in folder.glob(".*.partial"):  # a killed process cannot remove its temporary file
        partial.unlink()
    expect({p.name for p in folder.iterdir()} == {path.name}, "leaks", f"left: {os.listdir(folder)}")


def run_round(rng: random.Random, folder: Path) -> None:
    rng.choice([worker, worker, map_worker, trainer, writer])(rng, folder)
