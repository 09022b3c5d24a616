"""Objects with wrong interfaces, or that change or run code at the wrong moment: they cause errors, never a crash."""

from __future__ import annotations

import ctypes
import gc
import pickle
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from copy import copy as shallow_copy
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import pyfeed
from pyfeed import LoDTensor, PyArrayFeedQueue, Reader, Scope

from .support import (
    Array,
    Background,
    DLPackArray,
    feed,
    needs_gil,
    raises,
    tuple_of,
    value_of,
    wait_for_consumers,
    wait_for_producers,
    wait_until,
)


class Acts:
    """An array with DLPack that calls a function when it is read."""

    def __init__(self, action: Any, array: Array | None = None) -> None:
        self.action = action
        self.inner = DLPackArray(np.zeros(2) if array is None else array)

    def __dlpack__(self) -> object:
        self.action()
        return self.inner.__dlpack__()


# ---- Lists that change while they are read ----


@pytest.mark.parametrize("copy", [True, False])
def test_a_list_that_is_emptied_while_it_is_read(copy: bool) -> None:
    _, queue = feed(2, [(2,), (2,), (2,)])
    arrays: list[Any] = [np.zeros(2), np.zeros(2), np.zeros(2)]
    arrays[1] = Acts(arrays.clear)
    with pytest.raises(IndexError):
        queue.push(arrays, copy=copy)
    assert queue.size() == 0


def test_a_list_whose_items_are_replaced_while_it_is_read() -> None:
    _, queue = feed(2, [(2,), (2,)])
    arrays: list[Any] = [np.full(2, 1.0), None]

    def replace() -> None:
        arrays[0] = "no longer an array"
        gc.collect()

    arrays[1] = Acts(replace, np.full(2, 2.0))
    queue.push(arrays)
    assert [x.tolist() for x in queue.pop()] == [[1, 1], [2, 2]]


def test_objects_that_drop_themselves() -> None:
    """While the push reads an item, the item removes itself from the list, which held the only reference to it."""
    arrays: list[Any] = []

    class ByClass:
        @property  # type: ignore[misc]
        def __class__(self) -> Any:
            arrays.clear()
            return int

    class ByLod(LoDTensor):
        __slots__ = ()

        @property
        def lod(self) -> Any:
            arrays.clear()
            gc.collect()
            return ()

        @lod.setter
        def lod(self, value: Any) -> None:
            pass

    class ByInterface:
        @property
        def __array_interface__(self) -> Any:
            arrays.clear()
            return np.zeros(2).__array_interface__

    _, queue = feed(10)
    for make in (ByClass, lambda: ByLod(np.zeros(2)), ByInterface, lambda: Acts(arrays.clear)):
        arrays.append(make())
        try:
            queue.push(arrays)
        except (pyfeed.errors.Error, IndexError):
            pass
    assert queue.size() <= 3


@pytest.mark.parametrize("copy", [True, False])
def test_a_list_that_changes_while_the_push_waits(copy: bool) -> None:
    _, queue = feed(1, [(2,), (2,)])
    queue.push((np.zeros(2), np.zeros(2)))
    arrays = [np.full(2, 1.0), np.full(2, 2.0)]
    push = Background(lambda: queue.push(arrays, copy=copy))
    wait_for_producers(queue)
    arrays[:] = [np.full(2, 8.0), np.full(2, 9.0)]
    gc.collect()
    queue.pop()
    push.result()
    assert [x.tolist() for x in queue.pop()] == [[1, 1], [2, 2]]


def test_an_array_whose_shape_is_set_while_the_push_waits() -> None:
    """The push still queues the array as it was when the push began."""
    for change in ("shape", "dtype", "strides"):
        _, queue = feed(1, [(-1,)])
        given = np.arange(100000.0)
        queue.push((given,))
        push = Background(lambda: queue.push((given,)))  # noqa: B023
        wait_for_producers(queue)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if change == "shape":
                given.shape = (10, 10, 1000)
            elif change == "dtype":
                given.dtype = np.int8  # type: ignore[misc,assignment]
            else:
                given.strides = (0,)
        junk = [np.zeros((1,) * 5) for _ in range(100)]
        queue.pop()
        push.result()
        (found,) = queue.pop()
        np.testing.assert_array_equal(found, np.arange(100000.0))
        del junk


@needs_gil("without one, NumPy frees the shape of an array while other threads read it")
def test_shapes_that_are_set_all_the_time() -> None:
    _, queue = feed(4, [(-1,)])
    given = np.arange(40000.0)
    stop = threading.Event()

    def change() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            while not stop.is_set():
                given.shape = (200, 200)
                given.shape = (40000,)

    changing = Background(change)
    found = 0
    end = time.monotonic() + 0.3
    while time.monotonic() < end or not found:
        try:
            queue.push((given,))
        except pyfeed.errors.ShapeError:
            continue
        found += 1
        np.testing.assert_array_equal(queue.pop()[0], np.arange(40000.0))
    stop.set()
    changing.result()
    assert queue.size() == 0


def test_an_array_that_is_held_cannot_be_resized() -> None:
    _, queue = feed(1, [(-1,)])
    given = np.arange(10.0)
    queue.push((given,))
    push = Background(lambda: queue.push((given,)))
    wait_for_producers(queue)
    with pytest.raises(ValueError, match="resize"):
        given.resize(100)
    queue.pop()
    push.result()
    del push
    queue.pop()


# ---- Wrong interfaces ----


@pytest.mark.parametrize(
    "interface",
    [
        None,
        5,
        {},
        {"version": 3},
        {"version": 3, "shape": (2,), "typestr": "no type", "data": (0, False)},
        {"version": 3, "shape": "two", "typestr": "<f8", "data": (0, False)},
        {"version": 3, "shape": (-2,), "typestr": "<f8", "data": (0, False)},
        {"version": 3, "shape": (2,), "typestr": "<f8", "strides": (1, 2), "data": bytes(16)},
        {"version": 3, "shape": (1 << 40,), "typestr": "<f8", "data": bytes(16)},
        {"version": 3, "shape": (2,), "typestr": "|O", "data": bytes(16)},
    ],
    ids=str,
)
def test_array_interfaces_that_are_none(interface: Any) -> None:
    class Liar:
        __array_interface__ = interface

    _, queue = feed()
    with pytest.raises((ValueError, TypeError, AttributeError, KeyError)):
        queue.push((Liar(),))
    assert queue.size() == 0


class Raises:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class RaisesInterface(Raises):
    @property
    def __array_interface__(self) -> Any:
        raise self.error


class RaisesStruct(Raises):
    @property
    def __array_struct__(self) -> Any:
        raise self.error


class RaisesDLPack(Raises):
    def __dlpack__(self) -> Any:
        raise self.error


@pytest.mark.parametrize("kind", [RaisesInterface, RaisesStruct, RaisesDLPack])
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, pyfeed.errors.QueueClosed])
def test_interfaces_that_raise(kind: Any, error: type[BaseException]) -> None:
    _, queue = feed(2, [(2,), (2,)])
    for copy in (True, False):
        with pytest.raises(error):
            queue.push((np.zeros(2), kind(error())), copy=copy)
    with pytest.raises(error):
        Scope()["x"] = kind(error())
    assert queue.size() == 0


def capsule(name: bytes, pointer: int = 1) -> object:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    made: object = new(pointer, name, None)
    return made


@pytest.mark.parametrize(
    "answer", [None, 5, "capsule", capsule(b"used_dltensor"), capsule(b"dltensor_versioned"), object]
)
def test_dlpack_that_is_none(answer: Any) -> None:
    class Liar:
        def __dlpack__(self) -> Any:
            return answer

    _, queue = feed()
    for copy in (True, False):
        with pytest.raises(ValueError, match="PyCapsule_GetPointer called with"):
            queue.push((Liar(),), copy=copy)


def test_dlpack_that_wants_arguments_or_is_no_method() -> None:
    class Wants:
        def __dlpack__(self, stream: int) -> Any:
            raise AssertionError

    class None_:  # noqa: N801
        __dlpack__ = None

    _, queue = feed()
    for thing in (Wants(), None_()):
        with pytest.raises(TypeError):
            queue.push((thing,))


def test_a_memoryview_that_was_released() -> None:
    _, queue = feed(1, [(-1,)])
    view = memoryview(bytes(10))
    view.release()
    with pytest.raises(ValueError, match="released"):
        queue.push((view,))


def test_buffers_numpy_has_no_type_for() -> None:
    _, queue = feed(1, [(-1,)])
    with pytest.raises(pyfeed.errors.DTypeError):
        queue.push((memoryview(bytes(10)).cast("c"),))

    class Point(ctypes.Structure):
        _fields_ = (("x", ctypes.c_int), ("y", ctypes.c_int))

    with pytest.raises(pyfeed.errors.DTypeError):
        queue.push(((Point * 3)(),))
    with pytest.raises((pyfeed.errors.DTypeError, TypeError, ValueError)):
        queue.push(((ctypes.c_char_p * 3)(),))


def test_sequences_that_are_tuples_in_name_only() -> None:
    class Odd(tuple[Any, ...]):
        def __len__(self) -> int:
            return 7

        def __getitem__(self, i: Any) -> Any:
            raise KeyError

        def __iter__(self) -> Iterator[Any]:
            raise KeyError

    _, queue = feed(2)
    queue.push(Odd(tuple_of(3)))
    assert value_of(queue.pop()) == 3


def test_lod_tensors_that_are_not() -> None:
    _, queue = feed(1, [(-1,)], lod_levels=[1])

    class Raising(LoDTensor):
        __slots__ = ()

        @property
        def data(self) -> Any:
            raise ZeroDivisionError

        @data.setter
        def data(self, value: Any) -> None:
            pass

    with pytest.raises(ZeroDivisionError):
        queue.push((Raising(None, [[0, 1]]),))
    tensor = LoDTensor(None, [[0, 1]])
    with pytest.raises(pyfeed.errors.DTypeError):
        queue.push((tensor,))
    del tensor.lod
    with pytest.raises(AttributeError):
        queue.push((tensor,))
    tensor.lod = 5  # type: ignore[assignment]
    with pytest.raises(TypeError):
        queue.push((tensor,))


def test_numbers_that_act() -> None:
    reader, queue = feed(8)
    queue.reopen()  # begins pass 1

    class Number:
        def __float__(self) -> float:
            queue.push(tuple_of(1))
            return 0.0

        def __index__(self) -> int:
            queue.push(tuple_of(2))
            return 1

    queue.push(tuple_of(0), timeout=Number(), pass_id=Number())  # type: ignore[arg-type]
    assert [value_of(queue.pop()) for _ in range(2)] != []
    with pytest.raises(pyfeed.errors.ArgumentTypeError, match="copy: expected True or False, found"):
        queue.push(tuple_of(0), copy=Number())  # type: ignore[arg-type]
    assert reader.batch(Number()) is not None  # type: ignore[arg-type]


# ---- Code that runs in the middle of a call ----


def test_pushing_within_a_push() -> None:
    _, queue = feed(10)
    queue.push((Acts(lambda: queue.push(tuple_of(1))),))
    assert [value_of(queue.pop()) for _ in range(2)] == [1, 0]


def test_a_push_within_a_push_without_end() -> None:
    _, queue = feed(10)
    arrays: list[Any] = []
    arrays.append(Acts(lambda: queue.push(arrays)))
    with pytest.raises(RecursionError):
        queue.push(arrays)
    assert queue.size() == 0
    arrays.clear()


@pytest.mark.parametrize("action", ["close", "shutdown", "reopen", "collect"])
def test_whatever_happens_to_the_queue_within_a_push(action: str) -> None:
    _, queue = feed(2)
    act = gc.collect if action == "collect" else getattr(queue, action)
    try:
        queue.push((Acts(act),))
    except pyfeed.errors.QueueClosed:
        assert action in ("close", "shutdown")


def test_a_queue_that_is_let_go_of_within_its_push() -> None:
    queues = [feed()[1]]
    queues[0].push((Acts(queues.clear),))
    gc.collect()
    assert queues == []


def test_a_queue_that_is_let_go_of_while_a_thread_waits_in_it() -> None:
    reader, queue = feed(1)
    pop, read = Background(queue.pop), Background(reader.read)
    wait_for_consumers(queue, 2)
    del reader
    gc.collect()
    queue.push(tuple_of(1))
    queue.push(tuple_of(2))
    del queue
    gc.collect()
    assert sorted([value_of(pop.result()), value_of(read.result())]) == [1, 2]


def test_variables_that_are_erased_while_they_are_read() -> None:
    reader, queue = feed(1)
    scope, name = reader.scope, reader.name
    reading = Background(lambda: scope.read(name, ["x"]))
    wait_for_consumers(queue)
    scope.erase(name)
    scope["x"] = np.zeros(7)
    scope.erase("x")
    queue.push(tuple_of(4))
    message = f'variable "{name}": there is none in this scope or its parents'
    with raises(pyfeed.errors.NotFoundError, message):
        reading.result()
    assert value_of(queue.pop(timeout=0)) == 4
    with raises(pyfeed.errors.NotFoundError, message):
        scope.read(name, ["x"])


def test_finalizers_that_use_what_goes() -> None:
    seen: list[Any] = []

    class Kept:
        def __init__(self, queue: PyArrayFeedQueue, reader: Reader) -> None:
            self.queue, self.reader = queue, reader
            self.circle = self

        def __del__(self) -> None:
            try:
                seen.append(value_of(self.reader.read(timeout=0)))
                self.queue.push(tuple_of(2), timeout=0)
                seen.append(value_of(self.queue.pop(timeout=0)))
            except BaseException as error:
                seen.append(error)

    reader, queue = feed()
    queue.push(tuple_of(1))
    Kept(queue, reader)
    del reader, queue
    gc.collect()
    assert seen == [1, 2]


def test_circles_through_everything() -> None:
    class Node:
        pass

    def make() -> weakref.ref[Any]:
        node: Any = Node()
        node.reader, node.queue = feed()
        node.queue.node = node.reader.node = node
        node.batch = node.reader.batch(2)
        node.batch.node = node
        given: Any = np.zeros(2).view(type("Owned", (np.ndarray,), {}))
        node.queue.push((np.zeros(2),))
        node.popped = node.queue.pop()
        given.node = node
        node.given = given
        return weakref.ref(node)

    reference = make()
    gc.collect()
    assert reference() is None


def test_the_collector_at_every_step() -> None:
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(20):
            reader, queue = feed(2, [(-1,)], lod_levels=[1])
            queue.push((LoDTensor.from_lengths(np.zeros(3), [[1, 2]]),), copy=False)
            queue.push([LoDTensor.from_lengths(np.zeros(3), [[1, 2]])])
            queue.fail(KeyError("x"))
            batch = reader.batch(2)
            batch.read()
            with pytest.raises(KeyError):
                batch.read()
    finally:
        gc.set_threshold(*threshold)


def test_a_producers_flag_is_its_own() -> None:
    _, queue = feed()
    given = np.zeros(2)
    queue.push((given,), copy=False)
    given.flags.writeable = True  # allowed, since the array owns its memory
    given[:] = 1
    given.flags.writeable = False
    assert value_of(queue.pop()) == 1
    assert given.flags.writeable


# ---- Objects ----


def test_objects_are_not_copied_or_pickled() -> None:
    reader, queue = feed(dtypes=["float64"])
    for thing in (queue, reader, reader.scope, queue.reserve()):
        for how in (shallow_copy, deepcopy, pickle.dumps):
            with pytest.raises(TypeError):
                how(thing)
    queue.push(tuple_of(1))
    popped = queue.pop()
    assert value_of(pickle.loads(pickle.dumps(popped))) == 1
    assert value_of(deepcopy(popped)) == 1


def test_objects_take_attributes_weak_references_and_subclasses() -> None:
    reader, queue = feed()
    things: list[Any] = [queue, reader, reader.scope]
    for thing in things:
        thing.note = "mine"
        assert weakref.ref(thing)() is thing
        assert {thing: 1}[thing] == 1

    class MyScope(Scope):
        pass

    scope = MyScope(Scope())
    assert type(scope) is MyScope
    scope["x"] = np.zeros(1)
    assert "x" in scope


def test_references_are_counted() -> None:
    """Pushes and pops release every reference that they take, exactly once."""
    queue = feed(4, [(2,), (2,)])[1]
    given, other = np.zeros(2), DLPackArray(np.zeros(2))
    arrays, timeout = [given, other], 1.5
    things: list[Any] = [given, other, other.array, arrays, timeout, np.float64, queue]

    def counts() -> list[int]:
        return [sys.getrefcount(thing) for thing in things]

    def once() -> None:
        queue.push(arrays, timeout=timeout)
        queue.push(arrays, copy=False, timeout=timeout)
        for refused in ([given], [given, None], [None, given], [given, given, given]):
            for copy in (True, False):
                try:
                    queue.push(refused, copy=copy, timeout=timeout)
                except pyfeed.errors.Error:
                    pass
        queue.pop()
        queue.pop(timeout=timeout)
        with queue.reserve(timeout=timeout):
            pass
        queue.pop()
        try:
            queue.pop(timeout=0)
        except pyfeed.errors.Timeout:
            pass

    once()
    gc.collect()
    before = counts()
    for _ in range(100):
        once()
    assert counts() == before


def test_many_exceptions_leave_nothing() -> None:
    reader, queue = feed(1)
    before = pyfeed.diagnostics.memory_stats()["live_buffers"]
    for i in range(2000):
        for call in (
            lambda: queue.pop(timeout=0),
            lambda: queue.push(("text",)),
            lambda: queue.push((np.zeros(3),)),
            lambda: reader.reset(),
        ):
            try:
                call()
            except pyfeed.errors.Error:
                pass
        queue.fail(KeyError(i))
        queue.reopen()
    assert pyfeed.diagnostics.memory_stats()["live_buffers"] == before


def test_threads_without_number() -> None:
    _, queue = feed(1)
    for _ in range(20):
        threads = [Background(lambda: queue.pop(timeout=0.01)) for _ in range(20)]
        for thread in threads:
            with pytest.raises(pyfeed.errors.Timeout):
                thread.result()
    wait_until(lambda: queue.stats()["waiting_consumers"] == 0)
