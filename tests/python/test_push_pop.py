"""Pushed arrays are popped unchanged: every dtype, every layout, every kind of array."""

from __future__ import annotations

import array
import ctypes
import gc
import warnings
import weakref
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import pyfeed
from pyfeed import PyArrayFeedQueue, Scope, py_array_reader

from .support import DTYPES, Array, DLPackArray, feed, raises, same


def through(given: Any, rank: int, **options: Any) -> Any:
    """Push an array and pop it again."""
    _, queue = feed(1, [(-1,) * rank])
    queue.push((given,), **options)
    (found,) = queue.pop()
    return found


def some(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Return random bits, which include NaNs and denormals."""
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    size = np.dtype(dtype).itemsize
    return random.integers(0, 256, (*shape, size), dtype=np.uint8).view(dtype).reshape(shape)


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_carried_bit_by_bit(dtype: str, copy: bool) -> None:
    given = some(dtype, (5, 7))
    same(through(given, 2, copy=copy), given)


@pytest.mark.parametrize("name", ["longlong", "ulonglong", "intc", "uintc", "long", "ulong"])
def test_c_types_are_their_sized_equals(name: str) -> None:
    given = np.arange(6, dtype=name)
    found = through(given, 1)
    assert found.dtype == given.dtype
    np.testing.assert_array_equal(found, given)


@pytest.mark.parametrize("copy", [True, False])
def test_bfloat16_of_ml_dtypes(copy: bool) -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    given = np.arange(-300, 300, dtype=np.float32).astype(bfloat16).reshape(30, 20)
    same(through(given, 2, copy=copy), given)
    same(through(given.T, 2), np.ascontiguousarray(given.T))


@pytest.mark.parametrize("declared", ["bfloat16", "V2", None])
def test_bfloat16_as_two_bytes(declared: str | None) -> None:
    given = np.arange(600, dtype=np.uint16).view("V2")
    _, queue = feed(1, [(-1,)], dtypes=[declared])
    queue.push((given,))
    (found,) = queue.pop()
    assert found.dtype.itemsize == 2
    assert found.tobytes() == given.tobytes()
    with raises(pyfeed.errors.DTypeError, "slot 0: dtype: expected bfloat16, found float16", slot=0):
        queue.push((np.zeros(2, np.float16),))


def test_popped_arrays_go_back_in() -> None:
    bfloat16 = np.arange(8, dtype=np.uint16).view("V2")
    for given in [np.arange(8.0), bfloat16]:
        for copy in (True, False):
            first = through(given, 1)
            second = through(first, 1, copy=copy)
            assert second.tobytes() == given.tobytes()


@pytest.mark.parametrize("copy", [True, False])
def test_no_dimension(copy: bool) -> None:
    for given in [np.array(7.5), np.array(True), np.array(1 + 2j)]:
        same(through(given, 0, copy=copy), given)
    scalar = np.float32(3)  # read through the buffer protocol
    assert through(scalar, 0).item() == 3.0


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (0, 0), (2, 0, 3)])
def test_no_elements(shape: tuple[int, ...], copy: bool) -> None:
    given = np.empty(shape, np.float32)
    same(through(given, len(shape), copy=copy), given)


def test_eight_dimensions_one_of_each_size() -> None:
    given = some("int16", (1, 2, 1, 3, 2, 1, 2, 2))
    same(through(given, 8), given)
    same(through(given.T, 8), np.ascontiguousarray(given.T))


LAYOUTS: dict[str, Any] = {
    "transposed": lambda a: a.T,
    "axes swapped": lambda a: a.swapaxes(1, 2),
    "reversed": lambda a: a[::-1],
    "reversed throughout": lambda a: a[::-1, ::-1, ::-1],
    "every other": lambda a: a[::2, 1::2, ::3],
    "a column": lambda a: a[:, :, 1:2],
    "one row again and again": lambda a: np.broadcast_to(a[:1], (9, *a.shape[1:])),
    "one element again and again": lambda a: np.broadcast_to(a[0, 0, 0], (3, 4, 5)),
    "Fortran": lambda a: np.asfortranarray(a),
    "overlapping": lambda a: np.lib.stride_tricks.sliding_window_view(a[:, :, 0], 2, axis=1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["bool", "float16", "int32", "float64", "complex128"])
def test_strided_arrays_are_gathered(dtype: str, layout: str) -> None:
    given = LAYOUTS[layout](some(dtype, (6, 7, 8)))
    same(through(given, 3), np.ascontiguousarray(given))


@pytest.mark.parametrize("copy", [True, False])
def test_unaligned_memory(copy: bool) -> None:
    memory = bytearray(8 * 100 + 1)
    given = np.frombuffer(memory, np.uint8)[1:].view(np.float64)
    given[:] = np.arange(100)
    assert not given.flags.aligned
    found = through(given, 1, copy=copy)
    same(found, given)
    assert found.flags.aligned == copy
    assert (found + 1).sum() == 5050


@pytest.mark.parametrize("copy", [True, False])
def test_arrays_larger_than_any_cache(copy: bool) -> None:
    given = some("uint8", (48 << 20,))
    same(through(given, 1, copy=copy), given)
    if copy:
        given = given.reshape(6, 8 << 10, 1 << 10)[:, ::-1].transpose(1, 0, 2)
        same(through(given, 3), np.ascontiguousarray(given))


@pytest.mark.parametrize("size", [0, 1, 31 << 10, (32 << 10) - 1, 32 << 10, (32 << 10) + 1, 64 << 10, (64 << 10) + 1])
def test_sizes_round_the_limits_of_each_way_to_copy(size: int) -> None:
    given = some("uint8", (size,))
    same(through(given, 1), given)
    twice = some("uint8", (size, 2))[:, 0]
    same(through(twice, 1), np.ascontiguousarray(twice))


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(
    given=hnp.arrays(
        dtype=st.sampled_from([np.dtype(d) for d in DTYPES]),
        shape=hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=5),
        elements={"allow_nan": False},
    ),
    data=st.data(),
)
def test_any_view_of_any_array(given: Array, data: st.DataObject) -> None:
    if given.ndim > 0:
        given = given[data.draw(hnp.basic_indices(given.shape, allow_newaxis=True, max_dims=8))]
    if isinstance(given, np.ndarray) and given.ndim > 1:
        given = given.transpose(data.draw(st.permutations(range(given.ndim))))
    same(through(given, np.ndim(given)), np.asarray(given, order="C"))


def test_many_slots() -> None:
    for number in (1, 8, 9, 40):
        _, queue = feed(1, [(-1,)] * number)
        given = [np.full(3, i) for i in range(number)]
        given[-1] = given[-1][::-1]
        queue.push(given)
        for found, expected in zip(queue.pop(), given, strict=True):
            np.testing.assert_array_equal(found, expected)


# ---- Kinds of arrays ----


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_bytes(make: Any) -> None:
    same(through(make(b"pyfeed"), 1), np.frombuffer(b"pyfeed", np.uint8))


@pytest.mark.parametrize("code", "bBhHiIlLqQfd")
def test_array_of_the_standard_library(code: str) -> None:
    given = array.array(code, range(10))
    same(through(given, 1), np.array(given))


def test_memoryview_of_many_dimensions() -> None:
    given = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    same(through(given.data, 3), given)
    strided = given.transpose(2, 0, 1)
    same(through(strided.data, 3), np.ascontiguousarray(strided))


def test_ctypes_arrays() -> None:
    same(through((ctypes.c_double * 3)(1, 2, 3), 1), np.array([1.0, 2.0, 3.0]))
    same(through(((ctypes.c_int16 * 2) * 3)(), 2), np.zeros((3, 2), np.int16))


class ArrayInterface:
    def __init__(self, array: Array) -> None:
        self.array = array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.array.__array_interface__


class ArrayStruct:
    def __init__(self, array: Array) -> None:
        self.array = array

    @property
    def __array_struct__(self) -> Any:
        return self.array.__array_struct__


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("wrap", [ArrayInterface, ArrayStruct])
def test_array_interface(wrap: Any, copy: bool) -> None:
    given = some("float32", (3, 4))
    same(through(wrap(given), 2, copy=copy), given)
    if copy:
        same(through(wrap(given[::-1].T), 2), np.ascontiguousarray(given[::-1].T))


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack(dtype: str, copy: bool) -> None:
    producer = DLPackArray(some(dtype, (3, 4)))
    found = through(producer, 2, copy=copy)
    same(found, producer.array)
    assert producer.exported == 1
    assert producer.deleted == (1 if copy else 0)
    assert found.flags.writeable == copy
    del found
    assert producer.deleted == 1


def test_dlpack_of_bfloat16() -> None:
    given = np.arange(12, dtype=np.uint16).reshape(3, 4)
    found = through(DLPackArray(given, code=4), 2)
    assert found.dtype.itemsize == 2
    assert found.dtype.kind == "V"
    assert found.tobytes() == given.tobytes()


def test_dlpack_strides_and_offsets() -> None:
    given = some("int32", (4, 6))
    for view in [given.T, given[::-1, ::2], given[1:2], given[:0]]:
        same(through(DLPackArray(view), 2), np.ascontiguousarray(view))
    same(through(DLPackArray(given, strides=False), 2), given)
    same(through(DLPackArray(given[1], strides=False, offset=given.strides[0]), 1), given[1])
    same(through(DLPackArray(np.array(5.0)), 0), np.array(5.0))


def test_dlpack_refused_gives_back_too() -> None:
    for producer, kind in [
        (DLPackArray(np.zeros(3), device=2), pyfeed.errors.UnsupportedError),
        (DLPackArray(np.zeros(3), lanes=2), pyfeed.errors.DTypeError),
        (DLPackArray(np.zeros(3), code=7), pyfeed.errors.DTypeError),
        (DLPackArray(np.zeros((3, 3))), pyfeed.errors.ShapeError),
        (DLPackArray(np.zeros(1), shape=[1] * 9), pyfeed.errors.ShapeError),
        (DLPackArray(np.zeros(1), shape=[-1]), pyfeed.errors.ShapeError),
        (DLPackArray(np.zeros(1), shape=[1 << 62], strides=False), pyfeed.errors.ShapeError),
    ]:
        for copy in (True, False):
            with pytest.raises(kind):
                through(producer, 1, copy=copy)
        assert producer.deleted == producer.exported == 2


def test_one_dlpack_capsule_is_taken_once() -> None:
    producer = DLPackArray(np.arange(3.0))
    capsule = producer.__dlpack__()

    class Same:
        def __dlpack__(self) -> object:
            return capsule

    _, queue = feed(1, [(-1,), (-1,)])
    with pytest.raises(ValueError, match="PyCapsule_GetPointer called with incorrect name"):
        queue.push((Same(), Same()))
    assert producer.deleted == 1


def test_numpy_reads_what_comes_out_by_dlpack() -> None:
    given = some("float32", (4, 5))
    found = through(given, 2)
    other = np.from_dlpack(found)
    assert other.ctypes.data == found.ctypes.data
    del found
    gc.collect()
    same(np.array(other), given)


def test_subclasses_of_ndarray_are_their_data() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        matrix = np.matrix([[1, 2], [3, 4]])
    found = through(matrix, 2)
    same(found, np.array([[1, 2], [3, 4]]))
    masked = np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False])
    same(through(masked, 1), masked.data)

    class Named(np.ndarray):
        def __array_finalize__(self, obj: Any) -> None:
            self.name = getattr(obj, "name", "none")

    named = np.arange(4).view(Named)
    named.name = "some"
    same(through(named, 1), np.arange(4))
    record = np.rec.array([(1.0,), (2.0,)], dtype=[("x", "f8")])
    same(through(record.x, 1), np.array([1.0, 2.0]))


def test_read_only_arrays_go_in() -> None:
    given = np.arange(10.0)
    given.flags.writeable = False
    same(through(given, 1), given)
    found = through(given, 1, copy=False)
    same(found, given)
    del found
    assert not given.flags.writeable


def test_an_instance_may_be_a_list() -> None:
    _, queue = feed(2, [(2,), ()])
    queue.push([np.zeros(2), np.array(1)])
    queue.push((np.zeros(2), np.array(1)))
    assert queue.size() == 2


# ---- Memory ----


def test_arrays_outlive_queue_and_reader() -> None:
    reader, queue = feed(4, [(-1, 3)], dtypes=["float64"])
    given = some("float64", (5, 3))
    queue.push((given,))
    queue.push((given,), copy=False)
    with queue.reserve(5) as (slot,):
        slot[:] = given
    arrays = [a for _ in range(3) for a in reader.read()]
    arrays.append(slot)
    queue.close()
    del reader, queue
    gc.collect()
    for found in arrays:
        same(found, given)


def test_each_array_keeps_all_slots_of_its_tuple_and_nothing_else() -> None:
    _, queue = feed(4, [(-1,), (-1,)])
    before = pyfeed.diagnostics.memory_stats()
    queue.push((np.zeros(1000), np.ones(1000)))
    x, y = queue.pop()
    assert pyfeed.diagnostics.memory_stats()["tuples_on_loan"] == before["tuples_on_loan"] + 1
    view = y[10:20]
    del x, y
    assert pyfeed.diagnostics.memory_stats()["tuples_on_loan"] == before["tuples_on_loan"] + 1
    np.testing.assert_array_equal(view, np.ones(10))
    del view
    assert pyfeed.diagnostics.memory_stats()["tuples_on_loan"] == before["tuples_on_loan"]
    assert pyfeed.diagnostics.memory_stats()["live_queue_bytes"] == before["live_queue_bytes"]


def test_arrays_are_aligned_to_cache_lines() -> None:
    _, queue = feed(1, [(-1,), (-1,), ()])
    queue.push((np.zeros(3, np.uint8), np.zeros(3), np.array(0.0)))
    for found in queue.pop():
        assert found.ctypes.data % 64 == 0
        assert found.flags.c_contiguous
        assert found.flags.aligned


def test_popped_arrays_are_the_consumers_to_write() -> None:
    given = np.arange(4.0)
    found = through(given, 1)
    assert found.flags.writeable
    assert not found.flags.owndata
    found += 1
    np.testing.assert_array_equal(given, np.arange(4.0))
    with pytest.raises(ValueError, match="does not own its data"):
        found.resize(10, refcheck=False)


def test_memory_is_used_again() -> None:
    _, queue = feed(1, [(-1,)])
    places = set()
    for i in range(20):
        queue.push((np.full(1000, i),))
        (found,) = queue.pop()
        assert found[0] == found[-1] == i
        places.add(found.ctypes.data)
        del found
    assert len(places) <= 2
    idle = pyfeed.diagnostics.memory_stats()["idle_bytes"]
    assert idle > 0
    del queue, _
    gc.collect()
    assert pyfeed.diagnostics.memory_stats()["idle_bytes"] < idle


def test_the_producers_array_is_its_own_after_a_copied_push() -> None:
    given = np.arange(4.0)
    reference = weakref.ref(given)
    _, queue = feed(1, [(-1,)])
    queue.push((given,))
    given[:] = 0
    np.testing.assert_array_equal(queue.pop()[0], np.arange(4.0))
    del given
    assert reference() is None


def test_thousands_of_queues_leave_nothing() -> None:
    before = pyfeed.diagnostics.memory_stats()
    for i in range(3000):
        reader, queue = py_array_reader(2, [(-1,)], scope=Scope() if i % 2 else None)
        queue.push((np.zeros(100),))
        if i % 3 == 0:
            kept = reader.read()
        if i % 5 == 0:
            queue.close()
    del reader, queue, kept
    assert pyfeed.diagnostics.memory_stats() == before


def test_ends_come_in_any_order() -> None:
    def parts() -> dict[str, Any]:
        reader, queue = feed(4, [(-1,)])
        lent = np.zeros(10)
        queue.push((np.zeros(10),))
        queue.push((lent,), copy=False)
        reservation = queue.reserve(10)
        reservation.__enter__()
        batch = reader.batch(2)
        return {
            "reader": reader,
            "queue": queue,
            "lent": lent,
            "reservation": reservation,
            "batch": batch,
            "popped": queue.pop(),
        }

    random = np.random.default_rng(0)
    for _ in range(50):
        alive = parts()
        for name in random.permutation(sorted(alive)):
            del alive[name]
        gc.collect()


def test_the_queue_knows_its_state() -> None:
    _, queue = feed(2, bytes_limit=1000)
    assert (queue.size(), queue.capacity(), queue.is_empty(), queue.is_full()) == (0, 2, True, False)
    queue.push((np.zeros(2),))
    assert (queue.size(), queue.is_empty(), queue.is_full()) == (1, False, False)
    assert repr(queue) == "<PyArrayFeedQueue 1/2 tuples, pass 0>"
    queue.push((np.zeros(2),))
    assert queue.is_full()
    queue.pop()
    queue.close()
    assert repr(queue) == "<PyArrayFeedQueue 1/2 tuples, pass 0, closed>"
    stats = queue.stats()
    waited = {name: stats.pop(name) for name in ("producers_waited", "consumers_waited")}  # type: ignore[misc]
    assert waited == {"producers_waited": 0.0, "consumers_waited": 0.0}
    assert stats == {
        "size": 1,
        "capacity": 2,
        "reserved": 0,
        "bytes": 16,
        "bytes_limit": 1000,
        "pass_id": 0,
        "closed": True,
        "failed": False,
        "shut_down": False,
        "restartable": False,
        "waiting_producers": 0,
        "waiting_consumers": 0,
        "pushed": 2,
        "popped": 1,
        "dropped": 0,
        "pushed_bytes": 32,
    }
    assert isinstance(queue, PyArrayFeedQueue)
