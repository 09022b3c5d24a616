"""Compares builds of pyfeed: each build runs the same cases, and the builds take turns.

    python benchmarks/compare_builds.py --build before=FOLDER --build after=FOLDER [--cases "files: npy; batches:"]

A build is a folder that `pip install --no-deps --target FOLDER dist/pyarrayfeed-*.whl` has filled. To make another
build, copy the folder and replace `pyfeed/lib/libpyfeed.so.0` by the output of another `capi/build.sh`. All builds must
have the Python interface that `libraries/pyfeed.py` uses. The script compares the first build with each of the others.
To see how large differences by chance are, give the same folder under two names.

The cases are those of batches.py, files.py, chains.py, training_loop.py and cold_start.py. Their names begin with the
name of the script, such as "files: npy 4 KiB, 1 core"; `--cases` selects the names that contain one of its texts, which
semicolons separate. Every setting of pyfeed is measured, not only the fastest one. If two settings are about equally
fast, chance decides which of them is the fastest, and that would hide a difference between the builds.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import batches
import chains
import cold_start
import files
import training_loop
from harness import PEER, PYFEED, Case, Failed, Library, Results, Timed, measure, options
from harness.programs import case as case_of
from harness.programs import interleave, library_lines
from harness.results import paired_ratios
from workloads.cold_start import Records
from workloads.training import write

METRICS = {
    "first": "first batch from the start of iteration",
    "both": "first batch and its reader",
    "import": "import, over NumPy's",
}


def with_build(folder: str, make: Callable[[], Timed]) -> Timed:
    """Make a `Timed` that uses the pyfeed of a folder, in this process and in the workers that it starts."""
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    import pyfeed

    if not Path(pyfeed.__file__).is_relative_to(folder):
        raise Failed(f"expected pyfeed in {folder}, found {pyfeed.__file__}")
    return make()


def with_builds(case: Case, workload: str, builds: dict[str, str]) -> Case:
    """The case with one library for each setting of pyfeed and each build."""
    first = next(iter(builds))
    libraries = [
        Library(f"{build}: {library.name} {setting}".rstrip(), {"": partial(with_build, folder, make)}, kind)
        for library in case.libraries
        if library.kind == PYFEED
        for setting, make in library.settings.items()
        for build, folder in builds.items()
        for kind in [PYFEED if build == first else PEER]
    ]
    return replace(case, name=f"{workload}: {case.name}", libraries=libraries)


def cases(args: argparse.Namespace, folder: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, Case]]:
    """Yield the wanted cases of batches, files, chains and training_loop, each with the name of its script."""
    every = argparse.Namespace(libraries="all", cases="", cores=args.cores)
    for case in batches.cases(every):
        if wanted(f"batches: {case.name}"):
            yield "batches", case

    for script, cases_of in (("files", files.cases), ("chains", chains.cases)):

        def unwanted(*names: str, script: str = script) -> bool:
            return not any(wanted(f"{script}: {name}") for name in names)

        for case in cases_of(every, folder, unwanted):
            yield script, case
    for name, workload in training_loop.workloads(folder):
        if wanted(f"training_loop: {name}"):
            workload = write(workload)
            libraries = list(training_loop.libraries_of(workload))
            yield "training_loop", Case(name, libraries, workload.steps, "steps/s")


def cold_starts(
    args: argparse.Namespace, folder: Path, builds: dict[str, str], wanted: Callable[[str], bool]
) -> Iterator[dict[str, Any]]:
    """Yield the measured cases of cold_start, in which a new process starts for every run."""
    workload = Records(records=args.records)
    made = False
    for order in ("shuffled", "in order"):
        named = {metric: f"cold_start: {name}, {order}" for metric, name in METRICS.items()}
        named = {metric: name for metric, name in named.items() if wanted(name)}
        if not named:
            continue
        if not made:
            workload.make(folder)
            made = True
        failures: dict[str, Failed] = {}
        programs = {
            f"{build}:": partial(
                cold_start.started, "pyfeed", "pyfeed", str(folder), workload, order, failures, build_folder
            )
            for build, build_folder in builds.items()
        }
        found = dict(interleave(programs, args.runs))
        kinds = dict.fromkeys(programs, PEER) | {next(iter(programs)): PYFEED}
        for metric, name in named.items():
            yield case_of(name, "ms", {}, library_lines(metric, found, kinds.__getitem__))


def show_ratios(case: dict[str, Any], builds: dict[str, str]) -> None:
    """Print how many times as good each build is as the first build, for each setting."""
    values = {library["library"]: library["values"] for library in case["libraries"] if "values" in library}
    first, *others = builds
    for name, of_first in values.items():
        if not name.startswith(f"{first}:"):
            continue
        line = name.removeprefix(f"{first}:")
        for build in others:
            if of_build := values.get(f"{build}:{line}"):
                ratios = paired_ratios(of_build, of_first, case["better"])
                text = f"{median(ratios):.3f} x {first} ({min(ratios):.3f} to {max(ratios):.3f})"
                print(f"  {build}{line}: {text}", flush=True)


def main() -> None:
    parser = options(__doc__, runs=7)
    parser.add_argument("--build", action="append", required=True, metavar="NAME=FOLDER", help="may be given often")
    parser.add_argument("--cores", default="1,2", help="run each case of files on so many cores")
    parser.add_argument("--records", type=int, default=1_000_000, help="of each file of cold_start")
    args = parser.parse_args()
    builds = {name: os.path.abspath(folder) for name, _, folder in (build.partition("=") for build in args.build)}
    sys.path.insert(0, next(iter(builds.values())))  # pyfeed writes the files of some workloads
    os.environ.update(training_loop.ONE_THREAD)
    results = Results("compare_builds", args)
    texts = [text.strip() for text in args.cases.split(";") if text.strip()]

    def wanted(name: str) -> bool:
        return not results.has(name) and (not texts or any(text in name for text in texts))

    with tempfile.TemporaryDirectory(prefix="pyfeed-bench-") as folder:
        for workload, case in cases(args, Path(folder), wanted):
            found = measure(with_builds(case, workload, builds), args.runs, args.seconds)
            results.add(found)
            show_ratios(found, builds)
        for found in cold_starts(args, Path(folder), builds, wanted):
            results.add(found)
            show_ratios(found, builds)


if __name__ == "__main__":
    main()
