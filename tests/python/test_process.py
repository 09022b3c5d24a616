"""Forks, signals and the end of the interpreter, each in its own process."""

from __future__ import annotations

import re
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from .support import Process, ends_within_a_second, run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and forks are POSIX's")

# ---- Forks ----

CHILD = """
def in_child():
    calls = {
        "Scope": lambda: pyfeed.Scope(),
        "global_scope": lambda: pyfeed._scope.Scope._global(),
        "py_array_reader": lambda: pyfeed.py_array_reader(1, [(2,)]),
        "from_generator": lambda: pyfeed.from_generator(lambda: [], [(2,)]),
        "memory_stats": lambda: pyfeed.diagnostics.memory_stats(),
    }
    for name in "push pop reserve close reopen wait_pass shutdown stats size fail produce".split():
        arguments = {"push": (tuple_of(1),), "wait_pass": (0,), "fail": (KeyError(),), "produce": (lambda w: [],)}
        calls["queue." + name] = lambda n=name, a=arguments.get(name, ()): getattr(queue, n)(*a)
    calls["lend"] = lambda: queue.push(tuple_of(1), copy=False)
    calls["enter"] = lambda: reservation.__enter__()
    calls["repr"] = lambda: repr(queue)
    for name in "read has_next reset __next__ __iter__ current_pass __len__ stats close".split():
        calls["reader." + name] = lambda n=name: getattr(reader, n)()
    calls["batch"] = lambda: reader.batch(2)
    calls["read op"] = lambda: reader.scope.read(reader.name, ["x"])
    calls["set"] = lambda: reader.scope.__setitem__("x", np.zeros(1))
    calls["get"] = lambda: reader.scope["x"]
    calls["in"] = lambda: "x" in reader.scope
    calls["erase"] = lambda: reader.scope.erase("x")
    calls["kind"] = lambda: reader.scope.kind("x")
    wrong = []
    for name, call in calls.items():
        try:
            call()
        except pyfeed.errors.ForkError as error:
            assert str(error) == (
                "pyfeed was loaded before this process was forked and does not work in the child: "
                "start processes with spawn or forkserver"
            )
            assert isinstance(error, RuntimeError)
        except BaseException as error:
            wrong.append((name, repr(error)))
        else:
            wrong.append((name, "no error"))
    say("child", wrong)
"""


def test_every_call_in_a_forked_child_raises_at_once() -> None:
    out = run(
        CHILD
        + """
reader, queue = feed(4)
lent, queued = np.zeros(2), np.zeros(2)
queue.push(tuple_of(1))
queue.push((lent,), copy=False)
queue.push((queued,), copy=False)
popped = [queue.pop(), queue.pop()]
reservation, entered = queue.reserve(), queue.reserve()
(x,) = entered.__enter__()
generated = pyfeed.from_generator(lambda: [tuple_of(1)], [(2,)])
generated.read()
loop = iter(reader)
other = feed()[1]
other.push(tuple_of(1))
start(lambda: other.push(tuple_of(1)), daemon=True)
start(feed()[1].pop, daemon=True)
until_waiting(2)
pid = os.fork()
if pid == 0:
    in_child()
    assert popped[0][0].tolist() == [1, 1]
    x[:] = 1
    try:
        entered.__exit__(None, None, None)
        say("committed")
    except pyfeed.errors.ForkError:
        pass
    del popped, reader, queue, reservation, entered, x, generated, loop, other, lent
    gc.collect()
    say("child ends")
    sys.exit(0)
say("status", os.waitpid(pid, 0)[1])
popped.clear()
assert lent.flags.writeable
assert not queued.flags.writeable
assert queue.pop()[0].tolist() == [0, 0]
entered.__exit__(None, None, None)
queue.push(tuple_of(5))
say([queue.pop()[0].size for _ in range(2)])
"""
    )
    assert out == ["child []", "child ends", "status 0", "[2, 2]"]


def test_a_fork_before_the_first_call() -> None:
    """Without a check, a child would hang in its first call if its parent's Go runtime has done nothing yet."""
    out = run(
        """
        pid = os.fork()
        if pid == 0:
            try:
                pyfeed.py_array_reader(1, [(2,)])
            except pyfeed.errors.ForkError:
                say("refused")
            os._exit(0)
        say(os.waitpid(pid, 0)[1])
        reader, queue = feed()
        queue.push(tuple_of(1))
        say(reader.read()[0][0])
        """
    )
    assert out == ["refused", "0", "1.0"]


def test_a_fork_before_the_import() -> None:
    out, err = Process(
        """
import os
pid = os.fork()
import numpy as np, pyfeed
reader, queue = pyfeed.py_array_reader(1, [(2,)])
queue.push((np.ones(2),))
total = reader.read()[0].sum()
if pid:
    assert os.waitpid(pid, 0)[1] == 0
    print(total)
""",
        preamble="",
    ).end()
    assert (out, err) == (["2.0"], "")


def test_multiprocessing_by_fork() -> None:
    out = run(
        CHILD
        + """
import multiprocessing
fork = multiprocessing.get_context("fork")
reader, queue = feed()
queue.push(tuple_of(1))
reservation = queue.reserve()
start(lambda: queue.push(tuple_of(2)), daemon=True)
until_waiting(1)

def work():
    in_child()
    def on():
        time.sleep(0.2)
        say("thread of the child ends")
    threading.Thread(target=on).start()

process = fork.Process(target=work)
process.start()
process.join()
say(process.exitcode)
with fork.Pool(2) as pool:
    say(pool.map(abs, [-1, -2, -3]))
say([reader.read()[0][0] for _ in range(2)] == [1.0, 2.0])
"""
    )
    assert out == ["child []", "thread of the child ends", "0", "[1, 2, 3]", "True"]


def test_a_child_that_raises_what_it_is_told() -> None:
    out, err = Process(
        """
        import multiprocessing
        reader, queue = feed()
        process = multiprocessing.get_context("fork").Process(target=queue.pop)
        process.start()
        process.join()
        say(process.exitcode)
        """
    ).end()
    assert out == ["1"]
    assert "pyfeed.errors.ForkError: pyfeed was loaded before this process was forked" in err
    assert err.count("Traceback") == 1


def test_a_writer_that_is_open_at_exit_leaves_no_file(tmp_path: Path) -> None:
    out = run(
        f"""
        os.chdir({str(tmp_path)!r})
        writer = pyfeed.open_writer("a.npy")
        writer.write((np.zeros(3),))
        child = os.fork()
        if not child:
            sys.exit(0)  # must not remove its parent's file
        os.waitpid(child, 0)
        say(len(os.listdir(".")))

        def endless(worker):  # a thread with this function keeps the module, and so the writer, alive to the end
            while True:
                yield tuple_of(0)

        reader, queue = feed()
        queue.produce(endless)
        reader.read()
        """
    )
    assert out == ["1"]
    assert list(tmp_path.iterdir()) == []


def test_spawned_processes_work() -> None:
    out = run(
        """
        if __name__ == "__main__":
            import multiprocessing
            feed()
            for method in ("spawn", "forkserver"):
                process = multiprocessing.get_context(method).Process(target=pyfeed.diagnostics.memory_stats)
                process.start()
                process.join()
                say(process.exitcode)
        """
    )
    assert out == ["0", "0"]


def test_programs_that_are_run_from_here() -> None:
    out = run(
        """
        import subprocess
        reader, queue = feed()
        queue.push(tuple_of(1))
        start(lambda: queue.push(tuple_of(2)), daemon=True)
        until_waiting(1)
        for options in ({}, {"preexec_fn": lambda: None}, {"close_fds": False}):
            command = [sys.executable, "-c", "print(1 + 1)"]
            say(subprocess.run(command, capture_output=True, text=True, **options).stdout.strip())
        say(reader.read()[0][0], reader.read()[0][0])
        """
    )
    assert out == ["2", "2", "2", "1.0 2.0"]


# ---- Signals ----

# Calls in which the main thread waits; with some of them, a statement to run first.
WAITS = {
    "push": ("queue.push(tuple_of(2))", "queue.push(tuple_of(1))"),
    "lent push": ("queue.push(tuple_of(2), copy=False)", "queue.push(tuple_of(1))"),
    "reserve": ("with queue.reserve(): raise AssertionError", "queue.push(tuple_of(1))"),
    "reservation made elsewhere": (
        "made[0].__enter__()",
        "queue.push(tuple_of(1)); start(lambda: made.append(queue.reserve()))[0].join()",
    ),
    "pop": ("queue.pop()", ""),
    "pop with a timeout": ("queue.pop(timeout=100)", ""),
    "read": ("reader.read()", ""),
    "next": ("next(reader)", ""),
    "for": ("for _ in reader.current_pass(): raise AssertionError", ""),
    "list": ("list(reader.current_pass())", ""),
    "has_next": ("reader.has_next()", ""),
    "batch": ("reader.batch(2).read()", ""),
    "next of a batch": ("next(reader.batch(2))", ""),
    "has_next of a batch": ("reader.batch(2).has_next()", ""),
    "read op": ('reader.scope.read(reader.name, ["x"])', ""),
    "wait_pass": ("queue.wait_pass(1)", ""),
}


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c(wait: str) -> None:
    call, before = WAITS[wait]
    process = Process(
        f"""
made = []
reader, queue = feed()
{before}
for _ in range(2):
    when_waiting(1, lambda: say("waiting"))
    try:
        {call}
    except KeyboardInterrupt:
        say("interrupted")
stats = queue.stats()
assert stats["waiting_producers"] == stats["waiting_consumers"] == stats["reserved"] == 0, stats
if stats["size"]:
    assert queue.pop()[0][0] == 1
queue.push(tuple_of(3), timeout=0)
assert reader.read(timeout=0)[0][0] == 3
say("usable")
"""
    )
    for _ in range(2):
        assert process.line() == "waiting"
        began = time.monotonic()
        process.signal(signal.SIGINT)
        assert process.line() == "interrupted"
        print(f"{wait}: interrupted after {1000 * (time.monotonic() - began):.1f} ms")
    assert process.end() == (["usable"], "")


OF_RAW = 'shapes=[(2,)], dtypes=["float32"]'
PIPES = {
    "open": 'pyfeed.open_files("npy:" + pipe)',
    "open in the caller's thread": 'pyfeed.open_files("npy:" + pipe, num_threads=0)',
    "read": f'pyfeed.open_files("raw:" + pipe, {OF_RAW}).read()',
    "read in the caller's thread": f'pyfeed.open_files("raw:" + pipe, {OF_RAW}, num_threads=0).read()',
    "has_next": f'pyfeed.open_files("raw:" + pipe, {OF_RAW}).has_next()',
    "chain": f'next(pyfeed.open_files("raw:" + pipe, {OF_RAW}).shuffle(4).batch(2).double_buffer())',
}


@pytest.mark.parametrize("writer", [False, True], ids=["nobody writes", "a silent writer"])
@pytest.mark.parametrize("call", PIPES)
def test_ctrl_c_while_a_pipe_is_waited_for(call: str, writer: bool, tmp_path: Path) -> None:
    process = Process(
        f"""
import errno
pipe = {str(tmp_path / "pipe")!r}
os.mkfifo(pipe)
def nobody_reads():
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        return error.errno == errno.ENXIO
for _ in range(2):
    if {writer}:
        holder = os.open(pipe, os.O_RDWR)
        writer = os.open(pipe, os.O_WRONLY)
        os.close(holder)
    when_waiting(1, lambda: say("waiting"))
    try:
        {PIPES[call]}
    except KeyboardInterrupt:
        say("interrupted")
    if {writer}:
        os.close(writer)
    while not nobody_reads():
        time.sleep(0.001)
"""
    )
    for _ in range(2):
        assert process.line() == "waiting"
        process.signal(signal.SIGINT)
        assert process.line() == "interrupted"
    assert process.end() == ([], "")


SKIPPING = {
    "tfrecord": 'pyfeed.open_files(vast, format="tfrecord", on_corrupt="skip"',
    "recordio": 'pyfeed.open_recordio(vast, records="bytes", on_corrupt="skip"',
}
SEARCHES = {
    **{f"read, {tag}, {n} threads": f"{SKIPPING[tag]}, num_threads={n}).read()" for tag in SKIPPING for n in (0, 1)},
    "has_next": f"{SKIPPING['tfrecord']}, num_threads=0).has_next()",
    "chain": f"{SKIPPING['recordio']}, num_threads=0).shuffle(4).batch(2).read()",
    "open, recordio": 'pyfeed.open_files(vast, format="recordio", on_corrupt="skip")',
    "open, tar": 'pyfeed.open_files(vast, format="tar", on_corrupt="skip", num_threads=0)',
    "open, a device": 'pyfeed.open_files("tar:/dev/zero", end="file")',
}


@pytest.mark.parametrize("call", SEARCHES)
def test_ctrl_c_in_a_search_that_does_not_end(call: str, tmp_path: Path) -> None:
    process = Process(
        f"""
vast = {str(tmp_path / "vast")!r}
with open(vast, "wb") as file:
    file.write(b"x" * 12)
    file.truncate(60 << 30)
for _ in range(2):
    when_waiting(1, lambda: say("waiting"))
    try:
        {SEARCHES[call]}
    except KeyboardInterrupt:
        say("interrupted")
"""
    )
    for _ in range(2):
        assert process.line() == "waiting"
        process.signal(signal.SIGINT)
        assert process.line() == "interrupted"
    assert process.end() == ([], "")


@pytest.mark.parametrize("threads", [0, 1])
@pytest.mark.parametrize("tag", SKIPPING)
def test_a_search_ends_with_its_reader(tag: str, threads: int, tmp_path: Path) -> None:
    """A search ends by a timeout, a reset by this or another thread, and the reader's end, also below a chain."""
    out = run(
        f"""
vast = {str(tmp_path / "vast")!r}
with open(vast, "wb") as file:
    file.write(b"x" * 12)
    file.truncate(60 << 30)
def opened():
    return {SKIPPING[tag]}, num_threads={threads})
reader = opened()
try:
    reader.read(timeout=0.1)
except pyfeed.errors.Timeout:
    say("timeout")
reader.reset()
say("reset")
def reset_its_read():
    while True:
        try:
            reader.state_dict()
        except pyfeed.errors.StateError as error:  # a read has begun
            assert "found one that waits" in str(error)
            return reader.reset()
        time.sleep(0.001)
start(reset_its_read, daemon=True)
try:
    reader.read()
except pyfeed.errors.Cancelled:
    say("cancelled")
del reader
chain = opened().shuffle(4).batch(2).double_buffer()
try:
    chain.read(timeout=0.1)
except pyfeed.errors.Timeout:
    say("timeout")
chain.reset()
del chain
say("ends")
"""
    )
    assert out == ["timeout", "reset", "cancelled", "timeout", "ends"]


@pytest.mark.parametrize("end", ["reset", "close"])
def test_a_reader_of_a_pipe_starts_over_and_ends(end: str, tmp_path: Path) -> None:
    """The reader of a pipe does so even if no process writes to the pipe."""
    what = {"reset": "reader.reset(); pyfeed.diagnostics.memory_stats()", "close": "del reader"}[end]
    out = run(
        f"""
pipe = {str(tmp_path / "pipe")!r}
os.mkfifo(pipe)
reader = pyfeed.open_files("raw:" + pipe, {OF_RAW})
try:
    reader.read(timeout=0.1)
except pyfeed.errors.Timeout:
    say("nothing yet")
{what}
say("ends")
"""
    )
    assert out == ["nothing yet", "ends"]


def test_ctrl_c_that_nobody_catches() -> None:
    process = Process(
        """
        reader, queue = feed()
        start(lambda: queue.wait_pass(1), daemon=True)
        start(queue.pop)
        when_waiting(3, lambda: say("waiting"))
        with queue:
            reader.read()
        """
    )
    assert process.line() == "waiting"
    process.signal(signal.SIGINT)
    _, err = process.end(-signal.SIGINT)
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert "PoisonedError" not in err


def test_a_signal_comes_before_an_error_that_it_led_to() -> None:
    """Ctrl-C may end a producer first. The consumer then raises KeyboardInterrupt, not the producer's error."""
    out = run(
        """
        def end():
            until_waiting(1)
            signal.raise_signal(signal.SIGINT)  # does not interrupt the main thread's sleep
            queue.fail(OSError())
        import signal
        reader, queue = feed()
        for wait in (queue.pop, reader.read, reader.has_next, lambda: next(reader)):
            thread, = start(end)
            try:
                wait()
            except BaseException as error:
                say(type(error).__name__)
            thread.join()
            queue.reopen()
        """
    )
    assert out == ["KeyboardInterrupt"] * 4


def test_ctrl_c_while_other_threads_wait_and_work() -> None:
    process = Process(
        """
        reader, queue = feed(4)
        full = feed()[1]
        full.push(tuple_of(0))
        blocked = start(lambda: full.push(tuple_of(1)), lambda: feed()[1].pop(), daemon=True)
        count = 0
        def produce(worker):
            while True:
                yield tuple_of(worker)
        queue.produce(produce, 2)
        try:
            for _ in reader:
                count += 1
                if count == 1:
                    say("reading")
        except KeyboardInterrupt:
            say("interrupted")
        assert count > 0
        assert all(t.is_alive() for t in blocked)
        full.pop()
        blocked[0].join()
        say(full.pop()[0][0])
        """
    )
    assert process.line() == "reading"
    process.signal(signal.SIGINT)
    assert process.line() == "interrupted"
    assert process.end() == (["1.0"], "")


def test_handlers_that_raise_and_handlers_that_do_not() -> None:
    out = run(
        """
        class Mine(Exception):
            pass

        def raises(number, frame):
            raise Mine(number)

        reader, queue = feed()
        signal.signal(signal.SIGUSR1, raises)
        for call in (queue.pop, reader.read, reader.has_next, lambda: next(reader)):
            when_waiting(1, lambda: os.kill(os.getpid(), signal.SIGUSR1))
            try:
                call()
            except Mine as error:
                say(*error.args)

        signal.signal(signal.SIGUSR1, lambda number, frame: queue.push(tuple_of(7)))
        when_waiting(1, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        say(queue.pop()[0][0])

        signal.signal(signal.SIGUSR1, lambda number, frame: say("handled"))
        def later():
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.1)
            queue.push(tuple_of(8))
        when_waiting(1, later)
        say(queue.pop()[0][0])

        signal.signal(signal.SIGUSR1, lambda number, frame: queue.close())
        when_waiting(1, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        say(list(reader))
        """
    )
    assert out == ["10", "10", "10", "10", "7.0", "handled", "8.0", "[]"]


def test_a_storm_of_signals() -> None:
    """Many signals do not change timeouts and do not lose tuples."""
    out = run(
        """
        handled = 0
        def handler(number, frame):
            global handled
            handled += 1
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        reader, queue = feed()
        began = time.monotonic()
        try:
            queue.pop(timeout=0.3)
        except pyfeed.errors.Timeout:
            say(time.monotonic() - began >= 0.3)
        queue.produce(lambda worker: (tuple_of(i) for i in range(3000)))
        say([int(x[0]) for x, in reader.batch(1) for x in x] == list(range(3000)))
        signal.setitimer(signal.ITIMER_REAL, 0)
        say(handled > 0)
        """
    )
    assert out == ["True", "True", "True"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_signals_that_end_a_process(number: signal.Signals) -> None:
    process = Process(
        """
        reader, queue = feed()
        queue.push(tuple_of(1))
        start(lambda: feed()[1].pop())
        when_waiting(2, lambda: say("waiting"))
        queue.push(tuple_of(2))
        """
    )
    assert process.line() == "waiting"
    process.signal(number)
    assert process.end(-number) == ([], "")


@pytest.mark.parametrize("order", ["before", "after", "both", "option"])
def test_faulthandler(order: str) -> None:
    """faulthandler reports a fault outside Go, whether it is enabled before or after the import."""
    enable = "import faulthandler; faulthandler.enable()\n"
    process = Process(
        (enable if order in ("before", "both") else "")
        + "import ctypes, pyfeed, numpy as np\n"
        + (enable if order in ("after", "both") else "")
        + """
reader, queue = pyfeed.py_array_reader(1, [(2,)])
queue.push((np.zeros(2),))
print(reader.read()[0].tolist(), flush=True)
def the_fault():
    ctypes.string_at(0)
the_fault()
""",
        *(["-X", "faulthandler"] if order == "option" else []),
        preamble="",
    )
    out, err = process.end(-signal.SIGSEGV)
    assert out == ["[0.0, 0.0]"]
    assert "Fatal Python error: Segmentation fault" in err
    assert "in the_fault" in err


# ---- The end of the interpreter ----

BLOCKED = {
    "push": "lambda: full.push(tuple_of(2))",
    "lent push": "lambda: full.push(tuple_of(2), copy=False)",
    "reserve": "lambda: full.reserve().__enter__()",
    "pop": "lambda: empty.pop()",
    "read": "lambda: reader.read()",
    "next": "lambda: next(reader)",
    "has_next": "lambda: reader.has_next()",
    "batch": "lambda: reader.batch(2).read()",
    "read op": 'lambda: reader.scope.read(reader.name, ["x"])',
    "wait_pass": "lambda: empty.wait_pass(1)",
    "with timeouts": "lambda: (empty.pop(100), full.push(tuple_of(2), timeout=100))",
}

QUEUES = """
full = feed()[1]
full.push(tuple_of(1))
reader, empty = feed()
def tells(function):
    def run():
        try:
            say("got", function())
        except pyfeed.errors.Error as error:
            say(type(error).__name__)
    return run
"""


def test_a_thread_that_is_started_at_the_end_has_begun() -> None:
    # _start_thread returns only when the interpreter knows the thread. Otherwise it could be gone before that.
    program = """
        end, before = threading.Event(), len(sys._current_exceptions())  # one entry for each thread
        for i in range(20):
            pyfeed._native._start_thread(end.wait)
            assert len(sys._current_exceptions()) == before + i + 1
        end.set()
        say("all")
    """
    assert run(program) == ["all"]


def test_daemons_that_wait() -> None:
    functions = ", ".join(BLOCKED.values())
    out, err = ends_within_a_second(
        QUEUES
        + f"start(*[tells(f) for f in ({functions})], daemon=True)\nuntil_waiting({len(BLOCKED)})\nsay('ready')\n"
    )
    assert (out, err) == ([], "")


@pytest.mark.parametrize("place", BLOCKED)
def test_threads_that_wait_for_ever(place: str) -> None:
    out, err = ends_within_a_second(QUEUES + f"start(*[tells({BLOCKED[place]})] * 2)\nuntil_waiting(2)\nsay('ready')\n")
    ends = {"has_next": "got False", "pop": "EndOfData", "with timeouts": "EndOfData", "next": None}
    expected = ends.get(place, "EndOfData" if place in ("read", "batch", "read op") else "QueueClosed")
    if expected is not None:
        assert out == [expected] * 2
        assert err == ""
    else:
        assert err.count("StopIteration") == 2


# After the main thread has ended, the other threads complete their work, however slowly.
PAUSE = 0.3  # seconds: longer than the time without progress after which threads count as stuck


@pytest.mark.parametrize(
    ("wait", "outcome"),
    [("empty.pop()", "EndOfData"), ("reader.read()", "EndOfData"), ("buffer.get()", "QueueClosed")],
)
def test_a_map_that_works_ahead_for_no_thread_that_is_joined(wait: str, outcome: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((1000, 2)))
    out = run(
        QUEUES
        + f"""
os.chdir({str(tmp_path)!r})
buffer = pyfeed.staging.get_buffer(pyfeed.CPUPlace(), 1)
called = threading.Event()
def function(x):
    called.set()
    threading.Event().wait()
mapped = pyfeed.open_files("a.npy").map(function, 2)
while not called.is_set():  # the first read starts the workers
    try:
        mapped.read(timeout=0.01)
    except pyfeed.errors.Timeout:
        pass
start(tells(lambda: {wait}))
until_waiting(1)
"""
    )
    assert out == [outcome]


@pytest.mark.parametrize("wait", ["mapped.read()", "mapped.batch(1).read()", "mapped.scope.read(mapped.name, ['x'])"])
def test_a_map_that_a_joined_thread_waits_for(wait: str) -> None:
    out = run(
        f"""
finalizing = threading.main_thread().join
def function(x):
    finalizing()
    time.sleep({PAUSE})
    return x + 1
reader, queue = feed()
queue.push(tuple_of(1))
mapped = reader.map(function)
def read():
    {wait}
    say("read")
start(read)
"""
    )
    assert out == ["read"]


def test_a_map_that_makes_room_for_a_joined_thread() -> None:
    out = run(
        f"""
reader, queue = feed(1)
def function(x):
    threading.main_thread().join()
    time.sleep({PAUSE})
    return x
mapped = reader.map(function, capacity=5)
try:
    mapped.read(timeout=0.01)  # starts the workers
except pyfeed.errors.Timeout:
    pass
def push():
    for i in range(4):
        queue.push(tuple_of(i))
    say("pushed")
start(push)
"""
    )
    assert out == ["pushed"]


WORKERS = f"""
{QUEUES}
from pyfeed.shared import SharedFeedQueue

def shared():
    return SharedFeedQueue([(2,)], dtypes=["float64"], ring_cells=3)
"""


@pytest.mark.parametrize("wait", ["queue.reader", "queue.reader.batch(1).double_buffer()", "iter(queue.pop, 0)"])
def test_worker_processes_that_a_joined_thread_waits_for(wait: str) -> None:
    """Also before they attach to the queue, and after one has ended."""
    out = run(
        WORKERS
        + f"""
from pyfeed_worker import _producer
run_at_once = _producer._run
def run_late(*args):
    time.sleep({PAUSE})
    run_at_once(*args)
_producer._run = run_late
queue = shared()
def work(producer, worker):
    time.sleep(worker * {PAUSE})
    for i in range(2):
        producer.push(tuple_of(i))
        time.sleep({PAUSE})
queue.start(work, num_workers=2, method="fork")
def read():
    read = 0
    try:
        for _ in {wait}:
            read += 1
    except pyfeed.errors.EndOfData:
        pass
    say(read)
start(read)
"""
    )
    assert out == ["4"]


@pytest.mark.parametrize("wait", ["mapped", "mapped.batch(1)"])
def test_worker_processes_of_a_map_that_a_joined_thread_waits_for(wait: str) -> None:
    out = run(
        f"""
def function(x):
    time.sleep({PAUSE})
    return x
mapped = pyfeed.random_data([(2,)], count=4).map(function, num_workers=1, method="fork")
start(lambda: say(sum(1 for _ in {wait})))
"""
    )
    assert out == ["4"]


def test_worker_processes_behind_a_slow_source(tmp_path: Path) -> None:
    """While they have no tuple, they do not count, and the reader of the source waits as it would without them."""
    out = run(
        f"""
path = {str(tmp_path / "pipe.raw")!r}
os.mkfifo(path)
if os.fork() == 0:
    with open(path, "wb") as file:
        for i in range(4):
            file.write(np.full(2, i, float).tobytes())
            file.flush()
            time.sleep({PAUSE})
    os._exit(0)
files = pyfeed.open_files([path], shapes=[(2,)], dtypes=["float64"])
mapped = files.map(lambda x: x + 1, num_workers=1, method="fork")
start(lambda: say(*[int(x[0]) for (x,) in mapped]))
"""
    )
    assert out == ["1 2 3 4"]


@pytest.mark.parametrize(
    "begin",
    [
        # They wait for room: the thread waits for another queue.
        """
reader = queue.reader.zip(feed(scope=queue.reader.scope)[0])
queue.start(pushes, method="fork")
while queue.stats()["pushed"] < 2:  # the tuple in the last cell is held back
    time.sleep(0.001)
""",
        # The only one has ended its part of the pass, which expects another part.
        """
reader = queue.reader
queue.start(pushes_one, method="fork", persistent=True)
queue.expect(2)
begun.set()
reader.read()
ended.wait()
""",
        # They have no tuple that they could call the function with.
        """
reader = feed()[0].map(lambda x: x, num_workers=2, method="fork")
""",
        # The same, but one keeps the memory of its last tuple.
        """
reader, source = feed()
kept = []
def keep(x):
    kept.append(x)
    return x.copy()
reader = reader.map(keep, num_workers=1, method="fork")
source.push(tuple_of(1))
reader.read()
""",
        # They have a tuple, but the thread does not wait for the result.
        """
calls = iter(range(9))
def block(x):
    if next(calls) > 0:
        time.sleep(3600)
    return x
mapped = pyfeed.random_data([(2,)]).map(block, num_workers=1, method="fork")
mapped.read()
reader = feed()[0]
""",
        # They cannot attach to this pass.
        """
def lingers(producer, worker):
    producer.push(tuple_of(1))
    producer.close()
    time.sleep(3600)
queue.start(lingers, method="fork")
say(sum(1 for _ in queue.reader))
queue.reopen()
reader = queue.reader
""",
        # There are none.
        """
reader = queue.reader
""",
    ],
    ids=["room", "ended", "no task", "kept", "not read", "earlier pass", "none"],
)
def test_worker_processes_that_cannot_end_a_wait(begin: str) -> None:
    out, err = ends_within_a_second(
        WORKERS
        + f"""
import multiprocessing
queue, begun, ended = shared(), multiprocessing.Event(), multiprocessing.Event()
def pushes(producer, worker):
    for i in range(9):
        producer.push(tuple_of(i))
def pushes_one(producer, worker):
    begun.wait()
    producer.push(tuple_of(1))
    producer.close()
    ended.set()
{begin}
start(tells(reader.read))
until_waiting(1)
say("ready")
"""
    )
    assert out[-1] in ("EndOfData", "QueueClosed")
    assert err == ""


def test_a_machine_that_stands_still_is_not_a_thread_that_is_stuck() -> None:
    """Between two looks at the threads, at most the time of two polls counts."""
    from pyfeed import _exit

    quiet = _exit._Quiet(10.0)
    assert quiet.look(10.005) == pytest.approx(0.005)
    assert quiet.look(99.0) == pytest.approx(0.015)
    assert quiet.look(99.005) == pytest.approx(0.020)
    quiet.reset()
    assert quiet.look(99.010) == pytest.approx(0.005)


@pytest.mark.parametrize("idle", [0, 3])
def test_a_pool_of_threads_that_wait(idle: int) -> None:
    out, err = ends_within_a_second(
        QUEUES
        + f"""
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor({3 + idle})
barrier = threading.Barrier({3 + idle})
for done in [pool.submit(barrier.wait) for _ in range({3 + idle})]:
    done.result()
for function in (lambda: full.push(tuple_of(2)), lambda: empty.pop(), lambda: reader.read()):
    pool.submit(tells(function))
until_waiting(3)
assert threading.active_count() == {4 + idle}
say("ready")
"""
    )
    assert (sorted(out), err) == (["EndOfData", "EndOfData", "QueueClosed"], "")


def test_threads_that_begin_to_wait_after_the_end_of_the_main_thread() -> None:
    out, err = ends_within_a_second(
        QUEUES
        + """
def late():
    threading.main_thread().join()
    time.sleep(0.2)
    full.push(tuple_of(2))
def later():
    threading.main_thread().join()
    time.sleep(0.3)
    feed()[0].read()
start(tells(late), tells(later))
say("ready")
"""
    )
    assert (sorted(out), err) == (["EndOfData", "QueueClosed"], "")


def test_threads_that_wait_again_and_again() -> None:
    """After a queue is shut down, the thread waits in another one."""
    out, err = ends_within_a_second(
        QUEUES
        + """
def again():
    for _ in range(3):
        try:
            feed()[1].pop()
        except pyfeed.errors.EndOfData:
            say("ended")
start(again)
until_waiting(1)
say("ready")
"""
    )
    assert (out, err) == (["ended"] * 3, "")


def test_threads_that_wait_for_each_other() -> None:
    out, err = ends_within_a_second(
        """
        (r1, q1), (r2, q2) = feed(), feed()
        def pass_on(reader, queue):
            for arrays in reader:
                queue.push(arrays)
            say("ended")
        start(lambda: pass_on(r1, q2), lambda: pass_on(r2, q1))
        until_waiting(2)
        say("ready")
        """
    )
    assert (out, err) == (["ended", "ended"], "")


@pytest.mark.parametrize(
    ("end", "status"), [("sys.exit(3)", 3), ("1 / 0", 1), ("raise KeyboardInterrupt", -2), ("", 0)]
)
def test_the_exit_status_is_the_main_threads(end: str, status: int) -> None:
    out, err = ends_within_a_second(
        QUEUES + f"start(tells(lambda: full.push(tuple_of(2))))\nuntil_waiting(1)\nsay('ready')\n{end}\n", status
    )
    assert out == ["QueueClosed"]
    assert ("Traceback" in err) == (end in ("1 / 0", "raise KeyboardInterrupt"))


def test_everything_is_alive_at_the_end() -> None:
    out, err = ends_within_a_second(
        QUEUES
        + """
lent = [np.zeros(2) for _ in range(10)]
reader2, queue2 = feed(20)
for array in lent:
    queue2.push((array,), copy=False)
popped = [queue2.pop() for _ in range(3)]
entered = queue2.reserve()
arrays = entered.__enter__()
batch = reader2.batch(2)
batch.has_next()
generated = pyfeed.from_generator(lambda: (tuple_of(i) for i in range(100)), [(2,)])
generated.read()
queue2.circle = [queue2, batch, popped, entered, arrays]
try:
    raise KeyError(queue2)
except KeyError as error:
    full.fail(error)
pyfeed.global_scope()["x"] = np.zeros(1000)
keep = pyfeed.global_scope()["x"]
class Late:
    def __del__(self):
        self.queue.pop(timeout=0)
        self.queue.close()
late = Late()
late.queue = queue2
say("ready")
"""
    )
    assert (out, err) == ([], "")


def test_a_thread_that_comes_to_pyfeed_only_after_the_end_of_the_main_thread() -> None:
    """At that time it is too late to register a function for the end of the interpreter."""
    out, err = Process(
        """
import threading, time
import pyfeed
reader, queue = pyfeed.py_array_reader(1, [(2,)])
def late():
    while threading.main_thread().is_alive():
        time.sleep(0.001)
    try:
        queue.pop()
    except pyfeed.errors.EndOfData:
        print("the end")
threading.Thread(target=late).start()
""",
        preamble="",
    ).end()
    assert (out, err) == (["the end"], "")


def test_functions_at_exit_may_use_everything() -> None:
    out, err = ends_within_a_second(
        """
        reader, queue = feed()
        def at_exit():
            queue.push(tuple_of(1))
            try:
                queue.push(tuple_of(2), timeout=0.01)
            except pyfeed.errors.Timeout:
                say("full")
            say(reader.read()[0][0])
            lent = np.zeros(2)
            queue.push((lent,), copy=False)
            queue.pop()
            say(lent.flags.writeable)
            with feed()[1].reserve() as (x,):
                x[:] = 1
        atexit.register(at_exit)
        say("ready")
        """
    )
    assert (out, err) == (["full", "1.0", "True"], "")


@pytest.mark.parametrize(
    ("producers", "first"),
    [
        ("start(produce, produce)", PAUSE),
        ("queue.produce(lambda worker: slowly(), 2)", PAUSE),
        # A daemon that has not used a queue yet cannot be recognized as one that will.
        ("start(produce, produce, daemon=True)", 0),
    ],
    ids=["threads", "produce", "daemons"],
)
def test_work_goes_on_after_the_main_thread(producers: str, first: float) -> None:
    out = run(
        f"""
reader, queue = feed(2)
left = 2
def slowly():
    time.sleep({first})
    for i in range(4):
        yield tuple_of(i)
        time.sleep({PAUSE})
def produce():
    global left
    for arrays in slowly():
        queue.push(arrays)
    left -= 1
    if not left:
        queue.close()
def consume():
    say(sorted(int(x[0]) for x, in reader))
{producers}
start(consume)
"""
    )
    assert out == ["[0, 0, 1, 1, 2, 2, 3, 3]"]


def test_a_slow_consumer_gets_all_after_the_main_thread() -> None:
    out = run(
        f"""
reader, queue = feed(1)
def consume():
    found = []
    for x, in reader:
        found.append(int(x[0]))
        time.sleep({PAUSE})
    say(found)
def produce():
    with queue:
        for i in range(5):
            queue.push(tuple_of(i))
    say("pushed all")
start(produce, consume)
"""
    )
    assert out == ["pushed all", "[0, 1, 2, 3, 4]"]


def test_a_daemon_that_consumes_slowly_is_waited_for_by_its_producer() -> None:
    out = run(
        f"""
reader, queue = feed(1)
def consume():
    for x, in reader:
        time.sleep({PAUSE})
def produce():
    with queue:
        for i in range(5):
            queue.push(tuple_of(i))
    say("pushed all")
start(consume, daemon=True)
start(produce)
"""
    )
    assert out == ["pushed all"]


def test_a_generator_goes_on_after_the_main_thread() -> None:
    out = run(
        f"""
def slowly():
    for i in range(4):
        time.sleep({PAUSE})
        yield tuple_of(i)
reader = pyfeed.from_generator(slowly, [(2,)])
def consume():
    for _ in range(2):
        say([int(x[0]) for x, in reader])
        reader.reset()
    say(reader.read(timeout=10)[0][0])
start(consume)
"""
    )
    assert out == ["[0, 1, 2, 3]", "[0, 1, 2, 3]", "0.0"]


def test_queues_are_made_all_the_time_after_the_main_thread() -> None:
    out = run(
        """
        def use():
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                reader, queue = feed()
                queue.push(tuple_of(1))
                reader.read()
            say("done")
        start(use, use, use)
        """
    )
    assert out == ["done"] * 3


def test_an_exception_in_a_producer_ends_the_program() -> None:
    process = Process(
        """
        def function(worker):
            yield tuple_of(1)
            raise ValueError("in the producer")
        reader, queue = feed()
        queue.produce(function)
        for arrays in reader:
            say("ready")
        """
    )
    assert process.line() == "ready"
    out, err = process.end(1)
    assert out == []
    assert err.rstrip().endswith("ValueError: in the producer")
    assert "in function" in err
    assert "in <module>" in err


# ---- All warnings ----

EVERYTHING = """
reader, queue = feed(4, lod_levels=[0])
queue.push(tuple_of(1))
queue.push(tuple_of(2), copy=False)
with queue.reserve() as (x,):
    x[:] = 3
assert [x[0] for x, in (reader.read(), queue.pop(), next(reader))] == [1, 2, 3]
start(lambda: queue.push(tuple_of(5)), daemon=True)[0].join()
for refused in (("text",), (np.zeros(3),), 5):
    try:
        queue.push(refused)
    except pyfeed.errors.Error:
        pass
queue.fail(KeyError("x"))
try:
    list(reader.batch(2))
except KeyError:
    pass
generated = pyfeed.from_generator(lambda: (tuple_of(i) for i in range(10)), [(2,)])
for _ in range(3):
    assert len(list(generated.batch(3))) == 4
    generated.reset()
pyfeed.global_scope()["x"] = np.zeros(3)
assert pyfeed.global_scope()["x"].sum() == 0
del reader, generated
gc.collect()
say("done")
"""


@pytest.mark.parametrize(
    "options",
    [["-X", "dev", "-W", "error"], ["-W", "error", "-b", "-b"], ["-I", "-W", "error"], ["-O", "-O"]],
    ids=" ".join,
)
def test_no_warnings(options: list[str]) -> None:
    assert run(EVERYTHING, *options) == ["done"]


def test_debug_memory() -> None:
    assert run(EVERYTHING, PYTHONMALLOC="debug", PYTHONFAULTHANDLER="1") == ["done"]


def test_import_starts_nothing_and_brings_little() -> None:
    out, err = Process(
        """
import sys, threading
import numpy
before = set(sys.modules)
import pyfeed
brought = set(sys.modules) - before
print(sorted({name.partition(".")[0] for name in brought} - {"numpy", *sys.stdlib_module_names}))
print(threading.active_count())
dear = {"asyncio", "concurrent.futures", "inspect", "json", "multiprocessing", "ml_dtypes", "numpy.typing"}
print(sorted(dear & brought))
print(sorted({"pyfeed._options", "pyfeed.program", "pyfeed.formats", "pyfeed.shared", "pyfeed.typing"} & brought))
""",
        preamble="",
    ).end()
    assert (out, err) == (["['pyfeed']", "1", "[]", "[]"], "")


def test_garbage_is_first_collected_after_32_mib(tmp_path: Path) -> None:
    """No collection runs before 32 MiB, not even beside the first batch. A GOGC in the environment wins."""
    program = f"""
import pyfeed, sys
reader = pyfeed.open_csv({str(tmp_path / "x.csv")!r}).batch(32)
next(reader)
print("first", file=sys.stderr)
reader = pyfeed.open_csv({str(tmp_path / "x.csv")!r}).shuffle(200_000).batch(32)
for _ in range(4):
    for _ in reader: pass
    reader.reset()
"""
    (tmp_path / "x.csv").write_text("x\n" + "text\n" * 200_000)  # text, since numbers are read in blocks
    for environment, least in ({}, [32, 64]), ({"GOGC": "50"}, [2, 2]):
        out, err = Process(program, GODEBUG="gctrace=1", **environment).end()
        before, _, after = err.partition("first\n")
        goals = [int(goal) for goal in re.findall(r"(\d+) MB goal", after)]
        assert (out, before) == ([], "")
        assert len(goals) >= 2
        assert goals[0] == least[0]
        assert goals[-1] >= least[1]


def test_what_is_imported_later_is_there_all_the_same() -> None:
    out, err = Process(
        """
import pyfeed
from pyfeed import Program
print(pyfeed.Program is Program, "Program" in vars(pyfeed), pyfeed.program.Program is Program)
print(pyfeed.shared.SharedFeedQueue.__module__)
try:
    pyfeed.Programme
except AttributeError as error:
    print(error)
""",
        preamble="",
    ).end()
    assert (out, err) == (
        [
            "True True True",
            "pyfeed.shared",
            "module 'pyfeed' has no attribute 'Programme': did you mean pyfeed.Program?",
        ],
        "",
    )


def test_import_on_a_thread() -> None:
    """Ctrl-C interrupts the main thread, even if another thread imported pyfeed."""
    process = Process(
        """
import sys, threading
thread = threading.Thread(target=__import__, args=("pyfeed",))
thread.start()
thread.join()
import pyfeed, time
reader, queue = pyfeed.py_array_reader(1, [(2,)])
def tell():
    while not pyfeed._native._waiting_threads():
        time.sleep(0.001)
    print("waiting", flush=True)
threading.Thread(target=tell).start()
try:
    queue.pop()
except KeyboardInterrupt:
    print("interrupted")
""",
        preamble="",
    )
    assert process.line() == "waiting"
    process.signal(signal.SIGINT)
    assert process.end() == (["interrupted"], "")
