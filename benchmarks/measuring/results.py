"""Results: the figures of a workload, as they are shown and kept."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import platform
import shlex
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .rows import LIMIT, OURS, PEER

PACKAGES = (
    *("pyfeed", "numpy", "torch", "torchdata", "tensorflow-cpu", "grain", "spdl-core", "spdl-io", "mlx-data"),
    *("webdataset", "mosaicml-streaming", "datasets", "ray", "paddlepaddle", "pyarrow", "pandas"),
)


def options(description: str | None, runs: int = 5, seconds: float = 0.5) -> argparse.ArgumentParser:
    """The options that every workload has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--missing", action="store_true", help="keep what the file of --json has of the same command")
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--seconds", type=float, default=seconds, help="of each way in each run")
    parser.add_argument("--ways", default="references", help="references, all, or names of ways, with commas between")
    parser.add_argument("--rows", default="", help="only those with one of these texts in their names, with commas")
    return parser


def chosen(asked: str, name: str, references: Iterable[str]) -> bool:
    """Whether a way is among those that were asked for. References are those that need no package of their own."""
    if asked == "all":
        return True
    return name in (references if asked == "references" else asked.split(","))


def compare(row: dict[str, Any]) -> dict[str, Any]:
    """Ours beside the fastest peer and the limit: medians over runs of the ratios of the same run.

    Returns
    -------
    dict
        ``peer``, the best one's name, ``x peer``, [median, least, most] of how many times as good ours is, and
        ``limit`` and ``x limit``, the nearest of several; what there is of them.
    """
    ways = {way["way"]: way for way in row["ways"] if "values" in way}
    ours = [name for name, way in ways.items() if way["kind"] == OURS]
    if not ours:
        return {}
    higher = row["better"] == "higher"
    best = (max if higher else min)(ours, key=lambda name: statistics.median(ways[name]["values"]))
    out: dict[str, Any] = {"ours": best}
    for kind in (PEER, LIMIT):
        others = [name for name, way in ways.items() if way["kind"] == kind]
        if not others:
            continue
        pick = max if higher == (kind == PEER) else min
        other = pick(others, key=lambda name: statistics.median(ways[name]["values"]))
        ratios = paired(ways[best]["values"], ways[other]["values"], row["better"])
        out[kind] = other
        out[f"x {kind}"] = [statistics.median(ratios), min(ratios), max(ratios)]
    return out


def paired(ours: Sequence[float], others: Sequence[float], better: str) -> list[float]:
    """How many times as good ours is, run by run. Where things are counted both may be 0."""
    pairs = zip(ours, others, strict=False) if better == "higher" else zip(others, ours, strict=False)
    return [a / b if b else 1.0 if a == b else math.inf for a, b in pairs]


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return {
        "cpu": next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), ""),
        "cores": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "commit": _commit(),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    here = Path(__file__).parent
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _without_path(words: list[str]) -> list[str]:
    """The options, but for where the figures go."""
    kept = [word for word, before in zip(words, ["", *words], strict=False) if before != "--json"]
    return [word for word in kept if not word.startswith("--json") and word != "--missing"]


class Results:
    """The figures of one workload, shown when they are found, and written after every row.

    Parameters
    ----------
    workload : str
        Its name: that of its script.
    args : argparse.Namespace
        What `options` has parsed.
    """

    def __init__(self, workload: str, args: argparse.Namespace) -> None:
        self._path: Path | None = args.json
        self._found: dict[str, Any] = {
            "workload": workload,
            "command": shlex.join(["python", f"benchmarks/{workload}.py", *_without_path(sys.argv[1:])]),
            "machine": machine(),
            "runs": args.runs,
            "rows": [],
        }
        if args.missing:
            self._found["rows"] = self._kept()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # or processes that are stopped would stay
        here = dict(self._found["machine"])
        print(", ".join(f"{name} {version}" for name, version in here.pop("packages").items()))
        print(", ".join(f"{name} {value}" for name, value in here.items()), flush=True)

    def _kept(self) -> list[Any]:
        """The rows that the file has, which must be of the same command, machine and commit."""
        if self._path is None:
            raise SystemExit("--missing: expected --json with the file whose rows are kept")
        if not self._path.exists():
            return []
        kept = json.loads(self._path.read_text())
        for what in ("workload", "command", "runs", "machine"):
            if kept[what] != self._found[what]:
                raise SystemExit(f"--missing: {self._path}: expected {what} {self._found[what]}, found {kept[what]}")
        return list(kept["rows"])

    def has(self, *rows: str) -> bool:
        """Whether all those rows are there, from the file of --missing."""
        return {*rows} <= {row["row"] for row in self._found["rows"]}

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row, as `measure` returns it, and show it. One of the same name is replaced."""
        self._found["rows"] = [kept for kept in self._found["rows"] if kept["row"] != row["row"]]
        self._found["rows"].append(row)
        print(f"\n{row['row']}, {row['unit']}: median (least to most)")
        for way in sorted(row["ways"], key=_order(row)):
            print(f"  {way['way']:22}", _said(way), flush=True)
        ratios = compare(row)
        for kind in (PEER, LIMIT):
            if kind in ratios:
                median, least, most = ratios[f"x {kind}"]
                print(f"  {median:.2f} x {ratios[kind]} ({least:.2f} to {most:.2f})", flush=True)
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = self._path.with_name(f"{self._path.name}.unfinished")
            unfinished.write_text(json.dumps(self._found, indent=1) + "\n")
            unfinished.replace(self._path)  # whole at any time


def _order(row: dict[str, Any]) -> Any:
    sign = -1 if row["better"] == "higher" else 1

    def key(way: dict[str, Any]) -> tuple[bool, float]:
        return "values" not in way, sign * statistics.median(way.get("values", [0]))

    return key


def _said(way: dict[str, Any]) -> str:
    if "values" not in way:
        kind = "failed" if "failed" in way else "not offered"
        return f"{kind}: {way[kind]}"
    values = way["values"]
    text = f"{statistics.median(values):9.4g} ({min(values):.4g} to {max(values):.4g})"
    if "peak bytes" in way:
        text += f"  {way['peak bytes'] >> 20:5} MiB"
    failures = [f"\n    {setting} failed: {reason}" for setting, reason in way.get("failed settings", {}).items()]
    return f"{text}  {way.get('setting', '')}".rstrip() + "".join(failures)
