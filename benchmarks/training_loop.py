"""For how much of its time a training loop waits for data, one Python function making every instance of a batch.

    python benchmarks/training_loop.py --libraries all [--json FILE] [--runs 5] [--cases light,heavy,large]

A pass is so many steps, each of which takes a batch of 32 images, looks at it, and multiplies matrices, always as
often: about 10 ms on one core, which is all it may use. The images are made, one by one, by a function of Python and
NumPy (crop, flip, normalise, and rounds of augmentation) from one npy file that all map, or from the library's own
format. The function is the same for all, and what it makes depends on nothing but the image's number, so that the
loop can check that each image came once in a pass, and came whole.

Cases:
    light           3 x 64 x 64, a batch takes a third of a step to make: one worker is enough, what is left is overhead
    heavy           3 x 64 x 64, a batch takes nearly two steps: one worker is not enough, and two and the step share
                    what cores there are
    large           3 x 224 x 224, 19 MB a batch: how it gets to the step counts

Of each, steps a second, and the share of the pass in which the step waited for its next batch. Read both: a library
whose workers or threads take cores or the GIL from the step itself waits less because of that, and is no faster.

Libraries: one or two workers, and what else depends on the machine, are settings that are all tried, and the fastest is
measured. Where workers and their prefetched batches can stay from pass to pass, they do; the first pass, in which they
start, does not count.
    pyfeed workers  SharedFeedQueue, reopened for each pass; workers stay, and fill slots row by row
    pyfeed endless  a SharedFeedQueue for each worker, read in turn; workers go on into the next pass
    pyfeed map      open_files, zip, multi_pass, map in threads, batch, double_buffer; or map above batch
    none            the step's own thread makes each batch
    threads         threads and a queue.Queue each, on into the next pass
    processes       processes and a multiprocessing.Queue each, on into the next pass
    pool            multiprocessing.Pool.imap, whose results gather in memory
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
    steps alone     a limit: all batches are in memory before
    cores alone     a limit, if the cores are: a loop like `none` on every core, all at the same time
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
        """A setting for each combination of the values."""
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
    """The case of shares of time, beside that of steps a second."""
    shares = [
        {**library, "values": library["wait_fraction"]} if "wait_fraction" in library else library
        for library in case["libraries"]
        if library["kind"] != LIMIT  # it waits for nothing
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
