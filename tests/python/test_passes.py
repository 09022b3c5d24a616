"""How passes end and begin: close, fail, reopen, reset, from_generator."""

from __future__ import annotations

import functools
import gc
import threading
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

import pyfeed
from pyfeed import PyArrayFeedQueue, PyArrayFeedQueueHolder, Reader, Scope, from_generator

from .support import (
    Array,
    Background,
    feed,
    raises,
    tuple_of,
    value_of,
    values_in,
    wait_for_consumers,
    wait_for_producers,
    wait_until,
)


def numbers(reader: Iterable[tuple[Any, ...]]) -> list[Any]:
    return values_in(reader)


def queue_of(reader: Reader) -> PyArrayFeedQueue:
    queue = reader._upstream
    assert isinstance(queue, PyArrayFeedQueue)
    return queue


def generator(function: Any, capacity: int = 2, **options: Any) -> Reader:
    return from_generator(function, [(2,)], capacity=capacity, scope=Scope(), **options)


# ---- First in, first out; close ----


def test_first_in_first_out() -> None:
    reader, queue = feed(3)

    def produce() -> None:
        for i in range(1000):
            queue.push(tuple_of(i))
        queue.close()

    pushing = Background(produce)
    assert numbers(reader) == list(range(1000))
    pushing.result()


def test_close_delivers_what_is_queued_and_nothing_else() -> None:
    """With capacity 2 and a close while the third of five pushes is blocked, exactly two tuples are delivered."""
    _, queue = feed(2)
    pushed: list[int] = []

    def produce() -> None:
        for i in range(5):
            queue.push(tuple_of(i))
            pushed.append(i)

    producer = Background(produce)
    wait_for_producers(queue)
    queue.close()
    with raises(pyfeed.errors.QueueClosed, "the queue is closed: pass 0 takes no more tuples"):
        producer.result()
    assert pushed == [0, 1]
    assert [value_of(queue.pop()) for _ in range(2)] == [0, 1]
    for _ in range(2):
        with raises(pyfeed.errors.EndOfData, None):
            queue.pop()
    assert queue.stats()["pushed"] == 2


def test_close_wakes_all_consumers() -> None:
    reader, queue = feed()
    waiting = [Background(lambda: queue.pop()) for _ in range(3)] + [Background(reader.read) for _ in range(3)]
    wait_for_consumers(queue, 6)
    queue.close()
    for each in waiting:
        with raises(pyfeed.errors.EndOfData, None):
            each.result()


def test_close_twice() -> None:
    _, queue = feed()
    queue.push(tuple_of(1))
    queue.close()
    queue.close()
    assert value_of(queue.pop()) == 1


def test_close_of_another_pass_is_none() -> None:
    _, queue = feed()
    queue.close(pass_id=7)
    queue.push(tuple_of(1))
    queue.close(pass_id=0)
    assert queue.stats()["closed"]
    queue.reopen()
    queue.close(0)
    queue.push(tuple_of(1), pass_id=1)


def test_as_a_context_manager() -> None:
    reader, queue = feed()
    with queue as same:
        assert same is queue
        queue.push(tuple_of(1))
    assert numbers(reader) == [1]

    _, queue = feed()
    error = KeyError("why")
    queue.push(tuple_of(1))
    with pytest.raises(KeyError) as caught, queue:
        raise error
    assert caught.value is error
    assert value_of(queue.pop()) == 1
    with pytest.raises(KeyError) as caught:
        queue.pop()
    assert caught.value is error


def test_a_context_whose_consumer_leaves() -> None:
    _, queue = feed(1)

    def produce() -> None:
        with queue:
            for i in range(5):
                queue.push(tuple_of(i))

    producer = Background(produce)
    wait_for_producers(queue)
    queue.close()
    with raises(pyfeed.errors.QueueClosed, None):
        producer.result()
    assert not queue.stats()["failed"]
    assert value_of(queue.pop()) == 0
    with raises(pyfeed.errors.EndOfData, None):
        queue.pop()


def test_a_context_ends_its_own_pass_only() -> None:
    _, queue = feed(2)
    with queue:
        queue.reopen()
    queue.push(tuple_of(1))
    queue.__enter__()
    queue.reopen()
    queue.__exit__(KeyError, KeyError(), None)
    queue.push(tuple_of(2))
    assert value_of(queue.pop()) == 2
    other = feed()[1]
    other.close()
    with raises(pyfeed.errors.QueueClosed, None), queue:
        other.push(tuple_of(1))
    with raises(pyfeed.errors.QueueClosed, "the queue is closed: pass 0 takes no more tuples"):
        queue.pop()  # gets the error, since it came from another queue and not from this queue's consumer


# ---- Failures ----


def producer_function() -> None:
    raise ValueError("from deep below")


def frames(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def failed(**options: Any) -> ValueError:
    try:
        producer_function()
    except ValueError as error:
        return error
    raise AssertionError


def test_a_failure_comes_after_what_was_pushed_and_is_the_very_exception() -> None:
    reader, queue = feed()
    queue.push(tuple_of(1))
    queue.push(tuple_of(2))
    error = failed()
    queue.fail(error)
    assert value_of(queue.pop()) == 1
    assert value_of(reader.read()) == 2
    depths = set()
    calls: list[Callable[[], Any]] = [
        queue.pop,
        reader.read,
        reader.has_next,
        lambda: next(reader),
        lambda: list(reader),
    ]
    for call in calls * 4:
        with pytest.raises(ValueError, match="from deep below") as caught:
            call()
        assert caught.value is error
        assert frames(error)[-2:] == ["failed", "producer_function"]
        depths.add(len(frames(error)))
    assert max(depths) <= 5
    assert error.__context__ is None


def test_a_failure_wakes_all_consumers() -> None:
    reader, queue = feed()
    waiting = [Background(lambda: queue.pop()) for _ in range(2)] + [Background(reader.read) for _ in range(2)]
    wait_for_consumers(queue, 4)
    error = failed()
    queue.fail(error)
    for each in waiting:
        with pytest.raises(ValueError, match="from deep below") as caught:
            each.result()
        assert caught.value is error


def test_a_failure_wakes_producers() -> None:
    _, queue = feed(1)
    queue.push(tuple_of(1))
    pushing = Background(lambda: queue.push(tuple_of(2)))
    wait_for_producers(queue)
    queue.fail(failed())
    with raises(pyfeed.errors.QueueClosed, "the queue is closed: pass 0 has failed"):
        pushing.result()


def test_the_first_failure_counts() -> None:
    _, queue = feed()
    queue.fail(KeyError("first"))
    with raises(pyfeed.errors.QueueClosed, "the queue is closed: pass 0 has failed"):
        queue.fail(KeyError("second"))
    queue.close()
    with pytest.raises(KeyError, match="first"):
        queue.pop()


def test_a_failure_after_a_close_is_refused() -> None:
    _, queue = feed()
    queue.close()
    with raises(pyfeed.errors.QueueClosed, "the queue is closed: pass 0 takes no more tuples"):
        queue.fail(KeyError("late"))
    with raises(pyfeed.errors.EndOfData, None):
        queue.pop()


def test_a_failure_of_an_earlier_pass_is_refused() -> None:
    _, queue = feed()
    queue.reopen()
    with raises(pyfeed.errors.QueueClosed, "pass 0 of the queue is over, it is at pass 1"):
        queue.fail(KeyError("late"), pass_id=0)
    queue.fail(KeyError("now"), pass_id=1)
    with pytest.raises(KeyError, match="now"):
        queue.pop()


def test_each_pass_fails_anew() -> None:
    reader, queue = feed()
    for i in range(5):
        queue.push(tuple_of(i))
        queue.fail(KeyError(i))
        assert value_of(reader.read()) == i
        with pytest.raises(KeyError, match=str(i)):
            reader.read()
        queue.reopen()
    queue.push(tuple_of(9))
    queue.close()
    assert numbers(reader) == [9]


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


ANY: dict[str, Callable[[], BaseException]] = {
    "no text": NoText,
    "a NUL": lambda: ValueError("a\0b"),
    "no UTF-8": lambda: ValueError("\ud800"),
    "a megabyte": lambda: ValueError("x" * 1000000),
    "Ctrl-C": KeyboardInterrupt,
    "exit": lambda: SystemExit(3),
    "generator exit": GeneratorExit,
    "an end": lambda: StopIteration("not the end"),
    "no stack": RecursionError,
    "a group": lambda: ExceptionGroup("two", [ValueError(1), TypeError(2)]),
    "a strange class": type("Łąka", (Exception,), {"__module__": None}),
}


@pytest.mark.parametrize("name", ANY)
def test_any_exception_will_do(name: str) -> None:
    error = ANY[name]()
    reader, queue = feed()
    queue.fail(error)
    calls: list[Callable[[], Any]] = [queue.pop, reader.read, reader.has_next]
    for call in calls:
        with pytest.raises(pyfeed.errors.ProducerError if name == "exit" else type(error)) as caught:
            call()
        found = caught.value.__cause__ if name == "exit" else caught.value  # an exit would end the consumer's program
        assert found is error


@pytest.mark.parametrize("name", ANY)
def test_whatever_is_raised_in_produce_ends_the_pass(name: str) -> None:
    error = ANY[name]()
    reader, queue = feed(1)

    def function(worker: int) -> Iterator[tuple[Array]]:
        yield tuple_of(1)
        raise error

    queue.produce(function)
    assert value_of(reader.read()) == 1
    expected = {"an end": RuntimeError, "exit": pyfeed.errors.ProducerError}
    with pytest.raises(expected.get(name, type(error))):
        reader.read()


def test_an_exception_is_kept_no_longer_than_its_queue() -> None:
    class Marked(Exception):
        pass

    def use() -> weakref.ref[Marked]:
        _, queue = feed()
        try:
            raise Marked(queue)  # a reference cycle, through the arguments and the frames
        except Marked as error:
            queue.fail(error)
            return weakref.ref(error)

    reference = use()
    gc.collect()
    assert reference() is None


# ---- produce ----


@pytest.mark.parametrize("number", [1, 4])
def test_produce(number: int) -> None:
    reader, queue = feed(2)

    def function(worker: int) -> Iterator[tuple[Array]]:
        for i in range(50):
            yield tuple_of(100 * worker + i)

    threads = queue.produce(function, number)
    assert [t.daemon for t in threads] == [True] * number
    found = numbers(reader)
    assert sorted(found) == [100 * w + i for w in range(number) for i in range(50)]
    for w in range(number):
        assert [v for v in found if v // 100 == w] == [100 * w + i for i in range(50)]
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_produce_closes_when_the_last_is_done() -> None:
    reader, queue = feed(10)
    goes_on = threading.Event()

    def function(worker: int) -> Iterator[tuple[Array]]:
        yield tuple_of(worker)
        if worker == 1:
            goes_on.wait()
            yield tuple_of(5)

    first, _ = queue.produce(function, 2)
    first.join()
    assert not queue.stats()["closed"]
    goes_on.set()
    assert sorted(numbers(reader)) == [0, 1, 5]


def test_produce_twice_in_a_pass() -> None:
    """The pass ends after the last thread of both calls, whichever of them ends first."""
    for slow in (0, 1):
        reader, queue = feed(10)
        goes_on = threading.Event()

        def function(call: int, slow: int = slow, goes_on: threading.Event = goes_on) -> Iterator[tuple[Array]]:
            yield tuple_of(call)
            if call == slow:
                goes_on.wait()
                yield tuple_of(10 + call)

        both = threading.Barrier(2)

        def begin(call: int, both: threading.Barrier = both) -> Iterator[tuple[Array]]:
            both.wait()  # so that the first call does not end the pass before the second
            yield from function(call)

        threads = [*queue.produce(lambda worker: begin(0)), *queue.produce(lambda worker: begin(1))]
        threads[1 - slow].join()
        assert not queue.stats()["closed"]
        goes_on.set()
        assert sorted(numbers(reader)) == [0, 1, 10 + slow]
        threads[slow].join()
        with pytest.raises(pyfeed.errors.StateError, match=r"^produce: pass 0 has ended: reopen\(\) begins the next$"):
            queue.produce(lambda worker: [])
        queue.reopen()
        queue.produce(lambda worker: [tuple_of(7)])
        assert numbers(reader) == [7]


def test_a_block_leaves_the_end_to_the_threads_of_produce() -> None:
    reader, queue = feed(10)
    goes_on = threading.Event()

    def function(worker: int) -> Iterator[tuple[Array]]:
        goes_on.wait()
        yield tuple_of(1)

    with queue:
        queue.producer().produce(function)
        queue.push(tuple_of(2))
    assert not queue.stats()["closed"]
    goes_on.set()
    assert numbers(reader) == [2, 1]


def test_a_block_may_wait_for_the_consumer_of_produce() -> None:
    reader, queue = feed(10)
    with queue:
        queue.produce(lambda worker: [tuple_of(1), tuple_of(2)])
        assert numbers(reader) == [1, 2]


def test_blocks_of_several_threads_end_the_pass_together() -> None:
    reader, queue = feed(10)
    entered, leave = threading.Barrier(2), threading.Event()

    def push(i: int) -> None:
        with queue:
            entered.wait()
            if i:
                leave.wait()
            queue.push(tuple_of(i))

    first, second = Background(lambda: push(0)), Background(lambda: push(1))
    first.result()
    assert not queue.stats()["closed"]
    leave.set()
    second.result()
    assert numbers(reader) == [0, 1]


def test_a_pass_stays_open_for_blocks_that_have_not_begun() -> None:
    """Without expect, the first thread's block would close the pass before the second begins its own."""
    reader, queue = feed(10)
    for _ in range(2):
        queue.expect(3)
        with queue:
            queue.push(tuple_of(0))
        queue.produce(lambda worker: [tuple_of(1)])[0].join()
        with queue.producer():
            queue.push(tuple_of(2))
        assert not queue.stats()["closed"]
        with pytest.raises(ZeroDivisionError), queue.producer():
            raise ZeroDivisionError
        assert queue.stats()["closed"]
        assert [value_of(reader.read()) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ZeroDivisionError):
            reader.read()
        queue.reopen()
        reader.reset()


def test_threads_of_produce_close_a_pass_after_the_expected_blocks() -> None:
    reader, queue = feed(10)
    leave = threading.Event()
    queue.expect(1)

    def late(worker: int) -> Iterator[Any]:
        leave.wait()
        yield tuple_of(1)

    queue.produce(late)
    with queue:
        queue.push(tuple_of(0))
    assert not queue.stats()["closed"]
    leave.set()
    assert numbers(reader) == [0, 1]


def test_expect_needs_an_open_pass() -> None:
    _, queue = feed()
    queue.close()
    with raises(pyfeed.errors.StateError, "expect: pass 0 has ended: reopen() begins the next"):
        queue.expect(1)
    queue.shutdown()
    with raises(pyfeed.errors.QueueClosed, "expect: the queue is shut down"):
        queue.expect(1)


def test_functions_that_cannot_be_called() -> None:
    _, queue = feed()
    expected = "function: expected a function that is called with the number of a thread, such as f(worker), found "
    function: Any
    for function, signature in ((lambda: [], "<lambda>()"), (lambda a, b: [], "<lambda>(a, b)")):
        with raises(pyfeed.errors.ArgumentTypeError, expected + signature):
            queue.produce(function)
    expected = "function: expected a function without arguments, or with the argument start, found <lambda>"
    for function, signature in ((lambda worker: [], "(worker)"), (lambda start, end: [], "(start, end)")):
        with raises(pyfeed.errors.ArgumentTypeError, expected + signature):
            generator(function)


def test_an_error_of_a_push_names_the_tuple_and_the_line() -> None:
    def yields() -> Iterator[Any]:
        yield tuple_of(0)
        yield (np.zeros(3),)

    code = yields.__code__
    reader, queue = feed(10)
    queue.produce(lambda worker: yields())
    assert value_of(reader.read()) == 0
    with pytest.raises(pyfeed.errors.Error) as info:
        reader.read()
    where = f"yielded at {code.co_filename}, line {code.co_firstlineno + 2}."
    assert info.value.__notes__ == [f"This was tuple 1 of {yields.__qualname__}, {where}"]

    reader, queue = feed(10)
    queue.produce(lambda worker: [tuple_of(0), (np.zeros(3),)])
    assert value_of(reader.read()) == 0
    with pytest.raises(pyfeed.errors.Error) as info:
        reader.read()
    assert info.value.__notes__ == ["This was tuple 1 of list."]


def test_produce_after_shutdown() -> None:
    _, queue = feed()
    queue.shutdown()
    with raises(pyfeed.errors.QueueClosed, "produce: the queue is shut down"):
        queue.produce(lambda worker: [])


def test_a_thread_that_cannot_start_fails_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, queue = feed(10)
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def start_one(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_one)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        queue.produce(lambda worker: [], 3)
    monkeypatch.undo()
    started[0].join()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        reader.read()


def test_a_generator_instead_of_its_function() -> None:
    def images() -> Iterator[tuple[Array]]:
        yield tuple_of(1)

    _, queue = feed()
    wrong: Any = images()
    with pytest.raises(pyfeed.errors.ArgumentTypeError, match=r"function: expected a function, .*: pass images, not"):
        queue.produce(wrong)


def test_produce_from_anything_that_can_be_iterated() -> None:
    reader, queue = feed(10)
    queue.produce(lambda worker: [tuple_of(1), [np.zeros(2)]])
    assert numbers(reader) == [1, 0]


@pytest.mark.parametrize("number", [1, 4])
def test_an_exception_in_produce_reaches_the_consumer(number: int) -> None:
    reader, queue = feed(1)

    def function(worker: int) -> Iterator[tuple[Array]]:
        yield tuple_of(worker)
        if worker == 0:
            producer_function()
        yield tuple_of(10 + worker)

    threads = queue.produce(function, number)
    found: list[float] = []
    with pytest.raises(ValueError, match="from deep below") as caught:
        found.extend(value_of(arrays) for arrays in reader)
    assert 0 in found
    assert frames(caught.value)[-3:] == ["push_all", "function", "producer_function"]
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_a_tuple_that_does_not_fit_fails_produce() -> None:
    reader, queue = feed(1)
    queue.produce(lambda worker: iter([tuple_of(1), (np.zeros(3),)]))
    assert value_of(reader.read()) == 1
    message = "slot 0: dimension 0: expected 2, found 3: dims [3] for [2]"
    with raises(pyfeed.errors.ShapeError, message, slot=0):
        reader.read()


def test_a_queue_closed_inside_a_producer_is_no_end_of_its_own() -> None:
    """Only QueueClosed from a push into the producer's own queue means that the consumer is gone."""
    other = feed()[1]
    other.close()

    def function(worker: int = 0) -> Iterator[tuple[Array]]:
        yield tuple_of(1)
        other.push(tuple_of(2))

    reader, queue = feed(1)
    queue.produce(function)
    for each in (reader, generator(function)):
        assert value_of(each.read()) == 1
        with raises(pyfeed.errors.QueueClosed, "the queue is closed: pass 0 takes no more tuples"):
            each.read()


def test_producers_stop_when_the_queue_is_closed() -> None:
    _, queue = feed(1)
    closed: list[int] = []

    def function(worker: int) -> Iterator[tuple[Array]]:
        try:
            while True:
                yield tuple_of(worker)
        finally:
            closed.append(worker)

    threads = queue.produce(function, 3)
    wait_for_producers(queue, 3)
    queue.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert sorted(closed) == [0, 1, 2]
    assert not queue.stats()["failed"]


def test_producers_stay_in_the_pass_they_began_in() -> None:
    _, queue = feed(10)
    goes_on = threading.Event()

    def function(worker: int) -> Iterator[tuple[Array]]:
        yield tuple_of(1)
        goes_on.wait()
        if worker == 0:
            yield tuple_of(2)
        raise KeyError("nobody is there to hear it")

    heard: list[Any] = []
    hook, threading.excepthook = threading.excepthook, lambda args: heard.append(args.exc_value)
    try:
        threads = queue.produce(function, 2)
        queue.pop()
        queue.pop()
        queue.reopen()
        goes_on.set()
        for thread in threads:
            thread.join(10)
    finally:
        threading.excepthook = hook
    assert [type(e) for e in heard] == [KeyError]
    heard.clear()
    stats = queue.stats()
    assert (stats["size"], stats["closed"], stats["failed"], stats["pass_id"]) == (0, False, False, 1)


# ---- reopen and passes ----


def test_reopen_drops_what_is_queued() -> None:
    _, queue = feed(4)
    for i in range(3):
        queue.push(tuple_of(i))
    assert queue.reopen() == 3
    assert queue.stats()["dropped"] == 3
    assert queue.stats()["bytes"] == 0
    queue.push(tuple_of(9))
    queue.close()
    assert queue.reopen() == 1
    queue.push(tuple_of(10))
    assert value_of(queue.pop()) == 10
    assert queue.reopen() == 0


@pytest.mark.parametrize("closed", [False, True])
def test_a_push_blocked_over_a_reopen_lands_nowhere(closed: bool) -> None:
    for _ in range(50):
        _, queue = feed(1)
        queue.push(tuple_of(1))
        blocked = [Background(functools.partial(queue.push, tuple_of(i))) for i in (2, 3)]
        wait_for_producers(queue, 2)
        if closed:
            queue.close()
        assert queue.reopen() == 1
        queue.push(tuple_of(10))
        for each in blocked:
            with pytest.raises(pyfeed.errors.QueueClosed):
                each.result()
        assert value_of(queue.pop()) == 10
        assert queue.size() == 0


def test_a_pop_blocked_over_a_reopen_sees_the_end() -> None:
    for _ in range(50):
        reader, queue = feed(1)
        blocked = [Background(queue.pop), Background(reader.read)]
        wait_for_consumers(queue, 2)
        queue.reopen()
        queue.push(tuple_of(1), timeout=0)
        for each in blocked:
            with raises(pyfeed.errors.EndOfData, None):
                each.result()
        assert value_of(queue.pop()) == 1


def test_wait_pass() -> None:
    scope = Scope()
    queue = PyArrayFeedQueueHolder(scope, "q").init_once(2, [(2,)], restartable=True)
    scope.create_py_array_reader("r", "q")
    reader = Reader.in_variable(scope, "r")
    assert queue.stats()["pass_id"] is None
    assert queue.stats()["restartable"]
    with raises(pyfeed.errors.Timeout, None):
        queue.wait_pass(None, timeout=0)
    waiting = Background(lambda: queue.wait_pass(None))
    reading = Background(reader.read)  # opens the first pass
    assert waiting.result() == 0
    assert queue.wait_pass(None, timeout=0) == 0
    waiting = Background(lambda: queue.wait_pass(0))
    queue.push(tuple_of(1), pass_id=0)
    assert value_of(reading.result()) == 1
    reader.reset()
    assert waiting.result() == 1
    with raises(pyfeed.errors.QueueClosed, "pass 0 of the queue is over, it is at pass 1"):
        queue.push(tuple_of(1), pass_id=0)
    queue.push(tuple_of(2), pass_id=1)
    assert value_of(reader.read()) == 2
    waiting = Background(lambda: queue.wait_pass(1))
    queue.shutdown()
    with raises(pyfeed.errors.QueueClosed, "the queue is shut down"):
        waiting.result()


# ---- from_generator ----


def count_to(n: int) -> Any:
    return lambda: (tuple_of(i) for i in range(n))


def test_from_generator_starts_over() -> None:
    reader = generator(count_to(5))
    for _ in range(3):
        assert numbers(reader) == [0, 1, 2, 3, 4]
        assert numbers(reader.current_pass()) == []
        reader.reset()
    assert reader.has_next()


def test_from_generator_begins_when_something_is_read() -> None:
    called: list[int] = []

    def function() -> Iterator[tuple[Array]]:
        called.append(1)
        yield tuple_of(1)

    reader = generator(function)
    assert called == []
    assert reader.has_next()
    assert called == [1]
    reader.read()
    reader.reset()


def test_resets_at_random_points() -> None:
    """In 100 passes each instance is delivered once, in order, and no instance of an earlier pass."""
    random = np.random.default_rng(7)
    passes = 0
    closed = 0

    def function() -> Iterator[tuple[Array]]:
        nonlocal passes, closed
        passes += 1
        mine = passes
        try:
            for i in range(20):
                yield tuple_of(100 * mine + i)
        finally:
            closed += 1

    reader = generator(function, capacity=3)
    batch = reader.batch(3)
    for n in range(100):
        top = batch if n % 3 == 2 else reader
        until = int(random.integers(0, 22))
        found: list[float] = []
        while len(found) < until and (random.random() < 0.5 or top.has_next()):
            try:
                found += np.atleast_2d(top.read()[0])[:, 0].tolist()
            except pyfeed.errors.EndOfData:
                break
        if found:
            first = found[0]
            assert first % 100 == 0
            assert found == [first + i for i in range(len(found))]
            assert len(found) <= 20
            assert first == 100 * passes
        if until > 20:
            assert len(found) == 20
        top.reset()
    wait_until(lambda: closed == passes - 1)  # the generator of the current pass is still open
    assert passes <= 101
    del reader, batch, top
    wait_until(lambda: closed == passes)


def test_reset_closes_the_generator() -> None:
    events: list[str] = []

    def function() -> Iterator[tuple[Array]]:
        events.append("began")
        try:
            while True:
                yield tuple_of(1)
        finally:
            events.append("closed")

    reader = generator(function)
    reader.read()
    reader.reset()
    wait_until(lambda: events == ["began", "closed", "began"])
    reader.read()
    del reader
    wait_until(lambda: events == ["began", "closed", "began", "closed"])


def test_any_iterable_with_a_close() -> None:
    class Source:
        closed = 0

        def __iter__(self) -> Iterator[tuple[Array]]:
            return iter([tuple_of(1), tuple_of(2)])

        def close(self) -> None:
            self.closed += 1

    source = Source()
    reader = generator(lambda: source, capacity=1)  # so that the third pass is not pushed as a whole
    assert numbers(reader) == [1, 2]
    wait_until(lambda: source.closed == 1)
    reader.reset()
    assert value_of(reader.read()) == 1
    reader.reset()
    wait_until(lambda: source.closed == 2)
    reader = generator(lambda: [tuple_of(3)])
    assert numbers(reader) == [3]


def test_an_iterable_reader_is_not_closed() -> None:
    """The function of from_generator may return a reader, over which every pass iterates."""
    source = pyfeed.random_data([()], ["int64"], high=9, count=3, scope=Scope())
    passes = []

    def function() -> Reader:
        passes.append(1)
        if len(passes) > 1:
            source.reset()
        return source

    reader = from_generator(function, [()], dtypes=["int64"], scope=Scope())
    assert len(list(reader)) == 3
    reader.reset()
    assert len(list(reader)) == 3


@pytest.mark.parametrize("kind", ["from_generator", "produce"])
def test_stop_iteration_in_the_function(kind: str) -> None:
    """StopIteration from the function is an error, not the end of the data."""

    def function(*_: int) -> Any:
        raise StopIteration

    if kind == "from_generator":
        reader = generator(function)
    else:
        reader, queue = feed()
        queue.produce(function)
    with pytest.raises(RuntimeError, match="the function raised StopIteration"):
        reader.read()


def test_an_exception_in_the_generator() -> None:
    fails = True

    def function() -> Iterator[tuple[Array]]:
        yield tuple_of(1)
        yield tuple_of(2)
        if fails:
            producer_function()
        yield tuple_of(3)

    reader = generator(function, capacity=1)
    assert value_of(reader.read()) == 1
    assert value_of(reader.read()) == 2
    for _ in range(3):
        with pytest.raises(ValueError, match="from deep below") as caught:
            reader.read()
        assert frames(caught.value)[-2:] == ["function", "producer_function"]
    fails = False
    reader.reset()
    assert numbers(reader) == [1, 2, 3]


def test_a_reader_is_let_go_of_after_an_exception() -> None:
    """The traceback refers to the consumer's frame and so to the reader, but must not keep the reader alive."""

    def consume() -> weakref.ref[Reader]:
        reader = generator(lambda: producer_function())
        try:
            reader.read()
        except ValueError:
            return weakref.ref(reader)
        raise AssertionError

    reference = consume()
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda: None, TypeError),
        (lambda: 1 / 0, ZeroDivisionError),
        (lambda: [tuple_of(1), "text"][1:], pyfeed.errors.DTypeError),
        (lambda: [(np.zeros(3),)], pyfeed.errors.ShapeError),
        (lambda: (_ for _ in ()).throw(NoText()), NoText),
        (lambda: (_ for _ in ()).throw(SystemExit(3)), pyfeed.errors.ProducerError),
    ],
)
def test_a_function_that_gives_no_tuples(function: Any, kind: type[BaseException]) -> None:
    reader = generator(function)
    for attempt in range(2):
        if attempt:  # not behind the last: the function would fail in a pass without a reader
            reader.reset()
        with pytest.raises(kind):
            reader.read()
        with pytest.raises(kind):
            reader.has_next()


def test_an_empty_pass() -> None:
    reader = generator(lambda: [])
    for _ in range(3):
        assert not reader.has_next()
        assert numbers(reader) == []
        reader.reset()


def test_an_exception_in_a_generators_close() -> None:
    """If its pass is still current, the pass fails; after a reset, the exception goes to threading.excepthook."""

    class Source:
        def __init__(self, n: int) -> None:
            self.n = n

        def __iter__(self) -> Iterator[tuple[Array]]:
            return (tuple_of(i) for i in range(self.n))

        def close(self) -> None:
            raise KeyError("in close")

    reader = generator(lambda: Source(2))
    assert value_of(reader.read()) == 0
    assert value_of(reader.read()) == 1
    with pytest.raises(KeyError, match="in close"):
        reader.read()

    heard: list[Any] = []
    hook, threading.excepthook = threading.excepthook, lambda args: heard.append(args.exc_value)
    try:
        reader = generator(lambda: Source(100))
        for _ in range(3):
            assert value_of(reader.read()) == 0
            reader.reset()
        wait_until(lambda: len(heard) == 3)
        assert value_of(reader.read()) == 0  # the fourth pass has begun
        del reader
        wait_until(lambda: len(heard) == 4)
    finally:
        threading.excepthook = hook
    assert [str(e) for e in heard] == ["'in close'"] * 4
    heard.clear()


def test_reset_while_a_read_is_blocked() -> None:
    stands_still = threading.Event()
    calls: list[int] = []

    def function() -> Iterator[tuple[Array]]:
        calls.append(1)
        if len(calls) == 1:
            stands_still.wait()
        yield tuple_of(len(calls))

    reader = generator(function)
    message = "the reader was reset while this call waited in it"
    calls_that_wait: list[Callable[[], Any]] = [
        reader.read,
        reader.has_next,
        lambda: next(reader),
        lambda: reader.scope.read(reader.name, ["x"]),
    ]
    blocked = [Background(call) for call in calls_that_wait]
    wait_until(lambda: calls)
    wait_for_consumers(queue_of(reader), 4)
    reader.reset()
    for each in blocked:
        with raises(pyfeed.errors.Cancelled, message):
            each.result()
    stands_still.set()
    assert numbers(reader) == [2]


def test_reset_while_a_batch_is_blocked() -> None:
    stands_still = threading.Event()
    calls: list[int] = []

    def function() -> Iterator[tuple[Array]]:
        calls.append(1)
        yield tuple_of(len(calls))
        if len(calls) == 1:
            stands_still.wait()
        yield tuple_of(len(calls))

    reader = generator(function)
    batch = reader.batch(2)
    blocked = Background(batch.read)
    wait_until(lambda: queue_of(reader).stats()["popped"] == 1)
    wait_for_consumers(queue_of(reader))
    batch.reset()
    with raises(pyfeed.errors.Cancelled, None):
        blocked.result()
    stands_still.set()
    assert batch.read()[0][:, 0].tolist() == [2, 2]
    assert list(batch) == []


def test_reset_while_the_producer_is_blocked() -> None:
    reader = generator(count_to(1000), capacity=1)
    for _ in range(200):
        assert value_of(reader.read()) == 0
        reader.reset()


def test_resets_from_many_threads() -> None:
    reader = generator(count_to(10))

    def use(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(100):
            try:
                if random.random() < 0.3:
                    reader.reset()
                elif random.random() < 0.5:
                    reader.has_next(timeout=0.01)
                else:
                    reader.read(timeout=0.01)
            except (pyfeed.errors.Cancelled, pyfeed.errors.EndOfData, pyfeed.errors.Timeout):
                pass

    for user in [Background(lambda i=i: use(i)) for i in range(4)]:  # type: ignore[misc]
        user.result()
    reader.reset()
    assert numbers(reader) == list(range(10))


def test_a_reader_that_is_collected_stops_its_thread() -> None:
    before = threading.active_count()
    readers: list[Reader] = [generator(count_to(100)) for _ in range(5)]
    for reader in readers[:3]:
        reader.read()
    assert threading.active_count() == before + 5
    readers.clear()
    del reader
    wait_until(lambda: threading.active_count() == before)
    batch = generator(count_to(100)).batch(2)
    assert value_of(batch.read()) == 0
    gc.collect()
    assert threading.active_count() == before + 1
    del batch
    wait_until(lambda: threading.active_count() == before)


def test_a_generator_that_reads_another() -> None:
    inner = generator(count_to(6))

    def function() -> Iterator[tuple[Array]]:
        inner.reset()
        for (x,) in inner:
            yield (x * 10,)

    outer = generator(function)
    for _ in range(3):
        assert numbers(outer) == [0, 10, 20, 30, 40, 50]
        outer.reset()


def test_a_generator_that_resets_its_own_reader() -> None:
    calls: list[int] = []

    def function() -> Iterator[tuple[Array]]:
        calls.append(1)
        yield tuple_of(1)
        if len(calls) == 1:
            readers[0].reset()
        yield tuple_of(2)

    reader = generator(function)
    readers = [reader]
    found = []
    while True:
        try:
            found.append(value_of(reader.read()))
        except pyfeed.errors.Cancelled:
            continue
        except pyfeed.errors.EndOfData:
            break
    assert found[-2:] == [1, 2]
    assert len(calls) == 2
    readers.clear()  # otherwise the function keeps the reader alive, and so its own thread
