"""The trainer's end of a `pyfeed.ray.FeedService`: it requests messages of batches, and delivers them in one order.

The thread of a `FeedReader` requests messages of all streams ahead, and pushes one batch of each stream in turn, as
views of Ray's object store, into a queue. A request that a worker cannot answer any more goes to another worker, from
the same position. The positions behind the last delivered batch are the reader's state.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray.util.metrics import Counter, Gauge

from . import _exit
from ._producing import fail_pass
from ._ray_actors import Header, Position, received
from .errors import ProducerError, QueueClosed

_LONGEST_PAUSE = 1.0  # seconds between two questions for the layout, while no worker is alive
_LOOK = 0.5  # seconds after which a wait looks whether the pass is over
_REFRESH = 1.0  # seconds after which the layout is requested again, and the progress reported


@dataclasses.dataclass(frozen=True)
class StreamPosition:
    """Where a trainer goes on in a stream: behind the first `skip` batches that a worker makes from `at` on."""

    at: Position
    skip: int = 0


@dataclasses.dataclass
class FeedPosition:
    """Where a trainer goes on in a pass: in each stream, and which stream has the next batch."""

    pass_id: int
    streams: list[StreamPosition]
    turn: int = 0

    @classmethod
    def beginning(cls, pass_id: int, num_streams: int) -> FeedPosition:
        """Return the beginning of a pass."""
        return cls(pass_id, [StreamPosition(Position(pass_id))] * num_streams)


@dataclasses.dataclass
class _Request:
    at: Position
    worker: str
    header: Any  # a reference
    batches: Any


class Streams:
    """The streams of a service, for one trainer. Only the trainer's thread uses it.

    Parameters
    ----------
    namespace : str
        That of the service's actors.
    num_streams : int
    message_bytes : int
        The least size of messages behind the first of each stream.
    rank, world : int
        The number of the trainer, and the number of trainers.
    """

    def __init__(self, namespace: str, num_streams: int, message_bytes: int, rank: int, world: int) -> None:
        self._namespace, self._num_streams, self._message_bytes = namespace, num_streams, message_bytes
        self._rank, self._world = rank, world
        self._layout: dict[int, str] = {}
        self._refresh: Any = None  # the reference of a call of layout
        self._refreshed = 0.0
        self._requests: dict[int, _Request] = {}
        self._handles: dict[str, Any] = {}
        tags = {"service": namespace, "rank": str(rank)}
        self._batches = Counter("pyfeed_feed_batches", "Batches that a trainer has received.", ("service", "rank"))
        self._bytes = Counter("pyfeed_feed_bytes", "Bytes of these batches.", ("service", "rank"))
        self._retries = Counter("pyfeed_feed_retries", "Requests that went to another worker.", ("service", "rank"))
        self._waited = Gauge("pyfeed_feed_waited_seconds", "Time for which no message was ready.", ("service", "rank"))
        for metric in (self._batches, self._bytes, self._retries, self._waited):
            metric.set_default_tags(tags)
        self.progress = {"pass": 0, "batches": 0, "bytes": 0, "retries": 0, "waited_seconds": 0.0}

    def batches(
        self, position: FeedPosition, stopped: Callable[[], bool]
    ) -> Iterator[tuple[list[Any], int, StreamPosition]]:
        """Yield the rest of a pass: each batch with the number of its stream, and the position behind it."""
        self._requests.clear()  # of an earlier pass, whose results are dropped
        self.progress["pass"] = position.pass_id
        positions = list(position.streams)
        messages: dict[int, tuple[StreamPosition, Header, deque[Any]]] = {}
        live = [p.at.pass_id == position.pass_id for p in positions]
        for stream in range(self._num_streams):
            if live[stream]:
                self._request(stream, positions[stream].at, 0, stopped)
        stream = position.turn
        while any(live):
            if not live[stream]:
                stream = (stream + 1) % self._num_streams
                continue
            if stream not in messages:
                got = self._receive(stream, stopped)
                if got is None:
                    return
                header, batches = got
                skip = positions[stream].skip
                messages[stream] = positions[stream], header, deque(enumerate(batches))
                for _ in range(min(skip, len(batches))):
                    messages[stream][2].popleft()
                if not header.ended and header.failure is None:
                    self._request(stream, header.following, self._message_bytes, stopped)
            start, header, left = messages[stream]
            if not left:
                del messages[stream]
                if header.failure is not None:
                    raise _failure(stream, header.failure)
                behind = max(start.skip - header.count, 0)  # only if a worker sends smaller messages than an earlier one
                positions[stream] = StreamPosition(header.following, behind)
                live[stream] = not header.ended
                continue
            index, batch = left.popleft()
            whole = index + 1 == header.count and header.failure is None
            behind_it = StreamPosition(header.following) if whole else StreamPosition(start.at, index + 1)
            yield [received(value) for value in batch], stream, behind_it
            stream = (stream + 1) % self._num_streams

    def describe(self) -> tuple[list[tuple[Any, ...]], tuple[str, ...]]:
        """Return the shape, the dtype and the LoD levels of each slot of a batch, and the names of the slots.

        It waits until a worker has made a reader, and raises what `make_reader` raises.
        """
        while True:
            worker = self._worker_of(0, lambda: False)
            assert worker is not None
            name, handle = worker
            try:
                slots, names = ray.get(handle.describe.remote())
            except ray.exceptions.RayTaskError:
                raise
            except ray.exceptions.RayError:
                self._handles.pop(name, None)
                self._ask_for_layout([name], lambda: False)
                continue
            return slots, names

    # ---- Requests ----

    def _request(self, stream: int, at: Position, least_bytes: int, stopped: Callable[[], bool]) -> None:
        """Request the message of a stream that begins at a position."""
        worker = self._worker_of(stream, stopped)
        if worker is None:
            return
        name, handle = worker
        header, batches = handle.fetch.remote(stream, at, self._rank, self._world, least_bytes)
        self._requests[stream] = _Request(at, name, header, batches)

    def _receive(self, stream: int, stopped: Callable[[], bool]) -> tuple[Header, list[Any]] | None:
        """Return the message that was requested, or None if the pass is over for the trainer."""
        start = time.monotonic()
        while True:
            request = self._requests.get(stream)
            if request is None:
                return None
            try:
                while not ray.wait([request.batches], timeout=_LOOK)[0]:
                    if stopped():
                        return None
                header, batches = ray.get([request.header, request.batches])
            except ray.exceptions.RayTaskError:
                raise
            except ray.exceptions.RayError:
                self.progress["retries"] += 1
                self._retries.inc()
                self._handles.pop(request.worker, None)
                if not self._ask_for_layout([request.worker], stopped):
                    return None
                self._request(stream, request.at, 0, stopped)
                continue
            del self._requests[stream]
            self._count(header, batches, time.monotonic() - start)
            return header, batches

    def _count(self, header: Header, batches: list[Any], waited: float) -> None:
        size = sum(_nbytes(value) for batch in batches for value in batch)
        self.progress["batches"] += header.count
        self.progress["bytes"] += size
        self.progress["waited_seconds"] += waited
        if header.count:
            self._batches.inc(header.count)
            self._bytes.inc(max(size, 1))
        self._waited.set(self.progress["waited_seconds"])
        if time.monotonic() - self._refreshed > _REFRESH:
            self._refresh_layout()

    # ---- Workers ----

    def _coordinator(self) -> Any:
        return ray.get_actor("coordinator", namespace=self._namespace)

    def _refresh_layout(self) -> None:
        """Take the layout that was requested a while ago, report the progress, and request the layout again."""
        self._refreshed = time.monotonic()
        try:
            if self._refresh is not None:
                if not ray.wait([self._refresh], timeout=0)[0]:
                    return
                self._layout = ray.get(self._refresh) or self._layout
            coordinator = self._coordinator()
            coordinator.report.remote(self._rank, dict(self.progress))
            self._refresh = coordinator.layout.remote()
        except (ValueError, ray.exceptions.RayError):  # the coordinator begins again
            self._refresh = None

    def _worker_of(self, stream: int, stopped: Callable[[], bool]) -> tuple[str, Any] | None:
        while True:
            name = self._layout.get(stream)
            if name is None:
                if not self._ask_for_layout([], stopped):
                    return None
                continue
            try:
                if name not in self._handles:
                    self._handles[name] = ray.get_actor(name, namespace=self._namespace)
                return name, self._handles[name]
            except (ValueError, ray.exceptions.RayError):
                if not self._ask_for_layout([name], stopped):
                    return None

    def _ask_for_layout(self, failed: list[str], stopped: Callable[[], bool]) -> bool:
        """Wait until each stream has a worker. Return False if the pass is over for the trainer."""
        pause = 0.02
        while not stopped():
            try:
                self._layout = ray.get(self._coordinator().layout.remote(failed), timeout=10 * _LOOK)
            except (ValueError, ray.exceptions.RayError):
                self._layout = {}
            if self._layout:
                self._refresh, self._refreshed = None, time.monotonic()
                return True
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return False


def _nbytes(value: Any) -> int:
    return sum(x.nbytes for x in value) if isinstance(value, tuple) else int(value.nbytes)


def _failure(stream: int, failure: tuple[str, str, str]) -> ProducerError:
    error = ProducerError(f"stream {stream} of the service failed: {failure[0]}: {failure[1]}\n{failure[2]}")
    error.cause_type, error.cause_message, error.cause_traceback = failure
    return error


class Feeder:
    """Pushes the batches of a trainer's streams into its queue, pass by pass, in a thread of its own.

    Parameters
    ----------
    queue : PyArrayFeedQueue
        The producer's end.
    streams : Streams
    num_streams : int
    """

    def __init__(self, queue: Any, streams: Streams, num_streams: int, name: str) -> None:
        self._queue, self._streams, self._num_streams = queue, streams, num_streams
        self._lock = threading.Lock()
        self._begin: tuple[int | None, FeedPosition] = None, FeedPosition.beginning(0, num_streams)
        self._position = self._begin[1]  # behind `_counted` batches of the queue's pass `_pass_id`
        self._pass_id: int | None = None
        self._counted = 0
        self._pushed: deque[tuple[int, StreamPosition]] = deque()  # of the batches behind `_counted`
        thread = threading.Thread(target=self._run, name=f"pyfeed-{name}", daemon=True)
        _exit.daemon_threads.add(thread)
        thread.start()

    def position(self, pass_id: int, delivered: int) -> FeedPosition:
        """Return the position behind the delivered batches of a pass of the data."""
        with self._lock:
            if self._position.pass_id != pass_id:  # the thread has not begun the pass
                return FeedPosition.beginning(pass_id, self._num_streams)
            while self._counted < delivered and self._pushed:
                stream, behind = self._pushed.popleft()
                self._position.streams[stream] = behind
                self._position.turn = (stream + 1) % self._num_streams
                self._counted += 1
            return FeedPosition(pass_id, list(self._position.streams), self._position.turn)

    def load(self, position: FeedPosition, load_reader: Callable[[], None]) -> None:
        """Go on at a position, when the reader has loaded its state."""
        with self._lock:  # the thread begins no pass meanwhile
            load_reader()
            self._begin = self._queue.stats()["pass_id"], position

    def _run(self) -> None:
        pass_id = None
        while True:
            try:
                pass_id = self._queue.wait_pass(pass_id)
            except QueueClosed:
                return
            try:
                self._run_pass(pass_id)
            except QueueClosed:  # the consumer has begun another pass, or is gone
                continue
            except BaseException as error:
                fail_pass(self._queue, error, pass_id)

    def _run_pass(self, pass_id: int) -> None:
        with self._lock:
            start = self._queue._get_start(pass_id)
            self._queue._set_start(pass_id, start)
            first, position = self._begin
            if first is None:
                self._begin = first, position = pass_id, position
            if pass_id != first:
                position = FeedPosition.beginning(position.pass_id + pass_id - first, self._num_streams)
            self._pass_id, self._counted = pass_id, start
            self._position = FeedPosition(position.pass_id, list(position.streams), position.turn)
            self._pushed.clear()

        def stopped() -> bool:
            stats = self._queue.stats()
            return bool(stats["pass_id"] != pass_id or stats["shut_down"])

        for batch, stream, behind in self._streams.batches(position, stopped):
            with self._lock:
                self._pushed.append((stream, behind))
            self._queue.push(batch, copy=False, pass_id=pass_id)
            del batch
        self._queue.close(pass_id)
