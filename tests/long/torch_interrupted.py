"""A script that makes loaders, takes batches, and drops them, until `tests.long.torch_loader` interrupts it."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from pyfeed.torch import DataLoader
from torch.utils.data import Dataset


class Squares(Dataset[Any]):  # type: ignore[misc]  # torch is not installed where types are checked
    """A tensor of the square of the index, made slowly now and then."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        if i == 40:
            time.sleep(0.1)
        return torch.full((1000,), float(i * i)), i


def main(method: str) -> None:
    """Work until a KeyboardInterrupt."""
    try:
        print("ready", flush=True)
        while True:
            loader: Any = DataLoader(
                Squares(), 4, num_workers=2, multiprocessing_context=method, persistent_workers=method != "fork"
            )
            for epoch in range(3):
                for k, (x, i) in enumerate(loader):
                    assert torch.equal(x[:, 999], (i * i).float())
                    if k == 5 and epoch == 1:
                        time.sleep(0.1)
                        break
    except KeyboardInterrupt:
        print("interrupted", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
