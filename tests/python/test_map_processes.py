"""Functions of map in worker processes: the results, states and errors of threads, and processes that die."""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import pickle
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pyfeed_worker
import pytest

import pyfeed
from pyfeed import LoDTensor, Reader, from_generator, open_files, open_writer, random_data

from .support import Background, Process, raises, same, wait_for_ends, wait_until

METHODS = ["spawn", "forkserver", "fork"]


def numbers(count: int = 40, **options: Any) -> Reader:
    """Return a reader of the numbers from 0: with a file, errors would have its records."""
    return from_generator(lambda: ((i,) for i in range(count)), [()], dtypes=["int64"], **options)


def workers() -> list[Any]:
    return [p for p in multiprocessing.active_children() if p.name.startswith("pyfeed-worker")]


def pids() -> list[int]:
    return [p.pid or 0 for p in workers()]


def values(reader: Any) -> list[Any]:
    return [x.item() for (x,) in reader]


@pytest.fixture(autouse=True)
def waits_for_the_processes_of_a_test() -> Iterator[None]:
    """A process that replaces another one may still import its modules, so it may end long after its reader."""
    before = set(pids())
    yield

    def have_ended() -> bool:
        gc.collect()
        return set(pids()) <= before

    wait_until(have_ended)


# ---- Functions, which spawned processes import from this module ---------------------------------


def double(x: Any) -> Any:
    return 2 * x


def later_is_faster(x: Any) -> Any:
    time.sleep(0.004 * (3 - int(x) % 4))
    return x


def fail_at_7(x: Any) -> Any:
    if x == 7:
        raise KeyError("seven", 7)
    return x


def fail_at_odd(x: Any) -> Any:
    if x % 2:
        raise ValueError(f"odd: {x}")
    return x


class Unpicklable(Exception):
    def __init__(self, x: Any) -> None:
        super().__init__(f"no pickle: {x}")
        self.lock = open(os.devnull)  # noqa: SIM115


def fail_without_pickle(x: Any) -> Any:
    raise Unpicklable(x)


def exit_at_3(x: Any) -> Any:
    if x == 3:
        sys.exit(9)
    return x


def end_at_3(x: Any) -> Any:
    if x == 3:
        os._exit(5)
    return x


def kill_at_3_once(x: Any, flag: str) -> Any:
    if x == 3 and not os.path.exists(flag):
        open(flag, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return x


class WithFlag:
    """A callable object, which is pickled with its state."""

    def __init__(self, function: Callable[..., Any], flag: str) -> None:
        self.function, self.flag = function, flag

    def __call__(self, x: Any) -> Any:
        return self.function(x, self.flag)


def block_at_3(x: Any, flag: str) -> Any:
    if x == 3:
        open(flag, "w").close()
        time.sleep(3600)
    return x


class WithFlags:
    def __init__(self, function: Callable[..., Any], flags: list[str]) -> None:
        self.function, self.flags = function, flags

    def __call__(self, x: Any) -> Any:
        return self.function(x, self.flags)


def block_until(x: Any, flags: list[str]) -> Any:
    """Write the id of this process into the flag of the tuple, and wait for the last flag."""
    part = Path(flags[int(x)] + ".part")
    part.write_text(str(os.getpid()))
    part.rename(flags[int(x)])
    wait_until(lambda: os.path.exists(flags[2]))
    return x


def sleep_a_little(x: Any) -> Any:
    time.sleep(0.0005)
    return x


def stop_iteration(x: Any) -> Any:
    return next(iter(()))


def wrong_shape(x: Any) -> Any:
    return np.zeros(2, "int64")


def wrong_count(x: Any) -> Any:
    return x, x


def wrong_dtype(x: Any) -> Any:
    return 1.5


def everything(x: Any, text: Any, half: Any, wide: Any) -> Any:
    assert text.lod[0].tolist() == [0, 5]
    return {
        "x": x + 1,
        "text": text.bytes_list()[0].decode() * 2,
        "half": half,
        "wide": LoDTensor(wide.data * 2, [[0, 3]]),
        "n": 7,
    }


def of_dict(d: Any) -> Any:
    return {"sum": d["x"].sum() + d["y"]["z"], "y": {"z": d["y"]["z"]}}


def draw(x: Any, position: Any, rng: Any) -> Any:
    return np.array([*position, rng.integers(1 << 40)])


class WithoutNotes(Exception):
    def add_note(self, _: str) -> None:
        raise RuntimeError("no notes")


class EndsTheTrainer(Exception):
    def __reduce__(self) -> Any:
        return sys.exit, (3,)


class NoException(BaseException):
    pass


class OwnError(pyfeed_worker.Error):
    pass


def fail_without_notes(x: Any) -> Any:
    raise WithoutNotes("x")


def fail_with_exit(x: Any) -> Any:
    raise EndsTheTrainer("x")


def fail_without_exception(x: Any) -> Any:
    raise NoException("x")


def fail_as_a_worker(x: Any) -> Any:
    raise OwnError("x")


def fail_as_a_queue(x: Any) -> Any:
    raise pyfeed_worker.QueueClosed("x")


KEPT: list[Any] = []


def keep_arguments(x: Any) -> Any:
    """Keep all arguments, and return the sum over all of them, which would change if the memory were reused."""
    KEPT.append(x)
    return sum(int(one.sum()) for one in KEPT)


def length_of(data: Any) -> Any:
    return len(data.bytes_list()[0])


def bytes_of_size(x: Any) -> Any:
    return b"x" * int(x)


def own_pid(x: Any) -> Any:
    return os.getpid()


# ---- Results -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_results_are_those_of_threads(method: str) -> None:
    before = set(pids())
    reader = numbers().map(double, num_workers=2, method=method)
    assert len(set(pids()) - before) == 2
    for _ in range(3):  # passes
        assert values(reader) == [2 * i for i in range(40)]


def test_the_order_is_kept_unless_it_need_not_be() -> None:
    assert values(numbers(20).map(later_is_faster, num_workers=3)) == list(range(20))
    assert sorted(values(numbers(20).map(later_is_faster, num_workers=3, ordered=False))) == list(range(20))


def test_all_kinds_of_arrays() -> None:
    def rows() -> Any:
        for i in range(5):
            half, wide = np.full(3, i, ml_dtypes.bfloat16), LoDTensor(np.arange(3.0) + i, [[0, 3]])
            yield np.full((2, 2), i, "float32"), f"text{i}", half, wide

    below = from_generator(
        rows,
        [(2, 2), (-1,), (3,), (-1,)],
        dtypes=["float32", "uint8", "bfloat16", "float64"],
        lod_levels=[0, 1, 0, 1],
    )
    shapes = {"x": (2, 2), "text": (-1,), "half": (3,), "wide": (-1,), "n": ()}
    dtypes = {"x": "float32", "text": "uint8", "half": "bfloat16", "wide": "float64", "n": "int16"}
    about: dict[str, Any] = {"shapes": shapes, "dtypes": dtypes, "lod_levels": {"text": 1, "wide": 1}}
    found = list(below.map(everything, num_workers=2, **about))
    for one, expected in zip(found, below.map(everything, **about), strict=True):
        assert list(one) == list(shapes)
        for key in ("x", "half", "n"):
            same(one[key], expected[key])
        assert one["text"].bytes_list() == expected["text"].bytes_list()
        same(one["wide"].data, expected["wide"].data)
        assert one["wide"].lod[0].tolist() == [0, 3]
    assert [one["text"].bytes_list() for one in found] == [[f"text{i}text{i}".encode()] for i in range(5)]


def test_dicts() -> None:
    below = random_data({"x": (3,), "y": {"z": ()}}, {"x": "int64", "y": {"z": "int64"}}, high=99, count=9)
    about: dict[str, Any] = {"shapes": {"sum": (), "y": {"z": ()}}, "dtypes": ["int64", "int64"]}
    about["dtypes"] = {"sum": "int64", "y": {"z": "int64"}}
    found = [(d["sum"].item(), d["y"]["z"].item()) for d in below.map(of_dict, num_workers=2, **about)]
    assert found == [(d["sum"].item(), d["y"]["z"].item()) for d in below.map(of_dict, **about)]


def test_positions_generators_and_states_are_those_of_threads() -> None:
    def chain(**how: Any) -> Reader:
        return random_data([()], count=10).map(
            draw, shapes=[(3,)], dtypes=["int64"], with_position=True, rng=True, seed=5, **how
        )

    threads, processes = chain(num_threads=2), chain(num_workers=2)
    expected = [[x.tolist() for (x,) in threads] for _ in range(2)]
    first = iter(processes)
    found = [next(first)[0].tolist() for _ in range(4)]
    state = json.loads(json.dumps(processes.state_dict()))
    del first
    resumed = chain(num_workers=1)
    resumed.load_state_dict(state)
    found += [x.tolist() for (x,) in resumed]
    assert found == expected[0]
    assert [x.tolist() for (x,) in resumed] == expected[1]


def test_arguments_that_the_function_keeps_do_not_change() -> None:
    below = from_generator(lambda: ((np.full(1000, i),) for i in range(30)), [(1000,)], dtypes=["int64"])
    reader = below.map(keep_arguments, num_workers=1, shapes=[()], dtypes=["int64"])
    assert values(reader) == [1000 * i * (i + 1) // 2 for i in range(30)]


def test_readers_above_may_hold_many_results() -> None:
    reader = numbers(1000).map(double, num_workers=2).shuffle(200, seed=1).batch(100).double_buffer()
    kept = list(reader)  # holds all cells of the ring
    assert sorted(int(x) for (batch,) in kept for x in batch) == [2 * i for i in range(1000)]


def test_large_and_growing_tuples() -> None:
    below = from_generator(lambda: ((b"x" * (1 << i),) for i in range(24)), [(-1,)], dtypes=["uint8"], lod_levels=[1])
    assert values(below.map(length_of, num_workers=2, shapes=[()], dtypes=["int64"])) == [1 << i for i in range(24)]
    sizes = from_generator(lambda: ((1 << i,) for i in range(24)), [()], dtypes=["int64"])
    texts = sizes.map(bytes_of_size, num_workers=2, shapes=[(-1,)], dtypes=["uint8"], lod_levels=[1])
    assert [len(x.data) for (x,) in texts] == [1 << i for i in range(24)]


def test_tuples_that_are_too_large() -> None:
    below = from_generator(lambda: ((b"x" * n,) for n in (10, 5000)), [(-1,)], dtypes=["uint8"], lod_levels=[1])
    reader = below.map(length_of, num_workers=1, shapes=[()], dtypes=["int64"], cell_bytes=4096)
    assert reader.read()[0] == 10
    message = "cell_bytes: expected a tuple of at most 4096 bytes for the workers, found 5376"
    with pytest.raises(pyfeed.errors.TooLargeError, match=message):
        reader.read()
    sizes = from_generator(lambda: ((n,) for n in (10, 5000)), [()], dtypes=["int64"])
    about: dict[str, Any] = {"shapes": [(-1,)], "dtypes": ["uint8"], "lod_levels": [1]}
    reader = sizes.map(bytes_of_size, num_workers=1, cell_bytes=4096, **about)
    assert len(reader.read()[0].data) == 10
    with pytest.raises(pyfeed.errors.TooLargeError, match="expected a tuple of at most 4096 bytes, found"):
        reader.read()


@pytest.mark.parametrize("capacity", [1, 2, 5, 10_000])
def test_any_capacity(capacity: int) -> None:
    assert values(numbers(30).map(double, num_workers=2, capacity=capacity)) == [2 * i for i in range(30)]


@pytest.mark.parametrize(("num_workers", "capacity"), [(1, 1), (2, 1), (2, 2), (3, 4)])
def test_kept_arguments_with_a_small_capacity(num_workers: int, capacity: int) -> None:
    below = from_generator(lambda: ((np.full(5, 1),) for _ in range(30)), [(5,)], dtypes=["int64"])
    reader = below.map(keep_arguments, num_workers=num_workers, shapes=[()], dtypes=["int64"], capacity=capacity)
    assert len(values(reader)) == 30


def test_map_above_map() -> None:
    reader = numbers(20).map(double, num_workers=1).map(double, num_workers=1).map(double, num_threads=2)
    assert values(reader) == [8 * i for i in range(20)]


def test_the_repr_has_the_processes() -> None:
    assert repr(numbers().map(double, num_workers=2)).endswith(
        "\n    .map(capacity=32, ordered=True)  # 1 thread, 2 processes>"
    )


# ---- Arguments ---------------------------------------------------------------------------------


def test_arguments_that_contradict_each_other() -> None:
    with raises(pyfeed.errors.InvalidArgument, "num_threads: expected 1 with num_workers, found 2"):
        numbers().map(double, num_threads=2, num_workers=2)
    with pytest.raises(pyfeed.errors.InvalidArgument, match="method: expected spawn, forkserver or fork"):
        numbers().map(double, num_workers=1, method="thread")


def test_a_function_that_pickle_refuses() -> None:
    with pytest.raises(pyfeed.errors.ArgumentTypeError, match="function: expected a function at the top level"):
        numbers().map(lambda x: x, num_workers=1)
    assert values(numbers(5).map(lambda x: x + 1, num_workers=1, method="fork")) == [1, 2, 3, 4, 5]


def test_a_preview_starts_no_processes() -> None:
    reader = random_data([()], ["int64"], high=9, count=4).map(own_pid, num_workers=1)
    before = pids()
    assert [x.item() for (x,) in reader.preview(2).tuples] == [os.getpid()] * 2
    assert pids() == before


# ---- Exceptions of the function ----------------------------------------------------------------


def test_an_exception_is_raised_in_its_place(tmp_path: Path) -> None:
    with open_writer(tmp_path / "a.npy") as writer:
        for i in range(10):
            writer.write((i,))
    reader = open_files(tmp_path / "a.npy").map(fail_at_7, num_workers=2)
    for _ in range(2):
        assert [reader.read()[0].item() for _ in range(7)] == list(range(7))
        with pytest.raises(KeyError) as caught:
            reader.read()
        error: Any = caught.value
        assert error.args == ("seven", 7)
        assert (error.file, error.record) == (str(tmp_path / "a.npy"), 7)
        assert "in fail_at_7" in error.__notes__[0]
        assert error.__notes__[1].startswith("in map: tuple 7 of pass ")
        reader.reset()


def test_tuples_are_skipped() -> None:
    reader = numbers(10).map(fail_at_odd, num_workers=2, on_error="skip")
    assert values(reader) == [0, 2, 4, 6, 8]
    assert str(reader.stats()).splitlines()[-1] == "skipped: tuple 9 of pass 0: ValueError: odd: 9"
    details = reader.stats()["details"]
    assert details["skipped"] == 5
    assert [skip["index"] for skip in details["skips"]] == [1, 3, 5, 7, 9]


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        (wrong_shape, pyfeed.errors.ShapeError, "slot 0: shape: expected [], found [2]"),
        (wrong_count, pyfeed.errors.SlotCountError, "slots: expected 1, found 2"),
        (wrong_dtype, pyfeed.errors.DTypeError, "slot 0: dtype: expected int64, found the float 1.5"),
        (stop_iteration, RuntimeError, "the function raised StopIteration"),
        (exit_at_3, pyfeed.errors.ProducerError, "the function failed: SystemExit: it called sys.exit(9)"),
        (
            fail_without_pickle,
            pyfeed.errors.ProducerError,
            f"the function failed: {__name__}.Unpicklable: no pickle: 0",
        ),
    ],
)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_other_errors(function: Any, kind: type[Exception], message: str, on_error: str) -> None:
    if on_error == "skip" and function is stop_iteration:
        return  # an exception of the function like any other
    before = set(pids())
    reader = numbers(5).map(function, num_workers=1, on_error=on_error)
    first = set(pids()) - before
    if on_error == "skip" and function is fail_without_pickle:
        assert list(reader) == []
        return
    with pytest.raises(kind) as caught:
        list(reader)
    assert str(caught.value) == message
    assert first <= set(pids())  # the process lives


@pytest.mark.parametrize(
    ("function", "kind", "message", "skipped"),
    [
        (fail_without_notes, pyfeed.errors.ProducerError, f"the function failed: {__name__}.WithoutNotes: x", True),
        (fail_with_exit, pyfeed.errors.ProducerError, f"the function failed: {__name__}.EndsTheTrainer: x", True),
        (fail_without_exception, NoException, "x", False),
        (fail_as_a_worker, OwnError, "x", True),
        (fail_as_a_queue, pyfeed_worker.QueueClosed, "x", True),
    ],
)
def test_odd_exceptions(function: Any, kind: type[BaseException], message: str, skipped: bool) -> None:
    reader = numbers(2).map(function, num_workers=1)
    with pytest.raises(kind) as caught:
        reader.read()
    assert str(caught.value) == message
    reader = numbers(2).map(function, num_workers=1, on_error="skip")
    if skipped:
        assert list(reader) == []
    else:
        with pytest.raises(kind):
            reader.read()


# ---- Processes that die ------------------------------------------------------------------------


def test_a_process_that_ends_fails_its_tuple() -> None:
    reader = numbers(10).map(end_at_3, num_workers=1)
    for _ in range(2):
        assert [reader.read()[0].item() for _ in range(3)] == [0, 1, 2]
        with pytest.raises(pyfeed.errors.WorkerError) as caught:
            reader.read()
        assert caught.value.exit_status == 5
        assert "map: tuple 3 of pass" in str(caught.value)
        reader.reset()  # another process takes its place


@pytest.mark.parametrize("method", METHODS)
def test_another_process_goes_on_after_a_kill(tmp_path: Path, method: str) -> None:
    reader = numbers(20).map(WithFlag(kill_at_3_once, str(tmp_path / "killed")), num_workers=2, method=method)
    with pytest.raises(pyfeed.errors.WorkerError, match="tuple 3 of pass 0"):
        list(reader)
    reader.reset()
    assert values(reader) == list(range(20))


def test_a_process_that_is_killed_while_it_waits() -> None:
    """No tuple was with them. If the library learns of one death after the other, the second may look like no start."""
    before = set(pids())
    reader = numbers(20).map(double, num_workers=2)
    assert values(reader) == [2 * i for i in range(20)]
    for pid in set(pids()) - before:
        os.kill(pid, signal.SIGKILL)
    wait_for_ends(set(pids()) - before)
    with contextlib.suppress(pyfeed.errors.WorkerError):
        assert values(reader) == [2 * i for i in range(20)]
    reader.reset()
    assert values(reader) == [2 * i for i in range(20)]


def test_an_idle_process_that_is_killed_costs_no_tuple(tmp_path: Path) -> None:
    """Two tuples are with two processes. The third process has none, and there is no result yet."""
    before = set(pids())
    flags = [str(tmp_path / "first"), str(tmp_path / "second"), str(tmp_path / "go")]
    reader = numbers(2).map(WithFlags(block_until, flags), num_workers=3, method="fork")
    reading = Background(lambda: values(reader))
    wait_until(lambda: os.path.exists(flags[0]) and os.path.exists(flags[1]))
    busy = {int(Path(flag).read_text()) for flag in flags[:2]}
    (idle,) = set(pids()) - before - busy
    os.kill(idle, signal.SIGKILL)
    wait_for_ends([idle])
    Path(flags[2]).touch()
    assert reading.result() == [0, 1]


def test_kills_of_which_each_is_found_in_its_place() -> None:
    """Each kill falls into the middle of a pass. The tuples before it are right, and the next pass begins."""
    random_ = random.Random(1)
    reader = numbers(100).map(sleep_a_little, num_workers=2, method="fork")
    for _ in range(30):
        reader.reset()
        found, kill_at = [], random_.randrange(1, 80)
        try:
            for (x,) in reader.current_pass():
                found.append(int(x))
                if len(found) == kill_at:
                    os.kill(random_.choice(pids()), signal.SIGKILL)
        except pyfeed.errors.WorkerError:
            pass
        assert found == list(range(len(found)))
        assert len(found) >= kill_at


def test_a_kill_in_the_middle_of_a_tuple(tmp_path: Path) -> None:
    before = set(pids())
    flag = str(tmp_path / "blocks")
    reader = numbers(20).map(WithFlag(block_at_3, flag), num_workers=1)
    (pid,) = set(pids()) - before
    rest = Background(lambda: values(reader))
    wait_until(lambda: os.path.exists(flag))
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(pyfeed.errors.WorkerError, match="map: tuple 3 of pass 0"):
        rest.result()


def test_a_reset_takes_back_what_was_posted(tmp_path: Path) -> None:
    """One process blocks in the first pass, so the other computes the second one. It must not begin with old tuples."""
    flag = str(tmp_path / "blocks")
    before = set(pids())
    reader = numbers(40).map(WithFlag(block_at_3, flag), num_workers=2)
    assert reader.read()[0] == 0
    wait_until(lambda: os.path.exists(flag))
    reader.reset()
    assert [reader.read()[0].item() for _ in range(3)] == [0, 1, 2]
    reader.close()
    for pid in set(pids()) - before:  # a function that sleeps cannot be ended otherwise
        os.kill(pid, signal.SIGKILL)


def test_the_end_of_a_reader_ends_its_processes(tmp_path: Path) -> None:
    before = set(pids())
    reader = numbers().map(double, num_workers=2)
    first = set(pids()) - before
    reader.read()
    reader.close()
    wait_for_ends(first)
    reader = numbers().map(double, num_workers=2).batch(2)
    second = set(pids()) - before - first
    reader.read()
    del reader
    gc.collect()
    wait_for_ends(second)
    flag = str(tmp_path / "blocks")
    reader = numbers().map(WithFlag(block_at_3, flag), num_workers=1)
    third = set(pids()) - before - first - second
    reading = Background(lambda: list(reader.current_pass()))
    wait_until(lambda: os.path.exists(flag))
    reader.close()
    with pytest.raises(pyfeed.errors.StateError):
        reading.result()
    for pid in third:
        os.kill(pid, signal.SIGKILL)  # a function that sleeps cannot be ended otherwise
    wait_for_ends(third)


PROGRAM = """
import multiprocessing, os, time
from tests.python.test_map_processes import *

reader = numbers(1000000).map({function}, num_workers=2, method="{method}")
say(reader.read()[0])
say(*[p.pid for p in multiprocessing.active_children()])
"""


# The same, with a function that returns for the first tuple only.
BLOCKED_PROGRAM = PROGRAM.format(function="block_everywhere", method="fork").replace(
    "reader = ", "block_everywhere = lambda x: x if x == 0 else time.sleep(3600)\nreader = "
)


def said(process: Process) -> list[int]:
    return [int(word) for word in process.line().split()]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_end_of_the_trainer_ends_its_processes(method: str) -> None:
    process = Process(PROGRAM.format(function="double", method=method))
    assert said(process) == [0]
    started = said(process)
    assert process.end() == ([], "")
    wait_for_ends(started)


def test_the_end_of_a_script_replaces_no_process() -> None:
    """The reader is alive at the end, in the middle of a pass. multiprocessing ends its processes then."""
    for _ in range(3):
        process = Process(PROGRAM.format(function="sleep_a_little", method="fork"))
        assert said(process) == [0]
        started = said(process)
        assert process.end() == ([], "")
        wait_for_ends(started)


def test_the_exit_waits_for_a_process_that_is_being_replaced() -> None:
    """multiprocessing ends the processes that it knows then. One that starts later would outlive the trainer."""
    process = Process(
        BLOCKED_PROGRAM
        + """
from multiprocessing.util import Finalize
from pyfeed import shared

begun, ended, replaced = (threading.Event() for _ in range(3))
start_worker = shared._WorkerGroup.start_worker

def exit_waits():
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame is not None and frame.f_code.co_name != "_note_exit":
        frame = frame.f_back
    return frame is not None

def start_late(*args):
    begun.set()
    while not (ended.is_set() or exit_waits()):
        time.sleep(0.001)
    process = start_worker(*args)
    replaced.set()
    return process

def after_the_processes():
    say("before the end" if replaced.is_set() else "after the end")
    ended.set()
    replaced.wait()

shared._WorkerGroup.start_worker = start_late
Finalize(None, after_the_processes, exitpriority=-1)
for p in multiprocessing.active_children():
    p.kill()
begun.wait()
"""
    )
    assert said(process) == [0]
    started = said(process)
    assert process.end() == (["before the end"], "")
    wait_for_ends(started)


def test_the_rest_of_a_pass_follows_a_process_that_died(tmp_path: Path) -> None:
    reader = numbers(20).map(WithFlag(kill_at_3_once, str(tmp_path / "killed")), num_workers=2)
    assert [reader.read()[0].item() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(pyfeed.errors.WorkerError):
        reader.read()
    reader.load_state_dict(reader.state_dict())
    assert values(reader.current_pass()) == list(range(3, 20))


def test_a_killed_trainer_leaves_no_process() -> None:
    process = Process(PROGRAM.format(function="double", method="fork") + "time.sleep(3600)")
    assert said(process) == [0]
    started = said(process)
    process.signal(signal.SIGKILL)
    process.end(-signal.SIGKILL)
    wait_for_ends(started)


def test_ctrl_c_ends_a_read() -> None:
    process = Process(
        BLOCKED_PROGRAM
        + """
try:
    say("reads")
    reader.read()
except KeyboardInterrupt:
    say("interrupted")
for p in multiprocessing.active_children(): p.kill()
"""
    )
    assert said(process) == [0]
    started = said(process)
    assert process.line() == "reads"
    process.signal(signal.SIGINT)
    assert process.line() == "interrupted"
    process.end()
    wait_for_ends(started)


def test_the_worker_pickles_exceptions_that_can_be_loaded() -> None:
    from pyfeed_worker._map_worker import _pickled

    assert pickle.loads(_pickled(KeyError(1))).args == (1,)
    assert _pickled(Unpicklable(1)) == b""
