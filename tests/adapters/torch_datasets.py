"""The data sets of the tests of `pyfeed.torch`, in a module that spawned workers can import."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info


class Squares(Dataset[Any]):  # type: ignore[misc]  # torch is not installed
    """Tensors of the square of the index, of any size."""

    def __init__(self, size: int, width: int = 3) -> None:
        self.size, self.width = size, width

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.full((self.width,), float(i * i)), i


class Pids(Dataset[Any]):  # type: ignore[misc]
    """The process id of the worker."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, i: int) -> int:
        return os.getpid()


class Parts(IterableDataset[Any]):  # type: ignore[misc]
    """A share for each worker; the first worker's share is the smallest."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        return iter(range(1000 * info.id, 1000 * info.id + 3 * (info.id + 1)))


class Failing(Dataset[Any]):  # type: ignore[misc]
    """Item 5 ends the worker, or makes it wait for ever, in some way."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __len__(self) -> int:
        return 100

    def __getitem__(self, i: int) -> torch.Tensor:
        if i == 5:
            if self.how == "segfault":
                ctypes.string_at(0)
            elif self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.how == "hang":
                threading.Event().wait()
            elif self.how == "exit":
                os._exit(0)
            elif self.how == "exit 3":
                os._exit(3)
            raise KeyError("item 5")
        return torch.zeros(2)


class Unpicklable(Dataset[Any]):  # type: ignore[misc]
    """Items that cannot be pickled."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Any:
        return lambda: i


class Everything(Dataset[Any]):  # type: ignore[misc]
    """Items of every kind. `alike` tells whether an item is as it was made."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> dict[str, Any]:
        base = torch.arange(20, dtype=torch.float32) + i
        large = torch.arange(100_000) + i
        shared = torch.full((4,), i).share_memory_()
        return {
            "nested": {"list": [torch.tensor(i), [torch.ones(2) * i, "text"]], "none": None, "bytes": b"x" * 100_000},
            "array": np.arange(1000) + i,
            "strided array": (np.arange(4000).reshape(40, 100) + i)[:, ::3],
            "objects": np.array([i, "a", None], dtype=object),
            "sparse": torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.tensor([1.0, float(i)]), (3,)),
            "nested tensor": torch.nested.nested_tensor([torch.ones(2) * i, torch.ones(3)]),
            "bfloat16": torch.full((3,), i, dtype=torch.bfloat16),
            "complex": torch.full((3,), 1j * i).conj(),
            "empty": torch.empty(0, 3),
            "grad": torch.full((2,), float(i), requires_grad=True),
            "parameter": torch.nn.Parameter(torch.full((2,), float(i))),
            "transposed": base.reshape(4, 5).t(),
            "expanded": torch.tensor([float(i)]).expand(7),
            "base": base,
            "view": base[5:9],
            "rows": [large[1000:1010], large[1005:1020], large[99_990:]],
            "shared": shared,
        }


def alike(a: Any, b: Any) -> bool:
    """Compare two objects with all that is in them."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        if a.is_nested or b.is_nested:
            return a.is_nested and b.is_nested and alike(a.unbind(), b.unbind())
        if (a.dtype, a.shape, a.layout, a.requires_grad) != (b.dtype, b.shape, b.layout, b.requires_grad):
            return False
        if a.layout is not torch.strided:
            return bool(torch.equal(a.to_dense(), b.to_dense()))
        return bool(a.stride() == b.stride() and torch.equal(a, b))
    if isinstance(a, np.ndarray):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist())
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(alike, a, b))
    return bool(a == b)


def first(batch: list[Any]) -> Any:
    """Collate a batch of one item."""
    return batch[0]


def as_is(batch: list[Any]) -> list[Any]:
    """Collate to a list."""
    return batch


def seeds(i: int) -> None:
    """Initialise a worker: it fails unless it gets its number."""
    info = get_worker_info()
    assert info is not None
    assert info.id == i
    assert info.seed == torch.initial_seed()


def failing_init(i: int) -> None:
    """Initialise a worker: it always fails."""
    raise OSError(f"worker {i}")


class Random(Dataset[Any]):  # type: ignore[misc]
    """Random numbers of all generators that PyTorch seeds."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> list[float]:
        return [torch.rand(()).item(), float(np.random.random())]


class Counter(IterableDataset[Any]):  # type: ignore[misc]
    """An IterableDataset whose iterator has a state."""

    def __init__(self, size: int) -> None:
        self.size, self.next = size, 0

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        while self.next < self.size:
            self.next += 1
            yield 1000 * info.id + self.next - 1
        self.next = 0

    def state_dict(self) -> dict[str, int]:
        """Return the position."""
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go to the position."""
        self.next = state["next"]


def _large_sample(kind: str, i: int) -> Any:
    """A sample with parts that are so large that they are collated one by one."""
    tensor, array = torch.full((300, 300), float(i)), np.full((90_000,), i, np.int32)
    match kind:
        case "tensor":
            return tensor
        case "array":
            return array
        case "tuple":
            return tensor, i, "text"
        case "list":
            return [tensor, [array, float(i)]]
        case "dict":
            return {"image": tensor, "fields": {"array": array, "name": f"{i}"}, "small": torch.tensor([i])}
        case "strided":
            return tensor.t()[:, ::1], np.asfortranarray(array.reshape(300, 300)), tensor.expand(2, 300, 300)
        case "same twice":
            return tensor, tensor
        case "another size":
            return tensor if i % 8 < 3 else torch.zeros(300, 299)
        case "another dtype":
            return tensor if i % 8 < 3 else tensor.double()
        case "another dtype of array":
            return array if i % 8 < 3 else array.astype(np.int64)
        case "another kind":
            return tensor if i % 8 < 3 else tensor.numpy()
        case "one needs a gradient":
            return tensor if i % 8 < 3 else tensor.requires_grad_()
        case "another structure":
            return (tensor, i) if i % 8 < 3 else (tensor,)
        case "another key":
            return {"a": tensor} if i % 8 < 3 else {"b": tensor}
        case "fails":
            return tensor if i < 11 else [][i]
    raise AssertionError(kind)


LARGE_KINDS = [
    "tensor",
    "array",
    "tuple",
    "list",
    "dict",
    "strided",
    "same twice",
    "another size",
    "another dtype",
    "another dtype of array",
    "another kind",
    "one needs a gradient",
    "another structure",
    "another key",
    "fails",
]


class Large(Dataset[Any]):  # type: ignore[misc]
    """21 samples of a kind, from a cache if wanted."""

    def __init__(self, kind: str, *, cached: bool = False) -> None:
        self.kind = kind
        self.cache = [_large_sample(kind, i) for i in range(21)] if cached else None

    def __len__(self) -> int:
        return 21

    def __getitem__(self, i: int) -> Any:
        return _large_sample(self.kind, i) if self.cache is None else self.cache[i]


class LargeStream(IterableDataset[Any]):  # type: ignore[misc]
    """The samples of Large, in one worker."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __iter__(self) -> Iterator[Any]:
        return (_large_sample(self.kind, i) for i in range(21))


class OneBuffer(Dataset[Any]):  # type: ignore[misc]
    """Samples that are all the same tensor, with other contents."""

    def __init__(self) -> None:
        self.buffer = torch.empty(300, 300)

    def __len__(self) -> int:
        return 16

    def __getitem__(self, i: int) -> torch.Tensor:
        return self.buffer.fill_(i)


def outlive(trainer: int, worker: int) -> None:
    """Return when the process `trainer` has ended."""
    with contextlib.suppress(ProcessLookupError):
        ended = os.pidfd_open(trainer)
        select.select([ended], [], [])
        os.close(ended)
