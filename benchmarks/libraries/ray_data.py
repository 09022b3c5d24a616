"""Ray."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import NotSupported
from workloads import tables
from workloads.batches import MAX_IN_FLIGHT, NUMBERS, Arrays, Batches
from workloads.files import Batch, Files, columns, stack_bytes
from workloads.interruption import slow_item
from workloads.training import AHEAD, BATCH, Passes, Training, stacked


def _start(workload: Batches) -> None:
    import ray

    ray.init(
        "local",
        num_cpus=workload.producers + 1,
        object_store_memory=1 << 31,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": str(Path(__file__).parent.parent)}},
    )


def batches_generators(workload: Batches) -> Iterator[Arrays]:
    """A task for each producer, whose generator waits for the consumer.

    https://docs.ray.io/en/latest/ray-core/ray-generator.html
    """
    if not workload.processes:
        raise NotSupported("its workers are processes, not threads")
    import itertools

    import ray

    _start(workload)

    def produce(producer: int) -> Iterator[Arrays]:
        yield from workload.reused_batches(producer)

    ahead = MAX_IN_FLIGHT // workload.producers
    remote = ray.remote(num_returns="streaming", _generator_backpressure_num_objects=ahead)(produce)
    produced = [remote.remote(producer) for producer in range(workload.producers)]
    for one in itertools.cycle(produced):
        yield ray.get(next(one))


def batches(workload: Batches) -> Iterator[Arrays]:
    """Ray Data over a Datasource, with a read task for each producer.

    https://docs.ray.io/en/latest/data/api/doc/ray.data.Datasource.html
    """
    if not workload.processes:
        raise NotSupported("its workers are processes, not threads")
    import pyarrow
    import ray
    from ray.data.block import BlockMetadata
    from ray.data.extensions import ArrowTensorArray

    _start(workload)

    def blocks(producer: int) -> Iterator[Any]:
        for data, numbers in workload.fresh_batches(producer):
            columns = {"data": data[None], "numbers": numbers[None]}
            yield pyarrow.table({name: ArrowTensorArray.from_numpy(column) for name, column in columns.items()})

    class Made(ray.data.Datasource):  # type: ignore[misc]
        def estimate_inmemory_data_size(self) -> int | None:
            return None

        def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[Any]:
            metadata = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
            return [ray.data.ReadTask(partial(blocks, producer), metadata) for producer in range(workload.producers)]

    ray.data.DataContext.get_current().target_max_block_size = max(workload.size, 1 << 20)
    made = ray.data.read_datasource(Made(), concurrency=workload.producers, override_num_blocks=workload.producers)
    for batch in made.iter_batches(batch_size=1, batch_format="numpy", prefetch_batches=MAX_IN_FLIGHT):
        yield batch["data"].reshape(workload.size), batch["numbers"].reshape(NUMBERS)
        del batch


def cold_start(folder: str, workload: Any, shuffle: bool) -> Any:
    import ray.data

    data = ray.data.read_parquet(f"{folder}/parquet")
    options = {"local_shuffle_buffer_size": workload.buffer} if shuffle else {}
    return data.iter_batches(batch_size=workload.batch, **options), lambda batch: np.stack(batch["x"])


def interruption_workers(item: Any = slow_item) -> Callable[[], object]:
    import ray.data

    ray.init("local", num_cpus=2, include_dashboard=False)
    data = ray.data.range(1000, override_num_blocks=100).map(_Item(item))
    iterator = iter(data.iter_batches(batch_size=1))
    return lambda: next(iterator)


class _Item:
    def __init__(self, item: Any) -> None:
        self.item = item

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"x": self.item(row["id"])}


def training(workload: Training, workers: int) -> Passes:
    """Indices, map_batches and iter_batches: https://docs.ray.io/en/latest/data/performance-tips.html."""
    import ray

    ray.init(
        "local",
        num_cpus=workers + 1,
        object_store_memory=2 << 30,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": str(Path(__file__).parent.parent)}},
    )

    def batch(indices: dict[str, Any]) -> dict[str, Any]:
        images, labels = stacked([workload.instance(int(i)) for i in indices["id"]])
        return {"image": images, "label": labels}

    made = ray.data.range(workload.count, override_num_blocks=workload.steps)
    made = made.map_batches(batch, batch_size=BATCH, concurrency=workers)
    return lambda: (
        (batch["image"], batch["label"])
        for batch in made.iter_batches(batch_size=BATCH, batch_format="numpy", prefetch_batches=AHEAD)
    )


def files(workload: Files) -> Callable[[], Iterator[Batch]]:
    """Ray Data: a `read_…` function, then `iter_batches` with `local_shuffle_buffer_size` and prefetched batches.

    https://docs.ray.io/en/latest/data/: Ray gets as many CPUs as the case has cores. `read_tfrecords` reads only
    tf.train.Example, and `read_numpy` reads rows. Files with one array each are read by `read_binary_files`.
    """
    if workload.format in ("tfrecord", "recordio", "raw"):
        raise NotSupported("it has no reader for records of plain bytes in such files")
    import ray

    os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
    ray.init(
        "local",
        num_cpus=workload.cores,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=1 << 30,
        configure_logging=False,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False

    def load(batch: dict[str, Any]) -> dict[str, Any]:
        return {"data": np.stack([np.load(io.BytesIO(contents)) for contents in batch["bytes"]])}

    def read() -> Any:
        paths = list(workload.paths)
        if workload.format == "npy":
            return ray.data.read_binary_files(paths).map_batches(load, batch_size=workload.batch)
        if workload.format == "rows":
            return ray.data.read_numpy(paths)
        if workload.format == "tar":
            return ray.data.read_webdataset(paths)
        return ray.data.read_csv(paths) if workload.format == "csv" else ray.data.read_tfrecords(paths)

    if workload.content:
        return _tables(workload)
    data = read()

    def begin() -> Iterator[Batch]:
        every = data.iter_batches(
            batch_size=workload.batch,
            batch_format="numpy",
            prefetch_batches=2,
            local_shuffle_buffer_size=workload.block,
        )
        for batch in every:
            if workload.format in ("npy", "rows"):
                yield (batch["data"],)
            elif workload.format == "csv":
                yield (np.column_stack([batch[name] for name in columns(workload)]).astype(np.float32),)
            elif workload.format == "tar":
                yield stack_bytes(list(batch["bin"])), np.asarray(batch["cls"], np.int64)
            else:
                yield np.stack(list(batch["image"])).astype(np.float32, copy=False), batch["label"]

    return begin


def _tables(workload: Files) -> Callable[[], Iterator[Batch]]:
    """`read_parquet` or `read_json`. Batches of Arrow need no conversion of lists."""
    import ray

    data = {"parquet": ray.data.read_parquet, "jsonl": ray.data.read_json}[workload.kind](list(workload.paths))

    def begin() -> Iterator[Batch]:
        for batch in data.iter_batches(
            batch_size=workload.batch,
            batch_format="pyarrow",
            prefetch_batches=2,
            local_shuffle_buffer_size=workload.block,
        ):
            yield tables.arrow_batch(workload, batch)

    return begin


def cold_start_files(folder: str, workload: Any) -> None:
    """Parquet, its best supported format. From TFRecord, it would read whole files before the first batch."""
    from pathlib import Path

    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet

    schema = pa.schema({"x": pa.list_(pa.float32(), workload.floats)})
    with pa.parquet.ParquetWriter(f"{folder}/one.parquet", schema) as writer:
        for begin in range(0, workload.records, 10_000):
            values = np.repeat(np.arange(begin, begin + 10_000, dtype=np.float32), workload.floats)
            array = pa.FixedSizeListArray.from_arrays(values, workload.floats)
            writer.write_batch(pa.record_batch([array], schema=schema))
    workload.link(Path(folder) / "one.parquet", Path(folder) / "parquet", ".parquet")
