"""Several processes that train one model: split_batches, shard with even, and rank="auto"."""

from __future__ import annotations

import gc
import itertools
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyfeed
from pyfeed import LoDTensor, Reader, Scope

from .support import raises

InvalidArgument = pyfeed.errors.InvalidArgument
LAUNCHERS = [
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
]


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, world in LAUNCHERS:
        monkeypatch.delenv(rank, raising=False)
        monkeypatch.delenv(world, raising=False)


def numbers(count: int, **options: Any) -> Reader:
    def generate() -> Iterator[tuple[np.ndarray[Any, Any]]]:
        for i in range(count):
            yield (np.array(i),)

    return pyfeed.from_generator(generate, [()], dtypes=["int64"], **options)


def rows(reader: Reader) -> list[list[int]]:
    return [np.asarray(x).tolist() for (x,) in reader]


# ---- split_batches ----


@pytest.mark.parametrize(
    ("even", "expected"),
    [
        ("drop", [[[0, 1], [6, 7], [12]], [[2, 3], [8, 9], [13]], [[4, 5], [10, 11], [14]]]),
        ("repeat", [[[0, 1], [6, 7], [12, 13]], [[2, 3], [8, 9], [14, 15]], [[4, 5], [10, 11], [12, 13]]]),
        ("pad", [[[0, 1], [6, 7], [12, 13]], [[2, 3], [8, 9], [14, 15]], [[4, 5], [10, 11], [0, 0]]]),
    ],
)
def test_the_last_batch(even: str, expected: list[list[list[int]]]) -> None:
    assert [rows(numbers(16).batch(6).split_batches(rank, 3, even)) for rank in range(3)] == expected


@pytest.mark.parametrize("even", ["drop", "repeat", "pad"])
def test_a_last_batch_that_is_smaller_than_the_world(even: str) -> None:
    found = [rows(numbers(9).batch(8).split_batches(rank, 4, even)) for rank in range(4)]
    lasts: dict[str, list[Any]] = {
        "drop": [[], [], [], []],
        "repeat": [[[8]], [[8]], [[8]], [[8]]],
        "pad": [[[8]], [[0]], [[0]], [[0]]],
    }
    last = lasts[even]
    assert found == [[[2 * rank, 2 * rank + 1], *last[rank]] for rank in range(4)]


def test_the_length_is_the_number_of_batches(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(17))
    for even, size, expected in [("drop", 16, 1), ("pad", 16, 2), ("drop", 12, 2), ("repeat", 12, 2)]:
        reader = pyfeed.open_files(str(tmp_path / "x.npy"), scope=Scope()).batch(size).split_batches(1, 4, even)
        assert (len(reader), len(list(reader))) == (expected, expected)


def test_drop_last_leaves_nothing_to_divide() -> None:
    assert rows(numbers(10).batch(4, drop_last=True).split_batches(1, 2, "pad")) == [[2, 3], [6, 7]]


@pytest.mark.parametrize("even", ["drop", "repeat", "pad"])
def test_text_and_sequences(even: str, tmp_path: Path) -> None:
    """Slots of variable length are divided with the others."""
    words = ["", "a", "bb", "ccc", "dddd", "e", "ff"]
    with pyfeed.open_writer(tmp_path / "a.recordio") as writer:
        for i in range(7):
            data = np.arange(i, dtype=np.float32)
            writer.write((np.int32(i), LoDTensor.from_lengths(data, [[i]])))
    with pyfeed.open_writer(tmp_path / "b.tfrecord") as writer:
        for word in words:
            writer.write((word.encode(),))

    def parts(name: str, read: Callable[[Any], Any]) -> list[list[Any]]:
        found = []
        for rank in range(3):
            reader = pyfeed.open_files(str(tmp_path / name), scope=Scope()).batch(6).split_batches(rank, 3, even)
            found.append([read(batch) for batch in reader])
        return found

    def sequences(tensor: LoDTensor) -> list[Any]:
        array, (offsets,) = np.asarray(tensor), tensor.lod
        return [array[a:b].tolist() for a, b in itertools.pairwise(offsets)]

    whole = [list(range(i)) for i in range(7)]
    lasts: dict[str, list[list[int]]] = {"drop": [[], [], []], "repeat": [[6], [6], [6]], "pad": [[6], [0], [0]]}
    expected = [[[2 * rank, 2 * rank + 1], lasts[even][rank]] for rank in range(3)]
    expected = [[batch for batch in batches if batch] for batches in expected]
    found = parts("a.recordio", lambda batch: sequences(batch[1]))
    assert found == [[[whole[i] for i in batch] for batch in batches] for batches in expected]
    found = parts("b.tfrecord", lambda batch: [bytes(x).decode() for x in sequences(batch[0])])
    assert found == [[[words[i] for i in batch] for batch in batches] for batches in expected]


def test_several_slots_and_passes_through_a_double_buffer(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", image=np.arange(40).reshape(20, 2), label=np.arange(20))
    path = str(tmp_path / "x.npz")

    def chain() -> Reader:
        return pyfeed.open_files(path, scope=Scope()).shuffle(7, seed=2).batch(8)

    whole, ranks = chain(), [chain().split_batches(rank, 2).double_buffer() for rank in range(2)]
    for _ in range(3):
        batches = [(image.tolist(), label.tolist()) for image, label in whole]
        parts = [[(image.tolist(), label.tolist()) for image, label in reader] for reader in ranks]
        assert [(a[0] + b[0], a[1] + b[1]) for a, b in zip(*parts, strict=True)] == batches


def test_a_part_has_the_memory_of_a_part() -> None:
    """The memory of the rest of the batch is not kept."""
    part = next(pyfeed.random_data([(1000,)], count=1024, scope=Scope()).batch(1024).split_batches(0, 8))[0]
    gc.collect()
    assert part.nbytes == 512_000
    assert pyfeed.diagnostics.memory_stats()["live_batch_bytes"] < 600_000


def test_a_batch_that_cannot_be_made_is_refused_by_all_processes() -> None:
    """Also by those whose part could be made: all are at the same position afterwards."""

    def generate() -> Iterator[tuple[np.ndarray[Any, Any]]]:
        for i in range(12):
            yield (np.full((1, 3 if i == 5 else 2), i),)

    for shape in [(-1, -1), (1, -1)]:
        positions = []
        for rank in range(2):
            reader = pyfeed.from_generator(generate, [shape], dtypes=["int64"], scope=Scope())
            reader = reader.batch(4).split_batches(rank, 2)
            assert np.asarray(next(reader)[0]).ravel()[::2].tolist() == [2 * rank, 2 * rank + 1]
            with pytest.raises(pyfeed.errors.ShapeError, match=r"tuple 1 of a batch: expected int64 .*, found int64"):
                next(reader)
            assert np.asarray(next(reader)[0]).ravel()[::2].tolist() == [8 + 2 * rank, 9 + 2 * rank]
            positions.append(reader.state_dict())
        assert positions[0] == positions[1]


# ---- What is refused ----


def test_arguments_that_are_refused() -> None:
    batches = numbers(8).batch(4)
    with raises(InvalidArgument, "split_batches: expected a world that divides the batch_size 4, found 3"):
        batches.split_batches(0, 3)
    with raises(InvalidArgument, "split_batches: expected a rank below the world's size 2, found 2"):
        batches.split_batches(2, 2)
    with raises(InvalidArgument, 'split_batches: even: expected "drop", "repeat" or "pad", found "wrap"'):
        batches.split_batches(0, 2, "wrap")
    with raises(InvalidArgument, 'shard: even: expected "drop", "repeat" or "pad", found "wrap"'):
        batches.shard(0, 2, even="wrap")
    other = 'split_batches: expected a reader that batch has made, found one of kind "shuffle": call '
    with raises(InvalidArgument, f"{other}split_batches directly after batch, or divide the source by its rank"):
        batches.shuffle(3).split_batches(0, 2)
    with raises(InvalidArgument, "rank: expected an integer or \"auto\", found 'automatic'"):
        batches.split_batches("automatic")
    with raises(InvalidArgument, 'world: expected no value beside rank="auto", found 2'):
        batches.split_batches("auto", 2)
    with raises(pyfeed.errors.ArgumentTypeError, "world: expected the number of processes, found None"):
        batches.shard(0)
    assert rows(batches) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_batches_that_are_read_below() -> None:
    """A batch that another consumer has begun to read is not divided."""
    batches = numbers(8).batch(4)
    part = batches.split_batches(0, 2)
    assert batches.has_next()
    message = (
        "expected the batches below split_batches to be read by it only, found one that another consumer has begun to "
        "read: read only from split_batches, or from readers above it"
    )
    with raises(pyfeed.errors.StateError, message):
        next(part)
    assert np.asarray(next(batches)[0]).tolist() == [0, 1, 2, 3]
    assert np.asarray(next(part)[0]).tolist() == [4, 5]


# ---- Resume ----


def job(paths: list[str], world: int) -> list[Reader]:
    """The readers of a job that reads a global batch of 48 rows."""
    readers = []
    for rank in range(world):
        files = pyfeed.open_files(paths, interleave=3, shuffle_files=9, scope=Scope())
        readers.append(files.shuffle(500, seed=4).batch(48).split_batches(rank, world, "repeat").double_buffer())
    return readers


def test_four_processes_go_on_as_two(tmp_path: Path) -> None:
    """No row is lost or repeated, except those that even="repeat" adds at the end: 7,696 rows in files of all sizes."""
    sizes = [1000, 1, 2500, 64, 0, 4131]
    starts = np.cumsum([0, *sizes])
    for i, size in enumerate(sizes):
        np.save(tmp_path / f"{i}.npy", np.arange(starts[i], starts[i] + size))
    paths = [str(tmp_path / f"{i}.npy") for i in range(len(sizes))]
    seen: list[int] = []
    four = job(paths, 4)
    for _ in range(77):
        for reader in four:
            seen += np.asarray(next(reader)[0]).tolist()
    state = four[2].state_dict()
    two = job(paths, 2)
    counts = []
    for reader in two:
        reader.load_state_dict(state)
        rest = [np.asarray(x).tolist() for (x,) in reader]
        counts.append(len(rest))
        seen += [row for batch in rest for row in batch]
    assert counts == [84, 84]  # 161 batches in all
    assert sorted(seen) == list(range(7696))


def test_what_was_read_ahead_at_the_end_is_in_no_state() -> None:
    """A process that has seen the end has the same state as one that has not, also if it has left out tuples."""

    def rank_of(rank: int, world: int) -> Reader:
        return pyfeed.random_data([()], count=10, scope=Scope()).batch(8).split_batches(rank, world)

    four = [rank_of(rank, 4) for rank in range(4)]
    for reader in four:
        next(reader)
    before = [reader.state_dict() for reader in four]
    assert not four[1].has_next()
    assert [reader.state_dict() for reader in four] == before == [before[0]] * 4
    two = [rank_of(rank, 2) for rank in range(2)]
    for rank, reader in enumerate(two):
        reader.load_state_dict(four[rank].state_dict())
    assert [len(list(reader)) for reader in two] == [1, 1]


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("split", [False, True])
def test_tuples_before_an_error_that_does_not_come_again(ahead: bool, split: bool) -> None:
    """Batches that were left out because of an error are delivered after a resume without the error."""
    fails = True

    def generate() -> Iterator[tuple[np.ndarray[Any, Any]]]:
        for i in range(12):
            if i == 6 and fails:
                raise OSError("transient")
            yield (np.array(i),)

    def chain(rank: int) -> Reader:
        reader = pyfeed.from_generator(generate, [()], dtypes=["int64"], scope=Scope())
        return reader.batch(4).split_batches(rank, 4) if split else reader.batch(4, drop_last=True)

    reader = chain(0)
    next(reader)
    if ahead:
        with pytest.raises(OSError, match="transient"):
            reader.has_next()
    state = reader.state_dict()
    fails = False
    found = []
    for rank in range(4 if split else 1):
        resumed = chain(rank)
        resumed.load_state_dict(state)
        found.append(rows(resumed))
    assert found == ([[[4], [8]], [[5], [9]], [[6], [10]], [[7], [11]]] if split else [[[4, 5, 6, 7], [8, 9, 10, 11]]])


@pytest.mark.parametrize("even", ["drop", "repeat", "pad"])
def test_a_pass_that_ends_elsewhere_the_next_time(even: str) -> None:
    """The end of a pass within a group is forgotten when the pass is read again."""
    count = 5

    def generate() -> Iterator[tuple[np.ndarray[Any, Any]]]:
        for i in range(count):
            yield (np.array(i),)

    def shard() -> Reader:
        return pyfeed.from_generator(generate, [()], dtypes=["int64"], scope=Scope()).shard(0, 2, even)

    reader = shard()
    start = reader.state_dict()
    assert [int(x) for (x,) in reader] == [0, 2] + [4] * (even != "drop")
    count = 12
    reader.load_state_dict(start)
    assert [int(next(reader)[0]) for _ in range(3)] == [0, 2, 4]
    resumed = shard()
    resumed.load_state_dict(reader.state_dict())
    assert [int(x) for (x,) in resumed] == [int(x) for (x,) in reader] == [6, 8, 10]


def test_a_state_of_another_even_is_refused() -> None:
    reader = pyfeed.random_data([()], count=100, scope=Scope()).batch(10).split_batches(0, 2)
    other = pyfeed.random_data([()], count=100, scope=Scope()).batch(10).split_batches(0, 2, "pad")
    message = 'the state is of another chain: split_batches: even: expected "drop", as when it was saved, found "pad"'
    with raises(pyfeed.errors.StateError, message):
        other.load_state_dict(reader.state_dict())


# ---- Ranks that end together ----


@pytest.mark.parametrize(("even", "count"), [("drop", 32), ("repeat", 33), ("pad", 33)])
def test_shards_of_the_same_size(even: str, count: int) -> None:
    """97 rows, 3 ranks, batches of 33: without even, the ranks deliver 1, 0 and 0 whole batches."""
    ranks = [numbers(97).shard(rank, 3, even).batch(33, drop_last=True) for rank in range(3)]
    assert [len(list(reader)) for reader in ranks] == [int(count == 33)] * 3
    ranks = [numbers(97).shard(rank, 3, even) for rank in range(3)]
    found = [[int(x) for (x,) in reader] for reader in ranks]
    assert [values[:32] for values in found] == [list(range(rank, 96, 3)) for rank in range(3)]
    last = {"drop": [[], [], []], "repeat": [[96], [96], [96]], "pad": [[96], [0], [0]]}[even]
    assert [values[32:] for values in found] == last


# ---- rank="auto" ----


def found(reader: Reader) -> tuple[int, int]:
    details = reader.stats()["details"]
    return details["rank"], details["world"]


def auto() -> list[tuple[int, int]]:
    batches = pyfeed.random_data([()], count=8, scope=Scope()).batch(8)
    return [found(batches.split_batches("auto")), found(batches.shard("auto"))]


def test_one_process_without_a_launcher() -> None:
    assert auto() == [(0, 1)] * 2


@pytest.mark.parametrize(("rank", "world"), LAUNCHERS)
def test_the_variables_of_launchers(rank: str, world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rank, "3")
    monkeypatch.setenv(world, "4")
    assert auto() == [(3, 4)] * 2
    for bad in ("", "x", "-1", "1.0", "٣", "9" * 5000):
        monkeypatch.setenv(rank, bad)
        shown = repr(bad) if len(bad) < 10 else f"'{'9' * 199}..., of <class 'str'>"
        expected = f"rank: expected an integer from 0 to 10^9 - 1 in {rank} in the environment, found {shown}"
        with raises(InvalidArgument, expected):
            auto()
    monkeypatch.setenv(rank, "4")
    with raises(
        InvalidArgument, f"rank: expected {rank} below {world} in the environment, found {rank}=4 and {world}=4"
    ):
        auto()
    monkeypatch.delenv(rank)
    with raises(InvalidArgument, f"rank: expected {rank} in the environment, as in that of a launcher, found none"):
        auto()


@pytest.mark.parametrize(("rank", "world"), [pair for pair in LAUNCHERS if pair[0] != "SLURM_PROCID"])
def test_a_rank_without_a_world(rank: str, world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rank, "0")
    with raises(InvalidArgument, f"rank: expected {world} in the environment, as in that of a launcher, found none"):
        auto()


def test_a_batch_script_of_slurm_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert auto() == [(0, 1)] * 2


def test_mpirun_whose_daemon_srun_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    launched = {
        "SLURM_PROCID": "0",
        "SLURM_STEP_NUM_TASKS": "1",
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_COMM_WORLD_SIZE": "2",
    }
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    assert auto() == [(1, 2)] * 2


def test_torchrun_within_srun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "RANK": "5", "WORLD_SIZE": "8"}.items():
        monkeypatch.setenv(name, value)
    assert auto() == [(5, 8)] * 2


@pytest.mark.parametrize("initialized", [True, False])
def test_frameworks_that_are_initialized(initialized: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("WORLD_SIZE", "8")
    jax: Any = types.ModuleType("jax")
    jax.process_index, jax.process_count = lambda: 1, lambda: 2
    monkeypatch.setitem(sys.modules, "jax", jax)
    distributed: Any = types.ModuleType("jax.distributed")
    monkeypatch.setitem(sys.modules, "jax.distributed", distributed)
    assert auto() == [(7, 8)] * 2  # a version without is_initialized
    distributed.is_initialized = lambda: initialized
    assert auto() == [(1, 2) if initialized else (7, 8)] * 2
    torch: Any = types.ModuleType("torch.distributed")
    monkeypatch.setitem(sys.modules, "torch.distributed", torch)
    assert auto() == [(1, 2) if initialized else (7, 8)] * 2  # a build without it
    torch.is_initialized = lambda: initialized
    torch.get_rank, torch.get_world_size = lambda: 3, lambda: 4
    assert auto() == [(3, 4) if initialized else (7, 8)] * 2
    torch.get_rank = lambda: -1
    if initialized:
        message = "rank: expected a process of the default group of torch.distributed, found another"
        with raises(InvalidArgument, message):
            auto()
