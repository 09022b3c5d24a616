"""Measures how fast batches get from Python producers, in threads or in processes, to a Python loop.

    python benchmarks/batches.py --libraries all [--json FILE] [--cases "4 KiB,processes"]

Producers make batches continuously. The main thread takes each batch, reads one byte of each page, and releases it. A
batch consists of an array of 4 KiB, 1 MiB or 32 MiB, and an array of eight numbers. There are one or two producers,
which are threads or processes. They write every byte of every batch: into memory of the library if it provides any,
otherwise into their own arrays. In the cases named "sent", a producer has one finished batch, and sends it repeatedly.

    pyfeed push       queue.produce; in processes, SharedFeedQueue's producer.push
    pyfeed lent       queue.push(arrays, copy=False)
    pyfeed slot       with queue.reserve() as arrays; in processes, producer.reserve()
    queue.Queue       by reference
    SimpleQueue       queue.SimpleQueue with a semaphore for its bound
    mp.Queue          multiprocessing.Queue
    DataLoader        PyTorch's, over an IterableDataset
    torchdata         its nodes: ParallelMapper and Prefetcher
    tf.data           from_generator, interleaved
    Grain             a source, read by threads or by mp_prefetch
    SPDL              PipelineBuilder; iterate_in_subprocess with a SharedMemorySegmentPool
    mlx-data          a stream with sample_transform and prefetch
    WebDataset        WebLoader over a DataPipeline
    Hugging Face      datasets.IterableDataset.from_generator, in PyTorch's DataLoader
    MosaicML          streaming
    Ray Data          iter_batches over a Datasource
    Ray generators    tasks whose generators wait for the consumer
    Paddle            paddle.io.DataLoader
    Paddle's queue    the blocking queue that paddle.io.DataLoader uses, with threads that push
    DALI              a pipeline over a parallel external_source
    TurboLoader       MapDataLoader over a dataset of batches
    LitData, TensorStore, Polars: not supported
    limit             one thread for each producer fills two or more buffers in turn, and sends nothing. In the cases
                      "sent", it copies the batch into its buffers (processes), or only reads the batch (threads)

If a library has several settings, the script measures the fastest one, and prints it after the values.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from harness import LIMIT, PEER, PYFEED, Case, Library, Results, measure, options, selected
from libraries import (
    dali,
    grain,
    huggingface,
    litdata,
    mlx_data,
    mosaic,
    paddle,
    plain,
    polars,
    pyfeed,
    pytorch,
    ray_data,
    spdl,
    tensorflow,
    tensorstore,
    turboloader,
    webdataset,
)
from workloads.batches import MAX_IN_FLIGHT, Batches, consume

SIZES = {"4 KiB": 4 << 10, "1 MiB": 1 << 20, "32 MiB": 32 << 20}
SMALL = 1 << 20  # cases with smaller batches are counted in batches, others in bytes
REFERENCES = ("pyfeed push", "pyfeed lent", "pyfeed slot", "queue.Queue", "SimpleQueue", "mp.Queue", "limit")


def libraries_of(workload: Batches) -> Iterator[Library]:
    def library(name: str, function: Callable[..., Any], *settings: dict[str, Any], kind: str = PEER) -> Library:
        tried = {
            ", ".join(f"{key}={value}" for key, value in each.items()): partial(consume, workload, function, **each)
            for each in settings or [{}]
        }
        return Library(name, tried, kind)

    yield library("pyfeed push", pyfeed.batches_push, kind=PYFEED)
    yield library("pyfeed lent", pyfeed.batches_lent, kind=PYFEED)
    yield library("pyfeed slot", pyfeed.batches_slot, kind=PYFEED)
    yield library("queue.Queue", plain.batches_queue)
    yield library("SimpleQueue", plain.batches_simple_queue)
    yield library("mp.Queue", plain.batches_multiprocessing)
    sharing = [{"strategy": strategy, "shared": True} for strategy in ("file_descriptor", "file_system")]
    yield library("DataLoader", pytorch.batches, *sharing)
    prebatch = [{"prebatch": n} for n in ((None, 16) if workload.size < SMALL else (None,))]
    yield library("torchdata", pytorch.batches_nodes, *prebatch)
    yield library("tf.data", tensorflow.batches)
    yield library("Grain", grain.batches)
    yield library("SPDL", spdl.batches, {"waiting": MAX_IN_FLIGHT}, {"waiting": 2 * MAX_IN_FLIGHT})
    yield library("mlx-data", mlx_data.batches)
    yield library("WebDataset", webdataset.batches)
    yield library("Hugging Face", huggingface.batches)
    yield library("MosaicML", mosaic.batches)
    yield library("Ray Data", ray_data.batches)
    yield library("Ray generators", ray_data.batches_generators)
    yield library("Paddle", paddle.batches)
    yield library("Paddle's queue", paddle.batches_queue)
    yield library("DALI", dali.batches)
    yield library("TurboLoader", turboloader.batches)
    yield library("LitData", litdata.batches)
    yield library("TensorStore", tensorstore.batches)
    yield library("Polars", polars.batches)
    limits = {
        f"{n} buffers": partial(plain.batches_limit, workload, n) for n in (2, MAX_IN_FLIGHT // workload.producers)
    }
    yield Library("limit", limits, LIMIT)


def cases(args: argparse.Namespace) -> Iterator[Case]:
    for processes in (False, True):
        for size_name, size in SIZES.items():
            for producers in (1, 2):
                for sent in (False, True) if size == SMALL and producers == 1 else (False,):
                    workload = Batches(size, producers, processes, sent)
                    names = ("process", "processes") if processes else ("thread", "threads")
                    yield Case(
                        f"{size_name}{' sent' if sent else ''} from {producers} {names[producers - 1]}",
                        [one for one in libraries_of(workload) if selected(args.libraries, one.name, REFERENCES)],
                        1e-3 if size < SMALL else size / 1e9,
                        "thousand batches/s" if size < SMALL else "GB/s",
                        parameters={"size": size, "producers": producers, "processes": processes, "sent": sent},
                    )


def main() -> None:
    args = options(__doc__, seconds=0.4).parse_args()
    results = Results("batches", args)
    for case in cases(args):
        if any(text in case.name for text in args.cases.split(",")) and not results.has(case.name):
            results.add(measure(case, args.runs, args.seconds))


if __name__ == "__main__":
    main()
