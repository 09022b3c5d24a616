"""For how much of its time a training loop waits for data, one Python function making every instance of a batch.

    python benchmarks/training_loop.py --ways all [--json FILE] [--runs 5] [--rows light,heavy,large]

A pass is so many steps, each of which takes a batch of 32 images, looks at it, and multiplies matrices, always as
often: about 10 ms on one core, which is all it may use. The images are made, one by one, by a function of Python and
NumPy (crop, flip, normalise, and rounds of augmentation) from one npy file that everyone maps, or from the library's
own format. The function is the same for all, and what it makes depends on nothing but the image's number, so that the
loop can check that each image came once in a pass, and came whole.

Rows:
    light           3 x 64 x 64, a batch takes a third of a step to make: one worker is enough, what is left is overhead
    heavy           3 x 64 x 64, a batch takes nearly two steps: one worker is not enough, and two and the step share
                    what cores there are
    large           3 x 224 x 224, 19 MB a batch: how it gets to the step counts

Of each, steps a second, and the share of the pass in which the step waited for its next batch. Look at both: a way
whose workers or threads take cores or Python's lock from the step itself waits less by that, and is none the faster.

Ways: one or two workers and what else depends on the machine are settings that are all tried, and the fastest is
measured. Where workers and what they have read ahead can stay from pass to pass, they do; the first pass, in which they
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
    steps alone     all batches are in memory before: what no way can be faster than
    cores alone     a loop like `none` on every core, all at the same time: nor than that, if the cores are the limit
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from measuring import LIMIT, OURS, Results, Row, Timed, Way, chosen, measure, options
from tasks.training import AHEAD, BATCH, Passes, Training, loop, write
from ways import (
    arrow,
    grain,
    huggingface,
    mlx_data,
    mosaic,
    ours,
    paddle,
    pandas,
    plain,
    pytorch,
    ray_data,
    spdl,
    tensorflow,
    webdataset,
)

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


def tasks(folder: Path) -> Iterator[tuple[str, Training]]:
    yield "light", Training(folder / "light", side=64, rounds=2, steps=64)
    yield "heavy", Training(folder / "heavy", side=64, rounds=13, steps=32)
    yield "large", Training(folder / "large", side=224, rounds=0, steps=48)


def ways(task: Training) -> Iterator[Way]:
    def tried(function: Callable[..., Passes], **lists: Any) -> dict[str, Callable[[], Timed]]:
        """A setting for each of all combinations."""
        found: dict[str, Callable[[], Timed]] = {}
        for values in itertools.product(*lists.values()):
            given = dict(zip(lists, values, strict=True))
            found[", ".join(f"{name}={value}" for name, value in given.items())] = partial(
                loop, function, task, **given
            )
        return found

    def named(name: str, settings: dict[str, Callable[[], Timed]]) -> dict[str, Callable[[], Timed]]:
        return {f"{name}, {setting}": make for setting, make in settings.items()}

    yield Way("pyfeed workers", tried(ours.training_workers, workers=WORKERS), OURS)
    yield Way("pyfeed endless", tried(ours.training_workers_endless, workers=WORKERS), OURS)
    yield Way(
        "pyfeed map",
        named("instances", tried(ours.training_map, threads=(2,)))
        | named("batches", tried(ours.training_map_batches, threads=(2,))),
        OURS,
    )
    yield Way("none", tried(plain.training_none))
    yield Way("threads", tried(plain.training_threads, workers=WORKERS))
    yield Way("processes", tried(plain.training_processes, workers=WORKERS))
    yield Way("pool", tried(plain.training_pool, workers=WORKERS))
    yield Way("pytorch", tried(pytorch.training, workers=WORKERS, prefetch=(AHEAD,)))
    yield Way("torchdata", tried(pytorch.training_nodes, workers=(2,), method=("thread", "process")))
    yield Way("tf.data", tried(tensorflow.training, parallel=(None,)))
    yield Way("grain", tried(grain.training, workers=(2,), processes=(False, True)))
    yield Way(
        "spdl",
        named("threads", tried(spdl.training_threads, workers=(2,)))
        | named("processes", tried(spdl.training_processes, workers=(2,)))
        | named("continuous", tried(spdl.training_continuous, workers=(1,))),
    )
    yield Way("mlx-data", tried(mlx_data.training, workers=WORKERS))
    yield Way("webdataset", tried(webdataset.training, workers=WORKERS))
    yield Way("mosaic", tried(mosaic.training, workers=WORKERS))
    yield Way("datasets", tried(huggingface.training, workers=WORKERS))
    yield Way("ray", tried(ray_data.training, workers=(2,)))
    yield Way("paddle", tried(paddle.training, workers=WORKERS))
    yield Way("pyarrow", tried(arrow.training))
    yield Way("pandas", tried(pandas.training))
    yield Way("steps alone", tried(plain.training_limit), LIMIT)
    yield Way("cores alone", {"": partial(plain.training_cores, task)}, LIMIT)


def waiting(row: dict[str, Any]) -> dict[str, Any]:
    """The row of shares of time, beside that of steps a second."""
    shares = [
        {**way, "values": way["waited"], "kind": way["kind"]} if "waited" in way else way
        for way in row["ways"]
        if way["kind"] != LIMIT  # it waits for nothing
    ]
    return {**row, "row": f"{row['row']}, waiting", "unit": "share of the pass", "better": "lower", "ways": shares}


def main() -> None:
    args = options(__doc__, seconds=2).parse_args()
    os.environ.update(ONE_THREAD)  # of all processes, which are to come
    results = Results("training_loop", args)
    with tempfile.TemporaryDirectory(prefix="pyfeed-bench-") as folder:
        for name, described in tasks(Path(folder)):
            if args.rows and not any(text in name for text in args.rows.split(",")):
                continue
            if results.has(name, f"{name}, waiting"):
                continue
            task = write(described)
            some = [way for way in ways(task) if chosen(args.ways, way.name, REFERENCES)]
            parameters = {"shape": task.shape, "batch": BATCH, "steps": task.steps, "rounds": task.rounds}
            row = measure(Row(name, some, task.steps, "steps/s", parameters=parameters), args.runs, args.seconds)
            results.add(row)
            results.add(waiting(row))


if __name__ == "__main__":
    main()
