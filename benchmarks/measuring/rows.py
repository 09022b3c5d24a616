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

from .trainer import Failed, NotOffered, Timed, Trainer, Turn, start_tracker

OURS, PEER, LIMIT = "ours", "peer", "limit"
TRIALS = 3  # of settings that are near each other
ROUNDS = 8  # turns of a way in a run, at most: an even number, so that each is as often the first as the last


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
    """

    name: str
    ways: list[Way]
    amount: float
    unit: str
    cores: int = 0
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


@dataclass(eq=False)
class _Candidate:
    """A way with the setting that is measured."""

    way: Way
    setting: str
    trainer: Trainer
    rate: float  # units a second, roughly
    failures: Mapping[str, str] = field(default_factory=dict)  # of other settings
    runs: list[_Run] = field(default_factory=list)


@dataclass
class _Run:
    """What the turns of one run come to."""

    units: int = 0
    seconds: float = 0
    cpu_seconds: float = 0
    peak_bytes: int = 0
    waited: float | None = 0

    def add(self, units: int, turn: Turn) -> None:
        self.units += units
        self.seconds += turn.seconds
        self.cpu_seconds += turn.cpu_seconds
        self.peak_bytes = max(self.peak_bytes, turn.peak_bytes)
        self.waited = None if self.waited is None or turn.waited is None else self.waited + turn.waited

    def waits(self) -> float | None:
        """The share of the time for data, if the way says so."""
        return None if self.waited is None else self.waited / self.seconds


def _rate(trainer: Trainer, seconds: float) -> float:
    """Units a second, roughly."""
    count = 1
    while (took := trainer.turn(count).seconds) < seconds / 4:
        count *= 4
    return count / took


def _fastest(way: Way, started: _Started, seconds: float) -> _Candidate:
    """The setting that was the fastest once. Those that are near it are tried again: they may have been unlucky."""
    found = [_Candidate(way, setting, trainer, 0.0) for setting, trainer in started.trainers]
    for trial in range(TRIALS):
        near = [one for one in found if one.rate >= max(each.rate for each in found) / 2]
        if trial > 0 and len(near) == 1:
            break
        for one in near:
            try:
                one.rate = max(one.rate, _rate(one.trainer, seconds))
            except Failed as error:
                started.failures[one.setting] = error
                found.remove(one)
    if not found:
        raise next(iter(started.failures.values()))
    best = max(found, key=lambda one: one.rate)
    best.failures = {setting: str(error) for setting, error in started.failures.items() if isinstance(error, Failed)}
    return best


def _rounds(candidates: Iterable[_Candidate], seconds: float) -> list[list[tuple[_Candidate, int]]]:
    """The rounds of a run: who has a turn in each, and of how many units.

    Those that may be the first have one in every round, unless a unit takes longer: short ones in quick alternation,
    so that whatever else the machine does comes to all alike. Others have a long one in the first round.
    """
    candidates = list(candidates)
    fastest = max((found.rate for found in candidates if found.way.kind != LIMIT), default=0)
    rounds: list[list[tuple[_Candidate, int]]] = [[] for _ in range(ROUNDS)]
    for found in candidates:
        share = found.rate * seconds
        turns = min(ROUNDS, max(1, int(share))) if found.rate >= fastest / 2 else 1
        for round_ in rounds[:turns]:
            round_.append((found, max(1, round(share / turns))))
    return rounds


def measure(row: Row, runs: int, seconds: float) -> dict[str, Any]:
    """The figures of a row, run by run.

    All ways are started first, and their settings tried, one at a time. In each run they take turns, while the others
    are stopped; every other round in the opposite order. A machine that slows down then slows them all.

    Parameters
    ----------
    runs : int
    seconds : float
        Of a way in a run, roughly; at least one unit.
    """
    candidates: list[_Candidate] = []
    ways: list[dict[str, Any]] = []
    try:
        for way, started in zip(row.ways, _start_all(row), strict=True):
            try:
                candidates.append(_fastest(way, started, seconds))
            except NotOffered as error:
                ways.append({"way": way.name, "kind": way.kind, "not offered": str(error)})
            except Failed as error:
                ways.append({"way": way.name, "kind": way.kind, "failed": str(error)})
        _close(Trainer.running - {found.trainer for found in candidates})
        rounds = _rounds(candidates, seconds)
        for run in range(runs):
            for found in candidates:
                found.runs.append(_Run())
            for number, round_ in enumerate(rounds, run):
                for found, units in round_ if number % 2 == 0 else reversed(round_):
                    if found not in candidates:
                        continue
                    try:
                        found.runs[-1].add(units, found.trainer.turn(units))
                    except Failed as error:
                        candidates.remove(found)
                        ways.append({"way": found.way.name, "kind": found.way.kind, "failed": str(error)})
                        found.trainer.close()
    finally:
        _close(list(Trainer.running))
    for found in candidates:
        mine = found.runs
        ways.append(
            {
                "way": found.way.name,
                "kind": found.way.kind,
                "setting": found.setting,
                "values": [run.units * row.amount / run.seconds for run in mine],
                "cpu seconds a unit": [run.cpu_seconds / run.units for run in mine],
                "peak bytes": max(run.peak_bytes for run in mine),
            }
        )
        if found.failures:
            ways[-1]["failed settings"] = found.failures
        waits = [run.waits() for run in mine]
        if None not in waits:
            ways[-1]["waited"] = waits
    return {
        "row": row.name,
        "unit": row.unit,
        "better": "higher",
        "cores": row.cores,
        "parameters": dict(row.parameters),
        "ways": ways,
    }
