"""Eight threads on each object of the extension: without a GIL, only its own locks keep an object whole.

The tests run with a GIL too, where the threads take turns.
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyfeed.diagnostics import memory_stats, trace
from pyfeed.errors import Cancelled, EndOfData, InvalidArgument, ProducerError, QueueClosed, StateError, Timeout
from pyfeed.program import CancelToken, Executor, Program, layers, program_guard
from pyfeed.program.kernels import register_kernel

import pyfeed
from pyfeed import LoDTensor, Scope

from .support import Array, Background, feed, run, value_of

THREADS = 8
ROUNDS = int(os.environ.get("PYFEED_STRESS_ROUNDS", "200"))


def race(*functions: Callable[[int], Any], threads: int = THREADS) -> list[Any]:
    """Call the functions in turn, each with the number of its thread, in threads that start at once."""
    barrier = threading.Barrier(threads)

    def call(i: int) -> Any:
        barrier.wait()
        return functions[i % len(functions)](i)

    return [b.result() for b in [Background(lambda i=i: call(i)) for i in range(threads)]]  # type: ignore[misc]


def test_the_gil_stays_off() -> None:
    """Python switches the GIL on, with a warning, when it imports an extension that needs it."""
    program = """
        import sys
        import pyfeed, pyfeed_worker, pyfeed.program, pyfeed.shared
        print(getattr(sys, "_is_gil_enabled", lambda: True)())
    """
    assert run(program, "-W", "error", PYTHON_GIL="") == [str(not sysconfig.get_config_var("Py_GIL_DISABLED"))]


# ---- Queues ----


def test_queue() -> None:
    _, queue = feed(THREADS)

    def push(i: int) -> None:
        for n in range(ROUNDS):
            arrays = (np.full(2, 1000.0 * i + n),)
            if n % 3 == 0:
                queue.push(arrays, copy=False)
            elif n % 3 == 1:
                queue.push(arrays)
            else:
                with queue.reserve() as (x,):
                    x[:] = arrays[0]

    def pop(_: int) -> list[float]:
        found = []
        for _ in range(ROUNDS):
            found.append(value_of(queue.pop()))
            stats = queue.stats()
            assert 0 <= stats["size"] <= THREADS
        return found

    found = [value for values in race(push, pop) if values for value in values]
    assert sorted(found) == sorted(1000.0 * i + n for i in range(0, THREADS, 2) for n in range(ROUNDS))


def test_arrays_that_are_lent_to_several_queues() -> None:
    """An array is read-only as long as a queue has it, whichever thread lent it."""
    shared = np.arange(2.0)
    queues = [feed(2)[1] for _ in range(THREADS)]

    def lend(i: int) -> None:
        for _ in range(ROUNDS):
            queues[i].push((shared,), copy=False)
            (x,) = queues[i].pop()
            assert x.tolist() == [0, 1]
            del x

    race(lend)
    memory_stats()  # takes back what was lent last
    assert shared.flags.writeable
    assert memory_stats()["live_lent_bytes"] == 0


def test_slots_that_the_first_push_decides() -> None:
    for _ in range(ROUNDS // 8):
        _, queue = feed(THREADS, [(-1,)], names=["x"])
        race(lambda i, queue=queue: queue.push({"x": np.full(i + 1, i, np.int32)}))  # type: ignore[misc]
        found = [queue.pop()[0] for _ in range(THREADS)]
        assert sorted(len(x) for x in found) == list(range(1, THREADS + 1))
        assert all(set(x) == {len(x) - 1} for x in found)


def test_a_reservation_is_entered_and_left_once() -> None:
    _, queue = feed(1, dtypes=["float64"])
    for n in range(ROUNDS // 4):
        reservation = queue.reserve()

        def enter(_: int, reservation: Any = reservation) -> Array | None:
            try:
                return reservation.__enter__()[0]  # type: ignore[no-any-return]
            except StateError:
                return None

        (x,) = (x for x in race(enter) if x is not None)
        x[:] = n
        race(lambda _, reservation=reservation: reservation.__exit__(None, None, None))  # type: ignore[misc]
        assert not x.flags.writeable
        assert queue.stats()["size"] == 1
        assert value_of(queue.pop()) == n


def test_a_list_that_changes_while_it_is_pushed() -> None:
    _, queue = feed(THREADS, [(2,), (2,)])
    arrays: list[Any] = [np.zeros(2), np.zeros(2)]

    def change(_: int) -> None:
        for n in range(ROUNDS):
            arrays[n % 2] = np.full(2, float(n))
            if n % 50 == 0:
                arrays.append(arrays.pop())

    def push(_: int) -> int:
        pushed = 0
        for _ in range(ROUNDS):
            try:
                queue.push(arrays)
            except (pyfeed.errors.Error, IndexError):  # one array was missing or too many at that moment
                continue
            pushed += 1
            for x in queue.pop():
                assert x[0] == x[1]
        return pushed

    assert sum(n or 0 for n in race(change, push)) > 0


def test_failures_reach_their_readers() -> None:
    """Each reader gets the exception of its own queue, although all threads fail and raise at once."""

    class Mine(Exception):
        pass

    def fail_and_read(i: int) -> None:
        for n in range(ROUNDS // 4):

            def generate(n: int = n) -> Any:
                yield (np.zeros(1),)
                raise Mine(i, n)

            reader = pyfeed.from_generator(generate, [(1,)], scope=Scope())
            reader.read()
            with pytest.raises(Mine) as caught:
                reader.read()
            assert caught.value.args == (i, n)
            reader.close()

    race(fail_and_read)


# ---- Readers ----


def numbers(count: int) -> Any:
    return pyfeed.from_dataset(np.arange(count), batch_size=1, num_threads=1, scope=Scope())


def test_reader_and_a_loop_that_threads_share() -> None:
    reader = numbers(ROUNDS)
    for _ in range(3):
        loop = iter(reader)

        def read(_: int, loop: Any = loop) -> list[int]:
            return [int(batch[0][0]) for batch in loop]

        found = race(read)
        assert sorted(itertools.chain(*found)) == list(range(ROUNDS))
    reader.close()


def test_reader_that_is_reset_read_and_closed() -> None:
    for _ in range(ROUNDS // 20):
        reader = numbers(50)
        rounds = itertools.count()

        def use(i: int, reader: Any = reader, rounds: Any = rounds) -> None:
            while not reader.closed:
                try:
                    if i == 0 and next(rounds) == 20:
                        reader.close()
                    elif i == 0:
                        reader.reset()
                    elif i == 1:
                        reader.stats()
                    elif i == 2:
                        reader.has_next(timeout=0)
                    elif i == 3:
                        reader.state_dict()
                    else:
                        for batch in reader.current_pass():
                            assert 0 <= batch[0][0] < 50
                except (Cancelled, EndOfData, Timeout):
                    pass
                except StateError:
                    assert reader.closed or i == 3  # a state is refused while another thread is in a read

        race(use)


def test_one_of_many_loops_begins_the_pass() -> None:
    reader = numbers(5)
    for _ in range(ROUNDS // 4):

        def begin(_: int) -> Any:
            try:
                return iter(reader)
            except StateError:
                return None

        (loop,) = (loop for loop in race(begin) if loop)
        assert [int(batch[0][0]) for batch in loop] == list(range(5))
        del loop
    reader.close()


def test_map_workers_and_structures() -> None:
    source = [{"x": np.full(3, i), "y": i} for i in range(ROUNDS)]
    reader = pyfeed.from_dataset(source, batch_size=4, num_threads=THREADS, scope=Scope())
    loop = iter(reader)
    found = race(lambda _: [(batch["x"].tolist(), batch["y"].tolist()) for batch in loop])
    rows = [row for batches in found for xs, ys in batches for row in zip(xs, ys, strict=True)]
    assert sorted(y for _, y in rows) == list(range(ROUNDS))
    assert all(x == [y] * 3 for x, y in rows)
    reader.close()


# ---- The other objects ----


def test_scope() -> None:
    scope = Scope()

    def use(i: int) -> None:
        for n in range(ROUNDS):
            scope.set_tensor("shared", np.full(4, 1000 * i + n))
            x = scope.get_tensor("shared")
            assert len(set(x.tolist())) == 1
            scope.set_tensor(f"own {i}", LoDTensor.from_lengths(np.arange(3), [[1, 2]]))
            assert scope.get_tensor(f"own {i}").lod[0].tolist() == [0, 1, 3]
            scope.erase(f"own {i}")

    race(use)
    assert scope.kind("shared") == "tensor"


def test_executor_program_and_kernels() -> None:
    program, executor, token = Program(), Executor(), CancelToken()
    with program_guard(program, Program()):
        layers.variable("x")
        out = layers.call("double_or_fail", "x", 1)

    def double_or_fail(x: Array) -> Array:
        if x[0] % 5 == 4:
            raise KeyError(int(x[0]))
        return x * 2

    def use(i: int) -> None:
        for n in range(ROUNDS // 2):
            value = 1000 * i + n
            try:
                result = int(executor.run(program, Scope(), {"x": np.array([value])}, [out])[0][0])
            except KeyError as error:
                result = -error.args[0]
            assert result == (-value if value % 5 == 4 else 2 * value)
            assert program.clone().to_json() == text

    text = program.to_json()
    with register_kernel("double_or_fail", double_or_fail):
        race(use)
    race(lambda _: token.cancel())
    assert token.cancelled


def test_kernels_that_are_registered_and_closed() -> None:
    def use(i: int) -> None:
        for _ in range(ROUNDS // 2):
            kernel = register_kernel(f"of thread {i}", lambda: None)
            race_to_close = [Background(kernel.close) for _ in range(2)]
            for closing in race_to_close:
                closing.result()
            assert kernel.closed

    race(use)


def test_writer(tmp_path: Path) -> None:
    path = tmp_path / "x.recordio"
    writer = pyfeed.open_writer(path)

    def write(i: int) -> None:
        for n in range(ROUNDS):
            writer.write((np.array([i, n]), n, f"{i}"))

    race(write)
    race(lambda _: writer.close())
    with pytest.raises(StateError):
        writer.write((np.zeros(1),))
    with pyfeed.open_files([path], scope=Scope()) as reader:
        found = [(x.tolist(), int(n)) for x, n, _ in reader]
    counts = collections.Counter(i for (i, _), _ in found)
    assert counts == dict.fromkeys(range(THREADS), ROUNDS)
    assert all(x[1] == n for x, n in found)


def test_staging_buffer() -> None:
    from pyfeed.staging import get_buffer

    buffer = get_buffer(pyfeed.CPUPlace(), 2)

    def use(i: int) -> list[int]:
        if i % 2 == 0:
            for n in range(ROUNDS):
                buffer.put((np.array([1000 * i + n]),))
            return []
        return [int(buffer.get()[0][0]) for _ in range(ROUNDS)]

    found = sorted(itertools.chain(*race(use)))
    assert found == sorted(1000 * i + n for i in range(0, THREADS, 2) for n in range(ROUNDS))


def test_trace_and_statistics() -> None:
    _, queue = feed(THREADS)

    def use(_: int) -> None:
        for n in range(ROUNDS // 2):
            queue.push((np.full(2, float(n)),))
            queue.pop()
            assert memory_stats()["handles"] > 0

    with trace() as t:
        race(use)
    texts = race(lambda _: t.chrome())
    assert set(texts) == {texts[0]}
    names = [event["name"] for event in json.loads(texts[0])["traceEvents"]]
    assert names.count("push") == names.count("pop") == THREADS * (ROUNDS // 2)


def test_slots_that_are_asked_for_while_a_queue_closes() -> None:
    for _ in range(ROUNDS // 8):
        _, queue = feed(2)

        def use(i: int, queue: Any = queue) -> None:
            try:
                if i == 0:
                    queue.close()
                elif i == 1:
                    queue.fail(ValueError("x"))
                else:
                    queue.push((np.zeros(2),), timeout=5)
                    queue.pop(timeout=5)
            except (QueueClosed, EndOfData, ProducerError, ValueError, StateError, InvalidArgument):
                pass

        race(use)
