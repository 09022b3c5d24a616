"""LitData."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import NotSupported
from workloads.batches import Arrays, Batches
from workloads.files import Batch, Files, stack_bytes


def batches(workload: Batches) -> Iterator[Arrays]:
    raise NotSupported("it reads only files that have been written before, not batches that a program makes")


def cold_start_files(folder: str, workload: Any) -> None:
    """Chunks of only a thousand records each: the library lists all records of a pass before it reads the first."""
    import json
    import os

    import numpy as np
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(f"{folder}/litdata", chunk_size=1000)
    for i in range(1000):
        writer[i] = {"x": np.full(workload.floats, i, np.float32)}
    writer.done()
    writer.merge()
    with open(f"{folder}/litdata/index.json") as f:
        index = json.load(f)
    (chunk,) = index["chunks"]
    index["chunks"] = []
    for i in range(workload.shards):
        name = f"chunk-{i}-0.bin"
        if name != chunk["filename"]:
            os.link(f"{folder}/litdata/{chunk['filename']}", f"{folder}/litdata/{name}")
        index["chunks"].append({**chunk, "filename": name})
    with open(f"{folder}/litdata/index.json", "w") as f:
        json.dump(index, f)


def cold_start(folder: str, workload: Any, shuffle: bool) -> Any:
    """Its own format, from a local folder. It shuffles the chunks, and the records of each chunk."""
    from litdata import StreamingDataLoader, StreamingDataset

    data = StreamingDataset(f"{folder}/litdata", shuffle=shuffle)
    return StreamingDataLoader(data, batch_size=workload.batch), lambda batch: batch["x"].numpy()


def files(workload: Files, workers: int) -> Callable[[], Iterator[Batch]]:
    """StreamingDataset in a StreamingDataLoader: https://github.com/Lightning-AI/litData.

    The library reads chunks that `optimize` writes, its own format. It shuffles the chunks, and the instances of each
    chunk, so a chunk has as many instances as a block of the shuffle.
    """
    if workload.format not in ("recordio", "example"):
        raise NotSupported("it has no reader for such files: it reads only files that its own functions have written")
    os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"
    import torch
    from litdata import StreamingDataLoader, StreamingDataset

    written = workload.own("litdata", functools.partial(_chunks, workload))
    data = StreamingDataset(str(written), shuffle=True)

    def stack(some: list[Any]) -> list[Any]:
        if workload.format == "recordio":
            return [torch.from_numpy(stack_bytes(some).copy())]
        images = np.stack([sample["image"] for sample in some])
        return [torch.from_numpy(images), torch.tensor([sample["label"] for sample in some])]

    loader = StreamingDataLoader(
        data, batch_size=workload.batch, collate_fn=stack, num_workers=workers, persistent_workers=workers > 0
    )
    return lambda: (tuple(tensor.numpy() for tensor in batch) for batch in loader)


def _chunks(workload: Files, folder: Path) -> None:
    import litdata

    litdata.optimize(
        fn=functools.partial(_instance, workload),
        inputs=list(range(workload.count)),
        output_dir=str(folder),
        chunk_size=workload.block,
        num_workers=1,
        verbose=False,
    )


def _instance(workload: Files, i: int) -> Any:
    array = workload.array(i)
    return array.tobytes() if workload.format == "recordio" else {"image": array, "label": i}
