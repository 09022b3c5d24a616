"""Wrong arguments: the errors of all public functions name the argument, the expected value and the found one."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyfeed
from pyfeed import CPUPlace, LoDTensor, Program, PyArrayFeedQueueHolder, Scope, _open, layers, typing

from .argument_table import faults, parameters, public, rows
from .support import feed, raises, tuple_of

TABLE = rows()


def test_the_table_has_all_there_is() -> None:
    assert {name: " ".join(parameters(function)) for name, function in public()} == TABLE


def test_the_defaults_of_reading_are_stated_alike() -> None:
    for function in (pyfeed.open_files, layers.open_files):
        defaults = {n: p.default for n, p in inspect.signature(function).parameters.items()}
        assert {name: defaults[name] for name in _open.READ_DEFAULTS} == _open.READ_DEFAULTS
    assert _open.READ_DEFAULTS.keys() == _open.READ_CHECKS.keys()
    assert {*typing.ReadOptions.__annotations__} == {*_open.READ_DEFAULTS, "as_dict", "name", "scope"}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """An object of each class that has methods. The wrong calls do not change the objects."""
    scope = Scope()
    reader, queue = feed()
    scope["x"] = np.zeros(2)
    shared = pyfeed.shared.SharedFeedQueue([(2,)], dtypes=["float64"], scope=scope)
    folder = tmp_path_factory.mktemp("arguments")
    with contextlib.ExitStack() as stack:
        trace = stack.enter_context(pyfeed.diagnostics.trace())
        trace.stop()
        writer = pyfeed.open_writer(folder / "x.npy")
        stack.callback(writer.abort)
        program = Program()
        stack.enter_context(pyfeed.program.program_guard(program, Program()))
        condition = layers.fill_constant([], "bool", True)
        yield {
            "CancelToken": pyfeed.program.CancelToken(),
            "Executor": pyfeed.Executor(),
            "Kernel": pyfeed.program.kernels.register_kernel("of the table of arguments", lambda: None),
            "LoDTensor": LoDTensor(np.zeros(2), [[0, 2]]),
            "Program": program,
            "PyArrayFeedQueue": queue,
            "PyArrayFeedQueueHolder": PyArrayFeedQueueHolder(Scope(), "q"),
            "Reader": reader,
            "Scope": scope,
            "ScopeVariable": scope.var("x"),
            "SharedFeedQueue": shared,
            "StagingBuffer": pyfeed.staging.get_buffer(CPUPlace(), 2),
            "Trace": trace,
            "Writer": writer,
            "layers.IfElse": layers.IfElse(condition),
            "layers.While": layers.While(condition),
        }
    del reader, queue, shared


RIGHT: dict[str, Any] = {
    "dataset": [1, 2],
    "after": 0,
    "array": np.zeros(2),
    "arrays": (np.zeros(2),),
    "batch_size": 2,
    "buffer_size": 2,
    "capacity": 2,
    "cond": "condition",
    "data": np.zeros(2),
    "dims": [(2,)],
    "dtype": "int64",
    "dtypes": ["int64"],
    "exception": ValueError("x"),
    "exit_status": 0,
    "feeder_name": "q",
    "filename": "no_such_file.npy",
    "filenames": "no_such_file.npy",
    "function": lambda *_: [],
    "input": "x",
    "items": b"x",
    "kernel": "k",
    "key": "k",
    "lengths": [[2]],
    "main": Program(),
    "name": "x",
    "num_parts": 2,
    "num_producers": 1,
    "num_workers": 1,
    "out": "x",
    "outs": ["x"],
    "path": "no_such_file",
    "pass_num": 1,
    "pid": 1,
    "place": CPUPlace(),
    "rank": 0,
    "reader": "r",
    "scope": Scope(),
    "sequences": [np.zeros(2)],
    "shape": [2],
    "shapes": [(2,)],
    "stage": "s",
    "state": "x",
    "tag": "t",
    "target": print,
    "tensors": [LoDTensor(np.zeros(2))],
    "text": "{}",
    "value": 0,
    "world": 1,
    "x": "x",
    "y": "x",
}


@pytest.mark.parametrize("name", [name for name in TABLE if not name.startswith("cuda.DeviceArray.")])
def test_wrong_arguments(name: str, objects: dict[str, Any]) -> None:
    functions = dict(public())
    function = functions[name]
    kind, _, method = name.rpartition(".")
    if kind in objects:
        function = getattr(objects[kind], method)
    assert [fault for fault in faults(name, function, RIGHT) if fault] == []


# ---- Arguments of single functions -----------------------------------------------------------


def test_the_shape_of_one_slot_is_no_sequence_of_shapes() -> None:
    expected = "shapes: expected a sequence of shapes, one for each slot, such as [(-1, 784), (-1,)], found "
    for shapes in ([5], (-1, 2), (np.int64(3),)):
        with raises(pyfeed.errors.ArgumentTypeError, expected + repr(shapes)):
            feed(2, shapes)  # type: ignore[arg-type]
    with raises(
        pyfeed.errors.ArgumentTypeError, "shapes: slot 1: dimension 0: expected a size or -1, found 'a'", slot=1
    ):
        feed(2, [(2,), ("a",)])  # type: ignore[list-item]


def test_a_keyword_is_told_by_the_function_that_lacks_it(tmp_path: Path) -> None:
    with pytest.raises(
        pyfeed.errors.ArgumentTypeError, match=r"^open_csv: expected one of .*, found 'headr': did you mean 'header'\?$"
    ):
        pyfeed.open_csv(tmp_path / "a.csv", headr=True)  # type: ignore[call-arg]
    np.save(tmp_path / "x.npy", np.zeros(2))
    for function in (pyfeed.open_files, layers.open_files):
        with pytest.raises(pyfeed.errors.InvalidArgument, match='"rows"; there are instances'):
            function(tmp_path / "x.npy", rows=1)


def test_what_follows_the_place_is_given_by_keyword() -> None:
    message = (
        "py_array_reader: expected at most 3 positional arguments (capacity, shapes, place), found 4: "
        "give dtypes, bytes_limit, lod_levels, names, as_dict, name, scope by keyword"
    )
    with raises(pyfeed.errors.ArgumentTypeError, message, also=TypeError):
        pyfeed.py_array_reader(2, [(2,)], CPUPlace(), ["int64"])  # type: ignore[call-arg]
    message = "place: expected a Place, found ['int64']: dtypes are given by name, dtypes=['int64']"
    with raises(pyfeed.errors.ArgumentTypeError, message, also=TypeError):
        pyfeed.from_generator(lambda: [], [(2,)], ["int64"])  # type: ignore[arg-type]


def test_a_producer_that_yields_nothing_to_go_through() -> None:
    def forgot_to_yield(worker: int) -> None:
        tuple_of(worker)

    message = "function: expected {} to be a generator, or to return an iterable of tuples of arrays, found None"
    message = message.format(forgot_to_yield.__qualname__)
    reader, queue = feed()
    (thread,) = queue.produce(forgot_to_yield)  # type: ignore[arg-type]
    thread.join()
    with raises(pyfeed.errors.ArgumentTypeError, message):
        reader.read()
    function: Any = lambda: forgot_to_yield(0)  # noqa: E731
    generated = pyfeed.from_generator(function, [(2,)], scope=Scope())
    with pytest.raises(pyfeed.errors.ArgumentTypeError, match="found None"):
        generated.read()


def test_names_in_brackets() -> None:
    scope = Scope()
    for name in (3, None, b"x", "a\0b", "\udcff"):
        for call in (lambda name=name: scope[name], lambda name=name: scope.__setitem__(name, np.zeros(1))):
            with pytest.raises(pyfeed.errors.InvalidArgument, match=r"^name: expected .*, found"):
                call()
        assert name not in scope


def test_functions_keep_their_names_and_signatures() -> None:
    assert pyfeed.open_csv.__name__ == "open_csv"
    assert "header" in parameters(pyfeed.open_csv)
    assert pyfeed.open_csv.__doc__


def test_names_that_are_elsewhere() -> None:
    for name, hint in {
        "QueueClosed": ": did you mean pyfeed.errors.QueueClosed?",
        "SharedFeedQueue": ": did you mean pyfeed.shared.SharedFeedQueue?",
        "trace": ": did you mean pyfeed.diagnostics.trace?",
        "open_file": ": did you mean pyfeed.open_files?",
        "zzz": "",
    }.items():
        with pytest.raises(AttributeError) as info:
            getattr(pyfeed, name)
        assert str(info.value) == f"module 'pyfeed' has no attribute '{name}'{hint}"
        if hint:
            assert eval(hint.removeprefix(": did you mean ").removesuffix("?"), {"pyfeed": pyfeed})


def test_arguments_by_the_names_of_tf_data(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3))
    reader = pyfeed.open_files(tmp_path / "x.npy")
    message = "Reader.batch: expected one of the arguments batch_size, drop_last, ragged, found 'drop_remainder'"
    with raises(pyfeed.errors.ArgumentTypeError, f"{message}: did you mean 'drop_last'?"):
        reader.batch(2, drop_remainder=True)  # type: ignore[call-arg]
