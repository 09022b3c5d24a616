"""Producers end when the last consumer of their queue is gone."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import pyfeed
from pyfeed import PyArrayFeedQueue, PyArrayFeedQueueHolder, Reader, Scope, from_generator
from pyfeed.shared import SharedFeedQueue

from . import shared_workers as workers
from .support import Array, Background, feed, raises, tuple_of, value_of, wait_for_producers, wait_until

GONE = "the queue is shut down: no reader of it is left, nor any other consumer"


def endless(worker: int) -> Iterator[tuple[Array]]:
    while True:
        yield tuple_of(worker)


def end(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize("above", [lambda r: r, lambda r: r.batch(2), lambda r: r.shuffle(3).batch(2).double_buffer()])
def test_threads_of_produce_end_with_the_last_reader(above: Callable[[Reader], Reader]) -> None:
    before = pyfeed.diagnostics.memory_stats()
    reader, queue = feed(2)
    threads = queue.produce(endless, 2)
    top = above(reader)
    top.read()
    del reader, queue
    gc.collect()
    top.read()  # the chain above the queue keeps it open
    assert all(thread.is_alive() for thread in threads)
    del top
    end(threads)
    del threads
    wait_until(lambda: pyfeed.diagnostics.memory_stats() == before)


def test_a_push_that_waits_is_refused() -> None:
    before = pyfeed.diagnostics.memory_stats()
    reader, queue = feed(1)
    producer = queue.producer()
    producer.push(tuple_of(0))
    waiting = Background(partial(producer.push, tuple_of(1)))
    wait_for_producers(queue)
    del reader, queue
    with raises(pyfeed.errors.QueueClosed, GONE):
        waiting.result()
    with raises(pyfeed.errors.QueueClosed, GONE):
        producer.push((np.zeros(2),), copy=False)
    with raises(pyfeed.errors.QueueClosed, GONE), producer.reserve(shapes=[(2,)], lod=None):
        pass
    with raises(pyfeed.errors.QueueClosed, GONE):
        producer.reopen()
    assert producer.stats()["shut_down"]
    assert pyfeed.diagnostics.memory_stats()["idle_bytes"] == before["idle_bytes"]
    del producer, waiting
    gc.collect()
    assert pyfeed.diagnostics.memory_stats() == before


def test_a_slot_that_is_being_written_is_refused() -> None:
    before = pyfeed.diagnostics.memory_stats()
    reader, queue = feed(1, dtypes=["float64"])
    producer = queue.producer()
    reservation = producer.reserve()
    reservation.__enter__()[0][:] = 1
    del reader, queue
    with raises(pyfeed.errors.QueueClosed, GONE):
        reservation.__exit__(None, None, None)
    del reservation, producer
    gc.collect()
    assert pyfeed.diagnostics.memory_stats() == before


def test_a_generator_ends_with_the_last_reader() -> None:
    before = pyfeed.diagnostics.memory_stats()
    closed = threading.Event()

    def function() -> Iterator[tuple[Array]]:
        try:
            yield from endless(3)
        finally:
            closed.set()

    scope = Scope()
    reader = from_generator(function, [(2,)], scope=scope, name="g")
    scope.create_batch_reader("named", reader.name, 2)
    reader.read()
    del reader
    gc.collect()
    scope.read("named", ["x"])  # the named variable keeps the queue open
    assert scope["x"].tolist() == [[3, 3], [3, 3]]
    assert not closed.is_set()
    scope.erase("named")
    assert closed.wait(30)
    del scope
    wait_until(lambda: pyfeed.diagnostics.memory_stats() == before)


def test_a_reader_in_a_variable_that_the_caller_named_keeps_the_queue_open() -> None:
    scope = Scope()
    reader, queue = pyfeed.py_array_reader(2, [(2,)], scope=scope, name="feed")
    scope.create_py_array_reader("mine", "feed")
    threads = queue.produce(endless)
    del reader, queue
    gc.collect()
    for _ in range(10):
        scope.read("mine", ["x"])
    assert threads[0].is_alive()
    scope.erase("mine")
    end(threads)


def test_a_queue_in_a_variable_that_the_caller_named_stays_open() -> None:
    scope = Scope()
    threads = PyArrayFeedQueueHolder(scope, "feed").init_once(2, [(2,)]).produce(endless)
    gc.collect()
    scope.create_py_array_reader("mine", "feed")
    for _ in range(10):
        scope.read("mine", ["x"])
    scope.erase("feed")
    scope.read("mine", ["x"])
    assert threads[0].is_alive()
    del scope
    end(threads)


def test_the_queue_itself_can_pop() -> None:
    reader, queue = feed(2)
    threads = queue.produce(endless)
    del reader
    gc.collect()
    for _ in range(10):
        assert value_of(queue.pop()) == 0
    assert threads[0].is_alive()
    del queue
    end(threads)


def test_a_producer_does_not_pop() -> None:
    reader, queue = feed(2)
    producer = queue.producer()
    assert isinstance(producer, PyArrayFeedQueue)
    producer.push(tuple_of(1))
    message = "pop: expected a consumer's handle of the queue, found a producer's, which only pushes"
    with raises(pyfeed.errors.StateError, message, also=RuntimeError):
        producer.pop()
    producer.producer().push(tuple_of(2))
    producer.close()
    assert [value_of(t) for t in reader] == [1, 2]
    queue.reopen()
    producer.fail(KeyError("the producer's"))
    with pytest.raises(KeyError, match="the producer's"):
        queue.pop()


def test_the_exception_of_a_thread_whose_queue_object_is_gone_is_told_as_text() -> None:
    go_on = threading.Event()

    def function(worker: int) -> Iterator[tuple[Array]]:
        go_on.wait()
        raise KeyError("late")
        yield tuple_of(0)

    scope = Scope()
    reader, queue = pyfeed.py_array_reader(2, [(2,)], scope=scope, name="feed")
    scope.create_py_array_reader("mine", "feed")
    threads = queue.produce(function)
    del reader, queue
    gc.collect()
    go_on.set()
    end(threads)
    del threads
    gc.collect()
    with pytest.raises(pyfeed.errors.ProducerError) as caught:
        scope.read("mine", ["x"])
    assert caught.value.cause_type == "KeyError"


def test_a_thread_at_exit_that_waits_to_push_through_a_producer_ends() -> None:
    from .support import run

    program = """
        reader, queue = feed(1)
        producer = queue.producer()
        def push():
            try:
                while True:
                    producer.push(tuple_of(1))
            except pyfeed.errors.QueueClosed:
                say("closed")
        start(push)
    """
    assert run(program) == ["closed"]


def test_workers_end_with_the_last_reader() -> None:
    queue = SharedFeedQueue([(), ()], dtypes=["int64", "int64"], scope=Scope())
    processes: list[Any] = queue.start(workers.counts_for_ever, num_workers=2)
    reader = queue.reader
    reader.read()
    del queue
    gc.collect()
    reader.read()
    assert all(process.is_alive() for process in processes)
    del reader
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
