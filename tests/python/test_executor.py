"""Runs of programs: feeds, fetches, errors, and all ways in which a run ends."""

from __future__ import annotations

import gc
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyfeed.program import CancelToken, Executor, Program, layers, program_guard

import pyfeed
from pyfeed import LoDTensor, Scope

from .support import (
    DTYPES,
    SLOWNESS,
    Array,
    Background,
    DLPackArray,
    Process,
    ends_within_a_second,
    raises,
    run,
    same,
    together,
    wait_for_consumers,
    wait_for_readers,
    wait_until,
)


def identity(dtype: str | None = None, rank: int = 1) -> Program:
    """Return a program that assigns x to y."""
    program = Program()
    with program_guard(program, Program()):
        x = layers.variable("x", None if dtype is None else [-1] * rank, dtype)
        layers.assign(x, out="y")
    return program


def waiting_for_ever() -> tuple[Program, Scope, pyfeed.PyArrayFeedQueue]:
    """Return a program whose read waits for the queue."""
    main, startup, scope = Program(), Program(), Scope()
    with program_guard(main, startup):
        reader, queue = layers.py_array_reader(2, [(2,)], dtypes=["float64"], scope=scope)
        layers.read_file(reader, ["x"])
    Executor().run(startup, scope=scope)
    return main, scope, queue


def endless() -> Program:
    """Return a program with an endless loop of cheap operators."""
    program = Program()
    with program_guard(program, Program()):
        i = layers.variable("i", [], "int64", persistable=True)
        layers.fill_constant([], "int64", 0, out=i)
        with layers.While(layers.fill_constant([], "bool", 1)).block():
            layers.increment(i)
    return program


def turns(scope: Scope) -> int:
    """Return the number of iterations of an endless program. At its beginning the variable is missing or empty."""
    return int(scope["i"]) if "i" in scope and scope.kind("i") == "tensor" else 0


# ---- Feed and fetch ----


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_goes_through(dtype: str) -> None:
    array = np.arange(-3, 3).astype(dtype)
    same(Executor().run(identity(dtype), Scope(), {"x": array}, ["y"])[0], array)


def test_bfloat16() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.arange(4).astype(ml_dtypes.bfloat16)
    same(Executor().run(identity("bfloat16"), Scope(), {"x": array}, ["y"])[0], array)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (1,) * 8, (300, 400)])
def test_every_shape(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).random(shape)
    same(Executor().run(identity(), Scope(), {"x": array}, ["y"])[0], array)


def test_whatever_is_an_array() -> None:
    base = np.arange(12.0).reshape(3, 4)
    executor, program = Executor(), identity()
    for given in (base[:, ::-2], base.T, DLPackArray(base), base.data, np.float32(3)):
        expected = given.array if isinstance(given, DLPackArray) else np.asarray(given)
        same(
            executor.run(program, Scope(), {"x": given}, ["y"])[0],
            np.ascontiguousarray(expected).reshape(expected.shape),
        )
    tensor = LoDTensor.from_lengths(base, [[1, 2]])
    (found,) = executor.run(program, Scope(), {"x": tensor}, "y")
    assert isinstance(found, LoDTensor)
    assert found.recursive_sequence_lengths() == [[1, 2]]
    same(found.data, base)


def test_what_is_fed_is_copied_and_what_is_fetched_stays() -> None:
    program, executor, scope = Program(), Executor(), Scope()
    with program_guard(program, Program()):
        x = layers.data("x", [2], "int64", append_batch_size=False)
        total = layers.variable("total", [2], "int64", persistable=True)
        layers.increment(total)
        y = layers.increment(x, 1)
    scope["total"] = np.array([10, 20])
    given = np.array([1, 2])
    first = executor.run(program, scope, {x: given}, [y, "total"])
    given[:] = 9
    second = executor.run(program, scope, {x: given}, [y, total])
    assert [a.tolist() for a in first + second] == [[2, 3], [11, 21], [10, 10], [12, 22]]
    for array in first + second:
        assert not array.flags.writeable
    del executor, program, scope, total, x, y
    gc.collect()
    assert [a.tolist() for a in first] == [[2, 3], [11, 21]]


def test_variables_of_a_run_go_with_it() -> None:
    program, scope, executor = Program(), Scope(), Executor()
    with program_guard(program, Program()):
        layers.data("x", [], append_batch_size=False)
        layers.variable("kept", persistable=True)
        layers.assign("x", out="kept")
    executor.run(program, scope, {"x": np.float32(1)})
    assert "x" not in scope
    assert scope["kept"] == 1
    with pytest.raises(pyfeed.errors.Error) as caught:  # the feed belonged to the first run
        executor.run(program, scope=scope)
    assert caught.value.op == "block 0, op 0: assign"


def test_scopes_have_parents() -> None:
    program, parent = Program(), Scope()
    with program_guard(program, Program()):
        layers.increment(layers.variable("n", [], "int64", persistable=True))
    parent["n"] = np.array(5)
    child = Scope(parent)
    Executor().run(program, scope=child)
    assert int(parent["n"]) == 6
    Executor().run(program, scope=child)
    assert int(child["n"]) == 7


def test_the_defaults_are_the_default_program_and_the_global_scope() -> None:
    program = identity()
    name = pyfeed.unique_name.generate("kept_by_the_test")
    with program_guard(program, Program()):
        layers.assign("x", out=layers.variable(name, persistable=True))
        assert Executor().run(feed={"x": np.zeros(2)}) == ()
    assert pyfeed.global_scope()[name].tolist() == [0, 0]
    pyfeed.global_scope().erase(name)


# ---- Refused calls ----


def test_feeds_that_do_not_fit() -> None:
    program, executor, scope = identity("float32", 2), Executor(), Scope()
    good = np.zeros((2, 3), np.float32)

    def refused(kind: type[pyfeed.errors.Error], match: str, feed: Any, fetch: Any = ()) -> None:
        with pytest.raises(kind, match=match) as caught:
            executor.run(program, scope, feed, fetch)
        assert caught.type is kind

    refused(pyfeed.errors.DTypeError, "expected float32, found int64", {"x": np.zeros((2, 3), int)})
    refused(pyfeed.errors.ShapeError, r'feed "x": expected dims \(-1, -1\), found \(3,\)', {"x": good[0]})
    refused(pyfeed.errors.NotFoundError, 'feed: the program has no variable "z" in its first block', {"z": good})
    refused(
        pyfeed.errors.NotFoundError, 'fetch: the program has no variable "z" in its first block', {"x": good}, ["z"]
    )
    refused(pyfeed.errors.DTypeError, "slot 0: expected an array", {"x": [[1.0]]})
    with pytest.raises(pyfeed.errors.DTypeError) as caught:
        executor.run(program, scope, {"x": good, "y": None})
    assert caught.value.__notes__ == ["slot 1 is what is fed to 'y'"]
    with pytest.raises(TypeError, match="expected a Variable or the name of one, found 3"):
        executor.run(program, feed={3: good})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="program: expected a Program, found 'p'"):
        executor.run("p")  # type: ignore[arg-type]
    for timeout in (-1, float("nan")):
        refused_timeout = raises(pyfeed.errors.InvalidArgument, None, also=ValueError)
        with refused_timeout:
            executor.run(program, timeout=timeout)
    same(executor.run(program, scope, {"x": good}, "y")[0], good)


def test_places() -> None:
    assert repr(Executor()) == repr(Executor(pyfeed.CPUPlace())) == "Executor(CPUPlace())"


def test_errors_say_which_operator() -> None:
    main, startup, scope = Program(), Program(), Scope()
    with program_guard(main, startup):
        reader = layers.random_data([(2,)], count=1, names=["numbers"])
        with layers.While(layers.fill_constant([], "bool", 1)).block():
            layers.read_file(reader, ["a"])
    executor = Executor()
    with pytest.raises(pyfeed.errors.StateError) as missing:
        executor.run(main, scope=scope)
    assert missing.value.op == "block 1, op 0: read"
    executor.run(startup, scope=scope)
    with pytest.raises(pyfeed.errors.EndOfData) as end:
        executor.run(main, scope=scope)
    assert end.value.op == "block 1, op 0: read"
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if '(reader, ["a"])' in text)
    text = str(end.value)
    assert text.startswith(f"block 1, op 0: read({reader.name}) -> a at test_executor.py:{line}")
    assert f"{reader.name} reader" in text
    assert isinstance(end.value, EOFError)
    assert pyfeed.errors.Error("x").op is None
    assert not isinstance(end.value, StopIteration)


def test_errors_say_what_the_inputs_were() -> None:
    program = identity()
    with program_guard(program, Program()):
        layers.less_than("x", layers.fill_constant([3], "float64", 1))
    with pytest.raises(pyfeed.errors.ShapeError) as caught:
        Executor().run(program, Scope(), {"x": np.zeros(2)})
    assert caught.value.op == "block 0, op 2: less_than"
    assert "x float64 (2,)" in str(caught.value)


def test_a_producer_s_exception_comes_out_as_it_is() -> None:
    main, scope, queue = waiting_for_ever()

    def fail() -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError) as original, queue:
        fail()
    original.value.__traceback__ = None
    for _ in range(3):
        with pytest.raises(ZeroDivisionError) as caught:
            Executor().run(main, scope=scope)
        assert caught.value is original.value
    (note,) = caught.value.__notes__  # one note, although the exception was raised several times
    assert note.startswith("in block 0, op 0: read(layers.py_array_reader_")
    del caught, original


def test_a_failure_of_a_file_s_python_reader_comes_out_again_and_again(tmp_path: Path) -> None:
    @pyfeed.formats.register_format("failing-for-executors", [".failing"], shapes=[()], dtypes=["int64"])
    def read(path: str) -> Any:
        yield (np.array(1),)
        raise KeyError(path)

    (tmp_path / "a.failing").write_text("")
    main, startup, scope = Program(), Program(), Scope()
    with program_guard(main, startup):
        x = layers.read_file(layers.open_files(tmp_path / "a.failing", shapes=[()], dtypes=["int64"]))
    executor = Executor()
    executor.run(startup, scope=scope)
    assert int(executor.run(main, fetch=x, scope=scope)[0]) == 1
    for _ in range(2):
        with pytest.raises(KeyError, match=r"a\.failing") as caught:
            executor.run(main, scope=scope)
        assert "read" in caught.value.__notes__[-1]
    del caught


# ---- How runs end ----


def test_timeouts() -> None:
    main, scope, queue = waiting_for_ever()
    executor = Executor()
    for timeout in (0, 0.05):
        began = time.monotonic()
        with pytest.raises(pyfeed.errors.Timeout) as caught:
            executor.run(main, scope=scope, timeout=timeout)
        assert time.monotonic() - began >= timeout
        assert caught.value.op == "block 0, op 0: read"
    queue.push((np.ones(2),))
    same(executor.run(main, fetch="x", scope=scope, timeout=0)[0], np.ones(2))
    for timeout in (1e-12, 0.05):
        with pytest.raises(pyfeed.errors.Timeout) as between:
            executor.run(endless(), scope=scope, timeout=timeout)
        assert between.value.op is not None
    assert int(scope["i"]) > 0


def test_no_time_to_wait_is_time_to_work() -> None:
    program = Program()
    with program_guard(program, Program()):
        i, n = layers.fill_constant([], "int64", 0), layers.fill_constant([], "int64", 1_000_000)
        going_on = layers.less_than(i, n)
        with layers.While(going_on).block():
            layers.less_than(layers.increment(i), n, cond=going_on)
    assert Executor().run(program, Scope(), fetch=[i], timeout=0)[0] == 1_000_000


def test_cancel_tokens() -> None:
    main, scope, queue = waiting_for_ever()
    executor, token = Executor(), CancelToken()
    assert not token.cancelled
    runs = [
        Background(lambda: executor.run(main, scope=scope, cancel=token)),
        Background(lambda: executor.run(endless(), scope=scope, cancel=token)),
        Background(lambda: executor.run(endless(), scope=Scope(), cancel=CancelToken(), timeout=0.2)),
    ]
    wait_for_consumers(queue)
    wait_until(lambda: turns(scope) > 100)
    token.cancel()
    token.cancel()
    for each in runs[:2]:
        with pytest.raises(pyfeed.errors.Cancelled) as caught:
            each.result()
        assert caught.value.op is not None
    with pytest.raises(pyfeed.errors.Timeout):  # the run has another token, which is not cancelled
        runs[2].result()
    assert token.cancelled
    for program in (main, endless()):
        with pytest.raises(pyfeed.errors.Cancelled):
            executor.run(program, scope=scope, cancel=token)
    queue.push((np.ones(2),))
    assert len(executor.run(main, fetch="x", scope=scope)) == 1


def test_a_reader_that_is_reset_meanwhile() -> None:
    main, scope, hold = Program(), Scope(), threading.Event()

    def nothing() -> Any:
        hold.wait()
        yield from ()

    reader = pyfeed.from_generator(nothing, [(2,)], scope=scope)
    with program_guard(main, Program()):
        layers.read_file(reader, ["x"])
    running = Background(lambda: Executor().run(main, scope=scope))
    wait_for_readers(reader)
    reader.reset()
    with pytest.raises(pyfeed.errors.Cancelled) as caught:
        running.result()
    assert caught.value.op == "block 0, op 0: read"
    hold.set()


CTRL_C = """
from pyfeed import Scope
from pyfeed.program import Executor, Program, layers, program_guard
main, startup, scope, executor = Program(), Program(), Scope(), Executor()
with program_guard(main, startup):
    reader, queue = layers.py_array_reader(2, [(2,)], dtypes=["float64"], scope=scope)
    forever = layers.fill_constant([], "bool", 1)
    {build}
executor.run(startup, scope=scope)
def nothing():
    pass
def sleep():
    say("waiting")
    time.sleep(100)
inner = Program()
with program_guard(inner):
    layers.read_file(reader, ["y"])
pyfeed.program.kernels.register_kernel("read", lambda: executor.run(inner, scope=scope))
with pyfeed.program.kernels.register_kernel("nothing", nothing), pyfeed.program.kernels.register_kernel("sleep", sleep):
    for _ in range(2):
        when_waiting({waiting}, lambda: say("waiting"))
        try:
            executor.run(main, scope=scope)
        except KeyboardInterrupt:
            say("interrupted")
stats = queue.stats()
assert stats["waiting_consumers"] == 0, stats
queue.push(tuple_of(3), timeout=0)
with program_guard(Program(), Program()):
    program = pyfeed.default_main_program()
    x = layers.read_file(reader)
assert executor.run(program, fetch=[x], scope=scope, timeout=0)[0].tolist() == [3, 3]
say("usable")
"""
LOOP = "loop = layers.While(forever)\n    with loop.block():\n        "
BUILDS = {
    "blocked read": 'layers.read_file(reader, ["x"])',
    "has_next": "layers.has_next(reader)",
    "cheap operators": LOOP + "layers.assign(forever)",
    "an empty loop": LOOP + "pass",
    "kernels": LOOP + 'layers.call("nothing")',
    "in a kernel": 'layers.call("sleep")',  # which says that it waits
    "a read in a kernel's run": 'layers.call("read")',
    "staging": LOOP + "layers.staging(layers.assign(layers.fill_constant([], 'int64', 1)))",
}


@pytest.mark.parametrize("state", BUILDS)
def test_ctrl_c(state: str) -> None:
    process = Process(CTRL_C.format(build=BUILDS[state], waiting=1000 if state == "in a kernel" else 1))
    for _ in range(2):
        assert process.line() == "waiting"
        began = time.monotonic()
        process.signal(signal.SIGINT)
        assert process.line() == "interrupted"
        print(f"{state}: interrupted after {1000 * (time.monotonic() - began):.1f} ms")
    assert process.end() == (["usable"], "")


def test_handlers_that_do_not_raise_let_the_run_go_on() -> None:
    out = run(
        """
        from pyfeed import Scope
        from pyfeed.program import Executor, Program, layers, program_guard
        main, startup, scope = Program(), Program(), Scope()
        with program_guard(main, startup):
            reader, queue = layers.py_array_reader(2, [(2,)], dtypes=["float64"], scope=scope)
            x = layers.read_file(reader)
        executor = Executor()
        executor.run(startup, scope=scope)
        signal.signal(signal.SIGUSR1, lambda number, frame: queue.push(tuple_of(7)))
        when_waiting(1, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        say(executor.run(main, fetch=[x], scope=scope)[0].tolist())
        """
    )
    assert out == ["[7.0, 7.0]"]


# ---- Threads ----


def test_many_threads_share_an_executor() -> None:
    main, startup, scope = Program(), Program(), Scope()
    with program_guard(main, startup):
        reader, queue = layers.py_array_reader(4, [()], dtypes=["int64"], scope=scope)
        x = layers.increment(layers.read_file(reader), 1000)
    executor = Executor()
    executor.run(startup, scope=scope)
    queue.produce(lambda worker: ((np.array(i),) for i in range(worker, 800, 2)), 2)

    def work() -> list[int]:
        found = []
        while True:
            try:
                found.append(int(executor.run(main, fetch=[x], scope=scope)[0]))
            except pyfeed.errors.EndOfData:
                return found

    every = together(*[work] * 8)
    assert sorted(n for found in every for n in found) == list(range(1000, 1800))


def test_threads_with_programs_of_their_own() -> None:
    executor = Executor()

    def work(n: int) -> Callable[[], int]:
        def count() -> int:
            program = Program()
            with program_guard(program, Program()):
                i, end = layers.fill_constant([], "int64", 0), layers.fill_constant([], "int64", n)
                go_on = layers.less_than(i, end)
                with layers.While(go_on).block():
                    layers.increment(i)
                    layers.less_than(i, end, cond=go_on)
            return sum(int(executor.run(program, fetch=i, scope=Scope())[0]) for _ in range(5))

        return count

    assert together(*[work(n * 100) for n in range(8)]) == [n * 500 for n in range(8)]


def test_a_run_lets_other_threads_go_on() -> None:
    scope, token = Scope(), CancelToken()
    running = Background(lambda: Executor().run(endless(), scope=scope, cancel=token))
    wait_until(lambda: turns(scope) > 1000)
    token.cancel()  # needs the GIL, so the run must release it
    with pytest.raises(pyfeed.errors.Cancelled):
        running.result()


def test_readers_by_many_threads_lose_nothing(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(1000))
    main, startup, scope, executor = Program(), Program(), Scope(), Executor()
    with program_guard(main, startup):
        x = layers.read_file(layers.double_buffer(layers.batch(layers.open_files(tmp_path / "a.npy"), 7)))
    executor.run(startup, scope=scope)

    def work() -> list[Array]:
        found = []
        while True:
            try:
                found.append(executor.run(main, fetch=[x], scope=scope)[0])
            except pyfeed.errors.EndOfData:
                return found

    every = np.concatenate([a for found in together(*[work] * 8) for a in found])
    assert sorted(every.tolist()) == list(range(1000))


# ---- Forks, and the end of the interpreter ----


def test_every_call_in_a_forked_child_raises_at_once() -> None:
    out = run(
        """
        from pyfeed import Scope
        from pyfeed.program import Executor, Program, layers, program_guard
        program, scope, executor, token = Program(), Scope(), Executor(), pyfeed.program.CancelToken()
        with program_guard(program, Program()):
            x = layers.fill_constant([], "int64", 1)
            layers.call("k", x, x)
        kernel = pyfeed.program.kernels.register_kernel("k", lambda x: x + 1)
        say(executor.run(program, fetch=[x], scope=scope))
        pid = os.fork()
        if pid == 0:
            calls = {
                "run": lambda: executor.run(program, fetch=[x], scope=scope),
                "executor": Executor,
                "program": Program,
                "clone": program.clone,
                "save": lambda: program.save("x"),
                "load": lambda: Program.load("x"),
                "json": program.to_json,
                "parse": lambda: Program.from_bytes(b""),
                "blocks": lambda: program.blocks,
                "variable": lambda: x.shape,
                "layer": lambda: layers.increment(x),
                "token": pyfeed.program.CancelToken,
                "cancel": token.cancel,
                "register": lambda: pyfeed.program.kernels.register_kernel("other", print),
                "kernels": pyfeed.program.kernels.list_kernels,
                "load_kernels": lambda: pyfeed.program.kernels.load_kernels("x"),
                "trace": pyfeed.diagnostics.trace,
            }
            for name, call in calls.items():
                try:
                    with program_guard(program, program):
                        call()
                    say(name, "no error")
                except pyfeed.errors.ForkError:
                    pass
                except BaseException as error:
                    say(name, repr(error))
            kernel.close()
            del program, executor, token, x, kernel, calls
            gc.collect()
            say("child ends")
            sys.exit(0)
        say("status", os.waitpid(pid, 0)[1])
        say(executor.run(program, fetch=[x], scope=scope))
        """
    )
    assert out == ["(array(2),)", "child ends", "status 0", "(array(2),)"]


DAEMONS: dict[str, str] = {
    "in a loop of operators": "layers.assign(forever)",
    "in a loop of kernels": 'layers.call("count")',
    "blocked": 'layers.read_file(reader, ["x"])',
}


@pytest.mark.parametrize("where", DAEMONS)
def test_the_interpreter_may_end_while_a_daemon_runs_a_program(where: str) -> None:
    for _ in range(3):
        out, err = ends_within_a_second(
            f"""
from pyfeed import Scope
from pyfeed.program import Executor, Program, layers, program_guard
main, startup, scope = Program(), Program(), Scope()
with program_guard(main, startup):
    reader, queue = layers.py_array_reader(2, [(2,)], dtypes=["float64"], scope=scope)
    forever = layers.fill_constant([], "bool", 1)
    with layers.While(forever).block():
        {DAEMONS[where]}
executor, calls = Executor(), 0
executor.run(startup, scope=scope)
@pyfeed.program.kernels.kernel("count")
def count():
    global calls
    calls += 1
start(*[lambda: executor.run(main, scope=scope)] * 3, daemon=True)
until_waiting(1)
{"while calls < 100: time.sleep(0.001)" if "kernel" in where else ""}
say("ready")
"""
        )
        assert (out, err) == ([], "")


@pytest.mark.compiler
def test_a_kernel_that_is_called_when_the_interpreter_has_ended(tmp_path: Path) -> None:
    """The process continues for a while after the interpreter has ended, because a library delays its exit."""
    (tmp_path / "late.c").write_text(
        "#include <unistd.h>\n__attribute__((destructor)) static void last(void) { usleep(500000); }\n"
    )
    library = tmp_path / "late.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "late.c")], check=True, timeout=100)
    out = run(
        f"""
        import ctypes
        from pyfeed import Scope
        from pyfeed.program import Executor, Program, layers, program_guard
        ctypes.CDLL({str(library)!r})
        main, begun = Program(), threading.Event()
        with program_guard(main, Program()):
            forever, end = layers.fill_constant([], "bool", 1), layers.fill_constant([], "int64", 300_000)
            with layers.While(forever).block():
                layers.call("begun")
                i = layers.fill_constant([], "int64", 0)
                go_on = layers.less_than(i, end)
                with layers.While(go_on).block():
                    layers.increment(i)
                    layers.less_than(i, end, cond=go_on)
        kernel = pyfeed.program.kernels.register_kernel("begun", begun.set)
        start(lambda: Executor().run(main, scope=Scope()), daemon=True)
        begun.wait()
        """
    )
    assert out == []


def test_a_thread_that_is_no_daemon_runs_its_program_to_its_end() -> None:
    """After the main thread has ended, the only other thread is in a run. It works, so its run must not be ended."""
    out = run(
        """
        from pyfeed import Scope
        from pyfeed.program import Executor, Program, layers, program_guard
        main, startup, scope = Program(), Program(), Scope()
        with program_guard(main, startup):
            reader, queue = layers.py_array_reader(8, [()], dtypes=["int64"], scope=scope)
            i, end = layers.fill_constant([], "int64", 0), layers.fill_constant([], "int64", 2_000_000)
            go_on = layers.less_than(i, end)
            with layers.While(go_on).block():
                layers.increment(i)
                layers.less_than(i, end, cond=go_on)
            layers.call("nap")
            x = layers.read_file(reader)
        executor = Executor()
        executor.run(startup, scope=scope)
        queue.push((np.array(5),))
        nap = pyfeed.program.kernels.register_kernel("nap", lambda: time.sleep(0.6))
        start(lambda: say(executor.run(main, fetch=[x], scope=scope)))
        """
    )
    assert out == ["(array(5),)"]


def test_a_daemon_that_looks_again_and_again_is_not_at_work() -> None:
    out, err = ends_within_a_second(
        f"""
        from pyfeed import Scope
        from pyfeed.program import Executor, Program, layers, program_guard
        main, startup, scope = Program(), Program(), Scope()
        with program_guard(main, startup):
            reader, queue = layers.py_array_reader(8, [()], dtypes=["int64"], scope=scope)
            layers.read_file(reader, ["x"])
        executor = Executor()
        executor.run(startup, scope=scope)
        def look():
            while True:
                try:
                    executor.run(main, scope=scope, timeout={0.08 * SLOWNESS})
                except pyfeed.errors.Timeout:
                    pass
                except pyfeed.errors.EndOfData:
                    return
        def work():
            try:
                feed()[1].pop()
            except pyfeed.errors.EndOfData:
                say("end of data")
        start(look, daemon=True)
        start(work)
        until_waiting(2)
        say("ready")
        """
    )
    assert (out, err) == (["end of data"], "")


def test_a_run_that_nobody_can_end_is_ended_with_the_interpreter() -> None:
    out, err = ends_within_a_second(
        """
        from pyfeed import Scope
        from pyfeed.program import Executor, Program, layers, program_guard
        main, startup, scope = Program(), Program(), Scope()
        with program_guard(main, startup):
            reader, queue = layers.py_array_reader(8, [()], dtypes=["int64"], scope=scope)
            x = layers.read_file(reader)
        executor = Executor()
        executor.run(startup, scope=scope)
        def work():
            try:
                executor.run(main, fetch=[x], scope=scope)
            except pyfeed.errors.EndOfData:
                say("end of data")
        start(work)
        until_waiting(1)
        say("ready")
        """
    )
    assert (out, err) == (["end of data"], "")
