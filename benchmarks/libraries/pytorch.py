"""PyTorch's DataLoader, and the nodes of torchdata."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from harness import NotSupported
from workloads.batches import MAX_IN_FLIGHT, NUMBERS, Arrays, Batches
from workloads.files import RANDOM_ACCESS, ArrayDataset, Batch, Files, collate, lists, raw, read_batches, stack_bytes
from workloads.interruption import slow, slow_item
from workloads.resume import MappedRows, Pipeline, Prepared, Records, Rows, Stateful
from workloads.training import AHEAD, BATCH, Image, Label, Passes, Training


def batches(workload: Batches, strategy: str, shared: bool) -> Iterator[Arrays]:
    """A DataLoader over an IterableDataset, of which each worker makes a part.

    https://docs.pytorch.org/docs/stable/data.html, with the sharing strategies of
    https://docs.pytorch.org/docs/stable/multiprocessing.html.

    Parameters
    ----------
    workload : Batches
    strategy : {"file_descriptor", "file_system"}
    shared : bool
        True: batches are written into tensors in shared memory, as ``default_collate`` does. False: batches are
        written into arrays, which are copied to shared memory.
    """
    if not workload.processes:
        raise NotSupported("its workers are processes, not threads")
    import torch
    import torch.multiprocessing
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    def in_shared_memory() -> tuple[Any, Any]:
        storage = torch.UntypedStorage._new_shared
        return (
            torch.empty(0, dtype=torch.uint8).set_(storage(workload.size)),
            torch.empty(0, dtype=torch.float64).set_(storage(8 * NUMBERS)),
        )

    def tensors(producer: int) -> Iterator[tuple[Any, Any]]:
        if workload.sent:
            finished = in_shared_memory()
            workload.fill((finished[0].numpy(), finished[1].numpy()), producer)
            yield from itertools.repeat(finished)
        for i in workload.numbers(producer):
            data, numbers = in_shared_memory()
            workload.fill((data.numpy(), numbers.numpy()), i)
            yield data, numbers

    class Endless(IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            torch.multiprocessing.set_sharing_strategy(strategy)
            producer = get_worker_info().id
            return tensors(producer) if shared else workload.fresh_batches(producer)

    torch.multiprocessing.set_sharing_strategy(strategy)
    loader = DataLoader(
        Endless(),
        batch_size=None,
        num_workers=workload.producers,
        prefetch_factor=MAX_IN_FLIGHT // workload.producers,
        multiprocessing_context="fork",
    )
    for data, numbers in loader:
        yield data.numpy(), numbers.numpy()
        del data, numbers


def batches_nodes(workload: Batches, prebatch: int | None) -> Iterator[Arrays]:
    """ParallelMapper and Prefetcher: https://meta-pytorch.org/data/main/what_is_torchdata_nodes.html.

    Parameters
    ----------
    workload : Batches
    prebatch : int or None
        The number of items that a worker gets at once, for fast functions.
    """
    from torchdata import nodes

    node: Any = nodes.ParallelMapper(
        nodes.IterableWrapper(itertools.count()),
        workload.item,
        num_workers=workload.producers,
        in_order=False,
        method="process" if workload.processes else "thread",
        multiprocessing_context="spawn" if workload.processes else None,
        prebatch=prebatch,
    )
    return iter(nodes.Loader(nodes.Prefetcher(node, prefetch_factor=MAX_IN_FLIGHT)))


def cold_start(folder: str, workload: Any, shuffle: bool) -> Any:
    """The datasets of the package tfrecord, as in its README, since PyTorch has no reader of TFRecord."""
    import glob

    import torch.utils.data
    from tfrecord.torch.dataset import MultiTFRecordDataset, TFRecordDataset

    about, names = {"x": "float"}, sorted(glob.glob(f"{folder}/tfrecord/*.tfrecord"))
    if shuffle:
        splits = {name.rpartition("/")[2]: 1 / len(names) for name in names}
        data: Any = MultiTFRecordDataset(
            f"{folder}/tfrecord/{{}}", None, splits, about, workload.buffer, infinite=False
        )
    else:
        data = torch.utils.data.ChainDataset([TFRecordDataset(name, None, about) for name in names])
    return torch.utils.data.DataLoader(data, batch_size=workload.batch), lambda batch: batch["x"].numpy()


def interruption_generator() -> Callable[[], object]:
    iterator = iter(_loader(slow_item, 0))
    return lambda: next(iterator)


def interruption_workers(item: Any = slow_item) -> Callable[[], object]:
    iterator = iter(_loader(item, 2))
    return lambda: next(iterator)


def _loader(item: Any, workers: int) -> Any:
    import torch.utils.data

    return torch.utils.data.DataLoader(_Items(item), batch_size=None, num_workers=workers)


class _Items:
    """A map-style dataset: PyTorch needs only its length and its items."""

    def __init__(self, item: Any) -> None:
        self.item = item

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, i: int) -> Any:
        return self.item(i)


def interruption_nodes() -> Callable[[], object]:
    from torchdata.nodes import IterableWrapper, Loader, Prefetcher

    iterator = iter(Loader(Prefetcher(IterableWrapper(slow()), 2)))
    return lambda: next(iterator)


def interruption_mapper(method: str = "thread", item: Any = slow_item) -> Callable[[], object]:
    from torchdata.nodes import IterableWrapper, Loader, ParallelMapper

    iterator = iter(Loader(ParallelMapper(IterableWrapper(range(1000)), item, num_workers=2, method=method)))
    return lambda: next(iterator)


def interruption_nodes_workers(item: Any = slow_item) -> Callable[[], object]:
    return interruption_mapper("process", item)


def files(workload: Files, workers: int) -> Callable[[], Iterator[Batch]]:
    """DataLoader, which leaves reading to its dataset: map-style for formats with random access, else iterable.

    https://docs.pytorch.org/docs/stable/data.html: `get_worker_info` tells workers apart, and `persistent_workers`
    keeps them. A worker reads a whole batch by `__getitems__`, or the iterable dataset makes batches and automatic
    batching is disabled. An iterable dataset determines the order itself: each worker shuffles the instances of its
    files.
    """
    import torch
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    def tensors(batch: Batch) -> list[Any]:
        return [torch.from_numpy(array) if isinstance(array, np.ndarray) else array for array in batch]

    class Records(IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[list[Any]]:
            info = get_worker_info()
            mine = workload.paths if info is None else workload.paths[info.id :: info.num_workers]
            return map(tensors, read_batches(workload, mine))

    options: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0}
    if workload.format in RANDOM_ACCESS:

        def stack(some: list[Any]) -> list[Any]:
            return tensors((np.stack(some),))

        loader = DataLoader(ArrayDataset(workload), workload.batch, shuffle=True, collate_fn=stack, **options)
    else:
        loader = DataLoader(Records(), batch_size=None, **options)
    return lambda: (
        tuple(part.numpy() if isinstance(part, torch.Tensor) else part for part in batch) for batch in loader
    )


def files_nodes(workload: Files, workers: int) -> Callable[[], Iterator[Batch]]:
    """torchdata's nodes: SamplerWrapper or IterableWrapper, ParallelMapper in threads, Prefetcher.

    https://docs.pytorch.org/data/main/torchdata.nodes.html: no node shuffles, so the sampler or the source does.
    """
    import torch
    from torch.utils.data import BatchSampler, RandomSampler
    from torchdata import nodes

    class Lists:
        def __iter__(self) -> Iterator[Any]:
            return (
                read_batches(workload, workload.paths) if workload.format == "csv" else lists(workload, workload.paths)
            )

    def tensors(batch: Batch) -> list[Any]:
        return [torch.from_numpy(array) for array in batch]

    if workload.format in RANDOM_ACCESS:
        rows = ArrayDataset(workload)
        source = nodes.SamplerWrapper(BatchSampler(RandomSampler(rows), workload.batch, drop_last=False))

        def load(some: Any) -> list[Any]:
            return tensors((np.stack(rows.__getitems__(some)),))
    else:
        source = nodes.IterableWrapper(Lists())

        def load(some: Any) -> list[Any]:
            return tensors(some if workload.format == "csv" else collate(workload, some))

    node = nodes.ParallelMapper(source, load, num_workers=workers, method="thread", in_order=False)
    loader = nodes.Loader(nodes.Prefetcher(node, prefetch_factor=2))
    return lambda: (tuple(tensor.numpy() for tensor in batch) for batch in loader)


class TrainingInstances:
    """A map-style dataset."""

    def __init__(self, workload: Training) -> None:
        self._workload = workload

    def __len__(self) -> int:
        return self._workload.count

    def __getitem__(self, index: int) -> tuple[Image, np.int64]:
        return self._workload.instance(index)


def training(workload: Training, workers: int, prefetch: int) -> Passes:
    """A DataLoader over a map-style dataset, with persistent workers.

    https://docs.pytorch.org/docs/stable/data.html
    """
    from torch.utils.data import DataLoader

    loader = DataLoader(
        TrainingInstances(workload),
        batch_size=BATCH,
        num_workers=workers,
        prefetch_factor=prefetch,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    return lambda: numpy_batches(loader)


def numpy_batches(loader: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Image, Label]]:
    """The tensors of each batch as NumPy arrays, without a copy."""
    for images, labels in loader:
        yield images.numpy(), labels.numpy()
        del images, labels


def training_nodes(workload: Training, workers: int, method: str) -> Passes:
    """MapAndCollate in a ParallelMapper, which starts new workers for each pass.

    https://meta-pytorch.org/data/main/migrate_to_nodes_from_utils.html
    """
    from torch.utils.data import BatchSampler, SequentialSampler
    from torchdata import nodes

    batches = BatchSampler(SequentialSampler(range(workload.count)), BATCH, drop_last=True)
    node: Any = nodes.ParallelMapper(
        nodes.SamplerWrapper(batches),
        _MapAndCollate(workload),
        num_workers=workers,
        method=method,
        multiprocessing_context="fork" if method == "process" else None,
    )
    loader = nodes.Loader(nodes.Prefetcher(node, prefetch_factor=AHEAD))
    return lambda: numpy_batches(loader)


class _MapAndCollate:
    def __init__(self, workload: Training) -> None:
        self._workload = workload

    def __call__(self, indices: list[int]) -> Any:
        from torch.utils.data import default_collate

        return default_collate([self._workload.instance(index) for index in indices])


def resume_map(workload: Records) -> Prepared:
    """torchdata's StatefulDataLoader over a map-style dataset of mapped files, shuffled by its sampler.

    https://meta-pytorch.org/data/main/torchdata.stateful_dataloader.html
    """
    import torch
    from torchdata.stateful_dataloader import StatefulDataLoader

    paths = workload.raw()

    def make() -> Pipeline:
        loader = StatefulDataLoader(
            MappedRows(paths, workload),
            workload.batch,
            shuffle=True,
            generator=torch.Generator().manual_seed(workload.seed),
            collate_fn=lambda some: torch.from_numpy(np.stack(some)),
        )
        return Stateful(loader, _as_array)

    return make


def resume_iterable(workload: Records) -> Prepared:
    """StatefulDataLoader over an iterable dataset without a state of its own: it is iterated again up to the position.

    The dataset shuffles, and makes whole batches.
    """
    import torch
    from torch.utils.data import IterableDataset
    from torchdata.stateful_dataloader import StatefulDataLoader

    paths = workload.raw()

    class Blocks(IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            draw = random.Random(workload.seed)
            source = itertools.chain.from_iterable(raw(path, workload.size) for path in paths)
            while block := list(itertools.islice(source, workload.buffer)):
                draw.shuffle(block)
                for i in range(0, len(block), workload.batch):
                    yield torch.from_numpy(stack_bytes(block[i : i + workload.batch]).copy())

    return lambda: Stateful(StatefulDataLoader(Blocks(), batch_size=None), _as_array)


def _as_array(batch: Any) -> Rows:
    rows: Rows = batch.numpy()
    return rows
