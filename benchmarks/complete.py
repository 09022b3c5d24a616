"""Checks that new results have values wherever the kept results have them.

    python benchmarks/complete.py build/bench-peers [--kept benchmarks/results]

A peer that could not be installed, or that fails where it once worked, leaves a gap in the tables that is easy to
overlook. Every gap is printed as "workload, case, library: reason", and the exit status is 1 if there is one. Workloads
without a file of results are gaps too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

Libraries = dict[str, dict[str, Any]]  # by name
Cases = dict[str, Libraries]  # by name


def load(folder: Path, workload: str) -> Cases:
    """The cases of a workload, each with its libraries; empty if there is no file of results."""
    path = folder / f"{workload}.json"
    if not path.exists():
        return {}
    cases = json.loads(path.read_text())["cases"]
    return {case["case"]: {library["library"]: library for library in case["libraries"]} for case in cases}


def gaps(kept: Cases, found: Cases) -> Iterator[str]:
    """Each library with values in `kept` that has none in `found`, and the reason."""
    for case, libraries in kept.items():
        if case not in found:
            yield f"{case}: the case was not run"
            continue
        for name, library in libraries.items():
            if "values" not in library:
                continue
            now = found[case].get(name, {})
            if "values" not in now:
                yield f"{case}, {name}: {now.get('failed') or now.get('not_supported') or 'the library was not run'}"


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
        for gap in gaps(load(args.kept, workload), load(args.folder, workload))
    ]
    for gap in found:
        print(gap)
    print(f"{len(found)} lines have values in {args.kept} and none in {args.folder}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
