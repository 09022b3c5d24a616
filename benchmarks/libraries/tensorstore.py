"""TensorStore."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import NotSupported
from workloads.batches import Arrays, Batches
from workloads.files import Batch, Files, shuffled_rows


def batches(workload: Batches) -> Iterator[Arrays]:
    raise NotSupported("it has no queue for batches that a program makes")


def cold_start_files(folder: str, workload: Any) -> None:
    """A Zarr array of a thousand chunks of 10,000 records, all of which are one file."""
    import os
    from pathlib import Path

    import numpy as np
    import tensorstore

    rows = 10_000
    store = tensorstore.open(
        {"driver": "zarr", "kvstore": {"driver": "file", "path": f"{folder}/zarr"}},
        create=True,
        dtype=tensorstore.float32,
        shape=(workload.shards * rows, workload.floats),
        chunk_layout=tensorstore.ChunkLayout(chunk_shape=(rows, workload.floats)),
    ).result()
    store[:rows].write(np.repeat(np.arange(rows, dtype=np.float32)[:, None], workload.floats, axis=1)).result()
    (chunk,) = (path for path in Path(folder, "zarr").iterdir() if not path.name.startswith("."))
    for i in range(1, workload.shards):
        os.link(chunk, chunk.with_name(f"{i}.0"))


def cold_start(folder: str, workload: Any, shuffle: bool) -> Any:
    """Zarr, one of its formats, read block by block. NumPy shuffles the records of a block."""
    import numpy as np
    import tensorstore

    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": f"{folder}/zarr"}}
    store = tensorstore.open(spec, read=True).result()
    rows = workload.buffer if shuffle else workload.batch

    def batches() -> Any:
        for begin in range(0, store.shape[0], rows):
            block = store[begin : begin + rows].read().result()
            order = np.random.default_rng().permutation(rows) if shuffle else np.arange(rows)
            for i in range(0, rows, workload.batch):
                yield block[order[i : i + workload.batch]]

    return batches(), lambda batch: batch


def files(workload: Files, ahead: int) -> Callable[[], Iterator[Batch]]:
    """Zarr with a chunk for each block of the shuffle. Chunks are read ahead, and NumPy shuffles each block.

    https://google.github.io/tensorstore/python/api: it has no driver for npy files and files without a header, so it
    reads the same rows from Zarr, uncompressed.

    Parameters
    ----------
    workload : Files
    ahead : int
        How many blocks are read ahead.
    """
    if workload.format not in ("rows", "raw"):
        raise NotSupported("it has no reader for such files: it reads arrays in chunks")
    import tensorstore

    written = workload.own("zarr", functools.partial(_zarr, workload))
    limits = {"data_copy_concurrency": workload.cores, "file_io_concurrency": workload.cores}
    context = tensorstore.Context({name: {"limit": limit} for name, limit in limits.items()})
    store = tensorstore.open(_spec(written), read=True, context=context).result()

    def begin() -> Iterator[Batch]:
        blocks = [slice(i, min(i + workload.block, workload.count)) for i in range(0, workload.count, workload.block)]
        reading = [store[block].read() for block in blocks[:ahead]]
        for following in blocks[ahead:] + [None] * ahead:
            rows = reading.pop(0).result()
            if following is not None:
                reading.append(store[following].read())
            yield from shuffled_rows(rows, workload.batch)
            del rows

    return begin


def _spec(folder: Path) -> dict[str, Any]:
    return {"driver": "zarr", "kvstore": {"driver": "file", "path": str(folder)}}


def _zarr(workload: Files, folder: Path) -> None:
    import numpy as np
    import tensorstore

    (size,) = workload.shape
    store = tensorstore.open(
        {**_spec(folder), "metadata": {"compressor": None}},
        create=True,
        dtype=tensorstore.dtype(workload.dtype),
        shape=(workload.count, size),
        chunk_layout=tensorstore.ChunkLayout(chunk_shape=(workload.block, size)),
    ).result()
    for i in range(0, workload.count, workload.block):
        some = range(i, min(i + workload.block, workload.count))
        store[some.start : some.stop].write(np.stack([workload.array(j) for j in some])).result()
