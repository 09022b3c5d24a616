"""MosaicML Streaming."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import NotSupported
from workloads.batches import Arrays, Batches
from workloads.files import Batch, Files, stack_bytes
from workloads.resume import Pipeline, Prepared, Records, Stateful
from workloads.training import AHEAD, BATCH, Passes, Training


def batches(workload: Batches) -> Iterator[Arrays]:
    raise NotSupported("it reads only files that have been written before, not batches that a program makes")


def cold_start_files(folder: str, workload: Any) -> None:
    """MDS files of only a thousand records each: the library lists all records of a pass before it reads the first."""
    import json
    import os

    import numpy as np
    from streaming import MDSWriter

    columns = {"x": f"ndarray:float32:{workload.floats}"}
    with MDSWriter(out=f"{folder}/mds", columns=columns, size_limit=1 << 30) as writer:
        for i in range(1000):
            writer.write({"x": np.full(workload.floats, i, np.float32)})
    with open(f"{folder}/mds/index.json") as f:
        index = json.load(f)
    (shard,) = index["shards"]
    first = shard["raw_data"]["basename"]
    index["shards"] = []
    for i in range(workload.shards):
        name = f"shard.{i:05}.mds"
        if name != first:
            os.link(f"{folder}/mds/{first}", f"{folder}/mds/{name}")
        index["shards"].append({**shard, "raw_data": {**shard["raw_data"], "basename": name}})
    with open(f"{folder}/mds/index.json", "w") as f:
        json.dump(index, f)


def cold_start(folder: str, workload: Any, shuffle: bool) -> Any:
    """MDS, its own format, from a local folder, in PyTorch's DataLoader as its documentation shows."""
    import torch.utils.data
    from streaming import StreamingDataset

    data = StreamingDataset(
        local=f"{folder}/mds", shuffle=shuffle, batch_size=workload.batch, shuffle_block_size=workload.buffer
    )
    return torch.utils.data.DataLoader(data, batch_size=workload.batch), lambda batch: batch["x"].numpy()


def training(workload: Training, workers: int) -> Passes:
    """A StreamingDataset of MDS shards, which preprocesses in __getitem__, in a DataLoader with persistent workers.

    https://docs.mosaicml.com/projects/streaming/en/stable/dataset_configuration/mds_dataset_format.html
    """
    from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

    folder = workload.folder / "mosaic"
    if not folder.exists():
        with MDSWriter(out=str(folder), columns={"image": "ndarray", "label": "int"}) as writer:
            for i in range(workload.count):
                writer.write({"image": workload.stored()[i], "label": i})

    class Instances(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, at: int) -> Any:
            sample = super().__getitem__(at)
            return workload.preprocessed(sample["image"], np.int64(sample["label"]))

    loader = StreamingDataLoader(
        Instances(local=str(folder), batch_size=BATCH, shuffle=False),
        batch_size=BATCH,
        num_workers=workers,
        prefetch_factor=AHEAD // workers,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    return lambda: ((images.numpy(), labels.numpy()) for images, labels in loader)


def files(workload: Files, workers: int) -> Callable[[], Iterator[Batch]]:
    """StreamingDataset with PyTorch's DataLoader: https://docs.mosaicml.com/projects/streaming.

    The library reads MDS, its own format, and JSON and CSV files that have its index. In the cases of RecordIO it reads
    MDS records of bytes, and in those of tf.train.Example MDS records of fields.
    """
    if workload.format not in ("recordio", "example", "mds"):
        raise NotSupported("it has no reader for such files: it reads only files that its own writers have written")
    import torch
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory
    from torch.utils.data import DataLoader

    if workload.format == "mds":
        written = Path(workload.paths[0]).parent
    else:
        written = workload.own("mds", functools.partial(_mds, workload))
    clean_stale_shared_memory()
    data = StreamingDataset(local=str(written), shuffle=True, batch_size=workload.batch, num_canonical_nodes=1)

    def stack(some: list[dict[str, Any]]) -> list[Any]:
        if workload.format == "recordio":
            return [torch.from_numpy(stack_bytes([sample["record"] for sample in some]).copy())]
        if workload.format == "mds":
            records = torch.from_numpy(stack_bytes([sample["data"] for sample in some]).copy())
            return [records, torch.tensor([sample["label"] for sample in some])]
        images = np.stack([sample["image"] for sample in some])
        return [torch.from_numpy(images), torch.tensor([sample["label"] for sample in some])]

    loader = DataLoader(data, workload.batch, collate_fn=stack, num_workers=workers, persistent_workers=workers > 0)
    return lambda: (tuple(tensor.numpy() for tensor in batch) for batch in loader)


def _mds(workload: Files, folder: Path) -> None:
    from streaming import MDSWriter

    fields = (
        {"record": "bytes"} if workload.format == "recordio" else {"image": "ndarray:float32:784", "label": "int64"}
    )
    with MDSWriter(out=str(folder), columns=fields) as writer:
        for i in range(workload.count):
            array = workload.array(i)
            writer.write({"record": array.tobytes()} if workload.format == "recordio" else {"image": array, "label": i})


def resume(workload: Records) -> Prepared:
    """StreamingDataLoader, whose state is that of the StreamingDataset, over MDS files.

    https://docs.mosaicml.com/projects/streaming/en/stable/dataset_configuration/shuffling.html
    """
    import torch
    from streaming import StreamingDataLoader, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    written = workload.own("mds", functools.partial(_mds_records, workload))
    clean_stale_shared_memory()

    def stack(some: list[dict[str, Any]]) -> Any:
        return torch.from_numpy(stack_bytes([sample["record"] for sample in some]).copy())

    def make() -> Pipeline:
        data = StreamingDataset(
            local=str(written),
            shuffle=True,
            shuffle_seed=workload.seed,
            shuffle_block_size=workload.buffer,
            batch_size=workload.batch,
            num_canonical_nodes=1,
        )
        return Stateful(
            StreamingDataLoader(data, batch_size=workload.batch, collate_fn=stack), lambda batch: batch.numpy()
        )

    return make


def _mds_records(workload: Records, folder: Path) -> None:
    from streaming import MDSWriter

    with MDSWriter(
        out=str(folder), columns={"record": "bytes"}, size_limit=workload.records * (workload.size + 32)
    ) as writer:
        for k in range(workload.files):
            for record in workload.shard(k):
                writer.write({"record": record})
