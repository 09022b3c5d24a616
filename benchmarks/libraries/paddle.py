"""PaddlePaddle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from harness import NotSupported
from workloads.batches import MAX_IN_FLIGHT, NUMBERS, Arrays, Batches
from workloads.files import RANDOM_ACCESS, ArrayDataset, Batch, Files, read_batches
from workloads.interruption import slow_item
from workloads.training import AHEAD, BATCH, Image, Passes, Training


def batches(workload: Batches) -> Iterator[Arrays]:
    """paddle.io.DataLoader, with worker processes or with its own thread.

    https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/io/DataLoader_en.html
    """
    if not workload.processes and workload.producers > 1:
        raise NotSupported("it makes batches in one thread or in worker processes, not in two threads")
    import paddle

    class Endless(paddle.io.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Arrays]:
            worker = paddle.io.get_worker_info()
            return workload.fresh_batches(worker.id if worker else 0)

    loader = paddle.io.DataLoader(
        Endless(),
        places=paddle.CPUPlace(),
        batch_size=None,
        num_workers=workload.producers if workload.processes else 0,
        prefetch_factor=MAX_IN_FLIGHT // workload.producers,
        use_shared_memory=True,
    )
    for data, numbers in loader:
        yield np.from_dlpack(data), np.from_dlpack(numbers)
        del data, numbers


def batches_queue(workload: Batches) -> Iterator[Arrays]:
    """The blocking queue that DataLoader uses internally, with one pushing thread for each producer."""
    if workload.processes:
        raise NotSupported("it connects threads of one process, not processes")
    import paddle
    from paddle.base import core

    place = core.Place()
    place.set_place(core.CPUPlace())
    waiting = core.init_dense_tensor_blocking_queue(core.Variable(), MAX_IN_FLIGHT, False)
    types = [core.VarDesc.VarType.UINT8, core.VarDesc.VarType.FP64]
    reader = core.create_py_reader(
        waiting, ["data", "numbers"], [[workload.size], [NUMBERS]], types, [False, False], [place], True, True, False, 2
    )

    def produce(producer: int) -> None:
        for arrays in workload.fresh_batches(producer):
            array = core.DenseTensorArray()
            for each in arrays:
                tensor = core.DenseTensor()
                tensor.set(each, core.CPUPlace())
                array.append(tensor)
            waiting.push(array)

    for producer in range(workload.producers):
        threading.Thread(target=produce, args=(producer,), daemon=True).start()
    paddle.disable_static()
    while True:
        data, numbers = core.eager.read_next_tensor_list(reader.read_next_list()[0])
        yield np.from_dlpack(data), np.from_dlpack(numbers)
        del data, numbers


def interruption_generator() -> Callable[[], object]:
    iterator = iter(_items_loader(slow_item, 0))
    return lambda: next(iterator)


def interruption_workers(item: Any = slow_item) -> Callable[[], object]:
    iterator = iter(_items_loader(item, 2))
    return lambda: next(iterator)


def _items_loader(item: Any, workers: int) -> Any:
    import paddle.io

    class Items(paddle.io.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 1000

        def __getitem__(self, i: int) -> Any:
            return item(i)

    return paddle.io.DataLoader(Items(), batch_size=None, num_workers=workers)


class _Instances:
    """A map-style dataset. It is pickled, so its class is defined here, where the library is not imported."""

    def __init__(self, workload: Training) -> None:
        self._workload = workload

    def __len__(self) -> int:
        return self._workload.count

    def __getitem__(self, index: int) -> tuple[Image, np.int64]:
        return self._workload.instance(index)


def training(workload: Training, workers: int) -> Passes:
    """paddle.io.DataLoader over a map-style dataset, with persistent workers.

    https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/io/DataLoader_en.html
    """
    import paddle

    loader: Any = paddle.io.DataLoader(
        _Instances(workload),
        places=paddle.CPUPlace(),
        batch_size=BATCH,
        num_workers=workers,
        prefetch_factor=AHEAD // workers,
        persistent_workers=True,
        use_shared_memory=True,
    )

    def one() -> Iterator[tuple[Any, Any]]:
        for images, labels in loader:
            yield np.from_dlpack(images), np.from_dlpack(labels)
            del images, labels

    return one


def files(workload: Files, workers: int) -> Callable[[], Iterator[Batch]]:
    """DataLoader, which leaves reading to its dataset, like PyTorch's. It delivers tensors of Paddle.

    https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/io/DataLoader_en.html: an IterableDataset runs in
    this process, since version 3.3 never delivered a first batch here with workers and `batch_size=None`.
    InMemoryDataset and QueueDataset are not used, since they only read a text format of their own.
    """
    import paddle
    from paddle.io import DataLoader, Dataset, IterableDataset, get_worker_info

    paddle.device.set_device("cpu")

    class Arrays(Dataset):  # type: ignore[misc]
        rows = ArrayDataset(workload)

        def __len__(self) -> int:
            return workload.count

        def __getitem__(self, i: int) -> Any:
            return self.rows[i]

    class Records(IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Batch]:
            info = get_worker_info()
            return read_batches(
                workload, workload.paths if info is None else workload.paths[info.id :: info.num_workers]
            )

    options: dict[str, Any] = {"num_workers": workers, "places": paddle.CPUPlace()}
    if workload.format in RANDOM_ACCESS:
        loader = DataLoader(
            Arrays(), batch_size=workload.batch, shuffle=True, collate_fn=lambda some: (np.stack(some),), **options
        )
    else:
        loader = DataLoader(Records(), batch_size=None, **options)
    return lambda: (tuple(tensor.numpy() for tensor in batch) for batch in loader)
