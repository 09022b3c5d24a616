"""Queues that worker processes fill."""

from __future__ import annotations

import functools
import gc
import mmap
import multiprocessing
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyfeed_worker
import pytest
from pyfeed.errors import WorkerError

import pyfeed
from pyfeed import Scope
from pyfeed.shared import SharedFeedQueue

from . import shared_workers as workers
from .support import STUCK, Background, Process, raises, same, wait_for_ends, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is shared by memfd")

E = TypeVar("E", bound=BaseException)
METHODS = ["spawn", "forkserver", "fork"]


def queue_of(*shapes: tuple[int, ...], dtypes: Any = None, **options: Any) -> SharedFeedQueue:
    return SharedFeedQueue(shapes or [(2,)], dtypes=dtypes, **{"cell_bytes": 4096, "scope": Scope(), **options})


def error_of(kind: type[E], function: Callable[..., object], *args: Any) -> E:
    with pytest.raises(kind) as caught:
        function(*args)
    return caught.value


def end(processes: list[Any]) -> list[int]:
    for p in processes:
        p.join(STUCK)
    return [p.exitcode for p in processes]


# ---- Workers without errors ----


@pytest.mark.parametrize("method", METHODS)
def test_every_tuple_arrives_in_its_workers_order(method: str) -> None:
    queue = queue_of((), (), (-1,), (), ring_cells=4)
    processes = queue.start(workers.count, (200,), num_workers=3, method=method)
    numbers: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for worker, number, data, total in queue:
        assert data.sum(dtype=np.int64) == total
        numbers[int(worker)].append(int(number))
    assert numbers == {w: list(range(200)) for w in range(3)}
    assert end(processes) == [0, 0, 0]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_worker_has_no_go_in_it(method: str) -> None:
    queue = queue_of((), ())
    processes = queue.start(workers.maps, method=method)
    assert [(bool(a), bool(b)) for a, b in queue] == [(False, False)]
    assert end(processes) == [0]


def test_arrays_of_all_kinds() -> None:
    queue = queue_of((-1, -1), (-1,), dtypes=["float32", "float32"], lod_levels=[0, 1])
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    processes = queue.start(workers.kinds)
    found = list(queue)
    for x, want in zip([t[0] for t in found], [base[::2, ::-3], base[:2], base[1:3], np.full((2, 2), 7)], strict=True):
        same(x, np.ascontiguousarray(want, dtype=np.float32))
    assert [[level.tolist() for level in t[1].lod] for t in found] == [
        [[0, 2, 5]],
        [[0, 2, 5]],
        [[0, 0, 0]],
        [[0, 1, 3]],
    ]
    assert found[3][1].data.tolist() == [8, 8, 8]
    assert end(processes) == [0]


def test_large_tuples() -> None:
    sizes = [(2 << 20) - 1, 2 << 20, (2 << 20) + 1, (3 << 20) + 77, 0]
    queue = queue_of((-1,), (3, 3), ring_cells=3, cell_bytes=4 << 20)
    processes = queue.start(workers.large, (sizes,))
    for size, (x, y) in zip(sizes, queue, strict=True):
        same(x, np.resize(np.arange(251, dtype=np.uint8), size + 1)[1:])
        assert y.tolist() == [[1.0] * 3] * 3
    assert end(processes) == [0]


def test_reservations_are_written_in_place() -> None:
    queue = queue_of((-1, 3), (-1,), dtypes=["float32", "int64"], ring_cells=3)
    processes = queue.start(workers.count_in_place, (20,), num_workers=2)
    seen = sorted((int(x[0, 0]), int(y[0]), len(x)) for x, y in queue)
    assert seen == [(i, w, i + 1) for i in range(20) for w in range(2)]
    assert end(processes) == [0, 0]


@pytest.mark.parametrize("ring_cells", [1, 2, 5])
def test_batches_larger_than_the_ring(ring_cells: int) -> None:
    queue = queue_of((), (), (-1,), (), ring_cells=ring_cells)
    processes = queue.start(workers.count, (60, 1), num_workers=2)
    reader = queue.reader.shuffle(16, seed=1).batch(10, ragged=True).double_buffer()
    assert sorted(n for t in reader for n in t[1].tolist()) == sorted([*range(60), *range(60)])
    assert end(processes) == [0, 0]


def test_a_next_pass() -> None:
    queue = queue_of((), (), (-1,), ())
    for number in (3, 5):
        processes = queue.start(workers.count, (number,), method="fork")
        assert [int(t[1]) for t in queue] == list(range(number))
        assert end(processes) == [0]
        queue.reopen()


def numbered() -> SharedFeedQueue:
    """Return a queue for tuples of (process, pass, number)."""
    return queue_of((), (), (), dtypes=["int64", "int64", "int64"])


@pytest.mark.parametrize("method", METHODS)
def test_persistent_workers_stay_for_all_passes(method: str) -> None:
    queue = numbered()
    processes = queue.start(workers.counts_passes, (3,), num_workers=2, method=method, persistent=True)
    pids = sorted(p.pid or 0 for p in processes)
    for pass_id in (0, 1, 2):
        found = [tuple(int(x) for x in t) for t in queue]
        assert sorted(found) == [(pid, pass_id, i) for pid in pids for i in range(3)]
        queue.reopen()
    assert sorted(p.pid or 0 for p in processes) == pids
    del queue
    assert end(processes) == [0, 0]


def test_persistent_workers_under_decorators() -> None:
    queue = numbered()
    queue.start(workers.counts_passes, (10,), num_workers=2, method="fork", persistent=True)
    reader = queue.reader.shuffle(8, seed=1).batch(5).double_buffer()
    for pass_id in (0, 1, 2):
        batches = [tuple(x.tolist() for x in t) for t in reader]
        assert [set(passes) for _, passes, _ in batches] == [{pass_id}] * 4
        assert sorted(i for _, _, numbers in batches for i in numbers) == sorted([*range(10), *range(10)])
        queue.reopen()
        reader.reset()


def test_persistent_workers_go_on_after_a_pass_that_was_broken_off() -> None:
    queue = numbered()
    (process,) = queue.start(workers.counts_passes, (10**9,), method="fork", persistent=True)
    for pass_id in (0, 1, 2):
        assert [int(queue.pop()[1]) for _ in range(20)] == [pass_id] * 20
        queue.close()
        queue.reopen()
    assert process.exitcode is None


def test_persistent_workers_that_are_there_before_the_trainer_is() -> None:
    queue = numbered()
    queue.start(workers.counts_passes, (6,), num_workers=3, method="fork", persistent=True)
    for _ in range(500):
        queue.pop()
        queue.close()  # the rest of this pass is not read
        queue.reopen()
        found = sorted((int(pid), int(pass_id), int(i)) for pid, pass_id, i in queue)
        pids = sorted({pid for pid, _, _ in found})
        assert len(pids) == 3
        assert found == [(pid, queue.stats()["pass_id"], i) for pid in pids for i in range(6)]
        queue.reopen()


def test_a_persistent_worker_has_one_thread_that_looks_out_for_the_trainer() -> None:
    """A thread left over from the wait for the first pass would watch a descriptor that is closed and may be reused."""
    queue = numbered()
    (process,) = queue.start(workers.counts_threads, method="fork", persistent=True)
    for pass_id in (0, 1, 2):
        assert [int(x) for x in queue.pop()] == [process.pid, pass_id, 2]
        queue.reopen()


def test_a_persistent_worker_that_raises_has_the_next_pass_too() -> None:
    queue = numbered()
    (process,) = queue.start(workers.raises_in_odd_passes, persistent=True)
    for pass_id in (0, 1, 2, 3):
        assert [int(x) for x in queue.pop()] == [process.pid, pass_id, 0]
        if pass_id % 2:
            error = error_of(pyfeed.errors.ProducerError, queue.pop)
            assert (error.cause_type, error.cause_message) == ("ValueError", f"pass {pass_id} is odd")
        else:
            error_of(pyfeed.errors.EndOfData, queue.pop)
        queue.reopen()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("how", "said"), [("kill", "was killed by signal 9"), ("exit", "exited with status 3")])
def test_a_persistent_worker_that_dies_is_replaced(method: str, how: str, said: str) -> None:
    queue = numbered()
    processes = queue.start(workers.exits_in_pass, (1, how), num_workers=2, method=method, persistent=True)
    first, second = [p.pid for p in processes]
    assert len(list(queue)) == 2
    queue.reopen()
    error = error_of(WorkerError, lambda: [queue.pop() for _ in range(3)])
    assert (error.pid, error.exit_status) == (first, -9 if how == "kill" else 3)
    with pytest.warns(RuntimeWarning, match=rf"persistent worker 0 \(process {first}\) {said}"):
        queue.reopen()
    assert processes[0].pid != first
    assert processes[1].pid == second
    assert sorted(int(t[0]) for t in queue) == sorted(p.pid or 0 for p in processes)


def test_a_persistent_worker_that_calls_exit_stays() -> None:
    queue = numbered()
    processes = queue.start(workers.exits_in_pass, (0, "sys"), method="fork", persistent=True)
    error = error_of(pyfeed.errors.ProducerError, lambda: [queue.pop() for _ in range(2)])
    assert str(error) == f"worker 0 (process {processes[0].pid}) failed: SystemExit: it called sys.exit(3)"
    queue.reopen()
    assert [int(t[0]) for t in queue] == [processes[0].pid]


def test_a_persistent_worker_that_dies_between_passes_is_replaced() -> None:
    queue = numbered()
    processes = queue.start(workers.counts_passes, (2,), method="fork", persistent=True)
    first = processes[0]
    assert len(list(queue)) == 2
    first.kill()
    first.join()
    with pytest.warns(RuntimeWarning, match=rf"persistent worker 0 \(process {first.pid}\) was killed by signal 9"):
        queue.reopen()
    assert [int(t[0]) for t in queue] == [processes[0].pid] * 2
    assert processes[0].pid != first.pid


def pushed_or_missed(queue: SharedFeedQueue) -> str:
    try:
        return str(len(list(queue)))
    except WorkerError as error:
        return str(error).partition(": ")[2]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("how", ["sys", "os"])
def test_a_persistent_worker_that_leaves_is_missed(method: str, how: str) -> None:
    """The worker ends with status 0 after its part of the pass, before or after the next pass begins."""
    queue = numbered()
    go, ours = multiprocessing.get_context(method).Semaphore(0), []
    ours += queue.start(workers.leaves_when_told, (go, how), method=method, persistent=True)
    assert len(list(queue)) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the warning if the worker ended before the reopen
        go.release()
        queue.reopen()
        assert pushed_or_missed(queue) in ("1", "it exited with status 0 before it attached to the queue")


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_persistent_worker_whose_status_nobody_gets_to_know(method: str) -> None:
    program = f"""
    import os, signal, sys, time, warnings, numpy as np, pyfeed
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    from shared_workers import counts_passes
    queue = pyfeed.shared.SharedFeedQueue([(), (), ()], dtypes=["int64"] * 3)
    processes = queue.start(counts_passes, (2,), method={method!r}, persistent=True)
    first = processes[0].pid
    print(len(list(queue)), flush=True)
    os.kill(first, signal.SIGKILL)
    while os.path.exists(f"/proc/{{first}}"):
        time.sleep(0.001)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        queue.reopen()
    print(*(w.message for w in told), flush=True)
    print([int(t[0]) == processes[0].pid != first for t in queue], flush=True)
    """
    process = Process(program, preamble="", PYTHONPATH=os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    assert process.line() == "2"
    assert "has ended: another takes its place" in process.line()
    assert process.line() == "[True, True]"
    process.end()


def test_persistent_workers_end_with_their_trainer() -> None:
    program = """
    import os, signal, numpy as np, pyfeed
    queue = pyfeed.shared.SharedFeedQueue([()], dtypes=["int64"])
    def work(producer, worker):
        producer.push((np.array(worker),))
    processes = queue.start(work, num_workers=2, method="fork", persistent=True)
    print(sorted(int(x) for x, in queue), *(p.pid for p in processes), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    process = Process(program, preamble="")
    found, pids = process.line().split("]")
    assert found == "[0, 1"
    process.end(-9)
    wait_for_ends(pids.split())


def test_the_list_of_persistent_workers_is_its_callers() -> None:
    queue = numbered()
    processes = queue.start(workers.counts_passes, (2,), num_workers=2, method="fork", persistent=True)
    processes += processes  # the caller may change the list, for instance to collect the workers of several queues
    for _ in range(3):
        assert len(list(queue)) == 4
        queue.reopen()


def test_one_thread_of_a_worker_at_a_time_waits_for_a_pass() -> None:
    queue = queue_of()
    queue.expect(1)
    program = """
    import threading
    producer.attach_next()
    producer.close()
    waits, failed = threading.Barrier(3), []
    def wait():
        waits.wait()
        try:
            producer.attach_next()
        except pyfeed_worker.StateError as e:
            failed.append(str(e))
            say(e)
    threads = [threading.Thread(target=wait) for _ in range(2)]
    for t in threads:
        t.start()
    waits.wait()
    for t in threads:
        t.join()
    producer.push((np.full(2, len(failed)),))
    producer.close()
    """
    process = worker(queue, program)
    assert list(queue) == []
    assert process.line() == "another thread waits for the next pass: attach_next"
    queue.reopen()
    queue.expect(1)
    assert [x.tolist() for (x,) in queue] == [[1, 1]]
    process.end()


def test_a_producer_waits_for_the_next_pass() -> None:
    queue = queue_of(dtypes=["float64"])
    queue.expect(1)
    program = """
    import time
    say(producer.attach_next())
    producer.push((np.full(2, 1.0),))
    try:
        producer.attach_next()
    except pyfeed_worker.StateError as e:
        say(e)
    producer.close()
    try:
        producer.attach_next(timeout=0)
    except pyfeed_worker.Timeout as e:
        say(e)
    say(producer.pass_id)
    try:
        say("waits")
        producer.attach_next()
    except KeyboardInterrupt:
        say("interrupted")
    say(producer.attach_next())
    producer.push((np.full(2, 2.0),))
    producer.close()
    try:
        producer.attach_next()
    except pyfeed_worker.QueueClosed as e:
        say(type(e).__name__, e)
    """
    process = worker(queue, program)
    assert process.line() == "0"
    assert process.line() == "the producer is a worker of pass 0 still: close() ends its part"
    assert process.line() == "the time to wait went by"
    assert process.line() == "0"
    assert process.line() == "waits"
    process.signal(signal.SIGINT)
    assert process.line() == "interrupted"
    assert [x.tolist() for (x,) in queue] == [[1, 1]]
    queue.reopen()
    queue.expect(1)
    assert process.line() == "1"
    assert [x.tolist() for (x,) in queue] == [[2, 2]]
    del queue
    assert process.line() == "QueueClosed the queue is gone: there is no pass after 1"
    process.end()


def test_a_worker_that_had_closed_may_end_as_it_likes(capfd: pytest.CaptureFixture[str]) -> None:
    queue = queue_of()
    processes = queue.start(workers.closes_and_raises)
    assert [x.tolist() for (x,) in queue] == [[0, 0]]
    assert end(processes) == [1]
    assert "StateError: the producer is closed: attach() begins anew" in capfd.readouterr().err


def test_workers_may_be_started_in_turns() -> None:
    queue = queue_of((), (), (-1,), ())
    processes = queue.start(workers.count, (3,))
    processes += queue.start(workers.count, (4,), num_workers=2)
    assert len(list(queue)) == 11
    assert end(processes) == [0, 0, 0]
    with pytest.raises(pyfeed.errors.StateError, match="pass 0 has ended"):
        queue.start(workers.count, (3,))


def test_what_is_popped_may_be_written() -> None:
    queue = queue_of()
    processes = queue.start(workers.exits, (0, "sys"))
    (x,) = queue.pop()
    x += 1
    assert x.tolist() == [1, 1]
    assert end(processes) == [0]


AT_A_DEVICE = """
import numpy as np, pyfeed
def work(producer, worker):
    for i in range(20):
        producer.push((np.full((4, 3), i, np.float32), np.full(4, i)))
place = pyfeed.CUDAPlace(0)
shapes, dtypes = [(-1, 3), (-1,)], ["float32", "int64"]
queue = pyfeed.shared.SharedFeedQueue(shapes, dtypes=dtypes, cell_bytes=4096, ring_cells=3, place=place)
queue.start(work, method="fork")
for i, (x, y) in enumerate(queue):
    assert x.place == y.place == place
    assert x.numpy().tolist() == [[i] * 3] * 4 and y.numpy().tolist() == [i] * 4
print(i)
"""


def test_devices_copy_from_the_ring() -> None:
    assert Process("", preamble=AT_A_DEVICE, PYFEED_CUDA="host").end() == (["19"], "")


def test_a_fork_of_a_worker_is_a_worker() -> None:
    queue = queue_of()
    ours, theirs = multiprocessing.Pipe()
    processes = queue.start(workers.forks, (theirs,))
    queue.expect(2)
    ours.send("expected")
    assert sorted(float(x[0]) for (x,) in queue) == [0, 1, 2]
    assert end(processes) == [0]


def test_what_is_popped_outlives_the_queue() -> None:
    queue = queue_of()
    processes = queue.start(workers.raises, (1,))
    (x,) = queue.pop()
    queue.shutdown()
    del queue
    gc.collect()
    assert x.tolist() == [0, 0]
    assert pyfeed.diagnostics.memory_stats()["shared_bytes"] > 0
    end(processes)


def test_nobody_wants_more() -> None:
    queue = queue_of(ring_cells=2)
    ours, theirs = multiprocessing.Pipe()
    processes = queue.start(workers.tells_of_the_end, (theirs,))
    queue.pop()
    queue.close()
    name, text = ours.recv()
    assert (name, text) == ("QueueClosed", "the queue is closed: pass 0 takes no more tuples")
    assert end(processes) == [0]
    assert all(x.tolist() == [0, 0] for (x,) in queue)


# ---- Workers with errors ----


@pytest.mark.parametrize("method", METHODS)
def test_an_exception_reaches_the_consumer(method: str) -> None:
    queue = queue_of()
    processes = queue.start(workers.raises, (2,), method=method)
    reader = queue.reader
    assert [float(reader.read()[0][0]) for _ in range(2)] == [0, 1]
    with pytest.raises(pyfeed.errors.ProducerError) as caught:
        reader.read()
    error = caught.value
    assert not isinstance(error, WorkerError)
    assert str(error) == f"worker 0 (process {processes[0].pid}) failed: KeyError: 'no such key \N{SNOWMAN}'"
    assert (error.cause_type, error.cause_message) == ("KeyError", "'no such key \N{SNOWMAN}'")
    assert 'raise KeyError("no such key' in error.cause_traceback
    assert error.__notes__ == [error.cause_traceback.rstrip()]  # so that Python prints it
    assert end(processes) == [1]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("where", ["idle", "reserve", "push"])
def test_a_killed_worker(method: str, where: str) -> None:
    queue = queue_of(dtypes=["float64"], ring_cells=4)
    ours, theirs = multiprocessing.Pipe()
    processes = queue.start(workers.stays, (where, theirs), method=method)
    pid = ours.recv()
    assert ours.recv() == "there"
    if where == "push":
        wait_until(lambda: queue.size() == 3)
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    error = error_of(WorkerError, lambda: [queue.pop() for _ in range(99)])
    print(f"noticed after {(time.monotonic() - began) * 1e3:.1f} ms")
    assert (error.pid, error.exit_status) == (pid, -9)
    assert str(error) == f"worker 0 (process {pid}) failed: it was killed by signal 9, SIGKILL"
    assert end(processes) == [-9]
    # All cells of the ring are free for the next worker.
    queue.reopen()
    processes = queue.start(workers.raises, (9,), method="fork")
    assert [float(queue.pop()[0][0]) for _ in range(9)] == list(range(9))
    assert end(processes) == [1]


def test_a_death_of_the_pass_before_does_not_fail_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that reports the exit status asks for the pass first. A reopen comes right after that."""
    queue = queue_of(dtypes=["float64"])
    ours, theirs = multiprocessing.Pipe()
    reopened: list[Background[int]] = []
    stats = queue.stats

    def stats_and_reopen() -> Any:
        found = stats()
        if threading.current_thread().name == "pyfeed-workers" and not reopened:
            reopened.append(Background(queue.reopen))
            reopened[0].thread.join(0.1)  # it waits until the status is reported
        return found

    queue.start(workers.stays, ("idle", theirs), method="fork")
    pid = ours.recv()
    assert ours.recv() == "there"
    monkeypatch.setattr(queue, "stats", stats_and_reopen)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: reopened)
    reopened[0].result()
    monkeypatch.undo()
    processes = queue.start(workers.ones, (3,), method="fork")
    assert [float(x[0]) for (x,) in queue] == [1, 1, 1]
    assert end(processes) == [0]


@pytest.mark.parametrize("method", METHODS)
def test_the_exit_status_is_in_the_error(method: str) -> None:
    queue = queue_of()
    processes = queue.start(workers.exits, (3, "os"), method=method)
    assert queue.pop()[0].tolist() == [0, 0]
    error = error_of(WorkerError, queue.pop)
    pid = processes[0].pid
    assert (error.pid, error.exit_status) == (pid, 3)
    assert str(error) == f"worker 0 (process {pid}) failed: it exited with status 3 before it closed its producer"
    assert end(processes) == [3]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("status", [0, 3])
def test_a_worker_that_calls_exit_has_failed(method: str, status: int) -> None:
    """Only the return of the target says that all tuples were pushed."""
    queue = queue_of()
    processes = queue.start(workers.exits, (status, "sys"), method=method)
    assert queue.pop()[0].tolist() == [0, 0]
    error = error_of(pyfeed.errors.ProducerError, queue.pop)
    assert (error.cause_type, error.cause_message) == ("SystemExit", f"it called sys.exit({status})")
    assert str(error) == f"worker 0 (process {processes[0].pid}) failed: SystemExit: it called sys.exit({status})"
    assert end(processes) == [status]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_push_what_a_generator_yields(method: str, persistent: bool) -> None:
    queue = queue_of()
    for i in range(2):
        if i == 0 or not persistent:
            processes = queue.start(workers.yields, (3,), num_workers=2, method=method, persistent=persistent)
        assert sorted(x[0] for (x,) in queue) == [0, 1, 2, 10, 11, 12]
        queue.reopen()
    queue.shutdown()
    assert end(processes) == [0, 0]


@pytest.mark.parametrize("target", [functools.partial(workers.yields, count=1), workers.YieldsWhenCalled()])
def test_callables_that_yield(target: Any) -> None:
    queue = queue_of()
    queue.start(target)
    assert [x.tolist() for (x,) in queue] == [[0, 0]]


def test_a_generator_ends_when_the_queue_is_shut_down() -> None:
    queue = queue_of()
    processes = queue.start(workers.yields_forever)
    queue.pop()
    queue.shutdown()
    assert end(processes) == [0]


def test_a_tuple_that_does_not_match_names_the_line_that_yielded_it() -> None:
    queue = queue_of()
    queue.start(workers.yields_another_shape)
    assert len(queue.pop()) == 1
    error = error_of(pyfeed.errors.ProducerError, queue.pop)
    assert error.cause_message == "slot 0: dimension 0: expected 2, found 3: dims [3] for [2]"
    assert error.cause_traceback is not None
    lines = Path(workers.__file__).read_text().splitlines()
    line = 1 + next(i for i, text in enumerate(lines) if "# the wrong one" in text)
    note = f"This was tuple 1 of yields_another_shape, yielded at {workers.__file__}, line {line}."
    assert note in error.cause_traceback


def test_a_coroutine_function_is_refused() -> None:
    message = (
        "target: expected a function that calls producer.push(...), or a generator function, "
        "found a coroutine function, awaits"
    )
    with raises(pyfeed.errors.ArgumentTypeError, message):
        queue_of().start(workers.awaits)


@pytest.mark.parametrize(
    ("target", "args", "found"),
    [
        (lambda producer, worker: None, (), "Can't pickle <function <lambda> at "),
        (workers.yields, (threading.Lock(),), "cannot pickle '_thread.lock' object"),
    ],
)
def test_what_pickle_refuses(target: Any, args: tuple[Any, ...], found: str) -> None:
    queue = queue_of()
    with pytest.raises(pyfeed.errors.ArgumentTypeError) as info:
        queue.start(target, args)
    expected = (
        "target, args: expected a function at the top level of a module, and arguments that pickle accepts, "
        f"for method 'spawn', found: {found}"
    )
    assert str(info.value).startswith(expected)
    assert error_of(pyfeed.errors.ArgumentTypeError, queue.pop) is info.value


def test_a_target_that_returns_a_generator_fails_the_pass() -> None:
    queue = queue_of()
    processes = queue.start(workers.returns_a_generator)
    error = error_of(pyfeed.errors.ProducerError, queue.pop)
    assert error.cause_message == (
        "target: expected a function that calls producer.push(...), found one that returns <class 'generator'>, from "
        "which nothing is pushed"
    )
    assert end(processes) == [1]


def test_threads_do_not_produce_into_a_shared_queue() -> None:
    queue = queue_of()
    with pytest.raises(pyfeed.errors.StateError, match=r"^produce: this queue is filled by worker processes: start"):
        queue.produce(lambda worker: [], num_workers=2)
    assert not {"produce", "push", "reserve"} & set(dir(queue))


def test_how_a_shared_reader_begins_its_next_pass() -> None:
    queue = queue_of()
    with pytest.raises(
        pyfeed.errors.StateError, match=r"^the reader of a SharedFeedQueue cannot start over.*start\(\)"
    ):
        queue.reader.reset()


def test_a_worker_that_never_gets_there() -> None:
    queue = queue_of()
    processes = queue.start(_not_to_be_found)
    error = error_of(WorkerError, queue.pop)
    assert (error.pid, error.exit_status) == (processes[0].pid, 1)
    assert end(processes) == [1]


class _Hidden:
    def __call__(self, producer: Any, worker: int) -> None: ...
    def __reduce__(self) -> Any:
        return _fail_to_load, ()


def _fail_to_load() -> None:
    os._exit(1)


_not_to_be_found = _Hidden()


def test_one_of_two_dies() -> None:
    queue = queue_of(dtypes=["float64"])
    ours, theirs = multiprocessing.Pipe()
    processes = queue.start(workers.stays, ("idle", theirs), num_workers=2)
    pids = {m for m in (ours.recv() for _ in range(4)) if m != "there"}
    assert pids == {p.pid for p in processes}
    os.kill(processes[1].pid or 0, signal.SIGTERM)
    assert sorted(float(queue.pop()[0][0]) for _ in range(2)) == [0, 1]
    error = error_of(WorkerError, queue.pop)
    assert (error.pid, error.exit_status) == (processes[1].pid, -15)
    processes[0].kill()
    end(processes)


# ---- Any process ----

WORKER = """
import os, pickle, signal, sys
import numpy as np
import pyfeed_worker
producer = pickle.loads(bytes.fromhex(os.environ["PRODUCER"]))
def say(*words):
    print(*words, flush=True)
def refused(function, *args, **options):
    try:
        function(*args, **options)
    except pyfeed_worker.Error as error:
        say(type(error).__name__, error.slot, error)
"""


def worker(queue: SharedFeedQueue, program: str) -> Process:
    return Process(program, preamble=WORKER, PRODUCER=pickle.dumps(queue.producer()).hex())


def test_a_producer_goes_anywhere_by_pickle() -> None:
    queue = queue_of()
    with pytest.raises(pyfeed.errors.StateError):
        pickle.dumps(queue)
    producer = queue.producer()
    process = Process(
        "with producer: producer.push((np.ones(2),))", preamble=WORKER, PRODUCER=pickle.dumps(producer).hex()
    )
    queue.expect(1)
    assert [x.tolist() for (x,) in queue] == [[1, 1]]
    assert process.end() == ([], "")
    stale = pickle.dumps(producer)
    del queue
    gc.collect()
    wait_until(lambda: pyfeed.diagnostics.memory_stats()["shared_bytes"] == 0)
    with pytest.raises(RuntimeError, match="does not have its queue any more"):
        pickle.loads(stale)


def test_what_does_not_fit_is_refused_in_the_worker() -> None:
    queue = queue_of((-1, 3), (-1,), dtypes=["float32", None])
    program = """
    x, y = np.zeros((4, 3), np.float32), np.zeros(4, np.int64)
    refused(producer.push, (x,))
    refused(producer.push, (x.astype(np.float64), y))
    refused(producer.push, (x[:, :2], y))
    refused(producer.push, (x, y[None]))
    refused(producer.push, (x, y[:3]))
    refused(producer.push, (x.astype(">f4"), y))
    refused(producer.push, (x, None))
    refused(producer.push, (np.zeros((1000, 3), np.float32), np.zeros(1000, np.int64)))
    refused(producer.reserve)
    producer.push((x, y))
    refused(producer.push, (x, y.astype(np.int32)))
    refused(producer.push, (x, y), timeout=-1)
    producer.close()
    refused(producer.push, (x, y))
    """
    process = worker(queue, program)
    out, err = process.end()
    assert err == ""
    assert out == [
        "SlotCountError None slots: expected 2, found 1",
        "DTypeError 0 slot 0: dtype: expected float32, found float64",
        "ShapeError 0 slot 0: dimension 1: expected 3, found 2: dims [4 2] for [-1 3]",
        "ShapeError 1 slot 1: shape: expected [-1], found [1 4]",
        "ShapeError 1 slot 1: batch dimension: expected 4, as in slot 0, found 3",
        "ByteOrderError 0 slot 0: byte order: expected native, found >f4: convert it with "
        "a.astype(a.dtype.newbyteorder('='))",
        "DTypeError 1 slot 1: expected an array (NumPy, the buffer protocol, __array_interface__ or DLPack), "
        "a number, text or bytes, found <class 'NoneType'>",
        "TooLargeError None cell_bytes: expected a tuple of at most 4096 bytes, found 20224",
        "InvalidArgument 0 slot 0: rows: expected a number for its first dimension of -1, found None",
        "DTypeError 1 slot 1: dtype: expected int64, found int32",
        "InvalidArgument None timeout: expected None or seconds, at least 0, found -1",
        "StateError None the producer is closed: attach() begins anew",
    ]
    assert len(queue.pop()) == 2


def test_reservations_in_a_worker() -> None:
    queue = queue_of(dtypes=["float64"], ring_cells=2)
    program = """
    with producer.reserve() as (x,):
        x[:] = 1
    say(x.flags.writeable)
    try:
        with producer.reserve() as (x,):
            x[:] = 2
            raise KeyError
    except KeyError:
        say("dropped")
    with producer.reserve() as (x,):
        x[:] = 3
        refused(producer.close)
    refused(producer.push, (np.ones(2),), timeout=0)
    refused(producer.push, (np.ones(2),), timeout=0.01)
    say(sys.stdin.readline())
    """
    process = worker(queue, program)
    lines = [process.line() for _ in range(5)]
    assert lines == [
        "False",
        "dropped",
        "StateError None 1 reservation is still being written: commit or abandon first",
        "Timeout None the time to wait went by",
        "Timeout None the time to wait went by",
    ]
    assert [queue.pop()[0].tolist() for _ in range(2)] == [[1, 1], [3, 3]]
    error = error_of(WorkerError, queue.pop)  # the worker did not close its producer
    assert error.exit_status == 0
    assert str(error).endswith("it exited with status 0 before it closed its producer")
    process.end()


def test_ctrl_c_in_a_worker_that_waits() -> None:
    queue = queue_of(ring_cells=1)
    program = """
    producer.push((np.ones(2),))
    try:
        say("waits")
        producer.push((np.ones(2),))
    except KeyboardInterrupt:
        say("interrupted")
    producer.close()
    """
    process = worker(queue, program)
    assert process.line() == "waits"
    process.signal(signal.SIGINT)
    assert process.line() == "interrupted"
    process.end()
    queue.close()
    assert len(list(queue)) == 1


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_ctrl_c_in_a_terminal_is_the_trainers(method: str, persistent: bool) -> None:
    """The signal goes to all processes. Only the trainer is interrupted; its workers continue if the trainer does."""
    program = f"""
    import os, sys, pyfeed
    sys.path[:0] = {sys.path!r}
    from tests.python.shared_workers import counts_for_ever
    os.setpgid(0, 0)
    queue = pyfeed.shared.SharedFeedQueue([(), ()], dtypes=["int64"] * 2)
    processes = queue.start(counts_for_ever, num_workers=3, method={method!r}, persistent={persistent})

    def all_are_at_work():
        seen = dict()
        while len(seen) < 3 or min(seen.values()) < 20:
            pid, _ = queue.pop()
            seen[int(pid)] = seen.get(int(pid), 0) + 1

    all_are_at_work()
    try:
        print(*(p.pid for p in processes), flush=True)
        while True:
            queue.pop()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    all_are_at_work()
    print([p.exitcode for p in processes], flush=True)
    raise KeyboardInterrupt
    """
    process = Process(program, preamble="")
    pids = process.line().split()
    os.killpg(process.process.pid, signal.SIGINT)
    assert process.line() == "interrupted"
    assert process.line() == "[None, None, None]"
    _, err = process.end(-signal.SIGINT)
    assert err.count("Traceback") == 1, err
    wait_for_ends(pids)


def test_ctrl_c_while_a_worker_starts(tmp_path: Path) -> None:
    """A SIGINT that arrives before the worker can ignore it is blocked until then."""
    (tmp_path / "slow_to_import.py").write_text(
        "import os, signal, time, numpy as np\n"
        "def work(producer, worker): producer.push((np.array(1),))\n"
        "if os.getpid() != int(os.environ['TRAINER']):\n"
        "    os.write(1, b'imports\\n')\n"
        "    while signal.SIGINT not in signal.sigpending(): time.sleep(0.001)\n"
    )
    program = f"""
    import os, sys, pyfeed
    sys.path[:0] = [{str(tmp_path)!r}]
    os.environ["TRAINER"] = str(os.getpid())
    import slow_to_import
    os.setpgid(0, 0)
    queue = pyfeed.shared.SharedFeedQueue([()], dtypes=["int64"])
    try:
        queue.start(slow_to_import.work, num_workers=2)
        queue.pop()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print([int(x) for x, in queue], flush=True)
    """
    process = Process(program, preamble="")
    assert [process.line(), process.line()] == ["imports", "imports"]
    os.killpg(process.process.pid, signal.SIGINT)
    assert process.line() == "interrupted"
    assert process.end() == (["[1, 1]"], "")


def test_the_trainer_takes_no_pushes_of_its_own() -> None:
    queue = queue_of()
    with pytest.raises(pyfeed.errors.StateError, match="filled by worker processes"):
        queue.push((np.zeros(2),))
    with pytest.raises(RuntimeError, match="the trainer's own process"):
        queue.producer().push((np.zeros(2),))


TRAINER = """
import pickle, sys
import numpy as np, pyfeed
queue = pyfeed.shared.SharedFeedQueue([(2,)], cell_bytes=4096, ring_cells=2)
producer = queue.producer()
print(pickle.dumps(producer).hex(), flush=True)
import signal; signal.pause()
"""


def test_workers_hear_of_the_end_of_the_trainer() -> None:
    trainer = Process("", preamble=TRAINER)
    producer = pickle.loads(bytes.fromhex(trainer.line()))
    maps = Path(f"/proc/{trainer.process.pid}/maps").read_text()  # its memory has no name, so nothing of it stays
    assert "/memfd:pyfeed" in maps
    assert "/dev/shm/" not in maps
    import pyfeed_worker

    for _ in range(2):
        producer.push((np.zeros(2),))
    blocked = [Background(lambda: error_of(pyfeed_worker.TrainerGone, producer.push, (np.zeros(2),))) for _ in range(2)]
    time.sleep(0.1)  # gives the pushes time to block; the result must be right even if they have not
    trainer.signal(signal.SIGKILL)
    began = time.monotonic()
    for b in blocked:
        assert str(b.result()) == "the trainer is gone: nobody takes tuples any more"
    print(f"heard after {(time.monotonic() - began) * 1e3:.1f} ms")
    error_of(pyfeed_worker.TrainerGone, producer.push, (np.zeros(2),))
    trainer.end(-9)


@pytest.mark.parametrize("daemon", [True, False])
def test_nothing_is_left_of_a_trainer_that_ends_while_workers_push(daemon: bool) -> None:
    program = f"""
    import multiprocessing, numpy as np, pyfeed
    queue = pyfeed.shared.SharedFeedQueue([(2,)], cell_bytes=4096, ring_cells=2)
    def work(producer, worker):
        while True:
            producer.push((np.zeros(2),))
    processes = queue.start(work, num_workers=2, method="fork", daemon={daemon})
    queue.pop()
    print(*(p.pid for p in processes), flush=True)
    """
    process = Process(program, preamble="")
    pids = [int(p) for p in process.line().split()]
    assert process.end() == ([], "")
    wait_for_ends(pids)


def test_workers_that_come_late_do_not_join_the_next_pass() -> None:
    queue = queue_of()
    queue.start(workers.raises, (0,), num_workers=2)
    queue.close()
    queue.reopen()
    late = queue.start(workers.ones, (5,), num_workers=2)
    assert len(list(queue)) == 10
    assert end(late) == [0, 0]


def test_a_reservation_that_is_left_open_is_told_of() -> None:
    queue = queue_of(dtypes=["float64"])
    processes = queue.start(workers.leaves_a_reservation_open)
    error = error_of(pyfeed.errors.ProducerError, queue.pop)
    assert error.cause_type == "pyfeed_worker.StateError"
    assert "1 reservation is still being written" in str(error)
    assert end(processes) == [1]


def test_arguments() -> None:
    with pytest.raises(pyfeed.errors.InvalidArgument, match="persistent workers end with their trainer"):
        queue_of().start(workers.ones, (1,), persistent=True, daemon=False)
    refused: list[tuple[str, dict[str, Any]]] = [
        ("cell_bytes: expected a number, since a tuple may be of any size: slot 0 is any dtype", {"cell_bytes": None}),
        ("ring_cells: expected 1 to 4096, found 0", {"ring_cells": 0}),
        ("ring_cells: expected 1 to 4096, found -1", {"ring_cells": -1}),
        (f"ring_cells: expected 1 to 4096, found {2**70}", {"ring_cells": 2**70}),
        (f"cell_bytes: expected 1 to 2\\^40, found {2**64}", {"cell_bytes": 2**64}),
        ("cell_bytes: expected 1 to 2\\^40, found 0", {"cell_bytes": 0}),
        ("dtypes: expected 1, one for each slot, found 2", {"dtypes": ["int8", "int8"]}),
    ]
    for expected, options in refused:
        with pytest.raises(ValueError, match=expected):
            queue_of(**options)
    queue = SharedFeedQueue([(3, 5), ()], dtypes=["float32", "bfloat16"], ring_cells=3, scope=Scope())
    assert queue.capacity() == 3
    assert repr(queue) == "<SharedFeedQueue 0/3 tuples, pass 0>"
    for number in (0, 2**32 + 1):
        with pytest.raises(pyfeed.errors.InvalidArgument, match=f"num_workers: expected 1 to 2\\^31, found {number}"):
            queue.expect(number)
    for what, kind in (("place", "Place"), ("scope", "Scope")):
        wrong: dict[str, Any] = {what: 3}
        with pytest.raises(TypeError, match=f"{what}: expected a {kind}, found 3"):
            queue_of(**wrong)
    with pytest.raises(pyfeed.errors.InvalidArgument):
        queue.start(workers.count, num_workers=0)


def test_a_fast_consumer_and_a_slow_one() -> None:
    for pause in (0.0, 0.002):
        queue = queue_of((), (), (-1,), (), ring_cells=3)
        processes = queue.start(workers.count, (50,), num_workers=2, method="fork")
        seen = 0
        for _ in queue:
            time.sleep(pause)
            seen += 1
        assert seen == 100
        assert end(processes) == [0, 0]


# ---- Rings that another process has overwritten ----


def test_workers_end_well_whatever_is_written_into_the_ring() -> None:
    rounds = 100
    shapes = (-1, 5), (-1,)
    queue = queue_of(*shapes, dtypes=["float32", "uint8"], lod_levels=[0, 1], cell_bytes=40000, ring_cells=4)
    producer = queue.producer()
    fd = producer.fileno()
    command = [sys.executable, str(Path(__file__).with_name("overwritten_ring.py")), str(fd), "1", str(rounds)]
    done = subprocess.run(command, pass_fds=[fd], text=True, capture_output=True, timeout=STUCK * 3, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    ends = {kind: int(count) for kind, _, count in (line.rpartition(" ") for line in done.stdout.splitlines())}
    assert [kind for kind in ends if kind != "done" and not hasattr(pyfeed_worker, kind)] == []
    assert sum(ends.values()) == rounds
    assert min(ends["done"], ends["CorruptRingError"]) > 0


# The offset of the second slot's spec. python/pyfeed_worker/native/ring.h has the offsets of all fields.
SPEC = 4096 + 80


@pytest.mark.parametrize(
    ("at", "form", "value", "text"),
    [
        (0, "B", 0, "expected a ring of pyfeed's, found a file that begins otherwise"),
        (32, "Q", 1 << 40, "the ring's sizes do not fit its .* bytes"),  # total_bytes
        (40, "I", 0, "the ring's sizes"),  # ring_cells
        (40, "I", 1 << 31, "the ring's sizes"),
        (44, "I", 0, "the ring's sizes"),  # num_slots
        (44, "I", 1 << 20, "the ring's sizes"),
        (48, "I", 24, "the ring's sizes"),  # cells
        (56, "Q", 1 << 40, "the ring's sizes"),  # cell_bytes
        (64, "Q", 0, "the ring's sizes"),  # stride
        (64, "Q", 4096 + 8, "the ring's sizes"),
        (72, "Q", 1 << 62, "the ring's sizes"),  # specs_at
        (88, "Q", (1 << 64) - 8, "the ring's sizes"),  # failures_at
        (120, "Q", 24576 + 8, "the ring's sizes"),  # data_at
        (128, "q", -1, "the ring's sizes"),  # trainer
        (SPEC + 4, "i", -1, "slot 1: its description in the ring is damaged"),  # rank
        (SPEC + 4, "i", 9, "slot 1: its description in the ring is damaged"),
        (SPEC + 8, "I", 9, "slot 1: its description in the ring is damaged"),  # lod_levels
        (SPEC + 16, "q", -2, "slot 1: its description in the ring is damaged"),  # dims
    ],
)
def test_a_ring_whose_constants_are_wrong_is_refused(at: int, form: str, value: int, text: str) -> None:
    producer = queue_of((2,), (3,), dtypes=["float32", "int64"]).producer()
    with mmap.mmap(producer.fileno(), 0) as memory:
        struct.pack_into(form, memory, at, value)
    with pytest.raises(pyfeed_worker.CorruptRingError, match=text):
        pyfeed_worker.Producer(producer.fileno())._mapped()


def test_what_a_worker_has_checked_is_not_read_again() -> None:
    producer = queue_of((2,), (3,), dtypes=["float32", "int64"]).producer()
    ring = producer._mapped()
    with mmap.mmap(producer.fileno(), 0) as memory:
        memory[:256] = bytes(256)
        memory[SPEC + 4 : SPEC + 80] = b"\xff" * 76
        assert ring.slots() == (("float32", (2,), 0), ("int64", (3,), 0))
        struct.pack_into("i", memory, SPEC, 99)  # the dtype is read again, since a tuple may set it
    error = error_of(pyfeed_worker.CorruptRingError, ring.slots)
    assert (str(error), error.slot) == ("slot 1: the ring was overwritten: its dtype", 1)


def test_a_ring_that_could_be_cut_short_is_refused(tmp_path: Path) -> None:
    producer = queue_of((2,)).producer()
    with mmap.mmap(producer.fileno(), 0) as memory:
        (tmp_path / "ring").write_bytes(memory[:])
    with (
        open(tmp_path / "ring", "r+b") as file,
        pytest.raises(pyfeed_worker.CorruptRingError, match="found a file that could be cut short"),
    ):
        pyfeed_worker.Producer(file.fileno())._mapped()
