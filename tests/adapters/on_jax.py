"""`pyfeed.jax`, on four CPU devices and the emulation of CUDA. test_jax.py runs this file in a process of its own."""

from __future__ import annotations

import gc
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyfeed.jax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from pyfeed.jax import ArrayLoader

import pyfeed
from pyfeed import CUDAPlace, LoDTensor, Reader

DTYPES = ["bool", "uint8", "uint32", "int8", "int32", "float16", "float32", "bfloat16", "complex64"]


def on_loan() -> int:
    gc.collect()
    return int(pyfeed.diagnostics.memory_stats()["tuples_on_loan"])


def numbers(count: int = 40, *, batch_size: int = 4, fails_at: int = -1) -> Reader:
    """Make a reader whose tuples are shuffled integers, in another order in each pass."""

    def tuples() -> Iterator[tuple[Any]]:
        for i in range(count):
            if i == fails_at:
                raise ValueError("no more")
            yield (np.int32(i),)

    reader = pyfeed.from_generator(tuples, [()], dtypes=["int32"])
    if fails_at < 0:
        reader = reader.shuffle(count, seed=1)
    return reader.batch(batch_size).double_buffer()


def values(batches: Any) -> list[list[int]]:
    return [x.tolist() for (x,) in batches]


def sharding(*axes: str | None) -> NamedSharding:
    return NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec(*axes))


def test_there_are_four_devices() -> None:
    assert jax.device_count() == 4


# ---- Arrays ----


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_dtype(dtype: str) -> None:
    data = [(np.arange(i, i + 3).astype(jnp.dtype(dtype)),) for i in range(4)]
    reader = pyfeed.from_generator(lambda: data, [(3,)], dtypes=[dtype])
    ((x,),) = list(ArrayLoader(reader.batch(4)))
    assert isinstance(x, jax.Array)
    assert x.dtype == dtype
    assert x.tolist() == [row.tolist() for (row,) in data]


def test_arrays_that_are_kept_stay_as_they_are() -> None:
    """On the CPU, JAX takes over the memory of aligned arrays."""
    before = on_loan()
    with ArrayLoader(pyfeed.random_data([(512,)], count=200).batch(2)) as loader:
        kept = [x for _ in range(2) for (x,) in loader]
    expected = [x.copy() for (x,) in pyfeed.random_data([(512,)], count=200).batch(2)]
    assert len(kept) == 200
    assert on_loan() > before  # of arrays whose memory JAX shares
    for found, wanted in zip(kept, expected * 2, strict=True):
        assert np.asarray(found).tobytes() == wanted.tobytes()
    kept.clear()
    del loader, found
    assert on_loan() == before


def test_a_view_of_a_file_is_not_written_to(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 512), "float32"))
    add = jax.jit(lambda x: x + 1, donate_argnums=0)
    reader = pyfeed.open_files(tmp_path / "x.npy")
    assert [float(add(x).sum()) for (x,) in ArrayLoader(reader)] == [512.0] * 4
    assert np.load(tmp_path / "x.npy").sum() == 0


def test_ragged_slots_are_pytrees() -> None:
    tuples = [(LoDTensor.from_sequences([np.arange(n, dtype="int32")]), np.int32(n)) for n in (3, 0, 2)]
    reader = pyfeed.from_generator(lambda: tuples, [(-1,), ()], dtypes=["int32", "int32"], lod_levels=[1, 0])
    ((ragged, length),) = list(ArrayLoader(reader.batch(3)))
    assert isinstance(ragged, LoDTensor)
    assert isinstance(ragged.data, jax.Array)
    assert [level.tolist() for level in ragged.lod] == [[0, 3, 3, 5]]
    lengths = jax.jit(lambda x: x.lod[0][1:] - x.lod[0][:-1])(ragged)
    assert lengths.tolist() == length.tolist() == [3, 0, 2]


def test_arrays_on_a_gpu_are_taken_over() -> None:
    loader = ArrayLoader(numbers().double_buffer(CUDAPlace(1)))
    assert [values(loader) for _ in range(2)] == [values(reader) for reader in [numbers()] for _ in range(2)]


# ---- Shardings ----


def test_arrays_are_sharded_over_a_mesh() -> None:
    reader = pyfeed.random_data([(6,), ()], ["float32", "int32"], high=9, count=24).batch(8)
    expected = [(x.copy(), y.copy()) for x, y in reader]
    loader = ArrayLoader(
        pyfeed.random_data([(6,), ()], ["float32", "int32"], high=9, count=24).batch(8), sharding("data")
    )
    for (x, y), (want_x, want_y) in zip(loader, expected, strict=True):
        assert x.sharding == sharding("data")
        assert [shard.data.shape for shard in x.addressable_shards] == [(2, 6)] * 4
        assert {shard.device for shard in y.addressable_shards} == set(jax.devices())
        assert np.asarray(x).tolist() == want_x.tolist()
        assert y.tolist() == want_y.tolist()


def test_each_slot_has_a_sharding() -> None:
    reader = pyfeed.random_data([(6,), ()], ["float32", "int32"], high=9, count=8).batch(8)
    ((x, y),) = list(ArrayLoader(reader, (sharding("data"), sharding())))
    assert x.addressable_shards[0].data.shape == (2, 6)
    assert y.addressable_shards[0].data.shape == (8,)


def test_a_batch_that_cannot_be_divided() -> None:
    loader = ArrayLoader(numbers(10), sharding("data"))  # batches of 4, 4 and 2
    loop = iter(loader)
    next(loop)
    state = loader.state_dict()
    next(loop)
    with pytest.raises(ValueError, match="evenly divide"):
        next(loop)
    loader.load_state_dict(state)
    assert len(next(iter(loader))[0]) == 4


# ---- Loops ----


@pytest.mark.parametrize("depth", [0, 1, 5])
def test_it_is_iterated_like_its_reader(depth: int) -> None:
    loader, reader = ArrayLoader(numbers(), depth=depth), numbers()
    assert [values(loader) for _ in range(3)] == [values(reader) for _ in range(3)]
    next(iter(loader))
    next(iter(reader))
    assert values(loader) == values(reader)  # the next pass
    loop = iter(loader)
    next(loop)
    with pytest.raises(pyfeed.errors.StateError, match="another loop"):
        next(iter(loader))
    del loop
    assert len(ArrayLoader(pyfeed.random_data([()], count=10).batch(3))) == 4
    assert loader
    assert repr(loader).startswith("ArrayLoader(<Reader ")


@pytest.mark.parametrize("depth", [0, 2, 20])
def test_resume(depth: int) -> None:
    """A state does not count what was put ahead."""
    loader = ArrayLoader(numbers(), depth=depth)
    everything = [values(loader) for _ in range(2)]
    for taken in (0, 1, 7, 10):
        loader = ArrayLoader(numbers(), depth=depth)
        loop = iter(loader)
        seen = [next(loop) for _ in range(taken)]
        state = pickle.loads(pickle.dumps(loader.state_dict()))
        resumed = ArrayLoader(numbers(), depth=1)
        resumed.load_state_dict(state)
        assert values(seen) + values(resumed) == everything[0]
        assert values(resumed) == everything[1]
        del loop
        loader.load_state_dict(state)  # drops what was put ahead
        assert values(loader) == everything[0][taken:]
    assert loader.state_dict()["ended"]


def test_epochs_are_chosen() -> None:
    reader = numbers()
    everything = [values(reader) for _ in range(4)]
    loader = ArrayLoader(numbers())
    for epoch in (2, 2, 0, 3):
        loader.set_epoch(epoch)
        assert values(loader) == everything[epoch]
    loop = iter(loader)
    next(loop)
    del loop
    loader.set_epoch(1)
    assert values(loader) == everything[1]


def test_a_state_that_cannot_be_known() -> None:
    loader = ArrayLoader(numbers().map(lambda x: x, ordered=False))
    next(iter(loader))
    with pytest.raises(pyfeed.errors.StateError, match="ordered"):
        loader.state_dict()


def test_errors_come_after_the_tuples_before_them() -> None:
    loader = ArrayLoader(numbers(fails_at=10), depth=5)
    loop = iter(loader)
    seen = values(next(loop) for _ in range(3))
    with pytest.raises(ValueError, match="no more"):
        next(loop)
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    with pytest.raises(ValueError, match="no more"):  # again, as by the reader itself
        next(iter(loader))
    loader.reader.reset()
    assert next(iter(loader))[0].tolist() == [0, 1, 2, 3]
    # A loop that did not see the error is followed by the next pass.
    loop = iter(loader)
    for _ in range(2):
        next(loop)
        time.sleep(0.1)  # the loader reads up to the error
    del loop
    assert next(iter(loader))[0].tolist() == [0, 1, 2, 3]


def test_a_reader_that_continues_after_an_error() -> None:
    """`batch` refuses the second of four batches, because one of its tuples has two rows."""

    def make() -> Reader:
        tuples = [(np.full(1 + (i == 3), i, "int32"), np.int32(i)) for i in range(8)]
        return pyfeed.from_generator(lambda: tuples, [(-1,), ()], dtypes=["int32", "int32"]).batch(2)

    def deliver(source: Any) -> list[Any]:
        out: list[Any] = []
        for _ in range(2):
            try:
                for _, label in source:
                    out.append(label.tolist())
            except pyfeed.errors.ShapeError as error:
                out.append((str(error), source.state_dict()["n"]))
        return out

    expected = deliver(make())
    assert [type(x) for x in expected] == [list, tuple, list, list]
    for depth in (0, 1, 5):
        assert deliver(ArrayLoader(make(), depth=depth)) == expected


def test_a_loop_does_not_wait_while_a_tuple_is_ready() -> None:
    more = threading.Event()

    def tuples() -> Iterator[tuple[Any]]:
        yield (np.int32(0),)
        yield (np.int32(1),)
        assert more.wait(60)
        yield (np.int32(2),)

    loop = iter(ArrayLoader(pyfeed.from_generator(tuples, [()], dtypes=["int32"]), depth=5))
    assert next(loop)[0].item() == 0
    assert next(loop)[0].item() == 1
    more.set()
    assert [x.item() for (x,) in loop] == [2]


def test_closing_and_wrong_arguments() -> None:
    reader = numbers()
    with ArrayLoader(reader) as loader:
        assert loader.reader is reader
    assert reader.closed
    with pytest.raises(pyfeed.errors.StateError, match="is closed"):
        next(iter(loader))
    with pytest.raises(pyfeed.errors.StateError, match="is closed"):
        ArrayLoader(reader)
    anything: Any = ArrayLoader
    with pytest.raises(
        pyfeed.errors.ArgumentTypeError, match=r"sharding: expected a jax.sharding.Sharding, or a pytree"
    ):
        anything(numbers(), jax.devices()[0])
    with pytest.raises(pyfeed.errors.InvalidArgument, match="depth: expected at least 0 tuples, found -1"):
        anything(numbers(), depth=-1)
    with pytest.raises(pyfeed.errors.ArgumentTypeError, match="reader: expected a Reader"):
        anything([1])


def test_examples_in_docstrings() -> None:
    import doctest

    results = doctest.testmod(pyfeed.jax)
    assert results.failed == 0
    assert results.attempted >= 7
