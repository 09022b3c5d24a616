"""The records that worker processes of other frameworks read, in a module that those processes can import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

import pyfeed
from pyfeed import Scope


def numbers(paths: list[str], rank: int, world: int) -> list[tuple[int, int]]:
    """Return one process's share of the records."""
    reader = pyfeed.open_files(paths, scope=Scope()).shard(rank, world).batch(7)
    return [(int(f), int(i)) for (batch,) in reader for f, i in batch]


class Records(torch.utils.data.IterableDataset[Any]):  # type: ignore[misc]  # torch is not installed
    """The records of files; each worker of a DataLoader has its share."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        rank, world = (info.id, info.num_workers) if info else (0, 1)
        for f, i in numbers(self.paths, rank, world):
            yield torch.tensor([f, i])
