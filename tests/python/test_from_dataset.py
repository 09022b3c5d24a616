"""Readers of datasets, read by threads and by worker processes."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyfeed
from pyfeed import LoDTensor, Reader, from_dataset

from .support import wait_until

# How samples are read. Processes are forked, so that they start fast; one test spawns them.
WAYS: dict[str, dict[str, Any]] = {
    "a thread": {},
    "threads": {"num_threads": 3},
    "processes": {"num_workers": 2, "method": "fork"},
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    return WAYS[request.param]


class Dataset:
    """Returns what a function makes of the number of a sample."""

    def __init__(self, make: Callable[[int], Any], count: int = 10) -> None:
        self.make, self.count = make, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        return self.make(i)


class Together(Dataset):
    """Returns several samples at once."""

    def __getitem__(self, i: int) -> Any:
        assert i == 0, "expected __getitems__"
        return self.make(i)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self.make(i) for i in indices]


def itself(i: int) -> Any:
    return i


def picture(i: int) -> Any:
    return np.full((2, 3), i, np.float32), i


def named(i: int) -> Any:
    return {
        "x": np.full(3, i, np.int16),
        "meta": {"id": i, "half": i / 2},
        "both": [np.full(1, i, np.uint8), i % 2 == 0],
    }


def large(i: int) -> Any:
    return np.full((100, 100), i, np.float32), np.arange(i, i + 10_000), i


def text(i: int) -> Any:
    return {"text": "é" * i, "tokens": [] if i == 1 else list(range(i + 1)), "label": i}


def numbers_of(reader: Any) -> list[Any]:
    return [batch[0].tolist() for batch in reader]


def values_of(reader: Any) -> list[Any]:
    return [x for batch in numbers_of(reader) for x in batch]


@contextlib.contextmanager
def refused(kind: type[BaseException], *parts: str) -> Iterator[None]:
    """Expect an error of this class, whose message has these parts."""
    with pytest.raises(kind) as caught:
        yield
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


# ---- Samples and batches ------------------------------------------------------------------------


def test_batches_of_tuples(way: dict[str, Any]) -> None:
    reader = from_dataset(Dataset(picture), batch_size=4, **way)
    assert len(reader) == 3
    for _ in range(2):
        batches = list(reader)
        assert [y.tolist() for _, y in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        for x, y in batches:
            assert x.dtype == np.float32
            assert y.dtype == np.int64
            np.testing.assert_array_equal(x, np.broadcast_to(y[:, None, None], (len(y), 2, 3)))
    assert [(s.dtype, s.shape) for s in reader.slots] == [("float32", (-1, 2, 3)), ("int64", (-1,))]


def test_drop_last(way: dict[str, Any]) -> None:
    reader = from_dataset(Dataset(picture), batch_size=4, drop_last=True, **way)
    assert len(reader) == 2
    assert [y.tolist() for _, y in reader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert reader.slots[0].shape == (4, 2, 3)


def test_batches_of_nested_dicts(way: dict[str, Any]) -> None:
    (batch,) = from_dataset(Dataset(named), batch_size=10, **way)
    assert list(batch) == ["x", "meta", "both"]
    assert list(batch["meta"]) == ["id", "half"]
    assert type(batch["both"]) is list
    expected = np.arange(10)
    np.testing.assert_array_equal(batch["x"], np.repeat(expected[:, None], 3, 1), strict=False)
    assert (batch["x"].dtype, batch["both"][0].dtype, batch["both"][1].dtype) == (np.int16, np.uint8, np.bool_)
    np.testing.assert_array_equal(batch["meta"]["id"], expected)
    np.testing.assert_array_equal(batch["meta"]["half"], expected / 2)
    np.testing.assert_array_equal(batch["both"][1], expected % 2 == 0)


def test_large_values_are_written_sample_by_sample(way: dict[str, Any]) -> None:
    for batch in from_dataset(Dataset(large, 60), batch_size=30, **way):
        x, y, z = batch
        np.testing.assert_array_equal(x[:, 99, 99], z)
        np.testing.assert_array_equal(x[:, 0, 0], z)
        np.testing.assert_array_equal(y, z[:, None] + np.arange(10_000))


def test_single_samples(way: dict[str, Any]) -> None:
    reader = from_dataset(Dataset(named, 3), **way)
    assert len(reader) == 3
    samples = list(reader)
    assert [sample["meta"]["id"].item() for sample in samples] == [0, 1, 2]
    assert samples[2]["x"].tolist() == [2, 2, 2]


def test_samples_together(way: dict[str, Any]) -> None:
    reader = from_dataset(Together(picture), batch_size=4, **way)
    assert [y.tolist() for _, y in reader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [y.tolist()[-1] for _, _, y in from_dataset(Together(large, 60), batch_size=30, **way)] == [29, 59]


def test_samples_of_any_length(way: dict[str, Any]) -> None:
    reader = from_dataset(Dataset(text, 5), batch_size=3, **way)
    assert [(s.name, s.dtype, s.lod_levels) for s in reader.slots] == [
        ("text", "uint8", 1),
        ("tokens", "int64", 1),
        ("label", "int64", 0),
    ]
    first, last = reader
    assert [row.tobytes().decode() for row in sequences(last["text"])] == ["ééé", "éééé"]
    assert [row.tolist() for row in sequences(first["tokens"])] == [[0], [], [0, 1, 2]]
    assert last["label"].tolist() == [3, 4]
    single = next(from_dataset(Dataset(text, 5), **way).shuffle(1))
    assert isinstance(single["tokens"], LoDTensor)


def sequences(tensor: LoDTensor) -> list[Any]:
    (offsets,) = tensor.lod
    return np.split(tensor.data, offsets[1:-1])


def unequal(i: int) -> Any:
    return np.arange(i + 1, dtype=np.float32), i


def test_arrays_of_any_length(way: dict[str, Any]) -> None:
    (batch,) = from_dataset(Dataset(unequal, 3), batch_size=3, shapes=[(-1,), ()], **way)
    assert [row.tolist() for row in sequences(batch[0])] == [[0], [0, 1], [0, 1, 2]]


@pytest.mark.parametrize("dataset", [[3, 1, 2], (3, 1, 2), np.array([3, 1, 2]), range(3, 0, -1)], ids=str)
def test_sequences_are_datasets(dataset: Any) -> None:
    (batch,) = from_dataset(dataset, batch_size=3)
    assert batch[0].tolist() == list(dataset)


def bfloats(i: int) -> Any:
    return np.full(3, i, ml_dtypes.bfloat16), i


def test_bfloat16(way: dict[str, Any]) -> None:
    reader = from_dataset(Dataset(bfloats), batch_size=10, **way)
    assert reader.slots[0].dtype == "bfloat16"
    (batch,) = reader
    assert batch[0].dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(batch[0].astype(np.float32), np.repeat(np.arange(10)[:, None], 3, 1))


def test_names_and_dtypes_and_shapes(way: dict[str, Any]) -> None:
    names = ["image", "label"]
    reader = from_dataset(Dataset(picture), 5, names=names, as_dict=True, dtypes=[None, "float64"], **way)
    assert reader.names == ("image", "label")
    batch = next(reader)
    assert batch["label"].dtype == np.float64
    assert batch["label"].tolist() == [0, 1, 2, 3, 4]
    shapes = {"x": (3,), "meta": {"id": (), "half": ()}, "both": [(1,), ()]}
    reader = from_dataset(Dataset(named), 5, shapes=shapes, dtypes={"meta": {"id": "int32"}}, **way)
    assert [s.dtype for s in reader.slots] == ["int16", "int32", "float64", "uint8", "bool"]
    assert next(reader)["meta"]["id"].tolist() == [0, 1, 2, 3, 4]


def vectors(i: int) -> Any:
    return {"v": (i, i + 1), "w": [[i, 0], [0, i]]}


def test_shapes_make_arrays_of_tuples_and_lists(way: dict[str, Any]) -> None:
    shapes = {"v": (2,), "w": (2, 2)}
    (batch,) = from_dataset(Dataset(vectors, 2), 2, shapes=shapes, dtypes={"v": "float32"}, **way)
    assert batch["v"].dtype == np.float32
    assert batch["v"].tolist() == [[0, 1], [1, 2]]
    assert batch["w"].tolist() == [[[0, 0], [0, 0]], [[1, 0], [0, 1]]]


def padded(samples: list[Any]) -> Any:
    out = np.zeros((len(samples), max(len(s["tokens"]) for s in samples)), np.int64)
    for row, sample in zip(out, samples, strict=True):
        row[: len(sample["tokens"])] = sample["tokens"]
    return {"tokens": out, "label": np.array([s["label"] for s in samples])}


def test_collate_fn(way: dict[str, Any]) -> None:
    reader = from_dataset(Dataset(text, 5), batch_size=3, collate_fn=padded, **way)
    assert [(s.name, s.shape) for s in reader.slots] == [("tokens", (-1, -1)), ("label", (-1,))]
    first, last = reader
    assert first["tokens"].tolist() == [[0, 0, 0], [0, 0, 0], [0, 1, 2]]
    assert last["label"].tolist() == [3, 4]
    assert len(reader) == 2


# ---- Orders -------------------------------------------------------------------------------------


def test_shuffle_depends_on_the_seed_and_the_pass_only(way: dict[str, Any]) -> None:
    expected = from_dataset(Dataset(itself, 100), 7, shuffle=3)
    passes = [numbers_of(expected) for _ in range(3)]
    for numbers in passes:
        assert sorted(x for batch in numbers for x in batch) == list(range(100))
    assert passes[0] != passes[1] != passes[2]
    reader = from_dataset(Dataset(itself, 100), 7, shuffle=3, **way)
    assert [numbers_of(reader) for _ in range(3)] == passes
    assert numbers_of(from_dataset(Dataset(itself, 100), 7, shuffle=4, **way)) != passes[0]


class EveryOther:
    """A sampler."""

    def __init__(self) -> None:
        self.began = 0

    def __iter__(self) -> Iterator[int]:
        self.began += 1
        return iter(range(self.began % 2, 10, 2))


def test_a_sampler_is_iterated_over_in_each_pass(way: dict[str, Any]) -> None:
    sampler = EveryOther()
    reader = from_dataset(Dataset(itself), 2, sampler=sampler, **way)
    assert [numbers_of(reader) for _ in range(2)] == [[[1, 3], [5, 7], [9]], [[0, 2], [4, 6], [8]]]
    assert sampler.began == 2
    reader = from_dataset(Dataset(itself), 2, sampler=np.array([3, 3, -1]), drop_last=True, **way)
    assert numbers_of(reader) == [[3, 3]]
    assert [x.item() for (x,) in from_dataset(Dataset(itself), sampler=[4, 5], **way)] == [4, 5]


def as_array(samples: list[Any]) -> Any:
    return np.array(samples)


def test_resume(way: dict[str, Any]) -> None:
    for options in (
        {"shuffle": 5},
        {"sampler": [*range(22, -1, -1)]},
        {"shuffle": 1, "on_error": "skip"},
        {"shuffle": 2, "collate_fn": as_array},
    ):
        make = partial(from_dataset, Dataset(itself, 23), 3, **options)
        reader = make(**way)
        assert numbers_of(reader) == numbers_of(make())
        reader.reset()
        first = [next(reader)[0].tolist() for _ in range(4)]
        state = json.loads(json.dumps(reader.state_dict()))
        rest = numbers_of(reader)
        assert sorted(x for batch in first + rest for x in batch) == list(range(23))
        other = make()
        other.load_state_dict(state)
        assert numbers_of(other) == rest
        assert numbers_of(other) == numbers_of(reader)


def test_a_resumed_reader_reads_no_sample_again() -> None:
    read: list[int] = []

    def note(i: int) -> int:
        read.append(i)
        return i

    reader = from_dataset(Dataset(note, 100), 10, shuffle=1)
    batches = [next(reader)[0].tolist() for _ in range(5)]
    state = reader.state_dict()
    threads = [t for t in threading.enumerate() if t.name.startswith(f"pyfeed-{reader.name}-")]
    assert threads
    reader.close()
    for thread in threads:
        thread.join()
    other = from_dataset(Dataset(note, 100), 10, shuffle=1)
    read.clear()
    other.load_state_dict(state)
    rest = values_of(other)
    assert sorted(read) == sorted(rest) == sorted(set(range(100)) - {x for batch in batches for x in batch})


def test_states_of_other_data_are_refused() -> None:
    state = from_dataset(Dataset(itself, 100), 10, shuffle=1).state_dict()
    others: list[dict[str, Any]] = [{"shuffle": 2}, {}]
    for options in others:
        with refused(pyfeed.errors.StateError, "shuffle"):
            from_dataset(Dataset(itself, 100), 10, **options).load_state_dict(state)
    with refused(pyfeed.errors.StateError, "count", "100", "99"):
        from_dataset(Dataset(itself, 99), 10, shuffle=1).load_state_dict(state)


# ---- Processes of a job -------------------------------------------------------------------------


def test_ranks_read_each_sample_once(way: dict[str, Any]) -> None:
    job = values_of(from_dataset(Dataset(itself, 96), 8, shuffle=2, rank=0, world=1))
    assert sorted(job) == list(range(96))
    parts = [from_dataset(Dataset(itself, 96), 8, shuffle=2, rank=rank, world=3, **way) for rank in range(3)]
    assert [part.rank for part in parts] == [0, 1, 2]
    found = [values_of(part) for part in parts]
    assert found == [job[rank::3] for rank in range(3)]


def test_a_job_goes_on_with_another_number_of_processes(way: dict[str, Any]) -> None:
    make = partial(from_dataset, Dataset(itself, 96), shuffle=2)
    job = values_of(make(batch_size=8, rank=0, world=1))
    half = make(batch_size=8, rank=1, world=2, **way)
    for _ in range(3):
        next(half)
    state = half.state_dict()
    for rank in range(4):
        quarter = make(batch_size=4, rank=rank, world=4, **way)
        quarter.load_state_dict(state)
        assert values_of(quarter) == job[48 + rank :: 4]


def test_at_most_a_sample_less_than_there_are_processes_is_left_out(way: dict[str, Any]) -> None:
    make = partial(from_dataset, Dataset(itself, 100), 5, shuffle=2)
    parts = [values_of(make(rank=rank, world=3, **way)) for rank in range(3)]
    assert [len(part) for part in parts] == [33, 33, 33]
    assert len({x for part in parts for x in part}) == 99
    # The state at the end of a pass is one for a job of another size, whose pass has another number of samples.
    reader = make(rank=0, world=3, **way)
    list(reader)
    other = from_dataset(Dataset(itself, 100), 15, shuffle=2, rank=0, world=1, **way)
    other.load_state_dict(reader.state_dict())
    undisturbed = from_dataset(Dataset(itself, 100), 15, shuffle=2, rank=0, world=1)
    list(undisturbed)
    assert values_of(other) == values_of(undisturbed)


@pytest.mark.parametrize("batch_size", [None, 4])
def test_even(batch_size: int | None, way: dict[str, Any]) -> None:
    make = partial(from_dataset, Dataset(picture, 10), batch_size, virtual_shards=4, **way)

    def part(rank: int, even: str) -> list[int]:
        found = list(make(rank=rank, world=4, even=even))
        for x, y in found:
            np.testing.assert_array_equal(x, np.broadcast_to(np.asarray(y)[..., None, None], x.shape))
        return [int(one) for _, y in found for one in np.atleast_1d(y)]

    assert [part(rank, "drop") for rank in range(4)] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert [part(rank, "repeat") for rank in range(4)] == [[0, 4, 8], [1, 5, 9], [2, 6, 6], [3, 7, 7]]
    assert [part(rank, "pad") for rank in range(4)] == [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 0]]


def test_a_padded_sample_of_any_length(way: dict[str, Any]) -> None:
    reader = from_dataset(Dataset(text, 5), 3, rank=1, world=2, virtual_shards=2, even="pad", **way)
    (batch,) = reader
    assert batch["label"].tolist() == [1, 3, 0]
    assert [row.tolist() for row in sequences(batch["tokens"])] == [[], [0, 1, 2, 3], []]


# ---- Errors -------------------------------------------------------------------------------------


def fail_at_7(i: int) -> int:
    if i == 7:
        raise KeyError("seven")
    return i


def test_an_exception_names_the_sample(way: dict[str, Any]) -> None:
    reader = from_dataset(Dataset(fail_at_7), 3, **way)
    assert [next(reader)[0].tolist() for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(KeyError) as caught:
        next(reader)
    notes = "\n".join(caught.value.__notes__)
    assert "sample 7 of the dataset" in notes
    assert "in map: tuple 2 of pass 0 (a batch of 3 that begins with dataset, record 6)" in notes


class FailsTogether(Together):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        raise OSError(5, "disk")


def test_an_exception_of_getitems_names_the_samples(way: dict[str, Any]) -> None:
    reader = from_dataset(FailsTogether(itself), 3, **way)
    with pytest.raises(OSError, match="disk") as caught:
        next(reader)
    assert "3 samples from 0 to 2" in "\n".join(caught.value.__notes__)


def stop_at_1(i: int) -> int:
    if i == 1:
        raise StopIteration
    return i


def test_a_stop_iteration_is_no_end(way: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="__getitem__ raised StopIteration"):
        list(from_dataset(Dataset(stop_at_1), 4, **way))


def test_bad_samples_are_skipped(way: dict[str, Any]) -> None:
    reader = from_dataset(Dataset(fail_at_7), 3, on_error="skip", **way)
    assert numbers_of(reader) == [[0, 1, 2], [3, 4, 5], [6, 8, 9]]
    details = reader.stats()["below"][0]["details"]
    reason = "KeyError: 'seven'"
    assert details["skips"] == [{"pass": 0, "index": 7, "file": "dataset", "record": 7, "reason": reason}]


def fail_at_0(i: int) -> int:
    return 1 // i


def test_a_first_sample_is_skipped_too(way: dict[str, Any]) -> None:
    reader = from_dataset(Dataset(fail_at_0, 4), 2, on_error="skip", **way)
    assert numbers_of(reader) == [[1, 0], [0]]
    with pytest.raises(ZeroDivisionError):
        from_dataset(Dataset(fail_at_0, 4), 2, **way)


def at_5(wrong: Any) -> Callable[[int], Any]:
    return partial(_at_5, wrong)


def _at_5(wrong: Any, i: int) -> Any:
    return wrong if i == 5 else {"x": np.full(3, i, np.float32), "y": i}


RIGHT = np.zeros(3, np.float32)


@pytest.mark.parametrize(
    ("wrong", "error", "parts"),
    [
        (
            {"x": np.zeros(4, np.float32), "y": 5},
            pyfeed.errors.ShapeError,
            ["x: expected shape (3,), found (4,)", "-1"],
        ),
        ({"x": np.zeros((3, 1), np.float32), "y": 5}, pyfeed.errors.ShapeError, ["(3, 1)"]),
        ({"x": np.zeros(3), "y": 5}, pyfeed.errors.DTypeError, ["x: expected float32, found float64"]),
        ({"x": RIGHT, "y": 5.5}, pyfeed.errors.DTypeError, ["y: expected int64, found float64 5.5"]),
        ({"x": RIGHT, "y": 1 << 70}, pyfeed.errors.DTypeError, ["y: expected", str(1 << 70)]),
        ({"x": RIGHT, "y": None}, pyfeed.errors.DTypeError, ["y: expected an array", "NoneType"]),
        ({"x": RIGHT, "y": np.datetime64("2026-01-01")}, pyfeed.errors.DTypeError, ["y", "datetime64"]),
        ({"x": RIGHT}, pyfeed.errors.SlotCountError, ["the keys 'x', 'y', found one with the keys 'x'"]),
        ({"x": RIGHT, "y": 5, "z": 5}, pyfeed.errors.SlotCountError, ["found one with the keys 'x', 'y', 'z'"]),
        ({"x": RIGHT, "z": 5}, pyfeed.errors.SlotCountError, ["'x', 'z'"]),
        ((RIGHT, 5), pyfeed.errors.SlotCountError, ["expected a dict", "found a tuple of 2"]),
        (RIGHT, pyfeed.errors.SlotCountError, ["expected a dict", "numpy.ndarray"]),
    ],
    ids=str,
)
def test_a_sample_that_is_not_like_the_first(wrong: Any, error: Any, parts: list[str], way: dict[str, Any]) -> None:
    for batch_size in (4, None):
        reader = from_dataset(Dataset(at_5(wrong)), batch_size, **way)
        with refused(error, "sample 5", *parts):
            list(reader)


def test_rows_that_could_be_concatenated_by_mistake() -> None:
    samples = [np.zeros(3), np.zeros(2), np.zeros(4)]
    with refused(pyfeed.errors.ShapeError, "sample 1", "expected shape (3,), found (2,)"):
        next(from_dataset(samples, 3))


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"drop_last": True}, ["drop_last", "batch_size"]),
        ({"collate_fn": list}, ["collate_fn", "batch_size"]),
        ({"sampler": [1], "shuffle": 3}, ["shuffle", "sampler"]),
        ({"sampler": [1], "rank": 0, "world": 2}, ["rank", "sampler"]),
        ({"world": 2}, ["world", "rank"]),
        ({"rank": 0, "world": 5, "virtual_shards": 48}, ["world", "48"]),
        ({"rank": 0, "world": 2, "virtual_shards": 2, "even": "odd"}, ["even", "odd"]),
        ({"on_error": "ignore"}, ["on_error", "ignore"]),
        ({"on_error": "skip", "rank": 0, "world": 2}, ["on_error", "rank"]),
        ({"on_error": "skip", "collate_fn": list, "batch_size": 2}, ["on_error", "collate_fn"]),
        ({"num_workers": 2, "num_threads": 2}, ["num_threads", "num_workers"]),
        ({"shuffle": True}, ["shuffle", "a seed", "True"]),
        ({"sampler": iter([1])}, ["sampler", "in each pass"]),
        ({"names": ["x", "x"], "as_dict": True}, ["names"]),
        ({"batch_size": 0}, ["batch_size", "at least 1"]),
    ],
    ids=str,
)
def test_options_that_are_refused(options: dict[str, Any], parts: list[str]) -> None:
    with refused(pyfeed.errors.InvalidArgument, *parts):
        from_dataset(Dataset(picture, 100), **options)


@pytest.mark.parametrize("dataset", [{0: 1}, "text", iter([1]), lambda: [1], Dataset, 5, None], ids=str)
def test_objects_that_are_no_datasets(dataset: Any) -> None:
    with refused(pyfeed.errors.ArgumentTypeError, "dataset", "__len__ and __getitem__"):
        from_dataset(dataset)


def test_empty_datasets() -> None:
    with refused(pyfeed.errors.InvalidArgument, "dataset", "shapes and dtypes"):
        from_dataset([])
    reader = from_dataset([], 4, shapes=[(3,)], dtypes=["float32"])
    assert (len(reader), list(reader)) == (0, [])


def test_samplers_that_are_refused(way: dict[str, Any]) -> None:
    with refused(pyfeed.errors.ArgumentTypeError, "sampler", "an integer", "1.5"):
        list(from_dataset(Dataset(itself), 2, sampler=[0, 1.5], **way))


@pytest.mark.parametrize("first", [None, {}, (), {"x": None}, object(), np.array(["a"])], ids=repr)
def test_first_samples_that_are_refused(first: Any) -> None:
    with refused(pyfeed.errors.DTypeError, "sample 0"):
        from_dataset([first], 2)


def test_the_sample_that_determines_the_slots_is_named() -> None:
    with refused(pyfeed.errors.DTypeError, "sample 1: value", "NoneType"):
        from_dataset(Dataset(lambda i: 1 // i and None, 4), 2, on_error="skip")
    with refused(pyfeed.errors.DTypeError, "the result of collate_fn: value", "NoneType"):
        from_dataset([1, 2], 2, collate_fn=lambda samples: None)


def test_a_first_sample_that_does_not_fit_the_shapes() -> None:
    with refused(pyfeed.errors.ShapeError, "sample 0", "(2,)", "(2, 3)"):
        from_dataset(Dataset(picture), 2, shapes=[(2,), ()])
    with refused(pyfeed.errors.SlotCountError, "sample 0", "3 values", "2"):
        from_dataset(Dataset(picture), 2, shapes=[(2,), (), ()])
    with refused(pyfeed.errors.SlotCountError, "sample 0", "'a'"):
        from_dataset(Dataset(named), 2, shapes={"a": ()})


class Removes(Together):
    """Changes the list of numbers that it gets."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        while len(indices) > 1:
            indices.pop()
        return [self.make(i) for i in indices]


class Pops(Together):
    def __getitems__(self, indices: list[int]) -> Any:
        return (self.make(indices.pop(0)) for _ in range(len(indices)))


@pytest.mark.parametrize("make", [itself, picture, large, lambda i: np.array(i)], ids=str)
def test_a_dataset_that_changes_the_numbers(make: Any, way: dict[str, Any]) -> None:
    with refused(pyfeed.errors.SlotCountError, "__getitems__: expected 30 samples", "found 1"):
        next(from_dataset(Removes(make, 60), 30, **way))
    assert len(list(from_dataset(Pops(make, 60), 30, **way))) == 2


class Stops(Together):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        if 2 in indices:
            raise StopIteration
        return indices


class StopsAsArray:
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise StopIteration


def array_that_stops(i: int) -> Any:
    return StopsAsArray() if i == 2 else np.array(i)


@pytest.mark.parametrize("dataset", [Stops(itself), Dataset(array_that_stops)], ids=["getitems", "array"])
def test_a_stop_iteration_of_other_methods_is_no_end(dataset: Any, way: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(from_dataset(dataset, 2, **way))


@pytest.mark.parametrize("shape", [(3000, 1), (3000,), (3000, 3), (3000, 0), (3000, 2, 0, 3), (3000, 0, 3)], ids=str)
def test_small_samples(shape: tuple[int, ...], way: dict[str, Any]) -> None:
    dataset = (np.arange(np.prod(shape)) % 251).astype("uint8").reshape(shape)
    found = np.concatenate([x for (x,) in from_dataset(dataset, 1000, **way)])
    np.testing.assert_array_equal(found, dataset)


def test_batches_larger_than_the_dataset(way: dict[str, Any]) -> None:
    (batch,) = from_dataset(np.arange(5000).reshape(5, 1000), 10**9, **way)
    assert batch[0].shape == (5, 1000)


def test_the_state_of_a_sampler_counts_samples(way: dict[str, Any]) -> None:
    reader = from_dataset(Dataset(itself, 20), 2, sampler=range(20), **way)
    assert [next(reader)[0].tolist() for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
    with refused(pyfeed.errors.StateError, "batch_size: expected 2", "found 4"):
        from_dataset(Dataset(itself, 20), 4, sampler=range(20)).load_state_dict(reader.state_dict())


A = np.arange(80.0).reshape(2, 40)


@pytest.mark.parametrize(
    "sample", [[A, (1, A)], [A, [1, A]], [{"x": A}, 1], [A], ([A, A], 1), {"k": [A, (1,)]}, [(A,), (A,)]], ids=repr
)
def test_lists_in_samples(sample: Any, way: dict[str, Any]) -> None:
    def compare(found: Any, expected: Any) -> None:
        if isinstance(expected, dict):
            assert list(found) == list(expected)
            for key in expected:
                compare(found[key], expected[key])
        elif isinstance(expected, (list, tuple)):
            assert len(found) == len(expected)
            for one, other in zip(found, expected, strict=True):
                compare(one, other)
        else:
            np.testing.assert_array_equal(found, np.stack([expected, expected]))

    (batch,) = from_dataset([sample, sample], 2, **way)
    compare(batch, sample)
    is_flat = all(isinstance(x, np.ndarray) for x in sample)
    assert type(batch) is (tuple if is_flat else type(sample))


def numbers_and_dicts(samples: list[Any]) -> Any:
    return [samples, {"twice": [2 * x for x in samples]}]


def test_values_of_a_collate_function_are_converted(way: dict[str, Any]) -> None:
    (batch,) = from_dataset(Dataset(itself, 3), 3, collate_fn=numbers_and_dicts, dtypes=["float32", "int16"], **way)
    assert batch[0].dtype == np.float32
    assert batch[0].tolist() == [0, 1, 2]
    assert batch[1]["twice"].dtype == np.int16
    assert batch[1]["twice"].tolist() == [0, 2, 4]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([2**63 + 1, 1], "a list of numbers"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "without a mask"),
        (np.zeros(2, [("a", "u1"), ("b", "u1")]), "dtype"),
        ([[1], [1, 2]], "a list of numbers"),
    ],
    ids=repr,
)
def test_values_that_would_lose_something(value: Any, text: str) -> None:
    with refused(pyfeed.errors.DTypeError, "sample 0: value", text):
        from_dataset([value], 1)


def test_an_exception_keeps_no_batch() -> None:
    def fail_late(i: int) -> Any:
        if i == 29:
            raise ValueError
        return np.zeros(10_000)

    reader = from_dataset(Dataset(fail_late, 30), 30)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        next(reader)
    reader.close()
    del reader
    gc.collect()
    assert pyfeed.diagnostics.memory_stats()["live_batch_bytes"] < 30 * 8 * 10_000  # the numbers of the samples
    assert caught.value.__notes__[0] == "This was sample 29 of the dataset."


# ---- Processes, and other readers above ----------------------------------------------------------


def test_spawned_processes() -> None:
    reader = from_dataset(Dataset(named, 20), 4, shuffle=1, num_workers=2)
    expected = from_dataset(Dataset(named, 20), 4, shuffle=1)
    for found, wanted in zip(reader, expected, strict=True):
        np.testing.assert_array_equal(found["meta"]["id"], wanted["meta"]["id"])
        np.testing.assert_array_equal(found["x"], wanted["x"])


def die_at_7(i: int) -> int:
    if i == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return i


def test_a_process_that_dies_loses_its_batch_only() -> None:
    reader = from_dataset(Dataset(die_at_7, 30), 5, num_workers=2, method="fork")
    assert next(reader)[0].tolist() == [0, 1, 2, 3, 4]
    with refused(pyfeed.errors.WorkerError, "SIGKILL"):
        next(reader)
    reader.reset()
    assert next(reader)[0].tolist() == [0, 1, 2, 3, 4]


def first_of(file: Any, i: int) -> int:
    return i if file else -1


def test_a_dataset_that_pickle_refuses() -> None:
    with open(os.devnull) as file, refused(pyfeed.errors.ArgumentTypeError, "dataset", "pickle"):
        from_dataset(Dataset(partial(first_of, file), 3), 2, num_workers=1)


def test_readers_above(way: dict[str, Any]) -> None:
    reader = from_dataset(Dataset(picture), 4, **way).map(lambda x, y: (x.sum(), y.max()), shapes=[(), ()])
    assert [(x.item(), y.item()) for x, y in reader.double_buffer()] == [(36, 3), (132, 7), (102, 9)]
    assert [y.item() for _, y in from_dataset(Dataset(picture), **way).shuffle(100, seed=1)] != list(range(10))


def test_a_preview_reads_nothing_of_the_reader(way: dict[str, Any]) -> None:
    reader = from_dataset(Dataset(picture), 4, shuffle=3, **way)
    preview = reader.preview(1)
    expected = next(reader)
    np.testing.assert_array_equal(preview.tuples[0][1], expected[1])


def test_results_stay_valid_and_can_be_written(way: dict[str, Any]) -> None:
    reader = from_dataset(Dataset(picture, 40), 4, **way)
    batches = list(reader)
    for i, (x, y) in enumerate(batches):
        assert y.tolist() == [4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3]
        assert x[:, 0, 0].tolist() == y.tolist()
    reader.close()
    assert batches[-1][1].tolist() == [36, 37, 38, 39]


def test_a_batch_that_waits_for_the_dataset_ends_with_the_reader() -> None:
    began, go_on = threading.Event(), threading.Event()

    def wait(i: int) -> int:
        if i > 0:
            began.set()
            go_on.wait(60)
        return i

    reader: Reader = from_dataset(Dataset(wait, 4), 2)
    with refused(pyfeed.errors.Timeout, "time"):
        reader.read(timeout=0)
    assert began.wait(60)
    reader.close()
    go_on.set()
    wait_until(lambda: not any(t.name.startswith("pyfeed-map") for t in threading.enumerate()))
