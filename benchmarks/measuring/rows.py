"""A row of a table: ways that take turns in one task."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from .trainer import Failed, NotOffered, Timed, Trainer, start_tracker

OURS, PEER, LIMIT = "ours", "peer", "limit"


@dataclass(frozen=True)
class Way:
    """One way to do a row's task.

    Attributes
    ----------
    name : str
        As it stands in the table.
    settings : mapping of str to callable
        What is to be tried, the fastest of which is measured. Each makes a `Timed` in the way's own process; picklable.
    kind : {"peer", "ours", "limit"}
        A limit is what no way can be faster than, since it does only a part of the work.
    """

    name: str
    settings: Mapping[str, Callable[[], Timed]]
    kind: str = PEER


@dataclass(frozen=True)
class Row:
    """A task, and the ways to do it.

    Attributes
    ----------
    name : str
        As it stands in the table.
    ways : list of Way
    amount : float
        What one unit of work counts in the row's `unit`, such as the GB of a batch.
    unit : str
        Of the figures: GB/s, thousands of batches a second, ….
    cores : int
        How many of the machine's cores each way may use; 0: all.
    whole : bool
        A unit is a whole pass: one is a turn. Otherwise turns have as many units as fill the time.
    """

    name: str
    ways: list[Way]
    amount: float
    unit: str
    cores: int = 0
    whole: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class _Started:
    """The processes of a way, one a setting, and why there is none for some of them."""

    trainers: list[tuple[str, Trainer]]
    failures: dict[str, Failed | NotOffered] = field(default_factory=dict)


_took: dict[str, float] = {}  # seconds to start a way, the last time: the slowest are begun with


def _start(way: Way, row: Row, places: SimpleQueue[int], ended: threading.Event) -> _Started:
    started = _Started([])
    began = time.monotonic()
    for setting, make in way.settings.items():
        place = places.get()
        try:
            if not ended.is_set():
                started.trainers.append((setting, Trainer(make, row.cores, place)))
        except (Failed, NotOffered) as error:
            started.failures[setting] = error
        finally:
            places.put(place)
    _took[way.name] = time.monotonic() - began
    return started


def _start_all(row: Row) -> list[_Started]:
    """Start as many ways at a time as there are cores, which is most of what a row takes.

    The settings of a way are started one after another, since they may write the same files.
    """
    start_tracker()
    cores = len(os.sched_getaffinity(0))
    places: SimpleQueue[int] = SimpleQueue()
    for place in range(cores):
        places.put(place)
    ended = threading.Event()
    with ThreadPoolExecutor(cores) as pool:
        slowest = sorted(row.ways, key=lambda way: -_took.get(way.name, 0))
        starting = {way.name: pool.submit(_start, way, row, places, ended) for way in slowest}
        try:
            return [starting[way.name].result() for way in row.ways]
        except BaseException:
            ended.set()
            while wait(starting.values(), 0.05).not_done:
                for trainer in list(Trainer.running):
                    trainer.kill()  # whoever waits for it is told
            raise


def _close(trainers: Iterable[Trainer]) -> None:
    """Close them together: some take a second or more to tidy up."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(Trainer.close, trainers))


@dataclass
class _Candidate:
    way: Way
    setting: str
    trainer: Trainer
    units: int
    rate: float
    failures: Mapping[str, str] = field(default_factory=dict)  # of other settings


def _rate(trainer: Trainer, row: Row, seconds: float) -> float:
    """Units a second, roughly."""
    count = 1
    while (took := trainer.turn(count).seconds) < seconds / 4 and not row.whole:
        count *= 4
    return count / took


def _fastest(way: Way, started: _Started, row: Row, seconds: float) -> _Candidate:
    best: _Candidate | None = None
    for setting, trainer in started.trainers:
        try:
            alone = row.whole and len(started.trainers) == 1  # there is nothing to be found out
            rate = 1.0 if alone else _rate(trainer, row, seconds)
        except Failed as error:
            started.failures[setting] = error
            continue
        found = _Candidate(way, setting, trainer, 1 if row.whole else max(1, round(rate * seconds)), rate)
        if best is None or rate > best.rate:
            best = found
    if best is None:
        raise next(iter(started.failures.values()))
    best.failures = {setting: str(error) for setting, error in started.failures.items() if isinstance(error, Failed)}
    return best


def measure(row: Row, runs: int, seconds: float) -> dict[str, Any]:
    """The figures of a row, run by run.

    All ways are started first, and their settings tried, one at a time. In each run all ways have one turn, while the
    others are stopped; every other run in the opposite order. A machine that slows down then slows them all.

    Parameters
    ----------
    runs : int
    seconds : float
        Of a turn, roughly.
    """
    candidates: list[_Candidate] = []
    ways: list[dict[str, Any]] = []
    turns: dict[str, list[Any]] = {}
    try:
        for way, started in zip(row.ways, _start_all(row), strict=True):
            try:
                candidates.append(_fastest(way, started, row, seconds))
            except NotOffered as error:
                ways.append({"way": way.name, "kind": way.kind, "not offered": str(error)})
            except Failed as error:
                ways.append({"way": way.name, "kind": way.kind, "failed": str(error)})
        _close(Trainer.running - {found.trainer for found in candidates})
        for run in range(runs):
            for found in candidates if run % 2 == 0 else reversed(candidates):
                try:
                    turns.setdefault(found.way.name, []).append(found.trainer.turn(found.units))
                except Failed as error:
                    turns[found.way.name] = []
                    ways.append({"way": found.way.name, "kind": found.way.kind, "failed": str(error)})
                    found.trainer.close()
            candidates = [found for found in candidates if found.trainer in Trainer.running]
    finally:
        _close(list(Trainer.running))
    for found in candidates:
        mine = turns[found.way.name]
        ways.append(
            {
                "way": found.way.name,
                "kind": found.way.kind,
                "setting": found.setting,
                "values": [found.units * row.amount / turn.seconds for turn in mine],
                "cpu seconds a unit": [turn.cpu_seconds / found.units for turn in mine],
                "peak bytes": max(turn.peak_bytes for turn in mine),
            }
        )
        if found.failures:
            ways[-1]["failed settings"] = found.failures
        if all(turn.waited is not None for turn in mine):
            ways[-1]["waited"] = [turn.waited / turn.seconds for turn in mine]
    return {
        "row": row.name,
        "unit": row.unit,
        "better": "higher",
        "cores": row.cores,
        "parameters": dict(row.parameters),
        "ways": ways,
    }
