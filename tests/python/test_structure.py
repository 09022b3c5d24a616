"""Tuples with names: dicts, and dicts and lists within them."""

from __future__ import annotations

import collections
import types
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import pyfeed
from pyfeed import from_generator, open_files, open_writer, py_array_reader, random_data
from pyfeed.shared import SharedFeedQueue

from .support import raises

NESTED = {"image": (2,), "meta": {"id": (), "boxes": [(), (3,)]}}


def value(i: int) -> dict[str, Any]:
    return {"image": np.full(2, i), "meta": {"id": np.int64(i), "boxes": [np.float32(i), np.arange(3) + i]}}


def plain(tree: Any) -> Any:
    """Return a structure with lists of numbers in place of arrays."""
    if isinstance(tree, dict):
        return {key: plain(one) for key, one in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(plain(one) for one in tree)
    return tree.tolist()


# ---- Names -----------------------------------------------------------------------------------


def test_every_reader_has_names(tmp_path: Path) -> None:
    assert random_data([(), ()], names=["x", "y"]).batch(2).shuffle(4).double_buffer().names == ("x", "y")
    assert random_data([(), ()]).names == ("slot0", "slot1")
    reader, _ = py_array_reader(1, [(), (), ()], names=["x", "", "z"])
    assert reader.names == ("x", "slot1", "z")
    assert [slot.name for slot in reader.slots] == ["x", "", "z"]
    assert random_data([()], names=["x"]).map(lambda x: (x, x), shapes=[(), ()], names=["a", "b"]).names == ("a", "b")
    assert random_data([()], names=["x"]).zip(random_data([()], names=["x"])).names == ("x", "x")
    np.savez(tmp_path / "a.npz", x=np.arange(2), y=np.arange(2))
    assert open_files(tmp_path / "a.npz").names == ("x", "y")
    queue = SharedFeedQueue([(), ()], dtypes=["int64", "int64"], names=["x", "y"])
    assert queue.reader.names == ("x", "y")
    assert from_generator(lambda: iter([]), [(), ()], names=["x", "y"]).names == ("x", "y")


def test_names_reach_the_library() -> None:
    reader, queue = py_array_reader(1, {"x": (), "y": {"z": ()}})
    assert [slot.name for slot in reader.slots] == ["x", "y.z"]
    holder = pyfeed.PyArrayFeedQueueHolder(pyfeed.Scope(), "q")
    holder.init_once(1, [()], names=["x"])
    other, queue = py_array_reader(1, [()], names=["é"])
    queue.push({"é": 1})
    assert other.read()[0] == 1


# ---- Dicts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "above",
    [
        lambda r: r,
        lambda r: r.batch(2),
        lambda r: r.shuffle(2, seed=1).batch(2).double_buffer(),
        lambda r: r.shard(0, world=1).multi_pass(2),
        lambda r: r.batch(2).split_batches(0, world=1),
        lambda r: r.map(lambda *d: d[0] if len(d) == 1 else d, num_threads=2),
    ],
)
def test_dicts_go_through_all_decorators(above: Any) -> None:
    flat, named = random_data([(2,), ()], names=["x", "y"], count=4), random_data({"x": (2,), "y": ()}, count=4)
    assert above(named).names == ("x", "y")
    assert [plain(d) for d in above(named)] == [{"x": x.tolist(), "y": y.tolist()} for x, y in above(flat)]


def test_every_way_to_read_gives_dicts() -> None:
    reader = random_data([(), ()], names=["x", "y"], as_dict=True, count=6)
    assert list(reader.read()) == ["x", "y"]
    assert list(next(reader)) == ["x", "y"]
    assert [list(d) for d in reader.current_pass()] == [["x", "y"]] * 4
    assert [list(d) for d in reader] == [["x", "y"]] * 6
    _, queue = py_array_reader(1, {"x": ()})
    queue.push({"x": 3})
    assert plain(queue.pop()) == {"x": 3}


def test_a_record_by_number_is_a_dict(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(4), y=np.arange(4) * 2)
    reader = open_files(tmp_path / "a.npz", index=True, as_dict=True)
    assert plain(reader[3]) == {"x": 3, "y": 6}


def test_a_slot_without_a_name_has_its_number() -> None:
    assert list(next(random_data([(), ()], names=["x", ""], as_dict=True))) == ["x", "slot1"]


def test_one_name_for_two_slots_makes_no_dict(tmp_path: Path) -> None:
    message = "names: expected another name for each slot, found 'x' for slots 0 and 1"
    with raises(pyfeed.errors.InvalidArgument, message):
        random_data([(), ()], names=["x", "x"], as_dict=True)
    (tmp_path / "a.csv").write_text("x,x\n1,2\n")
    with raises(pyfeed.errors.InvalidArgument, message):
        open_files(tmp_path / "a.csv", as_dict=True)
    assert len(open_files(tmp_path / "a.csv").read()) == 2
    with raises(
        pyfeed.errors.InvalidArgument, "names: expected another name for each slot, found 'a.b' for slots 0 and 1"
    ):
        py_array_reader(1, {"a.b": (), "a": {"b": ()}})


def test_dicts_of_readers_in_variables() -> None:
    reader = random_data([()], names=["x"], count=2)
    assert isinstance(reader.read(), tuple)
    assert list(pyfeed.Reader.in_variable(reader.scope, reader.name, as_dict=True).read()) == ["x"]


def test_dicts_are_joined_by_zip() -> None:
    x, y, z = random_data({"x": ()}), random_data({"y": {"a": (), "b": [()]}}), random_data([()])
    joined = x.zip(y)
    assert joined.names == ("x", "y.a", "y.b.0")
    found = next(joined)
    assert list(found) == ["x", "y"]
    assert list(found["y"]) == ["a", "b"]
    assert len(found["y"]["b"]) == 1
    assert [len(next(joined.batch(3))["x"])] == [3]
    with raises(
        pyfeed.errors.InvalidArgument, "zip: expected readers that all deliver dicts, or all tuples, found both"
    ):
        x.zip(z)
    with raises(pyfeed.errors.InvalidArgument, "zip: expected readers with different keys, found 'x' twice"):
        x.zip(random_data({"x": ()}))


# ---- Nested values ---------------------------------------------------------------------------


def test_nested_values_are_put_together_again() -> None:
    reader = from_generator(lambda: (value(i) for i in range(3)), NESTED)
    assert reader.names == ("image", "meta.id", "meta.boxes.0", "meta.boxes.1")
    assert [plain(v) for v in reader] == [plain(value(i)) for i in range(3)]
    (batch,) = reader.batch(3)
    assert plain(batch["meta"]["boxes"][1]) == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert type(batch["meta"]["boxes"]) is list


def test_a_tuple_may_have_dicts_in_it() -> None:
    shapes = [{"a": (), "b": ()}, (2,)]
    reader, queue = py_array_reader(2, shapes, dtypes=[{"a": "int32", "b": "int8"}, "float32"])
    queue.push(({"a": 1, "b": 2}, np.zeros(2, "float32")))
    inputs, label = reader.read()
    assert plain(inputs) == {"a": 1, "b": 2}
    assert label.shape == (2,)
    assert reader.names == ("0.a", "0.b", "1")
    queue.push(({"a": 1, "b": 2}, np.zeros(2, "float32")))
    doubled = reader.map(lambda inputs, label: ({"a": inputs["a"] * 2, "b": inputs["b"]}, label))
    assert plain(doubled.read()[0]) == {"a": 2, "b": 2}


def test_parts_of_dtypes_and_levels_may_be_left_out() -> None:
    reader, queue = py_array_reader(
        1, {"x": (), "y": {"t": (-1,), "n": ()}}, dtypes={"y": {"n": "int8"}}, lod_levels={"y": {"t": 1}}
    )
    assert [(s.dtype, s.lod_levels) for s in reader.slots] == [(None, 0), (None, 1), ("int8", 0)]
    queue.push({"x": 1.5, "y": {"t": "text", "n": 3}})
    found = reader.read()
    assert found["y"]["t"].bytes_list() == [b"text"]
    assert found["x"].dtype == np.float64
    for wrong in ({"z": "int8"}, {"y": "int8"}, {"y": {"z": "int8"}}, {"y": ["int8"]}):
        with pytest.raises(pyfeed.errors.SlotCountError, match=r"^dtypes"):
            py_array_reader(1, {"x": (), "y": {"t": (-1,), "n": ()}}, dtypes=wrong)
    reader, _ = py_array_reader(1, {"x": (), "y": ()}, dtypes=["int8", "int16"])
    assert [s.dtype for s in reader.slots] == ["int8", "int16"]


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        ({"image": 1}, "SlotCountError", "arrays: expected the keys ['image', 'meta'], found ['image']"),
        (
            {**value(1), "x": 1},
            "SlotCountError",
            "arrays: expected the keys ['image', 'meta'], found ['image', 'meta', 'x']",
        ),
        (
            {"image": 1, "label": 2},
            "SlotCountError",
            "arrays: expected the keys ['image', 'meta'], found ['image', 'label']",
        ),
        (
            {"image": 1, "meta": 2},
            "DTypeError",
            "arrays['meta']: expected a dict with the keys ['id', 'boxes'], found <class 'int'>",
        ),
        (
            {"image": 1, "meta": {"id": 1, "boxes": {}}},
            "DTypeError",
            "arrays['meta']['boxes']: expected a list or tuple of length 2, found <class 'dict'>",
        ),
        (
            {"image": 1, "meta": {"id": 1, "boxes": [1]}},
            "SlotCountError",
            "arrays['meta']['boxes']: expected the length 2, found 1",
        ),
        (7, "DTypeError", "arrays: expected a dict with the keys ['image', 'meta'], found <class 'int'>"),
    ],
)
def test_values_of_another_form(wrong: Any, kind: str, message: str) -> None:
    _, queue = py_array_reader(1, NESTED)
    with raises(getattr(pyfeed.errors, kind), message):
        queue.push(wrong)
    if isinstance(wrong, dict):
        reader = random_data({"x": ()}).map(lambda d: wrong, shapes=NESTED)
        with pytest.raises(getattr(pyfeed.errors, kind)) as caught:
            reader.read()
        assert str(caught.value) == message
    assert queue.stats()["pushed"] == 0


def test_mappings_of_other_classes_are_dicts() -> None:
    _, queue = py_array_reader(4, {"x": (), "y": ()})
    for mapping in (
        collections.OrderedDict(y=2, x=1),
        collections.defaultdict(int, x=1, y=2),
        collections.UserDict(x=1, y=2),
    ):
        queue.push(mapping)
        assert plain(queue.pop()) == {"x": 1, "y": 2}
    empty: collections.defaultdict[str, int] = collections.defaultdict(int)
    with pytest.raises(pyfeed.errors.SlotCountError):
        queue.push(empty)
    assert not empty


def test_a_dict_may_be_pushed_by_names_and_a_tuple_into_dicts() -> None:
    reader, queue = py_array_reader(2, [(), ()], names=["x", "y"])
    queue.push({"y": 2, "x": 1})
    queue.producer().push({"y": 2, "x": 1})
    assert [plain(queue.pop()), plain(queue.pop())] == [(1, 2)] * 2
    reader, queue = py_array_reader(2, {"x": (), "y": ()})
    queue.push((1, 2))
    queue.push([1, 2], copy=False)
    assert [plain(reader.read()), plain(reader.read())] == [{"x": 1, "y": 2}] * 2
    _, queue = py_array_reader(1, [(), ()], names=["x", ""])
    with raises(pyfeed.errors.DTypeError, None):
        queue.push({"x": 1, "": 2})


def test_a_value_that_changes_while_it_is_read() -> None:
    """The array's own code removes the other key: the push is refused, and nothing is read that is gone."""

    class Changing:
        __array_interface__ = property(lambda self: given.pop("y", None) and zero.__array_interface__)

    zero = np.zeros(())
    _, queue = py_array_reader(1, {"x": (), "y": ()})
    given: dict[str, Any] = {"x": Changing(), "y": np.ones(())}
    queue.push(given)
    assert plain(queue.pop()) == {"x": 0.0, "y": 1.0}
    assert list(given) == ["x"]


@pytest.mark.parametrize(
    "wrong", [{}, {"x": {}}, {1: ()}, {"x": {2: ()}}, [{"x": ()}, {}], {"x": "shape"}, {"x": 3}, {"x": [()], "y": None}]
)
def test_shapes_of_no_form(wrong: Any) -> None:
    with pytest.raises((pyfeed.errors.ArgumentTypeError, pyfeed.errors.InvalidArgument), match=r"^shapes"):
        py_array_reader(1, wrong)


def test_names_beside_keys_are_refused() -> None:
    with pytest.raises(pyfeed.errors.InvalidArgument, match=r"^names: expected none beside shapes with keys"):
        py_array_reader(1, {"x": ()}, names=["x"])


# ---- map -------------------------------------------------------------------------------------


def test_map_gets_and_returns_dicts() -> None:
    reader = random_data({"x": (2,), "y": ()}, {"y": "int64"}, high=9, count=5)
    same = reader.map(lambda d: {"y": d["y"], "x": d["x"]})
    assert [plain(d) for d in same] == [plain(d) for d in reader]
    summed = reader.map(lambda d: {"sum": d["x"].sum()}, shapes={"sum": ()}, dtypes={"sum": "float32"})
    assert [list(d) for d in summed] == [["sum"]] * 5
    assert summed.names == ("sum",)
    flat = reader.map(lambda d: (d["x"], d["y"]), as_dict=False)
    assert isinstance(next(iter(flat)), tuple)
    by_names = reader.map(lambda d: {"b": d["y"], "a": d["x"]}, shapes=[(2,), ()], names=["a", "b"])
    assert list(next(iter(by_names))) == ["a", "b"]
    tuples = random_data([(2,)], names=["x"], count=5)
    assert list(next(iter(tuples.map(lambda x: {"x": x}, as_dict=True)))) == ["x"]
    assert isinstance(next(iter(tuples.map(lambda x: {"x": x}))), tuple)


def test_the_position_in_dicts_is_kept() -> None:
    reader = random_data({"x": ()}, count=3).map(
        lambda d, position, rng: {"n": position[1], "r": rng.random()},
        shapes={"n": (), "r": ()},
        with_position=True,
        rng=True,
    )
    found = [plain(d) for d in reader]
    assert [d["n"] for d in found] == [0, 1, 2]
    reader.reset()
    reader.read()
    state = reader.state_dict()
    expected = plain(reader.read())
    reader.load_state_dict(state)
    assert plain(reader.read()) == expected


# ---- Worker processes ------------------------------------------------------------------------


def push_values(producer: Any, worker: int) -> None:
    for i in range(3):
        producer.push(value(i))
    producer.push((np.zeros(2), np.int64(0), np.float32(0), np.zeros(3, "int64")))


def yield_by_names(worker: int) -> Any:
    yield {"b": "two", "a": 1}


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_workers_push_dicts(method: str) -> None:
    dtypes = {"image": "int64", "meta": {"id": "int64", "boxes": ["float32", "int64"]}}
    queue = SharedFeedQueue(NESTED, dtypes=dtypes)
    queue.start(push_values, method=method)
    assert [plain(queue.pop()) for _ in range(3)] == [plain(value(i)) for i in range(3)]
    with pytest.raises(pyfeed.errors.ProducerError, match="expected int64, found float64"):
        queue.pop()
    queue = SharedFeedQueue([(), (-1,)], dtypes=["int8", "uint8"], lod_levels=[0, 1], names=["a", "b"], cell_bytes=1000)
    queue.start(yield_by_names, method=method)
    ((a, b),) = list(queue)
    assert a == 1
    assert a.dtype == np.int8
    assert b.bytes_list() == [b"two"]


# ---- Files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.csv", {}),
        ("a.npz", {}),
        ("a.arrow", {}),
        ("a.tar", {}),
        ("a.tfrecord", {"features": {"npy": "int64", "b.npy": {"dtype": "int64", "shape": [2]}}}),
    ],
)
def test_keys_become_names_in_files(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    with open_writer(tmp_path / name) as writer:
        for i in range(3):
            writer.write({"npy": i, "b": {"npy": np.arange(2) + i}})
        with pytest.raises(pyfeed.errors.SlotCountError):
            writer.write({"npy": 1})
        writer.write((3, np.arange(2) + 3))
    reader = open_files(tmp_path / name, as_dict=True, **options)
    if name == "a.csv":  # a column for each number
        assert [plain(d) for d in reader] == [{"npy": i, "b.npy_0": i, "b.npy_1": i + 1} for i in range(4)]
    else:
        assert [plain(d) for d in reader] == [{"npy": i, "b.npy": [i, i + 1]} for i in range(4)]


def test_a_writer_that_has_slots_keeps_its_names(tmp_path: Path) -> None:
    with open_writer(tmp_path / "a.csv", names=["x", "y"]) as writer:
        writer.write({"y": 2, "x": 1})
    assert (tmp_path / "a.csv").read_text() == "x,y\n1,2\n"
    with open_writer(tmp_path / "b.csv", shapes={"x": (), "y": ()}, dtypes={"x": "float32"}) as writer:
        writer.write({"y": 2, "x": 1})
    assert (tmp_path / "b.csv").read_text() == "x,y\n1.0,2\n"
    with open_writer(tmp_path / "c.csv") as writer:
        writer.write((1, 2))
        with raises(pyfeed.errors.DTypeError, None):
            writer.write({"x": 1, "y": 2})
    with open_writer(tmp_path / "d.npy") as writer:  # a format that stores no names
        writer.write({"x": 1})
    assert np.load(tmp_path / "d.npy").tolist() == [1]
    for wrong in ({}, {1: 2}, {"a.b": 1, "a": {"b": 2}}):
        with open_writer(tmp_path / "e.csv") as writer, pytest.raises(pyfeed.errors.Error):
            writer.write(wrong)  # type: ignore[arg-type]


# ---- Odd values ------------------------------------------------------------------------------


def test_too_deep_a_nesting_is_refused(tmp_path: Path) -> None:
    deep: Any = ()
    for _ in range(5000):
        deep = {"x": deep}
    with raises(pyfeed.errors.InvalidArgument, "shapes: expected a few levels of dicts and lists, found too many"):
        py_array_reader(1, deep)
    itself: dict[str, Any] = {}
    itself["x"] = itself
    with open_writer(tmp_path / "a.csv") as writer:
        with pytest.raises(pyfeed.errors.InvalidArgument, match="found too many"):
            writer.write(itself)
        writer.write({"x": 1})


@pytest.mark.parametrize("key", ["a\0b", "\ud800"])
def test_keys_that_the_library_cannot_hold(tmp_path: Path, key: str) -> None:
    with pytest.raises(pyfeed.errors.InvalidArgument, match="key: expected text"):
        py_array_reader(1, {key: ()})
    with open_writer(tmp_path / "a.csv") as writer:
        with pytest.raises(pyfeed.errors.InvalidArgument, match="key: expected text"):
            writer.write({key: 1})
        writer.write({"x": 1})


def test_levels_of_another_form() -> None:
    with pytest.raises(pyfeed.errors.SlotCountError, match=r"lod_levels\['a'\]: expected one value"):
        py_array_reader(1, {"a": (-1,)}, lod_levels={"a": {"b": 1}})


def test_named_tuples_become_tuples() -> None:
    class Point(NamedTuple):
        x: Any
        y: Any

    _, queue = py_array_reader(1, {"p": Point({"a": ()}, ())})
    queue.push({"p": Point({"a": 1}, 2)})
    assert plain(queue.pop()) == {"p": ({"a": 1}, 2)}


def test_paths_that_meet_in_a_zip() -> None:
    message = "names: expected another name for each slot, found 'a.b' for slots 0 and 1"
    with raises(pyfeed.errors.InvalidArgument, message):
        random_data({"a": {"b": ()}}).zip(random_data({"a.b": ()}))


def test_mappings_are_pushed_by_names() -> None:
    _, queue = py_array_reader(1, [(), ()], names=["x", "y"])
    queue.push(types.MappingProxyType({"y": 2, "x": 1}))
    assert plain(queue.pop()) == (1, 2)
