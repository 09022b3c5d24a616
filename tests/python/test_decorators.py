"""Readers above other readers: shuffle, shard, multi_pass, double_buffer, zip, map; and random data."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyfeed.typing import Slot

import pyfeed
from pyfeed import LoDTensor, Reader, Scope, from_generator, layers, open_files, open_writer, random_data

from .support import (
    Background,
    Process,
    ends_within_a_second,
    feed,
    raises,
    run,
    same,
    together,
    tuple_of,
    value_of,
    values_in,
    wait_for_readers,
    wait_until,
)


def numbers(n: int, scope: Scope | None = None) -> Reader:
    """Return a reader of n tuples that can start over."""
    return from_generator(lambda: (tuple_of(i) for i in range(n)), [(2,)], dtypes=["float64"], scope=scope or Scope())


def passes(reader: Reader, number: int) -> list[list[Any]]:
    out = []
    for _ in range(number):
        out.append(values_in(reader))
        reader.reset()
    return out


# ---- shuffle ----


@pytest.mark.parametrize("size", [1, 2, 7, 100, 1000])
def test_a_shuffle_permutes_block_by_block(size: int) -> None:
    reader = numbers(100).shuffle(size, seed=3)
    seen = passes(reader, 3)
    for found in seen:
        for first in range(0, 100, size):
            assert sorted(found[first : first + size]) == list(range(first, min(first + size, 100)))
    assert seen[0] != seen[1] != seen[2] or size == 1
    assert (seen[0] == list(range(100))) == (size == 1)


def test_one_seed_one_order() -> None:
    orders = [passes(numbers(50).shuffle(50, seed), 2) for seed in (0, 0, 1, 2**63 - 1)]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2] != orders[3]
    # The order is the same on every machine and in every release.
    assert values_in(numbers(10).shuffle(10, 7)) == [6, 0, 9, 3, 8, 1, 2, 5, 4, 7]


def test_a_pass_has_its_order_however_far_the_one_before_it_came() -> None:
    whole = passes(numbers(20).shuffle(20), 2)[1]
    reader = numbers(20).shuffle(20)
    for _ in range(5):
        reader.read()
    reader.reset()
    assert values_in(reader) == whole


# ---- shard ----


@pytest.mark.parametrize("world", [1, 2, 3, 20])
def test_shards_are_all_there_is(world: int) -> None:
    shards = [values_in(numbers(17).shard(rank, world)) for rank in range(world)]
    assert shards == [list(range(rank, 17, world)) for rank in range(world)]


def test_shards_that_cannot_be() -> None:
    with raises(pyfeed.errors.InvalidArgument, "shard: expected a rank below the world's size 2, found 2"):
        numbers(1).shard(2, 2)
    with raises(pyfeed.errors.InvalidArgument, "rank: expected at least 0, found -1"):
        numbers(1).shard(-1, 2)
    with raises(pyfeed.errors.InvalidArgument, "world: expected at least 1, found 0"):
        numbers(1).shard(0, 0)


# ---- multi_pass ----


def test_multi_pass() -> None:
    reader = numbers(3).multi_pass(3)
    found = []
    for arrays in reader:
        found.append((reader.pass_id, value_of(arrays)))
    assert found == [(p, i) for p in range(3) for i in range(3)]
    assert not reader.has_next()
    reader.reset()
    assert reader.has_next()
    assert len(values_in(reader)) == 9
    assert reader.stats()["details"]["pass_num"] == 3


def test_a_multi_pass_without_end() -> None:
    reader = numbers(2).multi_pass(0)
    assert [value_of(x) for x in itertools.islice(reader, 101)] == [i % 2 for i in range(101)]
    assert reader.pass_id == 50


def test_the_pass_goes_with_the_tuple() -> None:
    """pass_id belongs to the tuple that was read last, even if readers in between read ahead."""
    top = numbers(4).multi_pass(3).shuffle(4).map(lambda x: x, 2).batch(4).double_buffer(depth=3)
    found = []
    for _ in top:
        found.append(top.pass_id)
    assert found == [0, 1, 2]


def test_each_pass_of_a_multi_pass_is_shuffled_anew() -> None:
    found = values_in(numbers(20).shuffle(20).multi_pass(2))
    assert sorted(found[:20]) == sorted(found[20:]) == list(range(20))
    assert found[:20] != found[20:]


def test_an_empty_pass_says_so() -> None:
    with pytest.raises(pyfeed.errors.StateError, match="pass 0 had no tuples"):
        numbers(0).multi_pass(2).read()


# ---- double_buffer ----


def test_double_buffer_reads_ahead() -> None:
    made = 0

    def function() -> Any:
        nonlocal made
        for i in range(10):
            made += 1
            yield tuple_of(i)

    under = from_generator(function, [(2,)], capacity=1, scope=Scope())
    reader = under.double_buffer(depth=3)
    assert value_of(reader.read()) == 0
    wait_until(lambda: under.stats()["tuples"] == 4)  # one was read, and three are ready
    assert values_in(reader) == list(range(1, 10))
    reader.reset()
    assert values_in(reader) == list(range(10))


def test_double_buffers_that_cannot_be() -> None:
    with raises(pyfeed.errors.InvalidArgument, "depth: expected at least 1 tuple, found 0"):
        numbers(1).double_buffer(depth=0)
    assert len(list(numbers(2).double_buffer(pyfeed.CPUPlace()))) == 2
    with raises(pyfeed.errors.InvalidArgument, "place: expected at least 1, found 0"):
        numbers(1).double_buffer([])
    with raises(pyfeed.errors.ArgumentTypeError, "place: expected a Place, or a sequence of them, found array(3)"):
        numbers(1).double_buffer(np.array(3))  # type: ignore[arg-type]
    with raises(pyfeed.errors.InvalidArgument, "place: expected devices where there are several, found CPUPlace()"):
        numbers(1).double_buffer([pyfeed.CPUPlace()] * 2)


# ---- zip ----


def test_zip_joins_slots() -> None:
    scope = Scope()
    one, two, three = (numbers(n, scope) for n in (3, 5, 4))
    reader = one.zip(two.map(lambda x: 10 * x), three.batch(2))
    # three.batch(2) has only 2 batches; of a batch, value_of returns the value of the first tuple.
    assert [[value_of([x]) for x in arrays] for arrays in reader] == [[0, 0, 0], [1, 10, 2]]
    assert [s.shape for s in reader.slots] == [(2,), (2,), (-1, 2)]


def test_a_strict_zip_ends_together() -> None:
    scope = Scope()
    reader = numbers(3, scope).zip(numbers(3, scope), strict=True)
    assert len(list(reader)) == 3
    reader = numbers(3, scope).zip(numbers(4, scope), strict=True)
    found: list[Any] = []
    with pytest.raises(pyfeed.errors.StateError, match="expected readers that end together"):
        found.extend(reader)
    assert len(found) == 3


def test_zips_that_cannot_be() -> None:
    reader = numbers(1)
    with raises(pyfeed.errors.InvalidArgument, "zip: expected at least 1 other reader, found none"):
        reader.zip()
    other = numbers(1)
    with raises(
        pyfeed.errors.InvalidArgument, f"zip: expected readers in one scope, found the reader {other.name!r} in another"
    ):
        reader.zip(other)


# ---- map ----


def double(x: Any) -> Any:
    return 2 * x


@pytest.mark.parametrize("num_threads", [1, 2, 8])
def test_map_in_order(num_threads: int) -> None:
    reader = numbers(100).map(double, num_threads)
    for _ in range(3):
        assert values_in(reader) == [2 * i for i in range(100)]
        reader.reset()
    assert reader.slots == [Slot("", "float64", (2,), 0)]


def test_map_in_whatever_order() -> None:
    """The first result is not returned before the others are delivered."""
    goes_on = threading.Event()

    def function(x: Any) -> Any:
        if x[0] == 0:
            goes_on.wait(30)
        return x

    reader = numbers(10).map(function, 2, ordered=False)
    found = [value_of(reader.read()) for _ in range(9)]
    assert sorted(found) == list(range(1, 10))
    goes_on.set()
    assert values_in(reader) == [0]
    reader.reset()
    assert sorted(values_in(reader)) == list(range(10))


def test_workers_work_at_the_same_time() -> None:
    everyone = threading.Barrier(4)

    def function(x: Any) -> Any:
        everyone.wait(30)
        return x

    assert values_in(numbers(8).map(function, 4)) == list(range(8))


def test_the_arrays_are_arguments_and_the_result_anything() -> None:
    scope = Scope()
    pairs = numbers(3, scope).zip(numbers(3, scope))

    def function(x: Any, y: Any) -> list[Any]:
        return [x[:1].sum(), np.arange(4)[::2], LoDTensor.from_lengths(np.arange(int(y[0])), [[int(y[0])]]), f"#{y[0]}"]

    reader = pairs.map(
        function,
        shapes=[(), (2,), (-1,), (-1,)],
        dtypes=["float64", "int64", "int64", "uint8"],
        lod_levels=[0, 0, 1, 1],
        names=["a", "b", "c", "d"],
    )
    assert reader.slots[3] == Slot("d", "uint8", (-1,), 1)
    rows = [(a.item(), b.tolist(), c.sequences()[0].tolist(), d.bytes_list()) for a, b, c, d in reader]
    assert rows == [
        (0.0, [0, 2], [], [b"#0.0"]),
        (1.0, [0, 2], [0], [b"#1.0"]),
        (2.0, [0, 2], [0, 1], [b"#2.0"]),
    ]


def test_a_result_may_be_an_argument() -> None:
    """A result of any size is copied, since the memory of the argument is reused."""
    for size in (10, 1 << 20):
        reader = random_data([(size,)], count=5, seed=1).map(lambda x: x)
        expected = list(random_data([(size,)], count=5, seed=1))
        for (found,), (x,) in zip(reader, expected, strict=True):
            same(found, x)


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        (lambda x: np.zeros(3), pyfeed.errors.ShapeError, "slot 0: dimension 0: expected 2, found 3"),
        (lambda x: np.zeros(2, "int8"), pyfeed.errors.DTypeError, "slot 0: dtype: expected float64, found int8"),
        (lambda x: (x, x), pyfeed.errors.SlotCountError, "slots: expected 1, found 2"),
        (lambda x: (), pyfeed.errors.SlotCountError, "slots: expected 1, found 0"),
        (lambda x: None, pyfeed.errors.DTypeError, "slot 0: expected an array"),
        (lambda x: 3, pyfeed.errors.ShapeError, r"slot 0: shape: expected \[2\], found \[\]"),
        (lambda x, y: x, TypeError, "missing 1 required positional argument"),
        (lambda x: next(iter(())), RuntimeError, "the function raised StopIteration"),
    ],
)
def test_results_that_will_not_do(function: Callable[..., Any], kind: type[Exception], message: str) -> None:
    reader = numbers(3).map(function)
    for _ in range(2):
        with pytest.raises(kind, match=message):
            reader.read()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_of_a_result_says_that_shapes_are_needed(num_workers: int) -> None:
    note = "map has no shapes: it expects results with the slots of its arguments; otherwise pass shapes and dtypes"
    with pytest.raises(pyfeed.errors.SlotCountError, match="slots: expected 1, found 2") as caught:
        numbers(1).map(twice, num_workers=num_workers).read()
    assert note in caught.value.__notes__
    with pytest.raises(pyfeed.errors.SlotCountError, match="slots: expected 1, found 2") as caught:
        numbers(1).map(twice, num_workers=num_workers, shapes=[(2,)]).read()
    assert note not in caught.value.__notes__


def twice(x: Any) -> Any:
    return x, x


def deep_below(x: Any) -> Any:
    raise KeyError(f"at {x[0]:.0f}")


@pytest.mark.parametrize("num_threads", [1, 4])
@pytest.mark.parametrize("above", [lambda r: r, lambda r: r.batch(2).double_buffer()])
def test_an_exception_comes_in_its_place_and_is_the_very_one(
    num_threads: int, above: Callable[[Reader], Reader]
) -> None:
    raised: list[KeyError] = []

    def function(x: Any) -> Any:
        if x[0] >= 5:
            try:
                deep_below(x)
            except KeyError as error:
                raised.append(error)
                raise
        return x

    reader = above(numbers(10).map(function, num_threads))
    for _ in range(3):
        found: list[Any] = []
        with pytest.raises(KeyError, match="at 5"):
            found.extend(v for (x,) in reader for v in np.atleast_2d(x)[:, 0].tolist())
        assert found == [0, 1, 2, 3, 4]
        for call in (reader.read, reader.has_next, lambda: next(reader)):
            with pytest.raises(KeyError, match="at 5") as caught:
                call()
            assert any(caught.value is error for error in raised)
            frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
            assert frames[-2:] == ["function", "deep_below"]
            assert len(frames) < 8
        reader.reset()


FORMATS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # by suffix: the options of the writer and of the reader
    "recordio": ({}, {}),
    "npy": ({}, {}),
    "npz": ({}, {}),
    "tfrecord": ({"names": ["x"]}, {"features": [{"name": "x", "dtype": "int32"}]}),
    "tar": ({"names": ["cls"]}, {}),
    "csv": ({}, {}),
    "arrow": ({}, {}),
    "jsonl": ({}, {}),
    "raw": ({"shapes": [()], "dtypes": ["int32"]}, {"shapes": [()], "dtypes": ["int32"]}),
    "idx": ({}, {}),
    "mds": ({}, {}),
    "tokens": ({"format": "tokens"}, {"format": "tokens", "length": 1}),
    "parquet": ({}, {}),
}


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("num_threads", [1, 3])
def test_an_exception_in_map_names_the_record(suffix: str, num_threads: int, tmp_path: Path) -> None:
    write, read = FORMATS[suffix]
    files = [tmp_path / f"{i}.{suffix}" for i in range(2)]
    for i, file in enumerate(files):
        with open_writer(file, **write) as writer:
            for k in range(40):
                writer.write((np.int32(100 * i + k),))

    def function(x: Any) -> Any:
        if int(x.flat[0]) == 117:
            raise KeyError("no such label")
        return x

    reader = open_files(files, interleave=1, **read).map(function, num_threads)
    for again in range(2):
        for call in (lambda: [None for _ in reader], reader.read):
            with pytest.raises(KeyError, match="no such label") as caught:
                call()
            error: Any = caught.value
            assert (error.file, error.record) == (str(files[1]), 17)
            assert error.__notes__ == [f"in map: tuple 57 of pass {again} ({files[1]}, record 17)"]
            assert [frame.name for frame in traceback.extract_tb(error.__traceback__)][-1] == "function"
            assert error.__cause__ is None
        reader.reset()


def test_an_exception_in_map_names_a_batch_by_its_first_record(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(10))

    def function(x: Any) -> Any:
        if 8 in x:
            raise KeyError("eight")
        return x

    reader = open_files(tmp_path / "x.npy").batch(4).map(function)
    reader.read()
    reader.read()
    with pytest.raises(KeyError) as caught:
        reader.read()
    assert caught.value.__notes__ == [
        f"in map: tuple 2 of pass 0 (a batch of 2 that begins with {tmp_path / 'x.npy'}, record 8)"
    ]
    assert (caught.value.file, caught.value.record) == (str(tmp_path / "x.npy"), 8)  # type: ignore[attr-defined]


def test_an_exception_in_map_over_no_file_has_the_tuples_number() -> None:
    def function(x: Any) -> Any:
        if x[0] == 3:
            raise KeyError("three")
        return x

    reader = numbers(5).multi_pass(2).map(function)
    with pytest.raises(KeyError) as caught:
        list(reader)
    assert caught.value.__notes__ == ["in map: tuple 3 of pass 0"]
    assert not hasattr(caught.value, "file")


class Own(Exception):
    """An exception with an attribute `file` of its own, and with a `record` that cannot be set."""

    def __init__(self, file: str) -> None:
        self.file = file

    @property
    def record(self) -> None:
        return None


def test_attributes_of_the_user_s_own_exceptions_stay(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(2))

    def function(x: Any) -> Any:
        raise Own("mine")

    reader = open_files(tmp_path / "x.npy").map(function)
    with pytest.raises(Own) as caught:
        reader.read()
    assert caught.value.file == "mine"
    assert caught.value.record is None
    assert "record 0" in caught.value.__notes__[0]


def test_an_exception_in_map_within_a_program_names_both(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(2))

    def function(x: Any) -> Any:
        raise KeyError("no")

    scope, main = Scope(), pyfeed.Program()
    reader = open_files(tmp_path / "x.npy", scope=scope).map(function)
    with pyfeed.program.program_guard(main, pyfeed.Program()):
        layers.read_file(reader)
    for _ in range(2):
        with pytest.raises(KeyError) as caught:
            pyfeed.Executor().run(main, scope=scope)
        (note,) = caught.value.__notes__
        assert note.startswith("in block 0, op 0: read")
        assert note.endswith(f": map: tuple 0 of pass 0 ({tmp_path / 'x.npy'}, record 0)")


def test_every_pass_may_fail() -> None:
    """There are more failures than the reader keeps at a time. Each is delivered as the original exception."""
    count = itertools.count()

    def function(x: Any) -> Any:
        raise KeyError(next(count))

    reader = numbers(3).map(function)
    for _ in range(100):
        with pytest.raises(KeyError):
            reader.read()
        reader.reset()


def test_an_exception_below_comes_through() -> None:
    def function() -> Any:
        yield tuple_of(1)
        deep_below(np.zeros(1))

    reader = from_generator(function, [(2,)], scope=Scope()).map(double, 2)
    assert value_of(reader.read()) == 2
    for _ in range(2):
        with pytest.raises(KeyError, match="at 0"):
            reader.read()


class Opaque(Exception):
    """An exception that raises another exception when it is examined."""

    def __getattribute__(self, name: str) -> Any:
        raise KeyboardInterrupt(name)

    def __str__(self) -> str:
        raise SystemExit


@pytest.mark.parametrize("num_threads", [1, 3])
def test_an_exception_that_cannot_be_looked_at(num_threads: int) -> None:
    def fail(x: Any) -> Any:
        raise Opaque

    reader = numbers(3).map(fail, num_threads=num_threads)
    try:
        reader.read(timeout=20)
    except Opaque:  # pytest.raises would examine it
        return
    raise AssertionError("the exception of the function was lost")


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit])
def test_whatever_is_raised(error: type[BaseException]) -> None:
    def function(x: Any) -> Any:
        raise error

    reader = numbers(1).map(function)
    with pytest.raises(error):
        reader.read()


def test_a_function_that_exits_does_not_end_the_consumer() -> None:
    def function(x: Any) -> Any:
        sys.exit(0)

    reader = numbers(1).map(function)
    with pytest.raises(pyfeed.errors.ProducerError) as caught:
        reader.read()
    assert str(caught.value) == "the function failed: SystemExit: it called sys.exit(0)"
    assert isinstance(caught.value.__cause__, SystemExit)
    assert "sys.exit(0)" in caught.value.cause_traceback


def test_a_capacity_bounds_what_is_taken() -> None:
    busy = Busy()
    under = numbers(100)
    reader = under.map(busy, 8, capacity=3)
    reading = Background(reader.read)
    for _ in range(3):
        busy.wait()
    assert not busy.called.acquire(timeout=0.05)
    busy.may.set()
    assert value_of(reading.result()) == 0
    assert values_in(reader) == list(range(1, 100))
    assert reader.stats()["details"]["capacity"] == 3
    assert under.map(double, 10).stats()["details"]["capacity"] == 40


def test_maps_that_cannot_be() -> None:
    reader = numbers(1)
    with raises(pyfeed.errors.InvalidArgument, "num_threads: expected at least 1, found 0"):
        reader.map(double, 0)
    with raises(pyfeed.errors.InvalidArgument, "capacity: expected at least 1 tuple, found 0"):
        reader.map(double, capacity=0)
    with raises(pyfeed.errors.InvalidArgument, "dtypes: expected shapes along with it, found none"):
        reader.map(double, dtypes=["int8"])
    with raises(pyfeed.errors.ShapeError, None, slot=0):
        reader.map(double, shapes=[(-2,)])
    assert value_of(reader.map(double).read()) == 0


class Busy:
    """A function that does not return before `may` is set."""

    def __init__(self) -> None:
        self.called = threading.Semaphore(0)
        self.may = threading.Event()

    def __call__(self, x: Any) -> Any:
        self.called.release()
        assert self.may.wait(30)
        return x

    def wait(self) -> None:
        assert self.called.acquire(timeout=30)


@pytest.mark.parametrize("num_threads", [1, 3])
def test_reset_while_functions_run(num_threads: int) -> None:
    busy = Busy()
    reader = numbers(5).map(busy, num_threads)
    waiting = Background(reader.read)
    for _ in range(num_threads):
        busy.wait()
    wait_for_readers(reader)
    reader.reset()
    with raises(pyfeed.errors.Cancelled, None):
        waiting.result()
    busy.may.set()
    assert values_in(reader) == [0, 1, 2, 3, 4]


def test_a_reader_that_goes_while_functions_run() -> None:
    busy = Busy()
    reader = numbers(5).map(busy, 2)
    reading = Background(reader.read)
    busy.wait()
    busy.wait()
    threads = [t for t in threading.enumerate() if t.name.startswith(f"pyfeed-{reader.name}")]
    assert len(threads) == 2
    assert all(t.daemon for t in threads)
    wait_for_readers(reader)
    reader.reset()
    with raises(pyfeed.errors.Cancelled, None):
        reading.result()
    del reader, reading  # does not wait for the functions
    assert all(t.is_alive() for t in threads)
    busy.may.set()
    wait_until(lambda: not any(t.is_alive() for t in threads))


def test_idle_workers_end_with_their_reader() -> None:
    reader = numbers(5).map(double, 3)
    threads = [t for t in threading.enumerate() if t.name.startswith(f"pyfeed-{reader.name}")]
    top = reader.batch(2)
    del reader
    gc.collect()
    assert [x[:, 0].tolist() for (x,) in top] == [[0, 2], [4, 6], [8]]
    assert len(threads) == 3
    assert all(t.is_alive() for t in threads)
    del top
    wait_until(lambda: not any(t.is_alive() for t in threads))


def test_a_function_that_knows_its_reader_does_not_keep_it() -> None:
    def use() -> weakref.ref[Reader]:
        reader: Reader

        def function(x: Any) -> Any:
            assert reader.name
            return x

        reader = numbers(5).map(function, 2)
        assert values_in(reader) == [0, 1, 2, 3, 4]
        return weakref.ref(reader)

    reference = use()
    wait_until(lambda: (gc.collect(), reference() is None)[1])


def test_an_exception_is_kept_no_longer_than_its_reader() -> None:
    class Marked(Exception):
        pass

    kept: list[weakref.ref[Marked]] = []

    def function(x: Any) -> Any:
        error = Marked()
        kept.append(weakref.ref(error))
        raise error

    def use() -> None:
        reader = numbers(5).map(function)
        with pytest.raises(Marked):
            reader.read()

    use()
    wait_until(lambda: (gc.collect(), kept != [] and all(r() is None for r in kept))[1])


def test_another_holder_of_a_reader_whose_function_is_gone() -> None:
    """Another holder, such as C++, gets an error instead of waiting for ever."""
    reader = numbers(1000).map(double)
    other = Reader.in_variable(reader.scope, reader.name)
    assert value_of(reader.read()) == 0
    under = reader._upstream._upstream  # type: ignore[attr-defined]
    del reader
    gc.collect()
    with pytest.raises(pyfeed.errors.ProducerError, match="its function with it") as caught:
        values_in(other)
    assert caught.value.cause_type == ""
    del under


def test_two_maps_and_many_readers() -> None:
    top = numbers(200).map(double, 2).map(double, 3, ordered=False)
    found = together(*[lambda: values_in(top.current_pass())] * 4)
    assert sorted(itertools.chain(*found)) == [4 * i for i in range(200)]


def test_a_map_over_a_queue_waits_for_it() -> None:
    reader, queue = feed(2)
    mapped = reader.map(double)
    with raises(pyfeed.errors.Timeout, None):
        mapped.read(timeout=0)
    waiting = Background(mapped.read)
    queue.push(tuple_of(4))
    assert value_of(waiting.result()) == 8
    queue.close()
    assert values_in(mapped) == []


def test_ctrl_c_in_a_read_of_a_map() -> None:
    out, err = Process(
        """
        busy = threading.Event()
        def function(x):
            busy.set()
            threading.Event().wait()
        reader = pyfeed.random_data([(2,)]).map(function)
        def interrupt():
            busy.wait()
            when_waiting(1, lambda: os.kill(os.getpid(), signal.SIGINT))
        start(interrupt, daemon=True)
        try:
            reader.read()
        except KeyboardInterrupt:
            say("interrupted")
        """
    ).end()
    assert (out, err) == (["interrupted"], "")


@pytest.mark.parametrize("function", ["lambda x: x", "lambda x: threading.Event().wait()", "lambda x: 1 / 0"])
def test_the_end_while_maps_are_at_work(function: str) -> None:
    out, err = ends_within_a_second(
        f"""
        readers = [pyfeed.random_data([(2,)]).map({function}, 3) for _ in range(3)]
        def read():
            try:
                for _ in readers[0]:
                    pass
            except ZeroDivisionError:
                pass
        start(read, daemon=True)
        pyfeed.random_data([(2,)]).map(lambda x: x, 2).read()
        say("ready")
        """
    )
    assert (out, err) == ([], "")


def test_a_thread_that_waits_for_ever_for_a_map() -> None:
    out, err = ends_within_a_second(
        """
        reader, queue = feed()
        mapped = reader.map(lambda x: x, 2).double_buffer()
        start(lambda: say("ended", list(mapped)))
        until_waiting(3)
        say("ready")
        """
    )
    assert (out, err) == (["ended []"], "")


def test_a_program_whose_readers_are_at_work_goes_on() -> None:
    """No thread uses a queue, but the tuples that the library's threads read count as progress."""
    out = run(
        """
        idle, queue = feed()
        start(idle.has_next, daemon=True)
        reader = pyfeed.random_data([(100000,)], count=300).shuffle(150).map(lambda x: x).batch(10)
        def read():
            threading.main_thread().join()
            say(sum(1 for _ in reader), queue.stats()["shut_down"])
        start(read)
        """
    )
    assert out == ["30 False"]


# ---- Random data ----


def test_random_data() -> None:
    reader = random_data([(3,), ()], ["float32", "uint8"], 2, 4, seed=5, count=10, names=["x", "y"])
    assert reader.slots == [Slot("x", "float32", (3,), 0), Slot("y", "uint8", (), 0)]
    first = list(reader)
    assert len(first) == 10
    for x, y in first:
        assert (x.shape, x.dtype, y.shape, y.dtype) == ((3,), np.float32, (), np.uint8)
        assert 2 <= x.min() <= x.max() < 4
        assert y in (2, 3, 4)
    reader.reset()
    for (x, y), (a, b) in zip(reader, first, strict=True):
        same(x, a)
        same(y, b)
    other = random_data([(3,)], ["float32"], 2, 4, seed=6).read()[0]
    assert other.tolist() != first[0][0].tolist()


def test_random_data_without_end() -> None:
    assert len(list(itertools.islice(random_data([()]), 1000))) == 1000
    assert list(random_data([()], count=0)) == []


def test_random_data_that_cannot_be() -> None:
    with raises(pyfeed.errors.ShapeError, "slot 0: dimension 0: expected a size, found -1", slot=0):
        random_data([(-1,)])
    with raises(pyfeed.errors.SlotCountError, "dtypes: expected 1, one for each slot, found 2"):
        random_data([(1,)], ["int8", "int8"])
    with pytest.raises(pyfeed.errors.InvalidArgument, match="low, high: expected a range within -128 to 127"):
        random_data([(1,)], ["int8"], 0, 128)
    with pytest.raises(pyfeed.errors.InvalidArgument, match="low: expected a finite number, found -inf"):
        random_data([(1,)], low=float("-inf"))
    with raises(pyfeed.errors.InvalidArgument, "count: expected at least 0, found -2"):
        random_data([(1,)], count=-2)


# ---- Statistics ----


def test_stats() -> None:
    reader = numbers(10).batch(4)
    list(reader)
    stats = reader.stats()
    (below,) = stats.pop("below")
    assert stats.pop("waited_seconds") >= 0
    assert stats == {
        "reader": "batch",
        "tuples": 3,
        "bytes": 160,
        "passes": 1,
        "pass_id": 0,
        "slots": [Slot("", "float64", (-1, 2), 0)],
        "details": {"batch_size": 4, "drop_last": False},
    }
    assert (below["reader"], below["tuples"], below["bytes"], below["below"]) == ("py_array_reader", 10, 160, [])
    reader.reset()
    assert reader.stats()["passes"] == 2
    assert reader.pass_id == 0


def test_a_whole_chain(tmp_path: Any) -> None:
    for i in range(4):
        np.save(tmp_path / f"{i}.npy", np.arange(10 * i, 10 * i + 10))
    chain = (
        open_files(tmp_path, scope=Scope())
        .shard(0, 2)
        .shuffle(8, seed=1)
        .map(lambda x: 2 * x, 2)
        .batch(5)
        .multi_pass(2)
        .double_buffer()
    )
    found = [x.tolist() for (x,) in chain]
    assert [len(x) for x in found] == [5] * 8
    flat = sorted(itertools.chain(*found[:4]))
    assert flat == sorted(itertools.chain(*found[4:]))
    assert len(set(flat)) == 20
    kinds = []
    stats = chain.stats()
    while True:
        kinds.append(stats["reader"])
        if not stats["below"]:
            break
        (stats,) = stats["below"]
    assert kinds == ["double_buffer", "multi_pass", "batch", "map", "shuffle", "shard", "open_files"]


@pytest.mark.parametrize("bad", [0, -1, 2**64, "3", 2.0, None])
@pytest.mark.parametrize("call", ["shuffle", "batch", "map"])
def test_numbers_that_are_none(call: str, bad: Any) -> None:
    reader = numbers(1)
    calls: dict[str, Callable[[], Any]] = {
        "shuffle": lambda: reader.shuffle(bad),
        "batch": lambda: reader.batch(bad),
        "map": lambda: reader.map(double, bad),
    }
    with pytest.raises((TypeError, OverflowError, ValueError)):
        calls[call]()
