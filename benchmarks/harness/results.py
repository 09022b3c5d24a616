"""Prints the measurements of a workload, and writes them to a file."""

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

from .cases import LIMIT, PEER, PYFEED

PACKAGES = (
    *("pyarrayfeed", "numpy", "torch", "torchdata", "tensorflow-cpu", "grain", "spdl-core", "spdl-io", "mlx-data"),
    *("webdataset", "mosaicml-streaming", "datasets", "ray", "paddlepaddle", "pyarrow", "pandas"),
    *("nvidia-dali-cuda120", "turboloader", "tensorstore", "litdata", "polars", "duckdb", "orjson"),
)


def options(description: str | None, runs: int = 5, seconds: float = 0.5) -> argparse.ArgumentParser:
    """Make the parser with the options that all scripts have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--missing", action="store_true", help="keep the cases of the same command in the --json file")
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--seconds", type=float, default=seconds, help="of each library in each run")
    parser.add_argument(
        "--libraries", default="references", help="references, all, or names of libraries, separated by commas"
    )
    parser.add_argument(
        "--cases", default="", help="run only cases with one of these texts in their names, separated by commas"
    )
    return parser


def selected(names: str, name: str, references: Iterable[str]) -> bool:
    """Whether `--libraries` selects a library. References are the libraries that need no additional package."""
    if names == "all":
        return True
    return name in (references if names == "references" else names.split(","))


def compare(case: dict[str, Any]) -> dict[str, Any]:
    """Compare pyfeed with the best peer and with the limit, run by run.

    Returns
    -------
    dict
        ``pyfeed``: the name of pyfeed's best line. ``peer``: the name of the best peer. ``x peer``: [median, least,
        most] of the ratios, which say how many times as good pyfeed is. ``limit`` and ``x limit``: the same for the
        nearest limit. A key is missing if the case has no values for it.
    """
    libraries = {library["library"]: library for library in case["libraries"] if "values" in library}
    lines = [name for name, library in libraries.items() if library["kind"] == PYFEED]
    if not lines:
        return {}
    higher = case["better"] == "higher"
    best = (max if higher else min)(lines, key=lambda name: statistics.median(libraries[name]["values"]))
    out: dict[str, Any] = {PYFEED: best}
    for kind in (PEER, LIMIT):
        others = [name for name, library in libraries.items() if library["kind"] == kind]
        if not others:
            continue
        pick = max if higher == (kind == PEER) else min
        other = pick(others, key=lambda name: statistics.median(libraries[name]["values"]))
        ratios = paired_ratios(libraries[best]["values"], libraries[other]["values"], case["better"])
        out[kind] = other
        out[f"x {kind}"] = [statistics.median(ratios), min(ratios), max(ratios)]
    return out


def paired_ratios(values: Sequence[float], others: Sequence[float], better: str) -> list[float]:
    """How many times as good the first values are, run by run. If both values of a run are 0, the ratio is 1."""
    pairs = zip(values, others, strict=False) if better == "higher" else zip(others, values, strict=False)
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
    """The options without --json, its file, and --missing."""
    options = [word for word, before in zip(words, ["", *words], strict=False) if before != "--json"]
    return [word for word in options if not word.startswith("--json") and word != "--missing"]


class Results:
    """The measurements of one workload. Each case is printed and written when it is added.

    Parameters
    ----------
    workload : str
        The name of its script.
    args : argparse.Namespace
        The parsed `options`.
    """

    def __init__(self, workload: str, args: argparse.Namespace) -> None:
        self._path: Path | None = args.json
        self._results: dict[str, Any] = {
            "workload": workload,
            "command": shlex.join(["python", f"benchmarks/{workload}.py", *_without_path(sys.argv[1:])]),
            "machine": machine(),
            "runs": args.runs,
            "cases": [],
        }
        if args.missing:
            self._results["cases"] = self._kept()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # runs the cleanup of stopped processes
        here = dict(self._results["machine"])
        print(", ".join(f"{name} {version}" for name, version in here.pop("packages").items()))
        print(", ".join(f"{name} {value}" for name, value in here.items()), flush=True)

    def _kept(self) -> list[Any]:
        """The cases in the file, which must come from the same command, machine and commit."""
        if self._path is None:
            raise SystemExit("--missing: expected --json with the file whose cases are kept")
        if not self._path.exists():
            return []
        kept = json.loads(self._path.read_text())
        for key in ("workload", "command", "runs", "machine"):
            if kept[key] != self._results[key]:
                raise SystemExit(f"--missing: {self._path}: expected {key} {self._results[key]}, found {kept[key]}")
        return list(kept["cases"])

    def has(self, *cases: str) -> bool:
        """Whether the results contain all these cases already, because of --missing."""
        return {*cases} <= {case["case"] for case in self._results["cases"]}

    def add(self, case: dict[str, Any]) -> None:
        """Keep a case that `measure` returned, and print it. It replaces a case of the same name."""
        self._results["cases"] = [kept for kept in self._results["cases"] if kept["case"] != case["case"]]
        self._results["cases"].append(case)
        print(f"\n{case['case']}, {case['unit']}: median (least to most)")
        for library in sorted(case["libraries"], key=_order(case)):
            print(f"  {library['library']:22}", _line(library), flush=True)
        ratios = compare(case)
        for kind in (PEER, LIMIT):
            if kind in ratios:
                median, least, most = ratios[f"x {kind}"]
                print(f"  {median:.2f} x {ratios[kind]} ({least:.2f} to {most:.2f})", flush=True)
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = self._path.with_name(f"{self._path.name}.unfinished")
            unfinished.write_text(json.dumps(self._results, indent=1) + "\n")
            unfinished.replace(self._path)  # so that the file is complete at any time


def _order(case: dict[str, Any]) -> Any:
    sign = -1 if case["better"] == "higher" else 1

    def key(library: dict[str, Any]) -> tuple[bool, float]:
        return "values" not in library, sign * statistics.median(library.get("values", [0]))

    return key


def _line(library: dict[str, Any]) -> str:
    """The measurements of a library on one line, or the reason why it has none."""
    if "failed" in library:
        return f"failed: {library['failed']}"
    if "values" not in library:
        return f"not supported: {library['not_supported']}"
    values = library["values"]
    text = f"{statistics.median(values):9.4g} ({min(values):.4g} to {max(values):.4g})"
    if "peak_bytes" in library:
        text += f"  {library['peak_bytes'] >> 20:5} MiB"
    failures = [f"\n    {setting} failed: {reason}" for setting, reason in library.get("failed_settings", {}).items()]
    return f"{text}  {library.get('setting', '')}".rstrip() + "".join(failures)
