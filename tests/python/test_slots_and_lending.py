"""The two push modes without a copy: lent arrays, and tuples written in place."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from functools import partial
from typing import Any

import numpy as np
import pytest
from pyfeed.diagnostics import memory_stats

import pyfeed

from .support import (
    Array,
    Background,
    DLPackArray,
    feed,
    raises,
    tuple_of,
    value_of,
    wait_for_producers,
    wait_until,
)

# ---- Lending ----


def test_the_consumer_sees_the_producers_memory() -> None:
    _, queue = feed()
    given = np.arange(2.0)
    queue.push((given,), copy=False)
    assert memory_stats()["live_lent_bytes"] == 16
    assert memory_stats()["live_queue_bytes"] == 0
    (found,) = queue.pop()
    assert found.ctypes.data == given.ctypes.data
    assert not found.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        found[:] = 0
    with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
        found.flags.writeable = True


def test_lent_arrays_are_read_only_until_the_consumer_is_done() -> None:
    _, queue = feed()
    given = np.arange(2.0)
    queue.push((given,), copy=False)
    with pytest.raises(ValueError, match="read-only"):
        given[:] = 0
    (found,) = queue.pop()
    view = found[1:]
    del found
    assert not given.flags.writeable
    del view
    assert given.flags.writeable
    given[:] = 5


def test_an_array_lent_twice_stays_locked_until_both_are_back() -> None:
    _, queue = feed(4, [(2,), (2,)])
    given = np.arange(2.0)
    queue.push((given, given), copy=False)
    queue.push((given, np.zeros(2)), copy=False)
    first, second = queue.pop(), queue.pop()
    del second
    assert not given.flags.writeable
    del first
    assert given.flags.writeable
    queue.push((given, given), copy=False)
    queue.pop()
    assert given.flags.writeable


def test_many_arrays_lent_at_once() -> None:
    """An array is read-only until all its lends have been returned, in any order. Read-only arrays stay read-only."""
    _, queue = feed(1000)
    given = [np.arange(2.0) for _ in range(300)]
    for array in given[::5]:
        array.flags.writeable = False
    order = [i for i in range(300) for _ in range(1 + i % 3)]
    for i in order:
        queue.push((given[i],), copy=False)
    out = {k: (i, queue.pop()) for k, i in enumerate(order)}
    lends = np.bincount(order)
    for n, k in enumerate(np.random.default_rng(3).permutation(len(order)).tolist()):
        i = out.pop(k)[0]
        lends[i] -= 1
        assert given[i].flags.writeable == (lends[i] == 0 and i % 5 != 0)
        if n % 50 == 0:
            found = [array.flags.writeable for array in given]
            assert found == [bool(lends[i] == 0 and i % 5 != 0) for i in range(300)]
    assert [array.flags.writeable for array in given] == [i % 5 != 0 for i in range(300)]


def test_arrays_that_cannot_be_locked_for_lack_of_memory_are_not_lent() -> None:
    exhaust = pytest.importorskip("_testcapi")
    failed, given = 0, [np.zeros(2) for _ in range(300)]
    _, queue = feed(len(given))
    for array in given:  # enough arrays for the table of locks to grow at least twice
        for spared in itertools.count():  # the number of allocations that succeed
            arrays = (array,)
            try:
                exhaust.set_nomemory(spared)
                queue.push(arrays, copy=False)
            except MemoryError:
                exhaust.remove_mem_hooks()
                failed += 1
                assert array.flags.writeable
            else:
                exhaust.remove_mem_hooks()
                break
        assert not array.flags.writeable
    assert failed > 0
    for array in given:
        queue.pop()
        assert array.flags.writeable


def test_lent_again_by_the_consumer() -> None:
    _, queue = feed()
    given = np.arange(2.0)
    queue.push((given,), copy=False)
    queue.push(queue.pop(), copy=False)
    queue.push(queue.pop(), copy=False)
    (found,) = queue.pop()
    assert found.ctypes.data == given.ctypes.data
    assert not given.flags.writeable
    del found
    assert given.flags.writeable


def test_popped_arrays_may_be_lent() -> None:
    _, queue = feed()
    queue.push(tuple_of(7))
    popped = queue.pop()
    queue.push(popped, copy=False)
    assert not popped[0].flags.writeable
    (found,) = queue.pop()
    assert found.ctypes.data == popped[0].ctypes.data
    del found
    assert popped[0].flags.writeable


@pytest.mark.parametrize("end", ["refused", "timeout", "closed", "shut down", "reopened", "dropped"])
def test_lent_arrays_come_back_however_it_ends(end: str) -> None:
    _, queue = feed(1)
    given = np.arange(2.0)
    reference = weakref.ref(given)
    if end == "refused":
        with pytest.raises(pyfeed.errors.ShapeError):
            queue.push((given[:1],), copy=False)
    elif end in ("timeout", "closed"):
        queue.push(tuple_of(0))
        if end == "closed":
            queue.close()
        with pytest.raises((pyfeed.errors.Timeout, pyfeed.errors.QueueClosed)):
            queue.push((given,), copy=False, timeout=0.01)
    else:
        queue.push((given,), copy=False)
        assert not given.flags.writeable
        if end == "shut down":
            queue.shutdown()
        elif end == "reopened":
            assert queue.reopen() == 1
        else:
            del queue, _
            gc.collect()
    wait_until(lambda: memory_stats()["live_lent_bytes"] == 0)
    assert given.flags.writeable
    del given
    assert reference() is None


def test_a_blocked_loan_is_locked_and_comes_back_when_the_queue_closes() -> None:
    _, queue = feed(1)
    queue.push(tuple_of(0))
    given = np.arange(2.0)
    push = Background(lambda: queue.push((given,), copy=False))
    wait_for_producers(queue)
    assert not given.flags.writeable
    queue.close()
    with raises(pyfeed.errors.QueueClosed, None):
        push.result()
    assert given.flags.writeable


def test_a_consumer_that_dies_on_another_thread() -> None:
    _, queue = feed()
    given = np.arange(2.0)
    queue.push((given,), copy=False)

    def consume() -> None:
        arrays = queue.pop()
        assert value_of(arrays) == 0
        raise KeyError("the consumer dies, its arrays with it")

    with pytest.raises(KeyError):
        Background(consume).result()
    gc.collect()
    wait_until(lambda: memory_stats()["live_lent_bytes"] == 0)
    assert given.flags.writeable


def test_threads_that_end_while_they_hold_tuples() -> None:
    _, queue = feed(4)
    keep = threading.local()
    arrays = [np.full(2, float(i)) for i in range(4)]

    def hold() -> None:
        keep.tuple = queue.pop()

    for array in arrays:
        queue.push((array,), copy=False)
    for thread in [Background(hold) for _ in range(4)]:
        thread.result()
    wait_until(lambda: all(a.flags.writeable for a in arrays))


def test_what_was_read_only_stays_so() -> None:
    _, queue = feed()
    given = np.arange(2.0)
    given.flags.writeable = False
    for _ in range(2):
        queue.push((given,), copy=False)
        queue.pop()
        assert not given.flags.writeable


def test_a_buffer_that_is_lent_cannot_be_resized() -> None:
    _, queue = feed(1, [(-1,)])
    given = bytearray(b"pyfeed")
    queue.push((given,), copy=False)
    with pytest.raises(BufferError):
        given.append(0)
    (found,) = queue.pop()
    assert bytes(found) == b"pyfeed"
    del found
    given.append(0)


def test_lent_views_keep_their_base() -> None:
    _, queue = feed(1, [(-1,)])
    base: Any = np.arange(10.0)
    reference = weakref.ref(base)
    queue.push((base[2:5],), copy=False)
    del base
    gc.collect()
    assert reference() is not None
    assert queue.pop()[0].tolist() == [2, 3, 4]
    assert reference() is None


def test_the_producers_objects_may_die_first() -> None:
    _, queue = feed(1, [(-1,)])
    producer = DLPackArray(np.arange(3.0))
    reference = weakref.ref(producer.array)
    queue.push((producer,), copy=False)
    (found,) = queue.pop()
    del producer
    gc.collect()
    assert found.tolist() == [0, 1, 2]
    del found
    gc.collect()
    assert reference() is None


def test_a_finalizer_that_pushes() -> None:
    """The finalizer of a lent array may do anything, in whichever thread drops the last reference."""
    _, queue = feed(4)
    done: list[str] = []

    class Array(np.ndarray):
        def __del__(self) -> None:
            try:
                queue.push(tuple_of(5), timeout=0)
            except pyfeed.errors.Error as error:
                done.append(type(error).__name__)
            else:
                done.append("pushed")

    queue.push((np.zeros(2).view(Array),), copy=False)
    queue.pop()
    assert done == ["pushed"]
    queue.push((np.zeros(2).view(Array),), copy=False)
    with pytest.raises(pyfeed.errors.ShapeError):
        queue.push((np.zeros(3).view(Array),), copy=False)
    queue.shutdown()
    gc.collect()
    wait_until(lambda: len(done) == 3)
    assert sorted(done) == ["QueueClosed", "pushed", "pushed"]


def test_many_threads_lend_the_same_array() -> None:
    _, queue = feed(8)
    given = np.arange(2.0)

    def produce() -> None:
        for _ in range(500):
            queue.push((given,), copy=False)

    def consume() -> int:
        n = 0
        while True:
            try:
                (found,) = queue.pop()
            except pyfeed.errors.EndOfData:
                return n
            assert found.ctypes.data == given.ctypes.data
            n += 1

    producers = [Background(produce) for _ in range(3)]
    consumers = [Background(consume) for _ in range(2)]
    for producer in producers:
        producer.result()
    queue.close()
    assert sum(c.result() for c in consumers) == 1500
    wait_until(lambda: memory_stats()["live_lent_bytes"] == 0)
    assert given.flags.writeable


# ---- Reservations ----


def test_a_reservation_is_written_in_place() -> None:
    _, queue = feed(2, [(-1, 3), (-1,)], dtypes=["float32", "int64"])
    with queue.reserve(4) as (x, y):
        assert isinstance(x, np.ndarray)
        assert (x.shape, x.dtype, y.shape, y.dtype) == ((4, 3), np.float32, (4,), np.int64)
        x[:] = 2
        y[:] = np.arange(4)
        place = x.ctypes.data
        assert queue.stats()["reserved"] == 1
        assert queue.stats()["bytes"] == 4 * 3 * 4 + 4 * 8
        assert queue.size() == 0
    assert queue.stats()["reserved"] == 0
    found_x, found_y = queue.pop()
    assert found_x.ctypes.data == place
    np.testing.assert_array_equal(found_x, np.full((4, 3), 2, np.float32))
    np.testing.assert_array_equal(found_y, np.arange(4))
    assert found_x.flags.writeable


def test_arrays_of_a_reservation_are_read_only_after_the_commit() -> None:
    _, queue = feed(dtypes=["float64"])
    with queue.reserve() as (x,):
        x[:] = 1
    with pytest.raises(ValueError, match="read-only"):
        x[:] = 2
    (found,) = queue.pop()
    assert found.tolist() == [1, 1]


def test_arrays_of_a_reservation_may_be_kept() -> None:
    reader, queue = feed(2, [(-1,)], dtypes=["float64"])
    with queue.reserve(1000) as (x,):
        x[:] = np.arange(1000)
    view = x[10:20]
    queue.pop()
    for _ in range(4):  # if the memory were free, these pushes would overwrite it
        queue.push((np.zeros(1000),))
        queue.pop()
    assert x.tolist() == list(range(1000))
    del x, queue, reader
    gc.collect()
    assert view.tolist() == list(range(10, 20))


def test_an_exception_drops_the_reservation() -> None:
    _, queue = feed(1, dtypes=["float64"])
    reservation = queue.reserve()
    (x,) = reservation.__enter__()
    x[:] = 1
    assert reservation.__exit__(KeyError, KeyError("why"), None) is False
    with pytest.raises(KeyError, match="why"), queue.reserve():
        raise KeyError("why")
    with pytest.raises(ValueError, match="read-only"):
        x[:] = 2
    stats = queue.stats()
    assert (stats["size"], stats["reserved"], stats["bytes"], stats["pushed"]) == (0, 0, 0, 0)
    queue.push(tuple_of(3), timeout=0)
    assert value_of(queue.pop()) == 3


def test_a_reservation_that_is_never_left() -> None:
    _, queue = feed(1, [(-1,)], dtypes=["float64"])
    (x,) = queue.reserve(3).__enter__()
    x[:] = 5
    assert queue.stats()["reserved"] == 0
    assert x.tolist() == [5, 5, 5]
    reservation = queue.reserve(3)
    reservation.__enter__()
    assert queue.stats()["reserved"] == 1
    assert queue.is_full()
    del reservation
    assert queue.stats()["reserved"] == 0


def test_a_reservation_that_is_never_entered() -> None:
    _, queue = feed(1, dtypes=["float64"])
    reservation = queue.reserve()
    assert reservation.__exit__(None, None, None) is False
    assert queue.stats()["reserved"] == 0
    with reservation as (x,):
        x[:] = 1
    assert reservation.__exit__(None, None, None) is False
    assert queue.size() == 1


def test_threads_that_leave_the_same_reservation() -> None:
    """One thread commits the reservation, and the others do nothing. The commit releases the GIL meanwhile."""
    _, queue = feed(1, [(512 << 10,)], dtypes=["uint8"])

    def leave(reservation: Any, start: threading.Barrier) -> Any:
        start.wait()
        return reservation.__exit__(None, None, None)

    for round_ in range(50):
        reservation = queue.reserve()
        (x,) = reservation.__enter__()
        x[:] = round_
        start = threading.Barrier(4)
        leaving = [Background(partial(leave, reservation, start)) for _ in range(4)]
        assert [each.result() for each in leaving] == [False] * 4
        (found,) = queue.pop(timeout=10)
        assert (found[0], found[-1], queue.size(), queue.stats()["reserved"]) == (round_, round_, 0, 0)


def test_a_generator_that_is_closed_within_a_reservation() -> None:
    _, queue = feed(1, dtypes=["float64"])

    def fill() -> Any:
        with queue.reserve() as (x,):
            x[:] = 1
            yield x

    generator = fill()
    next(generator)
    generator.close()
    assert (queue.size(), queue.stats()["reserved"]) == (0, 0)


def test_reservations_of_every_shape() -> None:
    _, queue = feed(4, [(-1, 2, -1), ()], dtypes=["int8", "float32"])
    with queue.reserve(shapes=[(3, 2, 5), ()]) as (x, y):
        assert (x.shape, y.shape) == ((3, 2, 5), ())
        x[:] = 1
        y[...] = 4
    x, y = queue.pop()
    assert int(x.sum()) == 30
    assert float(y) == 4
    with queue.reserve(shapes=[[0, 2, 5], []]) as (x, y):
        assert x.shape == (0, 2, 5)
    assert queue.pop()[0].shape == (0, 2, 5)


@pytest.mark.parametrize("name", ["bfloat16", "V2"])
def test_reservations_of_bfloat16(name: str) -> None:
    _, queue = feed(1, dtypes=[name])
    with queue.reserve() as (x,):
        x.view(np.uint16)[:] = [0x3F80, 0x4000]
    (found,) = queue.pop()
    assert found.view(np.uint16).tolist() == [0x3F80, 0x4000]


def test_a_reservation_of_one_tuple_in_many_threads() -> None:
    _, queue = feed(1, [(-1,)], dtypes=["float64"])
    with queue.reserve(1000) as (x,):
        parts = [Background(lambda i=i: x[i * 100 : (i + 1) * 100].fill(i)) for i in range(10)]  # type: ignore[misc]
        for part in parts:
            part.result()
    np.testing.assert_array_equal(queue.pop()[0], np.repeat(np.arange(10.0), 100))


def test_reservations_are_queued_in_the_order_of_their_commits() -> None:
    _, queue = feed(3, dtypes=["float64"])
    first, second = queue.reserve(), queue.reserve()
    (x,) = first.__enter__()
    (y,) = second.__enter__()
    x[:], y[:] = 1, 2
    queue.push(tuple_of(3))
    assert queue.is_full()
    second.__exit__(None, None, None)
    first.__exit__(None, None, None)
    assert [value_of(queue.pop()) for _ in range(3)] == [3, 2, 1]


def test_a_full_queue_keeps_reservations_waiting() -> None:
    _, queue = feed(1, dtypes=["float64"])
    queue.push(tuple_of(1))

    def fill() -> None:
        with queue.reserve() as (x,):
            x[:] = 2

    filling = Background(fill)
    wait_for_producers(queue)
    assert value_of(queue.pop()) == 1
    filling.result()
    assert value_of(queue.pop()) == 2


def test_a_reservation_is_one_threads() -> None:
    _, queue = feed(1, dtypes=["float64"])
    queue.push(tuple_of(1))
    reservation = queue.reserve()
    entering = Background(reservation.__enter__)
    wait_for_producers(queue)
    with raises(pyfeed.errors.StateError, "reservation: it was entered already: make a new one with queue.reserve()"):
        reservation.__enter__()
    queue.pop()
    (x,) = entering.result()
    x[:] = 2
    reservation.__exit__(None, None, None)
    assert value_of(queue.pop()) == 2
    assert queue.stats()["pushed"] == 2


def test_a_reservation_that_timed_out_may_be_entered_again() -> None:
    """Its first wait, beside that of another thread, leaves no waiter behind."""
    _, queue = feed(1, dtypes=["float64"])
    queue.push(tuple_of(1))
    reservation = queue.reserve(timeout=2)
    first = Background(reservation.__enter__)
    wait_for_producers(queue)
    second = Background(lambda: queue.push(tuple_of(3), timeout=3))
    wait_for_producers(queue, 2)
    for blocked in (first, second):
        with raises(pyfeed.errors.Timeout, None):
            blocked.result()
    queue.pop()
    with reservation as (x,):
        x[:] = 2
    assert value_of(queue.pop()) == 2


def test_a_reservation_made_on_one_thread_and_entered_on_another() -> None:
    _, queue = feed(1, dtypes=["float64"])
    reservation = Background(queue.reserve).result()
    with reservation as (x,):
        x[:] = 1
    assert value_of(queue.pop()) == 1


def test_bytes_limit_counts_tuples_being_written() -> None:
    _, queue = feed(10, [(-1,)], dtypes=["uint8"], bytes_limit=100)
    with queue.reserve(60):
        with raises(pyfeed.errors.Timeout, None):
            queue.push((np.zeros(41, np.uint8),), timeout=0)
        queue.push((np.zeros(40, np.uint8),), timeout=0)
    assert queue.stats()["bytes"] == 100
    assert not queue.is_full()
    queue.pop()
    queue.push((np.zeros(40, np.uint8),), timeout=0)


def test_a_large_tuple_is_not_kept_out_by_small_ones() -> None:
    _, queue = feed(100, [(-1,)], bytes_limit=100)

    def small() -> Array:
        return np.zeros(30, np.uint8)

    for _ in range(3):
        queue.push((small(),))
    large = Background(lambda: queue.push((np.ones(90, np.uint8),)))
    wait_for_producers(queue)
    late = Background(lambda: queue.push((small(),)))
    wait_for_producers(queue, 2)
    sizes = []
    for _ in range(5):
        sizes.append(queue.pop(timeout=10)[0].size)
        if len(sizes) < 3:
            wait_for_producers(queue, 2)  # the small tuple would fit, but must not overtake the large one
    large.result()
    late.result()
    assert sizes == [30, 30, 30, 90, 30]
