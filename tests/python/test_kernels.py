"""Kernels: inputs, outputs and failures."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyfeed.program import Executor, Program, layers, program_guard
from pyfeed.program.kernels import Kernel, kernel, list_kernels, register_kernel

import pyfeed
from pyfeed import LoDTensor, Scope

from .support import Array, Background, raises, run, same, together, wait_until


def calling(
    function: Callable[..., Any],
    *inputs: Any,
    outputs: Any = 1,
    attributes: dict[str, object] | None = None,
    declare: dict[str, tuple[Any, Any]] | None = None,
    executor: Executor | None = None,
) -> tuple[Any, ...]:
    """Run a program that calls a kernel once; return the outputs. Outputs in place have the inputs' names "0", "1"."""
    program, name = Program(), pyfeed.unique_name.generate("kernel")
    with program_guard(program, Program()):
        for i in range(len(inputs)):
            layers.variable(str(i))
        for variable, (shape, dtype) in (declare or {}).items():
            layers.variable(variable, shape, dtype)
        outs = layers.call(name, list(map(str, range(len(inputs)))), outputs, attributes)
    fetch = outs if isinstance(outs, list) else [outs]
    with register_kernel(name, function):
        return (executor or Executor()).run(program, Scope(), {str(i): x for i, x in enumerate(inputs)}, fetch)


# ---- Inputs and outputs ----


def test_arrays_go_in_and_out() -> None:
    def f(x: Array, y: Array) -> tuple[Array, Array]:
        assert type(x) is np.ndarray
        assert not x.flags.writeable
        return x + y, (x * y).T

    x, y = np.arange(6.0).reshape(2, 3), np.ones((2, 3)) * 3
    total, product = calling(f, x, y, outputs=2)
    same(total, x + y)
    same(product, np.ascontiguousarray((x * y).T))


def test_every_kind_of_result() -> None:
    x = np.arange(3)
    assert calling(lambda x: None, x, outputs=0) == ()
    assert calling(lambda x: (), x, outputs=0) == ()
    for result in (lambda x: x, lambda x: [x], lambda x: (x,), lambda x: memoryview(x), lambda x: x[::1]):
        same(calling(result, x)[0], x)
    same(calling(lambda: np.float32(2), outputs=1)[0], np.array(2, np.float32))
    same(calling(lambda x: x[::-1], x)[0], x[::-1].copy())
    same(calling(lambda: np.zeros((0, 3)), outputs=1)[0], np.zeros((0, 3)))
    large = np.random.default_rng(0).random((300, 300))
    same(calling(lambda x: x.T, large)[0], np.ascontiguousarray(large.T))


def test_levels_of_detail() -> None:
    def f(x: LoDTensor) -> LoDTensor:
        assert isinstance(x, LoDTensor)
        return LoDTensor.from_lengths(np.asarray(x.data) * 2, x.recursive_sequence_lengths()[::-1])

    (found,) = calling(f, LoDTensor.from_lengths(np.arange(5), [[2, 3]]))
    assert found.recursive_sequence_lengths() == [[2, 3]]
    same(found.data, np.arange(5) * 2)


def test_attributes() -> None:
    given = {"rate": 0.5, "steps": 3, "name": "é", "flags": [True, False], "more": {"a": [1, 2.5]}, "n": np.int64(4)}
    seen: list[dict[str, Any]] = []
    calling(lambda **attributes: seen.append(attributes), outputs=0, attributes=given)
    assert seen == [{**given, "n": 4}]
    assert [type(seen[0][k]) for k in ("rate", "steps", "n")] == [float, int, int]
    with pytest.raises(TypeError, match="unexpected keyword argument 'rate'"):
        calling(lambda: None, outputs=0, attributes={"rate": 1})


def test_in_place_outputs() -> None:
    kept: list[Array] = []

    def f(x: Array, y: Array) -> tuple[Array, Array]:
        kept.extend((x, y))
        return x + 1, y[::-1]

    x, y = np.arange(4.0), np.arange(5)
    for _ in range(2):
        found = calling(f, x, y, outputs=["0", "1"])
        same(found[0], x + 1)
        same(found[1], y[::-1].copy())
    for i, expected in enumerate([x, y] * 2):  # the inputs that the kernel has kept are unchanged
        same(kept[i], expected)
    # An output may change its shape and type.
    same(calling(lambda x: np.zeros((2, 2), bool), x, outputs="0")[0], np.zeros((2, 2), bool))


def test_a_variable_that_is_updated_again_and_again() -> None:
    program, scope, kept = Program(), Scope(), []

    def f(total: Array) -> Array:
        kept.append(total)
        return total + 1

    with program_guard(program, Program()):
        total = layers.variable("total", [3], "int64", persistable=True)
        i, end = layers.fill_constant([], "int64", 0), layers.fill_constant([], "int64", 50)
        go_on = layers.less_than(i, end)
        with layers.While(go_on).block():
            layers.call("update", total, total)
            layers.increment(i)
            layers.less_than(i, end, cond=go_on)
    scope["total"] = np.zeros(3, int)
    with register_kernel("update", f):
        Executor().run(program, scope=scope)
    assert scope["total"].tolist() == [50] * 3
    assert [a.tolist() for a in kept] == [[i] * 3 for i in range(50)]


def test_kept_arrays_outlive_everything() -> None:
    kept: list[Array] = []
    calling(lambda x: kept.append(x), np.arange(1000.0), outputs=0)
    gc.collect()
    same(kept[0], np.arange(1000.0))
    kept.clear()


def test_kernels_see_what_a_reader_delivers() -> None:
    main, startup, scope = Program(), Program(), Scope()
    seen: list[Array] = []
    with program_guard(main, startup):
        reader = layers.random_data([(2,)], ["int64"], high=9, count=5)
        layers.call("see", layers.read_file(reader))
    executor = Executor()
    executor.run(startup, scope=scope)
    with register_kernel("see", seen.append):
        for _ in range(5):
            executor.run(main, scope=scope)
    expected = [x for (x,) in pyfeed.random_data([(2,)], ["int64"], high=9, count=5, scope=Scope())]
    for found, x in zip(seen, expected, strict=True):
        same(found, x)


def test_numbers_of_outputs() -> None:
    with program_guard(Program()):
        assert layers.call("k") == []
        assert len(layers.call("k", outputs=3)) == 3
        assert isinstance(layers.call("k", outputs=1), pyfeed.program.Variable)
        with raises(pyfeed.errors.InvalidArgument, "outputs: expected at least 0, found -1", also=ValueError):
            layers.call("k", outputs=-1)
        deep: dict[str, Any] = {}
        for _ in range(40):
            deep = {"deeper": deep}
        with pytest.raises(pyfeed.errors.Error):
            layers.call("k", attributes=deep)


# ---- Names ----


def test_names() -> None:
    before = list_kernels()

    @kernel
    def by_its_name(x: int) -> int:
        """Doubles."""
        return 2 * x

    @kernel("by another name")
    def f() -> None:
        pass

    assert set(list_kernels()) - set(before) == {"by_its_name", "by another name"}
    assert by_its_name(4) == 8
    assert (by_its_name.name, by_its_name.__doc__, f.name) == ("by_its_name", "Doubles.", "by another name")
    assert repr(f) == "<Kernel 'by another name'>"
    for each in (by_its_name, f):
        assert isinstance(each, Kernel)
        each.close()
        each.close()
        assert each.closed
    assert repr(f) == "<Kernel 'by another name', closed>"
    assert list_kernels() == before


def test_a_name_that_is_taken() -> None:
    with register_kernel("taken", lambda: None):
        with raises(pyfeed.errors.StateError, 'kernel "taken": there is one of that name', also=RuntimeError):
            register_kernel("taken", lambda: None)
        assert "taken" in list_kernels()
    with pytest.raises(pyfeed.errors.InvalidArgument):
        register_kernel("", lambda: None)
    with pytest.raises(TypeError, match="function: expected a function, found 3"):
        register_kernel("three", 3)  # type: ignore[arg-type]


def test_a_function_that_is_defined_again() -> None:
    """As when a cell of a notebook is run again."""

    def cell(value: int) -> Kernel:
        @kernel("cell")
        def f() -> Array:
            return np.array(value)

        return f

    program = Program()
    with program_guard(program, Program()):
        out = layers.call("cell", outputs=1)
    old, new = cell(1), cell(2)
    assert old.closed
    assert Executor().run(program, fetch=out)[0] == 2
    old.close()
    assert Executor().run(program, fetch=out)[0] == 2
    new.close()


def test_a_kernel_that_is_not_there() -> None:
    program = Program()
    with program_guard(program, Program()):
        layers.call("nobody's")
    for _ in range(2):
        with pytest.raises(pyfeed.errors.NotFoundError, match='kernel "nobody\'s": it is not registered') as caught:
            Executor().run(program)
        assert caught.value.op == "block 0, op 0: call"
    with register_kernel("nobody's", lambda: None):
        Executor().run(program)


def test_a_kernel_that_is_closed_in_a_run() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def f() -> Array:
        begun.set()
        go_on.wait()
        return np.array(1)

    function = weakref.ref(f)
    program = Program()
    with program_guard(program, Program()):
        out = layers.call("closed", outputs=1)
    there = register_kernel("closed", f)
    running = Background(lambda: Executor().run(program, fetch=out))
    begun.wait()
    there.close()
    assert "closed" not in list_kernels()
    del f, there
    go_on.set()
    assert running.result()[0] == 1
    gc.collect()
    wait_until(lambda: function() is None)


def test_functions_that_lead_back_to_their_kernel() -> None:
    class Holder:
        kernel: Kernel

        def __call__(self) -> None:
            pass

    holder = Holder()
    holder.kernel = register_kernel("circle", holder)
    gone = weakref.ref(holder)
    holder.kernel.close()
    del holder
    gc.collect()
    assert gone() is None


# ---- Failures ----


class Mine(Exception):
    pass


@pytest.mark.parametrize(
    "kind", [Mine, ValueError, KeyboardInterrupt, SystemExit, MemoryError, pyfeed.errors.QueueClosed]
)
def test_exceptions_come_out_as_they_are(kind: type[BaseException]) -> None:
    raised: list[BaseException] = []

    def deeper() -> None:
        raised.append(kind("because"))
        raise raised[0]

    def f(x: Array) -> None:
        deeper()

    with pytest.raises(kind) as caught:
        calling(f, np.zeros(2), outputs=0)
    assert caught.value is raised[0]
    assert caught.value.args == ("because",)
    (note,) = caught.value.__notes__
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "outs = layers.call(" in text)
    assert note == f"in block 0, op 0: call(0) at test_kernels.py:{line}, with 0 float64 (2,)"
    assert [e.name for e in caught.traceback][-2:] == ["f", "deeper"]
    raised.clear()
    del caught


def test_stop_iteration_is_no_end() -> None:
    with pytest.raises(RuntimeError, match="the kernel raised StopIteration") as caught:
        calling(lambda: next(iter(())), outputs=0)
    assert isinstance(caught.value.__cause__, StopIteration)


def test_a_kernel_may_fail_and_the_next_run_go_well() -> None:
    program, executor = Program(), Executor()
    results: list[Any] = [ValueError("x"), np.array(1), KeyError(), np.array(2)]
    with program_guard(program, Program()):
        out = layers.call("moody", outputs=1)

    def f() -> Any:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    with register_kernel("moody", f):
        with pytest.raises(ValueError, match="x"):
            executor.run(program)
        assert executor.run(program, fetch=out)[0] == 1
        with pytest.raises(KeyError):
            executor.run(program)
        assert executor.run(program, fetch=out)[0] == 2


def test_what_a_run_had_when_its_kernel_failed_is_let_go_of() -> None:
    class Big:
        pass

    made: list[weakref.ref[Big]] = []

    def f(x: Array) -> None:
        held = Big()
        made.append(weakref.ref(held))
        raise Mine(held)

    with pytest.raises(Mine) as caught:
        calling(f, np.zeros(1000), outputs=0)
    assert made[0]() is not None
    del caught
    gc.collect()
    assert made[0]() is None


@pytest.mark.parametrize(("result", "found"), [(None, 0), ((), 0), (np.zeros(1), 1), ([np.zeros(1)] * 3, 3)])
def test_a_wrong_number_of_outputs(result: Any, found: int) -> None:
    with raises(pyfeed.errors.SlotCountError, f"outputs: expected 2, found {found}", also=ValueError):
        calling(lambda: result, outputs=2)


def test_outputs_that_are_no_arrays_or_do_not_fit() -> None:
    with pytest.raises(pyfeed.errors.DTypeError, match="slot 1: expected an array") as caught:
        calling(lambda: (np.zeros(1), None), outputs=2)
    assert caught.value.__notes__[0].startswith("in block 0, op 0: call")
    with pytest.raises(pyfeed.errors.DTypeError, match="expected float32, found float64") as dtype:
        calling(lambda: np.zeros(2), outputs=["y"], declare={"y": ([2], "float32")})
    assert dtype.value.op == "block 0, op 0: call"
    with pytest.raises(pyfeed.errors.ShapeError):
        calling(lambda: np.zeros(3), outputs=["y"], declare={"y": ([2], "float64")})
    with pytest.raises(pyfeed.errors.ShapeError, match="at most 8"):
        calling(lambda: np.zeros((1,) * 9))
    same(calling(lambda: np.zeros(2), outputs=["y"], declare={"y": ([-1], "float64")})[0], np.zeros(2))


def test_a_failure_in_a_loop_says_where() -> None:
    program = Program()
    with program_guard(program, Program()):
        x = layers.data("x", [2], append_batch_size=False)
        with layers.While(layers.fill_constant([], "bool", 1)).block():
            layers.call("fails", x)

    def fails(x: Array) -> None:
        raise Mine

    with register_kernel("fails", fails), pytest.raises(Mine) as caught:
        Executor().run(program, feed={"x": np.zeros(2, np.float32)})
    assert caught.value.__notes__[0].startswith("in block 1, op 0: call(x)")
    del caught


# ---- Programs within programs, and threads ----


def test_a_kernel_may_run_a_program() -> None:
    inner = Program()
    with program_guard(inner, Program()):
        y = layers.increment(layers.variable("y", [1], "int64"), 10)

    def f(x: Array) -> Any:
        (out,) = Executor().run(inner, Scope(), {"y": x}, [y])
        return out

    assert calling(f, np.array([1]))[0].tolist() == [11]

    def fails(x: Array) -> Any:
        return calling(lambda x: 1 // 0, x)

    with pytest.raises(ZeroDivisionError) as caught:
        calling(fails, np.array([1]))
    assert [note.partition(" -> ")[0] for note in caught.value.__notes__] == ["in block 0, op 0: call(0)"] * 2
    del caught


def test_the_kernel_runs_on_the_thread_that_runs_the_program() -> None:
    seen: list[int] = []

    def work() -> int:
        calling(lambda: seen.append(threading.get_ident()), outputs=0)
        return threading.get_ident()

    assert sorted(together(*[work] * 8)) == sorted(seen)


def test_many_threads_call_one_kernel() -> None:
    program, executor = Program(), Executor()
    with program_guard(program, Program()):
        x = layers.data("x", [3], "int64", append_batch_size=False)
        y = layers.call("square", x, 1)

    def work(n: int) -> Callable[[], list[list[int]]]:
        return lambda: [
            executor.run(program, Scope(), {"x": np.full(3, n * 100 + i)}, [y])[0].tolist() for i in range(100)
        ]

    with register_kernel("square", lambda x: x * x):
        found = together(*[work(n) for n in range(8)])
    assert found == [[[(n * 100 + i) ** 2] * 3 for i in range(100)] for n in range(8)]


def test_threads_whose_kernels_fail_get_their_own_exceptions() -> None:
    program, executor = Program(), Executor()
    with program_guard(program, Program()):
        layers.call("fails", layers.data("x", [], "int64", append_batch_size=False))

    def f(x: Array) -> None:
        raise Mine(int(x))

    def work(n: int) -> Callable[[], None]:
        def fail() -> None:
            for i in range(50):
                with pytest.raises(Mine) as caught:
                    executor.run(program, Scope(), {"x": np.array(n * 100 + i)})
                assert caught.value.args == (n * 100 + i,)

        return fail

    with register_kernel("fails", f):
        together(*[work(n) for n in range(8)])


def test_kernels_while_threads_register_and_close() -> None:
    program, executor = Program(), Executor()
    with program_guard(program, Program()):
        out = layers.call("comes and goes", outputs=1)
    done = threading.Event()

    def change() -> None:
        for i in range(200):
            register_kernel("comes and goes", lambda i=i: np.array(i)).close()
        done.set()

    def work() -> int:
        missed = 0
        while not done.is_set():
            try:
                assert 0 <= int(executor.run(program, fetch=out)[0]) < 200
            except pyfeed.errors.NotFoundError:
                missed += 1
        return missed

    together(change, work, work)


# ---- Kernels and callers in C ----

LIBRARY = r"""
#include <pyfeed.h>
#include <string.h>

static int twice(void *context, const pf_kernel_call *call) {
    (void)context;
    double *out;
    pf_error err = PF_ERROR_INIT;
    if (pf_kernel_output(call, 0, &call->ins[0], (void **)&out, &err)) return 1;
    for (uint64_t i = 0; i < call->ins[0].nbytes / sizeof *out; i++) out[i] = 2 * ((double *)call->ins[0].data)[i];
    return 0;
}

static int fails(void *context, const pf_kernel_call *call) {
    (void)context;
    pf_failure f = PF_FAILURE_INIT;
    f.type = "sort of error";
    f.message = call->attributes;
    pf_kernel_fail(call, &f, NULL);
    return 3;
}

int pyfeed_register_kernels(pf_error *err) {
    static pf_handle handle[2];
    pf_status status = pf_kernel_register("c-twice", twice, NULL, NULL, &handle[0], err);
    return status ? status : pf_kernel_register("c-fails", fails, NULL, NULL, &handle[1], err);
}
"""


@pytest.mark.compiler
def test_kernels_in_a_shared_object(tmp_path: Path) -> None:
    (tmp_path / "k.c").write_text(LIBRARY)
    library = tmp_path / "k.so"
    flags = ["-shared", "-fPIC", "-Wall", "-Werror", "-I", pyfeed.get_include(), "-L", pyfeed.get_library_dir()]
    command = ["cc", *flags, "-o", str(library), str(tmp_path / "k.c"), "-l:libpyfeed.so.0"]
    subprocess.run(command, check=True, timeout=100)
    out = run(
        f"""
        from pyfeed import Scope
        from pyfeed.program import Executor, Program, layers, program_guard
        before = pyfeed.program.kernels.list_kernels()
        for _ in range(2):
            pyfeed.program.kernels.load_kernels({str(library)!r})
        say(sorted(set(pyfeed.program.kernels.list_kernels()) - set(before)))
        program = Program()
        with program_guard(program, Program()):
            x = layers.data("x", [3], "float64", append_batch_size=False)
            y = layers.call("c-twice", x, 1)
            failing = program.clone()
        say(Executor().run(program, feed={{"x": np.arange(3.0)}}, fetch=[y])[0].tolist())
        with program_guard(failing, Program()):
            layers.call("c-fails", attributes={{"n": 1}})
        try:
            Executor().run(failing, feed={{"x": np.arange(3.0)}})
        except pyfeed.errors.ProducerError as error:
            say(error.op, error.cause_type, error.cause_message)
        """
    )
    assert out == ["['c-fails', 'c-twice']", "[0.0, 2.0, 4.0]", 'block 0, op 1: call sort of error {"n": 1}']


EXECUTOR = r"""
#include <pthread.h>
#include <pyfeed.h>
#include <stdio.h>

struct run { uint64_t executor, program, scope; char *said; };

static void *go(void *run_) {
    struct run *r = run_;
    pf_error err = PF_ERROR_INIT;
    pf_status status = pf_executor_run(r->executor, r->program, r->scope, NULL, NULL, 0, NULL, 0, NULL, NULL, &err);
    if (status)
        snprintf(r->said, 1000, "%s, %s, %s, %s, %d", pf_status_name(status), err.op, err.cause_type, err.cause_message,
                 err.cause_traceback && err.cause_token == 0);
    pf_error_release(&err);
    return NULL;
}

/* A thread that Python has not made. */
void run(uint64_t executor, uint64_t program, uint64_t scope, char *said) {
    struct run r = {executor, program, scope, said};
    pthread_t thread;
    pthread_create(&thread, NULL, go, &r);
    pthread_join(thread, NULL);
}
"""


@pytest.mark.compiler
def test_a_kernel_that_a_thread_of_c_calls(tmp_path: Path) -> None:
    """A C caller gets the text of the exception, which cannot be raised there."""
    (tmp_path / "e.c").write_text(EXECUTOR)
    flags = ["-shared", "-fPIC", "-Wall", "-Werror", "-I", pyfeed.get_include(), "-L", pyfeed.get_library_dir()]
    command = ["cc", *flags, "-o", str(tmp_path / "e.so"), str(tmp_path / "e.c"), "-l:libpyfeed.so.0"]
    subprocess.run(command, check=True, timeout=100)
    library = ctypes.CDLL(str(tmp_path / "e.so"))
    library.run.argtypes = [ctypes.c_uint64] * 3 + [ctypes.c_char_p]
    program, executor, scope, seen = Program(), Executor(), Scope(), []
    with program_guard(program, Program()):
        layers.call("from c", layers.fill_constant([], "int64", 7), layers.variable("out", persistable=True))

    def f(x: Array) -> Array:
        seen.append(threading.get_ident())
        if len(seen) > 5:
            raise Mine("enough")
        return x + len(seen)

    said = ctypes.create_string_buffer(1000)
    with register_kernel("from c", f):
        for i in range(5):
            library.run(executor.handle, program.handle, scope.handle, said)
            assert said.value == b""
            assert scope["out"] == 8 + i
        library.run(executor.handle, program.handle, scope.handle, said)
    assert said.value.decode() == f"PF_FAILED, block 0, op 1: call, {__name__}.Mine, enough, 1"
    assert threading.get_ident() not in seen


def test_shared_objects_that_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(pyfeed.errors.FileError) as caught:
        pyfeed.program.kernels.load_kernels(tmp_path / "none.so")
    assert caught.value.filename == str(tmp_path / "none.so")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(pyfeed.errors.FileError):
        pyfeed.program.kernels.load_kernels(str(tmp_path / "text.so"))
