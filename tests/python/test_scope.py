"""Scopes, variables and the read operator."""

from __future__ import annotations

import gc
import itertools

import numpy as np
import pytest

import pyfeed
from pyfeed import LoDTensor, PyArrayFeedQueueHolder, Reader, Scope, global_scope, py_array_reader, unique_name

from .support import (
    DTYPES,
    Background,
    DLPackArray,
    feed,
    raises,
    same,
    together,
    tuple_of,
    values_in,
    wait_for_consumers,
)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_variable_holds_a_tensor(dtype: str) -> None:
    scope = Scope()
    given = np.arange(6).astype(dtype).reshape(2, 3)
    scope["x"] = given
    assert scope.kind("x") == "tensor"
    found = scope["x"]
    same(found, given)
    assert not found.flags.writeable
    assert found.ctypes.data != given.ctypes.data


def test_every_sort_of_array_goes_in() -> None:
    scope = Scope()
    given = np.arange(12.0).reshape(3, 4)
    for array in (given.T, given[::-1, ::2], np.array(5.0), np.empty((0, 3)), np.asfortranarray(given)):
        scope["x"] = array
        same(scope["x"], np.asarray(array, order="C"))
    scope["x"] = DLPackArray(given)
    same(scope["x"], given)
    scope["x"] = b"bytes"
    assert scope["x"].tobytes() == b"bytes"
    scope["x"] = LoDTensor(given, [[0, 1, 3]])
    assert isinstance(scope["x"], LoDTensor)
    assert scope["x"].lod[0].tolist() == [0, 1, 3]


def test_what_was_taken_out_stays_as_it_was() -> None:
    scope = Scope()
    scope["x"] = np.arange(1000.0)
    first = scope["x"]
    scope["x"] = np.zeros(1000)
    second = scope["x"]
    scope.erase("x")
    del scope
    gc.collect()
    assert first.sum() == 499500
    assert second.sum() == 0


def test_a_refused_tensor_leaves_the_variable_alone() -> None:
    scope = Scope()
    ragged = LoDTensor(np.zeros(2), [[0, 2]])
    ragged.data = np.zeros(3)
    for refused in (None, np.zeros(2, object), ragged, np.zeros((1,) * 9)):
        with pytest.raises((pyfeed.errors.DTypeError, pyfeed.errors.ShapeError)):
            scope["x"] = refused
        assert "x" not in scope or scope.kind("x") == "empty"
    scope["x"] = np.ones(2)
    with pytest.raises(pyfeed.errors.DTypeError):
        scope["x"] = None
    assert scope["x"].tolist() == [1, 1]


def test_names() -> None:
    scope = Scope()
    for name in ("x", "a/b.c", "naïve", "数据", "x" * 10000, " "):
        assert name not in scope
        scope[name] = np.array(len(name))
        assert name in scope
        assert scope[name] == len(name)
        scope.erase(name)
        assert name not in scope


def test_parents() -> None:
    grandparent = Scope()
    parent = Scope(grandparent)
    child = Scope(parent)
    grandparent["x"] = np.array(1)
    assert child["x"] == 1
    assert "x" in child
    parent["x"] = np.array(2)
    assert (child["x"], grandparent["x"]) == (2, 1)
    child["x"] = np.array(3)  # a write goes to the child itself, while a read searches the parents too
    assert (child["x"], parent["x"], grandparent["x"]) == (3, 2, 1)
    child.erase("x")
    assert child["x"] == 2
    with raises(pyfeed.errors.NotFoundError, 'variable "x": there is none in this scope'):
        child.erase("x")
    del grandparent, parent
    gc.collect()
    assert child["x"] == 2
    assert "y" not in child


def test_the_global_scope_is_one() -> None:
    assert global_scope() is global_scope()
    name = unique_name.generate("a_test")
    global_scope()[name] = np.array(5)
    try:
        assert Scope(global_scope())[name] == 5
    finally:
        global_scope().erase(name)
    assert name not in global_scope()


def test_unique_names() -> None:
    key = unique_name.generate("key")
    first, second = unique_name.generate(key), unique_name.generate(key)
    assert (first, second) == (f"{key}_0", f"{key}_1")
    names = together(*[lambda: [unique_name.generate(key) for _ in range(500)] for _ in range(4)])
    assert len(set(itertools.chain(*names))) == 2000


def test_erasing_drops_what_is_held() -> None:
    scope = Scope()
    before = pyfeed.diagnostics.memory_stats()["live_batch_bytes"]
    scope["x"] = np.zeros(1000)
    assert pyfeed.diagnostics.memory_stats()["live_batch_bytes"] == before + 8000
    scope.erase("x")
    assert pyfeed.diagnostics.memory_stats()["live_batch_bytes"] == before
    scope["x"] = np.zeros(1000)
    del scope
    assert pyfeed.diagnostics.memory_stats()["live_batch_bytes"] == before


# ---- Queues and readers in variables ----


def test_holder_operator_and_read_op() -> None:
    """The steps that py_array_reader does in one call."""
    scope = Scope()
    queue = PyArrayFeedQueueHolder(scope, "feeder").init_once(4, [(-1, 2), (-1,)])
    scope.create_py_array_reader("reader", "feeder")
    scope.create_batch_reader("batches", "reader", 2)
    assert [scope.kind(name) for name in ("feeder", "reader", "batches")] == ["queue", "reader", "reader"]
    for i in range(3):
        queue.push((np.full((1, 2), i), np.array([i])))
    queue.close()
    scope.read("batches", ["image", "label"])
    assert scope["image"].tolist() == [[0, 0], [1, 1]]
    assert scope["label"].tolist() == [0, 1]
    scope.read(reader="batches", outs=("image", "label"), timeout=1)
    assert scope["label"].tolist() == [2]
    with raises(pyfeed.errors.EndOfData, "the end of the data: this pass has no more tuples"):
        scope.read("batches", ["image", "label"])
    assert scope["label"].tolist() == [2]  # unchanged


def test_the_read_op_moves() -> None:
    reader, queue = feed(1, [(-1,)])
    given = np.arange(1000.0)
    queue.push((given,), copy=False)
    reader.scope.read(reader.name, ["x"])
    found = reader.scope["x"]
    assert found.ctypes.data == given.ctypes.data
    assert not given.flags.writeable
    del found
    reader.scope.erase("x")
    assert given.flags.writeable


def test_the_read_op_writes_where_a_name_is_found() -> None:
    parent = Scope()
    parent["x"] = np.array([1.0])
    child = Scope(parent)
    reader, queue = py_array_reader(1, [(2,), (2,)], scope=child)
    queue.push((np.full(2, 5.0), np.full(2, 6.0)))
    child.read(reader.name, ["x", "y"])
    assert parent["x"].tolist() == [5, 5]
    assert "y" not in parent
    assert child["y"].tolist() == [6, 6]


def test_the_read_op_can_run_over_what_is_there() -> None:
    reader, queue = feed(1)
    scope = reader.scope
    scope["x"] = np.zeros(5, np.int8)
    kept = scope["x"]
    queue.push(tuple_of(4))
    scope.read(reader.name, ["x"])
    assert scope["x"].tolist() == [4, 4]
    assert kept.tolist() == [0] * 5
    queue.push(tuple_of(5))
    py_array_reader(1, [(2,)], scope=scope, name="q")
    scope.create_batch_reader("b", reader.name, 2)
    scope.read(reader.name, ["b"])  # replaces the reader in the variable
    assert scope.kind("b") == "tensor"


def test_the_read_op_waits_and_is_woken() -> None:
    reader, queue = feed()
    reading = Background(lambda: reader.scope.read(reader.name, ["x"]))
    wait_for_consumers(queue)
    queue.push(tuple_of(3))
    reading.result()
    assert reader.scope["x"].tolist() == [3, 3]
    reading = Background(lambda: reader.scope.read(reader.name, ["x"]))
    wait_for_consumers(queue)
    queue.fail(KeyError("the producer's"))
    with pytest.raises(KeyError, match="the producer's"):
        reading.result()


def test_a_queue_is_found_by_its_variable() -> None:
    scope = Scope()
    made = PyArrayFeedQueueHolder(scope, "q").init_once(2, [(2,)])
    found = PyArrayFeedQueueHolder(Scope(scope), "q").feeder()
    assert found is not made
    found.push(tuple_of(1))
    assert made.pop()[0].tolist() == [1, 1]
    with raises(pyfeed.errors.StateError, "init_once: this holder's queue was made already, with capacity 2"):
        PyArrayFeedQueueHolder(scope, "q").init_once(3, [(2,)])
    del made
    found.push(tuple_of(2))
    scope.create_py_array_reader("r", "q")
    found.fail(KeyError("kept by whoever failed it"))
    reader = Reader.in_variable(scope, "r")
    assert next(reader)[0].tolist() == [2, 2]
    with pytest.raises(KeyError):
        next(reader)


def test_an_exception_that_nobody_keeps_is_told_of() -> None:
    """The variable outlives the Python queue whose fail was called. Readers then get the exception as text."""
    scope = Scope()
    PyArrayFeedQueueHolder(scope, "q").init_once(2, [(2,)]).fail(KeyError("lost"))
    gc.collect()
    scope.create_py_array_reader("r", "q")
    with pytest.raises(pyfeed.errors.ProducerError) as caught:
        scope.read("r", ["x"])
    assert str(caught.value) == "the producer failed: KeyError: 'lost'"
    assert (caught.value.cause_type, caught.value.cause_message) == ("KeyError", "'lost'")
    assert caught.value.cause_traceback == "KeyError: 'lost'\n"


def test_variables_go_with_their_objects() -> None:
    scope = Scope()
    reader, queue = py_array_reader(1, [(2,)], scope=scope, name="train")
    assert reader.name == "train_reader"
    assert repr(reader).startswith("<Reader 'train_reader': ")
    assert reader.scope is scope
    batch = reader.batch(2)
    names = ["train", reader.name, batch.name]
    assert all(name in scope for name in names)
    name = batch.name
    del batch
    assert name not in scope
    del reader
    assert "train_reader" not in scope
    assert "train" in scope
    del queue
    assert "train" not in scope
    reader, queue = py_array_reader(1, [(2,)], scope=scope, name="train")
    queue.push(tuple_of(1))
    assert reader.read()[0].tolist() == [1, 1]


def test_erased_variables_do_not_take_the_objects_with_them() -> None:
    scope = Scope()
    reader, queue = py_array_reader(2, [(2,)], scope=scope, name="q")
    batch = reader.batch(2)
    for name in ("q", "q_reader", batch.name):
        scope.erase(name)
    queue.push(tuple_of(1))
    queue.push(tuple_of(2))
    queue.close()
    assert [x.tolist() for (x,) in batch] == [[[1, 1], [2, 2]]]


def test_a_reader_lives_on_in_what_was_made_of_it() -> None:
    reader, queue = feed(4)
    batch = reader.batch(2)
    del reader
    gc.collect()
    for i in range(4):
        queue.push(tuple_of(i))
    queue.close()
    del queue
    gc.collect()
    assert values_in(batch) == [0, 2]


def test_many_threads_in_one_scope() -> None:
    scope = Scope()

    def work(worker: int) -> None:
        for i in range(200):
            scope["shared"] = np.full(10, worker)
            found = scope["shared"]
            assert np.all(found == found[0])
            name = f"{worker}_{i}"
            scope[name] = np.array(i)
            assert scope[name] == i
            scope.erase(name)

    together(*[lambda i=i: work(i) for i in range(4)])
    scope.erase("shared")


def test_handles_are_numbers() -> None:
    reader, queue = feed()
    scope = reader.scope
    numbers = [reader.handle, queue.handle, scope.handle]
    assert len(set(numbers)) == 3
    assert all(isinstance(n, int) and n > 0 for n in numbers)
    for thing in (reader, queue, scope):
        with pytest.raises(AttributeError):
            thing.handle = 1  # type: ignore[misc]


def test_the_order_of_the_design() -> None:
    scope = Scope()
    variable = scope.var("feeder")
    assert (variable.name, variable.kind, variable.scope) == ("feeder", "empty", scope)
    queue = PyArrayFeedQueueHolder(variable).init_once(2, [(-1,)], pyfeed.CPUPlace())
    assert scope.var("feeder").kind == "queue"
    assert PyArrayFeedQueueHolder(scope, "feeder").feeder().handle
    assert queue.capacity() == 2
    scope.var("x").set_tensor(np.arange(3))
    assert scope.var("x").get_tensor().tolist() == [0, 1, 2]
    with raises(pyfeed.errors.InvalidArgument, "name: expected None with a variable, which has a name, found 'x'"):
        PyArrayFeedQueueHolder(variable, "x")
    with raises(pyfeed.errors.ArgumentTypeError, "name: expected the name of a variable of the scope, found None"):
        PyArrayFeedQueueHolder(scope)


def test_the_feeder_of_a_reader() -> None:
    scope = Scope()
    reader, queue = pyfeed.py_array_reader(2, [(-1,)], pyfeed.CPUPlace(), scope=scope)
    assert reader.feeder() is queue
    assert reader.map(lambda x: x).batch(2).double_buffer().feeder() is queue
    other = pyfeed.random_data([(2,)], scope=scope)
    for without in (other, reader.zip(other), pyfeed.Reader.in_variable(scope, reader.name)):
        with raises(
            pyfeed.errors.StateError,
            f"feeder: expected a reader of a PyArrayFeedQueue, found another, {without.name!r}",
        ):
            without.feeder()
