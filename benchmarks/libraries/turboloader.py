"""TurboLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from harness import NotSupported
from workloads.batches import MAX_IN_FLIGHT, Arrays, Batches, BatchSource
from workloads.files import ArrayDataset, Batch, Files


def batches(workload: Batches) -> Iterator[Arrays]:
    """The threads of a MapDataLoader, which call a dataset in Python: https://github.com/ALJainProjects/TurboLoader."""
    if workload.processes:
        raise NotSupported("its workers are threads, not processes")
    from turboloader import MapDataLoader

    loader = MapDataLoader(
        BatchSource(workload, 1 << 20),  # the loader lists the numbers of all batches of a pass
        batch_size=1,
        num_workers=workload.producers,
        collate_fn=lambda some: some[0],
        prefetch_batches=MAX_IN_FLIGHT,
    )
    while True:
        yield from loader


def files(workload: Files, threads: int) -> Callable[[], Iterator[Batch]]:
    """An ArrayDataLoader over each mapped file of rows. npy files are read by a MapDataLoader, or by `read_files`.

    Its TokenDataLoader draws windows of tokens at random, so that some come twice and others never.

    Parameters
    ----------
    workload : Files
    threads : int
        Those of the MapDataLoader; 0: `read_files`, which reads the files of a batch in threads of its own.
    """
    if workload.format not in ("npy", "rows", "raw", "tokens"):
        raise NotSupported("it has no reader for such files: of archives, it reads only images")
    import turboloader

    rows = ArrayDataset(workload)
    passes = 0

    def read_files() -> Iterator[Batch]:
        paths = np.random.default_rng().permutation(np.array(workload.paths)).tolist()
        for i in range(0, len(paths), workload.batch):
            some = turboloader.read_files(paths[i : i + workload.batch])
            yield (np.stack([np.frombuffer(one, workload.dtype, offset=128).reshape(workload.shape) for one in some]),)

    if workload.format == "npy":
        if threads == 0:
            return read_files
        loaders = [
            turboloader.MapDataLoader(rows, workload.batch, shuffle=True, num_workers=threads, collate_fn=np.stack)
        ]
    else:
        loaders = [
            turboloader.ArrayDataLoader(mapped, batch_size=workload.batch, shuffle=True) for mapped in rows.mapped()
        ]

    def begin() -> Iterator[Batch]:
        nonlocal passes
        passes += 1
        for loader in loaders:
            loader.set_epoch(passes)
            for batch in loader:
                yield (batch,)

    return begin
