"""`pyfeed.torch.TensorLoader` and `ReaderDataset`: the tuples of a reader as tensors."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import textwrap
import warnings
from collections import namedtuple
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pyfeed.torch
import pytest
import torch
from pyfeed._torch_tensors import _to_tensors
from pyfeed.torch import ReaderDataset, StatefulDataLoader, TensorLoader
from torch.utils.data import DataLoader

import pyfeed
from pyfeed import LoDTensor, Reader

DTYPES = [
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "complex64",
    "complex128",
]


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "'set_vital' is deprecated")  # torchdata calls it
        yield


def on_loan() -> int:
    gc.collect()
    return int(pyfeed.diagnostics.memory_stats()["tuples_on_loan"])


def numbers(count: int = 40, *, batch_size: int = 4) -> Reader:
    """Make a reader whose tuples are shuffled integers, in another order in each pass."""
    reader = pyfeed.from_generator(lambda: ((np.int64(i),) for i in range(count)), [()], dtypes=["int64"])
    return reader.shuffle(count, seed=1).batch(batch_size).double_buffer()


def values(batches: Any) -> list[list[int]]:
    return [x.tolist() for (x,) in batches]


# ---- Tensors ----


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_dtype(dtype: str) -> None:
    type_ = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    data = [(np.arange(i, i + 3).astype(type_),) for i in range(4)]
    reader = pyfeed.from_generator(lambda: data, [(3,)], dtypes=[dtype])
    ((x,),) = list(TensorLoader(reader.batch(4)))
    assert x.dtype == getattr(torch, dtype)
    assert x.shape == (4, 3)
    assert x.tolist() == [row.tolist() for (row,) in data]


def test_tensors_share_the_memory_of_the_reader() -> None:
    before = on_loan()
    loader = TensorLoader(pyfeed.random_data([(1000,)], count=2).batch(2))
    ((x,),) = list(loader)
    assert on_loan() == before + 1
    x += 1  # the memory belongs to the consumer
    part = x[0, 10:20]
    del x
    assert on_loan() == before + 1
    assert float(part.min()) >= 1
    del part
    assert on_loan() == before


def test_tensors_that_are_kept_stay_as_they_are() -> None:
    before = on_loan()
    with TensorLoader(
        pyfeed.random_data([(500,), ()], ["float32", "int64"], high=9, count=400).batch(2), depth=2
    ) as loader:
        kept = [batch for _ in range(2) for batch in loader]
    expected = [
        b for _ in range(2) for b in pyfeed.random_data([(500,), ()], ["float32", "int64"], high=9, count=400).batch(2)
    ]
    del loader
    assert len(kept) == 400
    assert on_loan() >= before + 400
    for found, wanted in zip(kept, expected[:200] * 2, strict=True):
        assert found[0].numpy().tobytes() == wanted[0].tobytes()
        assert found[1].tolist() == wanted[1].tolist()
    kept.clear()
    del expected, found, wanted
    assert on_loan() == before


def test_views_of_a_file_are_copied(tmp_path: Path) -> None:
    """A write to such a view would be a SIGSEGV."""
    np.save(tmp_path / "x.npy", np.zeros((4, 512)))
    reader = pyfeed.open_files(tmp_path / "x.npy")
    assert not reader.read()[0].flags.writeable
    for (x,) in TensorLoader(reader):
        x += 1
    assert np.load(tmp_path / "x.npy").sum() == 0


def test_ragged_slots_and_text() -> None:
    tuples = [(LoDTensor.from_bytes([b"ab"]), LoDTensor.from_sequences([np.arange(n)])) for n in (3, 0, 2)]
    reader = pyfeed.from_generator(lambda: tuples, [(-1,), (-1,)], dtypes=["uint8", "int64"], lod_levels=[1, 1])
    ((text, number),) = list(TensorLoader(reader.batch(3)))
    assert isinstance(number, LoDTensor)
    assert number.data.tolist() == [0, 1, 2, 0, 1]
    assert [level.tolist() for level in number.lod] == [[0, 3, 3, 5]]
    assert number.lod[0].dtype == torch.int64
    assert [x.tolist() for x in number.sequences()] == [[0, 1, 2], [], [0, 1]]
    assert text.bytes_list() == [b"ab"] * 3
    jagged = torch.nested.nested_tensor_from_jagged(number.data, number.lod[0])
    assert [x.tolist() for x in jagged.unbind()] == [[0, 1, 2], [], [0, 1]]


def test_the_structure_of_a_tuple_is_kept() -> None:
    pair = namedtuple("pair", ["a", "b"])
    item = {"x": np.arange(2), "more": [pair(np.float32(1), np.zeros(1)), ({"y": np.ones(())}, "text", None)]}
    found = _to_tensors(item)
    assert isinstance(found["x"], torch.Tensor)
    first, (inner, text, nothing) = found["more"]
    assert isinstance(first, pair)
    assert isinstance(first.b, torch.Tensor)
    assert isinstance(found["more"], list)
    assert (inner["y"].item(), text, nothing) == (1.0, "text", None)


def test_it_is_iterated_like_its_reader() -> None:
    loader, reader = TensorLoader(numbers()), numbers()
    assert [values(loader) for _ in range(3)] == [values(reader) for _ in range(3)]
    next(iter(loader))
    next(iter(reader))
    assert values(loader) == values(reader)  # the next pass
    with pytest.raises(TypeError, match="len: the number of tuples"):
        len(loader)
    assert len(TensorLoader(pyfeed.random_data([()], count=10).batch(3))) == 4
    assert loader
    assert repr(loader).startswith("TensorLoader(<Reader ")


@pytest.mark.parametrize("depth", [None, 1, 3])
def test_resume(depth: int | None) -> None:
    loader = TensorLoader(numbers(), depth=depth)
    everything = [values(loader) for _ in range(2)]
    for taken in (0, 1, 7, 10):
        loader = TensorLoader(numbers(), depth=depth)
        loop = iter(loader)
        seen = [next(loop) for _ in range(taken)]
        state = pickle.loads(pickle.dumps(loader.state_dict()))
        resumed = TensorLoader(numbers(), depth=depth)
        resumed.load_state_dict(state)
        assert values(seen) + values(resumed) == everything[0]
        assert values(resumed) == everything[1]


def test_epochs_of_a_framework() -> None:
    """A framework that counts the steps of an epoch does not ask for the end of the pass."""
    reader = pyfeed.random_data([()], count=40).shuffle(40, seed=1).batch(4)
    everything = [values(reader) for _ in range(5)]
    for taken in (0, 3, 10):
        loader = TensorLoader(pyfeed.random_data([()], count=40).shuffle(40, seed=1).batch(4))
        loader.set_epoch(2)
        loop = iter(loader)
        seen = values(next(loop) for _ in range(taken))
        state = loader.state_dict()
        del loop
        resumed = TensorLoader(pyfeed.random_data([()], count=40).shuffle(40, seed=1).batch(4))
        resumed.load_state_dict(state)
        if taken < 10:
            resumed.set_epoch(2)
            seen += values(resumed)
        assert seen == everything[2]
        for epoch in (3, 3, 1, 4, 0):
            resumed.set_epoch(epoch)
            assert values(resumed) == everything[epoch]
        assert values(resumed) == everything[1]  # without set_epoch
        next(iter(resumed))  # an iterator that is not used up
        iter(resumed)  # one that is not used at all
        resumed.set_epoch(3)
        assert values(resumed) == everything[3]


def test_epochs_that_cannot_be_chosen() -> None:
    loader = TensorLoader(numbers().map(lambda x: x, ordered=False))
    loader.set_epoch(3)  # no effect: the reader has no states
    assert sorted(map(sorted, values(loader)))
    reader = numbers()
    reader.reset()
    reader.reset()
    loader = TensorLoader(reader)
    assert values(loader)
    loader.set_epoch(1)
    with pytest.raises(
        pyfeed.errors.InvalidArgument, match="epoch: expected at least 2, where the reader was at first"
    ):
        next(iter(loader))


def test_closing() -> None:
    reader = numbers()
    with TensorLoader(reader, depth=1) as loader:
        assert loader.reader is not reader
    assert reader.closed
    assert loader.reader.closed
    loader.close()
    for call in (
        lambda: next(iter(loader)),
        loader.state_dict,
        lambda: TensorLoader(reader),
        lambda: TensorLoader(reader, depth=1),
    ):
        with pytest.raises(pyfeed.errors.StateError, match="is closed"):
            call()


def test_wrong_arguments() -> None:
    reader = numbers()
    anything: Any = TensorLoader
    for options, kind, message in (
        (
            {"device": "no such"},
            pyfeed.errors.ArgumentTypeError,
            'device: expected a device of PyTorch, such as "cuda:0"',
        ),
        ({"device": "mps"}, pyfeed.errors.UnsupportedError, 'device: expected a device "cpu" or "cuda", found \'mps\''),
        (
            {"device": "cuda", "pin_memory": True},
            pyfeed.errors.InvalidArgument,
            "pin_memory: expected False with a CUDA",
        ),
        ({"depth": 0}, pyfeed.errors.InvalidArgument, "depth: expected at least 1 tuple, found 0"),
        ({"pin_memory": 1}, pyfeed.errors.ArgumentTypeError, "pin_memory: expected True or False, found 1"),
    ):
        with pytest.raises(kind, match=message):
            anything(reader, **options)
    with pytest.raises(pyfeed.errors.ArgumentTypeError, match="reader: expected a Reader, found"):
        anything([1])
    with pytest.raises(pyfeed.errors.ArgumentTypeError, match="make_reader: expected a function"):
        ReaderDataset(reader)  # type: ignore[arg-type]
    with pytest.raises(pyfeed.errors.ArgumentTypeError, match="make_reader: expected a function that returns a Reader"):
        list(ReaderDataset(list))  # type: ignore[arg-type]


@pytest.mark.skipif(pyfeed.cuda.available(), reason="there is a CUDA device")
def test_without_a_driver() -> None:
    for options in ({"device": "cuda"}, {"device": "cuda:1"}, {"pin_memory": True}):
        with pytest.raises(pyfeed.errors.UnsupportedError, match=r"^CUDA(Pinned)?Place\(\d?\): "):
            TensorLoader(numbers(), **options)


def test_devices_of_the_emulation(tmp_path: Path) -> None:
    """In a process of its own, since a process has one driver. The emulation's memory is that of the CPU for torch."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import gc, weakref
            import numpy as np, torch, pyfeed
            from ml_dtypes import bfloat16
            from pyfeed import LoDTensor
            from pyfeed.torch import TensorLoader

            def make():
                tuples = [(LoDTensor.from_sequences([np.full(n, n)]), np.float32(n), bfloat16(n)) for n in range(4)]
                return pyfeed.from_generator(
                    lambda: tuples, [(-1,), (), ()], dtypes=["int64", "float32", "bfloat16"], lod_levels=[1, 0, 0]
                ).batch(2)

            def pinned():
                return pyfeed.diagnostics.memory_stats()["pinned_bytes"]

            def check(batches):
                for number, (x, y, z) in enumerate(batches):
                    first, second = 2 * number, 2 * number + 1
                    assert x.data.tolist() == [first] * first + [second] * second, x
                    assert [level.tolist() for level in x.lod] == [[0, first, first + second]]
                    assert y.tolist() == z.tolist() == [first, second]
                    assert z.dtype == torch.bfloat16
                assert number == 1

            with TensorLoader(make(), "cuda:0") as loader:
                check(loader)
                check(loader)
                state = loader.state_dict()
            resumed = TensorLoader(make(), "cuda:1", depth=4)
            resumed.load_state_dict(state)
            check(resumed)
            kept = list(TensorLoader(make(), "cuda"))
            check(kept)
            resumed.close()
            del kept
            gc.collect()
            assert pyfeed.diagnostics.memory_stats()["device_bytes"] == 0

            # Pinned memory is kept until the copies that had been started are complete.
            class Event:
                every, complete = [], False
                def __init__(self):
                    self.waited = 0
                    Event.every.append(self)
                def record(self): pass
                def query(self): return Event.complete
                def synchronize(self): self.waited += 1

            with TensorLoader(make(), pin_memory=True) as loader:
                check(loader)  # without torch.cuda: nothing to wait for
                torch.cuda.is_initialized, torch.cuda.Event = lambda: True, Event
                loop = iter(loader)
                x, y, z = next(loop)
                on_loan = pyfeed.diagnostics.memory_stats()["tuples_on_loan"]
                del x, y
                assert len(Event.every) == 2
                first = z[0]
                del z
                assert (len(Event.every), first.item()) == (2, 0.0)
                del first
                assert len(Event.every) == 3
                kept = next(loop)
                assert pyfeed.diagnostics.memory_stats()["tuples_on_loan"] == on_loan + 1
                Event.complete = True
                assert next(loop, None) is None
                del loop
                check_next = next(iter(loader))  # what is complete is released here
                assert pyfeed.diagnostics.memory_stats()["tuples_on_loan"] == on_loan + 1
                del check_next
            assert [e.waited for e in Event.every] == [0] * 6
            del loader, kept
            gc.collect()
            assert [e.waited for e in Event.every] == [0, 0, 0, 1, 1, 1, 1, 1, 1]
            assert pinned() == 0, pinned()
            print("done")
            """
        )
    )
    done = subprocess.run(
        [sys.executable, program],
        env={**os.environ, "PYFEED_CUDA": "host"},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


# ---- Datasets ----


def make_numbers() -> Reader:
    return numbers()


def test_a_dataset_in_a_loader() -> None:
    reader = numbers()
    dataset = ReaderDataset(make_numbers)
    loader = DataLoader(dataset, batch_size=None)
    assert [values(loader) for _ in range(3)] == [values(reader) for _ in range(3)]
    next(iter(loader))
    next(iter(reader))
    assert values(loader) == values(reader)
    assert len(DataLoader(ReaderDataset(lambda: TensorLoader(pyfeed.random_data([()], count=4))), batch_size=None)) == 4
    assert isinstance(dataset, torch.utils.data.IterableDataset)


@pytest.mark.parametrize("taken", [0, 1, 7, 10, "all"])
def test_a_stateful_loader_resumes(taken: int | str) -> None:
    reader = numbers()
    everything = [values(reader) for _ in range(3)]
    loader: Any = StatefulDataLoader(ReaderDataset(make_numbers), batch_size=None)
    loop = iter(loader)
    seen = values(loop) if taken == "all" else values(next(loop) for _ in range(int(taken)))
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    resumed: Any = StatefulDataLoader(ReaderDataset(make_numbers), batch_size=None)
    resumed.load_state_dict(state)
    if taken != "all":
        seen += values(resumed)
    assert seen == everything[0]
    assert [values(resumed) for _ in range(2)] == everything[1:]


def test_epochs_are_chosen() -> None:
    reader = numbers()
    everything = [values(reader) for _ in range(5)]
    dataset = ReaderDataset(make_numbers)
    for epoch in (0, 1, 4, 4, 2, 3):
        dataset.set_epoch(epoch)
        assert values(dataset) == everything[epoch]
    dataset.set_epoch(3)
    loop = iter(dataset)
    seen = values(next(loop) for _ in range(3))
    state = dataset.state_dict()
    resumed = ReaderDataset(make_numbers)
    resumed.load_state_dict(state)
    resumed.set_epoch(3)
    assert seen + values(resumed) == everything[3]
    resumed.set_epoch(4)
    assert values(resumed) == everything[4]


def make_part(rank: int, world: int) -> Reader:
    return numbers().shard(rank, world)


def test_parts_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert values(ReaderDataset(make_part)) == values(numbers())[1::2]


@pytest.fixture(scope="module")
def forkserver() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torchdata.stateful_dataloader"])
    return context


def test_workers_read_parts(forkserver: ForkServerContext) -> None:
    reader = numbers()
    everything = [values(reader) for _ in range(2)]

    def make(persistent: bool) -> Any:
        return StatefulDataLoader(
            ReaderDataset(make_part),
            batch_size=None,
            num_workers=2,
            multiprocessing_context=forkserver,
            persistent_workers=persistent,
        )

    loader = make(True)
    loop = iter(loader)
    seen = values(next(loop) for _ in range(3))
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    del loop, loader
    resumed = make(True)
    resumed.load_state_dict(state)
    assert seen + values(resumed) == everything[0]  # the workers' batches in turn are those of one reader
    assert values(resumed) == everything[1]
    del resumed

    loader = make(False)
    loader.dataset.set_epoch(1)
    assert values(loader) == everything[1]
    one = DataLoader(ReaderDataset(make_numbers), batch_size=None, num_workers=2, multiprocessing_context=forkserver)
    with pytest.raises(
        pyfeed.errors.InvalidArgument, match="make_reader: expected a function with the parameters rank"
    ):
        next(iter(one))
