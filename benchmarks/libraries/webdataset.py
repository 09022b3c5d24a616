"""WebDataset."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from harness import NotSupported
from workloads.batches import MAX_IN_FLIGHT, Arrays, Batches
from workloads.files import Batch, Files, collate
from workloads.interruption import slow, slow_item
from workloads.training import AHEAD, BATCH, Image, Passes, Training


def batches(workload: Batches) -> Iterator[Arrays]:
    """A WebLoader over a pipeline whose source makes the batches: https://webdataset.github.io/webdataset/."""
    if not workload.processes:
        raise NotSupported("it uses the workers of PyTorch's DataLoader, which are processes, not threads")
    import webdataset
    from torch.utils.data import get_worker_info

    def source() -> Iterator[Arrays]:
        return workload.fresh_batches(get_worker_info().id)

    loader = webdataset.WebLoader(
        webdataset.DataPipeline(source),
        batch_size=None,
        num_workers=workload.producers,
        prefetch_factor=MAX_IN_FLIGHT // workload.producers,
        multiprocessing_context="fork",
    )
    for data, numbers in loader:
        yield data.numpy(), numbers.numpy()
        del data, numbers


def cold_start_files(folder: str, workload: Any) -> None:
    """Tar files with only as many records as the first batch and the shuffle buffer need."""
    from pathlib import Path

    import numpy as np
    import webdataset

    with webdataset.TarWriter(f"{folder}/one.tar") as writer:
        for i in range(workload.buffer + workload.batch):
            writer.write({"__key__": f"{i:07}", "npy": np.full(workload.floats, i, np.float32)})
    workload.link(Path(folder) / "one.tar", Path(folder) / "tar", ".tar")


def cold_start(folder: str, workload: Any, shuffle: bool) -> Any:
    """Tar files. With `initial` it fills the whole shuffle buffer first, as other libraries do; the default is 100."""
    import glob

    import webdataset

    names = sorted(glob.glob(f"{folder}/tar/*.tar"))
    data = webdataset.WebDataset(names, shardshuffle=1000 if shuffle else False)
    if shuffle:
        data = data.shuffle(workload.buffer, initial=workload.buffer)
    return data.decode().to_tuple("npy").batched(workload.batch), lambda batch: batch[0]


def interruption_generator() -> Callable[[], object]:
    import webdataset

    iterator = iter(webdataset.DataPipeline(lambda: slow()))
    return lambda: next(iterator)


def interruption_workers(item: Any = slow_item) -> Callable[[], object]:
    """`WebLoader`, which wraps PyTorch's DataLoader."""
    import webdataset

    data = webdataset.DataPipeline(_Source(item))
    iterator = iter(webdataset.WebLoader(data, batch_size=None, num_workers=2))
    return lambda: next(iterator)


class _Source:
    def __init__(self, item: Any) -> None:
        self.item = item

    def __call__(self) -> Iterator[Any]:
        return map(self.item, range(1000))


def files(workload: Files, workers: int) -> Callable[[], Iterator[Batch]]:
    """WebDataset with shuffle, decode and batched, in a WebLoader with workers.

    https://github.com/webdataset/webdataset, README: `shardshuffle`, `shuffle`, `decode`, `to_tuple`, `batched`, and
    `WebLoader` with `batch_size=None`.
    """
    if workload.format != "tar":
        raise NotSupported("it reads only tar files")
    import webdataset

    data = webdataset.WebDataset(list(workload.paths), shardshuffle=len(workload.paths), empty_check=False)
    data = data.shuffle(workload.block).decode().to_tuple("bin", "cls")
    data = data.batched(workload.batch, collation_fn=functools.partial(collate, workload))
    loader = webdataset.WebLoader(data, batch_size=None, num_workers=workers, persistent_workers=workers > 0)

    def begin() -> Iterator[Batch]:
        return (tuple(map(np.asarray, batch)) for batch in loader)

    return begin


SHARDS = 4


def training(workload: Training, workers: int) -> Passes:
    """Tar shards of npy files, decoded, mapped and batched in the persistent workers of a WebLoader.

    https://webdataset.github.io/webdataset/gettingstarted/
    """
    import webdataset

    folder = workload.folder / "webdataset"
    urls = [str(folder / f"{shard}.tar") for shard in range(SHARDS)]
    if not folder.exists():
        folder.mkdir()
        each = workload.count // SHARDS
        for shard, url in enumerate(urls):
            with webdataset.TarWriter(url) as writer:
                for i in range(shard * each, (shard + 1) * each):
                    writer.write({"__key__": f"{i:06}", "npy": workload.stored()[i], "cls": i})
    dataset = (
        webdataset.WebDataset(urls, shardshuffle=False)
        .decode()
        .to_tuple("npy", "cls")
        .map(_Preprocessed(workload))
        .batched(BATCH, partial=False)
    )
    loader = webdataset.WebLoader(
        dataset,
        batch_size=None,
        num_workers=workers,
        prefetch_factor=AHEAD // workers,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    return lambda: ((np.asarray(images), np.asarray(labels)) for images, labels in loader)


class _Preprocessed:
    def __init__(self, workload: Training) -> None:
        self._workload = workload

    def __call__(self, stored: tuple[Any, int]) -> tuple[Image, np.int64]:
        return self._workload.preprocessed(stored[0], np.int64(stored[1]))
