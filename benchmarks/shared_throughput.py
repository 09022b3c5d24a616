"""How fast tuples come from worker processes, beside what else carries arrays between processes.

    python benchmarks/shared_throughput.py [--json FILE] [--runs 5] [--seconds 0.5] [--sizes 1,32] [--workers 1,2]

A tuple is one array of uint8. In the rows "sent", a worker has it already, and sends it again and again; in the rows
"made", it fills it anew each time, wherever it can be filled. The trainer adds up one byte of each page of every array,
checks the sum, and lets go of it.

    pyfeed          SharedFeedQueue: producer.push for what is sent, producer.slot for what is made
    mp.Queue        multiprocessing.Queue.put
    torch fd, fs    torch.utils.data.DataLoader over an IterableDataset that yields the array; batch_size=None,
                    persistent_workers, one sharing strategy or the other, and the prefetch_factor that was fastest
    torch shared    the same, the faster strategy: what is made, is made in a tensor in shared memory
    spdl            spdl.pipeline.iterate_in_subprocess with a SharedMemorySegmentPool for each worker, of the number
                    of segments that was fastest
    limit           no hand-over at all: as many threads as there are workers copy the array into rotating buffers
                    (numpy.copyto), or fill those (ndarray.fill); as many as the ring has slots, or half as many,
                    which may fit into a cache, whatever was faster

Every way has a trainer process of its own, with its workers, which stays for all runs. In each run all take turns,
while the others are stopped, so that a machine that slows down slows them all. What is timed is tuples in the middle of
a stream: queues are as full before as after. A ratio is the median over runs of the two rates in the same run. A peer
that does not work here is listed as such, with the reason.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import multiprocessing
import os
import platform
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.uint8]

SLOTS = 8  # tuples on their way, of every queue
PAGE = 4096
PREFETCH = (2, 8)  # of the DataLoader, each tried
COUNT = (2, 4, 16)  # of SPDL's segments, each tried
OURS, LIMIT = "pyfeed", "limit"
KINDS = ("sent", "made")


def arrays(size: int, kind: str, rotating: int = 1) -> Iterator[Array]:
    """What a worker sends. What is made anew may still be on its way: it rotates."""
    mine = [np.full(size, 7, np.uint8) for _ in range(rotating if kind == "made" else 1)]
    for i in itertools.count():
        array = mine[i % len(mine)]
        if kind == "made":
            array.fill(1 + i % 255)
        yield array


# ---- Ours: workers, and what the trainer iterates over -----------------------------------------


def push(producer: Any, worker: int, size: int) -> None:
    for array in arrays(size, "sent"):
        producer.push((array,))


def fill(producer: Any, worker: int, size: int) -> None:
    for i in itertools.count():
        with producer.slot() as (array,):
            array.fill(1 + i % 255)


def from_pyfeed(size: int, workers: int, kind: str) -> Iterator[Array]:
    import pyfeed

    queue = pyfeed.SharedFeedQueue([(size,)], ["uint8"], ring_slots=SLOTS)
    queue.start(push if kind == "sent" else fill, (size,), num_workers=workers)
    for (array,) in queue:
        yield array
        del array


# ---- The peers -----------------------------------------------------------------------------------


def put(queue: Any, size: int, kind: str) -> None:
    for array in arrays(size, kind, 2 * SLOTS):
        queue.put(array)


def from_queue(size: int, workers: int, kind: str) -> Iterator[Array]:
    context = multiprocessing.get_context("spawn")
    queue: Any = context.Queue(SLOTS)
    for _ in range(workers):
        context.Process(target=put, args=(queue, size, kind), daemon=True).start()
    while True:
        yield queue.get()


def from_torch(size: int, workers: int, kind: str, strategy: str, shared: bool, prefetch: int) -> Iterator[Array]:
    import torch
    import torch.multiprocessing
    from torch.utils.data import DataLoader, IterableDataset

    class Endless(IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            torch.multiprocessing.set_sharing_strategy(strategy)
            if not shared:
                yield from arrays(size, kind, 2 * SLOTS)
            for i in itertools.count():  # as default_collate makes what it stacks into
                tensor = torch.empty(0, dtype=torch.uint8).set_(torch.UntypedStorage._new_shared(size))
                tensor.numpy().fill(1 + i % 255)
                yield tensor

    torch.multiprocessing.set_sharing_strategy(strategy)
    loader = DataLoader(
        Endless(),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=prefetch,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    for tensor in loader:
        yield tensor.numpy()
        del tensor


class Endless:
    """For SPDL: picklable."""

    def __init__(self, size: int, kind: str) -> None:
        self.size, self.kind = size, kind

    def __iter__(self) -> Iterator[Array]:
        return arrays(self.size, self.kind)  # SPDL has copied one before it asks for the next


def from_spdl(size: int, workers: int, kind: str, count: int) -> Iterator[Array]:
    from spdl.pipeline import SharedMemorySegmentPool, iterate_in_subprocess

    iterators = [
        iter(
            iterate_in_subprocess(
                partial(Endless, size, kind),
                buffer_size=count,
                mp_context="spawn",
                arena=SharedMemorySegmentPool(size, count, acquire_timeout=3600),
            )
        )
        for _ in range(workers)
    ]
    for iterator in itertools.cycle(iterators):
        yield next(iterator)


# ---- Timing ----------------------------------------------------------------------------------------


def consume(received: Iterator[Array]) -> Callable[[int], float]:
    """What times so many tuples in the middle of the stream."""

    def take(count: int) -> None:
        for _ in range(count):
            array = next(received)
            pages = array[::PAGE]
            if not 0 < int(pages.sum(dtype=np.int64)) == int(array[-1]) * len(pages):
                raise AssertionError("an array has other bytes than its worker wrote")
            del array, pages

    def timed(count: int) -> float:
        take(2 * max(SLOTS, *COUNT))  # those that have waited here, since the last time
        start = time.perf_counter()
        take(count)
        return time.perf_counter() - start

    return timed


def limit(size: int, workers: int, kind: str, buffers: int) -> Callable[[int], float]:
    def pages() -> Array:
        """At the beginning of a page, as a ring's slots are: copies there are faster."""
        memory = np.full(size + PAGE, 7, np.uint8)
        return memory[-memory.ctypes.data % PAGE :][:size]

    made = [[np.full(size, 7, np.uint8), *[pages() for _ in range(max(1, buffers // workers))]] for _ in range(workers)]

    def work(mine: Array, *buffers: Array, count: int) -> None:
        for i in range(count):
            if kind == "sent":
                np.copyto(buffers[i % len(buffers)], mine)
            else:
                buffers[i % len(buffers)].fill(1 + i % 255)

    def timed(count: int) -> float:
        each = -(-count // workers)
        threads = [threading.Thread(target=work, args=m, kwargs={"count": each}) for m in made]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return (time.perf_counter() - start) * count / (each * workers)

    return timed


def serve(make: Callable[[], Any], orders: Connection) -> None:
    """A trainer: how long so many tuples take, as often as it is asked."""
    os.setsid()  # it is stopped with its workers
    try:
        made = make()
        timed = made if callable(made) else consume(made)
        timed(1)
    except BaseException as error:
        orders.send(error if isinstance(error, ImportError) else RuntimeError(f"{type(error).__name__}: {error}"))
        return
    orders.send(None)
    while True:
        try:
            count = orders.recv()
        except (EOFError, ConnectionResetError):
            return
        orders.send(timed(count))


class Trainer:
    """A way's process."""

    running: ClassVar[set[Trainer]] = set()

    def __init__(self, make: Callable[[], Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.orders, there = context.Pipe()
        self.process = context.Process(target=serve, args=(make, there))
        self.running.add(self)
        self.process.start()
        there.close()
        self._answer()

    def _answer(self) -> Any:
        if not self.orders.poll(60):
            raise RuntimeError("no answer in 60 s")
        try:
            answer = self.orders.recv()
        except EOFError:
            self.process.join()
            raise RuntimeError(f"its process ended with status {self.process.exitcode}") from None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _all(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass  # it has ended

    def seconds(self, count: int) -> float:
        self._all(signal.SIGCONT)
        self.orders.send(count)
        seconds = float(self._answer())
        self._all(signal.SIGSTOP)
        return seconds

    def rate(self, seconds: float) -> float:
        """Tuples a second, roughly."""
        count = 8
        while (took := self.seconds(count)) < seconds / 4:
            count *= 4
        return count / took

    def close(self) -> None:
        self.running.remove(self)
        if self.process.pid is None:
            return
        self._all(signal.SIGCONT)
        self.orders.close()
        self.process.join(10)  # peers tidy up what they have in /dev/shm
        self._all(signal.SIGKILL)
        self.process.join()


def ways(size: int, workers: int, kind: str) -> Iterator[tuple[str, dict[str, Callable[[], Any]]]]:
    """Every way, with the settings that are to be tried for it."""
    yield OURS, {"": partial(from_pyfeed, size, workers, kind)}
    yield "mp.Queue", {"": partial(from_queue, size, workers, kind)}
    strategies = {"fd": "file_descriptor", "fs": "file_system"}
    torch = partial(from_torch, size, workers, kind)
    for short, name in strategies.items():
        yield f"torch {short}", {f"prefetch_factor={n}": partial(torch, name, False, n) for n in PREFETCH}
    if kind == "made":
        yield (
            "torch shared",
            {f"{s}, prefetch_factor={n}": partial(torch, s, True, n) for s in strategies.values() for n in PREFETCH},
        )
    yield "spdl", {f"count={n}": partial(from_spdl, size, workers, kind, n) for n in COUNT}
    yield LIMIT, {f"{n} buffers": partial(limit, size, workers, kind, n) for n in (SLOTS // 2, SLOTS)}


def fastest(settings: dict[str, Callable[[], Any]], seconds: float) -> tuple[str, float, Trainer]:
    """The setting that is, how many tuples a second it brings, and its trainer."""
    best: tuple[str, float, Trainer] | None = None
    for setting, make in settings.items():
        trainer = Trainer(make)
        found = setting, trainer.rate(seconds), trainer
        if best is None:
            best = found
            continue
        best, slower = (found, best) if found[1] > best[1] else (best, found)
        slower[2].close()
    assert best is not None
    return best


def measure(size: int, workers: int, kind: str, runs: int, seconds: float) -> list[dict[str, Any]]:
    """Rows of all ways, with bytes a second run by run."""
    trainers: dict[str, tuple[str, int, Trainer]] = {}
    rates: dict[str, list[float]] = {}
    rows: list[dict[str, Any]] = []
    try:
        for way, settings in ways(size, workers, kind):
            try:
                setting, rate, trainer = fastest(settings, seconds)
            except (ImportError, RuntimeError) as error:
                rows.append({"way": way, "missing": str(error)})
                continue
            trainers[way] = setting, max(4 * SLOTS, int(rate * seconds)), trainer
            rates[way] = []
        for _ in range(runs):
            for way, (_, count, trainer) in trainers.items():
                rates[way].append(count * size / trainer.seconds(count))
    finally:
        for trainer in list(Trainer.running):
            trainer.close()
    rows += [{"way": way, "setting": trainers[way][0], "bytes_per_second": all_} for way, all_ in rates.items()]
    return [{"size": size, "workers": workers, "kind": kind, **row} for row in rows]


def ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(o / t for o, t in zip(ours, theirs, strict=True))


def compare(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Ours beside the limit and the fastest of the peers."""
    rates = {row["way"]: row["bytes_per_second"] for row in rows if "missing" not in row}
    out = {key: rows[0][key] for key in ("size", "workers", "kind")}
    if OURS not in rates:
        return out
    peers = {way: statistics.median(all_) for way, all_ in rates.items() if way not in (OURS, LIMIT)}
    best = max(peers, key=lambda way: peers[way])
    return {
        **out,
        "x_limit": ratio(rates[OURS], rates[LIMIT]),
        "best_peer": best,
        "x_best_peer": ratio(rates[OURS], rates[best]),
    }


def show(rows: list[dict[str, Any]], ratios: dict[str, Any]) -> None:
    for row in rows:
        text = f"{row['size'] >> 20:>3} MiB {row['workers']:>7} {row['kind']:>4} {row['way']:>12}"
        if "missing" in row:
            print(f"{text}  not measured: {row['missing']}")
            continue
        all_ = [rate / 1e9 for rate in row["bytes_per_second"]]
        text += f" {statistics.median(all_):>6.2f} {min(all_):>6.2f}-{max(all_):<6.2f}"
        if row["way"] == OURS:
            text += f" {ratios['x_limit']:>6.2f} {ratios['x_best_peer']:>6.2f} x {ratios['best_peer']}"
        print(f"{text}  {row['setting']}".rstrip())
    sys.stdout.flush()


def start_tracker() -> None:
    """Start multiprocessing's, for all trainers, without a voice: it has much to say of SPDL, which unlinks twice."""
    from multiprocessing import resource_tracker

    kept = os.dup(2)
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)
        resource_tracker.ensure_running()
        os.dup2(kept, 2)
    os.close(kept)


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def machine() -> dict[str, Any]:
    with open("/proc/cpuinfo") as f:
        model = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), "")
    packages = {name: version(name) for name in ("numpy", "torch", "spdl-core", "pyfeed")}
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        **packages,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each way in each run")
    parser.add_argument("--sizes", default="1,32", help="MiB of an array")
    parser.add_argument("--workers", default="1,2")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # or trainers that are stopped would stay for ever
    start_tracker()
    here = machine()
    print(", ".join(f"{key} {value}" for key, value in here.items()))
    print("\nmedian GB/s; x: the rate over the limit's, and over that of the fastest peer")
    print(f"{'size':>7} {'workers':>7} {'':>4} {'way':>12} {'GB/s':>6} {'spread':>13} {'x limit':>6} {'x peer':>6}")
    rows, ratios = [], []
    for size in map(int, options.sizes.split(",")):
        for workers in map(int, options.workers.split(",")):
            for kind in KINDS:
                found = measure(size << 20, workers, kind, options.runs, options.seconds)
                ratios.append(compare(found))
                show(found, ratios[-1])
                rows += found
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        figures = {"benchmark": "shared_throughput", "machine": here, "runs": options.runs, "slots": SLOTS}
        options.json.write_text(json.dumps({**figures, "rows": rows, "ratios": ratios}, indent=1) + "\n")
        print(f"written to {options.json}")


if __name__ == "__main__":
    main()
