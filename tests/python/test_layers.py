"""All layers, tested by running them; and complete training programs, compared with readers used without a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyfeed.program import Executor, Program, Variable, layers, program_guard

import pyfeed
from pyfeed import LoDTensor, Scope

from .support import Array, Background, raises, run, same, wait_for_consumers


class Built:
    """Two programs, a scope and an executor."""

    def __init__(self) -> None:
        self.main, self.startup = Program(), Program()
        self.scope, self.executor = Scope(), Executor()

    def start(self) -> None:
        assert self.executor.run(self.startup, scope=self.scope, timeout=20) == ()

    def run(self, *fetch: Any, **feed: Any) -> tuple[Any, ...]:
        return self.executor.run(self.main, self.scope, feed, fetch, timeout=20)


@pytest.fixture
def built() -> Iterator[Built]:
    built = Built()
    with program_guard(built.main, built.startup):
        yield built
    built.__dict__.clear()


def f32(*values: Any) -> Array:
    return np.array(values, np.float32)


# ---- Tensors ----


def test_fill_constant_and_assign(built: Built) -> None:
    x = layers.fill_constant([2, 3], "float32", 2.5)
    y = layers.assign(x)
    assert (y.shape, y.dtype, y.lod_level, y.kind, y.persistable) == ((2, 3), "float32", 0, "tensor", False)
    same(built.run(y)[0], np.full((2, 3), 2.5, np.float32))


@pytest.mark.parametrize(
    ("dtype", "value"), [("bool", True), ("bool", 0), ("int8", -5), ("uint64", 2**62), ("float16", 0.5)]
)
def test_constants_of_every_kind(built: Built, dtype: str, value: float) -> None:
    x = layers.fill_constant([], dtype, value)
    same(built.run(x)[0], np.array(value, dtype))


def test_assign_shares_and_writes_do_not_cross(built: Built) -> None:
    x = layers.data("x", [3], "int64")
    y = layers.assign(x)
    layers.increment(x, 5)
    z = layers.assign(x, out="z")
    layers.increment(y, 100)
    found = built.run(x, y, z, x=np.array([[1, 2, 3]]))
    assert [a.tolist() for a in found] == [[[6, 7, 8]], [[101, 102, 103]], [[6, 7, 8]]]


def test_increment(built: Built) -> None:
    x = layers.fill_constant([2], "float64", 1)
    y = layers.increment(x, 0.25, in_place=False)
    assert layers.increment(x).name == x.name
    assert [a.tolist() for a in built.run(x, y)] == [[2.0, 2.0], [1.25, 1.25]]


COMPARISONS: dict[str, tuple[Callable[..., Variable], list[bool]]] = {
    "less_than": (layers.less_than, [True, False, False]),
    "less_equal": (layers.less_equal, [True, True, False]),
    "greater_than": (layers.greater_than, [False, False, True]),
    "greater_equal": (layers.greater_equal, [False, True, True]),
    "equal": (layers.equal, [False, True, False]),
    "not_equal": (layers.not_equal, [True, False, True]),
}


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("dtype", ["int64", "uint8", "float32"])
def test_comparisons(built: Built, name: str, dtype: str) -> None:
    compare, expected = COMPARISONS[name]
    x, y = layers.data("x", [3], dtype, append_batch_size=False), layers.fill_constant([], dtype, 2)
    cond = layers.variable("cond", [3], "bool")
    fresh = compare(x, y)
    assert compare(x, y, cond).name == "cond"
    assert (fresh.dtype, fresh.shape) == ("bool", (3,))
    for found in built.run(fresh, cond, x=np.array([1, 2, 3], dtype)):
        same(found, np.array(expected))


def test_logic(built: Built) -> None:
    x, y = (layers.data(n, [4], "bool", append_batch_size=False) for n in "xy")
    out = layers.logical_and(x, y), layers.logical_or(x, y), layers.logical_not(x)
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    for found, expected in zip(built.run(*out, x=a, y=b), (a & b, a | b, ~a), strict=True):
        same(found, expected)


def test_print(built: Built, capfd: pytest.CaptureFixture[str]) -> None:
    x = layers.data("x", [3], append_batch_size=False)
    layers.Print(x, message="here", summarize=2, first_n=1)
    built.run(x=f32(1, 2, 3))
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("here")
    assert "float32" in err
    assert "x" in err
    assert "1" in err
    assert "2" in err


def test_print_where_nobody_reads() -> None:
    out = run(
        """
        program = pyfeed.Program()
        with pyfeed.program.program_guard(program, pyfeed.Program()):
            pyfeed.layers.Print(pyfeed.layers.fill_constant([], "int64", 1))
        stderr, (reads, writes) = os.dup(2), os.pipe()
        os.close(reads)
        os.dup2(writes, 2)
        try:
            pyfeed.Executor().run(program)
        except pyfeed.errors.FileError as error:
            say("standard error" in str(error), error.op)
        os.dup2(stderr, 2)
        """
    )
    assert out == ["True block 0, op 1: print"]


# ---- Variables ----


def test_data_is_declared_as_fluid_does(built: Built) -> None:
    shapes = {
        "a": layers.data("a", [784]),
        "b": layers.data("b", [-1, 3], "int64"),
        "c": layers.data("c", [2, -1], np.uint8),
        "d": layers.data("d", [4], append_batch_size=False),
        "e": layers.data("e", [], "bool"),
    }
    assert {n: (v.shape, v.dtype) for n, v in shapes.items()} == {
        "a": ((-1, 784), "float32"),
        "b": ((-1, 3), "int64"),
        "c": ((2, -1), "uint8"),
        "d": ((4,), "float32"),
        "e": ((-1,), "bool"),
    }
    with raises(pyfeed.errors.StateError, 'variable "a": block 0 has one of that name', also=RuntimeError):
        layers.data("a", [1])


def test_levels_of_detail(built: Built) -> None:
    x = layers.data("x", [-1], "int64", lod_level=1)
    y = layers.assign(x)
    assert y.lod_level == 1
    (found,) = built.run(y, x=LoDTensor.from_lengths(np.arange(5), [[2, 3]]))
    assert isinstance(found, LoDTensor)
    assert found.recursive_sequence_lengths() == [[2, 3]]
    same(found.data, np.arange(5))


def test_persistable_variables_are_the_scopes(built: Built) -> None:
    total = layers.create_global_var([2], 10, "int64", "total")
    layers.increment(total)
    weights = layers.variable("weights", [2], "float32", persistable=True)
    doubled = layers.assign(weights)
    assert total.persistable
    built.start()
    built.scope["weights"] = f32(1, 2)
    for i in range(3):
        built.scope["weights"] = f32(i, 2)
        assert built.run(doubled)[0].tolist() == [i, 2]
    same(built.scope["total"], np.array([13, 13]))
    built.start()
    same(built.scope["total"], np.array([10, 10]))


def test_names_are_made_up_and_never_taken(built: Built) -> None:
    taken = pyfeed.unique_name.generate("assign")
    number = int(taken.rpartition("_")[2])
    x = layers.data("x", [1])
    layers.data(f"assign_{number + 1}", [1])
    made = layers.assign(x)
    assert made.name == f"assign_{number + 2}"


def test_variables_of_another_program(built: Built) -> None:
    x = layers.data("x", [1])
    reader = layers.random_data([(2,)], count=1)
    kept = layers.create_global_var([], 1, "int64", "kept")
    other = Program()
    with program_guard(other):
        message = (
            "variable 'x': expected one of the program that is built, or a persistable one, "
            "found one of another program"
        )
        with raises(pyfeed.errors.InvalidArgument, message, also=ValueError):
            layers.assign(x)
        layers.increment(kept, 4)
        y = layers.read_file(reader)
    built.start()
    assert built.executor.run(other, fetch=[y], scope=built.scope)[0].shape == (2,)
    assert int(built.scope["kept"]) == 5
    with program_guard(built.main.clone()):
        layers.assign(x)  # the clone has the variable too


def test_a_variable_has_no_value(built: Built) -> None:
    x = layers.data("x", [1])
    with pytest.raises(TypeError, match="variable 'x' has no value while the program is built: branch with"):
        bool(x)
    with pytest.raises(TypeError, match=r"expected a Variable or the name of one, found 3"):
        layers.less_than(x, 3)  # type: ignore[arg-type]


# ---- Control flow ----


def test_while_and_if_else(built: Built) -> None:
    n, zero, two = (layers.fill_constant([], "int64", v) for v in (7, 0, 2))
    odd, even = layers.fill_constant([], "int64", 0), layers.fill_constant([], "int64", 0)
    parity = layers.fill_constant([], "int64", 0)
    go_on = layers.greater_than(n, zero)
    with layers.While(go_on).block():
        layers.increment(parity)
        again = layers.IfElse(layers.equal(parity, two))
        with again.true_block():
            layers.increment(even)
            layers.fill_constant([], "int64", 0, out=parity)
        with again.false_block():
            layers.increment(odd)
        layers.increment(n, -1)
        layers.greater_than(n, zero, cond=go_on)
    assert [int(x) for x in built.run(odd, even, n)] == [4, 3, 0]


def test_loops_in_loops(built: Built) -> None:
    i, three, total = (layers.fill_constant([], "int64", v) for v in (0, 3, 0))
    outer = layers.less_than(i, three)
    with layers.While(outer).block():
        j = layers.fill_constant([], "int64", 0)
        inner = layers.less_than(j, i)
        with layers.While(inner).block():
            layers.increment(total)
            layers.increment(j)
            layers.less_than(j, i, cond=inner)
        layers.increment(i)
        layers.less_than(i, three, cond=outer)
    assert int(built.run(total)[0]) == 0 + 1 + 2


@pytest.mark.parametrize("branches", ["true", "false", "both", "both, false first"])
@pytest.mark.parametrize("holds", [True, False])
def test_branches_may_be_left_out(built: Built, branches: str, holds: bool) -> None:
    cond = layers.data("cond", [], "bool", append_batch_size=False)
    x = layers.fill_constant([], "int64", 0)
    branch = layers.IfElse(cond)
    blocks = {"true": branch.true_block, "false": branch.false_block}
    order = {"both": ["true", "false"], "both, false first": ["false", "true"]}.get(branches, [branches])
    for name in order:
        with blocks[name]():
            layers.increment(x, 1 if name == "true" else 2)
    layers.increment(x, 10)
    runs = ("true" if holds else "false") in order
    assert int(built.run(x, cond=np.array(holds))[0]) == 10 + (1 if holds else 2) * runs


def kinds(program: Program, block: int = 0) -> list[str]:
    return [op.type for op in program.blocks[block].operators]


def test_a_branch_is_complete_before_the_program_is_used(built: Built) -> None:
    cond = layers.fill_constant([], "bool", 1)
    uses: list[Callable[[], Any]] = [
        lambda: built.main.to_json(),
        lambda: built.main.to_bytes(),
        lambda: built.main.clone(),
        lambda: built.main.handle,
        lambda: built.run(),
        lambda: repr(built.main),
        lambda: layers.increment(layers.fill_constant([], "int64", 0)),
        lambda: layers.While(cond).block().__enter__(),
    ]
    for n, use in enumerate(uses, 1):
        branch = layers.IfElse(cond)
        with branch.true_block():
            layers.fill_constant([], "bool", 1)
        use()
        while built.main._block_stack.blocks[-1]:
            built.main._block_stack.blocks.pop()  # leaves the while loop that the case has begun
        message = (
            "IfElse: expected the false_block directly after the other block, "
            "found another use of the program between them: the branch has been added without it"
        )
        with raises(pyfeed.errors.StateError, message, also=RuntimeError), branch.false_block():
            raise AssertionError
        assert kinds(built.main).count("if_else") == n


def test_a_branch_is_complete_when_its_guard_is_left() -> None:
    program = Program()
    with program_guard(program):
        branch = layers.IfElse(layers.fill_constant([], "bool", 1))
        with branch.true_block():
            pass
    with raises(pyfeed.errors.StateError, None), branch.false_block():
        raise AssertionError

    def fail() -> None:
        with layers.IfElse(layers.fill_constant([], "bool", 1)).true_block():
            pass
        raise KeyError

    with pytest.raises(KeyError), program_guard(program):
        fail()
    # Another thread, which is not in the guard, sees the complete operators too.
    assert Background(lambda: kinds(program)).result() == ["fill_constant", "if_else"] * 2


def test_an_exception_in_a_body_leaves_no_operator(built: Built) -> None:
    cond = layers.fill_constant([], "bool", 0)
    x = layers.fill_constant([], "int64", 0)

    def spoil(block: Any) -> None:
        with pytest.raises(KeyError, match="mine"), block:
            raise KeyError("mine", layers.increment(x))

    spoil(layers.While(cond).block())
    spoil(layers.IfElse(cond).true_block())
    branch = layers.IfElse(cond)
    with branch.true_block():
        layers.increment(x)
    spoil(branch.false_block())
    assert kinds(built.main) == ["fill_constant", "fill_constant"]
    with branch.false_block():  # a second attempt
        layers.increment(x, 5)
    assert kinds(built.main) == ["fill_constant", "fill_constant", "if_else"]
    assert int(built.run(x)[0]) == 5
    copy = Program.from_json(built.main.to_json())
    assert built.executor.run(copy, fetch=[x])[0] == 5


def test_blocks_in_the_wrong_place(built: Built) -> None:
    cond = layers.fill_constant([], "bool", 0)
    loop, branch = layers.While(cond), layers.IfElse(cond)
    with loop.block():
        message = "IfElse: expected its block to begin in block 0, where it was made, found block 1"
        with raises(pyfeed.errors.StateError, message, also=RuntimeError), branch.true_block():
            raise AssertionError
    with raises(pyfeed.errors.StateError, "While: expected one block, found a second", also=RuntimeError), loop.block():
        raise AssertionError
    with branch.true_block():
        message = "IfElse: expected its block to begin in block 0, where it was made, found block 2"
        with raises(pyfeed.errors.StateError, message, also=RuntimeError), branch.false_block():
            raise AssertionError
    with raises(pyfeed.errors.StateError, "IfElse: expected one true_block, found a second"), branch.true_block():
        raise AssertionError
    with branch.false_block():
        pass
    with raises(pyfeed.errors.StateError, "IfElse: expected one false_block, found a second"), branch.false_block():
        raise AssertionError


def test_a_condition_that_is_none(built: Built) -> None:
    x = layers.fill_constant([], "int64", 0)
    with pytest.raises(pyfeed.errors.DTypeError, match="expected bool, found int64"), layers.While(x).block():
        layers.increment(x)
    y = layers.data("y", [2], "bool", append_batch_size=False)
    with pytest.raises(pyfeed.errors.ShapeError, match="expected one element"), layers.While(y).block():
        layers.increment(x)
    assert kinds(built.main) == ["fill_constant"]


# ---- Readers ----


def numbers(folder: Path, *, files: int = 3, rows: int = 7) -> list[str]:
    """Write files with two slots, a number and a vector. All rows differ."""
    paths = []
    for i in range(files):
        paths.append(str(folder / f"{i}.npz"))
        ids = np.arange(rows) + 100 * i
        np.savez(paths[-1], id=ids, x=np.stack([ids, -ids], 1).astype(np.float32) / 7)
    return paths


def equal(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> None:
    """Expect the same tuples, byte for byte, in the same order."""
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            if isinstance(b, LoDTensor):
                assert [level.tolist() for level in a.lod] == [level.tolist() for level in b.lod]
                same(np.asarray(a.data), np.asarray(b.data))
            else:
                same(a, b)


def drain(built: Built, reader: Any) -> list[tuple[Any, ...]]:
    """Run a program that reads one tuple until the end of the data; return the tuples."""
    outs = layers.read_file(reader)
    outs = outs if isinstance(outs, list) else [outs]
    built.start()
    found = []
    while True:
        try:
            found.append(built.run(*outs))
        except pyfeed.errors.EndOfData:
            return found


DECORATED: dict[str, tuple[Callable[[Any], Any], Callable[[pyfeed.Reader], pyfeed.Reader]]] = {
    "plain": (lambda r: r, lambda r: r),
    "shuffle": (lambda r: layers.shuffle(r, 5, 3), lambda r: r.shuffle(5, 3)),
    "batch": (lambda r: layers.batch(r, 4), lambda r: r.batch(4)),
    "drop_last": (lambda r: layers.batch(r, 4, drop_last=True), lambda r: r.batch(4, drop_last=True)),
    "multi_pass": (lambda r: layers.multi_pass(r, 3), lambda r: r.multi_pass(3)),
    "double_buffer": (lambda r: layers.double_buffer(r, pyfeed.CPUPlace(), 3), lambda r: r.double_buffer(depth=3)),
    "shard": (lambda r: layers.shard(r, 1, 3), lambda r: r.shard(1, 3)),
    "even shard": (lambda r: layers.shard(r, 1, 3, even="pad"), lambda r: r.shard(1, 3, even="pad")),
    "split_batches": (
        lambda r: layers.split_batches(layers.batch(r, 4), 1, 2, even="repeat"),
        lambda r: r.batch(4).split_batches(1, 2, even="repeat"),
    ),
    "a chain": (
        lambda r: layers.double_buffer(layers.multi_pass(layers.batch(layers.shuffle(r, 9, 1), 5), 2)),
        lambda r: r.shuffle(9, 1).batch(5).multi_pass(2).double_buffer(),
    ),
}


@pytest.mark.parametrize("name", DECORATED)
def test_readers_give_what_eager_ones_give(built: Built, name: str, tmp_path: Path) -> None:
    paths = numbers(tmp_path)
    layer, eager = DECORATED[name]
    expected = list(eager(pyfeed.open_files(paths, scope=Scope())))
    assert len(expected) > 3
    equal(drain(built, layer(layers.open_files(paths))), expected)


def test_zip(built: Built, tmp_path: Path) -> None:
    paths = numbers(tmp_path, files=2)
    scope = Scope()
    expected = list(pyfeed.open_files(paths[0], scope=scope).zip(pyfeed.open_files(paths[1], scope=scope)))
    reader = layers.zip(layers.open_files(paths[0]), layers.open_files(paths[1]), strict=True)
    equal(drain(built, reader), expected)


def test_random_data(built: Built) -> None:
    options: dict[str, Any] = {"low": -3, "high": 50, "seed": 4, "count": 6, "names": ["a", "b"]}
    expected = list(pyfeed.random_data([(3,), ()], ["float32", "int16"], scope=Scope(), **options))
    reader = layers.random_data([(3,), ()], ["float32", "int16"], **options)
    assert [(s.name, s.dtype, s.shape) for s in reader.slots or ()] == [("a", "float32", (3,)), ("b", "int16", ())]
    equal(drain(built, reader), expected)


def test_files_of_every_format(built: Built, tmp_path: Path) -> None:
    """The slots that are read from the files when the program is built are those of the tuples."""
    with pyfeed.open_writer(tmp_path / "a.recordio") as writer:
        for i in range(3):
            writer.write((np.full(2, i, np.float32), LoDTensor.from_lengths(np.arange(i + 1), [[i + 1]])))
    with pyfeed.open_writer(tmp_path / "a.tfrecord") as writer:
        for text in b"one", b"two":
            writer.write((text,))
    np.save(tmp_path / "a.npy", np.arange(6.0).reshape(3, 2))
    (tmp_path / "a.csv").write_text("x,y\n1,2.5\n3,4.5\n")
    for name in ("a.recordio", "a.tfrecord", "a.npy", "a.csv"):
        path, scope = tmp_path / name, Scope()
        main, startup = Program(), Program()
        with program_guard(main, startup):
            reader = layers.open_files(path, num_threads=0)
            outs = layers.read_file(reader)
        eager = pyfeed.open_files(path, scope=scope)
        assert reader.slots == eager.slots
        other = Scope()
        built.executor.run(startup, scope=other)
        expected = list(eager)
        assert expected
        found = [built.executor.run(main, fetch=outs, scope=other) for _ in expected]
        equal(found, expected)


def test_files_that_are_not_there_yet(built: Built, tmp_path: Path) -> None:
    path = tmp_path / "later.npy"
    with pytest.raises(pyfeed.errors.MissingFileError) as caught:
        layers.open_files(path)
    assert caught.value.__notes__ == [
        "layers.open_files opens the first file when the program is built: "
        "give shapes and dtypes to build the program without the file"
    ]
    reader = layers.open_files(path, shapes=[(2,)], dtypes=["float64"])
    x = layers.read_file(reader)
    with pytest.raises(pyfeed.errors.MissingFileError) as missing:
        built.start()
    assert missing.value.op == "block 0, op 0: open_files"
    np.save(path, np.arange(4.0).reshape(2, 2))
    built.start()
    same(built.run(x)[0], np.array([0.0, 1.0]))
    np.save(path, np.arange(4).reshape(2, 2))  # with another dtype than in the program
    built.start()
    with pytest.raises(pyfeed.errors.DTypeError, match="expected float64, found int64"):
        built.run(x)


def test_formats_options_and_csv_columns(built: Built, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1;2;3\n4;5;6\n")
    options: dict[str, Any] = {"format": "csv", "header": False, "delimiter": ";"}
    expected = list(pyfeed.open_files(tmp_path / "a.txt", scope=Scope(), **options))
    equal(drain(built, layers.open_files(tmp_path / "a.txt", **options)), expected)


def test_py_array_reader(built: Built) -> None:
    reader, queue = layers.py_array_reader(
        4, [(-1, 2), (-1,)], pyfeed.CPUPlace(), dtypes=["float32", "int64"], names=["x", "y"], scope=built.scope
    )
    x, y = layers.read_file(reader)
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((-1, 2), "float32", (-1,), "int64")
    built.start()
    waiting = Background(lambda: built.run(x, y))
    wait_for_consumers(queue)
    queue.push((f32([1, 2]), np.array([3])))
    found = waiting.result()
    same(found[0], f32([1, 2]))
    same(found[1], np.array([3]))
    queue.close()
    with pytest.raises(pyfeed.errors.EndOfData):
        built.run(x)


def test_dtypes_that_the_first_tuple_settles(built: Built) -> None:
    reader, queue = layers.py_array_reader(4, [(), (-1,)], lod_levels=[0, 1], scope=built.scope)
    assert reader.slots == [pyfeed.typing.Slot("", None, (), 0), pyfeed.typing.Slot("", None, (-1,), 1)]
    batch = layers.batch(reader, 2)
    assert [(s.dtype, s.shape, s.lod_levels) for s in batch.slots or ()] == [(None, (-1,), 0), (None, (-1,), 1)]
    x, y = layers.read_file(batch)
    assert (x.dtype, x.shape, y.lod_level) == (None, (-1,), 1)
    built.start()
    for i in 1, 2:
        queue.push((np.array(i, np.int8), LoDTensor.from_sequences([np.full(i, i, np.float16)])))
    first, second = built.run(x, y)
    same(first, np.array([1, 2], np.int8))
    assert second.recursive_sequence_lengths() == [[1, 2]]
    same(second.data, np.array([1, 2, 2], np.float16))


def test_eager_readers_may_be_read(built: Built, tmp_path: Path) -> None:
    paths = numbers(tmp_path)
    expected = list(pyfeed.open_files(paths, scope=Scope()).shuffle(4).batch(3))
    eager = pyfeed.open_files(paths, scope=built.scope).shuffle(4)
    equal(drain(built, layers.batch(eager, 3)), expected)
    # The main program uses an eager reader directly, and keeps it alive.
    again = pyfeed.open_files(paths, scope=built.scope).batch(3)
    name = again.name
    main = Program()
    with program_guard(main):
        out = layers.read_file(again)
        del again
        equal(
            [built.executor.run(main, fetch=out, scope=built.scope)],
            list(pyfeed.open_files(paths, scope=Scope()).batch(3))[:1],
        )
    assert name in built.scope


def test_generators_are_started_over_by_the_program(built: Built) -> None:
    starts: list[int] = []

    def numbers() -> Iterator[tuple[Array]]:
        starts.append(len(starts))
        for i in range(3):
            yield (np.array(10 * starts[-1] + i),)

    reader = pyfeed.from_generator(numbers, [()], dtypes=["int64"], scope=built.scope)
    doubled = layers.double_buffer(reader)
    passes, three = (layers.fill_constant([], "int64", n) for n in (0, 3))
    go_on = layers.less_than(passes, three)
    with layers.While(go_on).block():
        branch = layers.IfElse(layers.has_next(doubled))
        with branch.true_block():
            layers.call("keep", layers.read_file(doubled))
        with branch.false_block():
            layers.reset(doubled)
            layers.increment(passes)
            layers.less_than(passes, three, cond=go_on)
    built.start()
    found: list[int] = []
    with pyfeed.program.kernels.register_kernel("keep", lambda x: found.append(int(x))):
        built.run()
    assert found == [0, 1, 2, 10, 11, 12, 20, 21, 22]


def test_read_into_variables_by_name(built: Built, tmp_path: Path) -> None:
    paths = numbers(tmp_path, files=1)
    reader = layers.open_files(paths)
    mine = layers.variable("mine", persistable=True)
    made = layers.read_file(reader, ["fresh", mine])
    assert [v.name for v in made] == ["fresh", "mine"]
    built.start()
    built.run()
    assert built.scope["mine"].tolist() == [0, 0]
    with pytest.raises(pyfeed.errors.SlotCountError, match="2"):
        layers.read_file(reader, ["one"])
    unknown = built.main._declare("unknown", block=0, kind="reader", persistable=True)
    message = (
        "read_file: expected names, one for each slot, because the slots of reader 'unknown' are not known, found none"
    )
    with raises(pyfeed.errors.InvalidArgument, message, also=ValueError):
        layers.read_file(unknown)
    x, y = layers.read_file(unknown, ["p", "q"])
    assert (x.shape, y.dtype) == (None, None)


def test_has_next_and_reset(built: Built) -> None:
    reader = layers.random_data([()], ["int64"], high=9, count=2)
    more = layers.has_next(reader)
    branch = layers.IfElse(more)
    with branch.true_block():
        layers.read_file(reader, ["x"])
    with branch.false_block():
        layers.reset(reader)
    built.start()
    assert [bool(built.run(more)[0]) for _ in range(7)] == [True, True, False, True, True, False, True]


# ---- Training programs ----


@pytest.mark.parametrize("passes", [1, 3])
def test_the_listing_with_has_next_and_reset(built: Built, tmp_path: Path, passes: int) -> None:
    paths = numbers(tmp_path)
    multiple_reader = layers.open_files(paths)
    batch_reader = layers.batch(layers.shuffle(multiple_reader, 6, seed=2), 4)
    double_buffer_reader = layers.double_buffer(batch_reader)

    not_completed = layers.fill_constant([], "bool", 1)
    pass_count = layers.fill_constant([], "int64", 0)
    required_pass_num = layers.fill_constant([], "int64", passes)
    with layers.While(not_completed).block():
        has_next = layers.has_next(double_buffer_reader)
        branch = layers.IfElse(has_next)
        with branch.true_block():
            batch_data = layers.read_file(double_buffer_reader)
            layers.call("keep", batch_data)
        with branch.false_block():
            layers.reset(double_buffer_reader)
            layers.increment(pass_count)
            layers.less_than(pass_count, required_pass_num, cond=not_completed)

    found: list[tuple[Any, ...]] = []
    built.start()
    with pyfeed.program.kernels.register_kernel("keep", lambda *arrays: found.append(arrays)):
        assert int(built.run(pass_count)[0]) == passes
    eager = pyfeed.open_files(paths, scope=Scope()).shuffle(6, seed=2).batch(4).double_buffer()
    expected = []
    for _ in range(passes):
        expected += list(eager)
        eager.reset()
    equal(found, expected)


def test_the_listing_with_multi_pass(built: Built, tmp_path: Path) -> None:
    paths = numbers(tmp_path)
    multiple_reader = layers.open_files(paths)
    batch_reader = layers.batch(multiple_reader, 4)
    multi_pass_reader = layers.multi_pass(batch_reader, 3)
    double_buffer_reader = layers.double_buffer(multi_pass_reader)

    not_completed = layers.fill_constant([], "bool", 1)
    with layers.While(not_completed).block():
        batch_data = layers.read_file(double_buffer_reader)
        layers.call("keep", batch_data)
        layers.has_next(double_buffer_reader, out=not_completed)

    found: list[tuple[Any, ...]] = []
    built.start()
    with pyfeed.program.kernels.register_kernel("keep", lambda *arrays: found.append(arrays)):
        built.run()
    equal(found, list(pyfeed.open_files(paths, scope=Scope()).batch(4).multi_pass(3)))


STAGING = """
import numpy as np, pyfeed
import pyfeed as fluid
from pyfeed import layers

image = fluid.layers.data(name='x', shape=[784], dtype='float32')
label = fluid.layers.data(name='y', shape=[1], dtype='int64')

stage = fluid.layers.staging(input=[image, label], capacity=3)
stage_program = fluid.default_main_program().clone()

image, label = stage_out = fluid.layers.unstaging(stage)
assert (image.shape, image.dtype, label.shape, label.dtype) == ((-1, 784), "float32", (-1, 1), "int64")
exe = fluid.Executor(fluid.CPUPlace())
random = np.random.default_rng(0)
batches = [(random.random((5, 784), np.float32), random.integers(0, 9, (5, 1))) for _ in range(9)]
found = []

buffer_size = 2

# warm up staging area
reader = iter(batches)
for i in range(buffer_size):
    x, y = next(reader)
    exe.run(stage_program, feed={"x": x, "y": y})

for x, y in reader:
    found.append(exe.run(fluid.default_main_program(), feed={"x": x, "y": y}, fetch=stage_out))

for i in range(buffer_size):
    found.append(exe.run(fluid.default_main_program(), fetch=stage_out))

for (x, y), (a, b) in zip(batches, found, strict=True):
    assert x.tobytes() == a.tobytes() and y.tobytes() == b.tobytes() and b.shape == (5, 1)
try:
    exe.run(timeout=0)
except pyfeed.errors.Timeout as error:
    print(error.op)
"""


def test_the_example_with_a_staging_buffer() -> None:
    """Each tuple is delivered once, in order. The program runs in its own process, which has one buffer for a place."""
    assert run(STAGING) == ["block 0, op 1: unstage"]


def test_staging_is_refused(built: Built) -> None:
    x, y = layers.data("x", [2]), layers.data("y", [2])
    stage = layers.staging([x, y])
    a, b = layers.unstaging(stage)
    with pytest.raises(pyfeed.errors.Error) as caught:
        built.run(a, x=f32([1, 2]))
    assert caught.value.op == "block 0, op 0: stage"
    with raises(
        pyfeed.errors.InvalidArgument,
        "unstaging: expected a result of staging, of tensors whose shapes are known, found 'x'",
        also=ValueError,
    ):
        layers.unstaging(x)
    assert b.shape == (-1, 2)


def test_queues_have_names_of_their_own_where_names_begin_anew() -> None:
    scope, queues = Scope(), []
    for _ in range(2):
        with pyfeed.unique_name.guard(), program_guard(Program(), Program()):
            queues.append(layers.py_array_reader(1, [(2,)], scope=scope)[1])
    assert queues[0].handle != queues[1].handle


def test_a_startup_program_that_was_forgotten() -> None:
    with program_guard(Program(), Program()):
        layers.read_file(layers.random_data([(2,)], count=1))
        main = pyfeed.default_main_program()
    with pytest.raises(pyfeed.errors.StateError, match="has the startup program been run in it"):
        pyfeed.Executor().run(main, scope=Scope())
    for wrong in ({"scope": 3}, {"cancel": 3}):
        with pytest.raises(TypeError, match="found 3"):
            pyfeed.Executor().run(main, **wrong)  # type: ignore[arg-type]
