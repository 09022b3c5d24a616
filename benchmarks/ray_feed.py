"""Batches that several processes preprocess, on Ray: `pyfeed.ray.FeedService` beside Ray Data, and a DataLoader.

    python benchmarks/ray_feed.py [--seconds 10] [--rounds 3]
    python benchmarks/ray_feed.py --transport [--workers 2]
    python benchmarks/ray_feed.py --coordinator

Two processes read images of a file (uint8, 96 x 96 x 3), flip every second one, convert them to float32, and subtract
the mean. A batch has 64 images, 7 MB. Each library runs in processes of its own, and they take turns. Printed are, for
each, the batches per second behind the first, also as a multiple of pyfeed in the same turn; the seconds to the first
batch, from the start of the cluster; the CPU seconds for a batch behind the first, with up to 0.3 seconds of the time
before; and the greatest memory (PSS, in MB) of all its processes. tf.data service is left out if TensorFlow is not
installed.

`--transport` compares the bytes per second of actors of Ray that return arrays, which they read by NumPy or by pyfeed's
readers, with those of a service whose messages have the same size. With two workers on two cores, the trainer has no
core of its own; with one worker, it has. `--coordinator` measures what a call of the coordinator costs, and what a
message costs beside its bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

COUNT, SHAPE, BATCH = 2048, (96, 96, 3), 64
MARK = "PYFEED_RAY_BENCHMARK"
WORKERS = 2
STREAMS = 8  # of a service, for --transport; also the calls of actors that are ahead
PASSES, TASK = 200, 8  # of Ray Data: passes in its dataset, and batches in a task
Batches = Iterator[Any]
began = [0.0]  # when a library begins, which is after the start of the cluster


def preprocess(images: Any) -> Any:
    """Preprocess a batch of images, (n, 96, 96, 3) of uint8."""
    images = images.astype("float32")
    images[::2] = images[::2, :, ::-1]
    images -= images.mean((1, 2, 3), keepdims=True)
    images /= 255
    return images


def start_ray() -> None:
    import ray

    ray.init("local", num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, object_store_memory=1 << 30)
    began[0] = time.perf_counter()


# ---- Libraries -------------------------------------------------------------------------------


def feed_service(path: str) -> Batches:
    start_ray()
    from pyfeed.ray import FeedService

    mapped = preprocess

    def make_reader(stream: int, streams: int) -> Any:
        import pyfeed

        reader = pyfeed.open_files(path, rank=stream, world=streams, virtual_shards=streams)
        return reader.batch(BATCH).map(mapped, shapes=[(-1, *SHAPE)], dtypes=["float32"])

    service = FeedService(make_reader, num_streams=4, num_workers=WORKERS)
    reader = service.reader()
    while True:
        for (images,) in reader:
            yield images


def ray_data(path: str) -> Batches:
    """Tasks of several batches each, in one long dataset: a pass of its own for each 32 batches costs half of the rate.

    A pool of two actors would take both CPUs, and leave none for the tasks that make their input.
    """
    start_ray()
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    batches = COUNT // BATCH

    def load(rows: dict[str, Any]) -> dict[str, Any]:
        first = int(rows["id"][0]) % batches * BATCH
        return {"image": preprocess(np.load(path, mmap_mode="r")[first : first + BATCH])}

    numbers = ray.data.range(batches * PASSES, override_num_blocks=batches * PASSES // TASK)
    dataset = numbers.map_batches(load, batch_size=1, zero_copy_batch=True)
    for batch in dataset.iter_batches(batch_size=BATCH, prefetch_batches=4):
        yield batch["image"]


def data_loader(path: str) -> Batches:
    import torch.utils.data

    class Images(torch.utils.data.IterableDataset[Any]):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            worker = torch.utils.data.get_worker_info().id
            images = np.load(path, mmap_mode="r")
            for i in itertools.cycle(range(worker, COUNT // BATCH, WORKERS)):
                yield torch.from_numpy(preprocess(images[i * BATCH : (i + 1) * BATCH]))

    yield from torch.utils.data.DataLoader(
        Images(), batch_size=None, num_workers=WORKERS, multiprocessing_context="fork"
    )


def tf_data_service(path: str) -> Batches:
    import tensorflow as tf

    images = np.load(path, mmap_mode="r")
    dispatcher = tf.data.experimental.service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    config = tf.data.experimental.service.WorkerConfig(dispatcher_address=address)
    workers = [tf.data.experimental.service.WorkerServer(config) for _ in range(WORKERS)]

    def load(i: Any) -> Any:
        batch = tf.numpy_function(lambda i: images[i * BATCH : (i + 1) * BATCH], [i], tf.uint8)
        batch = tf.cast(tf.ensure_shape(batch, (BATCH, *SHAPE)), tf.float32)
        batch = tf.reshape(batch, (BATCH // 2, 2, *SHAPE))
        batch = tf.stack([tf.reverse(batch[:, 0], [2]), batch[:, 1]], 1)
        batch = tf.reshape(batch, (BATCH, *SHAPE))
        return (batch - tf.reduce_mean(batch, [1, 2, 3], keepdims=True)) / 255.0

    dataset = tf.data.Dataset.range(COUNT // BATCH).repeat().map(load, num_parallel_calls=tf.data.AUTOTUNE)
    off = tf.data.experimental.service.ShardingPolicy.OFF
    service = tf.data.experimental.service.distribute(processing_mode=off, service=dispatcher.target)
    for batch in dataset.apply(service).prefetch(2):
        yield batch.numpy()
    del workers


LIBRARIES: dict[str, Callable[[str], Batches]] = {
    "pyfeed": feed_service,
    "ray_data": ray_data,
    "data_loader": data_loader,
    "tf_data_service": tf_data_service,
}


# ---- Measuring -------------------------------------------------------------------------------


def measure(library: str, path: str, seconds: float) -> None:
    """Print what a library reaches, as JSON. It runs in a process of its own, without the time of imports."""
    for module in ("torch", "ray", "pyfeed", "tensorflow"):
        if importlib.util.find_spec(module) and module in {"data_loader": "torch", "tf_data_service": "tensorflow"}.get(
            library, "ray pyfeed"
        ):
            __import__(module)
    began[0] = time.perf_counter()
    batches = LIBRARIES[library](path)
    assert next(batches).shape == (BATCH, *SHAPE)
    ready = time.perf_counter()
    print("first", flush=True)  # the parent measures the CPU seconds from here on
    first = time.perf_counter()
    count = 0
    while time.perf_counter() - first < seconds:
        batch = next(batches)
        assert batch.dtype == "float32" or "float32" in str(batch.dtype)
        float(batch[0, 0, 0, 0])
        del batch
        count += 1
    end = time.perf_counter()
    print(json.dumps({"first": ready - began[0], "rate": count / (end - first), "batches": count}), flush=True)
    sys.stdin.read()  # the parent measures the processes meanwhile
    os._exit(0)


def marked(mark: str) -> Iterator[Path]:
    """Yield the folders in /proc of the processes that a measurement has started."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                yield folder


def usage(mark: str) -> tuple[float, float]:
    """Return the CPU seconds and the memory in MB of the processes of a measurement."""
    ticks = memory = 0
    for folder in marked(mark):
        with contextlib.suppress(OSError):
            ticks += sum(map(int, (folder / "stat").read_text().rpartition(")")[2].split()[11:13]))
            lines = (folder / "smaps_rollup").read_text().splitlines()
            memory += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return ticks / os.sysconf("SC_CLK_TCK"), memory / 1e3


def run(library: str, path: str, seconds: float) -> dict[str, float]:
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    output = Path(path).with_name("output")
    process = subprocess.Popen(
        [sys.executable, __file__, "--measure", library, "--path", path, "--seconds", str(seconds)],
        env={**os.environ, MARK: mark},
        stdin=subprocess.PIPE,
        stdout=output.open("w"),
        stderr=output.with_name("errors").open("w"),
        text=True,
    )
    assert process.stdin is not None
    peak = start = 0.0
    lines: list[str] = []
    while len(lines) < 2 and process.poll() is None:
        cpu, memory = usage(mark)
        start, peak = start if lines else cpu, max(peak, memory)
        time.sleep(0.3)
        lines = output.read_text().splitlines()
    cpu = usage(mark)[0] - start
    process.stdin.close()
    process.wait()
    deadline = time.monotonic() + 20  # the processes of Ray end with the driver
    while any(marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.2)
    if len(lines) < 2:
        print(output.with_name("errors").read_text()[-2000:], file=sys.stderr)
        raise SystemExit(f"{library} failed")
    result: dict[str, float] = json.loads(lines[1])
    return {**result, "cpu": cpu, "memory": peak}


def compare(args: argparse.Namespace) -> None:
    libraries = [name for name in LIBRARIES if name != "tf_data_service" or importlib.util.find_spec("tensorflow")]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "images.npy")
        np.save(path, np.random.default_rng(1).integers(0, 255, (COUNT, *SHAPE), np.uint8))
        found: dict[str, list[dict[str, float]]] = {name: [] for name in libraries}
        for _ in range(args.rounds):
            for name in libraries:
                result = run(name, path, args.seconds)
                print(name, {key: round(value, 2) for key, value in result.items()}, flush=True)
                result["cpu_batch"] = result["cpu"] / result["batches"]
                found[name].append(result)
                result["ratio"] = result["rate"] / found["pyfeed"][-1]["rate"]  # pyfeed is the first of each turn
    print(f"{'':16} {'batches/s':>10} {'x pyfeed':>22} {'first (s)':>10} {'CPU s/batch':>12} {'memory (MB)':>12}")
    for name, results in found.items():
        middle = {key: statistics.median(result[key] for result in results) for key in results[0]}
        ratios = [result["ratio"] for result in results]
        spread = f"{middle['ratio']:8.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        cost = f"{middle['cpu_batch']:12.4f} {middle['memory']:12.0f}"
        print(f"{name:16} {middle['rate']:10.1f} {spread} {middle['first']:10.2f} {cost}")


# ---- Parts -----------------------------------------------------------------------------------


def transport(args: argparse.Namespace) -> None:
    """Compare a service with actors that return arrays of the same size. All read the same file."""
    start_ray()
    import ray

    with tempfile.TemporaryDirectory() as folder:
        for size in (8 << 20, 32 << 20):
            path = os.path.join(folder, f"{size}.npy")
            np.save(path, np.random.default_rng(1).integers(0, 255, ((256 << 20) // size, size), np.uint8))
            ratios: dict[str, list[float]] = {"NumPy": [], "pyfeed": []}
            for _ in range(args.rounds):
                alone = {"NumPy": by_actors(NumPySource, path, size, args)}
                alone["pyfeed"] = by_actors(ReaderSource, path, size, args)
                served = by_service(path, size, args)
                for reading, rate in alone.items():
                    ratios[reading].append(served / rate)
                rates = ", ".join(f"actors that read by {name} {rate:.2f}" for name, rate in alone.items())
                print(f"{size >> 20} MiB, in GB/s: {rates}, service {served:.2f}", flush=True)
            for reading, found in ratios.items():
                spread = f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"
                print(f"{size >> 20} MiB: the service is {spread} times as fast as actors that read by {reading}")
    ray.shutdown()


class NumPySource:
    """An actor that returns rows of a file, which NumPy maps."""

    def __init__(self, path: str, number: int, actors: int) -> None:
        self.arrays = np.load(path, mmap_mode="r")

    def get(self, i: int) -> Any:
        return np.asarray(self.arrays[i % len(self.arrays)])


class ReaderSource:
    """An actor that returns rows of a file, which it reads by the same readers as a worker of a service."""

    def __init__(self, path: str, number: int, actors: int) -> None:
        self.readers = {stream: read_rows(path, stream, STREAMS) for stream in range(number, STREAMS, actors)}

    def get(self, i: int) -> Any:
        return self.readers[i % STREAMS].read()[0]


def read_rows(path: str, stream: int, streams: int) -> Any:
    import pyfeed

    return pyfeed.open_npy(path, rank=stream, world=streams, virtual_shards=streams).multi_pass(1000)


def by_actors(source: Any, path: str, size: int, args: argparse.Namespace) -> float:
    """Return the GB/s from actors of Ray, with as many calls ahead as a service has streams."""
    import ray

    workers = args.workers
    actors = [ray.remote(source).options(num_cpus=1).remote(path, number, workers) for number in range(workers)]
    pending = [actors[i % workers].get.remote(i) for i in range(STREAMS)]
    ray.get(pending[0])
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        assert ray.get(pending.pop(0)).nbytes == size
        pending.append(actors[count % workers].get.remote(count))
        count += 1
    rate = count * size / (time.perf_counter() - began) / 1e9
    del pending
    for actor in actors:
        ray.kill(actor)
    return rate


def by_service(path: str, size: int, args: argparse.Namespace) -> float:
    """Return the GB/s from a service whose messages are records of the file."""
    from pyfeed.ray import FeedService

    def make_reader(stream: int, streams: int) -> Any:
        return read_rows(path, stream, streams)

    with FeedService(make_reader, num_streams=STREAMS, num_workers=args.workers, message_bytes=size) as service:
        reader = service.reader()
        next(reader)
        began, count = time.perf_counter(), 0
        while True:
            for (array,) in reader:
                assert array.nbytes == size
                count += 1
                if time.perf_counter() - began >= args.seconds:
                    reader.close()
                    return count * size / (time.perf_counter() - began) / 1e9


def coordinator(args: argparse.Namespace) -> None:
    """Measure the calls that the number of trainers and workers multiplies."""
    start_ray()
    import ray
    from pyfeed._ray_actors import Coordinator
    from pyfeed.ray import FeedService

    def make_reader(stream: int, streams: int) -> Any:
        import pyfeed

        return pyfeed.random_data([(4,)], count=10_000, seed=stream).batch(1)

    class Fixed(Coordinator):
        """A coordinator of workers that do not exist."""

        def __init__(self, workers: int, streams: int) -> None:
            super().__init__("none", streams)
            self._fixed = [f"worker-{i}" for i in range(workers)]

        def _names(self, *, fresh: bool) -> list[str]:
            return self._fixed

    for workers, streams in ((8, 64), (100, 1000)):
        actor = ray.remote(Fixed).options(num_cpus=0).remote(workers, streams)
        ray.get(actor.layout.remote())
        began = time.perf_counter()
        ray.get([actor.layout.remote() for _ in range(1000)])
        layout = time.perf_counter() - began  # in ms for each call
        print(f"layout of {streams} streams and {workers} workers: {layout:.2f} ms", flush=True)
    with FeedService(make_reader, num_streams=8, num_workers=2, message_bytes=1) as service:
        actor = ray.get_actor("coordinator", namespace=service._namespace)
        reader = service.reader()
        next(reader)
        began = time.perf_counter()
        ray.get([actor.layout.remote(["no worker"]) for _ in range(200)])
        print(f"layout after a failure: {(time.perf_counter() - began) * 5:.2f} ms")
        began = time.perf_counter()
        for _ in range(2000):
            next(reader)
        print(f"a message of one small batch: {(time.perf_counter() - began) / 2:.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--transport", action="store_true")
    parser.add_argument("--workers", type=int, default=WORKERS, help="of --transport")
    parser.add_argument("--coordinator", action="store_true")
    parser.add_argument("--measure", choices=LIBRARIES, help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(args.measure, args.path, args.seconds)
    elif args.transport:
        transport(args)
    elif args.coordinator:
        coordinator(args)
    else:
        compare(args)


if __name__ == "__main__":
    main()
