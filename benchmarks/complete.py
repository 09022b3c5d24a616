"""Checks that a run has figures for every way that the kept results have figures for.

    python benchmarks/complete.py build/bench-peers [--kept benchmarks/results]

A peer that could not be installed, or that fails where it once worked, leaves a gap in the tables that is easy to
overlook. Every gap is printed as "workload, row, way: reason", and the exit status is 1 if there is one. Workloads that
the folder has no results of are gaps too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

Ways = dict[str, dict[str, Any]]  # by name
Rows = dict[str, Ways]  # by name


def rows(folder: Path, workload: str) -> Rows:
    """The rows of a workload, each with its ways; empty if there are no results of it."""
    path = folder / f"{workload}.json"
    if not path.exists():
        return {}
    return {row["row"]: {way["way"]: way for way in row["ways"]} for row in json.loads(path.read_text())["rows"]}


def gaps(kept: Rows, found: Rows) -> Iterator[str]:
    """Each way with figures in `kept` that has none in `found`, and the reason."""
    for row, ways in kept.items():
        if row not in found:
            yield f"{row}: the row was not run"
            continue
        for name, way in ways.items():
            if "values" not in way:
                continue
            now = found[row].get(name, {})
            if "values" not in now:
                yield f"{row}, {name}: {now.get('failed') or now.get('not offered') or 'the way was not run'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the results to check")
    parser.add_argument(
        "--kept", type=Path, default=ROOT / "benchmarks" / "results", help="the results to compare with"
    )
    parser.add_argument("--workloads", default="batches,files,cold_start,interruption,training_loop")
    args = parser.parse_args()
    found = [
        f"{workload}, {gap}"
        for workload in args.workloads.split(",")
        for gap in gaps(rows(args.kept, workload), rows(args.folder, workload))
    ]
    for gap in found:
        print(gap)
    print(f"{len(found)} ways have figures in {args.kept} and none in {args.folder}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
