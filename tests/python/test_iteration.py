"""Loops over readers: the pass that each of them reads; len; close."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyfeed.errors import ArgumentTypeError, Cancelled, CorruptRecordError, EndOfData, StateError
from pyfeed.typing import Slot

import pyfeed
from pyfeed import PyArrayFeedQueue, Reader, Scope, _exit, from_generator, open_files, open_npy, random_data
from pyfeed.shared import SharedFeedQueue

from . import shared_workers as workers
from .support import Array, Background, feed, raises, together, tuple_of, value_of, wait_for_consumers, wait_until

OTHER = "another loop over this reader is under way"
REFUSED = "cannot start over: what was pushed into its queue is gone"
CLOSED = "the reader is closed"


# ---- Which pass ----


def generated() -> Reader:
    """Return a reader whose tuples differ from pass to pass."""
    passes = itertools.count()

    def function() -> Iterator[tuple[Array]]:
        first = 100 * next(passes)
        return (tuple_of(first + i) for i in range(6))

    return from_generator(function, [(2,)], dtypes=["float64"], scope=Scope())


def files(folder: Path) -> Reader:
    np.save(folder / "a.npy", np.arange(12.0).reshape(6, 2))
    return open_npy(folder / "a.npy", scope=Scope())


KINDS: dict[str, Callable[[Path], Reader]] = {
    "files": files,
    "one file, in the caller's thread": lambda folder: open_npy((files(folder), folder / "a.npy")[1], num_threads=0),
    "random_data": lambda _: random_data([(2,)], count=6),
    "from_generator": lambda _: generated(),
    "batch": lambda folder: files(folder).batch(2),
    "batch of a generator": lambda _: generated().batch(4),
    "shuffle": lambda folder: files(folder).shuffle(4, seed=1),
    "map": lambda _: generated().map(lambda x: 2 * x, 2),
    "shard": lambda folder: files(folder).shard(1, 2),
    "zip": lambda folder: (reader := files(folder)).zip(random_data([()], count=5, scope=reader.scope)),
    "multi_pass": lambda folder: files(folder).shuffle(6).multi_pass(2),
    "double_buffer": lambda _: generated().double_buffer(),
    "a chain": lambda _: generated().map(lambda x: -x).shuffle(3).batch(2).double_buffer(depth=4),
}


every_kind = pytest.mark.parametrize("kind", KINDS)


def made(kind: str, folder: Path) -> tuple[Reader, list[list[Any]]]:
    """Return a new reader, and the first passes of a reader of the same kind, found by read and reset."""
    passes = []
    with KINDS[kind](folder) as reader:
        for _ in range(4):
            passes.append(rest_of(reader))
            reader.reset()
    assert all(len(one) >= 2 for one in passes)
    return KINDS[kind](folder), passes


def rest_of(reader: Reader) -> list[Any]:
    found = []
    while reader.has_next():
        found.append(value_of(reader.read()))
    return found


def looped(reader: Any) -> list[Any]:
    return [value_of(arrays) for arrays in reader]


@every_kind
def test_each_loop_is_a_pass(kind: str, tmp_path: Path) -> None:
    reader, passes = made(kind, tmp_path)
    assert [looped(reader) for _ in range(4)] == passes
    assert reader.stats()["passes"] == 4


@every_kind
def test_the_first_loop_goes_on_where_the_reader_is(kind: str, tmp_path: Path) -> None:
    reader, passes = made(kind, tmp_path)
    assert value_of(next(reader)) == passes[0][0]
    assert looped(reader) == passes[0][1:]
    assert looped(reader) == passes[1]


@every_kind
def test_a_loop_after_a_break(kind: str, tmp_path: Path) -> None:
    reader, passes = made(kind, tmp_path)
    for expected in passes[:2]:
        for arrays in reader:
            assert value_of(arrays) == expected[0]
            break
    assert looped(reader.current_pass()) == passes[1][1:]
    assert looped(reader.current_pass()) == []
    assert looped(reader) == passes[2]


@every_kind
def test_a_loop_after_a_reset(kind: str, tmp_path: Path) -> None:
    reader, passes = made(kind, tmp_path)
    assert looped(reader) == passes[0]
    reader.reset()
    assert looped(reader) == passes[1]
    for _ in reader:
        break
    reader.reset()
    assert value_of(reader.read()) == passes[3][0]
    assert looped(reader) == passes[3][1:]


@every_kind
def test_neither_next_nor_read_begins_a_pass(kind: str, tmp_path: Path) -> None:
    reader, passes = made(kind, tmp_path)
    assert looped(reader) == passes[0]
    with pytest.raises(StopIteration):
        next(reader)
    with pytest.raises(EndOfData):
        reader.read()
    assert not reader.has_next()
    assert looped(reader.current_pass()) == []
    assert looped(reader) == passes[1]


@every_kind
def test_loops_at_the_same_time(kind: str, tmp_path: Path) -> None:
    reader, passes = made(kind, tmp_path)
    loop = iter(reader)
    assert value_of(next(loop)) == passes[0][0]
    for _ in range(2):
        with pytest.raises(StateError, match=OTHER) as caught:
            iter(reader)
        assert "reader.current_pass()" in str(caught.value)
    assert looped(loop) == passes[0][1:]
    assert list(loop) == []
    assert looped(reader) == passes[1]
    assert list(loop) == []


@every_kind
def test_a_loop_that_shares_its_pass(kind: str, tmp_path: Path) -> None:
    reader, passes = made(kind, tmp_path)
    found = together(*[lambda loop=loop: looped(loop) for loop in [reader.current_pass() for _ in range(4)]])
    assert sorted(itertools.chain(*found)) == sorted(passes[0])
    shared = reader.current_pass()
    with pytest.raises(StateError, match=OTHER):
        iter(reader)
    assert list(shared) == []
    assert looped(reader) == passes[1]


@every_kind
def test_a_reset_ends_the_loops_of_the_pass(kind: str, tmp_path: Path) -> None:
    reader, passes = made(kind, tmp_path)
    loops = [iter(reader), reader.current_pass()]
    next(loops[0])
    reader.reset()
    for loop in loops:
        with raises(Cancelled, "the reader was reset: the pass of this loop is over"):
            next(loop)
    assert looped(reader) == passes[1]
    del loops
    assert looped(reader) == passes[2]


@every_kind
def test_a_reader_is_true(kind: str, tmp_path: Path) -> None:
    reader, _ = made(kind, tmp_path)
    assert bool(reader)
    list(reader)
    assert bool(reader)
    assert bool(random_data([()], count=0))


def test_a_loop_in_the_body_of_a_loop() -> None:
    reader = random_data([()], count=3)
    for _ in reader:
        with pytest.raises(StateError, match=OTHER):
            iter(reader)
    with pytest.raises(StateError, match=OTHER):
        list(zip(reader, reader, strict=True))
    assert len(list(reader)) == 3


def test_threads_that_loop_over_the_reader_itself() -> None:
    """A loop over the reader is refused while another one reads; it does not reset the reader."""
    reader, queue = feed(4)
    first = Background(lambda: looped(reader))
    wait_for_consumers(queue)
    with pytest.raises(StateError, match=OTHER):
        looped(reader)
    second = Background(lambda: looped(reader.current_pass()))
    wait_for_consumers(queue, 2)
    queue.produce(lambda _: (tuple_of(i) for i in range(20)))
    assert sorted(first.result() + second.result()) == list(range(20))


def test_another_chain_above_a_reader_that_was_looped_over(tmp_path: Path) -> None:
    base = files(tmp_path).shuffle(6)
    twin = files(tmp_path).shuffle(6)
    for epoch in range(3):
        found = [x[:, 0].tolist() for (x,) in base.batch(4)]
        assert found == [x[:, 0].tolist() for (x,) in twin_batches(twin, epoch)]


def twin_batches(reader: Reader, epoch: int) -> list[Any]:
    if epoch:
        reader.reset()
    rows = [x for (x,) in reader.current_pass()]
    return [(np.stack(part),) for part in (rows[:4], rows[4:])]


def test_another_object_for_the_same_reader(tmp_path: Path) -> None:
    reader = files(tmp_path)
    assert [len(looped(Reader.in_variable(reader.scope, reader.name))) for _ in range(3)] == [6, 6, 6]


def test_a_reset_by_a_program() -> None:
    """After a reset through any handle, the next loop reads the new pass."""
    from pyfeed.program import Executor, Program, layers, program_guard

    main, startup, scope = Program(), Program(), Scope()
    with program_guard(main, startup):
        source = layers.random_data([()], count=4)
        layers.reset(source)
    executor = Executor()
    executor.run(startup, scope=scope)
    reader = Reader.in_variable(scope, source.name)
    assert len(list(reader)) == 4
    executor.run(main, scope=scope)
    assert (len(list(reader)), reader.stats()["passes"]) == (4, 2)
    assert (len(list(reader)), reader.stats()["passes"]) == (4, 3)


# ---- Queues ----

ABOVE_QUEUES: dict[str, Callable[[Reader], Reader]] = {
    "alone": lambda reader: reader,
    "batch": lambda reader: reader.batch(1),
    "shuffle": lambda reader: reader.shuffle(1),
    "map": lambda reader: reader.map(lambda x: x),
    "double_buffer": lambda reader: reader.double_buffer(depth=1),
    "zip": lambda reader: reader.zip(random_data([()], scope=reader.scope)),
}


def numbers_from(first: int, _: int) -> Iterator[tuple[Array]]:
    return map(tuple_of, range(first, first + 3))


@pytest.mark.parametrize("above", ABOVE_QUEUES)
def test_passes_of_a_queue(above: str) -> None:
    reader, queue = feed(10)
    top = ABOVE_QUEUES[above](reader)
    for epoch in range(3):
        assert queue.stats()["pass_id"] == epoch
        queue.produce(partial(numbers_from, 10 * epoch))
        assert looped(top) == [10 * epoch + i for i in range(3)]
        for _ in range(2):  # an error, not an empty pass
            with pytest.raises(StateError, match=REFUSED):
                looped(top)
        queue.reopen()


@pytest.mark.parametrize("above", ABOVE_QUEUES)
def test_a_pass_of_a_queue_after_one_that_failed(above: str) -> None:
    """Readers above a queue keep the error of a pass only until the queue begins the next."""

    def failing(_: int) -> Iterator[tuple[Array]]:
        yield tuple_of(0)
        raise ValueError("broken")

    reader, queue = feed(10)
    top = ABOVE_QUEUES[above](reader)
    for epoch in range(3):
        queue.produce(failing)
        for _ in range(2):  # the loop after an error meets it again
            with pytest.raises(ValueError, match="broken"):
                looped(top)
        queue.reopen()
        queue.produce(partial(numbers_from, 10 * epoch))
        assert looped(top) == [10 * epoch + i for i in range(3)]
        with pytest.raises(StateError, match=REFUSED):
            looped(top)
        queue.reopen()


@pytest.mark.parametrize("above", ABOVE_QUEUES)
def test_a_break_loses_nothing_of_a_queue(above: str) -> None:
    reader, queue = feed(10)
    top = ABOVE_QUEUES[above](reader)
    with queue:
        for i in range(5):
            queue.push(tuple_of(i))
    for _ in top:
        break
    with pytest.raises(StateError, match=REFUSED):
        looped(top)
    assert looped(top.current_pass()) == [1, 2, 3, 4]


def test_a_pass_of_a_queue_that_was_begun_by_reads() -> None:
    reader, queue = feed(10)
    queue.produce(lambda _: [tuple_of(1)])
    assert looped(reader) == [1]
    queue.reopen()
    queue.produce(lambda _: (tuple_of(i) for i in range(3)))
    assert value_of(reader.read()) == 0
    assert looped(reader) == [1, 2]


def test_two_readers_of_one_queue() -> None:
    """Loops over two readers share a pass. A reader that is created later knows that the pass is over."""
    reader, queue = feed(10)
    second = reader_of(queue, reader)
    queue.produce(lambda _: (tuple_of(i) for i in range(3)))
    for _ in reader:
        break
    assert looped(second) == [1, 2]
    with pytest.raises(StateError, match=REFUSED):
        looped(reader_of(queue, reader))


def reader_of(_: PyArrayFeedQueue, reader: Reader) -> Reader:
    name = pyfeed.unique_name._generate_process_wide("another")
    reader.scope.create_py_array_reader(name, reader.name.removesuffix("_reader"))
    return Reader.in_variable(reader.scope, name)


def test_a_queue_of_processes() -> None:
    queue = SharedFeedQueue([(2,)], dtypes=["float64"], scope=Scope())
    for _ in range(2):
        processes = queue.start(workers.ones, (3,), method="fork")
        assert len(looped(queue)) == 3
        with pytest.raises(StateError, match=REFUSED):
            looped(queue)
        with pytest.raises(StateError, match=REFUSED):
            looped(queue.reader)
        queue.reopen()
        processes[0].join()


def has_size(items: list[Any], size: int) -> bool:
    return len(items) == size


def test_a_generator_is_closed_by_the_next_loop() -> None:
    closed = []

    def function() -> Iterator[tuple[Array]]:
        try:
            for i in itertools.count():
                yield tuple_of(i)
        finally:
            closed.append(True)

    reader = from_generator(function, [(2,)], scope=Scope())
    for epoch in range(3):
        assert [value_of(x) for x in itertools.islice(reader, 4)] == [0, 1, 2, 3]
        wait_until(partial(has_size, closed, epoch))
    reader.close()
    wait_until(lambda: len(closed) == 3)


# ---- Errors ----


def damaged(folder: Path) -> Reader:
    with pyfeed.open_writer(folder / "a.tfrecord") as writer:
        for i in range(4):
            writer.write((bytes([i] * 10),))
    data = bytearray((folder / "a.tfrecord").read_bytes())
    data[-5] ^= 1
    (folder / "a.tfrecord").write_bytes(data)
    return open_files(folder / "a.tfrecord", scope=Scope())


def failing(_: Path) -> Reader:
    def function() -> Iterator[tuple[Array]]:
        for i in range(3):
            yield tuple_of(i)
        raise KeyError("why")

    return from_generator(function, [(2,)], scope=Scope())


def refusing(_: Path) -> Reader:
    def function(x: Array) -> Array:
        if x[0] == 3:
            raise KeyError("why")
        return x

    tuples = [tuple_of(i) for i in range(5)]
    return from_generator(lambda: tuples, [(2,)], dtypes=["float64"], scope=Scope()).map(function)


@pytest.mark.parametrize(("make", "kind"), [(damaged, CorruptRecordError), (failing, KeyError), (refusing, KeyError)])
@pytest.mark.parametrize("buffered", [False, True])
def test_a_loop_after_an_error(make: Callable[[Path], Reader], kind: Any, buffered: bool, tmp_path: Path) -> None:
    """The loop gets the error again and does not begin the next pass, so no tuple is left out silently."""
    reader = make(tmp_path)
    reader = reader.double_buffer() if buffered else reader
    for epoch in range(2):
        if epoch:  # not after the second pass: nobody would get the error of a third one
            reader.reset()
        found: list[Any] = []
        with pytest.raises(kind):
            found.extend(len(arrays) for arrays in reader)
        assert found == [1, 1, 1]
        for _ in range(2):
            with pytest.raises(kind):
                next(iter(reader))
        assert reader.stats()["passes"] == epoch + 1


class Alarm(Exception):
    """The exception of a signal handler."""


def test_a_loop_that_a_signal_ended() -> None:
    """A signal's exception ends a loop as a break does, whether it is raised in the body or while the loop waits."""
    go_on = threading.Event()
    calls = itertools.count()

    def function() -> Iterator[tuple[Array]]:
        number = next(calls)
        yield tuple_of(number)
        if number == 0:
            go_on.wait()
        yield tuple_of(number)

    reader = from_generator(function, [(2,)], dtypes=["float64"], scope=Scope())

    def ring(*_: object) -> None:
        raise Alarm

    def send() -> None:
        wait_until(lambda: reader.stats()["tuples"] == 1)
        begun = reader.stats()["waited_seconds"]
        wait_until(lambda: reader.stats()["waited_seconds"] > begun + 0.05)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, ring)
    try:
        sending = Background(send)
        with pytest.raises(Alarm):
            for _ in reader:
                pass
        sending.wait()
    finally:
        signal.signal(signal.SIGUSR1, before)
        go_on.set()
    assert looped(reader) == [1, 1]


def test_a_reset_while_a_loop_waits() -> None:
    reader, queue = feed()
    loop = Background(lambda: looped(reader))
    wait_for_consumers(queue)
    with pytest.raises(StateError, match=REFUSED):
        reader.reset()
    queue.push(tuple_of(1))  # the refused reset does not end the loop
    queue.close()
    assert loop.result() == [1]


@pytest.fixture
def hasty_switches() -> Iterator[None]:
    """Make threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_switches")
def test_loops_are_counted_during_resets() -> None:
    reader = random_data([()], count=5).shuffle(3)
    loops: list[Any] = []

    def begin_loops() -> None:
        loops.extend(reader.current_pass() for _ in range(8))

    for _ in range(1000):
        together(begin_loops, reader.reset)
        loops.clear()
        only = iter(reader)
        with pytest.raises(StateError, match=OTHER):
            iter(reader)
        del only
        reader.reset()


@pytest.mark.usefixtures("hasty_switches")
def test_loops_are_counted_during_resets_that_are_refused() -> None:
    reader, queue = feed()

    def begin_and_end_loops() -> None:
        for _ in range(20000):
            reader.current_pass()

    def reset() -> None:
        for _ in range(2000):
            with raises(StateError, None):
                reader.reset()

    together(begin_and_end_loops, reset)
    queue.reopen()
    assert iter(reader)  # works, since no other loop is in progress


@pytest.mark.parametrize("kind", ["files", "batch", "double_buffer"])
def test_a_loop_takes_nothing_of_the_pass_after_a_reset(kind: str, tmp_path: Path) -> None:
    """This holds also for a loop whose call waits for the reader's lock during the reset."""
    np.save(tmp_path / "a.npy", np.arange(40000.0).reshape(20000, 2))
    reader = open_npy(tmp_path / "a.npy", scope=Scope())
    reader = {"files": reader, "batch": reader.batch(2), "double_buffer": reader.double_buffer()}[kind]
    first = value_of(reader.read())
    for _ in range(100):
        loops = [reader.current_pass() for _ in range(2)]
        threads = [Background(partial(until_cancelled, loop)) for loop in loops]
        reader.has_next()
        reader.reset()
        for thread in threads:
            thread.result()
        assert value_of(reader.read()) == first


def until_cancelled(loop: Iterator[Any]) -> None:
    with contextlib.suppress(Cancelled):
        for _ in loop:
            pass


# ---- len ----

LENGTHS: dict[str, tuple[Callable[[Reader], Reader], int]] = {
    "alone": (lambda reader: reader, 10),
    "batch": (lambda reader: reader.batch(4), 3),
    "drop_last": (lambda reader: reader.batch(4, drop_last=True), 2),
    "shuffle": (lambda reader: reader.shuffle(3), 10),
    "map": (lambda reader: reader.map(lambda x: x), 10),
    "double_buffer": (lambda reader: reader.double_buffer(), 10),
    "shard": (lambda reader: reader.shard(2, 3), 3),
    "multi_pass": (lambda reader: reader.multi_pass(3), 30),
    "zip": (lambda reader: reader.zip(random_data([()], count=4, scope=reader.scope)), 4),
    "zip without end": (lambda reader: reader.zip(random_data([()], scope=reader.scope)), 10),
    "a chain": (lambda reader: reader.shard(0, 3).shuffle(2).batch(3).multi_pass(2).double_buffer(), 4),
}


@pytest.mark.parametrize("above", LENGTHS)
def test_lengths(above: str, tmp_path: Path) -> None:
    make, length = LENGTHS[above]
    np.save(tmp_path / "a.npy", np.arange(20.0).reshape(10, 2))
    for source in (random_data([(2,)], count=10, scope=Scope()), open_npy(tmp_path / "a.npy", scope=Scope())):
        reader = make(source)
        assert len(reader) == length
        assert len(list(reader)) == length
        assert len(reader) == length


def test_lengths_that_are_not_known(tmp_path: Path) -> None:
    unknown = "the number of tuples of a pass is not known"
    endless = "a pass of this reader has no end"
    for i in range(3):
        np.save(tmp_path / f"{i}.npy", np.zeros((i + 1, 2)))
    reader, _ = feed()
    for each, message in (
        (reader.batch(2), unknown),
        (generated(), unknown),
        (open_npy(tmp_path / "2.npy", on_corrupt="skip"), unknown),
        (damaged(tmp_path), unknown),
        (random_data([()]), endless),
        (random_data([()], count=3).multi_pass(0), endless),
    ):
        with pytest.raises(TypeError, match=message):
            len(each)
        assert each.stats()["tuples"] == 0
    several = open_npy(tmp_path / "*.npy")
    for _ in range(2):
        with pytest.raises(TypeError, match=unknown):
            len(several)
    assert several.stats()["details"]["opened"] == 0
    assert len(list(several)) == 6
    assert len(several) == 6  # known after every file was opened


FORMATS: dict[str, Callable[[Path], Reader]] = {
    "npy": lambda path: open_npy(path),
    "npz": lambda path: open_files(path),
    "idx": lambda path: open_files(path),
    "arrow": lambda path: pyfeed.open_arrow(path),
    "raw": lambda path: pyfeed.open_raw(path, [(3,)], ["uint8"], header_bytes=2),
    "tokens": lambda path: pyfeed.open_tokens(path, 3, dtype="uint8"),
}


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("num_threads", [0, 2])
def test_lengths_of_formats(format_: str, num_threads: int, tmp_path: Path) -> None:
    path = tmp_path / f"a.{format_}"
    data = np.arange(21, dtype="uint8").reshape(7, 3)
    if format_ == "raw":
        path.write_bytes(b"xx" + data.tobytes())
    else:
        with pyfeed.open_writer(path, format_) as writer:
            for row in data:
                writer.write((row,))
    options: dict[str, Any] = {"num_threads": num_threads}
    if format_ == "tokens":
        options |= {"length": 3}
    if format_ == "raw":
        options |= {"shapes": [(3,)], "dtypes": ["uint8"], "header_bytes": 2}
    reader = open_files(path, format=format_, **options)
    if format_ == "raw":  # its length is known only after it is opened
        with pytest.raises(TypeError):
            len(reader)
        reader.read()
    assert len(reader) == 7
    assert len(list(reader)) == (6 if format_ == "raw" else 7)


# ---- close ----


def test_a_closed_reader() -> None:
    reader = random_data([(2,)], count=4).batch(2)
    loop = iter(reader)
    (x,) = next(loop)
    kept = x.copy()
    for _ in range(2):
        reader.close()
    assert reader.closed
    for call in (
        reader.read,
        reader.has_next,
        reader.reset,
        reader.current_pass,
        reader.double_buffer,
        lambda: reader.batch(2),
        lambda: reader.map(len),
        lambda: random_data([()], scope=reader.scope).zip(reader),
        lambda: next(reader),
        lambda: next(loop),
        lambda: iter(reader),
    ):
        with pytest.raises(StateError, match="is closed"):
            call()
    assert (x == kept).all()
    assert reader.stats()["tuples"] == 1
    assert len(reader) == 2
    assert reader.slots == [Slot("", "float32", (-1, 2), 0)]
    assert repr(reader).startswith(f"<Reader {reader.name!r}, closed: float32 (-1, 2)")


def test_a_reader_as_a_context_manager() -> None:
    with pytest.raises(KeyError), random_data([()], count=2) as reader:
        raise KeyError
    with raises(StateError, CLOSED):
        reader.read()


def test_close_takes_what_nothing_else_has(tmp_path: Path) -> None:
    scope = Scope()
    base = random_data([(2,)], scope=scope)
    threads = set(threading.enumerate())
    before = pyfeed.diagnostics.memory_stats()["handles"]
    top = base.map(lambda x: x).shuffle(3).double_buffer()
    names = [top.name, *(below.name for below in readers_below(top))]
    assert all(name in scope for name in names)
    top.read()
    top.close()
    assert [name in scope for name in names] == [False, False, False, True]
    wait_until(lambda: set(threading.enumerate()) <= threads)
    assert pyfeed.diagnostics.memory_stats()["handles"] == before
    base.read()  # not closed, since this test holds it


def readers_below(reader: Reader) -> Iterator[Reader]:
    for each in reader._readers_below():
        yield each
        yield from readers_below(each)


def test_close_of_a_reader_below() -> None:
    below = random_data([(2,)], count=4)
    top = below.batch(2)
    below.close()
    assert [len(x) for (x,) in top] == [2, 2]


CHAINS: dict[str, Callable[[Reader], Reader]] = ABOVE_QUEUES | {"shard": lambda reader: reader.shard(0, 1)}


@pytest.mark.parametrize("above", CHAINS)
@pytest.mark.parametrize("main", [False, True])
def test_close_while_a_read_waits(above: str, main: bool) -> None:
    """The read may be in the main thread, whose wait also handles signals."""
    reader, queue = feed()
    top = CHAINS[above](reader)

    def close() -> None:
        wait_until(lambda: queue.stats()["waiting_consumers"] > 0)
        top.close()

    def read() -> None:
        with raises(StateError, CLOSED):
            top.read()

    if main:
        closing = Background(close)
        read()
        closing.wait()
    else:
        reading = Background(read)
        close()
        reading.wait()
        reading.result()
    if above != "alone":
        queue.push(tuple_of(3))
        assert value_of(reader.read()) == 3  # the reader below is not closed
    assert not queue.stats()["shut_down"]


def test_the_end_of_the_interpreter_passes_closed_readers() -> None:
    """A reader may be closed between the time the exit code takes it from the set and the time it is used."""
    reader = random_data([(2,)])
    reader.close()
    _exit.readers.add(reader)
    before = _exit._progress(reading=False)
    try:
        assert _exit._progress(reading=True) == before
    finally:
        _exit.readers.discard(reader)


def test_close_ends_a_generator() -> None:
    ended = threading.Event()

    def function() -> Iterator[tuple[Array]]:
        try:
            while True:
                yield tuple_of(1)
        finally:
            ended.set()

    with from_generator(function, [(2,)], scope=Scope()) as reader:
        reader.read()
    assert ended.wait(30)


# ---- repr ----


def test_repr(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", image=np.zeros((4, 2), "float32"), label=np.arange(4))
    scope = Scope()
    reader = open_files(tmp_path / "a.npz", scope=scope).map(lambda x, n: (x, n), 3).batch(2).double_buffer()
    text = repr(reader)
    assert text == (
        f"<Reader {reader.name!r}: image float32 (-1, 2), label int64 (-1,)\n"
        "    open_files(files=1, formats=['npz'], ordered=True)  # 2 threads\n"
        "    .map(capacity=16, ordered=True)  # 4 threads\n"
        "    .batch(batch_size=2, drop_last=False)\n"
        "    .double_buffer(depth=2, place='CPUPlace()')  # 1 thread>"
    )
    zipped = random_data([()], scope=scope).zip(reader)
    assert [line.strip() for line in repr(zipped).splitlines()[1:]] == [
        "- random_data(count=-1, high=1, low=0, seed=0)",
        "- open_files(files=1, formats=['npz'], ordered=True)  # 2 threads",
        ".map(capacity=16, ordered=True)  # 4 threads",
        ".batch(batch_size=2, drop_last=False)",
        ".double_buffer(depth=2, place='CPUPlace()')  # 1 thread",
        ".zip(strict=False)>",
    ]
    stats = reader.stats()
    assert (stats["tuples"], stats["below"][0]["tuples"]) == (0, 0)  # repr has read no tuple


def test_an_error_shows_a_reader_in_one_line() -> None:
    reader = random_data([(2,)], count=4)
    with pytest.raises(ArgumentTypeError) as caught:
        random_data([(2,)], count=reader)  # type: ignore[arg-type]
    assert "found <Reader" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_stats_are_a_table() -> None:
    reader = random_data([(500,)], count=1000).batch(1000)
    reader.read()
    stats = reader.stats()
    assert isinstance(stats, dict)
    lines = str(stats).splitlines()
    assert lines[0].split() == ["reader", "tuples", "bytes", "passes", "waited_seconds"]
    assert lines[1].split()[:4] == ["batch", "1", "2,000,000", "1"]
    assert lines[2].startswith("  random_data")
    assert len({len(line) for line in lines}) == 1
    assert repr(stats) == str(stats)
    assert str(stats["below"][0]).splitlines()[1].startswith("random_data")


def test_stats_without_an_entry_print_as_a_dict() -> None:
    stats = random_data([(2,)], count=4).stats()
    del stats["tuples"]
    assert repr(stats) == str(stats) == repr(dict(stats))


def test_the_table_of_a_reader_that_skipped(tmp_path: Path) -> None:
    damaged(tmp_path)
    reader = open_files(tmp_path / "a.tfrecord", on_corrupt="skip")
    assert len(list(reader)) == 3
    header, row, skipped = str(reader.stats()).splitlines()
    assert (header.split()[-1], row.split()[-1]) == ("corrupt", "1")
    assert re.fullmatch(rf"skipped: {tmp_path / 'a.tfrecord'}, byte \d+, record \d+: CRC of the data, .*", skipped)

    # The readers above list the same.
    above = open_files(tmp_path / "a.tfrecord", on_corrupt="skip").batch(2)
    list(above)
    assert str(above.stats()).splitlines()[-1] == skipped


def test_the_table_lists_the_first_damaged_places(tmp_path: Path) -> None:
    name = "a\udcff.tfrecord"
    with pyfeed.open_writer(tmp_path / name) as writer:
        for i in range(30):
            writer.write((b"record %02d" % i,))
    data = bytearray((tmp_path / name).read_bytes())
    for i in range(12):
        data[(2 * i + 1) * (9 + 16) + 12] ^= 1
    (tmp_path / name).write_bytes(data)
    reader = open_files(tmp_path / name, on_corrupt="skip").batch(100)
    assert sum(len(x.bytes_list()) for (x,) in reader) == 18
    text = str(reader.stats())
    text.encode()
    lines = text.splitlines()[3:]
    assert len(lines) == 11
    assert re.findall(r", record (\d+):", text) == [str(2 * i + 1) for i in range(10)]
    assert lines[0].startswith(rf"skipped: {tmp_path}/a\udcff.tfrecord, byte 37, record 1: CRC of the data")
    assert lines[-1] == 'skipped: 2 more, in ["details"]["ledger"] of open_files'
