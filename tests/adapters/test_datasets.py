"""`from_dataset` with samples of PyTorch and PIL: values, dtypes, errors, samplers and processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from PIL import Image
from pyfeed.torch import TensorLoader
from torch.utils.data import Dataset, RandomSampler, TensorDataset

import pyfeed
from pyfeed import from_dataset

# Processes are forked, so that they need not import PyTorch again; one test spawns them.
WAYS: dict[str, dict[str, Any]] = {"a thread": {}, "processes": {"num_workers": 2, "method": "fork"}}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    return WAYS[request.param]


class Samples(Dataset[Any]):  # type: ignore[misc]
    """Returns what a function makes of the number of a sample."""

    def __init__(self, make: Callable[[int], Any], count: int = 10) -> None:
        self.make, self.count = make, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        return self.make(i)


def tensors(i: int) -> Any:
    return {
        "image": torch.full((3, 100, 100), float(i)),  # large enough to be written sample by sample
        "small": torch.full((2,), i, dtype=torch.int16),
        "half": torch.full((2,), i, dtype=torch.bfloat16),
        "large half": torch.full((100, 100), i, dtype=torch.bfloat16),
        "scalar": torch.tensor(i),
        "flag": torch.tensor(i % 2 == 0),
    }


def test_tensors(way: dict[str, Any]) -> None:
    reader = from_dataset(Samples(tensors, 120), batch_size=60, **way)
    assert [s.dtype for s in reader.slots] == ["float32", "int16", "bfloat16", "bfloat16", "int64", "bool"]
    for k, batch in enumerate(reader):
        expected = np.arange(60 * k, 60 * k + 60)
        assert batch["image"].shape == (60, 3, 100, 100)
        for name in ("image", "small", "half", "large half", "scalar"):
            assert (batch[name].reshape(60, -1)[:, -1].astype(np.int64) == expected).all(), name
        assert batch["half"].dtype == batch["large half"].dtype == ml_dtypes.bfloat16
        assert (batch["flag"] == (expected % 2 == 0)).all()


def test_one_tensor_of_a_tensor_dataset(way: dict[str, Any]) -> None:
    dataset = TensorDataset(torch.arange(12).reshape(6, 2), torch.arange(6))
    for (x, y), expected in zip(from_dataset(dataset, 4, **way), ([0, 1, 2, 3], [4, 5]), strict=True):
        assert y.tolist() == expected
        assert (x[:, 1] == 2 * y + 1).all()


def picture(i: int) -> Any:
    return Image.new("RGB", (5, 4), (i, 0, 2 * i)), i


def test_pictures(way: dict[str, Any]) -> None:
    (batch,) = from_dataset(Samples(picture), 10, names=["picture", "label"], as_dict=True, **way)
    assert (batch["picture"].shape, batch["picture"].dtype) == ((10, 4, 5, 3), np.uint8)
    assert (batch["picture"][:, 3, 4, 2] == 2 * batch["label"]).all()


def with_gradients(i: int) -> Any:
    return torch.full((3,), float(i), requires_grad=True), torch.full((2,), 1j).conj()


def test_tensors_with_gradients_and_conjugated_ones(way: dict[str, Any]) -> None:
    ((x, y),) = from_dataset(Samples(with_gradients, 3), 3, **way)
    assert x.tolist() == [[0, 0, 0], [1, 1, 1], [2, 2, 2]]
    assert (y == -1j).all()


def sparse(i: int) -> Any:
    return torch.eye(3).to_sparse() if i == 1 else torch.eye(3)


def on_meta(i: int) -> Any:
    return torch.zeros(3, device="meta") if i == 1 else torch.zeros(3)


def of_float64(i: int) -> Any:
    return torch.zeros(3, dtype=torch.float64 if i == 1 else torch.float32)


def of_four(i: int) -> Any:
    return torch.zeros(4 if i == 1 else 3)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (sparse, pyfeed.errors.DTypeError, "sample 1: value: expected a dense tensor"),
        (on_meta, pyfeed.errors.UnsupportedError, "sample 1: value: expected a tensor in memory of the host, found"),
        (of_float64, pyfeed.errors.DTypeError, "sample 1: value: expected float32, found float64"),
        (of_four, pyfeed.errors.ShapeError, "sample 1: value: expected shape (3,), found (4,)"),
    ],
)
def test_tensors_that_are_refused(make: Any, error: Any, text: str, way: dict[str, Any]) -> None:
    with pytest.raises(error) as caught:
        next(from_dataset(Samples(make), 4, **way))
    assert text in str(caught.value)


def pad(samples: list[Any]) -> Any:
    return torch.nn.utils.rnn.pad_sequence([torch.arange(i + 1) for i in samples], batch_first=True)


def itself(i: int) -> int:
    return i


def test_a_collate_function_of_pytorch(way: dict[str, Any]) -> None:
    batches = [x.tolist() for (x,) in from_dataset(Samples(itself, 3), 2, collate_fn=pad, **way)]
    assert batches == [[[0, 0], [0, 1]], [[0, 1, 2]]]


def test_a_sampler_of_pytorch(way: dict[str, Any]) -> None:
    def sampler() -> Any:
        return RandomSampler(range(10), generator=torch.Generator().manual_seed(7))

    expected, passes = sampler(), []
    for _ in range(2):
        passes.append(list(expected))
    reader = from_dataset(Samples(itself), 4, sampler=sampler(), **way)
    assert [[x for (batch,) in reader for x in batch.tolist()] for _ in range(2)] == passes


def test_tensors_of_the_batches(way: dict[str, Any]) -> None:
    loader = TensorLoader(from_dataset(Samples(tensors), 5, shuffle=1, **way))
    found = [batch["scalar"].tolist() for batch in loader]
    assert sorted(x for batch in found for x in batch) == list(range(10))
    assert found == [b["scalar"].tolist() for b in from_dataset(Samples(tensors), 5, shuffle=1)]


def number_of_threads(i: int) -> Any:
    return torch.tensor(torch.get_num_threads())


def test_a_worker_computes_in_one_thread() -> None:
    torch.set_num_threads(2)
    ((threads,),) = from_dataset(Samples(number_of_threads, 2), 2, num_workers=1)
    assert threads.tolist() == [1, 1]
    assert torch.get_num_threads() == 2
