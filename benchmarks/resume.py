"""Measures how a pipeline of shuffled batches goes on after a restart: its state, and the time to the next batch.

    python benchmarks/resume.py [--libraries all] [--json FILE] [--cases "1 KiB"] [--runs 5] [--folder DIR]

    data set          files   records in a file   shuffled among   batch   state after
    1 KiB records     100     10,000              10,000           32      5,470 batches
    100 KB records    100     200                 2,000            32      345 batches

The state is taken where no block of a shuffle and no file ends.

    state                     bytes: as JSON, by pickle if JSON cannot hold it, or as the library itself writes it
    take                      the time of the call that returns or writes the state, between two batches; each value is
                              the median of five calls
    restore                   in a new process that has imported the library: the time to make the pipeline, to read and
                              load the state, and to get the first batch
    restore, already made     the same, without making the pipeline
    restore, a second time    as `restore`, with a second pipeline in the same process, without what a library does once
    batches that differ       of the first 200 after a restore, compared byte for byte with those that the pipeline
                              delivered after it had saved the state

A program saves, and for each run another one restores. The libraries take turns to restore, and every other run uses
the opposite order. All libraries get the same records, each in the format that is best for it: pyfeed and tf.data in
TFRecord, Grain's index shuffle and the map-style dataset of torchdata in plain files of records, which are mapped,
Grain's window shuffle in TFRecord, the iterable dataset of torchdata in plain files, which are read, MosaicML Streaming
in MDS, and Hugging Face datasets in Arrow. `libraries` has the pipelines. The files
are in the page cache. They are written once, into a temporary folder or `--folder`, and take 4 GB for 1 KiB records and
8 GB for 100 KB records. `pyfeed text` is the state as the JSON text that C and C++ get, not as a dict.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from harness import PEER, PYFEED, Failed, NotSupported, Results, options, selected
from harness.programs import Measurement, Metrics, Program, case, interleave, library_lines
from workloads.resume import Records

# For each library, the function that makes its pipeline.
LIBRARIES = {
    "pyfeed": "libraries.pyfeed.resume",
    "tf.data": "libraries.tensorflow.resume",
    "grain, index shuffle": "libraries.grain.resume_index",
    "grain, window shuffle": "libraries.grain.resume_window",
    "torchdata, map-style": "libraries.pytorch.resume_map",
    "torchdata, iterable": "libraries.pytorch.resume_iterable",
    "streaming (mds)": "libraries.mosaic.resume",
    "datasets (arrow)": "libraries.huggingface.resume",
}
TEXT = "pyfeed text"
REFERENCES = ("pyfeed",)
DATA_SETS = {
    "1 KiB records": Records("", files=100, records=10_000, size=1 << 10, buffer=10_000, step=5_470),
    "100 KB records": Records("", files=100, records=200, size=100_000, buffer=2_000, step=345),
}
TAKES = 5  # for each value
CASES = {
    "state": ("state", "bytes"),
    "take": ("take", "µs"),
    "restore": ("restore", "ms"),
    "without": ("restore, already made", "ms"),
    "again": ("restore, a second time", "ms"),
    "differ": ("batches that differ", "of {following}"),
}
"""The name and the unit of each metric."""

TIMEOUT = 600  # seconds, for a library to read up to the step
PROGRAM = """\
import importlib
from workloads.interruption import emit
from workloads.resume import Records, {task}

if __name__ == "__main__":
    try:
        prepare = getattr(importlib.import_module("{module}"), "{function}")
        {task}(prepare, Records(**{workload}))
    except ImportError as error:
        emit("not supported", error)
        raise
"""


def program(function: str, task: str, workload: Records) -> Program:
    module, _, name = function.rpartition(".")
    return Program(PROGRAM.format(task=task, module=module, function=name, workload=asdict(workload)), TIMEOUT)


def saved(function: str, workload: Records) -> dict[str, list[float]]:
    """Run the program that saves. Return the sizes and the times, of which there are as many as runs."""
    with program(function, "save", workload) as running:
        _, (size, times, texts) = running.wait_for("saved")
    runs = workload.takes // TAKES
    return {"state": [int(size)] * runs, "take": _medians(times), "take text": _medians(texts)}


def _medians(times: str) -> list[float]:
    """The microseconds of each run, from the seconds of all takes as JSON."""
    seconds = json.loads(times)
    return [statistics.median(seconds[at : at + TAKES]) * 1e6 for at in range(0, len(seconds), TAKES)]


def restored(function: str, workload: Records) -> Measurement:
    with program(function, "restore", workload) as running:
        yield
        _, values = running.wait_for("restored")
    total, without, again, differ = map(float, values)
    metrics: Metrics = {"restore": total * 1e3, "without": without * 1e3, "again": again * 1e3, "differ": differ}
    return metrics


def prepare(function: str, workload: Records) -> None:
    module, _, name = function.rpartition(".")
    getattr(importlib.import_module(module), name)(workload)


def measured(functions: dict[str, str], workload: Records, folder: Path, runs: int) -> Iterator[tuple[str, Any]]:
    """Yield each library with its metrics, or with its error."""
    errors: dict[str, Failed | NotSupported] = {}
    found: dict[str, dict[str, list[float]]] = {}
    programs = {}
    for library, function in functions.items():
        here = replace(workload, takes=runs * TAKES, scratch=str(folder / function))
        Path(here.scratch).mkdir(parents=True)
        # A process of its own writes the files, so that this one imports no library, and no time limit applies.
        writing = multiprocessing.get_context("spawn").Process(target=prepare, args=(function, here))
        writing.start()
        writing.join()
        try:
            found[library] = saved(function, here)
        except (Failed, NotSupported) as error:
            errors[library] = error
        else:
            print(f"  {library}: saved", flush=True)
            programs[library] = partial(restored, function, here)
    for library, metrics in interleave(programs, runs):
        if isinstance(metrics, dict):
            yield library, {**found[library], **metrics}
        else:
            yield library, metrics
    yield from errors.items()


def kind_of(library: str) -> str:
    return PYFEED if library.startswith("pyfeed") else PEER


def cases_of(name: str, workload: Records, found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the cases of a data set."""
    parameters = {
        key: getattr(workload, key) for key in ("files", "records", "size", "buffer", "batch", "step", "following")
    }
    for metric, (title, unit) in CASES.items():
        lines = library_lines(metric, found, kind_of)
        if metric == "take" and isinstance(found.get("pyfeed"), dict):
            lines[1:1] = library_lines("take text", {TEXT: found["pyfeed"]}, kind_of)
        yield case(f"{title}, {name}", unit.format_map(parameters), parameters, lines)


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--folder", type=Path, help="keep the files there, instead of in a temporary folder")
    parser.add_argument(
        "--smaller", type=int, default=1, help="divide the records of a file and all that is read by this number"
    )
    args: argparse.Namespace = parser.parse_args()
    results = Results("resume", args)
    texts = [text for text in args.cases.split(",") if text]
    functions = {
        library: function
        for library, function in LIBRARIES.items()
        if selected(args.libraries, library.partition(",")[0].partition(" (")[0], REFERENCES)
    }
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyfeed-bench-")))
        for name, workload in DATA_SETS.items():
            if texts and not any(text in name for text in texts):
                continue
            if results.has(*(f"{title}, {name}" for title, _ in CASES.values())):
                continue
            numbers = (workload.records, workload.buffer, workload.step, workload.following)
            records, buffer, step, following = (number // args.smaller for number in numbers)
            folder = (args.folder or scratch) / f"{name.replace(' ', '-')}-{records}"
            here = replace(workload, folder=str(folder), records=records, buffer=buffer, step=step, following=following)
            found = dict(measured(functions, here, scratch / name, args.runs))
            ordered = {library: found[library] for library in functions}
            for one in cases_of(name, here, ordered):
                results.add(one)
    return 0


if __name__ == "__main__":
    sys.exit(main())
