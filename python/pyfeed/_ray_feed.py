"""The trainer's end of a `pyfeed.ray.FeedService`: it requests messages of batches, and delivers them in one order.

The thread of a `FeedReader` requests messages of all streams ahead, and pushes one batch of each stream in turn, as
views of Ray's object store, into a queue. A request that a worker cannot answer any more, or does not answer
although it should, goes to another worker, from the same position. The request is the lease of a message: a trainer has
one for each stream, and looks at no other answer than that of the last one. So what a worker sends that has lost a
stream meanwhile is refused. The positions behind the last delivered batch are the reader's state.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import logging
import math
import pickle
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import ray
from ray.util.metrics import Counter, Gauge

from . import _exit
from ._producing import fail_pass
from ._ray_actors import (
    COORDINATOR,
    Description,
    FetchArguments,
    Header,
    Message,
    Position,
    Sent,
    is_done,
    is_made,
    received,
    size_of,
)
from .errors import ProducerError, QueueClosed, StateError

_MAX_PAUSE_SECONDS = 0.5  # between two requests for the layout, while no worker is alive
_POLL_SECONDS = 0.2  # after which a wait checks whether the pass is over, and asks the worker whether it is alive
_SUSPECT_SECONDS = 2.0  # without an answer, after which a worker has lost its requests that has lost its streams
_PROBE_SECONDS = 5.0  # after which a worker whose messages do not arrive is probed again
_ANSWER_SECONDS = 5.0  # after which the coordinator is asked again
_REFRESH_SECONDS = 1.0  # after which the layout is requested again, and the progress reported
_WARN_SECONDS = 30.0  # without a worker, after which a warning is logged
_MAX_DEATHS = 6  # of workers during one request, and two more for each worker: beyond, the request itself ends them

_log = logging.getLogger("pyfeed.ray")


class StreamPosition(NamedTuple):
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

    def copy(self) -> FeedPosition:
        """Return a copy, which does not change with this one."""
        return FeedPosition(self.pass_id, list(self.streams), self.turn)


class Delivery(NamedTuple):
    """A batch of a stream, and the position behind it. None: a batch with fewer rows than there are trainers."""

    stream: int
    behind: StreamPosition
    batch: list[Any] | None


@dataclasses.dataclass
class _Request:
    at: Position
    worker: str
    message: Any  # the reference of the message


@dataclasses.dataclass
class _Receipt:
    """A message whose batches are being delivered."""

    start: StreamPosition
    header: Header
    left: deque[tuple[int, list[Sent]]]  # the batches that are still to be delivered, with their numbers
    size: int


class _Stopped(Exception):
    """The pass is over for the trainer, or its reader is gone."""


class _NoAnswer(ray.exceptions.RayError):  # type: ignore[misc]
    """A worker did not answer a ping in time, or its message did not arrive."""


class Streams:
    """The streams of a service, for one trainer. Only the trainer's thread uses it.

    Parameters
    ----------
    namespace : str
        That of the service's actors.
    num_streams : int
    message_bytes : int
        The least size of messages, of all trainers together, behind the first of each stream.
    rank, world : int
        The number of the trainer, and the number of trainers.
    stall_timeout : float or None
        Seconds after which a worker that does not answer loses its requests.
    """

    def __init__(
        self,
        namespace: str,
        num_streams: int,
        message_bytes: int,
        rank: int,
        world: int,
        stall_timeout: float | None = None,
    ) -> None:
        self._num_streams, self._message_bytes = num_streams, message_bytes
        self._rank, self._world = rank, world
        self._workers = _Workers(namespace, stall_timeout)
        self._requests: dict[int, _Request] = {}
        self._receipts: dict[int, _Receipt] = {}
        self._metrics = _Metrics(namespace, rank)
        self._wait_began = 0.0  # or when it was last counted
        self._updated = 0.0  # when the metrics were
        self.progress: dict[str, float] = {
            "pass": 0,
            "batches": 0,
            "bytes": 0,
            "bytes_held": 0,
            "retries": 0,
            "waited_seconds": 0.0,
        }

    def batches(self, position: FeedPosition, stopped: Callable[[], bool]) -> Iterator[Delivery]:
        """Yield the rest of a pass."""
        try:
            with contextlib.suppress(_Stopped):
                yield from self._batches(position, stopped)
        finally:
            self._metrics.update(self.progress)

    def _batches(self, position: FeedPosition, stopped: Callable[[], bool]) -> Iterator[Delivery]:
        self._requests.clear()  # of an earlier pass
        self._receipts.clear()
        self.progress["pass"] = position.pass_id
        positions = list(position.streams)
        live = [p.at.pass_id == position.pass_id for p in positions]
        # The first messages have one batch each, so that the trainer does not wait long.
        for stream in range(self._num_streams):
            if live[stream]:
                self._request(stream, positions[stream].at, 0, stopped)
        stream = position.turn
        while any(live):
            if not live[stream]:
                stream = (stream + 1) % self._num_streams
                continue
            receipt = self._receipts.get(stream)
            if receipt is None:
                header, batches = self._receive(stream, stopped)
                start = positions[stream]
                left = deque(list(enumerate(batches))[start.skip :])
                receipt = self._receipts[stream] = _Receipt(start, header, left, size_of(batches))
                if not header.ended and header.failure is None:
                    self._request(stream, header.following, self._message_bytes, stopped)
                self.progress["bytes_held"] = sum(one.size for one in self._receipts.values())
            start, header = receipt.start, receipt.header
            if receipt.left:
                index, batch = receipt.left.popleft()
                whole = index + 1 == header.num_batches and header.failure is None
                behind = StreamPosition(header.following) if whole else StreamPosition(start.at, index + 1)
                yield Delivery(stream, behind, [received(value) for value in batch] if batch else None)
                del batch
                stream = (stream + 1) % self._num_streams
                continue
            del receipt, self._receipts[stream]
            if header.failure is not None:
                raise _failure(f"stream {stream} of the service", header.failure)
            # Something is left to skip if a worker has sent a smaller message than an earlier one did.
            positions[stream] = StreamPosition(header.following, max(start.skip - header.num_batches, 0))
            live[stream] = not header.ended

    def describe(self) -> Description:
        """Return the slots of the batches.

        It waits until a worker has made a reader, and raises what `make_reader` raises.
        """
        stopped = threading.Event().is_set
        deaths = 0
        while True:
            name, handle = self._workers.of(0, stopped)
            try:
                call = handle.describe.remote()
                self._workers.wait(name, call, deaths, stopped)
                self._workers.wait(name, call, deaths, stopped, transfer=True)  # a long failure is transferred
                found = ray.get(call)
            except ray.exceptions.RayError as error:
                deaths += 1
                self._workers.failed(name, error, deaths, "make_reader", stopped)
                continue
            if isinstance(found, Description):
                return found
            raise _failure("make_reader", found)

    # ---- Requests ----

    def _request(self, stream: int, at: Position, least_bytes: int, stopped: Callable[[], bool]) -> None:
        """Request the message of a stream that begins at a position."""
        name, handle = self._workers.of(stream, stopped)
        arguments = FetchArguments(stream, at, self._rank, self._world, least_bytes)
        self._requests[stream] = _Request(at, name, handle.fetch.remote(pickle.dumps(arguments)))

    def _receive(self, stream: int, stopped: Callable[[], bool]) -> Message:
        """Return the message that was requested."""
        self._wait_began = time.monotonic()
        deaths = 0
        while True:
            request = self._requests[stream]
            try:
                header, batches = self._message_of(request, deaths, stopped)
            except ray.exceptions.RayError as error:
                self.progress["retries"] += 1
                deaths += 1
                what = f"batch {request.at.number} of pass {request.at.pass_id} of stream {stream}"
                self._workers.failed(request.worker, error, deaths, what, stopped)
                # Other streams' requests to this worker are repeated now, so that their batches are made meanwhile.
                cut_off = isinstance(error, _NoAnswer)
                for other, sent in list(self._requests.items()):
                    if other == stream or (sent.worker == request.worker and _is_lost(sent, cut_off=cut_off)):
                        self._request(other, sent.at, 0, stopped)
                continue
            del self._requests[stream]
            self._count(header, batches)
            return header, batches

    def _message_of(self, request: _Request, deaths: int, stopped: Callable[[], bool]) -> Message:
        """Wait for the message of a request, and note its node."""
        check_connected("FeedReader")
        workers = self._workers
        message = _get_soon(request.message) if workers.is_local(request.worker) else None
        if message is None:
            workers.wait(request.worker, request.message, deaths, stopped, self._count_wait)
            message = self._wait_for_transfer(request, deaths, stopped)
        workers.nodes[request.worker] = message[0].node
        return message

    def _wait_for_transfer(self, request: _Request, deaths: int, stopped: Callable[[], bool]) -> Message:
        # Ray transfers what is waited for: let it begin with the messages of other streams that are made, too.
        requests = self._requests.values()
        calls = [one.message for one in requests if one is request or not self._workers.is_local(one.worker)]
        ray.wait(calls, num_returns=len(calls), timeout=0)
        self._workers.wait(request.worker, request.message, deaths, stopped, self._count_wait, transfer=True)
        message: Message = ray.get(request.message)
        return message

    def _count(self, header: Header, batches: list[list[Sent]]) -> None:
        self.progress["batches"] += header.num_batches
        self.progress["bytes"] += size_of(batches)
        self._count_wait()

    def _count_wait(self) -> None:
        """Count the time since the wait began or was counted, and report the progress."""
        now = time.monotonic()
        self.progress["waited_seconds"] += now - self._wait_began
        self._wait_began = now
        if now - self._updated >= _REFRESH_SECONDS:
            self._updated = now
            self._metrics.update(self.progress)
        self._workers.refresh(self._rank, self.progress)


class _Metrics:
    """The metrics of a trainer, which Ray exports every ten seconds."""

    def __init__(self, namespace: str, rank: int) -> None:
        tags = ("service", "rank")
        self.counters = {
            "batches": Counter("pyfeed_feed_batches", "Batches that a trainer has received.", tags),
            "bytes": Counter("pyfeed_feed_bytes", "Bytes of these batches.", tags),
            "retries": Counter("pyfeed_feed_retries", "Requests that went to another worker.", tags),
        }
        held, waited = (
            "Bytes of the messages that are being delivered.",
            "Seconds in which the next message was not ready.",
        )
        self.gauges = {
            "bytes_held": Gauge("pyfeed_feed_bytes_held", held, tags),
            "waited_seconds": Gauge("pyfeed_feed_waited_seconds", waited, tags),
        }
        for metric in (*self.counters.values(), *self.gauges.values()):
            metric.set_default_tags({"service": namespace, "rank": str(rank)})
        self._counted = dict.fromkeys(self.counters, 0.0)

    def update(self, progress: dict[str, float]) -> None:
        """Set all to the progress of the trainer. Call it seldom: Ray takes many microseconds for each metric."""
        for name, counter in self.counters.items():
            if more := progress[name] - self._counted[name]:  # Ray refuses 0
                counter.inc(more)
                self._counted[name] = progress[name]
        for name, gauge in self.gauges.items():
            gauge.set(progress[name])


class _Workers:
    """The workers of a service, as the coordinator assigns them. Only the trainer's thread uses it."""

    def __init__(self, namespace: str, stall_timeout: float | None) -> None:
        self._namespace = namespace
        self._stall_timeout = math.inf if stall_timeout is None else stall_timeout
        self._layout: dict[int, str] = {}
        self._handles: dict[str, Any] = {}
        check_connected("FeedReader")
        self._node: str = ray.get_runtime_context().get_node_id()
        self.nodes: dict[str, str] = {}  # of workers, when they sent their last messages
        self._silent: dict[str, Any] = {}  # workers that did not answer this trainer in time: the call of ping
        # Workers whose messages do not arrive: the call of probe, and when it was made.
        self._cut_off: dict[str, tuple[Any, float]] = {}
        self._refresh: Any = None  # the reference of a call of layout
        self._refreshed = 0.0
        # Seconds for which the coordinator has not answered; None: it has not answered yet, and may still start.
        self._unanswered: float | None = None

    def of(self, stream: int, stopped: Callable[[], bool]) -> tuple[str, Any]:
        """Return the name of the worker that makes a stream, and its handle. Wait until there is one.

        It is that of the layout, unless this trainer gets no answer from it, and so cannot wait until the coordinator
        has noticed that, too.
        """
        while True:
            name = self._layout.get(stream)
            if name is None:
                self._ask([], stopped)
                continue
            if self._is_silent(name):
                others = sorted(other for other in set(self._layout.values()) if not self._is_silent(other))
                name = others[stream % len(others)] if others else name
            try:
                return name, self._handle(name)
            except ValueError:  # it has ended, and will not be started again
                self._ask([name], stopped)

    def wait(
        self,
        name: str,
        call: Any,
        deaths: int,
        stopped: Callable[[], bool],
        poll: Callable[[], None] = lambda: None,
        *,
        transfer: bool = False,
    ) -> None:
        """Wait until a worker has answered a call, and ask it meanwhile whether it is alive.

        Parameters
        ----------
        name : str
            The name of the worker.
        call
            The reference of what it makes.
        deaths : int
            How many workers have not answered the same request before. Each makes this wait longer: a function that
            holds the GIL looks like a worker that hangs, in every worker.
        stopped, poll : callable
            They are called every `_POLL_SECONDS`.
        transfer : bool
            Whether it is made, and has to be transferred to this node. If the connection breaks meanwhile, Ray may try
            again only much later.

        Raises
        ------
        RayError
            The worker has ended, which Ray says within two seconds, or it does not answer, or its message does not
            arrive.
        """
        check_connected("FeedReader")
        ping, silent, in_transit = None, 0.0, 0.0
        while not ray.wait([call], timeout=_POLL_SECONDS, fetch_local=transfer)[0]:
            if stopped():
                raise _Stopped
            check_connected("FeedReader")
            poll()
            limit = self._stall_timeout * (deaths + 1)
            if transfer:
                in_transit += _POLL_SECONDS
                if in_transit >= limit:
                    self._probe_node_of(name)
                    raise _NoAnswer(f"the message of {name} has not arrived for {in_transit:.1f} s")
            if ping is None:
                ping, silent = self._handle_of(name).ping.remote(), 0.0
            elif is_done(ping):
                ray.get(ping)
                ping = None
            else:
                silent += _POLL_SECONDS  # and not by the clock: this process may have been stopped itself
                if silent >= (limit if name in self._layout.values() else min(limit, _SUSPECT_SECONDS)):
                    self._silent[name] = ping
                    raise _NoAnswer(f"{name} has not answered for {silent:.1f} s")

    def failed(
        self, name: str, error: ray.exceptions.RayError, deaths: int, what: str, stopped: Callable[[], bool]
    ) -> None:
        """Take the streams from a worker that did not answer. Raise what shows that no other would answer either.

        Parameters
        ----------
        name : str
            The name of the worker.
        error : RayError
            What came instead of the answer.
        deaths : int
            How many workers did not answer the request, with this one.
        what : str
            What was requested.
        stopped : callable
            Whether to stop waiting for another worker.
        """
        if isinstance(error, ray.exceptions.RayTaskError):
            raise ProducerError(f"worker {name} of the service failed: {error}") from error
        if getattr(error, "actor_init_failed", False):
            raise StateError(f"worker {name} of the service: expected that it starts, found: {error}") from error
        if deaths > _MAX_DEATHS + 2 * len(set(self._layout.values())):
            raise StateError(
                f"{what}: expected a worker that can make it, found that {deaths} workers ended or stopped answering "
                f"meanwhile, the last with: {error}"
            ) from error
        self._handles.pop(name, None)
        self._ask([name], stopped)

    def refresh(self, rank: int, progress: dict[str, float]) -> None:
        """Take the layout that was requested a while ago, report the progress, and request the layout again."""
        if time.monotonic() - self._refreshed < _REFRESH_SECONDS:
            return
        self._refreshed = time.monotonic()
        try:
            if self._refresh is not None:
                if not is_done(self._refresh):
                    self._count_unanswered(_REFRESH_SECONDS)
                    return
                self._layout = ray.get(self._refresh) or self._layout
                self._unanswered = 0.0
            coordinator = self._handle(COORDINATOR)
            # Without retries, of which Ray would warn if the service is shut down meanwhile.
            coordinator.report.options(max_task_retries=0).remote(rank, dict(progress))
            self._refresh = coordinator.layout.options(max_task_retries=0).remote()
        except (ValueError, ray.exceptions.RayError):  # the next request that fails tells why
            self._refresh = None

    def _handle(self, name: str) -> Any:
        """Return the handle of an actor, which stays valid if Ray starts the actor again.

        Raises
        ------
        ValueError
            The actor has ended.
        """
        if name not in self._handles:
            check_connected("FeedReader")
            self._handles[name] = ray.get_actor(name, namespace=self._namespace)
        return self._handles[name]

    def _handle_of(self, name: str) -> Any:
        """Return the handle of a worker that has a request."""
        try:
            return self._handle(name)
        except ValueError as error:
            raise _NoAnswer(f"{name} has ended") from error

    def is_local(self, name: str) -> bool:
        """Whether a worker sent its last message from the node of this trainer."""
        return self.nodes.get(name) == self._node

    def _is_silent(self, name: str) -> bool:
        """Whether a worker still owes this trainer the answer, or the message, for which it has waited too long."""
        if name in self._silent and is_done(self._silent[name]):
            del self._silent[name]
        if name in self._cut_off:
            call, called = self._cut_off[name]
            if is_done(call):
                del self._cut_off[name]
            elif time.monotonic() - called > _PROBE_SECONDS:
                self._probe(name)
        return name in self._silent or name in self._cut_off

    def _probe_node_of(self, name: str) -> None:
        """Note that messages of a worker, and so of others on its node, do not arrive, and probe when they do again.

        After a partition, calls of a worker may be answered again while Ray transfers no objects from its node.
        """
        node = self.nodes.get(name)
        self._probe(name)
        for other, other_node in self.nodes.items():
            if other != name and other_node == node:
                self._probe(other)

    def _probe(self, name: str) -> None:
        with contextlib.suppress(ValueError):  # it has ended
            self._cut_off[name] = self._handle(name).probe.remote(), time.monotonic()

    def _ask(self, failed: list[str], stopped: Callable[[], bool]) -> None:
        """Wait until the streams have workers, without those that have failed."""
        pause, warn = 0.02, time.monotonic() + _WARN_SECONDS
        while not stopped():
            try:
                coordinator = self._handle(COORDINATOR)
            except ValueError as error:
                raise StateError(
                    "FeedReader: expected a running service, found that it was shut down, or that the process "
                    "which made it has ended"
                ) from error
            call = coordinator.layout.remote(failed)
            try:
                self._layout = ray.get(call, timeout=_ANSWER_SECONDS)
                self._refresh, self._unanswered = None, 0.0
            except ray.exceptions.RayError as error:
                self._handles.pop(COORDINATOR, None)
                self._layout = _without(self._layout, failed)
                self._refresh = call  # it is taken when the coordinator has answered
                if isinstance(error, ray.exceptions.GetTimeoutError):
                    self._count_unanswered(_ANSWER_SECONDS)
            if self._layout:
                self._refreshed = time.monotonic()
                return
            if time.monotonic() > warn:
                _log.warning("no worker of service %s is alive: the trainer waits for one", self._namespace)
                warn += _WARN_SECONDS
            time.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)
        raise _Stopped

    def _count_unanswered(self, seconds: float) -> None:
        """End a coordinator that hangs. Ray starts it again: it has no state that must survive."""
        if self._unanswered is None:
            return
        self._unanswered += seconds
        if self._unanswered >= self._stall_timeout:
            _log.warning("the coordinator of service %s does not answer: it is started again", self._namespace)
            with contextlib.suppress(ValueError, ray.exceptions.RayError):
                ray.kill(self._handle(COORDINATOR), no_restart=False)
            self._unanswered = None


def _without(layout: dict[int, str], failed: list[str]) -> dict[int, str]:
    """Return a layout in which other workers have the streams of those that have failed. Empty: there is no other."""
    others = sorted(set(layout.values()) - set(failed))
    return {s: name if name in others else others[s % len(others)] for s, name in layout.items() if others}


def _get_soon(reference: Any) -> Message | None:
    """Return a message of a worker on this node by one call of Ray, which costs less than a wait before.

    None: it is not made soon, or not here, as if its worker was started again on another node.
    """
    try:
        message: Message = ray.get(reference, timeout=_POLL_SECONDS)
    except ray.exceptions.GetTimeoutError:
        return None
    return message


def _is_lost(request: _Request, *, cut_off: bool) -> bool:
    """Report whether a request has to be sent again, to another worker.

    Ray delivers what a worker made before it ended, but nothing of a worker that is cut off.
    """
    if not (is_done(request.message) if cut_off else is_made(request.message)):
        return True
    try:
        ray.get(request.message, timeout=0)
    except ray.exceptions.GetTimeoutError:  # it is on another node
        return False
    except ray.exceptions.RayError:
        return True
    return False


def check_connected(name: str) -> None:
    """Refuse to go on without ``ray.init()`` or after ``ray.shutdown()``: a call of Ray would start a new cluster."""
    if not ray.is_initialized():
        raise StateError(f"{name}: expected Ray to be initialized, found that it is not: call ray.init")


def _failure(what: str, failure: tuple[str, str, str]) -> ProducerError:
    error = ProducerError(f"{what} failed: {failure[0]}: {failure[1]}\n{failure[2]}")
    error.cause_type, error.cause_message, error.cause_traceback = failure
    return error


class Feeder:
    """Pushes the batches of a trainer's streams into its queue, pass by pass, in a thread of its own.

    The thread ends when no reader of the queue is left.

    Parameters
    ----------
    queue : PyArrayFeedQueue
        The producer's end.
    streams : Streams
    num_streams : int
    name : str
        The name of the queue's reader.
    """

    def __init__(self, queue: Any, streams: Streams, num_streams: int, name: str) -> None:
        self._queue, self._streams, self._num_streams = queue, streams, num_streams
        self._lock = threading.Lock()
        self._begin = 0, FeedPosition.beginning(0, num_streams)  # a pass of the queue, and where it begins
        # The position behind `_counted` batches of the queue's pass `_pass_id`, and what was pushed behind that.
        self._pass_id, self._position, self._counted = self._begin[0], self._begin[1], 0
        self._pushed: deque[Delivery] = deque()
        self._thread = threading.Thread(target=self._run, name=f"pyfeed-{name}", daemon=True)
        _exit.daemon_threads.add(self._thread)
        _feeders.add(self)
        self._thread.start()

    def position(self, pass_id: int, delivered: int) -> FeedPosition:
        """Return the position behind the delivered batches of a pass of the data."""
        with self._lock:
            if self._position.pass_id != pass_id:  # the thread has not begun the pass
                return FeedPosition.beginning(pass_id, self._num_streams)
            # A batch that no trainer gets counts with the batch before it.
            while self._pushed and (self._counted < delivered or self._pushed[0].batch is None):
                one = self._pushed.popleft()
                self._position.streams[one.stream] = one.behind
                self._position.turn = (one.stream + 1) % self._num_streams
                self._counted += one.batch is not None
            return self._position.copy()

    def load(self, position: FeedPosition, delivered: int, load_reader: Callable[[], None]) -> None:
        """Go on at a position, which the reader has after a call of `load_reader`."""
        with self._lock:  # the thread begins no pass meanwhile
            load_reader()
            self._begin = self._queue.stats()["pass_id"], position
            self._set(*self._begin, delivered)

    def reset(self, reset_reader: Callable[[], None]) -> None:
        """Begin the next pass, by a call of `reset_reader`."""
        with self._lock:
            if self._queue.stats()["pass_id"] is None:  # then the reset begins the queue's first pass
                self._begin = 0, FeedPosition.beginning(self._begin[1].pass_id + 1, self._num_streams)
            reset_reader()

    def shut_down(self) -> None:
        """Tell the thread to end."""
        self._queue.shutdown()

    def join(self, timeout: float) -> None:
        """Wait for the end of the thread."""
        self._thread.join(max(timeout, 0))

    def _set(self, pass_id: int, position: FeedPosition, counted: int) -> None:
        self._pass_id, self._position, self._counted = pass_id, position.copy(), counted
        self._pushed.clear()

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
            if pass_id != first:
                position = FeedPosition.beginning(position.pass_id + pass_id - first, self._num_streams)
            self._set(pass_id, position, start)

        def stopped() -> bool:
            stats = self._queue.stats()
            return bool(stats["pass_id"] != pass_id or stats["shut_down"])

        for one in self._streams.batches(position, stopped):
            batch = one.batch
            with self._lock:
                if self._pass_id != pass_id:  # `load` has begun another
                    return
                # What is kept here must not keep the arrays.
                self._pushed.append(Delivery(one.stream, one.behind, None if batch is None else []))
            del one
            if batch is not None:
                self._queue.push(batch, copy=False, pass_id=pass_id)
            del batch
        if not stopped():
            self._queue.close(pass_id)


_feeders: weakref.WeakSet[Feeder] = weakref.WeakSet()


def _stop_feeders() -> None:
    """End all threads, and wait for that, so that they make no calls of Ray while the interpreter exits."""
    feeders = list(_feeders)
    for feeder in feeders:
        feeder.shut_down()
    end = time.monotonic() + 2 * _ANSWER_SECONDS  # of all together
    for feeder in feeders:
        feeder.join(end - time.monotonic())


# Ray has registered its own exit before, and so it comes after this.
atexit.register(_stop_feeders)
