"""The actors of `pyfeed.ray.FeedService`: workers, which make batches, and the coordinator, which assigns streams.

No actor has state that must survive. A request for a batch says where it lies: the stream, the pass, the number, and
the state of a reader before it. So any worker can answer any request, and answers it with the same batches. The
coordinator finds the workers by their names.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import os
import pickle
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import ray
import ray.cloudpickle

from ._failures import format_exception
from ._lod import LoDTensor
from ._reader import Reader
from .errors import EndOfData, InvalidArgument

MakeReader = Callable[[int, int], Reader]

COORDINATOR = "coordinator"  # its name in the namespace of the service

# An array, or for a slot with LoD its data and the offsets of each level.
Sent = Any


class Position(NamedTuple):
    """A position in a stream.

    Attributes
    ----------
    pass_id : int
        The number of the pass.
    number : int
        The number of the next batch in the pass.
    state : str or None
        The state of the stream's reader there. None: the beginning of the pass.
    """

    pass_id: int
    number: int = 0
    state: str | None = None


class Header(NamedTuple):
    """What a worker says about a message.

    Attributes
    ----------
    num_batches : int
        The number of batches in the message.
    following : Position
        Where the next message begins.
    ended : bool
        Whether the pass of the stream ends after this message.
    node : str
        The node of the worker.
    failure : tuple of str or None
        Type, text and traceback of an exception that the reader raised after these batches.
    """

    num_batches: int
    following: Position
    ended: bool
    node: str
    failure: tuple[str, str, str] | None = None


class FetchArguments(NamedTuple):
    """The arguments of `Worker.fetch`. It gets them pickled, as one: Ray serializes each argument of a call separately.

    Attributes
    ----------
    stream : int
    at : Position
        Where to begin.
    rank, world : int
        The number of the trainer, and the number of trainers.
    least_bytes : int
        The message ends with the batch that reaches this size.
    """

    stream: int
    at: Position
    rank: int
    world: int
    least_bytes: int


Parts = list[list[list[Sent]]]  # by trainer and batch
Message = tuple[Header, list[list[Sent]]]  # the parts of one trainer


@dataclasses.dataclass(frozen=True)
class Description:
    """The slots of a service's batches, as for `py_array_reader`."""

    shapes: list[tuple[int, ...]]
    dtypes: list[Any]
    lod_levels: list[int]
    names: tuple[str, ...]


class _Stream:
    """A reader of one stream in a worker, and the parts of its last messages that other trainers will ask for."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reader: Reader | None = None
        self.names: Sequence[str] = ()  # of the reader's slots
        self.length: int | None = None  # batches of a pass; None: not known
        self.first: str | None = None  # the state of a new reader
        self.at: Position | None = None  # of the reader; None: unknown, after a failure
        self.began: float | None = None  # when the reader was made, moved or read; None: it does not work now
        self.messages: OrderedDict[tuple[int, int, int], tuple[Header, Parts]] = OrderedDict()


class Worker:
    """Makes batches of streams. It is an actor: several threads call it.

    Parameters
    ----------
    make_reader : bytes
        A callable, as cloudpickle has written it. It is called with the number of a stream and the number of streams,
        and returns a reader of batches. It is read when the first batch is requested, so that the trainer gets the
        exception if that fails.
    num_streams : int
    batch_timeout : float or None
        Seconds after which a batch is given up, and the process with it.
    """

    KEPT = 4  # messages of a stream for other trainers, which may be behind or ahead of one another

    def __init__(self, make_reader: bytes, num_streams: int, batch_timeout: float | None = None) -> None:
        self._make_reader = make_reader
        self._num_streams = num_streams
        self._batch_timeout = batch_timeout
        self._streams = [_Stream() for _ in range(num_streams)]
        self._node: str = ray.get_runtime_context().get_node_id()

    @ray.method(concurrency_group="ping")  # type: ignore[untyped-decorator]
    def ping(self) -> None:
        """Return, to show that the worker is alive; end the process if a batch has taken too long.

        A thread that is stuck cannot be ended alone, and holds the lock of its stream.
        """
        if self._batch_timeout is None:
            return
        for number, stream in enumerate(self._streams):
            began = stream.began
            if began is not None and time.monotonic() - began > self._batch_timeout:
                text = f"stream {number}: no batch within batch_timeout, {self._batch_timeout:g} s: the worker ends"
                print(f"pyfeed: {text}. Its threads:", file=sys.stderr, flush=True)
                faulthandler.dump_traceback(all_threads=True)
                os._exit(1)

    @ray.method(concurrency_group="ping")  # type: ignore[untyped-decorator]
    def probe(self) -> bytes:
        """Return bytes that Ray transfers between nodes like a message, because they are too many for the answer."""
        return bytes(1 << 18)

    # Of a group of its own: several that wait for a lock would leave no thread for `ping`.
    @ray.method(concurrency_group="describe")  # type: ignore[untyped-decorator]
    def describe(self) -> Description | tuple[str, str, str]:
        """Return the slots of the batches; or type, text and traceback of an exception."""
        stream = self._streams[0]
        with stream.lock:
            try:
                stream.began = time.monotonic()
                reader = self._reader_of(0)
                slots = reader.slots
                return Description(
                    [slot.shape for slot in slots],
                    [slot.dtype for slot in slots],
                    [slot.lod_levels for slot in slots],
                    reader.names,
                )
            except Exception as error:
                return format_exception(error)
            finally:
                stream.began = None

    def fetch(self, pickled: bytes) -> Message:
        """Return the next batches of a stream, or of each the part for a trainer.

        Parameters
        ----------
        pickled : bytes
            The `FetchArguments`.

        Returns
        -------
        Message
            It lies in the object store of the worker's node.
        """
        arguments: FetchArguments = pickle.loads(pickled)
        stream, at = self._streams[arguments.stream], arguments.at
        with stream.lock:
            key = (arguments.world, at.pass_id, at.number)
            message = stream.messages.get(key)
            if message is None:
                message = header, _ = self._read(arguments)
                if arguments.world > 1 and header.failure is None:
                    stream.messages[key] = message
                    while len(stream.messages) > self.KEPT:
                        stream.messages.popitem(last=False)
        return message[0], message[1][arguments.rank]

    def _reader_of(self, number: int) -> Reader:
        stream = self._streams[number]
        if stream.reader is None:
            make_reader: MakeReader = ray.cloudpickle.loads(self._make_reader)
            reader = make_reader(number, self._num_streams)
            if not isinstance(reader, Reader):
                raise InvalidArgument(f"make_reader: expected it to return a Reader, found {type(reader).__name__}")
            stream.reader, stream.names, stream.length = reader, reader.names, _length_of(reader)
            stream.first, stream.at = reader._get_state(), Position(0)
        return stream.reader

    def _read(self, arguments: FetchArguments) -> tuple[Header, Parts]:
        stream, at, world = self._streams[arguments.stream], arguments.at, arguments.world
        parts: Parts = [[] for _ in range(world)]
        count = size = 0
        following, ended = at, False
        stream.began = time.monotonic()
        try:
            reader = self._reader_of(arguments.stream)
            if stream.at is None or (stream.at.pass_id, stream.at.number) != (at.pass_id, at.number):
                _go_to(reader, stream.first, at)
            stream.at = None
            while not count or size < arguments.least_bytes:
                try:
                    batch = [_to_send(value) for value in _slots(reader.read())]
                except EndOfData:
                    ended = True
                    break
                for part, rows in zip(parts, divide(batch, world, stream.names), strict=True):
                    part.append(rows)
                count += 1
                size += size_of([batch])
                stream.began = time.monotonic()
            if not ended and stream.length is not None and at.number + count >= stream.length:
                # Without this, another request would find the end. Nothing is left to be made, so this takes no time;
                # it fails if a file has changed meanwhile.
                ended = not reader.has_next()
            if ended:
                reader.reset()
                following = Position(at.pass_id + 1)
            else:
                following = Position(at.pass_id, at.number + count, reader._get_state())
            stream.at = following
        except Exception as error:
            return Header(count, following, ended, self._node, format_exception(error)), parts
        finally:
            stream.began = None
        return Header(count, following, ended, self._node), parts


def _length_of(reader: Reader) -> int | None:
    try:
        return len(reader)
    except TypeError:
        return None


def _go_to(reader: Reader, first: str | None, at: Position) -> None:
    if at.state is not None:
        reader.load_state_dict(at.state)
        return
    assert first is not None
    reader.load_state_dict(first)
    for _ in range(at.pass_id):
        reader.reset()


def _slots(batch: Any) -> Sequence[Any]:
    return tuple(batch.values()) if isinstance(batch, dict) else batch


def _to_send(value: Any) -> Sent:
    return (value.data, *value.lod) if isinstance(value, LoDTensor) else value


def received(value: Sent) -> Any:
    """Return the value of a slot from the form in which it was sent."""
    return LoDTensor._wrap(value[0], value[1:]) if isinstance(value, tuple) else value


def size_of(batches: Iterable[list[Sent]]) -> int:
    """Return the size of batches in bytes."""
    values = [value for batch in batches for value in batch]
    return sum(array.nbytes for value in values for array in (value if isinstance(value, tuple) else (value,)))


def divide(batch: list[Sent], world: int, names: Sequence[str]) -> list[list[Sent]]:
    """Return each trainer's part of a batch: equally many rows for all. Rows that are left over are dropped.

    The parts are empty lists if the batch has fewer rows than there are trainers.
    """
    if world == 1:
        return [batch]
    values = [received(value) for value in batch]
    rows = [_rows(value, slot, names) for slot, value in enumerate(values)]
    for slot, found in enumerate(rows):
        if found != rows[0]:
            raise InvalidArgument(
                f"{slot_name(slot, names)}: expected {rows[0]} rows, as in {slot_name(0, names)}, found {found}"
            )
    each = rows[0] // world
    if each == 0:
        return [[] for _ in range(world)]
    return [[_take(value, i * each, (i + 1) * each) for value in values] for i in range(world)]


def slot_name(slot: int, names: Sequence[str]) -> str:
    """Return how an error calls a slot."""
    return f"slot {slot} ({names[slot]!r})" if names else f"slot {slot}"


def _rows(value: Any, slot: int, names: Sequence[str]) -> int:
    if isinstance(value, LoDTensor) and value.lod:
        return len(value.lod[0]) - 1
    array = np.asarray(value)
    if array.ndim == 0:
        raise InvalidArgument(
            f"{slot_name(slot, names)}: expected rows, to divide among trainers, found a scalar: batch the reader"
        )
    return len(array)


def _take(value: Any, first: int, end: int) -> Sent:
    return _to_send(value._part(first, end)) if isinstance(value, LoDTensor) else np.asarray(value)[first:end]


class Coordinator:
    """Assigns each stream to a worker. It is an actor with one thread.

    A worker has streams only if it has answered a ping since it was listed first, and since a trainer reported it last.
    A call of an actor that starts waits until it has started; so no stream waits for a worker that starts, or that
    hangs, while another one could make its batches.

    Parameters
    ----------
    namespace : str
        The namespace in which the workers have names.
    num_streams : int
    """

    REMEMBERED = 0.25  # seconds for which the list of workers is used again: each costs a question to Ray's head
    ANSWER = 0.1  # seconds in which a worker that runs answers a ping, mostly
    ANSWER_FIRST = 0.5  # seconds for which the first worker that answers waits for more, which take their part of all

    def __init__(self, namespace: str, num_streams: int) -> None:
        self._namespace = namespace
        self._num_streams = num_streams
        self._layout: dict[int, str] = {}
        self._workers: list[str] = []  # among which the streams are divided
        self._uneven = False  # whether some workers got no streams although they had few
        self._retired: set[str] = set()
        self._pings: dict[str, Any] = {}  # of workers that have not answered: the reference of a call of ping
        self._progress: dict[int, dict[str, Any]] = {}
        self._began = time.time()
        self._listed: list[str] = []
        self._listed_at = -self.REMEMBERED

    def layout(self, failed: Sequence[str] = ()) -> dict[int, str]:
        """Return the name of the worker of each stream. The dict is empty if no worker is alive.

        Parameters
        ----------
        failed : sequence of str
            Workers that did not answer the caller. They get no streams until they answer again.
        """
        names = self._names(fresh=bool(failed))
        for name in failed:
            if name in names and (self._pings.get(name) is None or is_done(self._pings[name])):
                self._pings[name] = None  # an answer from before the report shows nothing
        _wait_for_all([self._ping(name) for name in names if name in self._pings], self.ANSWER)
        workers = [name for name in names if self._answers(name)]
        if workers and not self._workers:
            _wait_for_all(self._pings.values(), self.ANSWER_FIRST)
            workers = [name for name in names if self._answers(name)]
        if workers != self._workers or self._uneven:
            takers = self._takers(workers) if failed else workers
            self._workers, self._uneven = workers, takers != workers
            self._assign(workers, takers)
        return dict(self._layout)

    def retire(self, name: str) -> None:
        """Assign no more streams to a worker."""
        self._retired.add(name)
        self._listed = [other for other in self._listed if other != name]
        self._pings.pop(name, None)

    def report(self, rank: int, progress: dict[str, Any]) -> None:
        """Note the progress of a trainer."""
        self._progress[rank] = {**progress, "time": time.time()}

    def stats(self) -> dict[str, Any]:
        """Return what `FeedService.stats` returns."""
        streams = self.layout()
        return {
            "workers": list(self._listed),
            "suspects": sorted(self._pings),
            "streams": streams,
            "trainers": dict(self._progress),
            "seconds": time.time() - self._began,
        }

    def _names(self, *, fresh: bool) -> list[str]:
        """Return the names of the workers that Ray has not given up. Those that are new are to be asked."""
        now = time.monotonic()
        if fresh or not self._listed or now - self._listed_at >= self.REMEMBERED:
            actors = ray.util.list_named_actors(all_namespaces=True)
            names = {actor["name"] for actor in actors if actor["namespace"] == self._namespace}
            names = {name for name in names - self._retired if name.startswith("worker")}
            new = names - set(self._listed)
            self._listed, self._listed_at = sorted(names), now
            self._pings = {name: self._pings.get(name) for name in self._listed if name in self._pings or name in new}
        return self._listed

    def _ping(self, name: str) -> Any:
        """Ask a worker whether it is alive, and return the call. None: it was asked before, or has ended."""
        if self._pings[name] is None:
            with contextlib.suppress(ValueError, ray.exceptions.RayError):
                self._pings[name] = ray.get_actor(name, namespace=self._namespace).ping.remote()
                return self._pings[name]
        return None

    def _answers(self, name: str) -> bool:
        """Report whether a worker is alive, as far as is known."""
        call = self._pings.get(name)
        if call is None or not is_done(call):
            return name not in self._pings
        try:
            ray.get(call)
        except ray.exceptions.RayError:
            self._pings[name] = None  # it is asked by the next call of layout
            return False
        del self._pings[name]
        return True

    def _takers(self, workers: Sequence[str]) -> Sequence[str]:
        """Return the workers that may take over the streams of a worker that failed: they answer at once, if any does.

        Another one may have ended, too, before a trainer has noticed it. Ray would keep a new request until it has
        started that worker again.
        """
        calls = {}
        for name in workers:
            with contextlib.suppress(ValueError, ray.exceptions.RayError):
                calls[name] = ray.get_actor(name, namespace=self._namespace).ping.remote()
        _wait_for_all(calls.values(), self.ANSWER)
        takers = []
        for name, call in calls.items():
            with contextlib.suppress(ray.exceptions.RayError):
                if is_done(call):
                    ray.get(call)
                    takers.append(name)
        return takers or workers

    def _assign(self, workers: Sequence[str], takers: Sequence[str]) -> None:
        """Give each stream a worker, and takers about as many streams each as another, and move as few as possible."""
        self._layout = {stream: name for stream, name in self._layout.items() if name in workers}
        if not workers:
            return
        loads = {name: [s for s, w in self._layout.items() if w == name] for name in workers}
        for stream in range(self._num_streams):
            if stream not in self._layout:
                least = min(takers, key=lambda name: len(loads[name]))
                loads[least].append(stream)
                self._layout[stream] = least
        while True:
            least = min(takers, key=lambda name: len(loads[name]))
            most = max(workers, key=lambda name: len(loads[name]))
            if len(loads[most]) - len(loads[least]) < 2:
                return
            stream = loads[most].pop()
            loads[least].append(stream)
            self._layout[stream] = least


def _wait_for_all(calls: Iterable[Any], timeout: float) -> None:
    calls = [call for call in calls if call is not None]
    if calls:
        ray.wait(calls, num_returns=len(calls), timeout=timeout)


def is_done(call: Any) -> bool:
    """Report whether what a reference stands for is on this node: a value, or an error."""
    return bool(ray.wait([call], timeout=0)[0])


def is_made(call: Any) -> bool:
    """Report whether what a reference stands for is on any node. It is not transferred."""
    return bool(ray.wait([call], timeout=0, fetch_local=False)[0])
