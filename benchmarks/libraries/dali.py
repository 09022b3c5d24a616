"""NVIDIA DALI: its pipelines on the CPU."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import NotSupported
from workloads.batches import MAX_IN_FLIGHT, Arrays, Batches
from workloads.files import ArrayDataset, Batch, Files, shuffled_rows


class _Made:
    """A source that its worker processes call with the number of a batch."""

    def __init__(self, workload: Batches) -> None:
        self._workload = workload

    def __call__(self, info: Any) -> tuple[list[Any], list[Any]]:
        data, numbers = self._workload.item(info.iteration)
        return [data], [numbers]


def batches(workload: Batches) -> Iterator[Arrays]:
    """A parallel `external_source`, whose worker processes put batches into shared memory.

    https://docs.nvidia.com/deeplearning/dali/user-guide/docs/examples/general/data_loading/parallel_external_source.html
    """
    if not workload.processes:
        raise NotSupported("it calls Python sources in the thread that reads, or in worker processes")
    from nvidia.dali import Pipeline, fn, types

    ahead = MAX_IN_FLIGHT // 2  # of the workers, and as many finished batches
    pipeline = Pipeline(
        batch_size=1,
        num_threads=1,
        device_id=None,
        py_num_workers=workload.producers,
        py_start_method="spawn",
        prefetch_queue_depth=ahead,
    )
    with pipeline:
        made = fn.external_source(
            _Made(workload),
            num_outputs=2,
            batch=True,
            batch_info=True,
            parallel=True,
            prefetch_queue_depth=ahead,
            dtype=[types.UINT8, types.FLOAT64],
        )
        pipeline.set_outputs(*made)
    while True:
        data, numbers = pipeline.run()
        yield np.asarray(data[0]), np.asarray(numbers[0])
        del data, numbers


def cold_start_files(folder: str, workload: Any) -> None:
    """TFRecord files of only a thousand records each, with indexes: the library reads all indexes when it is built."""
    import os
    from pathlib import Path

    import numpy as np

    import pyfeed

    features = [{"name": "x", "dtype": "float32", "shape": [workload.floats]}]
    with pyfeed.open_writer(f"{folder}/dali.tfrecord", features=features) as writer:
        for i in range(1000):
            writer.write((np.full(workload.floats, i, np.float32),))
    each = os.path.getsize(f"{folder}/dali.tfrecord") // 1000
    Path(folder, "dali.idx").write_text("".join(f"{i * each} {each}\n" for i in range(1000)))
    Path(folder, "dali").mkdir()
    workload.link(Path(folder, "dali.tfrecord"), Path(folder, "dali", "files"), ".tfrecord")
    workload.link(Path(folder, "dali.idx"), Path(folder, "dali", "indexes"), ".idx")


def cold_start(folder: str, workload: Any, shuffle: bool) -> Any:
    """Its reader of TFRecord, in a pipeline on the CPU."""
    import glob

    from nvidia.dali import Pipeline, fn, tfrecord

    pipeline = Pipeline(batch_size=workload.batch, num_threads=2, device_id=None)
    with pipeline:
        read = fn.readers.tfrecord(
            path=sorted(glob.glob(f"{folder}/dali/files/*")),
            index_path=sorted(glob.glob(f"{folder}/dali/indexes/*")),
            features={"x": tfrecord.FixedLenFeature((workload.floats,), tfrecord.float32, 0.0)},
            random_shuffle=shuffle,
            initial_fill=workload.buffer,
        )
        pipeline.set_outputs(read["x"])

    def batches() -> Any:
        while True:
            yield pipeline.run()[0]

    return batches(), lambda batch: batch.as_array()


def files(workload: Files, depth: int) -> Callable[[], Iterator[Batch]]:
    """A pipeline of one of its readers, with a shuffle buffer. Rows come from an `external_source`, which gathers them.

    https://docs.nvidia.com/deeplearning/dali/user-guide/docs/operations/nvidia.dali.fn.readers.html: its reader of
    TFRecord parses tf.train.Example, with an index of each file. Readers go on into the next pass by themselves.
    """
    if workload.format not in ("example", "tar", "npy", "rows", "raw", "tokens"):
        raise NotSupported("it has no reader for such files")
    from nvidia.dali import Pipeline, fn, tfrecord, types

    shuffling = {"random_shuffle": True, "initial_fill": workload.block}
    paths = list(workload.paths)
    dataset = ArrayDataset(workload)

    def rows() -> Iterator[Any]:
        for mapped in dataset.mapped():
            yield from (batch for (batch,) in shuffled_rows(mapped, workload.batch))

    def outputs() -> tuple[Any, ...]:
        if workload.format == "npy":
            return (fn.readers.numpy(files=paths, cache_header_information=True, **shuffling),)
        if workload.format == "example":
            written = workload.own("tfrecord2idx", functools.partial(_indexes, "tfrecord2idx", paths))
            features = {
                "image": tfrecord.FixedLenFeature((784,), tfrecord.float32, 0.0),
                "label": tfrecord.FixedLenFeature((1,), tfrecord.int64, 0),
            }
            read = fn.readers.tfrecord(path=paths, index_path=_names(written), features=features, **shuffling)
            return read["image"], read["label"]
        if workload.format == "tar":
            written = workload.own("wds2idx", functools.partial(_indexes, "wds2idx", paths))
            return tuple(
                fn.readers.webdataset(paths=paths, index_paths=_names(written), ext=["bin", "cls"], **shuffling)
            )
        dtype = {"uint8": types.UINT8, "uint16": types.UINT16, "float32": types.FLOAT}[workload.dtype]
        return (fn.external_source(rows, cycle="raise", dtype=dtype, no_copy=True),)

    pipeline = Pipeline(
        batch_size=workload.batch, num_threads=workload.cores, device_id=None, prefetch_queue_depth=depth
    )
    with pipeline:
        pipeline.set_outputs(*outputs())

    def run() -> Batch:
        made = pipeline.run()
        if workload.format == "tar":
            records, labels = made
            return records.as_array(), np.array([int(np.asarray(label).tobytes()) for label in labels])
        arrays = [output.as_array() for output in made]
        return tuple(array.reshape(-1) if at else array for at, array in enumerate(arrays))

    if workload.format in ("rows", "raw", "tokens"):

        def once() -> Iterator[Batch]:
            pipeline.reset()
            while True:
                try:
                    batch = run()
                except StopIteration:
                    return
                yield batch

        return once

    begun: Batch = ()  # instances of the next pass, from the batch in which this one ended

    def begin() -> Iterator[Batch]:
        nonlocal begun
        left = workload.count
        while left > 0:
            batch = begun or run()
            begun = ()
            if len(batch[0]) > left:
                begun = tuple(array[left:].copy() for array in batch)
                batch = tuple(array[:left] for array in batch)
            left -= len(batch[0])
            yield batch

    return begin


def _indexes(script: str, paths: Iterable[str], folder: Path) -> None:
    """Write an index of each file, with a script of the library."""
    for path in paths:
        command = [str(Path(sys.executable).parent / script), path, str(folder / f"{Path(path).name}.idx")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _names(folder: Path) -> list[str]:
    return sorted(map(str, folder.iterdir()))
