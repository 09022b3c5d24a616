"""A case of a workload: libraries that take turns at it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from .runner import Failed, NotSupported, Runner, Timed, Turn, start_resource_tracker

PYFEED, PEER, LIMIT = "pyfeed", "peer", "limit"
TRIALS = 3  # of settings that are near each other
ROUNDS = 8  # turns of a library in a run, at most: an even number, so that each is as often the first as the last


@dataclass(frozen=True)
class Library:
    """How one library runs a case. A library that is used in several manners counts as several.

    Attributes
    ----------
    name : str
        As it stands in the table.
    settings : mapping of str to callable
        The settings to be tried, the fastest of which is measured. Each makes a `Timed` in its own process; picklable.
    kind : {"peer", "pyfeed", "limit"}
        A limit is not a library: it does only a part of the work, so that no library can be faster.
    """

    name: str
    settings: Mapping[str, Callable[[], Timed]]
    kind: str = PEER


@dataclass(frozen=True)
class Case:
    """A workload with its parameters, and the libraries that run it.

    Attributes
    ----------
    name : str
        As it stands in the table.
    libraries : list of Library
    amount : float
        One unit of work in the case's `unit`, such as the GB of a batch.
    unit : str
        Of the measurements: GB/s, thousands of batches a second, ….
    cores : int
        How many of the machine's cores each library may use; 0: all.
    """

    name: str
    libraries: list[Library]
    amount: float
    unit: str
    cores: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class _Started:
    """The processes of a library, one a setting, and why there is none for some of them."""

    runners: list[tuple[str, Runner]]
    failures: dict[str, Failed | NotSupported] = field(default_factory=dict)


_start_seconds: dict[str, float] = {}  # of a library, the last time: the slowest are started first


def _start(library: Library, case: Case, free_cores: SimpleQueue[int], cancelled: threading.Event) -> _Started:
    started = _Started([])
    began = time.monotonic()
    for setting, make in library.settings.items():
        core = free_cores.get()
        try:
            if not cancelled.is_set():
                started.runners.append((setting, Runner(make, case.cores, core)))
        except (Failed, NotSupported) as error:
            started.failures[setting] = error
        finally:
            free_cores.put(core)
    _start_seconds[library.name] = time.monotonic() - began
    return started


def _start_all(case: Case) -> list[_Started]:
    """Start as many libraries at a time as there are cores: starting takes most of a case's time.

    The settings of a library are started one after another, since they may write the same files.
    """
    start_resource_tracker()
    cores = len(os.sched_getaffinity(0))
    free_cores: SimpleQueue[int] = SimpleQueue()
    for core in range(cores):
        free_cores.put(core)
    cancelled = threading.Event()
    with ThreadPoolExecutor(cores) as pool:
        slowest_first = sorted(case.libraries, key=lambda library: -_start_seconds.get(library.name, 0))
        starting = {
            library.name: pool.submit(_start, library, case, free_cores, cancelled) for library in slowest_first
        }
        try:
            return [starting[library.name].result() for library in case.libraries]
        except BaseException:
            cancelled.set()
            while wait(starting.values(), 0.05).not_done:
                for runner in list(Runner.running):
                    runner.kill()  # the thread that waits for it gets an error
            raise


def _close(runners: Iterable[Runner]) -> None:
    """Close them together: some take a second or more to clean up."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(Runner.close, runners))


@dataclass(eq=False)
class _Candidate:
    """A library with the setting that is measured."""

    library: Library
    setting: str
    runner: Runner
    rate: float  # units a second, roughly
    failures: Mapping[str, str] = field(default_factory=dict)  # of other settings
    runs: list[_Run] = field(default_factory=list)


@dataclass
class _Run:
    """The sums over the turns of one run."""

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

    def wait_fraction(self) -> float | None:
        """The share of the time in which the consumer waited for data, if the library's function measures it."""
        return None if self.waited is None else self.waited / self.seconds


def _rate(runner: Runner, seconds: float) -> float:
    """Units a second, roughly."""
    count = 1
    while (elapsed := runner.turn(count).seconds) < seconds / 4:
        count *= 4
    return count / elapsed


def _fastest(library: Library, started: _Started, seconds: float) -> _Candidate:
    """The setting that was the fastest once. Those that are near it are tried again, against chance."""
    found = [_Candidate(library, setting, runner, 0.0) for setting, runner in started.runners]
    for trial in range(TRIALS):
        near = [one for one in found if one.rate >= max(each.rate for each in found) / 2]
        if trial > 0 and len(near) == 1:
            break
        for one in near:
            try:
                one.rate = max(one.rate, _rate(one.runner, seconds))
            except Failed as error:
                started.failures[one.setting] = error
                found.remove(one)
    if not found:
        raise next(iter(started.failures.values()))
    best = max(found, key=lambda one: one.rate)
    best.failures = {setting: str(error) for setting, error in started.failures.items() if isinstance(error, Failed)}
    return best


def _rounds(candidates: Iterable[_Candidate], seconds: float) -> list[list[tuple[_Candidate, int]]]:
    """The rounds of a run: the candidates that have a turn in each, and of how many units.

    Those that may be the first have one in every round, unless a unit takes longer: short ones in quick alternation,
    so that disturbances by other programs are shared by all. Others have one long turn in the first round.
    """
    candidates = list(candidates)
    fastest = max((one.rate for one in candidates if one.library.kind != LIMIT), default=0)
    rounds: list[list[tuple[_Candidate, int]]] = [[] for _ in range(ROUNDS)]
    for one in candidates:
        share = one.rate * seconds
        turns = min(ROUNDS, max(1, int(share))) if one.rate >= fastest / 2 else 1
        for round_ in rounds[:turns]:
            round_.append((one, max(1, round(share / turns))))
    return rounds


def measure(case: Case, runs: int, seconds: float) -> dict[str, Any]:
    """The measurements of a case, run by run.

    All libraries are started first, and their settings tried, one at a time. In each run they take turns, while the
    others are stopped; every other round in the opposite order. A machine that slows down then slows them all.

    Parameters
    ----------
    runs : int
    seconds : float
        Of a library in a run, roughly; at least one unit.
    """
    candidates: list[_Candidate] = []
    libraries: list[dict[str, Any]] = []
    try:
        for library, started in zip(case.libraries, _start_all(case), strict=True):
            try:
                candidates.append(_fastest(library, started, seconds))
            except NotSupported as error:
                libraries.append({"library": library.name, "kind": library.kind, "not_supported": str(error)})
            except Failed as error:
                libraries.append({"library": library.name, "kind": library.kind, "failed": str(error)})
        _close(Runner.running - {one.runner for one in candidates})
        rounds = _rounds(candidates, seconds)
        for run in range(runs):
            for one in candidates:
                one.runs.append(_Run())
            for number, round_ in enumerate(rounds, run):
                for one, units in round_ if number % 2 == 0 else reversed(round_):
                    if one not in candidates:
                        continue
                    try:
                        one.runs[-1].add(units, one.runner.turn(units))
                    except Failed as error:
                        candidates.remove(one)
                        libraries.append({"library": one.library.name, "kind": one.library.kind, "failed": str(error)})
                        one.runner.close()
    finally:
        _close(list(Runner.running))
    for one in candidates:
        libraries.append(
            {
                "library": one.library.name,
                "kind": one.library.kind,
                "setting": one.setting,
                "values": [run.units * case.amount / run.seconds for run in one.runs],
                "cpu_seconds_per_unit": [run.cpu_seconds / run.units for run in one.runs],
                "peak_bytes": max(run.peak_bytes for run in one.runs),
            }
        )
        if one.failures:
            libraries[-1]["failed_settings"] = one.failures
        waits = [run.wait_fraction() for run in one.runs]
        if None not in waits:
            libraries[-1]["wait_fraction"] = waits
    return {
        "case": case.name,
        "unit": case.unit,
        "better": "higher",
        "cores": case.cores,
        "parameters": dict(case.parameters),
        "libraries": libraries,
    }
