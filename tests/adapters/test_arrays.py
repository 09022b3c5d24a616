"""Arrays of PyTorch and JAX are pushed and taken by DLPack, without a copy where that is promised."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import pyfeed
from pyfeed import PyArrayFeedQueue, Reader, Scope


class Framework(NamedTuple):
    """The functions of a framework that the tests use."""

    array: Callable[[Any], Any]  # makes the framework's array of a NumPy array
    take: Callable[[Any], Any]  # takes an array by DLPack
    numpy: Callable[[Any], Any]
    pointer: Callable[[Any], int]


def torch() -> Framework:
    import torch

    return Framework(lambda x: torch.tensor(x), torch.from_dlpack, lambda x: x.numpy(), lambda x: int(x.data_ptr()))


def jax() -> Framework:
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp

    return Framework(jnp.asarray, jax.dlpack.from_dlpack, np.asarray, lambda x: int(x.unsafe_buffer_pointer()))


@pytest.fixture(params=[torch, jax], ids=["torch", "jax"])
def framework(request: pytest.FixtureRequest) -> Framework:
    found: Framework = request.param()
    return found


def feed(shape: tuple[int, ...], dtype: str | None = None) -> tuple[Reader, PyArrayFeedQueue]:
    return pyfeed.py_array_reader(4, [shape], dtypes=[dtype], scope=Scope())


DTYPES = [
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "bool",
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("copy", [True, False])
def test_arrays_are_pushed_as_they_are(framework: Framework, dtype: str, copy: bool) -> None:
    _, queue = feed((-1, 4))
    data = np.arange(12).reshape(3, 4).astype(dtype)
    queue.push((framework.array(data),), copy=copy)
    (found,) = queue.pop()
    assert found.dtype == dtype
    assert found.tolist() == data.tolist()


def test_a_lent_array_is_not_copied_and_stays_until_it_is_done_with(framework: Framework) -> None:
    _, queue = feed((-1,), "float32")
    given = framework.array(np.arange(1000, dtype="float32"))
    before = framework.pointer(given)
    queue.push((given,), copy=False)
    del given
    gc.collect()
    (found,) = queue.pop()
    assert found.ctypes.data == before
    assert found.tolist() == list(range(1000))


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float16", "float32", "float64"])
def test_arrays_are_taken_without_a_copy(framework: Framework, dtype: str) -> None:
    reader, queue = feed((-1, 4), dtype)
    data = np.arange(64).reshape(16, 4).astype(dtype)
    queue.push((data,))
    (found,) = reader.read()
    pointer = found.ctypes.data
    theirs = framework.take(found)
    del found
    gc.collect()
    assert framework.pointer(theirs) == pointer
    queue.push((np.zeros_like(data),))  # must not overwrite the memory that is still lent
    assert framework.numpy(theirs).tolist() == data.tolist()
    on_loan = pyfeed.diagnostics.memory_stats()["tuples_on_loan"]
    del theirs
    gc.collect()
    assert pyfeed.diagnostics.memory_stats()["tuples_on_loan"] == on_loan - 1


def test_bfloat16_of_torch_is_pushed() -> None:
    import torch

    _, queue = feed((-1,), "bfloat16")
    queue.push((torch.arange(8, dtype=torch.bfloat16),))
    (found,) = queue.pop()
    assert found.astype("float32").tolist() == list(range(8))  # a dtype of ml_dtypes


def test_a_strided_tensor_is_gathered() -> None:
    import torch

    _, queue = feed((-1, -1), "float32")
    whole = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    queue.push((whole.T[::2],))
    assert queue.pop()[0].tolist() == whole.numpy().T[::2].tolist()


def test_what_needs_a_gradient_is_refused_with_a_sentence() -> None:
    import torch

    _, queue = feed((2,), "float32")
    with pytest.raises((pyfeed.errors.Error, BufferError, RuntimeError, TypeError), match="grad"):
        queue.push((torch.zeros(2, requires_grad=True),))
    assert queue.size() == 0


def test_a_loop_trains_on_batches_of_files(framework: Framework, tmp_path: Any) -> None:
    """The README's loop: records of files, batched, and taken as arrays of the framework."""
    with pyfeed.open_writer(tmp_path / "a.recordio") as writer:
        for i in range(100):
            writer.write((np.full(3, i, "float32"), np.int64(i)))
    reader = pyfeed.open_files(tmp_path / "a.recordio", scope=Scope()).shuffle(50, seed=1).batch(8).double_buffer()
    total = rows = 0
    for x, y in reader:
        mine = framework.take(x)
        total += int(framework.numpy(mine).sum())
        rows += len(y)
    assert (rows, total) == (100, 3 * sum(range(100)))
