"""Checks that new results have a value for every library and case for which the kept results have one.

    python benchmarks/complete.py build/bench-peers [--kept benchmarks/results]

If a peer could not be installed, or fails in a case that once worked, its value is missing in the tables, which is easy
to overlook. The script prints every missing value as "workload, case, library: reason". The exit status is 1 if a value
is missing. All values of a workload without a file of results are missing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from report import WORKLOADS

ROOT = Path(__file__).parents[1]

Libraries = dict[str, dict[str, Any]]  # by name
Cases = dict[str, Libraries]  # by name


def load(folder: Path, workload: str) -> Cases:
    """The cases of a workload, each with its libraries. Empty if the workload has no file of results."""
    path = folder / f"{workload}.json"
    if not path.exists():
        return {}
    cases = json.loads(path.read_text())["cases"]
    return {case["case"]: {library["library"]: library for library in case["libraries"]} for case in cases}


def gaps(kept: Cases, found: Cases) -> Iterator[str]:
    """Yield each library that has values in `kept` and none in `found`, with the reason."""
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
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
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
