"""Grain."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import NotSupported
from workloads import tables
from workloads.batches import MAX_IN_FLIGHT, Arrays, Batches, BatchSource
from workloads.files import ArrayDataset, Batch, Files, collate, shard, stack_bytes
from workloads.interruption import slow, slow_item
from workloads.resume import MappedRows, Pipeline, Prepared, Records, Rows
from workloads.training import AHEAD, BATCH, Passes, Training, endless, stacked


def batches(workload: Batches) -> Iterator[Arrays]:
    """A source that threads or processes prefetch from.

    https://google-grain.readthedocs.io/en/latest/tutorials/dataset_basic_tutorial.html
    """
    import grain

    source = grain.MapDataset.source(BatchSource(workload, 1 << 40))
    if not workload.processes:
        return iter(source.to_iter_dataset(grain.ReadOptions(workload.producers, MAX_IN_FLIGHT)))
    # The documentation of ReadOptions advises against threads for data that is in memory.
    made = source.to_iter_dataset(grain.ReadOptions(0, 0))
    return iter(made.mp_prefetch(grain.MultiprocessingOptions(workload.producers, MAX_IN_FLIGHT // workload.producers)))


def cold_start(folder: str, workload: Any, shuffle: bool) -> Any:
    """Interleaved `TFRecordIterDataset`s. Grain has no parser of Examples; records are parsed after the shuffle."""
    import glob

    import grain
    import numpy as np
    from tfrecord import example_pb2

    def parse(record: bytes) -> Any:
        example = example_pb2.Example.FromString(record)
        return np.array(example.features.feature["x"].float_list.value, np.float32)

    names = sorted(glob.glob(f"{folder}/tfrecord/*.tfrecord"))
    files = [grain.experimental.TFRecordIterDataset(name) for name in names]
    data = grain.experimental.InterleaveIterDataset(files, cycle_length=8 if shuffle else 1)
    if shuffle:
        data = grain.experimental.WindowShuffleIterDataset(data, window_size=workload.buffer, seed=1)
    return data.map(parse).batch(workload.batch), lambda batch: batch


def interruption_generator() -> Callable[[], object]:
    import grain

    class Slow(grain.IterDataset):  # type: ignore[misc]
        def __iter__(self) -> Any:
            return _Slow()

    class _Slow(grain.DatasetIterator):  # type: ignore[misc]
        def __next__(self) -> Any:
            return next(slow())

        def get_state(self) -> dict[str, Any]:
            return {}

        def set_state(self, state: dict[str, Any]) -> None:
            pass

    iterator = iter(grain.experimental.ThreadPrefetchIterDataset(Slow(), prefetch_buffer_size=2))
    return lambda: next(iterator)


def interruption_map() -> Callable[[], object]:
    import grain

    iterator = iter(grain.MapDataset.range(1000).map(slow_item).to_iter_dataset())
    return lambda: next(iterator)


def interruption_workers(item: Any = slow_item) -> Callable[[], object]:
    import grain
    from absl import flags

    if not flags.FLAGS.is_parsed():  # its workers inherit the flags
        flags.FLAGS.mark_as_parsed()
    data = grain.MapDataset.range(1000).map(item).to_iter_dataset(grain.ReadOptions(num_threads=1))
    iterator = iter(data.mp_prefetch(grain.MultiprocessingOptions(num_workers=2, per_worker_buffer_size=2)))
    return lambda: next(iterator)


class _Instances:
    """A random access data source of indices. The worker that makes an instance opens the stored images itself."""

    def __init__(self, workload: Training) -> None:
        self._workload = workload

    def __len__(self) -> int:
        return self._workload.count

    def __getitem__(self, index: int) -> int:
        return index


def training(workload: Training, workers: int, processes: bool) -> Passes:
    """MapDataset.map and batch, repeated, prefetched by threads or by persistent processes.

    https://google-grain.readthedocs.io/en/latest/tutorials/dataset_basic_tutorial.html
    """
    import grain

    made = grain.MapDataset.source(_Instances(workload)).repeat().map(workload.instance).batch(BATCH, batch_fn=stacked)
    if not processes:
        return endless(workload, iter(made.to_iter_dataset(grain.ReadOptions(workers, AHEAD))))
    options = grain.MultiprocessingOptions(workers, per_worker_buffer_size=AHEAD // workers)
    return endless(workload, iter(made.to_iter_dataset(grain.ReadOptions(0, 0)).mp_prefetch(options)))


def files(workload: Files, threads: int) -> Callable[[], Iterator[Batch]]:
    """MapDataset over a random access source, or interleaved TFRecordIterDatasets with a window shuffle.

    https://google-grain.readthedocs.io: `batch` comes before `to_iter_dataset`, so that a thread of `ReadOptions` reads
    a whole batch. `mp_prefetch` is not used, since it starts its processes in each pass, which takes longer than the
    pass. In the cases of RecordIO, Grain reads its own format, ArrayRecord. TFRecordIterDataset does not check CRCs.
    """
    if workload.format in ("csv", "tar"):
        raise NotSupported("it has no reader for such files")
    import grain
    from grain import experimental

    if workload.kind == "parquet":
        shards = grain.MapDataset.source(list(workload.paths)).shuffle(1)
        data = experimental.InterleaveIterDataset(
            shards.map(experimental.ParquetIterDataset), cycle_length=len(workload.paths)
        )
        data = experimental.WindowShuffleIterDataset(data, window_size=workload.block, seed=1)
        data = data.batch(workload.batch, batch_fn=functools.partial(_rows, workload))
    elif workload.format in ("tfrecord", "example"):
        shards = grain.MapDataset.source(list(workload.paths)).shuffle(1)
        data = experimental.InterleaveIterDataset(
            shards.map(experimental.TFRecordIterDataset), cycle_length=len(workload.paths)
        )
        data = experimental.WindowShuffleIterDataset(data, window_size=workload.block, seed=1)
        data = data.batch(workload.batch, batch_fn=functools.partial(collate, workload))
    else:
        if workload.format == "recordio":
            written = workload.own("arrayrecord", functools.partial(_array_record, workload))
            rows = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(sorted(map(str, written.iterdir()))))
            stack: Any = stack_bytes
        else:
            rows, stack = grain.MapDataset.source(ArrayDataset(workload)), np.stack
        data = rows.shuffle(1).batch(workload.batch, batch_fn=lambda some: (stack(some),))
        data = data.to_iter_dataset(grain.ReadOptions(num_threads=threads, prefetch_buffer_size=16 if threads else 0))
    return lambda: iter(data)


def _rows(workload: Files, some: list[dict[str, Any]]) -> Batch:
    """The arrays of a batch of rows, which are dicts."""
    if workload.content == "tokens":
        return tables.token_batch([np.asarray(row["tokens"], np.int32) for row in some])
    return tuple(np.array([row[name] for row in some]) for name in some[0])


def _array_record(workload: Files, folder: Path) -> None:
    from array_record.python import array_record_module

    for k in range(len(workload.paths)):
        writer = array_record_module.ArrayRecordWriter(str(folder / f"{k}.array_record"), "group_size:1")
        for i in shard(workload, k):
            writer.write(workload.array(i).tobytes())
        writer.close()


class _Resumable:
    """An iterator of Grain, whose state is that of all its parents."""

    def __init__(self, data: Any) -> None:
        self._iterator = iter(data)

    def next_batch(self) -> Rows:
        rows: Rows = next(self._iterator)
        return rows

    def take(self) -> Any:
        return self._iterator.get_state()

    def load(self, state: Any) -> None:
        self._iterator.set_state(state)


def resume_index(workload: Records) -> Prepared:
    """`MapDataset.shuffle` over mapped files: the order is computed from the index, and any record can be read.

    https://google-grain.readthedocs.io/en/latest/tutorials/dataset_advanced_tutorial.html: opening a hundred files of
    ArrayRecord took ten times as long, and so did filling the buffer of the default `ReadOptions`.
    """
    import grain

    paths = workload.raw()

    def make() -> Pipeline:
        data = grain.MapDataset.source(MappedRows(paths, workload)).shuffle(workload.seed)
        data = data.batch(workload.batch, batch_fn=np.stack)
        return _Resumable(data.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)))

    return make


def resume_window(workload: Records) -> Prepared:
    """`WindowShuffleIterDataset` over `TFRecordIterDataset`, one file after the other."""
    from grain import experimental

    paths = workload.tfrecord()

    def make() -> Pipeline:
        files = [experimental.TFRecordIterDataset(path) for path in paths]
        data = experimental.InterleaveIterDataset(files, cycle_length=1)
        data = experimental.WindowShuffleIterDataset(data, window_size=workload.buffer, seed=workload.seed)
        data = data.batch(workload.batch, batch_fn=stack_bytes)
        return _Resumable(experimental.ThreadPrefetchIterDataset(data, prefetch_buffer_size=2))

    return make
