"""pyfeed in the processes of other frameworks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import ray
import torch

import pyfeed

from .records import Records, numbers

EVERY = [(f, i) for f in range(3) for i in range(20)]


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    for f in range(3):
        with pyfeed.open_writer(tmp_path / f"{f}.npy") as writer:
            for i in range(20):
                writer.write((np.array([f, i], "int64"),))
    return sorted(map(str, tmp_path.iterdir()))


@pytest.mark.parametrize(("workers", "method"), [(0, None), (2, "spawn"), (2, "forkserver")])
def test_a_data_loader_of_torch(workers: int, method: str | None, paths: list[str]) -> None:
    loader = torch.utils.data.DataLoader(
        Records(paths), batch_size=5, num_workers=workers, multiprocessing_context=method
    )
    assert sorted(tuple(row) for batch in loader for row in batch.tolist()) == EVERY


def test_a_data_loader_that_forks_says_so(paths: list[str]) -> None:
    pyfeed.diagnostics.memory_stats()  # this process has used the library
    loader = torch.utils.data.DataLoader(Records(paths), num_workers=1, multiprocessing_context="fork")
    with pytest.raises(Exception, match="spawn or forkserver"):
        list(loader)


def test_tasks_of_ray(paths: list[str]) -> None:
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        task = ray.remote(num_cpus=1)(numbers)
        found = ray.get([task.remote(paths, rank, 2) for rank in range(2)], timeout=100)
    finally:
        ray.shutdown()
    assert sorted(found[0] + found[1]) == EVERY
