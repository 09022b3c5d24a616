"""SPDL."""

from __future__ import annotations

import itertools
import math
import multiprocessing
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from workloads.batches import NUMBERS, Arrays, Batches
from workloads.files import RANDOM_ACCESS, ArrayDataset, Batch, Files, collate, read_batches, shuffled
from workloads.interruption import slow, slow_item
from workloads.training import AHEAD, BATCH, Image, Label, Passes, Training, endless, stacked


def batches(workload: Batches, waiting: int) -> Iterator[Arrays]:
    """A pipeline of threads, or a subprocess for each producer with a pool of segments in shared memory.

    https://facebookresearch.github.io/spdl/main/getting_started/intro.html and
    ``spdl.pipeline.SharedMemorySegmentPool``.

    Parameters
    ----------
    workload : Batches
    waiting : int
        The batches that the sink holds, or the segments of all pools together.
    """
    return (
        _from_processes(workload, waiting // workload.producers)
        if workload.processes
        else _from_threads(workload, waiting)
    )


def _from_threads(workload: Batches, waiting: int) -> Iterator[Arrays]:
    from spdl.pipeline import PipelineBuilder

    if workload.producers == 1:  # the source runs in its own thread
        builder = PipelineBuilder().add_source(workload.fresh_batches(0))
    else:
        builder = PipelineBuilder().add_source(itertools.count()).pipe(workload.item, concurrency=workload.producers)
    pipeline = builder.add_sink(waiting).build(num_threads=workload.producers, use_thread_output_queue=True)
    with pipeline.auto_stop():
        yield from pipeline


class _Refilled:
    """Batches in reused arrays: the subprocess copies each batch before it takes the next one."""

    def __init__(self, workload: Batches, producer: int) -> None:
        self._produce: Callable[[], Iterator[Arrays]] = partial(workload.reused_batches, producer)

    def __iter__(self) -> Iterator[Arrays]:
        return self._produce()


def _segments(size: int, count: int, **options: Any) -> Any:
    """Make a pool for spawned processes. Its lock uses the default start method, which must therefore be spawn."""
    from spdl.pipeline import SharedMemorySegmentPool

    multiprocessing.set_start_method("spawn", force=True)
    return SharedMemorySegmentPool(size, count, **options)


def _from_processes(workload: Batches, waiting: int) -> Iterator[Arrays]:
    from spdl.pipeline import iterate_in_subprocess

    iterators = [
        iter(
            iterate_in_subprocess(
                partial(_Refilled, workload, producer),
                buffer_size=waiting,
                mp_context="spawn",
                arena=_segments(workload.size + 8 * NUMBERS + 64, waiting, acquire_timeout=3600),
            )
        )
        for producer in range(workload.producers)
    ]
    for iterator in itertools.cycle(iterators):
        yield next(iterator)


def interruption_generator() -> Callable[[], object]:
    from spdl.pipeline import PipelineBuilder

    return _next_of(PipelineBuilder().add_source(slow()).add_sink(2).build(num_threads=1))


def interruption_map() -> Callable[[], object]:
    from spdl.pipeline import PipelineBuilder

    builder = PipelineBuilder().add_source(range(1000)).pipe(slow_item, concurrency=2).add_sink(2)
    return _next_of(builder.build(num_threads=2))


def interruption_workers(item: Any = slow_item) -> Callable[[], object]:
    """`iterate_in_subprocess`, which starts one worker."""
    from functools import partial

    from spdl.pipeline import iterate_in_subprocess

    iterator = iter(iterate_in_subprocess(partial(map, item, range(1000)), buffer_size=2, mp_context="spawn"))
    return lambda: next(iterator)


def _next_of(pipeline: Any) -> Callable[[], object]:
    """Read the next item of a pipeline within `auto_stop`, as the documentation requires."""

    def run() -> object:
        with pipeline.auto_stop():
            return next(iter(pipeline))

    return run


def training_threads(workload: Training, workers: int) -> Passes:
    """A pipeline of threads: https://facebookresearch.github.io/spdl/main/getting_started/intro.html."""
    from spdl.pipeline import PipelineBuilder

    pipeline = (
        PipelineBuilder()
        .add_source(itertools.cycle(range(workload.count)))
        .pipe(workload.instance, concurrency=workers, output_order="input")
        .aggregate(BATCH)
        .pipe(stacked)
        .add_sink(AHEAD)
        .build(num_threads=workers + 1)
    )
    pipeline.start()
    return endless(workload, iter(pipeline))


class _Part:
    """The batches of one worker in a pass."""

    def __init__(self, workload: Training, worker: int, workers: int) -> None:
        self._workload, self._numbers = workload, range(worker, workload.steps, workers)

    def __iter__(self) -> Iterator[tuple[Image, Label]]:
        return map(self._workload.batch, self._numbers)


def training_processes(workload: Training, workers: int) -> Passes:
    """A persistent subprocess for each worker, with a pool of segments: ``spdl.pipeline.iterate_in_subprocess``."""
    from spdl.pipeline import iterate_in_subprocess

    ahead = AHEAD // workers
    parts = [
        iterate_in_subprocess(
            partial(_Part, workload, worker, workers),
            buffer_size=ahead,
            mp_context="spawn",
            arena=_segments(BATCH * (4 * math.prod(workload.shape) + 8) + 256, ahead, acquire_timeout=3600),
        )
        for worker in range(workers)
    ]

    def one() -> Iterator[tuple[Image, Label]]:
        iterators = list(map(iter, parts))
        for batch in range(workload.steps):
            yield next(iterators[batch % workers])
        for iterator in iterators:
            next(iterator, None)  # reaches the end of the pass

    return one


def training_continuous(workload: Training, workers: int) -> Passes:
    """A pipeline in a subprocess, which continues into the next pass, with a pool of segments.

    ``spdl.pipeline.run_pipeline_in_subprocess`` and ``PipelineBuilder.add_source(continuous=True)``.
    """
    from spdl.pipeline import PipelineBuilder, run_pipeline_in_subprocess

    config = (
        PipelineBuilder()
        .add_source(range(workload.steps), continuous=True)
        .pipe(workload.batch, concurrency=workers)
        .add_sink(AHEAD)
        .get_config()
    )
    size = BATCH * (4 * math.prod(workload.shape) + 8) + 256
    batches = run_pipeline_in_subprocess(
        config,
        num_threads=workers,
        buffer_size=AHEAD,
        mp_context="spawn",
        arena=_segments(size, AHEAD, acquire_timeout=3600),
    )
    return lambda: iter(batches)


def files(workload: Files, concurrency: int) -> Callable[[], Iterator[Batch]]:
    """PipelineBuilder: a source of paths, a stage that reads them in threads, and batches.

    https://facebookresearch.github.io/spdl: `spdl.io.load_npy` and `spdl.io.iter_tarfile` release the GIL. SPDL has no
    readers for other formats, so the stage is a function of this module.
    """
    from spdl.io import iter_tarfile, load_npy
    from spdl.pipeline import PipelineBuilder

    def load(path: str) -> npt.NDArray[Any]:
        with open(path, "rb") as file:
            array: npt.NDArray[Any] = load_npy(file.read())
        return array

    def archive(path: str) -> Iterator[tuple[bytes, int]]:
        first = b""
        with open(path, "rb") as file:
            for name, contents in iter_tarfile(file):
                if name.endswith(".bin"):
                    first = contents
                else:
                    yield first, int(contents)

    def batches(path: str) -> Iterator[Batch]:
        if workload.format == "tar":
            yield from (collate(workload, some) for some in shuffled(archive(path), workload.block, workload.batch))
        else:
            yield from read_batches(workload, [path])

    def begin() -> Iterator[Batch]:
        builder = PipelineBuilder()
        if workload.format == "npy":
            paths = list(workload.paths)
            random.shuffle(paths)
            builder.add_source(paths).pipe(load, concurrency=concurrency).aggregate(workload.batch).pipe(np.stack)
        elif workload.format in RANDOM_ACCESS:
            rows = ArrayDataset(workload)
            order = np.random.default_rng().permutation(workload.count)
            parts = [order[i : i + workload.batch].tolist() for i in range(0, workload.count, workload.batch)]
            builder.add_source(parts).pipe(lambda part: np.stack(rows.__getitems__(part)), concurrency=concurrency)
        else:
            builder.add_source(workload.paths).pipe(batches, concurrency=concurrency)
        pipeline = builder.add_sink(8).build(num_threads=concurrency)
        with pipeline.auto_stop():
            yield from pipeline if workload.format not in RANDOM_ACCESS else ((array,) for array in pipeline)

    return begin
