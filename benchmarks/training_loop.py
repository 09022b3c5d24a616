"""Measures for how much of its time a training loop waits for data that a Python function makes.

    python benchmarks/training_loop.py --libraries all [--json FILE] [--runs 5] [--cases light,heavy,large]

A pass is a fixed number of steps. Each step takes a batch of 32 images, reads it, and makes a fixed number of matrix
multiplications, which take about 10 ms on the one core that the step may use. A function in Python and NumPy makes each
image (crop, flip, normalise, and rounds of augmentation). Its input is one npy file, which all processes map, or the
same images in a library's own format. All libraries call the same function. Its result depends only on the number of
the image, so the loop can check that each image came exactly once in a pass, and was complete.

Cases:
    light           3 x 64 x 64. Making a batch takes a third of the time of a step, so one worker is enough, and the
                    rest of the time is overhead
    heavy           3 x 64 x 64. Making a batch takes nearly the time of two steps, so one worker is not enough, and two
                    workers share the available cores with the step
    large           3 x 224 x 224, 19 MB a batch. The transfer of the batch to the step matters

The results of each case are the steps per second, and the share of the pass in which the step waited for its next
batch. Read both: if the workers or threads of a library take cores or the GIL from the step, the step waits less, but
the loop is not faster.

Libraries: the script tries one and two workers, and other settings that depend on the machine, and measures the fastest
setting. Workers and their prefetched batches stay from pass to pass where the library allows it. The first pass, in
which the workers start, does not count.
    pyfeed workers  SharedFeedQueue, reopened for each pass; workers stay, and write reserved tuples row by row
    pyfeed endless  a SharedFeedQueue for each worker, read in turn; workers continue into the next pass
    pyfeed map      open_files, zip, multi_pass, map in threads, batch, double_buffer; or map above batch
    none            no loader: the thread of the step makes each batch
    threads         threads with a queue.Queue each, which continue into the next pass
    processes       processes with a multiprocessing.Queue each, which continue into the next pass
    pool            multiprocessing.Pool.imap, whose results accumulate in memory
    pytorch         DataLoader, map-style, persistent_workers
    torchdata       SamplerWrapper, ParallelMapper of threads or processes, which are started in each pass, Prefetcher
    tf.data         map of a numpy_function, in threads, repeat, batch, prefetch
    grain           MapDataset.map, repeat, in threads or in processes by mp_prefetch
    spdl            a pipeline of threads; iterate_in_subprocess for each worker, or run_pipeline_in_subprocess with a
                    continuous source, both through a pool of segments of shared memory
    mlx-data        sample_transform in threads, batch, ordered_prefetch
    webdataset      tar files of npy, map, batched, in a WebLoader, persistent_workers
    mosaic          StreamingDataset of the images as MDS, StreamingDataLoader, persistent_workers
    datasets        Hugging Face's, with_transform, in PyTorch's DataLoader, persistent_workers
    ray             ray.data.range, map_batches, iter_batches, started in each pass
    paddle          DataLoader, map-style, persistent_workers
    steps alone     a limit: all batches are in memory before the pass
    cores alone     a limit if the cores are the bottleneck: a loop like `none` on every core at the same time
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from harness import LIMIT, PYFEED, Case, Library, Results, Timed, measure, options, selected
from libraries import (
    arrow,
    grain,
    huggingface,
    mlx_data,
    mosaic,
    paddle,
    pandas,
    plain,
    pyfeed,
    pytorch,
    ray_data,
    spdl,
    tensorflow,
    webdataset,
)
from workloads.training import AHEAD, BATCH, Passes, Training, loop, write

REFERENCES = (
    "pyfeed workers",
    "pyfeed endless",
    "pyfeed map",
    "none",
    "threads",
    "processes",
    "pool",
    "steps alone",
    "cores alone",
)
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
WORKERS = (1, 2)


def workloads(folder: Path) -> Iterator[tuple[str, Training]]:
    yield "light", Training(folder / "light", side=64, rounds=2, steps=64)
    yield "heavy", Training(folder / "heavy", side=64, rounds=13, steps=32)
    yield "large", Training(folder / "large", side=224, rounds=0, steps=48)


def libraries_of(workload: Training) -> Iterator[Library]:
    def tried(function: Callable[..., Passes], **lists: Any) -> dict[str, Callable[[], Timed]]:
        """Make a setting for each combination of the values."""
        found: dict[str, Callable[[], Timed]] = {}
        for values in itertools.product(*lists.values()):
            given = dict(zip(lists, values, strict=True))
            found[", ".join(f"{name}={value}" for name, value in given.items())] = partial(
                loop, function, workload, **given
            )
        return found

    def named(name: str, settings: dict[str, Callable[[], Timed]]) -> dict[str, Callable[[], Timed]]:
        return {f"{name}, {setting}": make for setting, make in settings.items()}

    yield Library("pyfeed workers", tried(pyfeed.training_workers, workers=WORKERS), PYFEED)
    yield Library("pyfeed endless", tried(pyfeed.training_workers_endless, workers=WORKERS), PYFEED)
    yield Library(
        "pyfeed map",
        named("instances", tried(pyfeed.training_map, threads=(2,)))
        | named("batches", tried(pyfeed.training_map_batches, threads=(2,))),
        PYFEED,
    )
    yield Library("none", tried(plain.training_none))
    yield Library("threads", tried(plain.training_threads, workers=WORKERS))
    yield Library("processes", tried(plain.training_processes, workers=WORKERS))
    yield Library("pool", tried(plain.training_pool, workers=WORKERS))
    yield Library("pytorch", tried(pytorch.training, workers=WORKERS, prefetch=(AHEAD,)))
    yield Library("torchdata", tried(pytorch.training_nodes, workers=(2,), method=("thread", "process")))
    yield Library("tf.data", tried(tensorflow.training, parallel=(None,)))
    yield Library("grain", tried(grain.training, workers=(2,), processes=(False, True)))
    yield Library(
        "spdl",
        named("threads", tried(spdl.training_threads, workers=(2,)))
        | named("processes", tried(spdl.training_processes, workers=(2,)))
        | named("continuous", tried(spdl.training_continuous, workers=(1,))),
    )
    yield Library("mlx-data", tried(mlx_data.training, workers=WORKERS))
    yield Library("webdataset", tried(webdataset.training, workers=WORKERS))
    yield Library("mosaic", tried(mosaic.training, workers=WORKERS))
    yield Library("datasets", tried(huggingface.training, workers=WORKERS))
    yield Library("ray", tried(ray_data.training, workers=(2,)))
    yield Library("paddle", tried(paddle.training, workers=WORKERS))
    yield Library("pyarrow", tried(arrow.training))
    yield Library("pandas", tried(pandas.training))
    yield Library("steps alone", tried(plain.training_limit), LIMIT)
    yield Library("cores alone", {"": partial(plain.training_cores, workload)}, LIMIT)


def waiting(case: dict[str, Any]) -> dict[str, Any]:
    """Make the case of the shares of waiting time from the case of steps per second."""
    shares = [
        {**library, "values": library["wait_fraction"]} if "wait_fraction" in library else library
        for library in case["libraries"]
        if library["kind"] != LIMIT  # a limit does not wait for data
    ]
    return {
        **case,
        "case": f"{case['case']}, waiting",
        "unit": "share of the pass",
        "better": "lower",
        "libraries": shares,
    }


def main() -> None:
    args = options(__doc__, seconds=2).parse_args()
    os.environ.update(ONE_THREAD)  # inherited by all runners
    results = Results("training_loop", args)
    with tempfile.TemporaryDirectory(prefix="pyfeed-bench-") as folder:
        for name, described in workloads(Path(folder)):
            if args.cases and not any(text in name for text in args.cases.split(",")):
                continue
            if results.has(name, f"{name}, waiting"):
                continue
            workload = write(described)
            libraries = [one for one in libraries_of(workload) if selected(args.libraries, one.name, REFERENCES)]
            parameters = {
                "shape": workload.shape,
                "batch": BATCH,
                "steps": workload.steps,
                "rounds": workload.rounds,
            }
            case = measure(
                Case(name, libraries, workload.steps, "steps/s", parameters=parameters), args.runs, args.seconds
            )
            results.add(case)
            results.add(waiting(case))


if __name__ == "__main__":
    main()
