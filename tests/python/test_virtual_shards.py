"""Records that are divided into virtual shards: each process reads its own, whatever the number of processes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyfeed.errors import ArgumentTypeError, InvalidArgument, StateError, UnsupportedError

import pyfeed

from .support import raises, run

WORLDS = (1, 2, 3, 4, 6, 8)
COUNTS = (100, 0, 7, 250, 31, 613, 1)  # of the records of unequal files: 1002, of which 960 are 20 of 48 virtual shards
BATCH = 48

Open = Callable[[int, int], pyfeed.Reader]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, number = tmp_path_factory.mktemp("records"), 0
    for i, count in enumerate(COUNTS):
        numbers = np.arange(number, number + count)
        np.save(folder / f"{i}.npy", numbers)
        with pyfeed.open_writer(folder / f"{i}.tfrecord") as writer:
            for n in numbers:
                writer.write((pyfeed.LoDTensor.from_bytes([str(n).encode()]),))
        number += count
    return folder


def plain(folder: Path) -> Open:
    return lambda rank, world: pyfeed.open_files(f"{folder}/*.npy", rank=rank, world=world).batch(BATCH // world)


def shuffled(folder: Path) -> Open:
    """Files and tuples in another order in each pass, and several passes as one."""

    def make(rank: int, world: int) -> pyfeed.Reader:
        reader = pyfeed.open_files(f"{folder}/*.npy", rank=rank, world=world, shuffle_files=5, num_threads=3)
        reader = reader.shuffle(240 // world, seed=2).map(lambda x: x, num_threads=2)
        return reader.multi_pass(2).batch(BATCH // world).double_buffer()

    return make


def records(folder: Path) -> Open:
    """All records in a random order."""

    def make(rank: int, world: int) -> pyfeed.Reader:
        reader = pyfeed.open_files(f"{folder}/*.tfrecord", rank=rank, world=world, shuffle_records=3, even="repeat")
        return reader.batch(BATCH // world)

    return make


def indexed(folder: Path) -> Open:
    def make(rank: int, world: int) -> pyfeed.Reader:
        reader = pyfeed.open_files(f"{folder}/*.tfrecord", rank=rank, world=world, even="repeat", num_threads=3)
        return reader.shuffle(480 // world).batch(BATCH // world, drop_last=True)

    return make


CHAINS = [plain, shuffled, records, indexed]


def values(batch: tuple[Any, ...]) -> list[int]:
    (x,) = batch
    return [int(v) for v in (x.bytes_list() if isinstance(x, pyfeed.LoDTensor) else x)]


def batches_of_job(readers: list[pyfeed.Reader]) -> Iterator[list[int]]:
    """Read one pass by all processes, and yield the batches of all together, sorted."""
    for parts in zip(*readers, strict=True):
        lists = [values(part) for part in parts]
        assert len({len(part) for part in lists}) == 1
        yield sorted(v for part in lists for v in part)


@pytest.mark.parametrize("chain", CHAINS)
def test_batches_are_the_same_for_every_number_of_processes(chain: Callable[[Path], Open], folder: Path) -> None:
    expected: list[list[list[int]]] = []
    for world in WORLDS:
        readers = [chain(folder)(rank, world) for rank in range(world)]
        passes = [list(batches_of_job(readers)) for _ in range(2)]
        expected = expected or passes
        assert passes == expected
        assert len({len(reader) for reader in readers}) == 1
        assert len(passes[0]) == len(readers[0])
    if chain in (shuffled, records):
        assert expected[0] != expected[1]


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("seed", range(4))
def test_the_number_of_processes_changes(chain: Callable[[Path], Open], seed: int, folder: Path) -> None:
    """One state of any process restores all processes of the next job: nothing is lost or repeated."""
    make, choose = chain(folder), random.Random(seed)
    single = make(0, 1)
    expected = [batch for _ in range(3) for batch in batches_of_job([single])]
    found: list[list[int]] = []
    state = None
    per_pass = len(single)
    while len(found) < len(expected):
        world = choose.choice(WORLDS)
        readers = [make(rank, world) for rank in range(world)]
        for reader in readers:
            if state is not None:
                reader.load_state_dict(json.loads(state))
        steps = choose.randrange(1, per_pass + 3)
        while steps > 0 and len(found) < len(expected):
            for batch in batches_of_job(readers):
                found.append(batch)
                steps -= 1
                if steps == 0 or len(found) == len(expected):
                    break
        states = {json.dumps(reader.state_dict()) for reader in readers}
        assert len(states) == 1
        (state,) = states
        assert len(state) < 1024
    assert found == expected


def test_processes_read_their_own_records_only(folder: Path) -> None:
    """Each record is read by one process: from front to back in each virtual shard."""
    parts = [
        [int(x) for (x,) in pyfeed.open_npy(f"{folder}/*.npy", rank=r, world=3, virtual_shards=6)] for r in range(3)
    ]
    assert sorted(v for part in parts for v in part) == list(range(sum(COUNTS)))
    assert parts[1][:6] == [167, 668, 168, 669, 169, 670]


@pytest.mark.parametrize(("even", "last"), [("drop", []), ("repeat", [3, 6, 8, 10]), ("pad", [3, 6, 0, 0])])
def test_records_that_cannot_be_divided_evenly(even: str, last: list[int], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(1, 11))

    def part(rank: int, world: int) -> list[int]:
        reader = pyfeed.open_npy(tmp_path / "x.npy", rank=rank, world=world, virtual_shards=4, even=even)
        found = [int(x) for (x,) in reader]
        assert len(reader) == len(found)
        return found

    # The virtual shards are 1 2 3, 4 5 6, 7 8, and 9 10.
    whole = [1, 4, 7, 9, 2, 5, 8, 10, *last]
    assert part(0, 1) == whole
    for world in (2, 4):
        assert [part(rank, world) for rank in range(world)] == [whole[rank::world] for rank in range(world)]


def test_tuples_of_zeros_have_the_shape_of_a_record(folder: Path) -> None:
    """Sequences are empty in them."""
    reader = pyfeed.open_files(f"{folder}/*.tfrecord", rank=0, world=1, virtual_shards=1000, even="pad")
    tail = [x.bytes_list() for (x,) in reader][1000:]
    assert (len(tail), tail[0], tail[1], tail[2], tail[-1]) == (1000, [b"1"], [b"3"], [b""], [b""])


def test_a_map_knows_the_number_of_a_tuple_in_the_job(folder: Path) -> None:
    def job(world: int) -> list[tuple[int, int]]:
        found = []
        for rank in range(world):
            reader = pyfeed.open_npy(f"{folder}/*.npy", rank=rank, world=world).map(
                lambda x, position: (x, np.int64(position[1])),
                shapes=[(), ()],
                dtypes=[np.int64] * 2,
                with_position=True,
            )
            found += [(int(x), int(n)) for x, n in reader]
        return sorted(found)

    whole = job(1)
    assert sorted(n for _, n in whole) == list(range(960))
    assert all(job(world) == whole for world in (2, 8))


def test_a_job_of_tuples_without_batches(folder: Path) -> None:
    """The state counts the tuples of all processes."""
    names = f"{folder}/*.npy"
    first = [pyfeed.open_npy(names, rank=rank, world=4) for rank in range(4)]
    for reader in first:
        for _ in range(5):
            reader.read()
    state = first[2].state_dict()
    assert state["n"] == 20
    rest = [int(x) for (x,) in pyfeed.open_npy(names, rank=0, world=1)][20:]
    for world in (1, 2):
        readers = [pyfeed.open_npy(names, rank=rank, world=world) for rank in range(world)]
        for rank, reader in enumerate(readers):
            reader.load_state_dict(state)
            assert [int(x) for (x,) in reader] == rest[rank::world]
    reader = pyfeed.open_npy(names, rank=0, world=8)
    with raises(StateError, "state: expected a position that the number of processes, 8, divides, found 20 tuples"):
        reader.load_state_dict(state)
    assert len(list(reader)) == 120


def test_what_is_refused(folder: Path, tmp_path: Path) -> None:
    names = f"{folder}/*.npy"
    refused: list[tuple[dict[str, Any], str]] = [
        ({"rank": 2, "world": 2}, "rank: expected 0 to world - 1, found 2, and world 2"),
        (
            {"rank": 0, "world": 5},
            "world: expected a number that divides virtual_shards 48, found 5: give virtual_shards 240 in all "
            "processes, from the beginning of the job",
        ),
        ({"rank": 0, "world": 1, "even": "no"}, 'open_files: even: expected "drop", "repeat" or "pad", found "no"'),
        ({"rank": 0, "world": 1, "virtual_shards": 70000}, "virtual_shards: expected 1 to 65536, found 70000"),
        (
            {"rank": 0, "world": 1, "virtual_shards": 1003},
            "virtual_shards: expected at most the number of records, 1002, found 1003: "
            'give fewer, or even="repeat" or "pad"',
        ),
        ({"rank": "auto", "world": 2}, 'world: expected no value beside rank="auto", found 2'),
        ({"world": 2}, "world: expected rank beside it, found 2"),
        ({"virtual_shards": 2}, "virtual_shards: expected rank beside it, found 2"),
        ({"even": "pad"}, "even: expected rank beside it, found 'pad'"),
        (
            {"rank": 0, "world": 1, "verify_first": True},
            "verify_first: expected false with shuffle_records and "
            "virtual_shards, found true: no process reads whole files",
        ),
        (
            {"rank": 0, "world": 1, "num_threads": 0},
            "create_file_reader: expected no index, found one of index, "
            "index_dir, shuffle_records and virtual_shards: open_files has them",
        ),
    ]
    for arguments, message in refused:
        with pytest.raises(InvalidArgument) as info:
            pyfeed.open_npy(names, **arguments)
        assert str(info.value) == message
    with raises(ArgumentTypeError, "world: expected the number of processes, found None"):
        pyfeed.open_npy(names, rank=0)
    reader = pyfeed.open_npy(names, rank=0, world=4)
    derived: list[tuple[Callable[[], object], str]] = [
        (
            lambda: reader.shuffle(10),
            "shuffle: buffer_size: expected a multiple of 12, the virtual shards of this process, such as 12, found 10",
        ),
        (
            lambda: reader.shuffle(31),
            "shuffle: buffer_size: expected a multiple of 12, the virtual shards of this process, such as 24, found 31",
        ),
        (
            lambda: reader.shard(0, 2),
            "shard: expected a reader whose data is not divided yet, found virtual shards: 48 for rank 0 of 4 "
            '(1002 records, even="drop")',
        ),
        (
            lambda: reader.batch(2).split_batches(0, 2),
            "split_batches: expected a reader whose data is not divided yet, found virtual shards: 48 for rank 0 of 4 "
            '(1002 records, even="drop")',
        ),
        (
            lambda: reader.zip(pyfeed.open_npy(names)),
            "zip: expected readers with the same virtual shards, found 48 for rank 0 of 4 "
            '(1002 records, even="drop") and none',
        ),
        (
            lambda: reader.batch(2).map(lambda x: x, on_error="skip"),
            'on_error: expected "raise" above a reader that was opened with a rank, '
            'found "skip": the processes would not have the same number of tuples',
        ),
    ]
    for derive, message in derived:
        with pytest.raises(InvalidArgument) as info:
            derive()
        assert str(info.value) == message
    with raises(
        UnsupportedError,
        "expected a reader of all records, found one whose records are divided among processes: "
        "open the files without a rank for records by number",
    ):
        reader[0]
    np.savez_compressed(tmp_path / "x.npz", x=np.arange(100))
    with pytest.raises(UnsupportedError, match="index: expected arrays that are not compressed"):
        pyfeed.open_npz(tmp_path / "x.npz", rank=0, world=1)


def test_a_state_of_another_division_is_refused(folder: Path) -> None:
    names = f"{folder}/*.npy"
    state = pyfeed.open_npy(names, rank=0, world=2).shuffle(48).batch(24).state_dict()
    with raises(
        StateError,
        "the state is of another chain: expected a reader open_files with rank in its place, found open_files",
    ):
        pyfeed.open_npy(names).shuffle(48).batch(24).load_state_dict(
            pyfeed.open_npy(names, rank=0, world=1).shuffle(48).batch(24).state_dict()
        )
    others: list[tuple[int, dict[str, Any], int, int, str]] = [
        (2, {"virtual_shards": 24}, 48, 24, "virtual_shards: expected 48, as when it was saved, found 24"),
        (2, {"even": "pad"}, 48, 24, 'even: expected "drop", as when it was saved, found "pad"'),
        (4, {}, 24, 24, r"batch_size \* world: expected 48, as when it was saved, found 96"),
        (4, {}, 48, 12, r"buffer_size \* world: expected 96, as when it was saved, found 192"),
    ]
    for world, options, shuffle, batch, message in others:
        reader = pyfeed.open_npy(names, rank=0, world=world, **options).shuffle(shuffle).batch(batch)
        with pytest.raises(StateError, match=message):
            reader.load_state_dict(state)


def test_rank_and_world_of_a_launcher(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    reader = pyfeed.open_npy(f"{folder}/*.npy", rank="auto")
    details = reader.stats()["details"]
    assert (details["virtual_shards"], details["rank"], details["world"], details["even"]) == (48, 1, 2, "drop")
    assert len(reader) == 480
    above = reader.shuffle(480 // reader.world).batch(24 // reader.world)
    assert (above.rank, above.world) == (1, 2)
    undivided = pyfeed.open_npy(f"{folder}/*.npy").batch(2)
    assert (undivided.rank, undivided.world) == (0, 1)


def test_damage_that_was_counted(tmp_path: Path) -> None:
    """Damaged records are left out when the index is made, so all processes have the same number of tuples."""
    path = tmp_path / "x.tfrecord"
    with pyfeed.open_writer(path) as writer:
        for n in range(100):
            writer.write((pyfeed.LoDTensor.from_bytes([str(n + 100).encode()]),))
    data = bytearray(path.read_bytes())
    for n in (3, 50):
        data[n * 19 + 13] ^= 1
    path.write_bytes(data)
    parts = [
        [values(t)[0] for t in pyfeed.open_files(path, rank=rank, world=2, virtual_shards=14, on_corrupt="skip")]
        for rank in range(2)
    ]
    assert sorted(parts[0] + parts[1]) == [n + 100 for n in range(100) if n not in (3, 50)]
    assert len(parts[0]) == len(parts[1]) == 49
    reader = pyfeed.open_files(path, rank=0, world=1, virtual_shards=14, on_corrupt="skip")
    assert reader.stats()["details"]["corrupt"] == 2


def test_readers_of_other_records_are_not_zipped(tmp_path: Path) -> None:
    """Their virtual shards begin at other records."""
    np.save(tmp_path / "a.npy", np.arange(101))
    np.save(tmp_path / "b.npy", np.arange(100))
    a, b = (pyfeed.open_npy(tmp_path / name, rank=0, world=2) for name in ("a.npy", "b.npy"))
    with raises(
        InvalidArgument,
        'zip: expected readers with the same virtual shards, found 48 for rank 0 of 2 (101 records, even="drop") and '
        '48 for rank 0 of 2 (100 records, even="drop")',
    ):
        a.zip(b)
    same = pyfeed.open_npy(tmp_path / "a.npy", rank=0, world=2)
    assert all(x == y for x, y in a.zip(same, strict=True))


@pytest.mark.parametrize("how", [{"rank": 0, "world": 2}, {"shuffle_records": 1}])
def test_files_that_changed_since_a_state_was_saved(how: dict[str, Any], tmp_path: Path) -> None:
    """Also if the number of all records is the same."""
    np.save(tmp_path / "0.npy", np.arange(48))
    np.save(tmp_path / "1.npy", np.arange(48))
    names = f"{tmp_path}/*.npy"
    state = pyfeed.open_npy(names, **how).state_dict()
    np.save(tmp_path / "0.npy", np.arange(40))
    np.save(tmp_path / "1.npy", np.arange(56))
    reader = pyfeed.open_npy(names, **how)
    with pytest.raises(
        StateError, match=r"files_and_records: expected \S+, as when it was saved, found \S+, which are"
    ):
        reader.load_state_dict(state)
    reader.load_state_dict(state, strict=False)


@pytest.mark.parametrize("suffix", ["npy", "tfrecord"])
def test_a_process_reads_little_more_than_its_records(suffix: str, tmp_path: Path) -> None:
    """Every thread reads its own virtual shards, each from front to back."""
    rows = np.zeros((40_000, 128))
    if suffix == "npy":
        np.save(tmp_path / "0.npy", rows)
    else:
        with pyfeed.open_writer(tmp_path / "0.tfrecord") as writer:
            for row in rows:
                writer.write((pyfeed.LoDTensor.from_bytes([row.tobytes()]),))
    names = f"{tmp_path}/0.{suffix}"
    len(pyfeed.open_files(names, index=True))

    def read_bytes(**options: Any) -> int:
        out = run(
            f"""
            def bytes_read():
                return int(open("/proc/self/io").readline().split()[1])
            reader = pyfeed.open_files({names!r}, io="read", virtual_shards=8, **{options})
            before = bytes_read()
            for _ in reader.batch(100): pass
            say(bytes_read() - before)
            """
        )
        return int(out[0])

    size, block = rows.nbytes, 1 << 20
    for threads in (1, 2, 8):
        assert read_bytes(rank=0, world=1, num_threads=threads) < 1.1 * size + 8 * block
        assert read_bytes(rank=1, world=4, num_threads=threads) < 1.1 * size / 4 + 2 * 2 * block


def test_a_virtual_shard_has_one_open_file(tmp_path: Path) -> None:
    for i in range(12):
        np.save(tmp_path / f"{i:02}.npy", np.full((20_000, 16), i))  # more than a block
    reader = pyfeed.open_npy(tmp_path, rank=0, world=1, virtual_shards=3, io="read", num_threads=2)
    most = batches = 0
    for _ in reader.batch(1000):
        batches += 1
        links = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        most = max(most, sum(str(tmp_path) in target for target in map(_target, links)))
    assert (batches, 1 <= most <= 3) == (240, True)


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:  # it was closed meanwhile
        return ""
