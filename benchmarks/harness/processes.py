"""Stops, continues and ends a process with its descendants, and reads their processor time and memory from /proc."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
TICK = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    cpu_seconds: float  # user and system time, including that of processes that have ended
    peak_bytes: int  # memory; a page shared by several processes counts once


class Member(NamedTuple):
    """A process. The start time distinguishes it from a later process with the same PID."""

    pid: int
    started: str


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def tree(root: int) -> list[Member]:
    """The process and its descendants, parents first."""
    members: dict[int, Member] = {}
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdecimal() and (stat := _stat(pid := int(entry.name))) is not None:
            members[pid] = Member(pid, stat[19])
            children.setdefault(int(stat[1]), []).append(pid)
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return [members[pid] for pid in found if pid in members]


def session(leader: int) -> list[Member]:
    """All processes of a session except its leader, including those whose parents have ended."""
    numbers = (int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal())
    found = ((pid, stat) for pid in numbers if pid != leader and (stat := _stat(pid)) is not None)
    return [Member(pid, stat[19]) for pid, stat in found if int(stat[3]) == leader]


def send_signal(root: int, number: signal.Signals) -> None:
    """Send a signal to the process and its descendants, including those that start meanwhile."""
    signalled: set[Member] = set()
    while new := [member for member in tree(root) if member not in signalled]:
        signalled.update(new)
        for member in new:
            _signal(member, number)


def kill(members: list[Member]) -> None:
    for member in members:
        _signal(member, signal.SIGKILL)


def _signal(member: Member, number: signal.Signals) -> None:
    if (stat := _stat(member.pid)) is not None and stat[19] == member.started:
        try:
            os.kill(member.pid, number)
        except ProcessLookupError:
            pass


def pin(root: int, cores: set[int]) -> None:
    """Restrict all threads of the process and its descendants to these cores. The processes should be stopped."""
    for pid, _ in tree(root):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in (PROC / str(pid) / "task").iterdir():
                os.sched_setaffinity(int(task.name), cores)


def usage(root: int) -> Usage:
    """The resources that the process and its descendants have used so far. The processes should be stopped."""
    ticks = peak = 0
    for pid, _ in tree(root):
        if (stat := _stat(pid)) is None:
            continue
        ticks += sum(map(int, stat[11:15]))
        try:
            rollup = _kilobytes(PROC / str(pid) / "smaps_rollup")
            status = _kilobytes(PROC / str(pid) / "status")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        # Pss divides a shared page among the processes that map it. Pages that were released since the peak count in
        # full, since most of them were not shared.
        peak += rollup.get("Pss", 0) + max(0, status.get("VmHWM", 0) - status.get("VmRSS", 0))
    return Usage(ticks / TICK, peak * 1024)


def _kilobytes(path: Path) -> dict[str, int]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0][:-1]: int(words[1]) for words in lines if len(words) == 3 and words[2] == "kB"}
