"""Preprocessing in actors of Ray: the service, and the reader of a trainer."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import ray
import ray.cloudpickle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from . import _arguments, _ranks
from ._arguments import function, integer, mapping, optional, validate
from ._attributes import decode, encode
from ._place import Place, check_place
from ._ray_actors import COORDINATOR, Coordinator, Description, MakeReader, Position, Worker, slot_name
from ._ray_feed import Feeder, FeedPosition, StreamPosition, Streams, check_connected
from ._reader import Reader, feed
from .errors import InvalidArgument, StateError, Timeout

_MESSAGE_BYTES = 8 << 20  # a message costs milliseconds beside its bytes: docs/distributed.md
_MAX_CAPACITY = 8  # batches in the queue of a trainer: Ray cannot write their messages to its disk
_STATE_VERSION = 1
_STALL_SECONDS = 30.0  # as long as Ray takes, at most, to notice that a node is lost
_STATS_SECONDS = 30.0
_RETIRE_SECONDS = 5.0


def _limit(name: str, value: Any) -> float:
    found = _arguments.seconds(name, value)
    return found if found > 0 else _arguments.refuse(name, "None or more than 0 seconds", value, InvalidArgument)


class FeedService:
    """Makes batches in actors of Ray, for any number of trainers, exactly once and in one order.

    The data are divided into streams. A worker, which is an actor, makes the batches of several streams; trainers take
    one batch of each stream in turn. Workers may be added, removed and killed at any time: another worker goes on
    behind the last batch that was delivered.

    Parameters
    ----------
    make_reader : callable
        Called in a worker with the number of a stream and the number of streams, such as
        ``lambda stream, streams: pyfeed.open_files("*.npy", rank=stream, world=streams).map(f).batch(256)``. It
        returns a reader of batches, whose state can be saved, and which is the same for every call. Ray sends it to
        the workers by cloudpickle.
    num_streams : int
        The number of streams, at least 1: a part of what determines the order. More workers than streams are idle.
    num_workers : int
        The number of workers at first.
    worker_options : mapping, optional
        Options of the actors, as for ``ray.remote``, such as ``{"num_cpus": 4, "resources": {"cpu_node": 1}}``.
    message_bytes : int
        A worker sends as many batches at a time as have this many bytes together, for all trainers. Two messages of
        each stream, one of which is being made, wait for the trainers. A batch that is kept keeps its message.
    stall_timeout : float or None
        Seconds after which a worker hangs that answers nothing, not even a ping, while a trainer waits for it: it is
        stopped, its host is cut off, or a function holds the GIL. Other workers take its streams over until it answers
        again, and what it still sends for them is refused. A message that is made, but has not arrived after this
        time, is requested again. None: trainers wait for both.
    batch_timeout : float or None
        Seconds that a worker may take for a batch, with the time to make its reader and to go to the position. A
        worker that takes longer while a trainer waits writes the stacks of its threads to its log, and ends. By
        default, None, a worker that answers pings may take any time: pyfeed cannot tell a slow function from a stuck
        one.

    Raises
    ------
    StateError
        Ray is not initialized in this process.

    Notes
    -----
    - The process that makes a service owns its actors: they end with it. `shutdown` ends them before. A service can
      be pickled, and sent to trainers.
    - No actor has state that must survive. The position in the data belongs to the trainers, in
      `FeedReader.state_dict`.
    - A worker that ends is started again by Ray, and has streams again when it answers. If a node is lost, a trainer
      waits until Ray has noticed that, or for `stall_timeout`, and until another worker has made the batches since the
      last message again.

    Examples
    --------
    >>> service = FeedService(make_reader, num_streams=8, num_workers=4)  # doctest: +SKIP
    >>> for images, labels in service.reader():  # doctest: +SKIP
    ...     train(images, labels)
    """

    @validate(
        make_reader=function,
        num_streams=integer(1),
        num_workers=integer(1),
        worker_options=optional(mapping),
        message_bytes=integer(1, "byte"),
        stall_timeout=optional(_limit),
        batch_timeout=optional(_limit),
    )
    def __init__(
        self,
        make_reader: MakeReader,
        *,
        num_streams: int = 8,
        num_workers: int = 2,
        worker_options: Mapping[str, Any] | None = None,
        message_bytes: int = _MESSAGE_BYTES,
        stall_timeout: float | None = _STALL_SECONDS,
        batch_timeout: float | None = None,
    ) -> None:
        check_connected("FeedService")
        self._namespace = f"pyfeed-{uuid.uuid4().hex[:12]}"
        self._num_streams = num_streams
        self._message_bytes = message_bytes
        self._stall_timeout = stall_timeout
        self._owner: _Owner | None = _Owner(
            self._namespace, make_reader, num_streams, dict(worker_options or {}), batch_timeout
        )
        try:
            self._owner.add(num_workers)
        except BaseException:
            self._owner.end()
            raise

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_owner": None}

    @validate(
        rank=_ranks.check_rank,
        world=optional(integer(1)),
        bytes_limit=integer(0, "byte"),
        place=optional(check_place),
        as_dict=_arguments.flag,
    )
    def reader(
        self,
        rank: int | str = 0,
        world: int | None = None,
        *,
        bytes_limit: int = 0,
        place: Place | None = None,
        as_dict: bool = False,
    ) -> FeedReader:
        """Make the reader of a trainer, which delivers its part of each batch.

        Parameters
        ----------
        rank : int or "auto"
            The number of the trainer, from 0 to ``world - 1``, as for `open_files`.
        world : int, optional
            The number of trainers, by default 1. Each gets an equal part of the rows of each batch; what is left
            over is dropped, and so is a batch with fewer rows than there are trainers. A later run may have another
            number: the batches of all trainers together stay the same.
        bytes_limit : int
            How many bytes of batches may wait for this trainer. A worker makes a message only on request, and for each
            stream at most one is delivered while the next is requested. So messages have at most
            ``bytes_limit / (2 * num_streams)`` bytes and a batch. By default, 0, `message_bytes` alone is the limit.
        place : Place, optional
            Where the batches are wanted, as for `Reader.double_buffer`. By default the CPU: the arrays are
            read-only views of Ray's object store.
        as_dict : bool
            Whether tuples are delivered as dicts.

        Returns
        -------
        FeedReader
        """
        rank, world = _ranks.resolve(rank, 1 if world is None and rank != "auto" else world)
        if rank >= world:
            raise InvalidArgument(f"rank: expected less than world {world}, found {rank}")
        return FeedReader(self, rank, world, bytes_limit, place, as_dict)

    @validate(count=integer(1))
    def add_workers(self, count: int = 1) -> list[str]:
        """Start more workers, and return their names. They take streams over within a second or so."""
        return self._owned().add(count)

    @validate(name=_arguments.text)
    def remove_worker(self, name: str) -> None:
        """End a worker. Other workers take its streams over. The batches that it was making are made again."""
        self._owned().remove(name)

    def stats(self) -> dict[str, Any]:
        """Return the workers, the worker of each stream, and the progress of each trainer.

        Returns
        -------
        dict
            ``workers``, ``suspects`` (those that have not answered yet: they start, or hang), ``streams`` (the worker
            of each), ``trainers`` (by rank, as `FeedReader.stats` returned it about a second ago, with the ``time`` of
            that), and ``seconds`` since the coordinator was started.

        Raises
        ------
        StateError
            The service or Ray was shut down.
        Timeout
            The coordinator did not answer within 30 seconds.
        """
        check_connected("stats")
        try:
            coordinator = ray.get_actor(COORDINATOR, namespace=self._namespace)
        except ValueError as error:
            raise StateError("stats: expected a running service, found that it was shut down") from error
        try:
            stats: dict[str, Any] = ray.get(coordinator.stats.remote(), timeout=_STATS_SECONDS)
        except ray.exceptions.GetTimeoutError as error:
            raise Timeout(f"stats: expected an answer of the coordinator within {_STATS_SECONDS:g} s") from error
        return stats

    def shutdown(self) -> None:
        """End all actors. Readers raise a `StateError` at the next message. It may be called again."""
        self._owned().end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"<FeedService {self._namespace}, {self._num_streams} streams>"

    def _owned(self) -> _Owner:
        if self._owner is None:
            raise StateError("FeedService: expected the process that made the service, found another process")
        return self._owner


class _Owner:
    """The actors of a service, in the process that made it. They end when it is gone."""

    def __init__(
        self,
        namespace: str,
        make_reader: MakeReader,
        num_streams: int,
        options: dict[str, Any],
        batch_timeout: float | None,
    ) -> None:
        self._namespace, self._num_streams, self._options = namespace, num_streams, options
        self._batch_timeout = batch_timeout
        # As an argument and not by ray.put: a worker that starts again must not depend on an object of another node.
        self._make_reader = ray.cloudpickle.dumps(make_reader)
        self._workers: dict[str, Any] = {}
        self._count = 0
        here = ray.get_runtime_context().get_node_id()
        self._coordinator = (
            ray.remote(Coordinator)
            .options(
                name=COORDINATOR,
                namespace=namespace,
                num_cpus=0,
                memory=1 << 20,  # Ray places an actor that needs nothing at random
                max_restarts=-1,
                max_task_retries=-1,
                # On this node, while it lives: another one may be cut off from the network.
                scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=True),
            )
            .remote(namespace, num_streams)
        )

    def add(self, count: int) -> list[str]:
        check_connected("FeedService")
        names = []
        for _ in range(count):
            name = f"worker-{self._count}"
            self._count += 1
            options = {"num_cpus": 1, "scheduling_strategy": "SPREAD", **self._options}
            options |= {"name": name, "namespace": self._namespace, "max_restarts": -1, "max_task_retries": 0}
            options |= {"max_concurrency": self._num_streams + 1}  # a thread for each stream
            actor = ray.remote(concurrency_groups={"ping": 1, "describe": 1})(Worker)
            arguments = self._make_reader, self._num_streams, self._batch_timeout
            self._workers[name] = actor.options(**options).remote(*arguments)
            names.append(name)
        return names

    def remove(self, name: str) -> None:
        check_connected("FeedService")
        worker = self._workers.pop(name, None)
        if worker is None:
            known = ", ".join(self._workers) or "none"
            raise InvalidArgument(f"name: expected the name of a worker, found {name!r}; there are {known}")
        ray.wait([self._coordinator.retire.remote(name)], timeout=_RETIRE_SECONDS)  # it may hang
        ray.kill(worker)

    def end(self) -> None:
        if ray.is_initialized():  # otherwise they have ended with Ray
            for actor in [*self._workers.values(), self._coordinator]:
                ray.kill(actor)
        self._workers.clear()


class FeedReader:
    """The batches of a `FeedService` for one trainer.

    It is iterated like a `Reader`: each ``for`` loop goes through one pass (epoch). The first loop goes on where the
    reader is; a later one begins the next pass.

    Notes
    -----
    - The order follows from the service's ``make_reader`` and ``num_streams`` alone: one batch of each stream in turn.
    - `state_dict` is the position behind the last batch that was delivered, in about 1 KB for each stream.
    - A read raises a `ProducerError`, with the traceback of the worker, if ``make_reader``, the reader or a function of
      `map` raised an exception.
    - One thread at a time may use it.
    """

    def __init__(
        self, service: FeedService, rank: int, world: int, bytes_limit: int, place: Place | None, as_dict: bool
    ) -> None:
        self._num_streams = service._num_streams
        self._text = f"rank {rank} of {world}, {service!r}"
        message_bytes = service._message_bytes
        if bytes_limit:  # all messages of a trainer have their part of it
            message_bytes = min(message_bytes, bytes_limit * world // (2 * service._num_streams))
        self._streams = Streams(
            service._namespace, service._num_streams, message_bytes, rank, world, service._stall_timeout
        )
        slots = self._streams.describe()
        _check_slots(slots, world)
        # If each message has one batch, twice as many messages as streams wait: one of each stream is requested, one
        # batch waits for room in the queue, and the others are in the queue.
        capacity = min(max(2, service._num_streams - 1), _MAX_CAPACITY)
        source, queue = feed(
            capacity,
            slots.shapes,
            dtypes=slots.dtypes,
            lod_levels=slots.lod_levels,
            names=slots.names or None,
            as_dict=as_dict,
            restartable=True,
        )
        self._reader: Reader = source if place is None else source.double_buffer(place)
        self._feeder = Feeder(queue.producer(), self._streams, service._num_streams, source.name)

    @property
    def reader(self) -> Reader:
        """The reader of the queue that batches arrive in, to read single batches from. Its state is not enough."""
        return self._reader

    def __iter__(self) -> Iterator[Any]:
        yield from self._reader

    def __next__(self) -> Any:
        return next(self._reader)

    def reset(self) -> None:
        """Begin the next pass."""
        self._feeder.reset(self._reader.reset)

    def stats(self) -> dict[str, Any]:
        """Return the progress of this trainer.

        Returns
        -------
        dict
            ``pass``; ``batches`` and ``bytes``, which have arrived; ``bytes_held``, of messages that are being
            delivered; ``retries``, of requests that went to another worker; and ``waited_seconds``, in which the next
            message was not ready. All but the first are metrics of Ray too, such as ``pyfeed_feed_waited_seconds``,
            with the tags ``service`` and ``rank``.
        """
        return dict(self._streams.progress)

    def state_dict(self) -> dict[str, Any]:
        """Return the position behind the last delivered batch.

        Returns
        -------
        dict
            Strings, numbers, lists and dicts. All trainers have the same state after the same number of batches.
        """
        state = self._reader.state_dict()
        position = self._feeder.position(state["pass"], _delivered(state))
        return {
            "v": _STATE_VERSION,
            "reader": state,
            "turn": position.turn,
            "streams": [
                {"pass": s.at.pass_id, "number": s.at.number, "skip": s.skip}
                | ({} if s.at.state is None else {"state": decode(s.at.state)})
                for s in position.streams
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on at a saved position, also with another number of trainers.

        Raises
        ------
        InvalidArgument
            `state` is no state, or one of a later release.
        StateError
            The state is one of a service with another number of streams.
        """
        position = _position_of(state, self._num_streams)
        saved = state["reader"]
        self._feeder.load(position, _delivered(saved), lambda: self._reader.load_state_dict(saved))

    def close(self) -> None:
        """End the reader. Batches that were delivered stay valid."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<FeedReader of {self._text}>"


def _check_slots(slots: Description, world: int) -> None:
    """Refuse slots without rows, if batches are divided among trainers."""
    for slot, (shape, levels) in enumerate(zip(slots.shapes, slots.lod_levels, strict=True)):
        if world > 1 and len(shape) == 0 and levels == 0:
            raise InvalidArgument(
                f"world: expected 1, or rows in each slot, to divide among {world} trainers, found scalars in "
                f"{slot_name(slot, slots.names)}: make_reader has to return a reader of batches"
            )


def _delivered(state: Mapping[str, Any]) -> int:
    """Return the number of batches of the pass that the state of a reader counts."""
    return int(state.get("n", 0))


def _position_of(state: Any, num_streams: int) -> FeedPosition:
    if not isinstance(state, Mapping) or "v" not in state:
        _arguments.refuse("state", "a dict that state_dict() has returned", state, InvalidArgument)
    if state["v"] != _STATE_VERSION:  # before the other fields, which a later release may have changed
        raise InvalidArgument(f"state: expected version {_STATE_VERSION}, found {state['v']}, of a later release")
    try:
        position = FeedPosition(
            int(state["reader"]["pass"]),
            [
                StreamPosition(
                    Position(int(s["pass"]), int(s["number"]), encode(s["state"]) if "state" in s else None),
                    int(s["skip"]),
                )
                for s in state["streams"]
            ],
            int(state["turn"]),
        )
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidArgument(f"state: expected a dict that state_dict() has returned: {error!r}") from error
    saved = len(position.streams)
    if saved != num_streams:
        raise StateError(f"num_streams: expected {saved}, as when the state was saved, found {num_streams}")
    if not 0 <= position.turn < num_streams:
        raise InvalidArgument(f"state: turn: expected a stream, 0 to {num_streams - 1}, found {position.turn}")
    return position
