"""The staging buffer. A process has one for each place, so tests of other limits or of its end run in new processes."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pyfeed
from pyfeed import CPUPlace, LoDTensor
from pyfeed.staging import StagingBuffer, get_buffer

from .support import Background, Process, ends_within_a_second, raises, run, same, together, wait_until

UNLIKE = (
    "get_buffer: expected the limits that the buffer of CPUPlace() was made with, "
    "capacity 2 and bytes_limit 0, found capacity {} and bytes_limit {}"
)


buffer = get_buffer(CPUPlace(), 2)  # the only buffer of this process for the CPU


@pytest.fixture(autouse=True)
def left_empty() -> Iterator[None]:
    yield
    s = buffer.stats()
    buffer.clear()
    assert (s["reserved"], s["waiting_producers"], s["waiting_consumers"]) == (0, 0, 0)


def number(n: int) -> tuple[Any]:
    return (np.array([n]),)


def got(timeout: float | None = None) -> int:
    return int(buffer.get(timeout)[0][0])


def wait_for(producers: int = 0, consumers: int = 0) -> None:
    """Wait until these numbers of threads are blocked in the buffer."""

    def they_wait() -> bool:
        s = buffer.stats()
        return (s["waiting_producers"], s["waiting_consumers"]) == (producers, consumers)

    wait_until(they_wait)


# ---- One buffer for each place ----


def test_one_buffer_a_place() -> None:
    again = get_buffer(CPUPlace(), capacity=2, bytes_limit=0)
    assert again == buffer
    assert hash(again) == hash(buffer)
    assert again != CPUPlace()
    again.put(number(1))
    assert (buffer.size(), len(buffer), buffer.capacity(), buffer.bytes_limit()) == (1, 1, 2, 0)
    assert buffer.place == CPUPlace()
    assert repr(buffer) == "<StagingBuffer of CPUPlace(), 1/2 tuples>"
    del again
    assert got() == 1
    assert buffer  # true even if it is empty


def test_other_limits_are_refused() -> None:
    for capacity, bytes_limit in ((3, 0), (2, 1)):
        with raises(pyfeed.errors.StateError, UNLIKE.format(capacity, bytes_limit)):
            get_buffer(CPUPlace(), capacity, bytes_limit)
    with raises(pyfeed.errors.InvalidArgument, "capacity: expected at least 1 tuple, found -1", also=ValueError):
        get_buffer(CPUPlace(), -1)
    with raises(pyfeed.errors.InvalidArgument, "bytes_limit: expected at least 0, found -1"):
        get_buffer(CPUPlace(), 2, -1)


def test_it_is_made_by_get_buffer_only() -> None:
    with pytest.raises(TypeError):
        StagingBuffer()


def test_the_first_call_makes_it() -> None:
    out = run(
        """
        try:
            pyfeed.staging.get_buffer(pyfeed.CPUPlace(), 0)
        except pyfeed.errors.InvalidArgument as error:
            say(error)
        made = []
        threads = start(*[lambda: made.append(pyfeed.staging.get_buffer(pyfeed.CPUPlace(), 8, 64))] * 8)
        for thread in threads:
            thread.join()
        made[0].put(tuple_of(1))
        say({b.size() for b in made}, made[1].capacity(), made[2].bytes_limit())
        """
    )
    assert out == ["capacity: expected at least 1 tuple, found 0", "{1} 8 64"]


# ---- put and get ----


def test_first_in_first_out() -> None:
    sent, received = 0, 0
    for turn in range(50):
        while buffer.size() < 2:
            buffer.put(number(sent))
            sent += 1
        for _ in range(1 + turn % 2):
            assert got() == received
            received += 1


def test_put_copies() -> None:
    small, large = np.arange(6.0).reshape(2, 3), np.arange(1 << 20, dtype=np.float32)
    buffer.put((small, large, small.T, large[::-7]))
    expected = [a.copy() for a in (small, large, small.T, large[::-7])]
    small[:] = large[:] = -1
    for found, array in zip(buffer.get(), expected, strict=True):
        same(found, array)
        assert found.flags.writeable
        assert found.flags.c_contiguous


def test_tuples_need_not_look_alike() -> None:
    ragged = LoDTensor(np.arange(10, dtype=np.int32).reshape(5, 2), [[0, 1, 2], [0, 2, 5]])
    buffer.put([np.float64(3), ragged])
    buffer.put([np.zeros((0, 3), bool)])
    scalar, sequences = buffer.get()
    same(scalar, np.array(3.0))
    same(sequences.data, ragged.data)
    assert [list(level) for level in sequences.lod] == [[0, 1, 2], [0, 2, 5]]
    same(buffer.get()[0], np.zeros((0, 3), bool))


def test_what_is_no_tuple_is_refused() -> None:
    with raises(pyfeed.errors.SlotCountError, "slots: expected at least 1, found 0"):
        buffer.put(())
    with raises(pyfeed.errors.ByteOrderError, None, slot=1):
        buffer.put((np.zeros(2), np.zeros(2, ">i4")))
    with pytest.raises(pyfeed.errors.Error, match="slot 0"):
        buffer.put((object(),))
    for wrong in ((), ((np.zeros(1),), 1.0)):
        with pytest.raises(TypeError):
            buffer.put(*wrong)
    assert buffer.stats()["bytes"] == 0


def test_views_outlive_the_next_tuples() -> None:
    kept = []
    for n in range(20):
        buffer.put((np.full(100, n),))
        kept.append(buffer.get()[0])
    for n, array in enumerate(kept):
        same(array, np.full(100, n))


# ---- Waiting ----


def test_put_waits_for_room() -> None:
    buffer.put(number(0))
    buffer.put(number(1))
    producer = Background(lambda: buffer.put(number(2)))
    wait_for(producers=1)
    assert buffer.size() == 2
    assert got() == 0
    producer.result()
    assert [got(), got()] == [1, 2]


def test_get_waits_for_a_put() -> None:
    consumer = Background(lambda: got())
    wait_for(consumers=1)
    buffer.put(number(5))
    assert consumer.result() == 5


@pytest.mark.parametrize("timeout", [0, 0.001])
def test_timeouts(timeout: float) -> None:
    with raises(pyfeed.errors.Timeout, None, also=TimeoutError):
        buffer.get(timeout)
    with raises(pyfeed.errors.Timeout, None):
        buffer.get(timeout=timeout)
    for n in range(2):
        buffer.put(number(n), timeout=timeout)
    large = (np.zeros(1 << 20),)
    for arrays in (number(2), large):
        with raises(pyfeed.errors.Timeout, None):
            buffer.put(arrays, timeout=timeout)
    assert [got(timeout), got(timeout)] == [0, 1]


def test_timeouts_that_are_none() -> None:
    with raises(pyfeed.errors.InvalidArgument, "timeout: expected None or seconds, at least 0, found -1"):
        buffer.get(-1)
    with raises(pyfeed.errors.InvalidArgument, "timeout: expected None or seconds, at least 0, found -1"):
        buffer.put(number(0), timeout=-1)
    with pytest.raises(TypeError):
        buffer.get("soon")  # type: ignore[arg-type]
    assert buffer.size() == 0


def test_clear_lets_those_in_that_wait() -> None:
    buffer.put(number(0))
    buffer.put(number(1))
    producers = [Background(lambda n=n: buffer.put(number(n))) for n in (2, 3)]  # type: ignore[misc]
    wait_for(producers=2)
    before = buffer.stats()["dropped"]
    assert buffer.clear() == 2
    for producer in producers:
        producer.result()
    assert sorted([got(), got()]) == [2, 3]
    assert buffer.clear() == 0
    assert buffer.stats()["dropped"] == before + 2


def test_clear_leaves_those_waiting_that_get() -> None:
    consumer = Background(lambda: got())
    wait_for(consumers=1)
    assert buffer.clear() == 0
    wait_for(consumers=1)
    buffer.put(number(3))
    assert consumer.result() == 3


def test_clear_gives_the_memory_back() -> None:
    before = pyfeed.diagnostics.memory_stats()["idle_bytes"]
    for _ in range(2):
        buffer.put((np.zeros(1 << 17),))
    assert pyfeed.diagnostics.memory_stats()["live_queue_bytes"] >= 2 << 20
    assert buffer.clear() == 2
    assert pyfeed.diagnostics.memory_stats()["live_queue_bytes"] == 0
    assert pyfeed.diagnostics.memory_stats()["idle_bytes"] <= before


def test_many_threads() -> None:
    producers, each, consumers = 4, 500, 2
    end = -1

    def produce(worker: int) -> None:
        for i in range(each):
            buffer.put(number(worker * each + i))

    def consume() -> list[int]:
        return list(iter(got, end))

    def produce_all() -> None:
        together(*[lambda w=w: produce(w) for w in range(producers)])
        for _ in range(consumers):
            buffer.put(number(end))

    *lists, _ = together(*[consume] * consumers, produce_all)
    assert sorted(itertools.chain(*lists)) == list(range(producers * each))
    for numbers in lists:
        for worker in range(producers):
            of_one = [n for n in numbers if n // each == worker]
            assert of_one == sorted(of_one)


def test_stats() -> None:
    before = buffer.stats()
    buffer.put((np.zeros(4),))
    buffer.put((np.zeros(4),))
    buffer.get()
    after = buffer.stats()
    assert {name: after[name] - before[name] for name in ("put", "got", "put_bytes", "dropped")} == {
        "put": 2,
        "got": 1,
        "put_bytes": 64,
        "dropped": 0,
    }
    assert (after["size"], after["bytes"], after["reserved"]) == (1, 32, 0)


# ---- In their own processes ----

BUFFER = "buffer = pyfeed.staging.get_buffer(pyfeed.CPUPlace(), {}, {})\n"


def test_limit_in_bytes() -> None:
    out = run(
        BUFFER.format(8, 64)
        + """
buffer.put((np.zeros(4),))
try:
    buffer.put((np.zeros(9),))
except pyfeed.errors.TooLargeError as error:
    say(error)
(large,) = start(lambda: buffer.put((np.ones(8),)))
while buffer.stats()["waiting_producers"] < 1:
    time.sleep(0.001)
try:
    buffer.put((np.zeros(4),), timeout=0)  # must not overtake the waiting tuple
except pyfeed.errors.Timeout:
    say(buffer.size(), buffer.stats()["bytes"])
buffer.get()
large.join()
say(buffer.stats()["bytes"], *buffer.get()[0])
"""
    )
    assert out == [
        "bytes_limit: expected a tuple of at most 64 bytes, found 72",
        "1 32",
        "64 " + " ".join(["1.0"] * 8),
    ]


@pytest.mark.parametrize("call", ["buffer.get()", "buffer.put(tuple_of(2))", "buffer.put((np.zeros(1 << 20),))"])
def test_ctrl_c(call: str) -> None:
    process = Process(
        BUFFER.format(1, 0)
        + f"""
if "put" in {call!r}:
    buffer.put(tuple_of(1))
for _ in range(2):
    when_waiting(1, lambda: say("waiting"))
    try:
        {call}
    except KeyboardInterrupt:
        say("interrupted", buffer.stats()["waiting_producers"] + buffer.stats()["waiting_consumers"])
if buffer.size() == 0:
    buffer.put(tuple_of(1))
say(*buffer.get()[0])
"""
    )
    for _ in range(2):
        assert process.line() == "waiting"
        process.signal(signal.SIGINT)
        assert process.line() == "interrupted 0"
    assert process.end() == (["1.0 1.0"], "")


@pytest.mark.parametrize("daemon", [False, True])
def test_threads_that_wait_when_the_interpreter_ends(daemon: bool) -> None:
    out, err = ends_within_a_second(
        BUFFER.format(1, 0)
        + f"""
def tell(call):
    try:
        call()
    except pyfeed.errors.QueueClosed as error:
        say(error)
buffer.put(tuple_of(1))
for _ in range(2):
    start(lambda: tell(lambda: buffer.put(tuple_of(2))), daemon={daemon})
until_waiting(2)
say("ready")
"""
    )
    assert (out, err) == ([] if daemon else ["the staging buffer is shut down"] * 2, "")


def test_a_run_that_waits_for_a_staged_tuple_when_the_interpreter_ends() -> None:
    out, err = ends_within_a_second(
        """
        main = pyfeed.Program()
        with pyfeed.program.program_guard(main):
            x = pyfeed.layers.data("x", [2], dtype="float32")
            pyfeed.layers.unstaging(pyfeed.layers.staging([x], capacity=2))
        def compute():
            try:
                pyfeed.Executor(pyfeed.CPUPlace()).run(main)
            except pyfeed.errors.QueueClosed as error:
                say(error.op, str(error).rpartition(": ")[2])
        start(compute)
        while pyfeed.staging.get_buffer(pyfeed.CPUPlace(), 2).stats()["waiting_consumers"] < 1:
            time.sleep(0.001)
        say("ready")
        """
    )
    assert (out, err) == (["block 0, op 1: unstage the staging buffer is shut down"], "")


def test_work_goes_on_after_the_main_thread() -> None:
    out = run(
        BUFFER.format(1, 0)
        + """
def produce():
    until_waiting(1)
    for n in range(50):
        time.sleep(0.01)
        buffer.put(tuple_of(n))
    buffer.put((np.array([-1.0]),))
def consume():
    total = 0
    while (n := buffer.get()[0][0]) >= 0:
        total += n
    say(total)
start(consume, produce)
"""
    )
    assert out == ["1225.0"]


def test_in_a_forked_child_every_call_raises() -> None:
    out = run(
        BUFFER.format(2, 0)
        + """
buffer.put(tuple_of(1))
start(lambda: (buffer.get(), buffer.get()), daemon=True)
until_waiting(1)
child = os.fork()
if child == 0:
    calls = {
        "get_buffer": lambda: pyfeed.staging.get_buffer(pyfeed.CPUPlace(), 2),
        "put": lambda: buffer.put(tuple_of(1)),
        "get": lambda: buffer.get(),
        "repr": lambda: repr(buffer),
    }
    for name in ["clear", "stats", "size", "capacity", "bytes_limit", "__len__", "__hash__"]:
        calls[name] = getattr(buffer, name)
    wrong = []
    for name, call in calls.items():
        try:
            call()
            wrong.append(name)
        except pyfeed.errors.ForkError:
            pass
        except BaseException as error:
            wrong.append((name, repr(error)))
    say("child", wrong)
    os._exit(0)
os.waitpid(child, 0)
buffer.put(tuple_of(2))
"""
    )
    assert out == ["child []"]
