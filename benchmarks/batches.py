"""How fast batches come from Python code, in threads or in processes, to a Python loop.

    python benchmarks/batches.py --ways all [--json FILE] [--rows "4 KiB,processes"]

Producers make batches without an end, and the main thread takes them, looks at a byte of each page and lets go. A batch
is an array of 4 KiB, 1 MiB or 32 MiB, and eight numbers. There are one or two producers, threads or processes, which
write every byte of every batch anew: into memory that the library gives them, if it does that, otherwise into arrays
of their own. In the rows "sent" a producer has a finished batch already, and hands it over again and again.

    pyfeed push       queue.produce; in processes, SharedFeedQueue's producer.push
    pyfeed lent       queue.push(arrays, copy=False)
    pyfeed slot       with queue.slot() as arrays; in processes, producer.slot()
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
    Paddle's queue    the blocking queue behind that, which threads push into
    limit             as many threads as producers fill buffers in turn, two or more each, and hand nothing over; sent
                      to another process a batch is copied into them, and sent to a thread only looked at

Of several settings the fastest is measured, which stands behind the figures.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from measuring import LIMIT, OURS, PEER, Results, Row, Way, chosen, measure, options
from tasks.batches import WAITING, Batches, consume
from ways import (
    grain,
    huggingface,
    mlx_data,
    mosaic,
    ours,
    paddle,
    plain,
    pytorch,
    ray_data,
    spdl,
    tensorflow,
    webdataset,
)

SIZES = {"4 KiB": 4 << 10, "1 MiB": 1 << 20, "32 MiB": 32 << 20}
SMALL = 1 << 20  # what is smaller is counted in batches, not in bytes
REFERENCES = ("pyfeed push", "pyfeed lent", "pyfeed slot", "queue.Queue", "SimpleQueue", "mp.Queue", "limit")


def ways(task: Batches) -> Iterator[Way]:
    def way(name: str, function: Callable[..., Any], *settings: tuple[Any, ...], kind: str = PEER) -> Way:
        made = {", ".join(map(str, each)): partial(consume, task, function, *each) for each in settings or [()]}
        return Way(name, made, kind)

    yield way("pyfeed push", ours.batches_push, kind=OURS)
    yield way("pyfeed lent", ours.batches_lent, kind=OURS)
    yield way("pyfeed slot", ours.batches_slot, kind=OURS)
    yield way("queue.Queue", plain.batches_queue)
    yield way("SimpleQueue", plain.batches_simple_queue)
    yield way("mp.Queue", plain.batches_multiprocessing)
    yield way("DataLoader", pytorch.batches, ("file_descriptor", True), ("file_system", True))
    yield way("torchdata", pytorch.batches_nodes, *[(None,), (16,)] if task.size < SMALL else [(None,)])
    yield way("tf.data", tensorflow.batches)
    yield way("Grain", grain.batches)
    yield way("SPDL", spdl.batches, (WAITING,), (2 * WAITING,))
    yield way("mlx-data", mlx_data.batches)
    yield way("WebDataset", webdataset.batches)
    yield way("Hugging Face", huggingface.batches)
    yield way("MosaicML", mosaic.batches)
    yield way("Ray Data", ray_data.batches)
    yield way("Ray generators", ray_data.batches_generators)
    yield way("Paddle", paddle.batches)
    yield way("Paddle's queue", paddle.batches_queue)
    limits = {f"{n} buffers": partial(plain.batches_limit, task, n) for n in (2, WAITING // task.producers)}
    yield Way("limit", limits, LIMIT)


def rows(args: argparse.Namespace) -> Iterator[Row]:
    for processes in (False, True):
        for size_name, size in SIZES.items():
            for producers in (1, 2):
                for sent in (False, True) if size == SMALL and producers == 1 else (False,):
                    task = Batches(size, producers, processes, sent)
                    names = ("process", "processes") if processes else ("thread", "threads")
                    yield Row(
                        f"{size_name}{' sent' if sent else ''} from {producers} {names[producers - 1]}",
                        [way for way in ways(task) if chosen(args.ways, way.name, REFERENCES)],
                        1e-3 if size < SMALL else size / 1e9,
                        "thousand batches/s" if size < SMALL else "GB/s",
                        parameters={"size": size, "producers": producers, "processes": processes, "sent": sent},
                    )


def main() -> None:
    args = options(__doc__, seconds=0.4).parse_args()
    results = Results("batches", args)
    for row in rows(args):
        if any(text in row.name for text in args.rows.split(",")) and not results.has(row.name):
            results.add(measure(row, args.runs, args.seconds))


if __name__ == "__main__":
    main()
