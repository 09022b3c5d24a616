"""Readers: iteration, has_next, timeouts, batches."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import pyfeed
from pyfeed import LoDTensor, PyArrayFeedQueue, Reader

from .support import (
    Background,
    feed,
    raises,
    same,
    together,
    tuple_of,
    value_of,
    values_in,
    wait_for_consumers,
)


def filled(number: int, *, capacity: int | None = None, close: bool = True) -> tuple[Reader, PyArrayFeedQueue]:
    reader, queue = feed(capacity or max(number, 1))
    for i in range(number):
        queue.push(tuple_of(i))
    if close:
        queue.close()
    return reader, queue


def test_iteration_ends_with_the_pass() -> None:
    reader, _ = filled(5)
    assert values_in(reader) == [0, 1, 2, 3, 4]
    assert values_in(reader.current_pass()) == []
    with pytest.raises(StopIteration):
        next(reader)
    with raises(pyfeed.errors.EndOfData, "the end of the data: this pass has no more tuples"):
        reader.read()
    assert not reader.has_next()


def test_iteration_goes_on_where_it_was_left() -> None:
    reader, _ = filled(6)
    assert list(itertools.islice((value_of(x) for x in reader), 2)) == [0, 1]
    assert value_of(next(reader)) == 2
    assert value_of(reader.read()) == 3
    assert values_in(reader.current_pass()) == [4, 5]


def test_a_new_pass_of_the_queue_is_a_new_pass_of_its_reader() -> None:
    reader, queue = filled(2)
    assert values_in(reader) == [0, 1]
    queue.reopen()
    queue.push(tuple_of(7))
    queue.close()
    assert values_in(reader) == [7]


def test_two_readers_of_one_queue_share_its_tuples() -> None:
    reader, queue = filled(6)
    reader.scope.create_py_array_reader("second", _name_of(queue, reader))
    second = Reader.in_variable(reader.scope, "second")
    assert [value_of(next(r)) for r in (reader, second, second, reader)] == [0, 1, 2, 3]
    assert values_in(second) == [4, 5]
    assert values_in(reader) == []


def _name_of(_: PyArrayFeedQueue, reader: Reader) -> str:
    return reader.name.removesuffix("_reader")


# ---- has_next ----


def test_has_next_takes_nothing_away() -> None:
    reader, queue = filled(3)
    for i in range(3):
        assert reader.has_next()
        assert reader.has_next(timeout=0)
        assert value_of(reader.read(timeout=0)) == i
    assert not reader.has_next()
    assert queue.stats()["popped"] == 3


def test_has_next_waits_for_an_answer() -> None:
    reader, queue = feed()
    asking = Background(reader.has_next)
    wait_for_consumers(queue)
    queue.push(tuple_of(1))
    assert asking.result()
    reader.read()
    asking = Background(reader.has_next)
    wait_for_consumers(queue)
    queue.close()
    assert not asking.result()


def test_a_true_has_next_is_true_for_the_next_read_whoever_makes_it() -> None:
    reader, _ = filled(1)
    assert Background(reader.has_next).result()
    assert reader.has_next()
    assert value_of(Background(lambda: reader.read(timeout=0)).result()) == 0


def test_threads_that_ask_and_read_one_after_another() -> None:
    """has_next is true exactly once for each tuple, although the threads take turns to ask and read."""
    reader, queue = feed(4)
    turn = threading.Lock()
    read: list[Any] = []

    def ask_and_read() -> None:
        while True:
            with turn:
                if not reader.has_next():
                    return
                read.append(value_of(reader.read(timeout=0)))

    readers = [Background(ask_and_read) for _ in range(3)]
    for i in range(300):
        queue.push(tuple_of(i))
    queue.close()
    for r in readers:
        r.result()
    assert read == list(range(300))


def test_has_next_tells_of_a_failure() -> None:
    reader, queue = filled(1, close=False)
    queue.fail(KeyError("why"))
    assert reader.has_next()
    reader.read()
    for _ in range(3):
        with pytest.raises(KeyError, match="why"):
            reader.has_next()
    with pytest.raises(KeyError, match="why"):
        reader.read()


# ---- Timeouts ----


@pytest.mark.parametrize("what", ["reader", "batch", "batch of batches"])
def test_nothing_is_lost_by_a_timeout(what: str) -> None:
    source, queue = feed(100)
    reader, size = source, 1
    if what != "reader":
        reader, size = reader.batch(3), 3
    if what == "batch of batches":
        reader, size = reader.batch(2), 6
    number = 60
    found: list[Any] = []

    def consume() -> None:
        ask = False
        while True:
            try:
                if ask := not ask and not reader.has_next(timeout=0.0002):
                    return
                found.extend(np.ravel(reader.read(timeout=0.0002)[0])[::2])
            except pyfeed.errors.Timeout:
                pass
            except pyfeed.errors.EndOfData:
                return

    consumer = Background(consume)
    for i in range(number):
        wait_for_consumers(queue)
        queue.push(tuple_of(i))
    queue.close()
    consumer.result()
    assert size * (number // size) == number
    assert found == list(range(number))


def test_timeouts_in_the_middle_of_a_batch_keep_what_is_there() -> None:
    reader, queue = feed(10)
    batch = reader.batch(4)
    for i in range(4):
        with raises(pyfeed.errors.Timeout, None):
            batch.read(timeout=0)
        with raises(pyfeed.errors.Timeout, None):
            batch.has_next(timeout=0.001)
        queue.push(tuple_of(i))
    assert batch.read(timeout=0)[0].tolist() == [[i, i] for i in range(4)]


# ---- Batches ----


def test_batches_stack() -> None:
    reader, queue = feed(4, [(2, 3), ()])
    images = np.arange(24.0).reshape(4, 2, 3)
    for i in range(4):
        queue.push((images[i], np.array(i, np.int8)))
    image, label = reader.batch(4).read()
    same(image, images)
    same(label, np.arange(4, dtype=np.int8))
    assert image.flags.writeable


def test_batches_concatenate() -> None:
    reader, queue = feed(4, [(-1, 3), (-1,), (2,)])
    for rows in (2, 0, 3, 1):
        queue.push((np.full((rows, 3), rows), np.full(rows, rows), np.full(2, rows)))
    x, y, z = reader.batch(4, ragged=True).read()
    assert x.tolist() == [[2] * 3] * 2 + [[3] * 3] * 3 + [[1] * 3]
    assert y.tolist() == [2, 2, 3, 3, 3, 1]
    assert z.tolist() == [[2, 2], [0, 0], [3, 3], [1, 1]]


def test_a_batch_refuses_slots_of_different_numbers_of_rows() -> None:
    message = "slot 1: tuple 1 of a batch: expected 3 rows, as slot 0 adds, found 1: "
    for op in ("batch", "create_batch_reader"):
        reader, queue = feed(4, [(-1, 3), ()])
        for rows in (1, 3):
            queue.push((np.full((rows, 3), rows), np.array(rows)))
        if op == "batch":
            batch, permitted = reader.batch(2), reader.batch(2, ragged=True)
        else:
            reader.scope.create_batch_reader("b", reader.name, 2)
            reader.scope.create_batch_reader("r", reader.name, 2, ragged=True)
            batch, permitted = (Reader.in_variable(reader.scope, name) for name in "br")
        with pytest.raises(pyfeed.errors.ShapeError) as caught:
            batch.read()
        assert str(caught.value).startswith(message)
        assert caught.value.slot == 1
        for rows in (1, 3):
            queue.push((np.full((rows, 3), rows), np.array(rows)))
        x, y = permitted.read()
        assert (x.shape, y.tolist()) == ((4, 3), [1, 3])
        assert permitted.stats()["details"]["ragged"]


def test_a_batch_counts_sequences() -> None:
    reader, queue = feed(4, [(-1, 3), ()], lod_levels=[1, 0])
    for rows in (1, 3):
        queue.push((LoDTensor(np.full((rows, 3), rows), [[0, rows]]), np.array(rows)))
    x, y = reader.batch(2).read()
    assert (x.lod[0].tolist(), y.tolist()) == ([0, 1, 4], [1, 3])
    queue.push((LoDTensor(np.full((2, 3), 0), [[0, 1, 2]]), np.array(0)))
    queue.close()
    with pytest.raises(
        pyfeed.errors.ShapeError, match="slot 1: tuple 0 of a batch: expected 2 rows, as slot 0 adds, found 1"
    ):
        reader.batch(2).read()


def test_batches_of_batches() -> None:
    reader, _ = filled(10)
    shapes = [x.shape for (x,) in reader.batch(2).batch(3)]
    assert shapes == [(6, 2), (4, 2)]
    reader, _ = filled(10)
    assert [x[:, 0].tolist() for (x,) in reader.batch(3, drop_last=True).batch(2)] == [[0, 1, 2, 3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize("length", [165, 160, 200, 159])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_last_batch(length: int, drop_last: bool) -> None:
    reader, _ = filled(length)
    found = [x[:, 0].tolist() for (x,) in reader.batch(32, drop_last)]
    whole = length // 32 * 32
    expected = [list(range(i, i + 32)) for i in range(0, whole, 32)]
    if not drop_last and whole < length:
        expected.append(list(range(whole, length)))
    assert found == expected


@pytest.mark.parametrize("length", [0, 1, 31])
def test_a_pass_shorter_than_a_batch(length: int) -> None:
    reader, _ = filled(length)
    assert [x[:, 0].tolist() for (x,) in reader.batch(32)] == ([list(range(length))] if length else [])
    reader, _ = filled(length)
    batch = reader.batch(32, drop_last=True)
    assert not batch.has_next()
    assert list(batch) == []


def test_a_generator_shorter_than_a_batch() -> None:
    reader = pyfeed.from_generator(lambda: (tuple_of(i) for i in range(3)), [(2,)], scope=pyfeed.Scope())
    batch = reader.batch(5)
    for _ in range(3):
        assert [x[:, 0].tolist() for (x,) in batch] == [[0, 1, 2]]
        batch.reset()


def test_batches_go_from_pass_to_pass() -> None:
    reader, queue = filled(3)
    batch = reader.batch(2)
    assert len(list(batch)) == 2
    assert list(batch.current_pass()) == []
    queue.reopen()
    for i in range(2):
        queue.push(tuple_of(10 + i))
    queue.close()
    assert values_in(batch) == [10]


def test_a_failure_in_the_middle_of_a_batch() -> None:
    """The tuples before the failure are delivered first; then every call gets the error."""
    reader, queue = filled(5, close=False)
    batch = reader.batch(3)
    queue.fail(KeyError("why"))
    assert batch.read()[0][:, 0].tolist() == [0, 1, 2]
    assert batch.has_next()
    assert batch.read()[0][:, 0].tolist() == [3, 4]
    for _ in range(3):
        with pytest.raises(KeyError, match="why"):
            batch.read()
        with pytest.raises(KeyError, match="why"):
            batch.has_next()


def test_a_failure_while_a_batch_is_waited_for() -> None:
    reader, queue = filled(2, capacity=10, close=False)
    batch = reader.batch(3, drop_last=True)
    reading = Background(batch.read)
    wait_for_consumers(queue)
    queue.fail(KeyError("why"))
    with pytest.raises(KeyError, match="why"):
        reading.result()


def test_tuples_that_do_not_go_together() -> None:
    reader, queue = feed(4, [(-1, -1)])
    queue.push((np.zeros((2, 3)),))
    queue.push((np.zeros((2, 4)),))
    queue.push((np.ones((1, 4)),))
    batch = reader.batch(2)
    message = "slot 0: tuple 1 of a batch: expected float64 [2 3] as in tuple 0, found float64 [2 4]"
    with raises(pyfeed.errors.ShapeError, message, slot=0):
        batch.read()
    queue.close()
    assert [x.shape for (x,) in batch] == [(1, 4)]


def test_batches_of_lent_tuples_are_copies() -> None:
    reader, queue = feed(2)
    given = [np.full(2, float(i)) for i in range(2)]
    for array in given:
        queue.push((array,), copy=False)
    (found,) = reader.batch(2).read()
    assert found.tolist() == [[0, 0], [1, 1]]
    assert all(a.flags.writeable for a in given)


def test_large_batches() -> None:
    reader, queue = feed(4, [(1 << 20,)])
    queue.produce(lambda worker: ((np.full(1 << 20, i, np.float32),) for i in range(8)))
    for first, (x,) in zip((0, 4), reader.batch(4), strict=True):
        assert x.shape == (4, 1 << 20)
        np.testing.assert_array_equal(x, np.arange(first, first + 4, dtype=np.float32)[:, None].repeat(1 << 20, 1))


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(
    rows=st.lists(st.integers(0, 4), max_size=12), size=st.integers(1, 5), drop_last=st.booleans(), ask=st.booleans()
)
def test_batches_of_anything(rows: list[int], size: int, drop_last: bool, ask: bool) -> None:
    reader, queue = feed(max(len(rows), 1), [(-1,), ()], dtypes=["int64", "int64"])
    for i, n in enumerate(rows):
        queue.push((np.full(n, i), np.array(i)))
    queue.close()
    batch = reader.batch(size, drop_last, ragged=True)
    groups = [list(range(i, min(i + size, len(rows)))) for i in range(0, len(rows), size)]
    if drop_last and groups and len(groups[-1]) < size:
        groups.pop()
    for group in groups:
        assert not ask or batch.has_next()
        values, number = batch.read()
        assert values.tolist() == list(itertools.chain(*([i] * rows[i] for i in group)))
        assert number.tolist() == group
    assert not batch.has_next()


@pytest.mark.parametrize("number_of_threads", [2, 4])
def test_many_threads_read_batches(number_of_threads: int) -> None:
    reader, queue = feed(8)
    batch = reader.batch(3)
    queue.produce(lambda worker: (tuple_of(i) for i in range(300)))
    parts = together(*[lambda: [x[:, 0].tolist() for (x,) in batch.current_pass()]] * number_of_threads)
    batches = sorted(itertools.chain(*parts))
    assert batches == [[i, i + 1, i + 2] for i in range(0, 300, 3)]
