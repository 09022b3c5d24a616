"""A row of a table: ways that take turns in one task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .trainer import Failed, NotOffered, Timed, Trainer

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
class _Candidate:
    way: Way
    setting: str
    trainer: Trainer
    units: int
    rate: float


def _rate(trainer: Trainer, row: Row, seconds: float) -> float:
    """Units a second, roughly."""
    count = 1
    while (took := trainer.turn(count).seconds) < seconds / 4 and not row.whole:
        count *= 4
    return count / took


def _fastest(way: Way, row: Row, seconds: float) -> _Candidate:
    best: _Candidate | None = None
    failure: Exception | None = None
    for setting, make in way.settings.items():
        try:
            trainer = Trainer(make, row.cores)
            try:
                rate = _rate(trainer, row, seconds)
            except Failed:
                trainer.close()
                raise
        except (Failed, NotOffered) as error:
            failure = failure or error
            continue
        found = _Candidate(way, setting, trainer, 1 if row.whole else max(1, round(rate * seconds)), rate)
        if best is None:
            best = found
        else:
            best, slower = (found, best) if rate > best.rate else (best, found)
            slower.trainer.close()
    if best is None:
        assert failure is not None
        raise failure
    return best


def measure(row: Row, runs: int, seconds: float) -> dict[str, Any]:
    """The figures of a row, run by run.

    In each run all ways have one turn, while the others are stopped; every other run in the opposite order. A machine
    that slows down then slows them all.

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
        for way in row.ways:
            try:
                candidates.append(_fastest(way, row, seconds))
            except NotOffered as error:
                ways.append({"way": way.name, "kind": way.kind, "not offered": str(error)})
            except Failed as error:
                ways.append({"way": way.name, "kind": way.kind, "failed": str(error)})
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
        for trainer in list(Trainer.running):
            trainer.close()
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
