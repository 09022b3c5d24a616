"""Refused calls: the class of the error, its built-in class, slot and message. A refused push queues nothing."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pyfeed
from pyfeed import LoDTensor, PyArrayFeedQueue, PyArrayFeedQueueHolder, Scope, _native, py_array_reader

from .support import DLPackArray, feed, raises, tuple_of

X = np.zeros((4, 3), np.float32)
Y = np.zeros(4, np.int64)


class Push:
    """Pushes into a queue of (-1, 3) float32 and (-1,) int64, at most 10000 bytes."""

    def __init__(self) -> None:
        self.queue = feed(4, [(-1, 3), (-1,)], dtypes=["float32", "int64"], bytes_limit=10000)[1]

    def __call__(self, *arrays: Any, **options: Any) -> None:
        self.queue.push(arrays, **options)


@pytest.fixture
def push() -> Iterator[Push]:
    """Return a push into a new queue. All pushes of the test are refused, so the queue must be empty at the end."""
    push = Push()
    yield push
    stats = push.queue.stats()
    assert [stats["size"], stats["reserved"], stats["bytes"], stats["pushed"]] == [0, 0, 0, 0]
    del push.queue  # before the check for leaks


push_modes = pytest.mark.parametrize("copy", [True, False])


@push_modes
def test_wrong_rank(push: Push, copy: bool) -> None:
    message = "slot 0: shape: expected [-1 3], found [4]"
    with raises(pyfeed.errors.ShapeError, message, slot=0, also=ValueError):
        push(X[:, 0].copy(), Y, copy=copy)
    message = "slot 1: shape: expected [-1], found []"
    with raises(pyfeed.errors.ShapeError, message, slot=1, also=ValueError):
        push(X, np.array(1), copy=copy)


@push_modes
def test_wrong_dimension(push: Push, copy: bool) -> None:
    message = "slot 0: dimension 1: expected 3, found 5: dims [4 5] for [-1 3]"
    with raises(pyfeed.errors.ShapeError, message, slot=0, also=ValueError):
        push(np.zeros((4, 5), np.float32), Y, copy=copy)


@push_modes
def test_wrong_dtype(push: Push, copy: bool) -> None:
    with raises(pyfeed.errors.DTypeError, "slot 0: dtype: expected float32, found float64", slot=0, also=TypeError):
        push(X.astype(float), Y, copy=copy)
    with raises(pyfeed.errors.DTypeError, "slot 1: dtype: expected int64, found uint64", slot=1, also=TypeError):
        push(X, Y.astype("uint64"), copy=copy)


def test_a_dtype_that_the_first_tuple_settled() -> None:
    _, queue = feed(2, [(2,)])
    queue.push((np.zeros(2, np.int8),))
    with raises(pyfeed.errors.DTypeError, "slot 0: dtype: expected int8, found float64", slot=0, also=TypeError):
        queue.push((np.zeros(2),))


@push_modes
def test_wrong_byte_order(push: Push, copy: bool) -> None:
    message = "slot 0: byte order: expected native, found >f4: convert it with a.astype(a.dtype.newbyteorder('='))"
    with raises(pyfeed.errors.ByteOrderError, message, slot=0, also=TypeError):
        push(X.astype(">f4"), Y, copy=copy)
    assert issubclass(pyfeed.errors.ByteOrderError, pyfeed.errors.DTypeError)
    message = "slot 1: byte order: expected native, found >i4: convert it with a.astype(a.dtype.newbyteorder('='))"
    with raises(pyfeed.errors.ByteOrderError, message, slot=1):
        push(X, (ctypes.c_int32.__ctype_be__ * 4)(), copy=copy)


@push_modes
def test_wrong_number_of_slots(push: Push, copy: bool) -> None:
    with raises(pyfeed.errors.SlotCountError, "slots: expected 2, found 1", also=ValueError):
        push(X, copy=copy)
    with raises(pyfeed.errors.SlotCountError, "slots: expected 2, found 3", also=ValueError):
        push(X, Y, Y, copy=copy)
    with raises(pyfeed.errors.SlotCountError, "slots: expected 2, found 0", also=ValueError):
        push(copy=copy)


@push_modes
def test_unequal_batch_dimensions(push: Push, copy: bool) -> None:
    message = "slot 1: batch dimension: expected 4, as in slot 0, found 3"
    with raises(pyfeed.errors.ShapeError, message, slot=1, also=ValueError):
        push(X, Y[:3], copy=copy)


@push_modes
@pytest.mark.parametrize("thing", [[1, 2, 3], None, {"x": 1}, object(), {1, 2}, (1,), print, np])
def test_no_array(push: Push, copy: bool, thing: Any) -> None:
    message = (
        "slot 1: expected an array (NumPy, the buffer protocol, __array_interface__ or DLPack), a number, text or "
        f"bytes, found {type(thing)!r}{': convert it with np.array(x)' if isinstance(thing, (list, tuple)) else ''}"
    )
    with raises(pyfeed.errors.DTypeError, message, slot=1, also=TypeError):
        push(X, thing, copy=copy)


@pytest.mark.parametrize("dtype", ["O", "M8[s]", "m8[s]", "longdouble", "clongdouble", "S3", "U3", "V4", "f4,i4"])
def test_dtypes_that_are_not_carried(push: Push, dtype: str) -> None:
    given = np.zeros(4, dtype)
    message = f"slot 1: dtype: expected bool, an integer, float, bfloat16 or complex, found {given.dtype}"
    with raises(pyfeed.errors.DTypeError, message, slot=1, also=TypeError):
        push(X, given)


@pytest.mark.parametrize("thing", [X, None, "text", {"x": X}, iter(()), {X.tobytes()}])
def test_what_is_pushed_is_a_tuple_or_list(push: Push, thing: Any) -> None:
    _, queue = feed()
    message = f"arrays: expected a tuple or list of arrays, one for each slot, found {type(thing)!r}"
    if thing is X:
        message += ": for one slot, give (x,)"
    elif isinstance(thing, dict):
        message += ": for dicts, give the slots names"
    with raises(pyfeed.errors.DTypeError, message, also=TypeError):
        queue.push(thing)


def test_nine_dimensions(push: Push) -> None:
    for rank in (9, 20, 32):
        message = f"slot 0: rank: expected at most 8 dimensions, found {rank}"
        with raises(pyfeed.errors.ShapeError, message, slot=0, also=ValueError):
            push(np.zeros((1,) * rank), Y)
    with raises(
        pyfeed.errors.ShapeError, "slot 1: rank: expected at most 8 dimensions, found 9", slot=1, also=ValueError
    ):
        feed(1, [(2,), (1,) * 9])


def test_lent_memory_must_be_contiguous(push: Push) -> None:
    message = "slot {}: expected contiguous memory to be lent, found strides: copy it in, or make it contiguous"
    for strided in (
        np.zeros((3, 4), np.float32).T,
        X[::-1],
        np.broadcast_to(X[:1], (4, 3)),
        np.zeros((4, 6), "f4")[:, ::2],
    ):
        with raises(pyfeed.errors.InvalidArgument, message.format(0), slot=0, also=ValueError):
            push(strided, Y, copy=False)
    with raises(pyfeed.errors.InvalidArgument, message.format(1), slot=1, also=ValueError):
        push(X, Y[::-1], copy=False)


@push_modes
def test_a_tuple_larger_than_the_limit_in_bytes(push: Push, copy: bool) -> None:
    message = "bytes_limit: expected a tuple of at most 10000 bytes, found 20000"
    with raises(pyfeed.errors.TooLargeError, message, also=ValueError):
        push(np.zeros((1000, 3), np.float32), np.zeros(1000, np.int64), copy=copy)


def test_more_bytes_than_there_are() -> None:
    _, queue = feed(1, [(-1, -1)])
    message = "slot 0: dims [4611686018427387904 4] of float64 are more bytes than there are"
    with raises(pyfeed.errors.ShapeError, message, slot=0, also=ValueError):
        queue.push((DLPackArray(np.zeros(1), shape=[1 << 62, 4], strides=False),))
    message = "out of memory: 281474976710656 bytes were asked for"
    with raises(pyfeed.errors.OutOfMemoryError, message, also=MemoryError):
        queue.push((np.broadcast_to(np.int8(0), (1 << 24, 1 << 24)),))
    _, queue = feed(1, [(-1,)], dtypes=["int8"])
    with raises(pyfeed.errors.OutOfMemoryError, message, also=MemoryError), queue.reserve(1 << 48):
        raise AssertionError("it was reserved")
    assert queue.stats()["bytes"] == 0
    queue.push((np.zeros(2, np.int8),))


@push_modes
def test_a_closed_queue(copy: bool) -> None:
    _, queue = feed()
    queue.close()
    with raises(pyfeed.errors.QueueClosed, "the queue is closed: pass 0 takes no more tuples"):
        queue.push(tuple_of(0), copy=copy)
    with raises(pyfeed.errors.EndOfData, "the end of the data: this pass has no more tuples", also=EOFError):
        queue.pop()
    assert not issubclass(pyfeed.errors.QueueClosed, (ValueError, OSError, EOFError))


def test_a_failed_queue() -> None:
    _, queue = feed()
    queue.fail(KeyError("x"))
    with raises(pyfeed.errors.QueueClosed, "the queue is closed: pass 0 has failed"):
        queue.push(tuple_of(0))
    with raises(pyfeed.errors.QueueClosed, "the queue is closed: pass 0 has failed"):
        queue.fail(KeyError("y"))


def test_a_queue_that_is_shut_down() -> None:
    _, queue = feed()
    queue.push(tuple_of(0))
    queue.shutdown()
    queue.shutdown()
    for call in (lambda: queue.push(tuple_of(0)), queue.reopen, lambda: queue.wait_pass(0)):
        with raises(pyfeed.errors.QueueClosed, "the queue is shut down"):
            call()
    with raises(pyfeed.errors.EndOfData, "the end of the data: this pass has no more tuples", also=EOFError):
        queue.pop()


def test_a_pass_that_is_over() -> None:
    _, queue = feed()
    queue.reopen()
    with raises(pyfeed.errors.QueueClosed, "pass 0 of the queue is over, it is at pass 1"):
        queue.push(tuple_of(0), pass_id=0)


def test_a_pass_that_has_not_begun() -> None:
    scope = Scope()
    queue = PyArrayFeedQueueHolder(scope, "q").init_once(1, [(2,)], restartable=True)
    with raises(pyfeed.errors.QueueClosed, "the queue has no pass open yet: its producer waits for one with wait_pass"):
        queue.push(tuple_of(0))
    message = "produce: the queue has no pass open yet: wait for one with wait_pass"
    with raises(pyfeed.errors.StateError, message, also=RuntimeError):
        queue.produce(lambda worker: [tuple_of(0)])


def test_a_stale_handle() -> None:
    scope = Scope()
    var = scope._use("x", lambda handle: handle, make=True)
    message = f"handle {var}: expected a variable, found none: it is not valid, or no longer"
    with raises(pyfeed.errors.StaleHandleError, message, also=ValueError):
        _native.Reader._of(var)
    with raises(pyfeed.errors.StaleHandleError, message):
        PyArrayFeedQueue._init_once(var, 1, (), 0, False, (0, 0))
    reader, queue = feed()
    message = f"handle {queue.handle}: expected a scope, found a queue"
    with raises(pyfeed.errors.StaleHandleError, message):
        _native.Scope._new(queue.handle)
    message = f"handle {reader.handle}: expected a variable, found a reader"
    with raises(pyfeed.errors.StaleHandleError, message):
        _native.Queue._of(reader.handle)
    for never in (1 << 62, (1 << 64) - 1):
        with raises(
            pyfeed.errors.StaleHandleError,
            f"handle {never}: expected a scope, found none: it is not valid, or no longer",
        ):
            _native.Scope._new(never)


def test_objects_are_made_by_functions_only() -> None:
    for kind in (
        PyArrayFeedQueue,
        pyfeed.Reader,
        _native.Queue,
        _native.Reader,
        _native.Memory,
        _native.Reservation,
        _native.Loop,
    ):
        with pytest.raises(TypeError, match="cannot create"):
            kind()
        with pytest.raises(TypeError):
            object.__new__(kind)


# ---- Creation of a queue ----


def test_a_second_init_once() -> None:
    holder = PyArrayFeedQueueHolder(Scope(), "q")
    queue = holder.init_once(2, [(2,)])
    message = "init_once: this holder's queue was made already, with capacity 2"
    with raises(pyfeed.errors.StateError, message, also=RuntimeError):
        holder.init_once(3, [(2,)])
    assert holder.feeder() is queue
    assert queue.capacity() == 2


def test_feeder_before_init_once() -> None:
    scope = Scope()
    message = "feeder: the holder has no queue before init_once"
    with raises(pyfeed.errors.StateError, message, also=RuntimeError):
        PyArrayFeedQueueHolder(scope, "q").feeder()
    scope._use("q", lambda var: None, make=True)
    with raises(pyfeed.errors.StateError, message, also=RuntimeError):
        PyArrayFeedQueueHolder(scope, "q").feeder()


@pytest.mark.parametrize(
    ("capacity", "message"),
    [
        (0, "capacity: expected at least 1 tuple, found 0"),
        (-1, "capacity: expected at least 1 tuple, found -1"),
        (1 << 50, "capacity: expected at most 2^40 tuples, found 1125899906842624"),
    ],
)
def test_impossible_capacity(capacity: int, message: str) -> None:
    with raises(pyfeed.errors.InvalidArgument, message, also=ValueError):
        feed(capacity)


def test_impossible_limit_in_bytes() -> None:
    with raises(pyfeed.errors.InvalidArgument, "bytes_limit: expected at least 0, found -1", also=ValueError):
        feed(bytes_limit=-1)


def test_impossible_slots() -> None:
    with raises(pyfeed.errors.SlotCountError, "slots: expected at least 1, found 0", also=ValueError):
        feed(1, [])
    with raises(
        pyfeed.errors.ShapeError, "slot 1: dimension 0: expected a size or -1, found -2", slot=1, also=ValueError
    ):
        feed(1, [(2,), (-2,)])
    with raises(pyfeed.errors.SlotCountError, "dtypes: expected 2, one for each slot, found 1", also=ValueError):
        feed(1, [(2,), (2,)], dtypes=["float32"])
    with raises(pyfeed.errors.SlotCountError, "lod_levels: expected 1, one for each slot, found 2", also=ValueError):
        feed(1, [(2,)], lod_levels=[0, 0])
    message = "slot 0: LoD: expected a first dimension of -1 with 1 levels, found dims [2]"
    with raises(pyfeed.errors.ShapeError, message, slot=0, also=ValueError):
        feed(1, [(2,)], lod_levels=[1])
    with raises(pyfeed.errors.ShapeError, "slot 0: LoD: expected 0 to 8 levels, found 9", slot=0, also=ValueError):
        feed(1, [(-1,)], lod_levels=[9])


@pytest.mark.parametrize("dtype", [object, "M8[s]", ">f4", "longdouble", "U5"])
def test_impossible_dtype(dtype: Any) -> None:
    message = (
        "dtypes: slot 0: expected bool, an integer, float, bfloat16 or complex in native byte order, "
        f"found {np.dtype(dtype)!r}"
    )
    with raises(pyfeed.errors.DTypeError, message, slot=0, also=TypeError):
        feed(dtypes=[dtype])


def test_nothing_is_left_of_a_queue_that_was_refused() -> None:
    scope = Scope()
    for _ in range(2):
        with pytest.raises(pyfeed.errors.InvalidArgument):
            py_array_reader(0, [(2,)], scope=scope, name="q")
    _, queue = py_array_reader(1, [(2,)], scope=scope, name="q")
    queue.push(tuple_of(1))


def test_arguments_of_no_sense() -> None:
    reader, queue = feed()
    for call in (
        lambda: feed("many"),  # type: ignore[arg-type]
        lambda: feed(1, [("a",)]),  # type: ignore[list-item]
        lambda: feed(1, 5),  # type: ignore[arg-type]
        lambda: feed(dtypes=["no such type"]),
        lambda: queue.push(),  # type: ignore[call-arg]
        lambda: queue.push(tuple_of(0), tuple_of(0)),  # type: ignore[call-arg,arg-type]
        lambda: queue.push(tuple_of(0), block=True),  # type: ignore[call-arg]
        lambda: queue.push(tuple_of(0), pass_id="1"),  # type: ignore[arg-type]
        lambda: queue.push(tuple_of(0), timeout="1"),  # type: ignore[arg-type]
        lambda: queue.pop("1"),  # type: ignore[arg-type]
        lambda: queue.pop(wait=1),  # type: ignore[call-arg]
        lambda: reader.batch("3"),  # type: ignore[arg-type]
        lambda: queue.fail("error"),  # type: ignore[arg-type]
        lambda: queue.fail(ValueError),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError):
            call()
    with raises(pyfeed.errors.InvalidArgument, "pass_id: expected at least 0, found -1"):
        queue.push(tuple_of(0), pass_id=-1)
    with raises(pyfeed.errors.InvalidArgument, f"capacity: expected 1 to 2^63 - 1, found {2**70}"):
        feed(1 << 70)
    assert queue.stats()["pushed"] == 0
    with raises(pyfeed.errors.InvalidArgument, "num_threads: expected at least 1, found 0", also=ValueError):
        queue.produce(lambda worker: [], num_threads=0)


# ---- Ragged offsets (LoD, level of detail) ----


@pytest.mark.parametrize(
    ("lod", "message"),
    [
        ([], "LoD: expected 2 levels, found 0"),
        ([[0, 5]], "LoD: expected 2 levels, found 1"),
        ([[0, 2], [0, 5, 5], [0, 5]], "LoD: expected 2 levels, found 3"),
        ([[0], [0, 5]], "LoD level 0: expected at least 2 offsets, found 1"),
        ([[0, 0], []], "LoD level 1: expected at least 1 offsets, found 0"),
        ([[], [0, 5]], "LoD level 0: expected at least 2 offsets, found 0"),
        ([[1, 2], [0, 2, 5]], "LoD level 0: expected the first offset to be 0, found 1"),
        ([[0, 2], [-1, 2, 5]], "LoD level 1: expected the first offset to be 0, found -1"),
        ([[0, 3], [0, 3, 2, 5]], "LoD level 1: offset 2 decreases from 3 to 2"),
        (
            [[0, 1], [0, 2, 5]],
            "LoD level 0: expected the last offset to be 2, the number of sequences of level 1, found 1",
        ),
        ([[0, 2], [0, 2, 4]], "LoD level 1: expected the last offset to be 5, the first dimension, found 4"),
        ([[0, 2], [0, 2, 6]], "LoD level 1: expected the last offset to be 5, the first dimension, found 6"),
    ],
)
@push_modes
def test_invalid_lod(lod: Any, message: str, copy: bool) -> None:
    _, queue = feed(1, [(-1,)], lod_levels=[2], dtypes=["float64"])
    tensor = LoDTensor(np.zeros(5))
    tensor.lod = tuple(np.array(level, np.int64) for level in lod)
    with raises(pyfeed.errors.ShapeError, "slot 0: " + message, slot=0, also=ValueError):
        queue.push((tensor,), copy=copy)
    if "LoD: " not in message and "at least" not in message:
        for call in (lambda: LoDTensor(np.zeros(5), lod), tensor.sequences, tensor.bytes_list):
            with raises(pyfeed.errors.ShapeError, message, also=ValueError):
                call()
    if copy:
        with raises(pyfeed.errors.ShapeError, "slot 0: " + message, slot=0), queue.reserve(5, lod=[lod]):
            raise AssertionError("it was reserved")
    assert queue.stats()["reserved"] == 0


def test_too_many_levels() -> None:
    _, queue = feed(1, [(-1,)], lod_levels=[1])
    with raises(pyfeed.errors.ShapeError, "slot 0: LoD: expected at most 8 levels, found 9", slot=0):
        queue.push((LoDTensor(np.zeros(1), [[0, 1]] * 9),))


def test_lod_that_was_tampered_with() -> None:
    _, queue = feed(1, [(-1,)], lod_levels=[1])
    tensor = LoDTensor(np.zeros(5), [[0, 5]])
    for level in ([0, 5], np.array([0.0, 5.0]), np.array([[0, 5]]), np.arange(12)[::6], "level"):
        tensor.lod = (level,)  # type: ignore[assignment]
        message = f"slot 0: LoD level 0: expected a contiguous int64 array, found {level!r}"
        with raises(pyfeed.errors.DTypeError, message, slot=0, also=TypeError):
            queue.push((tensor,))


def test_lod_in_lod() -> None:
    _, queue = feed(1, [(-1,)], lod_levels=[1])
    tensor = LoDTensor(np.zeros(5), [[0, 5]])
    message = "slot 0: data: expected an array in the LoDTensor, found another LoDTensor"
    with raises(pyfeed.errors.DTypeError, message, slot=0, also=TypeError):
        queue.push((LoDTensor(tensor, [[0, 5]]),))
    tensor.data = tensor
    with raises(pyfeed.errors.DTypeError, message, slot=0):
        queue.push((tensor,))


# ---- Tuples written in place ----


def test_slots_that_cannot_be() -> None:
    _, queue = feed(1, [(-1, 3), (-1,)], dtypes=["float32", None])
    message = "slot 1: its dtype is not known before the first push: give the queue's dtypes when it is made"
    with raises(pyfeed.errors.InvalidArgument, message, slot=1, also=ValueError), queue.reserve(4):
        raise AssertionError("it was reserved")
    queue.push((X, Y))
    queue.pop()
    message = "slot 0: rows: expected a number for its first dimension of -1, found None"
    with raises(pyfeed.errors.InvalidArgument, message, slot=0, also=ValueError):
        queue.reserve()
    with raises(pyfeed.errors.SlotCountError, "shapes: expected 2, one for each slot, found 1", also=ValueError):
        queue.reserve(shapes=[(4, 3)])
    with raises(pyfeed.errors.SlotCountError, "lod: expected 2, one for each slot, found 3", also=ValueError):
        queue.reserve(4, lod=[None, None, None])
    with raises(pyfeed.errors.InvalidArgument, "rows: expected at least 0, found -2", also=ValueError):
        queue.reserve(-2)
    for slot, kind, text, number in [
        (
            queue.reserve(shapes=[(4, 5), (4,)]),
            pyfeed.errors.ShapeError,
            "slot 0: dimension 1: expected 3, found 5: dims [4 5] for [-1 3]",
            0,
        ),
        (
            queue.reserve(shapes=[(4, 3), (5,)]),
            pyfeed.errors.ShapeError,
            "slot 1: batch dimension: expected 4, as in slot 0, found 5",
            1,
        ),
        (
            queue.reserve(shapes=[(1,) * 9, (1,)]),
            pyfeed.errors.ShapeError,
            "slot 0: rank: expected at most 8 dimensions, found 9",
            0,
        ),
        (
            queue.reserve(4, lod=[[[0, 4]], None]),
            pyfeed.errors.ShapeError,
            "slot 0: LoD: expected 0 levels, found 1",
            0,
        ),
    ]:
        with raises(kind, text, slot=number), slot:
            raise AssertionError("it was reserved")
    with raises(
        pyfeed.errors.ShapeError, "slot 0: lod: LoD level 0: expected one dimension, found 2", slot=0, also=ValueError
    ):
        queue.reserve(4, lod=[[[[0], [4]]], None])
    assert queue.stats()["reserved"] == 0


def test_a_slot_is_entered_once() -> None:
    _, queue = feed(2, dtypes=["float64"])
    reservation = queue.reserve()
    with reservation as (x,):
        x[:] = 1
    message = "reservation: it was entered already: make a new one with queue.reserve()"
    with raises(pyfeed.errors.StateError, message, also=RuntimeError), reservation:
        raise AssertionError("it was entered again")
    assert queue.size() == 1


def test_a_slot_whose_pass_ended_meanwhile() -> None:
    _, queue = feed(2, dtypes=["float64"])
    with raises(pyfeed.errors.QueueClosed, "the queue is closed: pass 0 takes no more tuples"), queue.reserve():
        queue.close()
    queue.reopen()
    with raises(pyfeed.errors.QueueClosed, "pass 1 of the queue is over, it is at pass 2"), queue.reserve():
        queue.reopen()
    assert queue.stats()["pushed"] == queue.stats()["reserved"] == queue.stats()["bytes"] == 0


# ---- Waiting ----


@pytest.mark.parametrize("timeout", [-1, -1e-9, -math.inf, math.nan, np.float32(-2)])
def test_impossible_timeouts(timeout: Any) -> None:
    reader, queue = feed(1, dtypes=["float64"])
    message = f"timeout: expected None or seconds, at least 0, found {timeout!r}"
    scope = reader.scope
    for call in (
        lambda: queue.push(tuple_of(0), timeout=timeout),
        lambda: queue.push(tuple_of(0), copy=False, timeout=timeout),
        lambda: queue.pop(timeout),
        lambda: queue.reserve(timeout=timeout),
        lambda: queue.wait_pass(0, timeout),
        lambda: reader.read(timeout),
        lambda: reader.has_next(timeout),
        lambda: scope.read(reader.name, ["x"], timeout),
    ):
        with raises(pyfeed.errors.InvalidArgument, message, also=ValueError):
            call()
    assert queue.stats()["pushed"] == 0


@pytest.mark.parametrize("timeout", [True, np.True_])
def test_a_bool_is_no_timeout(timeout: Any) -> None:
    reader, queue = feed(1, dtypes=["float64"])
    queue.push(tuple_of(0))
    message = f"timeout: expected None or seconds, found {timeout!r}"
    for call in (lambda: queue.push(tuple_of(0), timeout=timeout), lambda: reader.read(timeout)):
        with raises(pyfeed.errors.ArgumentTypeError, message, also=TypeError):
            call()


@pytest.mark.parametrize("timeout", [0, 0.0, 0.02, np.float64(0.01), np.int8(0)])
def test_time_goes_by(timeout: Any) -> None:
    reader, queue = feed(1, dtypes=["float64"])
    queue.push(tuple_of(1), timeout=timeout)
    calls: list[Callable[[], Any]] = [
        lambda: queue.push(tuple_of(0), timeout=timeout),
        lambda: queue.push(tuple_of(0), copy=False, timeout=timeout),
        lambda: queue.reserve(timeout=timeout).__enter__(),
    ]
    for call in calls:
        with raises(pyfeed.errors.Timeout, "the time to wait went by", also=TimeoutError):
            call()
    queue.pop(timeout)
    calls = [
        lambda: queue.pop(timeout),
        lambda: reader.read(timeout),
        lambda: reader.has_next(timeout),
        lambda: reader.batch(2).read(timeout),
        lambda: queue.wait_pass(1, timeout),
        lambda: reader.scope.read(reader.name, ["x"], timeout),
    ]
    for call in calls:
        with raises(pyfeed.errors.Timeout, "the time to wait went by", also=TimeoutError):
            call()
    stats = queue.stats()
    assert (stats["pushed"], stats["popped"], stats["reserved"], stats["bytes"]) == (1, 1, 0, 0)


@pytest.mark.parametrize("timeout", [None, math.inf, 1e300, 10.0, np.float32(9)])
def test_time_enough(timeout: Any) -> None:
    reader, queue = feed(1)
    queue.push(tuple_of(1), timeout=timeout)
    assert reader.has_next(timeout)
    reader.read(timeout)
    assert queue.wait_pass(None, timeout) == 0


# ---- Readers and variables ----


def test_a_py_array_reader_cannot_start_over() -> None:
    reader, queue = feed()
    queue.push(tuple_of(1))
    message = (
        "the reader of a PyArrayFeedQueue cannot start over: what was pushed into its queue is gone. Call the queue's "
        "reopen(), then produce() or push() again. A reader of from_generator can start over"
    )
    for each in (reader, reader.batch(2)):
        with raises(pyfeed.errors.StateError, message, also=RuntimeError):
            each.reset()
    assert reader.read()[0][0] == 1


@pytest.mark.parametrize("size", [0, -1])
def test_impossible_batch_size(size: int) -> None:
    reader, _ = feed()
    with raises(pyfeed.errors.InvalidArgument, f"batch_size: expected at least 1 tuple, found {size}", also=ValueError):
        reader.batch(size)


def test_impossible_batches() -> None:
    reader, _ = feed()
    with raises(
        pyfeed.errors.InvalidArgument, f"batch_size: expected 1 to 2^31 tuples, found {1 << 32}", also=ValueError
    ):
        reader.batch(1 << 32)
    reader, _ = feed(1, [(1,) * 8])
    message = "slot 0: batching adds a dimension to [1 1 1 1 1 1 1 1], but 8 are the most"
    with raises(pyfeed.errors.ShapeError, message, slot=0, also=ValueError):
        reader.batch(2)


def test_variable_not_found() -> None:
    scope = Scope(Scope())
    message = 'variable "x": there is none in this scope or its parents'
    for call in (
        lambda: scope["x"],
        lambda: scope.kind("x"),
        lambda: scope.create_py_array_reader("r", "x"),
        lambda: scope.create_batch_reader("b", "x", 2),
        lambda: scope.read("x", []),
        lambda: pyfeed.Reader.in_variable(scope, "x"),
    ):
        with raises(pyfeed.errors.NotFoundError, message, also=LookupError):
            call()
    with raises(pyfeed.errors.NotFoundError, 'variable "x": there is none in this scope', also=LookupError):
        scope.erase("x")
    assert "r" not in scope
    assert "b" not in scope


def test_variable_of_another_kind() -> None:
    scope = Scope()
    reader, queue = py_array_reader(1, [(2,)], scope=scope, name="q")
    scope["t"] = np.zeros(2)
    calls: list[tuple[Callable[[], Any], str, str]] = [
        (lambda: scope["q"], "q", "tensor"),
        (lambda: scope[reader.name], reader.name, "tensor"),
        (lambda: scope.create_py_array_reader("r", "t"), "t", "queue"),
        (lambda: scope.create_py_array_reader("r", reader.name), reader.name, "queue"),
        (lambda: scope.create_batch_reader("b", "q", 2), "q", "reader"),
        (lambda: scope.read("t", ["x"]), "t", "reader"),
        (lambda: pyfeed.Reader.in_variable(scope, "q"), "q", "reader"),
        (lambda: PyArrayFeedQueueHolder(scope, "t").init_once(1, [(2,)]), "t", "queue"),
        (lambda: PyArrayFeedQueueHolder(scope, "t").feeder(), "t", "queue"),
    ]
    for call, name, want in calls:
        with raises(
            pyfeed.errors.StateError, f'variable "{name}": expected a {want} in it, found none', also=RuntimeError
        ):
            call()
    assert queue.stats()["pushed"] == 0


def test_variable_without_a_name() -> None:
    scope = Scope()
    with raises(pyfeed.errors.InvalidArgument, "variable: expected a name, found an empty string", also=ValueError):
        scope[""] = np.zeros(1)
    for name in ("a\0b", "\ud800"):
        with pytest.raises(
            pyfeed.errors.InvalidArgument, match=r"^name: expected text (without a zero|that UTF-8 can enc)"
        ):
            scope[name] = np.zeros(1)
    with pytest.raises(TypeError):
        scope[1] = np.zeros(1)  # type: ignore[index]
    assert 1 not in scope


def test_read_op_with_another_number_of_outputs() -> None:
    reader, queue = feed(1, [(2,), (2,)])
    queue.push((np.zeros(2), np.ones(2)))
    scope = reader.scope
    for outs in ([], ["x"], ["x", "y", "z"]):
        message = f'read: reader "{reader.name}" has 2 slots, but {len(outs)} outputs were named'
        with raises(pyfeed.errors.SlotCountError, message, also=ValueError):
            scope.read(reader.name, outs)
    with raises(pyfeed.errors.SlotCountError, "read: expected at most 1024 outputs, found 2000", also=ValueError):
        scope.read(reader.name, ["x"] * 2000)
    with pytest.raises(TypeError):
        scope.read(reader.name, [1, 2])  # type: ignore[list-item]
    assert "x" not in scope
    scope.read(reader.name, ["x", "y"])
    assert scope["y"].tolist() == [1, 1]


# ---- The classes ----


def test_every_error_is_pyfeeds_and_a_built_in_that_fits() -> None:
    fits = {
        pyfeed.errors.EndOfData: EOFError,
        pyfeed.errors.RecordIndexError: IndexError,
        pyfeed.errors.Timeout: TimeoutError,
        pyfeed.errors.ProducerError: RuntimeError,
        pyfeed.errors.WorkerError: RuntimeError,
        pyfeed.errors.CudaError: RuntimeError,
        pyfeed.errors.CudaMemoryError: MemoryError,
        pyfeed.errors.InvalidArgument: ValueError,
        pyfeed.errors.ArgumentTypeError: TypeError,
        pyfeed.errors.ShapeError: ValueError,
        pyfeed.errors.SlotCountError: ValueError,
        pyfeed.errors.TooLargeError: ValueError,
        pyfeed.errors.DTypeError: TypeError,
        pyfeed.errors.ByteOrderError: TypeError,
        pyfeed.errors.StaleHandleError: ValueError,
        pyfeed.errors.StateError: RuntimeError,
        pyfeed.errors.NotFoundError: LookupError,
        pyfeed.errors.UnsupportedError: NotImplementedError,
        pyfeed.errors.OutOfMemoryError: MemoryError,
        pyfeed.errors.ForkError: RuntimeError,
        pyfeed.errors.PoisonedError: SystemError,
        pyfeed.errors.CorruptRecordError: ValueError,
        pyfeed.errors.FileError: OSError,
        pyfeed.errors.MissingFileError: FileNotFoundError,
        pyfeed.errors.FilePermissionError: PermissionError,
        pyfeed.errors.QueueClosed: Exception,
        pyfeed.errors.Cancelled: Exception,
        pyfeed.errors.Error: Exception,
    }
    public = [v for v in vars(pyfeed.errors).values() if isinstance(v, type) and issubclass(v, pyfeed.errors.Error)]
    assert set(public) == set(fits)
    for kind, built_in in fits.items():
        assert issubclass(kind, pyfeed.errors.Error)
        assert issubclass(kind, built_in)
        error = kind("text")
        assert (error.slot, error.file, error.offset, error.record) == (None, None, None, None)
        assert str(error) == "text"
