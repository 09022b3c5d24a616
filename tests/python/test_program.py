"""Programs: their construction, their saved forms, and refused calls."""

from __future__ import annotations

import copy
import gzip
import importlib
import json
import os
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyfeed.program import Executor, Program, default_main_program, default_startup_program, layers, program_guard

import pyfeed
from pyfeed import Scope

from .support import Background, raises, together

PROTO = Path(__file__).parents[2] / "program/desc"


def example() -> tuple[Program, Program]:
    """Return a main program with a loop and a branch, which counts to ten, and a startup program with readers."""
    main, startup = Program(), Program()
    with program_guard(main, startup):
        reader = layers.batch(layers.random_data([(2,), ()], ["float32", "int64"], count=7, names=["x", "y"]), 3)
        i = layers.create_global_var([], 0, "int64", "i")
        ten = layers.fill_constant([], "int64", 10)
        go_on = layers.less_than(i, ten)
        with layers.While(go_on).block():
            branch = layers.IfElse(layers.has_next(reader))
            with branch.true_block():
                layers.read_file(reader, ["x", "y"])
            with branch.false_block():
                layers.reset(reader)
            layers.increment(i)
            layers.less_than(i, ten, cond=go_on)
    return main, startup


def count(main: Program, startup: Program) -> int:
    """Run the example; return the number to which it counts."""
    scope, executor = Scope(), Executor()
    executor.run(startup, scope=scope)
    executor.run(main, scope=scope, timeout=20)
    return int(scope["i"])


# ---- Saved forms ----


def saved(program: Program, path: Path) -> Program:
    program.save(path)
    return Program.load(str(path))


FORMS: dict[str, Callable[[Program, Path], Program]] = {
    "bytes": lambda p, _: Program.from_bytes(p.to_bytes()),
    "json": lambda p, _: Program.from_json(p.to_json()),
    "clone": lambda p, _: p.clone(),
    "pickle": lambda p, _: pickle.loads(pickle.dumps(p)),
    "copy": lambda p, _: copy.deepcopy(p),
    "file": lambda p, folder: saved(p, folder / "p.bin"),
    "json file": lambda p, folder: saved(p, folder / "p.json"),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_keep_everything(form: str, tmp_path: Path) -> None:
    main, startup = example()
    there = FORMS[form](main, tmp_path), FORMS[form](startup, tmp_path)
    for new, old in zip(there, (main, startup), strict=True):
        assert type(new) is Program
        assert new.to_json() == old.to_json()
        assert new.to_bytes() == old.to_bytes()
    assert count(*there) == 10
    with program_guard(*there):  # operators can be added to a loaded program
        layers.increment("i", 5)
    assert count(*there) == 15
    assert count(main, startup) == 10


def test_names_of_loaded_programs_are_not_taken() -> None:
    with pyfeed.unique_name.guard():
        main, _ = example()
    main = Program.from_bytes(main.to_bytes())
    startup = Program()
    with pyfeed.unique_name.guard(), program_guard(main, startup):
        reader = layers.batch(layers.random_data([(5,)]), 2)
        total = layers.create_global_var([], 0, "int64")
        x = layers.assign(layers.fill_constant([], "int64", 1))
    assert (reader.name, total.name, x.name) == ("layers.batch_1", "global_var_0", "assign_0")
    assert [s.shape for s in reader.slots or ()] == [(-1, 5)]


def test_saved_forms(tmp_path: Path) -> None:
    main, _ = example()
    main.save(tmp_path / "p.program")
    assert (tmp_path / "p.program").read_bytes() == main.to_bytes()
    main.save(tmp_path / "p.json")
    assert (tmp_path / "p.json").read_text().rstrip() == main.to_json().rstrip()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.json", "p.program"]


def test_json_is_for_people() -> None:
    program = Program()
    with program_guard(program):
        x = layers.data("x", [3], "int64")
        layers.increment(x, 2)
    line = layers_line(test_json_is_for_people, "layers.increment")
    assert json.loads(program.to_json()) == {
        "version": 1,
        "blocks": [
            {
                "parent": -1,
                "variables": [
                    {"name": "x", "kind": "tensor", "dtype": "int64", "dims": [-1, 3]},
                ],
                "ops": [
                    {
                        "type": "increment",
                        "inputs": ["x"],
                        "outputs": ["x"],
                        "attributes": {"step": 2},
                        "where": f"test_program.py:{line}",
                    }
                ],
            }
        ],
    }
    edited = Program.from_json(program.to_json().replace('"step": 2', '"step": 40'))
    assert Executor().run(edited, Scope(), {"x": np.array([[1, 2, 3]])}, ["x"])[0].tolist() == [[41, 42, 43]]


def layers_line(function: Callable[..., Any], text: str) -> int:
    """Return the line in which a function has the text."""
    lines = Path(__file__).read_text().splitlines()
    first = function.__code__.co_firstlineno
    return next(n for n in range(first, len(lines)) if text in lines[n - 1])


def test_pictures() -> None:
    main, _ = example()
    mermaid, graphviz = main.to_mermaid(), main.to_graphviz()
    for text in mermaid, graphviz:
        assert {"while", "if_else", "has_next", "read", "reset", "less_than"} <= set(re.findall(r"\w+", text))
    assert mermaid.startswith("flowchart")
    assert graphviz.startswith("digraph")
    assert main._repr_mimebundle_() == {"text/plain": repr(main), "text/vnd.mermaid": mermaid}


# ---- Protobuf, with Google's library ----


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the classes of the saved form, compiled from its schema."""
    folder = tmp_path_factory.mktemp("proto")
    source = (PROTO / "program.proto").read_text()
    newer = source.replace("message Operator {", "message Operator {\n  string comment = 99;").replace(
        "message Program {", "message Program {\n  string author = 98;"
    )
    assert newer != source
    (folder / "program.proto").write_text(newer)
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--python_out={folder}", "program.proto"]
    subprocess.run(command, check=True, cwd=folder, timeout=100)
    sys.path.insert(0, str(folder))
    try:
        program_pb2 = importlib.import_module("program_pb2")
    finally:
        sys.path.remove(str(folder))
    return program_pb2


def test_google_s_protobuf_reads_what_is_saved(messages: Any, tmp_path: Path) -> None:
    main, startup = example()
    startup.save(tmp_path / "startup")
    saved = messages.Program.FromString((tmp_path / "startup").read_bytes())
    assert saved.version == 1
    assert [b.parent for b in saved.blocks] == [-1]
    reader, batch, number = saved.blocks[0].variables
    assert (reader.kind, reader.persistable, number.name) == (messages.READER, True, "i")
    assert [(s.name, s.dtype, list(s.shape.dims)) for s in reader.slots.slots] == [
        ("x", "float32", [2]),
        ("y", "int64", []),
    ]
    assert [list(s.shape.dims) for s in batch.slots.slots] == [[-1, 2], [-1]]
    assert (number.dtype, list(number.shape.dims), number.persistable) == ("int64", [], True)
    op = saved.blocks[0].ops[1]
    assert (op.type, list(op.inputs), list(op.outputs)) == ("create_batch_reader", [reader.name], [batch.name])
    assert [(a.name, a.value.WhichOneof("kind")) for a in op.attributes] == [
        ("batch_size", "int"),
        ("drop_last", "bool"),
    ]
    assert op.attributes[0].value.int == 3
    assert op.where.startswith("test_program.py:")
    assert not saved.author
    loop = messages.Program.FromString(main.to_bytes())
    assert [b.parent for b in loop.blocks] == [-1, 0, 1, 1]
    assert loop.SerializeToString(deterministic=True) == main.to_bytes()


def test_what_google_s_protobuf_writes_is_loaded(messages: Any, tmp_path: Path) -> None:
    """The program was edited and has fields of a later version, which are kept."""
    main, startup = example()
    changed = messages.Program.FromString(main.to_bytes())
    changed.author = "somebody"
    for op in changed.blocks[0].ops:
        if op.type == "fill_constant":
            op.comment = "up to"
            (value,) = [a.value for a in op.attributes if a.name == "value"]
            value.int = 4
    (tmp_path / "changed").write_bytes(changed.SerializeToString())
    program = Program.load(tmp_path / "changed")
    assert count(program, startup) == 4
    for kept in (program, program.clone(), Program.from_bytes(program.to_bytes())):
        found = messages.Program.FromString(kept.to_bytes())
        assert found == changed
        assert found.author == "somebody"
        assert [op.comment for op in found.blocks[0].ops if op.comment] == ["up to"]


def test_another_version_is_refused_by_name(messages: Any) -> None:
    changed = messages.Program.FromString(example()[0].to_bytes())
    changed.version = 7
    with pytest.raises(pyfeed.errors.UnsupportedError, match=r"version: expected 1, found 7\b"):
        Program.from_bytes(changed.SerializeToString())
    text = example()[0].to_json().replace('"version": 1', '"version": 3')
    with pytest.raises(pyfeed.errors.UnsupportedError, match=r"version: expected 1, found 3\b"):
        Program.from_json(text)


# ---- Corrupt and adversarial files ----


def test_damaged_files(tmp_path: Path) -> None:
    data = example()[0].to_bytes()
    refused = 0
    for size in range(len(data)):
        try:
            Program.from_bytes(data[:size])
        except pyfeed.errors.Error:
            refused += 1
    assert refused > len(data) * 0.9
    with pytest.raises(pyfeed.errors.CorruptRecordError) as caught:
        Program.from_bytes(data[:-1])
    assert caught.value.offset is not None
    assert 0 <= caught.value.offset <= len(data)
    (tmp_path / "half").write_bytes(data[: len(data) // 2])
    with pytest.raises(pyfeed.errors.Error):
        Program.load(tmp_path / "half")
    with pytest.raises(pyfeed.errors.MissingFileError) as missing:
        Program.load(tmp_path / "none")
    assert missing.value.filename == str(tmp_path / "none")
    with pytest.raises(pyfeed.errors.MissingFileError):
        example()[0].save(tmp_path / "no folder" / "p")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "{}",
        '{"version": 1, "blocks": []}',
        '{"version": 1, "blocks": [{"parent": 0}]}',
        '{"version": 1, "blocks": [{"parent": -1, "ops": [{"type": "no such"}]}]}',
        '{"version": 1, "blocks": [{"parent": -1, "ops": [{"type": "reset", "inputs": ["r"]}]}]}',
        '{"version": 1, "blocks": [{"parent": -1, "variables": [{"name": "x", "dtype": "float33"}]}]}',
        '{"version": 1, "blocks": [{"parent": -1}], "more": 1}',
        '{"version": 1, "blocks": [{"parent": -1, "variables": [{"name": "c", "dtype": "bool", "dims": []}],'
        ' "ops": [{"type": "while", "inputs": ["c"], "attributes": {"block": 0}}]}]}',
    ],
)
def test_json_that_is_no_program(text: str) -> None:
    with pytest.raises(pyfeed.errors.Error) as caught:
        Program.from_json(text)
    assert str(caught.value)
    assert not isinstance(caught.value, pyfeed.errors.PoisonedError)


def test_operators_are_checked_as_they_are_added() -> None:
    program = Program()
    with program_guard(program):
        x, y = layers.data("x", [3]), layers.data("y", [3], "int64")
        with pytest.raises(pyfeed.errors.DTypeError) as wrong:
            layers.less_than(x, y)
        assert "less_than" in str(wrong.value)
        with pytest.raises(pyfeed.errors.NotFoundError, match='variable "nobody": there is none in block 0'):
            layers.increment("nobody")
        with pytest.raises(pyfeed.errors.NotFoundError):
            layers.assign("nobody")
        with pytest.raises(pyfeed.errors.Error, match="batch_size"):
            layers.batch(layers.random_data([()]), 0)
        with pytest.raises(pyfeed.errors.InvalidArgument, match="low"):
            layers.random_data([()], low=float("nan"))
        with pytest.raises(pyfeed.errors.Error):
            layers.reset(x)
    assert [op.type for op in program.blocks[0].operators] == []


# ---- Operators, blocks and variables ----


def test_blocks_variables_and_operators() -> None:
    main, startup = example()
    blocks = main.blocks
    assert [(b.number, b.parent) for b in blocks] == [(0, -1), (1, 0), (2, 1), (3, 1)]
    assert [op.type for op in blocks[0].operators] == ["fill_constant", "less_than", "while"]
    assert [op.type for op in blocks[1].operators] == ["has_next", "if_else", "increment", "less_than"]
    assert blocks[1].operators[1].attributes == {"true_block": 2, "false_block": 3}
    read = blocks[2].operators[0]
    assert (read.type, read.outputs, read.attributes) == ("read", ["x", "y"], {})
    assert read.where == f"test_program.py:{layers_line(example, 'layers.read_file')}"
    assert blocks[1].operators[1].where == f"test_program.py:{layers_line(example, 'layers.IfElse')}"
    assert [repr(v) for v in blocks[2].variables] == ["<Variable 'x': float32 (-1, 2)>", "<Variable 'y': int64 (-1,)>"]
    reader = startup.blocks[0].variables[0]
    assert (reader.kind, reader.persistable, reader.dtype, reader.shape) == ("reader", True, None, None)
    assert repr(reader) == f"<Variable {reader.name!r}: reader of 2 slots>"
    assert reader.slots == [pyfeed.typing.Slot("x", "float32", (2,), 0), pyfeed.typing.Slot("y", "int64", (), 0)]
    assert repr(main) == "<Program: 4 blocks, 8 variables, 9 operators>"
    assert repr(startup) == "<Program: 1 block, 3 variables, 3 operators>"
    assert repr(Program()) == "<Program: 1 block, 0 variables, 0 operators>"


def test_variables_by_name() -> None:
    main, _ = example()
    i = main.variable("i")
    assert (i.name, i.program, i.shape, i.dtype) == ("i", main, (), "int64")
    with raises(
        pyfeed.errors.NotFoundError, 'variable "x": there is none in block 0 or those around it', also=LookupError
    ):
        main.variable("x")  # a variable of the loop's body
    unknown = main._declare("unknown")
    assert (repr(unknown), unknown.shape, unknown.lod_level) == ("<Variable 'unknown': tensor>", None, 0)


def test_a_clone_goes_its_own_way() -> None:
    main, startup = example()
    other = main.clone()
    with program_guard(other):
        layers.increment("i", 100)
    assert count(main, startup) == 10
    assert count(other, startup) == 110
    assert other.handle != main.handle


# ---- Default programs ----


def test_guards() -> None:
    before = default_main_program(), default_startup_program()
    assert before == (default_main_program(), default_startup_program())
    assert before[0] is not before[1]
    main, startup, inner = Program(), Program(), Program()
    with program_guard(main, startup):
        assert (default_main_program(), default_startup_program()) == (main, startup)
        with program_guard(inner):
            assert (default_main_program(), default_startup_program()) == (inner, startup)
            # The guards do not change the current programs of other threads.
            assert Background(lambda: (default_main_program(), default_startup_program())).result() == before
        with pytest.raises(KeyError), program_guard(inner):
            raise KeyError
        assert default_main_program() is main
    assert (default_main_program(), default_startup_program()) == before
    with pytest.raises(TypeError, match="main: expected a Program, found None"), program_guard(None):  # type: ignore[arg-type]
        raise AssertionError
    with pytest.raises(TypeError, match="startup: expected a Program, found 3"), program_guard(main, 3):  # type: ignore[arg-type]
        raise AssertionError


def test_threads_that_build_programs_of_their_own() -> None:
    def build() -> int:
        return count(*example())

    assert together(*[build] * 8) == [10] * 8


@pytest.fixture
def threads_take_turns() -> Iterator[None]:
    """Make threads switch after every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("threads_take_turns")
def test_threads_that_build_one_program() -> None:
    """Each thread adds bodies, while another thread uses the program. All their operators are in the common block."""
    program, barrier, done = Program(), threading.Barrier(9), threading.Event()
    total = program._declare("total", dtype="int64", dims=[], persistable=True)

    def use() -> None:
        barrier.wait()
        while not done.is_set():
            Program.from_bytes(program.to_bytes())

    def build() -> None:
        with program_guard(program, Program()):
            barrier.wait()
            for _ in range(20):
                branch = layers.IfElse(layers.fill_constant([], "bool", 1))
                with branch.true_block():
                    layers.increment(total)
                with branch.false_block():
                    layers.increment(total, 1000)

    user = Background(use)
    together(*[build] * 8)
    done.set()
    user.result()
    scope = Scope()
    scope["total"] = np.array(0)
    Executor().run(program, scope=scope)
    assert int(scope["total"]) == 160
    assert [op.type for op in program.blocks[0].operators].count("if_else") == 160


def test_a_program_that_runs_while_it_grows() -> None:
    program, scope, executor = Program(), Scope(), Executor()
    with program_guard(program, Program()):
        x = layers.fill_constant([], "int64", 0)
    done = threading.Event()

    def run() -> list[int]:
        found = []
        while not done.is_set():
            found.append(int(executor.run(program, fetch=[x], scope=scope)[0]))
        return found

    def grow() -> None:
        with program_guard(program, Program()):
            for _ in range(200):
                layers.increment(x)
        done.set()

    runner = Background(run)
    grow()
    found = runner.result()
    assert found == sorted(found)
    assert int(executor.run(program, fetch=[x], scope=scope)[0]) == 200


# ---- Bounds ----


def test_deep_nesting() -> None:
    """Blocks can be nested exactly 100 deep."""

    def nested(depth: int) -> tuple[Program, pyfeed.program.Variable]:
        program = Program()
        with program_guard(program, Program()):
            x = layers.fill_constant([], "int64", 0)

            def nest(left: int) -> None:
                branch = layers.IfElse(layers.fill_constant([], "bool", 1))
                with branch.true_block():
                    layers.increment(x)
                    if left > 1:
                        nest(left - 1)

            nest(depth)
        return program, x

    program, x = nested(99)
    again = Program.from_bytes(program.to_bytes())
    assert int(Executor().run(again, fetch=[x], scope=Scope())[0]) == 99
    assert len(again.blocks) == 100
    with pytest.raises(pyfeed.errors.TooLargeError, match="nested at most 100 deep"):
        nested(100)


def test_the_same_lines_build_the_same_program() -> None:
    def build() -> tuple[bytes, bytes]:
        with pyfeed.unique_name.guard():
            main, startup = example()
        return main.to_bytes(), startup.to_bytes()

    before = pyfeed.unique_name.generate("a key")
    assert build() == build()
    with pyfeed.unique_name.guard():
        assert pyfeed.unique_name.generate("a key") == "a key_0"
        with pyfeed.unique_name.guard():
            assert [pyfeed.unique_name.generate("a key") for _ in range(2)] == ["a key_0", "a key_1"]
        assert pyfeed.unique_name.generate("a key") == "a key_1"
        # The guards do not affect other threads, and names of a scope's variables stay unique.
        assert Background(lambda: pyfeed.unique_name.generate("a key")).result() > before
        scope = Scope()
        readers = [pyfeed.random_data([()], count=1, scope=scope).batch(1) for _ in range(2)]
        assert len({r.name for r in readers}) == 2
    assert pyfeed.random_data([()], count=1, scope=scope).name not in {r._upstream.name for r in readers}  # type: ignore[attr-defined]


def test_a_pipe_is_neither_waited_for_nor_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for use in (Program().save, Program.load):
        with pytest.raises(pyfeed.errors.FileError, match="expected a file, found a pipe") as caught:
            use(pipe)
        assert caught.value.file == str(pipe)
    assert pipe.is_fifo()


def test_two_threads_leave_their_branches_to_whoever_uses_the_program() -> None:
    program = Program()
    ready = threading.Barrier(2)

    def branch(name: str) -> None:
        with program_guard(program):
            cond = layers.fill_constant([], "bool", 1)
            with layers.IfElse(cond).true_block():
                layers.assign(cond, out=name)
            ready.wait()

    threads = [threading.Thread(target=branch, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    operators = [op["type"] for op in json.loads(program.to_json())["blocks"][0]["ops"]]
    assert operators.count("if_else") == 2


def test_compressed_files(tmp_path: Path) -> None:
    program = Program()
    with program_guard(program):
        layers.fill_constant([3], "float32", 2)
    for name, magic, inside in (("p.json.gz", b"\x1f\x8b", b"{"), ("p.pb.gz", b"\x1f\x8b", b"\x08")):
        program.save(tmp_path / name)
        data = (tmp_path / name).read_bytes()
        assert data[:2] == magic
        assert gzip.decompress(data).startswith(inside)
        assert Program.load(tmp_path / name).to_bytes() == program.to_bytes()


def test_an_operator_that_is_refused_in_a_file_names_the_file(tmp_path: Path) -> None:
    program = Program()
    with program_guard(program):
        layers.increment(layers.fill_constant([], "int8", 1))
    path = tmp_path / "p.json"
    program.save(path)
    path.write_text(path.read_text().replace('"step": 1', '"step": 1000'))
    with pytest.raises(pyfeed.errors.DTypeError, match="block 0, op 1: increment") as caught:
        Program.load(path)
    assert caught.value.file == str(path)
    assert str(path) in str(caught.value)


def test_what_python_says_wrongly_has_no_place_in_a_file() -> None:
    with pytest.raises(pyfeed.errors.Error) as caught, program_guard(Program()):
        layers.fill_constant([1, 2], "float32", "seven")  # type: ignore[arg-type]
    assert caught.value.offset is None
    with pytest.raises(TypeError, match="text: expected a str, found b"):
        Program.from_json(b"{}")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"shape: expected a shape, such as .*, found 2"), program_guard(Program()):
        layers.fill_constant(2, "float32", 0)  # type: ignore[arg-type]


def test_numbers_that_are_infinite_or_none() -> None:
    program, got = Program(), []
    with program_guard(program):
        x = layers.fill_constant([], "float32", float("-inf"))
        y = layers.fill_constant([], "float64", float(np.float32("nan")))
        layers.call("attributes of a test", attributes={"a": np.inf, "b": [1.5, float("nan")], "c": {"d": -np.inf}})
    assert program.blocks[0].operators[0].attributes["value"] == -np.inf
    with pyfeed.program.kernels.register_kernel("attributes of a test", lambda **attributes: got.append(attributes)):
        found = Executor().run(Program.from_json(program.to_json()), fetch=[x.name, y.name])
    assert found[0] == -np.inf
    assert np.isnan(found[1])
    assert got[0]["a"] == np.inf
    assert got[0]["b"][0] == 1.5
    assert np.isnan(got[0]["b"][1])
    assert got[0]["c"] == {"d": -np.inf}
