"""PaddlePaddle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from measuring import NotOffered
from tasks.batches import NUMBERS, WAITING, Arrays, Batches
from tasks.files import RANDOM_ACCESS, Batch, Files, Rows, read_batches
from tasks.interruption import slow_item
from tasks.training import AHEAD, BATCH, Image, Passes, Training


def batches(task: Batches) -> Iterator[Arrays]:
    """paddle.io.DataLoader, with workers or with a thread of its own.

    https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/io/DataLoader_en.html
    """
    if not task.processes and task.producers > 1:
        raise NotOffered("DataLoader has one thread, or processes")
    import paddle

    class Endless(paddle.io.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Arrays]:
            worker = paddle.io.get_worker_info()
            return task.made(worker.id if worker else 0)

    loader = paddle.io.DataLoader(
        Endless(),
        places=paddle.CPUPlace(),
        batch_size=None,
        num_workers=task.producers if task.processes else 0,
        prefetch_factor=WAITING // task.producers,
        use_shared_memory=True,
    )
    for data, numbers in loader:
        yield np.from_dlpack(data), np.from_dlpack(numbers)
        del data, numbers


def batches_queue(task: Batches) -> Iterator[Arrays]:
    """The blocking queue behind the reader, as DataLoader uses it, with as many threads as there are producers."""
    if task.processes:
        raise NotOffered("the queue is for threads")
    import paddle
    from paddle.base import core

    place = core.Place()
    place.set_place(core.CPUPlace())
    waiting = core.init_dense_tensor_blocking_queue(core.Variable(), WAITING, False)
    types = [core.VarDesc.VarType.UINT8, core.VarDesc.VarType.FP64]
    reader = core.create_py_reader(
        waiting, ["data", "numbers"], [[task.size], [NUMBERS]], types, [False, False], [place], True, True, False, 2
    )

    def produce(producer: int) -> None:
        for arrays in task.made(producer):
            array = core.DenseTensorArray()
            for each in arrays:
                tensor = core.DenseTensor()
                tensor.set(each, core.CPUPlace())
                array.append(tensor)
            waiting.push(array)

    for producer in range(task.producers):
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
    """A map-style dataset. It is pickled, so that it cannot be a class that needs the library."""

    def __init__(self, task: Training) -> None:
        self._task = task

    def __len__(self) -> int:
        return self._task.count

    def __getitem__(self, index: int) -> tuple[Image, np.int64]:
        return self._task.instance(index)


def training(task: Training, workers: int) -> Passes:
    """paddle.io.DataLoader over a map-style dataset, whose workers stay.

    https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/io/DataLoader_en.html
    """
    import paddle

    loader: Any = paddle.io.DataLoader(
        _Instances(task),
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


def files(task: Files, workers: int) -> Callable[[], Iterator[Batch]]:
    """DataLoader, which leaves reading to its dataset, as PyTorch's does; what it delivers are tensors of Paddle's.

    https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/io/DataLoader_en.html: batches of an
    IterableDataset are made in this process: with workers and `batch_size=None` version 3.3 did not come to the first
    batch here. InMemoryDataset and QueueDataset read text of their own only.
    """
    import paddle
    from paddle.io import DataLoader, Dataset, IterableDataset, get_worker_info

    paddle.device.set_device("cpu")

    class Arrays(Dataset):  # type: ignore[misc]
        rows = Rows(task)

        def __len__(self) -> int:
            return task.count

        def __getitem__(self, i: int) -> Any:
            return self.rows[i]

    class Records(IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Batch]:
            info = get_worker_info()
            return read_batches(task, task.paths if info is None else task.paths[info.id :: info.num_workers])

    options: dict[str, Any] = {"num_workers": workers, "places": paddle.CPUPlace()}
    if task.format in RANDOM_ACCESS:
        loader = DataLoader(
            Arrays(), batch_size=task.batch, shuffle=True, collate_fn=lambda some: (np.stack(some),), **options
        )
    else:
        loader = DataLoader(Records(), batch_size=None, **options)
    return lambda: (tuple(tensor.numpy() for tensor in batch) for batch in loader)
