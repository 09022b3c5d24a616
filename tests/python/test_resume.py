"""Exact resume: `Reader.state_dict` and `Reader.load_state_dict`."""

from __future__ import annotations

import copy
import gzip
import json
import os
import pickle
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyfeed._reader import feed

import pyfeed
from pyfeed import Reader, errors


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Twelve files of different length, whose rows are numbered over all files."""
    first = 0
    for i in range(12):
        rows = 5 + 17 * i % 40
        np.save(tmp_path / f"{i:02}.npy", np.arange(first, first + rows))
        first += rows
    return tmp_path


def open_chain(
    folder: Path, *, seed: int = 3, num_threads: int = 2, batch_size: int = 4, buffer_size: int = 30, **options: Any
) -> Reader:
    reader = pyfeed.open_files(f"{folder}/*.npy", num_threads=num_threads, **options)
    return reader.shuffle(buffer_size, seed=seed).batch(batch_size).double_buffer()


def rest(reader: Reader, passes: int = 1) -> list[list[Any]]:
    """Return the numbers of the rest of this pass, and of further passes."""
    return [[x.tolist() for (x,) in reader] for _ in range(passes)]


# ---- What a resumed reader delivers ----------------------------------------------------------


def test_every_step_of_two_passes(files: Path) -> None:
    reader = open_chain(files)
    states, batches = [], []
    for _ in range(2):
        states.append(reader.state_dict())
        for (x,) in reader:
            batches.append(x.tolist())
            states.append(reader.state_dict())
    half = len(batches) // 2
    assert [i for i, state in enumerate(states) if state.get("ended")] == [half + 1]  # after the first loop
    for i, state in enumerate(states):
        resumed = open_chain(files, num_threads=1 + i % 4)
        resumed.load_state_dict(json.loads(json.dumps(state)))
        done = min(i, half) if i <= half else i - 1
        expected = [batches[done:half], batches[half:]] if i <= half else [batches[done:]]
        assert rest(resumed, len(expected)) == expected, i


def test_a_state_after_the_loop_goes_on_with_the_next_pass(files: Path) -> None:
    reader = open_chain(files)
    rest(reader)
    state = reader.state_dict()
    resumed = open_chain(files)
    resumed.load_state_dict(state)
    assert rest(resumed) == rest(reader)
    assert resumed.state_dict()["pass"] == 1


def test_a_state_survives_json_pickle_and_sorting(files: Path) -> None:
    reader = open_chain(files)
    for _ in range(7):
        next(reader)
    state, expected = reader.state_dict(), None
    expected = rest(reader)
    for stored in [
        json.loads(json.dumps(state, indent=3, sort_keys=True)),
        pickle.loads(pickle.dumps(state)),
        copy.deepcopy(state),
        json.dumps(state),
        dict(reversed(list(state.items()))),
    ]:
        resumed = open_chain(files)
        resumed.set_state(stored)
        assert rest(resumed) == expected
    assert len(json.dumps(state)) <= 1024


def test_what_was_read_ahead_is_not_delivered(files: Path) -> None:
    reader = open_chain(files)
    for _ in range(3):
        next(reader)
    before = reader.state_dict()
    assert reader.has_next()
    assert reader.state_dict() == before
    expected = next(reader)[0].tolist()
    resumed = open_chain(files)
    resumed.load_state_dict(before)
    assert next(resumed)[0].tolist() == expected


def test_a_reader_goes_back(files: Path) -> None:
    reader = open_chain(files)
    next(reader)
    state = reader.get_state()
    expected = rest(reader)
    for _ in range(3):
        reader.load_state_dict(state)
        next(reader)
        reader.load_state_dict(state)
        assert rest(reader) == expected


def test_files_that_are_mounted_elsewhere(files: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    reader = open_chain(files)
    for _ in range(9):
        next(reader)
    state, expected = reader.state_dict(), rest(reader)
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "data"
    files.rename(elsewhere)
    resumed = open_chain(elsewhere)
    resumed.load_state_dict(state)
    assert rest(resumed) == expected
    elsewhere.rename(files)


def test_counts_of_damage_go_on(tmp_path: Path) -> None:
    for i in range(4):
        with pyfeed.open_writer(tmp_path / f"{i}.recordio", records_per_chunk=2) as writer:
            for k in range(40):
                writer.write((np.array(100 * i + k),))
        data = bytearray((tmp_path / f"{i}.recordio").read_bytes())
        data[len(data) // 3] ^= 0xFF
        data[2 * len(data) // 3] ^= 0xFF
        (tmp_path / f"{i}.recordio").write_bytes(data)

    def chain() -> Reader:
        return pyfeed.open_files(f"{tmp_path}/*.recordio", on_corrupt="skip", interleave=2)

    def corrupt(reader: Reader) -> int:
        return int(reader.stats()["details"]["corrupt"])

    whole = chain()
    numbers = [int(x) for (x,) in whole]
    assert corrupt(whole) > 0
    for done in range(0, len(numbers), 7):
        reader = chain()
        for _ in range(done):
            next(reader)
        resumed = chain()
        resumed.load_state_dict(reader.state_dict())
        assert [int(x) for (x,) in resumed] == numbers[done:]
        assert corrupt(resumed) == corrupt(whole)


# ---- What is refused -------------------------------------------------------------------------


def saved(reader: Reader, steps: int = 5) -> dict[str, Any]:
    for _ in range(steps):
        next(reader)
    return reader.state_dict()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 4}, "shuffle: seed: expected 3, as when it was saved, found 4"),
        ({"buffer_size": 31}, "shuffle: buffer_size: expected 30, as when it was saved, found 31"),
        ({"batch_size": 5}, "batch: batch_size: expected 4, as when it was saved, found 5"),
        ({"interleave": 2}, "open_files: interleave: expected 8, as when it was saved, found 2"),
        ({"shuffle_files": 1}, 'open_files: shuffle_files: expected none, as when it was saved, found "1"'),
        ({"on_corrupt": "skip"}, "open_files: skip_corrupt: expected none, as when it was saved, found true"),
    ],
)
def test_another_option_is_named(files: Path, options: dict[str, Any], message: str) -> None:
    state = saved(open_chain(files))
    other = open_chain(files, **options)
    with pytest.raises(errors.StateError, match="the state is of another chain: ") as caught:
        other.load_state_dict(state)
    assert message in str(caught.value)
    assert rest(other) == rest(open_chain(files, **options))  # nothing has changed


def test_other_data_of_the_same_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("x,y\n" + "".join(f"{i},{i + 100}\n" for i in range(50)))

    def column(name: str) -> Reader:
        return pyfeed.open_csv(tmp_path / "c.csv", shapes=[()], dtypes=["int64"], names=[name])

    with pytest.raises(
        errors.StateError, match=r'slots: expected "x int64\[\]", as when it was saved, found "y int64\[\]"'
    ):
        column("y").load_state_dict(saved(column("x"), 2))
    (tmp_path / "z.raw").write_bytes(gzip.compress(np.arange(50).tobytes()))

    def raw(**options: Any) -> Reader:
        return pyfeed.open_raw(tmp_path / "z.raw", [()], ["int64"], **options)

    for options, message in (
        ({"compression": "none"}, "compression: expected none, as when it was saved, found"),
        ({"on_corrupt": "skip", "verify_first": True}, "skip_corrupt"),
    ):
        with pytest.raises(errors.StateError, match=message):
            raw(**options).load_state_dict(saved(raw(), 2))
    with pytest.raises(errors.StateError, match="verify_first: expected none, as when it was saved, found true"):
        raw(on_corrupt="skip", verify_first=True).load_state_dict(saved(raw(on_corrupt="skip"), 2))
    raw(verify_first=True).load_state_dict(saved(raw(), 2))
    with pytest.raises(errors.StateError, match=r'random_data: slots: expected "float32\[\]"'):
        pyfeed.random_data([(2,)]).load_state_dict(saved(pyfeed.random_data([()]), 2))


def test_another_chain_is_refused(files: Path) -> None:
    state = saved(open_chain(files))
    opened = pyfeed.open_files(f"{files}/*.npy")
    for chain in [opened.shuffle(30, seed=3).batch(4), opened.batch(4).double_buffer(), opened]:
        with pytest.raises(errors.StateError, match="the state is of another chain"):
            chain.load_state_dict(state)


def test_other_files_are_named(files: Path) -> None:
    names = sorted(str(name) for name in files.iterdir())
    state = saved(pyfeed.open_files(names))
    with pytest.raises(errors.StateError, match=r"open_files: file_order: expected .*, which are hashes"):
        pyfeed.open_files(names[::-1]).load_state_dict(state)
    with pytest.raises(errors.StateError, match="open_files: num_files: expected 12, as when it was saved, found 11"):
        pyfeed.open_files(names[:-1]).load_state_dict(state)
    other = pyfeed.open_files(names[:-1])
    other.load_state_dict(state, strict=False)
    assert len(next(other)) == 1


def test_a_changed_file_is_named(files: Path) -> None:
    state = saved(open_chain(files))
    changed = files / "03.npy"
    before, stamp = changed.read_bytes(), changed.stat()
    for content, message in [
        (before + b"more", "expected 248 bytes, found 252" if len(before) == 248 else "bytes, found"),
        (before[:-8] + b"changed!", "expected the same first and last bytes, found others"),
        (before, "expected a last change at"),
    ]:
        changed.write_bytes(content)
        with pytest.raises(errors.StateError, match="the file has changed since the state was saved") as caught:
            open_chain(files).load_state_dict(state)
        assert message in str(caught.value)
        assert caught.value.file == str(changed)
    reader = open_chain(files)
    reader.load_state_dict(state, strict=False)
    expected = rest(reader)
    os.utime(changed, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    reader = open_chain(files)
    reader.load_state_dict(state)
    assert rest(reader) == expected
    changed.unlink()
    with pytest.raises(errors.Error):
        open_chain(files).load_state_dict(state)


def test_an_order_that_is_not_known_is_refused(files: Path) -> None:
    unordered = pyfeed.open_files(f"{files}/*.npy", ordered=False)
    with pytest.raises(errors.StateError, match="open_files: expected ordered=True"):
        unordered.batch(2).state_dict()
    mapped = pyfeed.open_files(f"{files}/*.npy").map(lambda x: x, ordered=False)
    next(mapped)
    with pytest.raises(errors.StateError, match="map: expected ordered=True"):
        mapped.state_dict()


def test_a_producer_without_an_order_is_refused() -> None:
    reader, _ = feed(2, [(2,)], restartable=True, no_order="a test")
    for chain in (reader, reader.batch(2)):
        with pytest.raises(errors.StateError, match=r"py_array_reader: expected an order .*: a test"):
            chain.state_dict()


def test_a_fifo_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.raw")
    reader = pyfeed.open_files(str(tmp_path / "x.raw"), shapes=[()], dtypes=["int64"])
    producer = threading.Thread(target=lambda: (tmp_path / "x.raw").write_bytes(np.arange(4).tobytes()))
    producer.start()
    next(reader)
    producer.join()
    with pytest.raises(errors.StateError, match="found a FIFO: its position cannot be saved"):
        reader.state_dict()


def test_a_consumer_within_a_read_is_refused() -> None:
    reader, queue = pyfeed.py_array_reader(4, [()])
    got = []
    consumer = threading.Thread(target=lambda: got.append(reader.read()))
    consumer.start()
    while queue.stats()["waiting_consumers"] == 0:
        pass
    with pytest.raises(errors.StateError, match="expected no consumer within a read"):
        reader.state_dict()
    queue.push((np.zeros(()),))
    consumer.join()
    assert reader.state_dict()["n"] == 1


def test_tuples_that_were_read_below_are_refused(files: Path) -> None:
    below = pyfeed.open_files(f"{files}/*.npy")
    next(below)
    top = below.batch(3)
    next(top)
    with pytest.raises(errors.StateError, match="found another consumer in this pass: reset the topmost reader"):
        top.state_dict()
    with pytest.raises(errors.StateError, match="expected the topmost reader of a chain"):
        below.state_dict()
    top.reset()
    assert top.state_dict()["n"] == 0


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "without a version"),
        ("", "expected a state as a JSON object"),
        ("{", "expected a state as a JSON object"),
        ({"v": 99}, "version 1 at most, found version 99"),
        ({"_snapshot": {"_snapshot_step": 4}}, "without a version"),
    ],
)
def test_what_is_no_state(files: Path, state: Any, message: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=message):
        open_chain(files).load_state_dict(state)


def test_a_state_that_was_edited(files: Path) -> None:
    state = saved(open_chain(files))
    state["n"] += 1
    with pytest.raises(errors.InvalidArgument, match="the checksum is wrong"):
        open_chain(files).load_state_dict(state)


def test_a_state_of_another_type(files: Path) -> None:
    for wrong in [None, 3, [1], b"{}", {"v": object()}, {1: 2}, {"v": float("nan")}]:
        with pytest.raises(errors.Error):
            open_chain(files).load_state_dict(wrong)  # type: ignore[arg-type]


def test_a_closed_reader(files: Path) -> None:
    reader = open_chain(files)
    state = reader.state_dict()
    reader.close()
    with pytest.raises(errors.StateError, match="closed"):
        reader.state_dict()
    with pytest.raises(errors.StateError, match="closed"):
        reader.load_state_dict(state)


# ---- Queues and generators -------------------------------------------------------------------


def test_from_generator_is_called_with_start() -> None:
    starts = []

    def numbers(start: int) -> Iterator[tuple[Any, ...]]:
        starts.append(start)
        for i in range(start, 20):
            yield (np.array(i),)

    reader = pyfeed.from_generator(numbers, [()], dtypes=["int64"]).batch(3)
    assert [x.tolist() for _, (x,) in zip(range(2), reader, strict=False)] == [[0, 1, 2], [3, 4, 5]]
    resumed = pyfeed.from_generator(numbers, [()], dtypes=["int64"]).batch(3)
    resumed.load_state_dict(reader.state_dict())
    assert rest(resumed, 2) == [
        [[6, 7, 8], [9, 10, 11], [12, 13, 14], [15, 16, 17], [18, 19]],
        [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11], [12, 13, 14], [15, 16, 17], [18, 19]],
    ]
    assert starts[-2:] == [6, 0]


def test_data_that_ends_before_the_position_is_told(tmp_path: Path) -> None:
    def generated(count: int) -> Reader:
        return pyfeed.from_generator(lambda: ((np.array(i),) for i in range(count)), [()], dtypes=["int64"])

    def stored(count: int) -> Reader:
        np.save(tmp_path / "x.npy", np.arange(count))
        return pyfeed.open_files(tmp_path / "x.npy")

    message = r"expected 4 more tuples before the position that was restored, found the end of the pass"
    for source in (generated, stored):
        for chain in (source, lambda count, source=source: source(count).shuffle(1).batch(3)):
            state = saved(chain(20), 3 if chain is not source else 9)
            resumed = chain(5)
            resumed.load_state_dict(state, strict=False)
            for _ in range(2):
                with pytest.raises(errors.StateError, match=message):
                    next(resumed)
            resumed.reset()
            assert next(resumed)[0].ravel()[0] == 0


def test_a_start_of_the_functions_own_is_left_alone() -> None:
    def rows(start: int = 100, stop: int = 104) -> Iterator[tuple[Any, ...]]:
        for i in range(start, stop):
            yield (np.array(i),)

    for function, expected in ((rows, [100, 101, 102, 103]), (partial(rows, start=102), [102, 103])):
        reader = pyfeed.from_generator(function, [()], dtypes=["int64"])
        assert rest(reader) == [expected]


def test_from_generator_without_start_is_replayed() -> None:
    def chain() -> Reader:
        return (
            pyfeed.from_generator(lambda: ((np.array(i),) for i in range(20)), [()], dtypes=["int64"])
            .shuffle(5)
            .batch(2)
        )

    reader = chain()
    batches = rest(reader)[0]
    for done in range(len(batches)):
        reader = chain()
        state = saved(reader, done)
        resumed = chain()
        resumed.load_state_dict(state)
        assert rest(resumed) == [batches[done:]]


def test_a_queue_drops_what_was_delivered() -> None:
    reader, queue = pyfeed.py_array_reader(30, [()], dtypes=["int64"])
    for i in range(10):
        queue.push((np.array(i),))
    state = saved(reader, 4)
    resumed, queue = pyfeed.py_array_reader(30, [()], dtypes=["int64"])
    resumed.load_state_dict(state)
    for i in range(10):
        queue.push((np.array(i),))
    queue.close()
    assert [int(x) for (x,) in resumed] == [4, 5, 6, 7, 8, 9]
    with pytest.raises(errors.StateError, match="cannot start over"):
        resumed.load_state_dict(state)


# ---- map -------------------------------------------------------------------------------------


def test_positions_and_random_numbers_are_the_same_after_a_resume(files: Path) -> None:
    def augment(x: Any, position: tuple[int, int], rng: np.random.Generator) -> tuple[Any, ...]:
        return x, np.array(position), rng.integers(1 << 60, size=2)

    def chain(num_threads: int) -> Reader:
        return (
            pyfeed.open_files(f"{files}/*.npy")
            .multi_pass(2)
            .map(
                augment,
                num_threads,
                shapes=[(), (2,), (2,)],
                dtypes=["int64"] * 3,
                with_position=True,
                rng=True,
                seed=11,
            )
        )

    def all_of(reader: Reader) -> list[tuple[Any, ...]]:
        return [tuple(x.tolist() for x in slots) for slots in reader]

    whole = all_of(chain(1))
    rows = len(whole) // 2
    assert [position for _, position, _ in whole] == [[p, i] for p in range(2) for i in range(rows)]
    assert len({tuple(numbers) for *_, numbers in whole}) == len(whole)
    expected = np.random.Generator(np.random.Philox(key=11, counter=[0, 0, 5, 1])).integers(1 << 60, size=2)
    assert whole[rows + 5][2] == expected.tolist()
    for done in [0, 1, rows - 1, rows, rows + 1, 2 * rows - 1]:
        reader = chain(2)
        state = saved(reader, done)
        resumed = chain(3)
        resumed.load_state_dict(state)
        assert all_of(resumed) == whole[done:]


def test_another_seed_of_a_map_is_named(files: Path) -> None:
    def chain(**options: Any) -> Reader:
        return pyfeed.open_files(f"{files}/*.npy").map(lambda x, rng=None: x, **options)

    state = chain(rng=True, seed=4).state_dict()
    for options, found in (
        ({"rng": True, "seed": 5}, '"5"'),
        ({}, "none"),
        ({"seed": 4}, "none"),
        ({"rng": True}, '"0"'),
    ):
        with pytest.raises(errors.StateError, match=f'map: seed: expected "4", as when it was saved, found {found}'):
            chain(**options).load_state_dict(state)
        chain(**options).load_state_dict(state, strict=False)


def test_map_skips_errors_and_resumes(files: Path) -> None:
    def fails_at_times(x: Any) -> Any:
        if x % 3 == 1:
            raise ValueError(f"no {x}")
        return x

    def chain() -> Reader:
        return pyfeed.open_files(f"{files}/*.npy").map(fails_at_times, 2, on_error="skip").batch(5)

    reader = chain()
    batches = rest(reader)[0]
    numbers = [x for batch in batches for x in batch]
    everything = [int(x) for (x,) in pyfeed.open_files(f"{files}/*.npy")]
    assert numbers == [x for x in everything if x % 3 != 1]
    details = reader.stats()["below"][0]["details"]
    assert details["skipped"] == len(everything) - len(numbers)
    assert details["skips"][0]["reason"] == f"ValueError: no {next(x for x in everything if x % 3 == 1)}"
    assert details["skips"][0]["file"].endswith(".npy")
    for done in range(len(batches)):
        reader = chain()
        state = saved(reader, done)
        resumed = chain()
        resumed.load_state_dict(state)
        assert rest(resumed) == [batches[done:]]


def test_on_error_skips_no_wrong_result(files: Path) -> None:
    reader = pyfeed.open_files(f"{files}/*.npy").map(lambda x: np.zeros(3, "int64"), on_error="skip")
    with pytest.raises(errors.ShapeError):
        next(reader)


def test_arguments_of_map(files: Path) -> None:
    reader = pyfeed.open_files(f"{files}/*.npy")
    with pytest.raises(errors.InvalidArgument, match='on_error: expected "raise" or "skip", found'):
        reader.map(lambda x: x, on_error="ignore")


# ---- Errors ----------------------------------------------------------------------------------


def texts(reader: Reader, count: int) -> list[Any]:
    """Read so many times; an error is one of its class's names."""
    found: list[Any] = []
    for _ in range(count):
        try:
            found.append([x.tolist() for x in reader.read()])
        except errors.Error as error:
            found.append(type(error).__name__)
        except ValueError as error:
            found.append(str(error))
    return found


def test_a_batch_that_failed_is_not_read_again() -> None:
    def rows() -> Iterator[tuple[Any, ...]]:
        for i in range(40):
            yield (np.full((1, 3 if i in (9, 21, 22) else 2), i),)

    def chain() -> Reader:
        return pyfeed.from_generator(rows, [(1, -1)], dtypes=["int64"]).batch(4)

    expected = texts(chain(), 10)
    assert [i for i, found in enumerate(expected) if found == "ShapeError"] == [2, 5]
    for done in range(10):
        reader = chain()
        texts(reader, done)
        resumed = chain()
        resumed.load_state_dict(reader.state_dict())
        assert texts(resumed, 3) == [*expected, *["EndOfData"] * 3][done : done + 3]
        again = chain()
        again.load_state_dict(resumed.state_dict())
        assert texts(again, 3) == [*expected, *["EndOfData"] * 6][done + 3 : done + 6]


def test_a_batch_that_an_error_cut_short_loses_nothing(files: Path) -> None:
    wrong = {13}

    def fails(x: Any) -> Any:
        if int(x) in wrong:
            raise ValueError("thirteen")
        return x

    def chain() -> Reader:
        return pyfeed.open_files(f"{files}/*.npy", interleave=1).map(fails, 2).batch(8)

    reader = chain()
    assert texts(reader, 3) == [[list(range(8))], [list(range(8, 13))], "thirteen"]
    state = reader.state_dict()
    wrong.clear()
    resumed = chain()
    resumed.load_state_dict(state)
    assert texts(resumed, 2) == [[list(range(13, 21))], [list(range(21, 29))]]
    again = chain()
    again.load_state_dict(resumed.state_dict())
    assert texts(again, 1) == [[list(range(29, 37))]]
    again.reset()
    assert texts(again, 1) == [[list(range(8))]]
    resumed.load_state_dict(again.state_dict())
    assert texts(resumed, 1) == [[list(range(8, 16))]]


def test_a_block_that_an_error_cut_short_is_refused(files: Path) -> None:
    def fails(x: Any) -> Any:
        if int(x) == 37:
            raise ValueError("thirty-seven")
        return x

    reader = pyfeed.open_files(f"{files}/*.npy", interleave=1).map(fails).shuffle(10, seed=1)
    texts(reader, 29)
    assert reader.state_dict()["n"] == 29
    texts(reader, 2)
    with pytest.raises(errors.StateError, match=r"found one that an error has cut short.*ValueError: thirty-seven"):
        reader.state_dict()
    assert texts(reader, 7)[-1] == "thirty-seven"
