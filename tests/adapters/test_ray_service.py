"""`pyfeed.ray.FeedService` on a cluster of Ray in this machine: its order, and that it survives kills."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from pyfeed._ray_actors import Coordinator, FetchArguments, Position, Worker, is_made
from pyfeed.errors import InvalidArgument, ProducerError, StateError, Timeout
from pyfeed.ray import FeedReader, FeedService
from ray.cluster_utils import Cluster

import pyfeed
from pyfeed import _ray_feed, _ray_service

from .ray_feeds import ROWS, STREAMS, expected, feed_of, flat, labels, write_numbers

SMALL = 2000  # bytes of a message: some batches
NODE = {"num_cpus": 2, "resources": {"preprocessing": 2}, "object_store_memory": 100 << 20}
DETECTION = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 500, "health_check_failure_threshold": 10}

pytestmark = pytest.mark.timeout(600)  # processes of Ray start slowly on a busy machine


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    cluster = Cluster(
        initialize_head=True,
        connect=True,
        head_node_args={
            "num_cpus": 2,
            "object_store_memory": 100 << 20,
            "include_dashboard": False,
            "_system_config": DETECTION,
        },
    )
    for _ in range(2):
        cluster.add_node(**NODE)
    cluster.wait_for_nodes()
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_numbers(tmp_path_factory.mktemp("numbers") / "numbers.npz")


def serve(make_reader: Callable[[int, int], Any], num_workers: int = 2, **options: Any) -> FeedService:
    options = {"num_streams": STREAMS, "message_bytes": SMALL, **options}
    worker_options = {"num_cpus": 0.1, "resources": {"preprocessing": 0.1}}
    return FeedService(make_reader, num_workers=num_workers, worker_options=worker_options, **options)


@pytest.fixture(scope="module")
def service(cluster: Any, path: str) -> Iterator[FeedService]:
    """A service that tests share which do not end its actors for good."""
    with serve(feed_of(path)) as service:
        yield service


def one_pass(reader: FeedReader) -> list[list[int]]:
    return [labels(batch) for batch in reader]


def kill(service: FeedService, name: str) -> None:
    ray.kill(ray.get_actor(name, namespace=service._namespace), no_restart=False)


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def hung(path: str) -> int:
    """Wait for a row that hangs, and return the number of its process."""
    wait_until(Path(f"{path}.hung").exists)
    return int(Path(f"{path}.hung").read_text())


@contextlib.contextmanager
def stopped(process: int) -> Iterator[None]:
    """Stop a process in the body of a ``with`` statement."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def process_of(actor: Any) -> int:
    return int(ray.get(actor.__ray_call__.remote(lambda self: os.getpid())))


# ---- Order -----------------------------------------------------------------------------------


def test_the_order_is_that_of_the_streams_in_turn(service: FeedService, path: str) -> None:
    every = expected(feed_of(path), passes=2)
    assert sorted(flat(every[0])) == list(range(ROWS))
    assert every[0] != every[1]
    reader = service.reader()
    assert [one_pass(reader) for _ in range(2)] == every


def test_a_loop_after_a_break_and_reset_begin_the_next_pass(service: FeedService, path: str) -> None:
    every = expected(feed_of(path), passes=4)
    reader = service.reader()
    assert labels(next(reader)) == every[0][0]
    begun = []
    for batch in reader:  # the first loop goes on
        begun.append(labels(batch))
        if len(begun) == 5:
            break
    assert begun == every[0][1:6]
    assert one_pass(reader) == every[1]
    assert labels(next(iter(reader))) == every[2][0]
    reader.reset()
    assert one_pass(reader) == every[3]


def test_a_reset_before_the_first_batch(service: FeedService, path: str) -> None:
    local = feed_of(path)(0, STREAMS)
    local.reset()
    number = local.state_dict()["pass"]
    reader = service.reader()
    reader.reset()
    assert one_pass(reader) == expected(feed_of(path), passes=2)[number]


def test_batches_are_views_that_stay_as_they_are(service: FeedService, path: str) -> None:
    reader = service.reader(as_dict=False)
    kept = list(reader)
    reader.close()
    del reader
    gc.collect()
    assert [labels(batch) for batch in kept] == expected(feed_of(path))[0]
    assert not kept[0][0].flags.writeable


def test_names_and_sequences(cluster: Any) -> None:
    def make_reader(stream: int, streams: int) -> pyfeed.Reader:
        import pyfeed

        tuples = [(pyfeed.LoDTensor(np.arange(n), [[0, n]]), n) for n in range(1, 9)]
        source = pyfeed.from_generator(
            lambda: iter(tuples[stream::streams]),
            [(-1,), ()],
            dtypes=["int64"] * 2,
            lod_levels=[1, 0],
            names=["words", "n"],
        )
        return source.batch(4)

    with serve(make_reader, num_streams=2) as service:
        batches = list(service.reader(as_dict=True))
        assert [batch["words"].lod[0].tolist() for batch in batches] == [[0, 1, 4, 9, 16], [0, 2, 6, 12, 20]]
        assert [batch["n"].tolist() for batch in batches] == [[1, 3, 5, 7], [2, 4, 6, 8]]
        halves = [list(service.reader(rank, 2, as_dict=True)) for rank in range(2)]
    assert [half[0]["n"].tolist() for half in halves] == [[1, 3], [5, 7]]
    assert [half[0]["words"].data.tolist() for half in halves] == [[0, 0, 1, 2], [*range(5), *range(7)]]


def test_streams_without_records(cluster: Any) -> None:
    def make_reader(stream: int, streams: int) -> pyfeed.Reader:
        import numpy as np

        import pyfeed

        rows = [(np.array(stream),)] * (0 if stream == 0 else 3)
        return pyfeed.from_generator(lambda: iter(rows), [()], dtypes=["int64"]).batch(2)

    with serve(make_reader) as service:
        reader = service.reader()
        for _ in range(2):
            assert [x.tolist() for (x,) in reader] == [[1, 1], [2, 2], [1], [2]]
    with serve(lambda stream, streams: make_reader(0, 1)) as service:
        assert list(service.reader()) == []


# ---- Positions -------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 1, 2, 7, 60, 131])
def test_a_position_is_exact(service: FeedService, path: str, steps: int) -> None:
    every = expected(feed_of(path), passes=2)
    reader = service.reader()
    assert [labels(next(reader)) for _ in range(steps)] == every[0][:steps]
    text = json.dumps(reader.state_dict())
    assert len(text) < 1024 * STREAMS
    state = json.loads(text)
    resumed = service.reader()
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state  # before its thread has begun
    assert one_pass(resumed) + one_pass(resumed) == every[0][steps:] + every[1]


def test_a_position_behind_the_end_of_a_pass(service: FeedService, path: str) -> None:
    every = expected(feed_of(path), passes=2)
    reader = service.reader()
    assert one_pass(reader) == every[0]
    state = reader.state_dict()
    resumed = service.reader()
    next(resumed)  # it is dropped
    resumed.load_state_dict(state)
    assert one_pass(resumed) == every[1]


def sized_feed(path: Path) -> Callable[[int, int], Any]:
    """Return a `make_reader` of the rows of a file, whose number of batches is known: 3 in a pass of each stream."""

    def make_reader(stream: int, streams: int) -> Any:
        return pyfeed.open_npy(path, rank=stream, world=streams, virtual_shards=streams).batch(4)

    np.save(path, np.arange(STREAMS * 10 << 14, dtype="int32").reshape(STREAMS * 10, 1 << 14))
    return make_reader


def fetch(worker: Worker, at: Position, least_bytes: int = 1) -> tuple[Any, list[int]]:
    """Return the header of the next message of a stream, and the numbers of rows of its batches."""
    header, batches = worker.fetch(pickle.dumps(FetchArguments(1, at, 0, 1, least_bytes)))
    return header, [len(rows) for (rows,) in batches]


def test_a_known_number_of_batches_needs_no_request_for_the_end(cluster: Any, tmp_path: Path) -> None:
    worker = Worker(ray.cloudpickle.dumps(sized_feed(tmp_path / "rows.npy")), STREAMS)
    for pass_id in range(2):
        at = Position(pass_id)
        for rows, ended in ((4, False), (4, False), (2, True)):
            header, found = fetch(worker, at)
            assert (found, header.ended, header.failure) == ([rows], ended, None)
            at = header.following
        assert at == Position(pass_id + 1)
    header, found = fetch(worker, at, least_bytes=1 << 30)
    assert (found, header.ended, header.following) == ([4, 4, 2], True, Position(3))


def test_an_error_at_the_end_of_a_known_number_of_batches(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader is asked for its end all the same: it may find there that a file has changed.

    Its next read need not find that again. So the message with the last batches says it.
    """

    def fail(reader: pyfeed.Reader) -> bool:
        raise OSError("the file was written to")

    monkeypatch.setattr(pyfeed.Reader, "has_next", fail)
    worker = Worker(ray.cloudpickle.dumps(sized_feed(tmp_path / "rows.npy")), STREAMS)
    header, found = fetch(worker, Position(0), least_bytes=600 << 10)
    assert (found, header.ended, header.num_batches) == ([4, 4, 2], False, 3)
    assert header.failure is not None
    assert header.failure[:2] == ("OSError", "the file was written to")
    monkeypatch.undo()
    header, found = fetch(worker, Position(0), least_bytes=600 << 10)  # as after load_state_dict
    assert (found, header.ended, header.failure) == ([4, 4, 2], True, None)


def test_positions_of_streams_with_a_known_number_of_batches(cluster: Any, tmp_path: Path) -> None:
    make_reader = sized_feed(tmp_path / "rows.npy")
    readers = [make_reader(stream, STREAMS) for stream in range(STREAMS)]
    every = [batch[:, 0].tolist() for batches in zip(*readers, strict=True) for (batch,) in batches]
    assert len(every) == 3 * STREAMS
    with serve(make_reader) as service:
        for steps in range(3 * STREAMS + 1):
            reader = service.reader()
            assert [next(reader)[0][:, 0].tolist() for _ in range(steps)] == every[:steps]
            resumed = service.reader()
            resumed.load_state_dict(json.loads(json.dumps(reader.state_dict())))
            left = [batch[:, 0].tolist() for (batch,) in resumed]
            assert left == every[steps:]
            reader.close()
            resumed.close()


def test_any_number_of_trainers_sees_the_same_global_batches(service: FeedService, path: str) -> None:
    """Each run has another number of trainers, and goes on behind the one before."""
    (every,) = expected(feed_of(path))
    state, found = None, []
    for world in (1, 2, 4, 2):
        readers = [service.reader(rank, world) for rank in range(world)]
        if state is not None:
            for reader in readers:
                reader.load_state_dict(state)
        for _ in range(20):
            found.append(flat(labels(next(reader)) for reader in readers))
        states = [reader.state_dict() for reader in readers]
        assert states == [states[0]] * world
        state = states[0]
    assert found == every[: len(found)]


def test_batches_with_fewer_rows_than_trainers_are_dropped(service: FeedService, path: str) -> None:
    (every,) = expected(feed_of(path))
    parts = [one_pass(service.reader(rank, 9)) for rank in range(9)]
    assert [flat(rows) for rows in zip(*parts, strict=True)] == [rows[:9] for rows in every if len(rows) >= 9]
    assert any(0 < len(rows) < 9 for rows in every)


def test_states_that_do_not_fit(service: FeedService, path: str) -> None:
    reader = service.reader()
    state = reader.state_dict()
    with pytest.raises(InvalidArgument, match=r"a dict that state_dict\(\) has returned"):
        reader.load_state_dict({"v": 1})
    for later in ({**state, "v": 2}, {"v": 2, "other": 3}):
        with pytest.raises(InvalidArgument, match="expected version 1, found 2"):
            reader.load_state_dict(later)
    with pytest.raises(InvalidArgument, match=r"turn: expected a stream, 0 to \d, found 9"):
        reader.load_state_dict({**state, "turn": 9})
    with pytest.raises(StateError, match="num_streams: expected 2, as when the state was saved, found 3"):
        reader.load_state_dict({**state, "streams": state["streams"][:2]})
    assert one_pass(reader) == expected(feed_of(path))[0]


# ---- Back-pressure ---------------------------------------------------------------------------


def test_back_pressure_in_bytes(cluster: Any) -> None:
    def make_reader(stream: int, streams: int) -> pyfeed.Reader:
        import pyfeed

        return pyfeed.random_data([(1000,)], count=200, seed=stream).batch(10)  # 40 kB a batch

    with serve(make_reader, num_streams=4, message_bytes=200_000) as service:
        # A message is 5 batches; with a limit of 640 kB it is 2, and with 1 B it is 1. Half of a batch is 20 kB.
        for limit, world, held in [(0, 1, 800_000), (640_000, 1, 320_000), (1, 1, 160_000), (320_000, 2, 160_000)]:
            reader = service.reader(0, world, bytes_limit=limit)
            sizes = [reader.stats()["bytes_held"] for _ in reader]
            assert len(sizes) == 80
            assert max(sizes) == held


# ---- Errors ----------------------------------------------------------------------------------


def test_an_exception_of_a_function_comes_after_the_batches_before_it(cluster: Any, path: str) -> None:
    bad = expected(feed_of(path))[0][10][3]
    with serve(feed_of(path, fail_at=bad)) as service:
        reader = service.reader()
        found: list[list[int]] = []
        with pytest.raises(ProducerError, match=f"ValueError: row {bad} is bad") as caught:
            found.extend(map(labels, reader))
        every = expected(feed_of(path))[0]
        assert found == [*every[:10], every[10][:3], *every[11:13]]
        assert caught.value.cause_type == "ValueError"
        assert "in double" in caught.value.cause_traceback


def test_exceptions_of_make_reader(cluster: Any) -> None:
    zero = "make_reader failed: ZeroDivisionError"
    with serve(lambda stream, streams: 1 // stream) as service, pytest.raises(ProducerError, match=zero):
        service.reader()
    no_reader = "expected it to return a Reader, found int"
    with serve(lambda stream, streams: 3) as service, pytest.raises(ProducerError, match=no_reader):
        service.reader()

    class Unreadable:
        def __reduce__(self) -> Any:
            return int, ("no integer",)

    unreadable = Unreadable()
    with serve(lambda stream, streams: unreadable) as service, pytest.raises(ProducerError, match="no integer"):
        service.reader()


def test_what_cannot_be_pickled(cluster: Any) -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError, match="pickle"):
        serve(lambda stream, streams: lock)


def test_slots_that_cannot_be_divided(cluster: Any) -> None:
    def make_reader(stream: int, streams: int) -> pyfeed.Reader:
        import pyfeed

        return pyfeed.from_generator(
            lambda: iter([(1, np.arange(2))]), [(), (2,)], dtypes=["int64"] * 2, names=["a", "b"]
        )

    with serve(make_reader) as service:
        assert len(list(service.reader())) == STREAMS
        with pytest.raises(InvalidArgument, match=r"among 2 trainers, found scalars in slot 0 \('a'\)"):
            service.reader(0, 2)

    def uneven(stream: int, streams: int) -> pyfeed.Reader:
        import pyfeed

        tuples = [(np.arange(2), np.arange(3))]
        return pyfeed.from_generator(lambda: iter(tuples), [(2,), (3,)], dtypes=["int64"] * 2)

    message = r"slot 1 \('slot1'\): expected 2 rows, as in slot 0 \('slot0'\), found 3"
    with serve(uneven) as service, pytest.raises(ProducerError, match=message):
        list(service.reader(0, 2))


def test_a_service_that_was_shut_down(cluster: Any, path: str) -> None:
    service = serve(feed_of(path))
    reader = service.reader()
    next(reader)
    service.shutdown()
    service.shutdown()
    with pytest.raises(StateError, match="a running service, found that it was shut down"):
        list(reader)
    with pytest.raises(StateError, match="a running service"):
        service.reader()
    with pytest.raises(StateError, match="a running service"):
        service.stats()


def test_a_batch_that_ends_every_worker(cluster: Any, path: str) -> None:
    bad = expected(feed_of(path))[0][4][3]
    with serve(feed_of(path, die_at=bad)) as service:
        reader = service.reader()
        found: list[list[int]] = []
        with pytest.raises(StateError, match=r"batch \d+ of pass 0 of stream \d: expected a worker .* \d+ workers"):
            found.extend(map(labels, reader))
        assert found == expected(feed_of(path))[0][: len(found)]


# ---- Workers that come and go ----------------------------------------------------------------


def test_workers_come_and_go(cluster: Any, path: str) -> None:
    every = expected(feed_of(path), passes=2)
    with serve(feed_of(path), num_workers=1) as service:
        reader = service.reader()
        found = [labels(next(reader)) for _ in range(10)]
        assert service.add_workers(2) == ["worker-1", "worker-2"]
        found += [labels(next(reader)) for _ in range(10)]
        service.remove_worker("worker-0")
        assert "worker-0" not in service.stats()["workers"]
        found += one_pass(reader)
        assert found == every[0]
        assert service.stats()["workers"] == ["worker-1", "worker-2"]
        wait_until(lambda: set(service.stats()["streams"].values()) == {"worker-1", "worker-2"})
        with pytest.raises(InvalidArgument, match="found 'worker-0'; there are worker-1, worker-2"):
            service.remove_worker("worker-0")
        assert one_pass(reader) == every[1]


def test_a_service_without_workers(
    cluster: Any, path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The trainer waits until there is a worker again, and logs a warning meanwhile."""
    monkeypatch.setattr(_ray_feed, "_WARN_SECONDS", 0.1)
    every = expected(feed_of(path))[0]
    with ThreadPoolExecutor(1) as pool, serve(feed_of(path), num_workers=1) as service:
        reader = service.reader()
        found = [labels(next(reader)) for _ in range(10)]
        caplog.clear()
        service.remove_worker("worker-0")
        rest = pool.submit(one_pass, reader)
        wait_until(lambda: f"no worker of service {service._namespace} is alive" in caplog.text)
        service.add_workers()
        assert found + rest.result(300) == every


# ---- Workers that hang -----------------------------------------------------------------------


@pytest.fixture
def own_path(tmp_path: Path) -> str:
    """A file of one test, which makes a worker hang."""
    return write_numbers(tmp_path / "numbers.npz")


def test_a_stopped_worker(cluster: Any, own_path: str) -> None:
    """Another worker makes its batches. When it goes on, its late message is refused, and it gets streams again."""
    every = expected(feed_of(own_path), passes=2)
    with (
        ThreadPoolExecutor(1) as pool,
        serve(feed_of(own_path, hang_at=every[0][4][3]), stall_timeout=2) as service,  # in stream 1
    ):
        reader = service.reader()
        found = pool.submit(one_pass, reader)
        with stopped(hung(own_path)):
            late = reader._streams._requests[1]
            assert found.result(300) == every[0]
            assert reader.stats()["retries"] >= 1
            wait_until(lambda: service.stats()["suspects"] == [late.worker])
            assert late.worker not in service.stats()["streams"].values()
            assert not is_made(late.message)
            Path(f"{own_path}.go").touch()
        assert ray.get(late.message, timeout=300)[0].num_batches > 0  # the late message has arrived
        assert one_pass(reader) == every[1]
        wait_until(lambda: late.worker in service.stats()["streams"].values())
        assert service.stats()["suspects"] == []


def test_a_stopped_worker_with_two_trainers(cluster: Any, own_path: str) -> None:
    (every,) = expected(feed_of(own_path))
    with (
        ThreadPoolExecutor(2) as pool,
        serve(feed_of(own_path, hang_at=every[4][3]), num_workers=3, stall_timeout=2) as service,
    ):
        found = [pool.submit(one_pass, service.reader(rank, 2)) for rank in range(2)]
        with stopped(hung(own_path)):
            parts = [one.result(300) for one in found]
    assert [flat(rows) for rows in zip(*parts, strict=True)] == [rows[: len(rows) // 2 * 2] for rows in every]


def test_a_message_that_does_not_arrive(cluster: Any, path: str) -> None:
    """Its worker answers pings, and has made it, but the connection broke while Ray transferred it."""
    with serve(feed_of(path), stall_timeout=1) as service, service.reader() as reader:
        assert next(reader) is not None
        wait_until(lambda: set(service.stats()["streams"].values()) == {"worker-0", "worker-1"})
        workers = _ray_feed._Workers(service._namespace, 1.0)
        name, _ = workers.of(0, lambda: False)
        never = ray.remote(num_cpus=0)(lambda: time.sleep(1000)).remote()
        waited: list[float] = []

        def poll() -> None:
            waited.append(time.monotonic())

        with pytest.raises(ray.exceptions.RayError, match=rf"the message of {name} has not arrived for 1\.0 s"):
            workers.wait(name, never, 0, lambda: False, poll, transfer=True)
        # It gets no requests until messages of its node arrive again, which a probe finds out.
        wait_until(lambda: workers.of(0, lambda: False)[0] == name)
        others = sorted({*service.stats()["streams"].values()} - {name})
        workers._cut_off[name] = (never, time.monotonic())
        assert [workers.of(stream, lambda: False)[0] for stream in range(STREAMS)] == others * STREAMS
        workers.nodes = {name: "one node", others[0]: "one node", "worker-9": "another node"}
        workers._probe_node_of(name)
        assert set(workers._cut_off) == {name, others[0]}
        # Until it is made, the worker may take its time.
        asked, patient = len(waited), _ray_feed._Workers(service._namespace, 30.0)
        with pytest.raises(_ray_feed._Stopped):
            patient.wait(name, never, 0, lambda: len(waited) >= 3 * asked, poll)
        ray.cancel(never, force=True)


def test_requests_to_a_worker_that_is_cut_off(cluster: Any, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are sent again at once: their messages may be made, but do not arrive."""
    never = ray.remote(num_cpus=0)(lambda: time.sleep(1000)).remote()
    elsewhere = ray.remote(num_cpus=0, resources={"preprocessing": 0.1}, max_retries=0)
    made = [elsewhere(lambda: bytes(1 << 20)).remote() for _ in range(2)]  # a node with that resource keeps them
    failed = elsewhere(lambda: os._exit(1)).remote()
    for message in (*made, failed):
        wait_until(partial(is_made, message))
    for message, cut_off, lost in (
        (made[0], False, False),
        (made[1], True, True),
        (ray.put(b"message"), True, False),
        (never, False, True),
        (failed, False, True),
        (failed, True, True),
    ):
        request = _ray_feed._Request(Position(0), "worker-0", message)
        assert _ray_feed._is_lost(request, cut_off=cut_off) == lost
    assert len(ray.get(made[0])) == 1 << 20
    ray.cancel(never, force=True)

    every = expected(feed_of(path))[0]
    with serve(feed_of(path)) as service, service.reader() as reader:
        streams = reader._streams
        asked: list[dict[int, Any]] = []  # the requests to the worker, before and after
        wait = streams._workers.wait

        def wait_once(name: str, *args: Any, **options: Any) -> None:
            if not asked:
                before = {number: sent.message for number, sent in streams._requests.items() if sent.worker == name}
                asked.append(before)
                raise _ray_feed._NoAnswer("cut off")
            if len(asked) == 1:
                asked.append({number: streams._requests[number].message for number in asked[0]})
            wait(name, *args, **options)

        monkeypatch.setattr(streams._workers, "wait", wait_once)
        monkeypatch.setattr(_ray_feed, "_is_lost", lambda request, *, cut_off: cut_off)
        assert one_pass(reader) == every
    before, after = asked
    assert len(before) >= 2
    assert not set(before.values()) & set(after.values())


def test_messages_of_all_streams_are_transferred_at_once(cluster: Any) -> None:
    """The trainer waits for one message, and Ray transfers those of the other streams meanwhile."""

    def make_reader(stream: int, streams: int) -> Any:
        return pyfeed.random_data([(1 << 18,)], count=100, seed=stream).batch(1)

    def is_here(message: Any) -> bool:
        return here in ray.experimental.get_object_locations([message])[message].get("node_ids", [])

    here = ray.get_runtime_context().get_node_id()  # the workers are on other nodes
    with serve(make_reader, num_workers=3) as service, service.reader() as reader:
        next(reader)
        streams = reader._streams
        # The queue is full, and so the thread of the reader waits. Meanwhile the workers make all messages.
        wait_until(lambda: streams.progress["batches"] == STREAMS + 1)
        wait_until(lambda: len(streams._requests) == STREAMS)
        requests = list(streams._requests.values())
        wait_until(lambda: all(is_made(one.message) for one in requests))
        next(reader)
        wait_until(lambda: all(is_here(one.message) for one in requests))


def test_the_coordinator_stays_on_the_node_of_the_service(cluster: Any, path: str) -> None:
    here = ray.get_runtime_context().get_node_id()
    for _ in range(3):  # three nodes have room for it
        with serve(feed_of(path), num_workers=1) as service:
            coordinator = ray.get_actor("coordinator", namespace=service._namespace)
            node = coordinator.__ray_call__.remote(lambda self: ray.get_runtime_context().get_node_id())
            assert ray.get(node) == here


def test_a_worker_that_is_stopped_while_a_reader_is_made(cluster: Any, own_path: str) -> None:
    (every,) = expected(feed_of(own_path))
    with ThreadPoolExecutor(1) as pool, serve(feed_of(own_path), stall_timeout=2) as service:
        coordinator = ray.get_actor("coordinator", namespace=service._namespace)
        wait_until(lambda: set(service.stats()["streams"].values()) == {"worker-0", "worker-1"})
        first = ray.get(coordinator.layout.remote())[0]
        with stopped(process_of(ray.get_actor(first, namespace=service._namespace))):
            assert one_pass(pool.submit(service.reader).result(300)) == every


def test_a_slow_function_is_not_taken_for_a_hung_worker(cluster: Any, own_path: str) -> None:
    (every,) = expected(feed_of(own_path))
    with ThreadPoolExecutor(1) as pool, serve(feed_of(own_path, hang_at=every[4][3]), stall_timeout=5) as service:
        reader = service.reader()
        found = pool.submit(one_pass, reader)
        process = hung(own_path)
        wait_until(lambda: reader.stats()["waited_seconds"] > 12)
        first = service.stats()["trainers"][0]["waited_seconds"]
        wait_until(lambda: service.stats()["trainers"][0]["waited_seconds"] > first)
        Path(f"{own_path}.go").touch()
        assert found.result(300) == every
        assert reader.stats()["retries"] == 0
        os.kill(process, 0)  # it is alive


def test_a_function_that_hangs(cluster: Any, own_path: str) -> None:
    """With `batch_timeout`, its worker ends, and the batch is made again."""
    (every,) = expected(feed_of(own_path))
    with (
        ThreadPoolExecutor(1) as pool,
        serve(feed_of(own_path, hang_at=every[4][3]), stall_timeout=None, batch_timeout=2) as service,
    ):
        reader = service.reader()
        found = pool.submit(one_pass, reader)
        process = hung(own_path)
        assert found.result(300) == every
        assert reader.stats()["retries"] >= 1
        wait_until(lambda: not Path(f"/proc/{process}").exists())


def test_a_worker_that_hangs_without_limits(cluster: Any, own_path: str) -> None:
    """When the worker is removed, another goes on."""
    (every,) = expected(feed_of(own_path))
    with ThreadPoolExecutor(1) as pool, serve(feed_of(own_path, hang_at=every[4][3]), stall_timeout=None) as service:
        reader = service.reader()
        found = pool.submit(one_pass, reader)
        with stopped(hung(own_path)):
            wait_until(lambda: reader.stats()["waited_seconds"] > 3)
            assert reader.stats()["retries"] == 0
            service.remove_worker(service.stats()["streams"][1])
            assert found.result(300) == every


def test_a_stopped_coordinator(
    cluster: Any, path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Trainers choose workers themselves meanwhile. Then it is started again, for trainers that come later."""
    monkeypatch.setattr(_ray_feed, "_ANSWER_SECONDS", 0.5)
    (every,) = expected(feed_of(path))
    with serve(feed_of(path), stall_timeout=2) as service:
        reader = service.reader()
        found = [labels(next(reader)) for _ in range(10)]
        wait_until(lambda: service.stats()["suspects"] == [])
        coordinator = ray.get_actor("coordinator", namespace=service._namespace)
        with stopped(process_of(coordinator)):
            monkeypatch.setattr(_ray_service, "_STATS_SECONDS", 0.1)
            with pytest.raises(Timeout, match=r"expected an answer of the coordinator within 0\.1 s"):
                service.stats()
            kill(service, "worker-0")
            assert found + one_pass(reader) == every
            while f"the coordinator of service {service._namespace} does not answer" not in caplog.text:
                assert sorted(flat(one_pass(reader))) == list(range(ROWS))
            assert one_pass(service.reader()) == every


def test_pings_are_answered_while_readers_are_made(cluster: Any, tmp_path: Path) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"

    def make_reader(stream: int, streams: int) -> pyfeed.Reader:
        import pyfeed

        begun.touch()
        while not go.exists():
            time.sleep(0.01)
        return pyfeed.random_data([()], count=1)

    with serve(make_reader, num_workers=1) as service:
        worker = ray.get_actor("worker-0", namespace=service._namespace)
        described = [worker.describe.remote() for _ in range(4)]
        wait_until(begun.exists)
        ray.get([worker.ping.remote() for _ in range(3)], timeout=100)
        assert ray.wait(described, timeout=0)[0] == []
        go.touch()
        assert [slots.shapes for slots in ray.get(described)] == [[()]] * 4


def test_an_answer_from_before_a_report_shows_nothing(cluster: Any, path: str) -> None:
    with serve(feed_of(path)) as service:
        worker = ray.get_actor("worker-0", namespace=service._namespace)
        process = process_of(worker)
        coordinator = Coordinator(service._namespace, STREAMS)
        wait_until(lambda: set(coordinator.layout().values()) == {"worker-0", "worker-1"})
        coordinator._pings["worker-0"] = worker.ping.remote()  # as after a report
        ray.get(coordinator._pings["worker-0"])
        with stopped(process):
            assert set(coordinator.layout(["worker-0"]).values()) == {"worker-1"}
            assert coordinator.stats()["suspects"] == ["worker-0"]
        wait_until(lambda: set(coordinator.layout().values()) == {"worker-0", "worker-1"})


def test_streams_of_a_failed_worker_go_to_one_that_answers(cluster: Any, path: str) -> None:
    with serve(feed_of(path), num_workers=3) as service:
        names = ["worker-0", "worker-1", "worker-2"]
        coordinator = Coordinator(service._namespace, STREAMS)
        coordinator.ANSWER = 3.0  # on a busy machine, a worker takes longer than usual
        wait_until(lambda: sorted(coordinator.layout().values()) == names)
        before = coordinator.layout()
        first, second = (process_of(ray.get_actor(name, namespace=service._namespace)) for name in names[:2])
        with stopped(first), stopped(second):
            after = coordinator.layout(["worker-0"])
            moved = {stream: after[stream] for stream in after if after[stream] != before[stream]}
            assert moved == {stream: "worker-2" for stream, name in before.items() if name == "worker-0"}


def test_streams_do_not_wait_for_a_worker_that_cannot_start(cluster: Any, path: str) -> None:
    """Ray has no resources for it."""
    (every,) = expected(feed_of(path))
    options = {"num_cpus": 0.1, "resources": {"preprocessing": 1.5}}
    with FeedService(
        feed_of(path), num_streams=STREAMS, message_bytes=SMALL, num_workers=3, worker_options=options
    ) as service:
        assert one_pass(service.reader()) == every
        wait_until(lambda: len(service.stats()["suspects"]) == 1)  # the other one that has not started yet does


# ---- Kills -----------------------------------------------------------------------------------


def test_kills_of_workers_and_of_the_coordinator(cluster: Any, path: str) -> None:
    every = expected(feed_of(path), passes=2)
    with serve(feed_of(path)) as service:
        reader = service.reader()
        victims = {3: "worker-0", 11: "worker-1", 12: "worker-0", 20: "coordinator", 21: "worker-1", 60: "coordinator"}
        for batches in every:
            found = []
            for batch in reader:
                found.append(labels(batch))
                if len(found) in victims:
                    kill(service, victims[len(found)])
            assert found == batches
        assert reader.stats()["retries"] > 0


def test_a_kill_with_two_trainers(cluster: Any, path: str) -> None:
    (every,) = expected(feed_of(path))
    with serve(feed_of(path)) as service:
        readers = [service.reader(rank, 2) for rank in range(2)]
        found = []
        for parts in zip(*readers, strict=True):
            found.append(flat(map(labels, parts)))
            if len(found) in (5, 40):
                kill(service, "worker-0")
    assert found == [rows[: len(rows) // 2 * 2] for rows in every]


def test_the_loss_of_a_node(cluster: Any, path: str) -> None:
    every = expected(feed_of(path), passes=2)
    lost = cluster.add_node(num_cpus=1, resources={"lost": 1}, object_store_memory=100 << 20)
    cluster.wait_for_nodes()
    options = {"num_cpus": 0.1, "resources": {"lost": 0.1}}
    with FeedService(
        feed_of(path), num_streams=STREAMS, message_bytes=SMALL, num_workers=2, worker_options=options
    ) as service:
        reader = service.reader()
        found = [labels(next(reader)) for _ in range(10)]
        cluster.remove_node(lost, allow_graceful=False)
        cluster.add_node(num_cpus=1, resources={"lost": 1}, object_store_memory=100 << 20)  # the workers move there
        assert found + one_pass(reader) == every[0]
        assert one_pass(reader) == every[1]


def test_kills_of_a_trainer(cluster: Any, service: FeedService, path: str, tmp_path: Path) -> None:
    (every,) = expected(feed_of(path))
    checkpoint, log = tmp_path / "checkpoint.json", tmp_path / "log"
    arguments = [ray.cloudpickle.dumps(service).hex(), str(checkpoint), str(log), cluster.address]
    command = [sys.executable, "-m", "tests.adapters.ray_feeds", *arguments]
    for batches_before_the_kill in (1, 40, None):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
        assert process.stdout is not None
        lines = 0
        for line in process.stdout:
            lines += line == "batch\n"
            if lines == batches_before_the_kill:
                process.kill()
                break
        process.stdout.close()
        status = process.wait()
    assert status == 0
    assert [json.loads(line) for line in log.read_text().splitlines()] == every


# ---- Ends ------------------------------------------------------------------------------------


def test_the_thread_ends_with_the_reader(service: FeedService) -> None:
    for leave in (lambda reader: None, FeedReader.close):
        reader = service.reader()
        next(reader)
        thread = reader._feeder._thread
        leave(reader)
        del reader
        gc.collect()
        thread.join(60)
        assert not thread.is_alive()


def test_a_program_that_ends_in_the_middle(cluster: Any, service: FeedService) -> None:
    program = f"""
import ray
ray.init({cluster.address!r}, log_to_driver=False)
reader = ray.cloudpickle.loads(bytes.fromhex({ray.cloudpickle.dumps(service).hex()!r})).reader()
next(reader)
print("end")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
    assert "Traceback" not in done.stderr


def test_calls_after_the_end_of_ray_start_no_cluster() -> None:
    program = """
import pyfeed, ray
from pyfeed.errors import StateError
from pyfeed.ray import FeedService

ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
options = {"num_streams": 1, "num_workers": 1, "message_bytes": 1}
service = FeedService(lambda stream, streams: pyfeed.random_data([()], count=1000), **options)
reader = service.reader()
for _ in range(5):
    next(reader)
ray.shutdown()
rest = lambda: list(reader)
for call in (service.stats, service.add_workers, lambda: service.remove_worker("worker-0"), service.reader, rest):
    try:
        call()
    except StateError as error:
        print(error)
service.shutdown()
print(ray.is_initialized())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    message = "expected Ray to be initialized, found that it is not: call ray.init"
    names = ("stats", "FeedService", "FeedService", "FeedReader", "FeedReader")
    assert done.stdout.splitlines() == [*(f"{name}: {message}" for name in names), "False"], done.stderr


def test_metrics(service: FeedService) -> None:
    metrics = service.reader(1, 2)._streams._metrics
    infos = [metric.info for metric in (*metrics.counters.values(), *metrics.gauges.values())]
    names = {f"pyfeed_feed_{name}" for name in ("batches", "bytes", "bytes_held", "retries", "waited_seconds")}
    assert {info["name"] for info in infos} == names
    assert [info["default_tags"] for info in infos] == [{"service": service._namespace, "rank": "1"}] * 5


def test_limits(cluster: Any, path: str) -> None:
    for name in ("stall_timeout", "batch_timeout"):
        with pytest.raises(InvalidArgument, match=f"{name}: expected None or more than 0 seconds, found 0"):
            serve(feed_of(path), **{name: 0})


def test_representations(service: FeedService) -> None:
    assert repr(service) == f"<FeedService {service._namespace}, {STREAMS} streams>"
    assert repr(service.reader(1, 2)) == f"<FeedReader of rank 1 of 2, {service!r}>"
    with pytest.raises(InvalidArgument, match="rank: expected less than world 2, found 2"):
        service.reader(2, 2)
