"""Measures one case of a workload with several libraries in turns."""

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
TRIALS = 3  # how often settings of similar speed are tried
ROUNDS = 8  # most turns of a library in a run; even, so that each library is as often first as last


@dataclass(frozen=True)
class Library:
    """One way to run a case with one library. A library may appear several times, with different ways to use it.

    Attributes
    ----------
    name : str
        The name in the table.
    settings : mapping of str to callable
        The settings to try; the fastest one is measured. Each callable is picklable, and makes a `Timed` in its own
        process.
    kind : {"peer", "pyfeed", "limit"}
        A limit is not a library. It does only a part of the work, so no library can be faster.
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
        The name in the table.
    libraries : list of Library
    amount : float
        The size of one unit of work, in terms of `unit`: for GB/s, the GB of a batch.
    unit : str
        The unit of the measurements, such as GB/s or thousands of batches per second.
    cores : int
        The number of cores of the machine that each library may use; 0: all.
    parameters : mapping
        The parameters of the workload, which are kept with the results.
    """

    name: str
    libraries: list[Library]
    amount: float
    unit: str
    cores: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class _Started:
    """The processes of a library, one for each setting, and the errors of settings that could not start."""

    runners: list[tuple[str, Runner]]
    failures: dict[str, Failed | NotSupported] = field(default_factory=dict)


_start_seconds: dict[str, float] = {}  # by library, the last start; the slowest libraries start first


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
    """Start the libraries, as many at a time as there are cores: most of the time of a case is spent in starting.

    The settings of one library start one after another, since they may write the same files.
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
                    runner.kill()  # makes the thread that waits for the runner fail
            raise


def _close(runners: Iterable[Runner]) -> None:
    """Close the runners concurrently: the cleanup of some takes a second or more."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(Runner.close, runners))


@dataclass(eq=False)
class _Candidate:
    """A library with the setting to measure."""

    library: Library
    setting: str
    runner: Runner
    rate: float  # units per second, an estimate
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
        """The share of the time for which the consumer waited for data; None if the library does not measure it."""
        return None if self.waited is None else self.waited / self.seconds


def _rate(runner: Runner, seconds: float) -> float:
    """Estimate the units per second."""
    count = 1
    while (elapsed := runner.turn(count).seconds) < seconds / 4:
        count *= 4
    return count / elapsed


def _fastest(library: Library, started: _Started, seconds: float) -> _Candidate:
    """Find the fastest setting of a library. Settings of similar speed are tried several times, to reduce chance."""
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
    """Plan the rounds of a run: the candidates that have a turn in each round, and the units of the turn.

    A candidate that may be the fastest has a short turn in every round, unless one unit takes longer. The turns
    alternate quickly, so that a disturbance by another program affects all of these candidates. Every other candidate
    has one long turn in the first round.
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
    """Measure a case.

    First, all libraries start, and their settings are tried one at a time. In each run the libraries take turns, while
    all others are stopped. Every other round uses the opposite order. This way, a time in which the machine is slower
    affects all libraries.

    Parameters
    ----------
    case : Case
    runs : int
    seconds : float
        The approximate time of each library in a run. A library does at least one unit.

    Returns
    -------
    dict
        The case, with one value of each library for each run.
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
