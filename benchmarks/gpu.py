"""Tests and measures everything that needs a GPU, in one run.

    python benchmarks/gpu.py [--wheel dist/pyarrayfeed-*.whl] [--out build/gpu] [--parts torch,stress] [--seconds 470]
    python benchmarks/gpu.py --emulated [--quick]

The script needs a checkout, a wheel (or an installed pyfeed), Python with NumPy and PyTorch, and pytest for the tests.
It uses CuPy and JAX if they are installed. It needs no network, no compiler and no Go, and takes less than eight
minutes. It writes each result to gpu.json in the folder as soon as the result is known. The folder also gets trace.json
(one loop, for https://ui.perfetto.dev) and gpu.log. Every part runs in its own process with its own time limit, so a
part that fails does not stop the others. The exit status is 1 if a check failed or a part did not end. A missed goal is
reported, but is not a failure.

    tests       tests/python/on_device.py, on this device
    torch       tuples in PyTorch, without a copy and with the right values: dtypes, default and side streams, the input
                of a captured graph, refused streams, memory; TensorLoader, on the device and in pinned memory
    cupy, jax   the same for CuPy and JAX, as far as it applies; ArrayLoader
    bandwidth   bytes per busy time of the copy stream, and per elapsed time, compared with the peak rate of copies of
                256 MiB from torch's pinned memory. The loaders hand over reserved tuples without writing to them
    overlap     the time of a tuple, divided by the longest of load, copy and compute, each measured alone before
    next        the time that next() takes for a tuple that is ready, and for how long the wait for the tuple stalls the
                computing stream
    peers       tuples of 16 MiB from arrays in memory, in turns: pyfeed with threads and with worker processes,
                PyTorch's DataLoader (pin_memory, non_blocking, the fastest of several settings), copies from pageable
                memory
    stress      a million small tuples, or as many as the time allows, on several streams, some kept for longer. The
                device computes checksums, and at the end the memory must not have grown

--emulated runs the parts on the host emulation, and needs no torch. It tests this script; the measurements have no
meaning.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import gc
import importlib.metadata
import itertools
import json
import os
import platform
import random
import selectors
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
MIB = 1 << 20
SECONDS = 470.0

# ---- The results of a part ---------------------------------------------------------------------


class Part:
    """A part, in its own process. It writes each result to a pipe at once, as a line of JSON."""

    def __init__(self, fd: int, emulated: bool, quick: bool, out: Path, seconds: float) -> None:
        self._to = os.fdopen(fd, "w", buffering=1)
        self.emulated, self.quick, self.out = emulated, quick, out
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds until the part is stopped, less a margin of 3 s."""
        return max(0.0, self._end - time.monotonic() - 3)

    def _emit(self, **what: Any) -> None:
        self._to.write(json.dumps(what) + "\n")

    def check(self, what: str, right: bool, found: Any = None) -> None:
        self._emit(check=what, right=bool(right), found=None if found is None else str(found))

    def equal(self, what: str, found: Any, expected: Any) -> None:
        self.check(what, found == expected, None if found == expected else f"expected {expected}, found {found}")

    def metric(self, name: str, value: Any, unit: str = "", goal: str | None = None) -> None:
        """Emit a measurement. `goal` is a condition such as "<= 20"; it does not apply to emulated devices."""
        met = None
        if goal is not None and not self.emulated:
            sign, limit = goal.split()
            met = value <= float(limit) if sign == "<=" else value >= float(limit)
        self._emit(metric=name, value=value, unit=unit, goal=None if self.emulated else goal, met=met)

    def missing(self, why: str) -> None:
        self._emit(missing=why)


def module(part: Part, name: str) -> Any:
    """Import a package that takes tuples. If the import fails, report the package as missing and return None."""
    try:
        found = __import__(name)
        if name == "torch" and not part.emulated and not found.cuda.is_available():
            raise ImportError("torch.cuda.is_available() is False")
    except Exception as error:
        part.missing(f"{name}: {type(error).__name__}: {error}")
        return None
    part.metric(f"{name} version", found.__version__)
    return found


# ---- Feeding -----------------------------------------------------------------------------------


def ready(nbytes: int) -> Any:
    return np.resize(np.arange(251, dtype=np.uint8), nbytes)


def push(array: Any) -> Callable[[Any, int], None]:
    """Make a load function that pushes the same array every time, which copies it once."""
    return lambda queue, _: queue.push((array,))


def hand_over(queue: Any, _: int) -> None:
    """Queue a reserved tuple without writing to it, so that loading takes no time."""
    with queue.reserve():
        pass


@contextlib.contextmanager
def loaded(
    shapes: list[tuple[int, ...]],
    dtypes: list[str],
    load: Callable[[Any, int], None],
    *,
    threads: int = 1,
    place: Any = None,
    capacity: int = 8,
) -> Iterator[Any]:
    """A reader of the tuples that threads load until the end of the with block."""
    import pyfeed

    if place is None:
        place = pyfeed.CUDAPlace(0)
    scope = pyfeed.Scope()
    reader, queue = pyfeed.py_array_reader(capacity, shapes, place, dtypes=dtypes, scope=scope)
    if place.kind == pyfeed.CUDAPlace(0).kind:
        reader = reader.double_buffer(place, depth=3)
    turns = itertools.count()  # next() is atomic, so the threads can share it

    def run() -> None:
        try:
            while True:
                load(queue, next(turns))
        except pyfeed.errors.QueueClosed:
            pass
        except BaseException as error:
            queue.fail(error)

    workers = [threading.Thread(target=run, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield reader
    finally:
        queue.shutdown()
        for worker in workers:
            worker.join()


def seconds_each(tuples: Iterator[Any], take: Callable[[Any], None], count: int, wait: Callable[[], None]) -> float:
    """Seconds for each tuple. The producers keep running, so that as many tuples are in flight afterwards as before."""
    for _ in range(min(count, 24)):
        take(next(tuples))
    wait()
    start = time.perf_counter()
    for _ in range(count):
        take(next(tuples))
    wait()
    return (time.perf_counter() - start) / count


def loader_threads() -> int:
    return max(1, min(6, len(os.sched_getaffinity(0)) - 2))


def nothing_left(part: Part) -> None:
    """Check that all memory has been given back."""
    import pyfeed

    def left() -> dict[str, int]:
        gc.collect()
        stats: dict[str, int] = {**pyfeed.diagnostics.memory_stats()}  # type: ignore[dict-item]
        return {k: v for k, v in stats.items() if v and k not in ("handles", "idle_bytes")}

    end = time.monotonic() + 5
    while left() and time.monotonic() < end:
        time.sleep(0.01)
    part.equal("memory is given back", left(), {})


# ---- Computation: on a GPU by torch, or by NumPy for emulated devices ----------------------------


class Gpu:
    """The functions of PyTorch that the measuring parts need."""

    def __init__(self, part: Part) -> None:
        import torch

        self.torch = torch
        torch.cuda.init()
        self.streams = [torch.cuda.current_stream(), *[torch.cuda.Stream() for _ in range(2)]]
        size = 2048
        self._a = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
        self._b = torch.empty_like(self._a)

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def take(self, x: Any) -> Any:
        return self.torch.from_dlpack(x)

    def compute_on(self, stream: Any) -> None:
        self.torch.cuda.set_stream(stream)

    def use(self, x: Any) -> None:
        """Make the stream wait for the tuple, and release the tuple: the cheapest use of a tuple."""
        stream = self.streams[0].cuda_stream
        x.use(stream)
        x.release(stream)

    def compute(self, tensor: Any, times: int) -> None:
        if tensor is not None:
            tensor.view(self.torch.int64).sum()
        for _ in range(times):
            self.torch.mm(self._a, self._a, out=self._b)

    def compute_seconds(self, times: int, tensor: Any, count: int = 30) -> float:
        for _ in range(5):
            self.compute(tensor, times)
        self.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            self.compute(tensor, times)
        self.synchronize()
        return (time.perf_counter() - start) / count

    def resident(self, nbytes: int) -> Any:
        return self.torch.ones(nbytes, dtype=self.torch.uint8, device="cuda")

    def peak(self, copies: int) -> float:
        """The bytes per second of copies of 256 MiB from torch's own pinned memory."""
        torch, nbytes = self.torch, 256 * MIB
        host = torch.ones(nbytes, dtype=torch.uint8).pin_memory()
        device = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        device.copy_(host, non_blocking=True)
        begin.record()
        for _ in range(copies):
            device.copy_(host, non_blocking=True)
        end.record()
        self.synchronize()
        return float(copies * nbytes / (begin.elapsed_time(end) / 1e3))

    def stalls(self, tuples: Iterator[Any], count: int) -> tuple[list[float], list[float]]:
        """Microseconds between two events on a busy stream: around the wait for a tuple, and with nothing between."""
        torch, stream = self.torch, self.streams[0]
        marks = [[torch.cuda.Event(enable_timing=True) for _ in range(4)] for _ in range(count)]
        for a, b, c, d in marks:
            (x,) = next(tuples)
            self.compute(None, 20)
            a.record(stream)
            b.record(stream)
            self.compute(None, 20)
            c.record(stream)
            x.use(stream.cuda_stream)
            d.record(stream)
            self.compute(None, 1)
            x.release(stream.cuda_stream)
        self.synchronize()
        waits = [1e3 * c.elapsed_time(d) for _, _, c, d in marks]
        return waits, [1e3 * a.elapsed_time(b) for a, b, _, _ in marks]


class EmulatedGpu:
    """The same functions on the host, to test this script without a GPU."""

    streams: list[Any]

    def __init__(self, part: Part) -> None:
        self.streams = [type("Stream", (), {"cuda_stream": n})() for n in (1, 2)]
        self._a = np.ones((64, 64), np.float32)

    def synchronize(self) -> None:
        pass

    def take(self, x: Any) -> Any:
        return np.from_dlpack(x)

    use = Gpu.use

    def compute_on(self, stream: Any) -> None:
        pass

    def compute(self, tensor: Any, times: int) -> None:
        if tensor is not None:
            tensor[::4096].sum()
        for _ in range(times):
            self._a @ self._a

    compute_seconds = Gpu.compute_seconds

    def resident(self, nbytes: int) -> Any:
        return np.ones(nbytes, np.uint8)

    def peak(self, copies: int) -> float:
        to, source = self.resident(32 * MIB), self.resident(32 * MIB)
        start = time.perf_counter()
        for _ in range(copies):
            np.copyto(to, source)
        return float(copies * to.nbytes / (time.perf_counter() - start))

    def stalls(self, tuples: Iterator[Any], count: int) -> tuple[list[float], list[float]]:
        for _ in range(count):
            (x,) = next(tuples)
            x.use(1)
            x.release(1)
        return [0.0] * count, [0.0] * count


def device(part: Part) -> Any:
    return (EmulatedGpu if part.emulated else Gpu)(part)


# ---- Parts that check results --------------------------------------------------------------------


def run_tests(part: Part) -> None:
    log = part.out / "gpu.log"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "tests/python/on_device.py"]
    if part.quick:
        command += ["-k", "test_what_it_is or test_streams"]
    with log.open("a") as to:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=to, text=True)
        to.write(done.stdout)
    last = (done.stdout.strip().splitlines() or ["no output"])[-1]
    part.check("tests/python/on_device.py passes", done.returncode == 0, last)
    part.metric("tests", last)


DTYPES = ("uint8", "int8", "int32", "int64", "float16", "float32", "float64", "complex64", "bool", "bfloat16")


def feed_once(array: Any, dtype: str) -> Any:
    """Push an array through a queue, and return it as an array on the device."""
    import pyfeed

    _, queue = pyfeed.py_array_reader(1, [array.shape], pyfeed.CUDAPlace(0), dtypes=[dtype], scope=pyfeed.Scope())
    queue.push((array,))
    (x,) = queue.pop()
    return x


def numbered(size: int) -> tuple[list[tuple[int, ...]], list[str], Callable[[Any, int], None]]:
    """Shapes, dtypes and load function of tuples whose sum identifies the tuple and shows whether it is complete."""
    base = np.arange(size, dtype=np.int32)

    def load(queue: Any, i: int) -> None:
        with queue.reserve() as (x,):
            np.add(base, i % 1000, out=x)

    return [(size,)], ["int32"], load


def sum_of(size: int, i: int) -> int:
    return size * (size - 1) // 2 + size * (i % 1000)


def dtypes_of(
    part: Part,
    who: str,
    take: Callable[[Any], Any],
    pointer: Callable[[Any], int],
    to_bytes: Callable[[Any], bytes],
    dtypes: Sequence[str],
) -> None:
    """Check that a package takes every dtype without a copy. A dtype that fails does not prevent the others."""
    for dtype in dtypes:
        raw = np.arange(64, dtype=np.uint8)
        try:
            if dtype == "bfloat16":
                import ml_dtypes

                a = raw.view(ml_dtypes.bfloat16)
            else:
                a = raw % 2 == 0 if dtype == "bool" else raw.view(dtype)
            x = feed_once(a, dtype)
            taken = take(x)
            part.equal(f"{who}: {dtype} is not copied", pointer(taken), x.pointer)
            part.equal(f"{who}: the values of {dtype}", to_bytes(taken), a.tobytes())
        except Exception as error:
            part.check(f"{who} takes {dtype}", False, f"{type(error).__name__}: {error}")


def tensor_bytes(tensor: Any) -> bytes:
    import torch

    return bytes(tensor.reshape(-1).view(torch.uint8).cpu().numpy().tobytes())


def run_torch(part: Part) -> None:
    torch = module(part, "torch")
    if torch is None:
        return
    import pyfeed

    dtypes_of(part, "torch", torch.from_dlpack, lambda t: t.data_ptr(), tensor_bytes, DTYPES)
    size, count = (1024, 50) if part.quick else (1 << 18, 400)
    shapes, dtypes, load = numbered(size)
    with loaded(shapes, dtypes, load) as reader:
        sums = [torch.from_dlpack(x).sum() for (x,) in itertools.islice(reader.current_pass(), count)]
        wrong = [i for i, s in enumerate(sums) if int(s) != sum_of(size, i)]
        part.equal(f"{count} tuples on the current stream", wrong[:5], [])
    del sums
    torch_loader(part, torch, size, count)
    if not part.emulated:
        torch_streams(part, torch, size, count)
        torch_graph(part, torch, size, count)
        a = np.arange(5000, dtype=np.float32)
        x = feed_once(a, "float32")
        t = torch.as_tensor(x, device="cuda")
        part.check("__cuda_array_interface__: torch makes no copy", t.data_ptr() == x.pointer)
        part.check("__cuda_array_interface__: torch sees the values", bool((t.cpu().numpy() == a).all()))
        del t
        x.release(torch.cuda.current_stream().cuda_stream)
        gc.collect()
        part.equal(
            "after an explicit release nothing is on loan", pyfeed.diagnostics.memory_stats()["tuples_on_loan"], 0
        )
        del x


def made(size: int, count: int) -> Any:
    """Make a reader whose tuples have the sums of `sum_of`."""
    import pyfeed

    base = np.arange(size, dtype=np.int32)
    tuples = ((base + i % 1000,) for i in range(count))
    return pyfeed.from_generator(lambda: tuples, [(size,)], dtypes=["int32"], scope=pyfeed.Scope())


def torch_loader(part: Part, torch: Any, size: int, count: int) -> None:
    """Check `TensorLoader`: on the device, and in pinned memory from which copies are pending at its release."""
    from pyfeed.torch import TensorLoader

    expected = [sum_of(size, i) for i in range(count)]
    with TensorLoader(made(size, count), "cuda:0") as loader:
        sums = [(x.device.type, x.sum()) for (x,) in loader]
    part.equal("TensorLoader delivers to the device", {kind for kind, _ in sums}, {"cpu" if part.emulated else "cuda"})
    part.equal("TensorLoader: the values", [int(s) for _, s in sums], expected)
    if part.emulated:
        return
    pinned = True
    copies: list[Any] = []
    with TensorLoader(made(size, count), pin_memory=True) as loader:
        for (x,) in loader:
            if len(copies) % 20 == 0:
                torch.cuda._sleep(20_000_000)  # the copies below wait
            pinned = pinned and x.is_pinned()
            copies.append(x.to("cuda", non_blocking=True).sum())
            del x
    part.check("TensorLoader: torch knows that the memory is pinned", pinned)
    part.equal("TensorLoader: copies from tensors that were deleted", [int(s) for s in copies], expected)


def torch_streams(part: Part, torch: Any, size: int, count: int) -> None:
    """Check concurrent side streams, tensors that outlive their arrays, and a second stream for the same tuple."""
    shapes, dtypes, load = numbered(size)
    streams = [torch.cuda.Stream() for _ in range(3)]
    sums = []
    with loaded(shapes, dtypes, load) as reader:
        for i, (x,) in enumerate(itertools.islice(reader.current_pass(), count)):
            with torch.cuda.stream(streams[i % 3]):
                t = torch.from_dlpack(x)
                del x
                sums.append(t.sum())
                del t
        torch.cuda.synchronize()
        wrong = [i for i, s in enumerate(sums) if int(s) != sum_of(size, i)]
        part.equal(f"{count} tuples on side streams", wrong[:5], [])
        sums.clear()
        for (x,) in itertools.islice(reader.current_pass(), count):
            with torch.cuda.stream(streams[0]):
                t = torch.from_dlpack(x)
            x.use(streams[1].cuda_stream)
            with torch.cuda.stream(streams[1]):
                sums.append(t.sum())
            x.release(streams[1].cuda_stream)
            del t, x
        torch.cuda.synchronize()
        wrong = [i for i, s in enumerate(sums) if int(s) != sum_of(size, count + i)]
        part.equal(f"{count} tuples taken on one stream and used on another", wrong[:5], [])


def torch_graph(part: Part, torch: Any, size: int, count: int) -> None:
    """Check the static input of a captured graph, and that calls with a stream under capture are refused."""
    import pyfeed

    shapes, dtypes, load = numbered(size)
    static = torch.zeros(size, dtype=torch.int32, device="cuda")
    static.sum()  # allocates what the capture will need
    torch.cuda.synchronize()
    graph, kept = torch.cuda.CUDAGraph(), feed_once(np.arange(16.0), "float64")
    refused, sums = [], []
    with loaded(shapes, dtypes, load) as reader:
        tuples = reader.current_pass()
        with torch.cuda.graph(graph):
            capturing = torch.cuda.current_stream().cuda_stream
            calls: list[Callable[[], Any]] = [
                lambda: kept.use(capturing),
                lambda: kept.__dlpack__(stream=capturing),
                lambda: kept.release(capturing),
            ]
            for call in calls:
                try:
                    call()
                except pyfeed.errors.StateError:
                    refused.append(True)
                else:
                    refused.append(False)
            meanwhile = [next(tuples) for _ in range(12)]  # the copies continue during the capture
            out = static.sum()
        part.equal("a stream that is captured is refused", refused, [True] * 3)
        for (x,) in itertools.chain(meanwhile, itertools.islice(tuples, count)):
            static.copy_(torch.from_dlpack(x))
            graph.replay()
            sums.append(out.clone())
        wrong = [i for i, s in enumerate(sums) if int(s) != sum_of(size, i)]
        part.equal(f"{len(sums)} tuples through a graph that was captured while the reader ran", wrong[:5], [])
    part.check("what was refused is whole", bool((kept.numpy() == np.arange(16.0)).all()))


def run_cupy(part: Part) -> None:
    if part.emulated:
        part.missing("cupy: it takes memory of GPUs only")
        return
    cupy = module(part, "cupy")
    if cupy is None:
        return
    for name, take in (("from_dlpack", cupy.from_dlpack), ("asarray", cupy.asarray)):
        dtypes_of(
            part, f"cupy.{name}", take, lambda c: c.data.ptr, lambda c: bytes(cupy.asnumpy(c).tobytes()), DTYPES[:-1]
        )
    size, count = (1024, 50) if part.quick else (1 << 18, 400)
    shapes, dtypes, load = numbered(size)
    streams = [cupy.cuda.Stream.null, *[cupy.cuda.Stream(non_blocking=True) for _ in range(2)]]
    sums = []
    with loaded(shapes, dtypes, load) as reader:
        for i, (x,) in enumerate(itertools.islice(reader.current_pass(), count)):
            with streams[i % 3]:
                sums.append(cupy.from_dlpack(x).sum())
        for stream in streams:
            stream.synchronize()
        wrong = [i for i, s in enumerate(sums) if int(s) != sum_of(size, i)]
        part.equal(f"{count} tuples on default and side streams", wrong[:5], [])


def run_jax(part: Part) -> None:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if part.emulated:
        os.environ["JAX_PLATFORMS"] = "cpu"
    jax = module(part, "jax")
    if jax is None:
        return
    import jax.numpy as jnp

    if jax.devices()[0].platform == "cpu" and not part.emulated:
        part.missing(f"jax: its devices are {jax.devices()}")
        return
    narrow = [dtype for dtype in DTYPES if dtype not in ("int64", "float64")]  # the default of jax: no 64-bit types
    dtypes_of(
        part,
        "jax",
        jax.dlpack.from_dlpack,
        lambda j: j.unsafe_buffer_pointer(),
        lambda j: np.asarray(j).tobytes(),
        narrow,
    )
    size, count = (1024, 50) if part.quick else (1 << 14, 300)
    shapes, dtypes, load = numbered(size)
    total = jax.jit(lambda x: jnp.sum(x))
    with loaded(shapes, dtypes, load) as reader:
        sums = [total(jax.dlpack.from_dlpack(x)) for (x,) in itertools.islice(reader.current_pass(), count)]
        wrong = [i for i, s in enumerate(sums) if int(s) != sum_of(size, i)]
        part.equal(f"{count} tuples through a compiled function", wrong[:5], [])
    from pyfeed.jax import ArrayLoader

    from pyfeed import CUDAPlace

    for where, reader in (("host", made(size, count)), ("device", made(size, count).double_buffer(CUDAPlace(0)))):
        sums = [total(x) for (x,) in ArrayLoader(reader)]
        part.equal(
            f"ArrayLoader: arrays of the {where}", [int(s) for s in sums], [sum_of(size, i) for i in range(count)]
        )


# ---- Parts that measure ----------------------------------------------------------------------------


def run_bandwidth(part: Part) -> None:
    import pyfeed

    gpu = device(part)
    rounds, total = (2, 32 * MIB) if part.quick else (5, 24 << 30)
    peaks: list[float] = []
    busy: dict[int, list[float]] = {}
    clock: dict[int, list[float]] = {}
    for _ in range(rounds):
        peaks.append(gpu.peak(2 if part.quick else 12))
        for size in (1, 2) if part.quick else (1, 4, 16, 64):
            count = max(16, total // (size * MIB) // (8 if size == 1 else 1))
            with loaded([(size * MIB,)], ["uint8"], hand_over, threads=loader_threads()) as reader:
                each = seconds_each(reader.current_pass(), lambda t: gpu.use(t[0]), count, gpu.synchronize)
                clock.setdefault(size, []).append(size * MIB / each)
                with pyfeed.diagnostics.trace(max_events=200_000) as trace:
                    seconds_each(reader.current_pass(), lambda t: gpu.use(t[0]), count // 4 + 8, gpu.synchronize)
            (found,) = trace.summary["devices"]
            busy.setdefault(size, []).append(found["bytes_per_second"])
    part.metric("pinned peak, 256 MiB copies", statistics.median(peaks) / 1e9, "GB/s")
    part.metric("pinned peak, all", [p / 1e9 for p in peaks], "GB/s")
    goals = {4: ">= 0.90", 16: ">= 0.95"}
    for size, all_ in busy.items():
        ratios = [b / p for b, p in zip(all_, peaks, strict=True)]
        walls = [c / p for c, p in zip(clock[size], peaks, strict=True)]
        part.metric(f"{size} MiB: while copying", statistics.median(all_) / 1e9, "GB/s")
        part.metric(f"{size} MiB: while copying, of the peak", statistics.median(ratios), "", goals.get(size))
        part.metric(f"{size} MiB: by the clock, of the peak", statistics.median(walls), "")
        part.metric(f"{size} MiB: while copying, all", [b / 1e9 for b in all_], "GB/s")


def run_overlap(part: Part) -> None:
    import pyfeed

    gpu = device(part)
    size, count = (MIB, 30) if part.quick else (16 * MIB, 400)
    array, threads = ready(size), loader_threads()
    resident = gpu.resident(size)
    one = functools.partial(loaded, [(size,)], ["uint8"], threads=threads)

    def drop(_: Any) -> None:
        pass

    with one(push(array), place=pyfeed.CUDAPinnedPlace()) as reader:
        load = seconds_each(reader.current_pass(), drop, count, drop_nothing)
    with one(hand_over) as reader:
        copy = seconds_each(reader.current_pass(), lambda t: gpu.use(t[0]), count, gpu.synchronize)
    part.metric("load alone", 1e6 * load, "us")
    part.metric("copy alone", 1e6 * copy, "us")
    base, more = gpu.compute_seconds(1, resident), gpu.compute_seconds(11, resident)
    step = max((more - base) / 10, 1e-7)
    for name, share, goal in (
        ("compute takes longest", 2.0, "<= 1.05"),
        ("load or copy takes longest", 0.5, "<= 1.05"),
        ("all take as long", 1.0, "<= 1.05"),  # the trace is recorded with this one
    ):
        times = max(1, round((share * max(load, copy) - base) / step) + 1)
        times = min(times, 50 if part.quick else 10_000)
        compute = gpu.compute_seconds(times, resident)

        def take(t: Any, times: int = times) -> None:
            gpu.compute(gpu.take(t[0]), times)

        found = []
        for _ in range(1 if part.quick else 3):
            with one(push(array)) as reader:
                found.append(seconds_each(reader.current_pass(), take, count, gpu.synchronize))
        part.metric(f"{name}: compute alone", 1e6 * compute, "us")
        part.metric(f"{name}: a tuple", 1e6 * statistics.median(found), "us")
        ratio = statistics.median(found) / max(load, copy, compute)
        part.metric(f"overlap, {name}", ratio, "", goal)
    with pyfeed.diagnostics.trace(part.out / "trace.json", max_events=50_000) as trace, one(push(array)) as reader:
        seconds_each(reader.current_pass(), take, 24, gpu.synchronize)
    summary = trace.summary
    (at,) = summary["devices"]
    part.metric("a copied byte is written on the host", summary["copies"]["bytes"] / max(1, at["bytes"]), "times")
    part.metric("what the trace says", summary["sentence"])
    part.metric("share of the copies' time that cost nothing", at["overlap"])
    part.check("the trace has copies", at["bytes"] > 0)


def drop_nothing() -> None:
    pass


def run_next(part: Part) -> None:
    gpu = device(part)
    size, count = (64 << 10, 50) if part.quick else (4 * MIB, 3000)
    asked: list[float] = []
    taken: list[float] = []
    gone: list[float] = []
    with loaded([(size,)], ["uint8"], hand_over, threads=2) as reader:
        tuples = reader.current_pass()
        for i in range(count + 20):
            gpu.compute(None, 20)
            gpu.synchronize()  # by now the next tuple is ready
            a = time.perf_counter_ns()
            (x,) = next(tuples)
            b = time.perf_counter_ns()
            t = gpu.take(x)
            c = time.perf_counter_ns()
            del x, t
            d = time.perf_counter_ns()
            if i >= 20:
                asked.append((b - a) / 1e3)
                taken.append((c - b) / 1e3)
                gone.append((d - c) / 1e3)
        waits, nothing = gpu.stalls(tuples, min(count, 1000))
    for name, all_, goals in (
        ("next()", asked, ("<= 20", "<= 100")),
        ("from_dlpack", taken, (None, None)),
        ("the last reference goes", gone, (None, None)),
    ):
        part.metric(f"{name}, median", statistics.median(all_), "us", goals[0])
        part.metric(f"{name}, p99", float(np.percentile(all_, 99)), "us", goals[1])
    part.metric("events with nothing between, median", statistics.median(nothing), "us")
    part.metric("events round the wait, median", statistics.median(waits), "us")
    part.metric("stall, median", max(0.0, statistics.median(waits) - statistics.median(nothing)), "us", "<= 5")
    part.metric("stall, p99", max(0.0, float(np.percentile(waits, 99)) - statistics.median(nothing)), "us")


# ---- The part that compares with peers -------------------------------------------------------------


def push_for_ever(producer: Any, worker: int, size: int) -> None:
    array = ready(size)
    while True:
        producer.push((array,))


@contextlib.contextmanager
def data_loader(torch: Any, size: int, workers: int, prefetch: int) -> Iterator[Iterator[Any]]:
    """Tensors on the device, as PyTorch's documentation recommends."""

    class Endless(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            return itertools.repeat(ready(size))

    loader = torch.utils.data.DataLoader(
        Endless(),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=prefetch,
        persistent_workers=True,
        pin_memory=True,
        multiprocessing_context="fork",
    )
    yield (host.to("cuda", non_blocking=True) for host in loader)
    del loader


def run_peers(part: Part) -> None:
    import pyfeed

    torch = None if part.emulated else module(part, "torch")
    if torch is None and not part.emulated:
        return
    gpu = device(part)
    size, count = (MIB, 20) if part.quick else (16 * MIB, 150)
    cores = len(os.sched_getaffinity(0))
    array = ready(size)
    with contextlib.ExitStack() as stack:
        libraries: dict[str, tuple[Iterator[Any], Callable[[Any], Any]]] = {}
        if torch is not None:  # its workers are forked, so they start before other threads exist
            best: tuple[float, int, int] | None = None
            for workers, prefetch in itertools.product((2, 4, 8), (2, 4)):
                if workers > cores or (best is not None and part.left() < 30):
                    continue
                with data_loader(torch, size, workers, prefetch) as tensors:
                    each = seconds_each(tensors, lambda t: gpu.compute(t, 0), 60, gpu.synchronize)
                    del tensors
                part.metric(f"DataLoader, {workers} workers, prefetch_factor {prefetch}", size / each / 1e9, "GB/s")
                best = min(best or (each, workers, prefetch), (each, workers, prefetch))
            assert best is not None
            part.metric("DataLoader's setting", f"{best[1]} workers, prefetch_factor {best[2]}")
            tensors = stack.enter_context(data_loader(torch, size, best[1], best[2]))
            libraries["DataLoader"] = tensors, lambda t: t
            pageable = torch.from_numpy(array)
            libraries["pageable"] = itertools.repeat(None), lambda _: pageable.to("cuda")
        reader = stack.enter_context(loaded([(size,)], ["uint8"], push(array), threads=loader_threads()))
        libraries["pyfeed, threads"] = reader.current_pass(), lambda t: gpu.take(t[0])
        shared = pyfeed.shared.SharedFeedQueue(
            [(size,)], dtypes=["uint8"], ring_cells=16, place=pyfeed.CUDAPlace(0), scope=pyfeed.Scope()
        )
        processes = shared.start(push_for_ever, (size,), num_workers=1 if part.quick else min(6, cores))
        double = shared.reader.double_buffer(pyfeed.CUDAPlace(0), depth=3)
        libraries["pyfeed, processes"] = double.current_pass(), lambda t: gpu.take(t[0])

        rates: dict[str, list[float]] = {library: [] for library in libraries}
        walls: dict[str, list[float]] = {library: [] for library in libraries}
        resident = gpu.resident(size)
        base, more = gpu.compute_seconds(1, resident), gpu.compute_seconds(11, resident)
        times = max(1, round((1e-3 - base) / max((more - base) / 10, 1e-7)))
        compute = gpu.compute_seconds(times, resident)
        part.metric("compute", 1e6 * compute, "us")
        for _ in range(1 if part.quick else 5):
            if rates["pyfeed, threads"] and part.left() < 10:
                break
            for library, (tuples, take) in libraries.items():

                def light(t: Any, take: Callable[[Any], Any] = take) -> None:
                    gpu.compute(take(t), 0)

                def heavy(t: Any, take: Callable[[Any], Any] = take) -> None:
                    gpu.compute(take(t), times)

                rates[library].append(size / seconds_each(tuples, light, count, gpu.synchronize))
                walls[library].append(seconds_each(tuples, heavy, count, gpu.synchronize))
        for library in libraries:
            part.metric(f"{library}: rate", statistics.median(rates[library]) / 1e9, "GB/s")
            part.metric(f"{library}: rate, all", [r / 1e9 for r in rates[library]], "GB/s")
            part.metric(f"{library}: a tuple with compute, over compute", statistics.median(walls[library]) / compute)
            if library.startswith("pyfeed") and "DataLoader" in rates:
                pairs = zip(rates[library], rates["DataLoader"], strict=True)
                part.metric(f"{library}: rate over DataLoader's", statistics.median(a / b for a, b in pairs), "times")
        shared.shutdown()
        for process in processes:
            process.join(10)
        part.equal("workers end when the queue does", [p.exitcode for p in processes], [0] * len(processes))


# ---- The stress part -------------------------------------------------------------------------------


def run_stress(part: Part) -> None:
    import pyfeed

    gpu = device(part)
    size, wanted = 1024, 2000 if part.quick else 1_000_000
    shapes, dtypes, load = numbered(size)
    torch = getattr(gpu, "torch", None)
    sums: Any = np.zeros(wanted, np.int64) if torch is None else torch.zeros(wanted, dtype=torch.int64, device="cuda")
    gpu.synchronize()
    held: collections.deque[tuple[Any, Any]] = collections.deque()
    chance = random.Random(1)
    before = None
    done, start = 0, time.perf_counter()
    end = start + part.left() - 5
    with loaded(shapes, dtypes, load, capacity=32) as reader:
        for (x,) in reader:
            if done % 64 == 0:
                stream = gpu.streams[done // 64 % len(gpu.streams)]
                gpu.compute_on(stream)
            if torch is None:
                sums[done] = gpu.take(x).sum()
            else:
                torch.sum(gpu.take(x), 0, dtype=torch.int64, out=sums[done])
            if chance.random() < 0.1:  # keep some tuples for longer, and release some explicitly
                held.append((x, stream))
                if len(held) > 4:
                    oldest, its = held.popleft()
                    oldest.release(its.cuda_stream)
            elif done % 3 == 0:
                x.release(stream.cuda_stream)
            del x
            done += 1
            if done == min(wanted // 2, 10_000):
                before = pyfeed.diagnostics.memory_stats()
            if done == wanted or (done % 256 == 0 and time.perf_counter() > end):
                break
        gpu.synchronize()
        took = time.perf_counter() - start
        after = pyfeed.diagnostics.memory_stats()
        held.clear()
    found = sums[:done] if torch is None else sums[:done].cpu().numpy()
    expected = size * (size - 1) // 2 + size * (np.arange(done) % 1000)
    wrong = np.flatnonzero(found != expected)
    part.metric("tuples", done)
    part.metric("rate", done / took, "tuples/s")
    part.equal("checksums computed at the device", wrong[:5].tolist(), [])
    part.check("there were as many as wanted, or time was up", done == wanted or time.perf_counter() > end, done)
    if before is not None:
        grown = {k: (before[k], after[k]) for k in ("device_bytes", "pinned_bytes")}
        part.check("steady state takes no more memory", all(b >= a for b, a in grown.values()), grown)


# Each part with its time limit in seconds.
PARTS: dict[str, tuple[Callable[[Part], None], float]] = {
    "tests": (run_tests, 75),
    "torch": (run_torch, 45),
    "cupy": (run_cupy, 35),
    "jax": (run_jax, 45),
    "bandwidth": (run_bandwidth, 60),
    "overlap": (run_overlap, 60),
    "next": (run_next, 30),
    "peers": (run_peers, 90),
    "stress": (run_stress, 80),
}


def work(name: str, part: Part) -> int:
    """Run a part in this process, and return the exit status."""
    import pyfeed

    if not pyfeed.cuda.available():
        part.check("there is a device", False, pyfeed.cuda.reason())
        return 1
    if not part.emulated and pyfeed.cuda.device_name() == "host emulation":
        part.check("there is a device", False, "expected a GPU, found the host emulation: PYFEED_CUDA is set")
        return 1
    try:
        PARTS[name][0](part)
        nothing_left(part)
    except BaseException as error:
        traceback.print_exc()
        part.check("it runs to its end", False, f"{type(error).__name__}: {error}")
        return 1
    return 0


# ---- Running the parts -------------------------------------------------------------------------------


class Report:
    """The file gpu.json, which is complete JSON at any time."""

    def __init__(self, file: Path, head: dict[str, Any]) -> None:
        self.file = file
        self.found: dict[str, Any] = {**head, "parts": {}}

    def part(self, name: str) -> dict[str, Any]:
        mine: dict[str, Any] = {"status": "running", "seconds": 0.0, "checks": [], "metrics": [], "missing": []}
        self.found["parts"][name] = mine
        return mine

    def write(self) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.found, indent=1) + "\n")
        new.replace(self.file)


def run_part(
    name: str, seconds: float, options: argparse.Namespace, environment: dict[str, str], report: Report
) -> None:
    """Run a part in its own process, until it ends or its time is over."""
    mine = report.part(name)
    start = time.monotonic()
    end = start + seconds
    ours, theirs = os.pipe()
    command = [sys.executable, __file__, "--part", name, "--fd", str(theirs), "--seconds", str(seconds)]
    command += ["--out", str(options.out), *["--emulated"] * options.emulated, *["--quick"] * options.quick]
    with (options.out / "gpu.log").open("a") as log:
        log.write(f"\n==== {name}\n")
        log.flush()
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, pass_fds=(theirs,), start_new_session=True
        )
        os.close(theirs)
    rest = b""
    with selectors.DefaultSelector() as selector, os.fdopen(ours, "rb", buffering=0) as pipe:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            ended = process.poll() is not None  # a process that has ended has written all its events
            if selector.select(0 if ended else min(0.1, max(0.0, end - time.monotonic()))):
                rest += pipe.read(1 << 16) or b""
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    kind = "checks" if "check" in event else "metrics" if "metric" in event else "missing"
                    mine[kind].append(event["missing"] if kind == "missing" else event)
                if lines:
                    report.write()
                    continue
            if ended or time.monotonic() > end:
                break
    status = process.poll()
    try:
        os.killpg(process.pid, signal.SIGKILL)  # ends all processes that the part started, too
    except ProcessLookupError:
        pass
    process.wait()
    mine["seconds"] = round(time.monotonic() - start, 2)
    if status is None:
        mine["status"] = f"stopped: expected an end within {seconds:.0f} s"
    else:
        mine["status"] = "done" if status == 0 else f"ended with status {status}"
    report.write()


def failed(found: dict[str, Any]) -> bool:
    return found["status"] != "done" or not all(c["right"] for c in found["checks"])


def show(name: str, found: dict[str, Any]) -> None:
    right = sum(c["right"] for c in found["checks"])
    print(f"\n{name}: {found['status']}, {right} of {len(found['checks'])} checks, {found['seconds']:.1f} s")
    for why in found["missing"]:
        print(f"    missing: {why}")
    for check in found["checks"]:
        if not check["right"]:
            print(f"    WRONG: {check['check']}: {check['found']}")
    for metric in found["metrics"]:
        value = metric["value"]
        if isinstance(value, list):
            continue
        text = f"{value:.3f}" if isinstance(value, float) else str(value)
        goal = ""
        if metric["goal"]:
            goal = f"  goal {metric['goal']}: {'met' if metric['met'] else 'MISSED'}"
        print(f"    {metric['metric']:<58} {text} {metric['unit']}{goal}".rstrip())
    sys.stdout.flush()


def install(wheel: Path, folder: Path) -> dict[str, str]:
    """Install the wheel into a folder, and return an environment in which Python finds it there.

    A second virtual environment would not see the packages of this Python, which may be in a virtual environment.
    """
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", "--no-index", "--no-deps", "--target", str(folder), str(wheel)], check=True)
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def machine(environment: dict[str, str]) -> dict[str, Any]:
    query = [
        "nvidia-smi",
        "--query-gpu=name,driver_version,pcie.link.gen.max,pcie.link.width.max",
        "--format=csv,noheader",
    ]
    try:
        gpus = subprocess.run(query, capture_output=True, text=True, timeout=20).stdout.strip().splitlines()
    except (OSError, subprocess.TimeoutExpired) as error:
        gpus = [f"nvidia-smi: {error}"]
    about = "import pyfeed; print(pyfeed.__version__, pyfeed.__file__)"
    ours = subprocess.run([sys.executable, "-c", about], capture_output=True, text=True, env=environment)
    versions = {}
    for package in ("numpy", "torch", "cupy-cuda12x", "cupy-cuda13x", "jax", "pytest"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    return {
        "gpus": gpus,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "pyfeed": ours.stdout.split(" ")[0].strip(),
        **versions,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, help="the wheel to look at; else the package that is installed")
    parser.add_argument("--out", type=Path, default=Path("build/gpu"), help="the folder for what is found")
    parser.add_argument("--parts", default=",".join(PARTS), help="only these")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all of it")
    parser.add_argument("--emulated", action="store_true", help="without a GPU")
    parser.add_argument("--quick", action="store_true", help="only so much that every line runs")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--fd", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        return work(options.part, Part(options.fd, options.emulated, options.quick, options.out, options.seconds))

    end = time.monotonic() + options.seconds
    names = options.parts.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"--parts: expected some of {', '.join(PARTS)}, found {', '.join(unknown)}")
    if options.wheel and not options.wheel.is_file():
        parser.error(f"--wheel: expected a file, found {options.wheel}")
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "gpu.log").write_text("")
    with tempfile.TemporaryDirectory(prefix="pyfeed-gpu-") as folder:
        environment = install(options.wheel, Path(folder)) if options.wheel else {**os.environ}
        if options.emulated:
            environment["PYFEED_CUDA"] = "host"
        here = machine(environment)
        report = Report(options.out / "gpu.json", {"benchmark": "gpu", "emulated": options.emulated, "machine": here})
        print(", ".join(f"{key} {value}" for key, value in here.items()))
        for name in names:
            seconds = max(0.0, min(PARTS[name][1], end - time.monotonic()))
            if seconds < 5 and not options.quick:
                report.part(name)["status"] = "not run: time is up"
                report.write()
            else:
                run_part(name, seconds, options, environment, report)
            show(name, report.found["parts"][name])
    parts = report.found["parts"]
    wrong = [name for name in names if failed(parts[name])]
    goals = [f for p in parts.values() for f in p["metrics"] if f["met"] is not None]
    report.found["failed"] = wrong
    report.write()
    print(f"\n{len(names) - len(wrong)} of {len(names)} parts are right", end="")
    print(f", {sum(f['met'] for f in goals)} of {len(goals)} goals are met" if goals else "", end="")
    print(f"; all of it is in {report.file}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
