"""Measures the time and memory before the first batch: the import, and the first batch of a thousand files.

    python benchmarks/cold_start.py [--json FILE] [--runs 5] [--records 1000000] [--libraries all] [--cases TEXTS]

Each value comes from a new interpreter process that runs only one library. The libraries take turns, and every other
run uses the opposite order. NumPy is imported before the measurement begins, and the files are in the page cache.

    import                    the time of the import statement, in addition to NumPy's
    import, memory            the growth of the resident set, measured half a second after the import
    first batch               the time from the start of iteration to the first batch of 32, as a NumPy array
    and its reader            the same, from the end of the imports: some libraries do work when they make a reader that
                              others do when they iterate over it
    whole program             the time from the start of the process to the first batch; the limit is an interpreter
                              that only imports NumPy

There are a thousand files of `--records` records each. A record has 109 bytes in a TFRecord file: an Example message
with 20 numbers. The records are shuffled with a buffer of 10,000 records, or read in order. The script writes one file;
the others are hard links to it. A library that cannot read TFRecord reads the same numbers in its own format, if it has
one. Each measured program contains the source of a function `cold_start` of `libraries/*.py`.
"""

from __future__ import annotations

import importlib
import inspect
import multiprocessing
import tempfile
from functools import partial
from pathlib import Path

from harness import LIMIT, PEER, PYFEED, Failed, NotSupported, Results, options, selected
from harness.programs import Measurement, Metrics, Program, case, interleave, library_lines
from workloads.cold_start import Records

# For each library: the imported package, the module of `libraries`, and the reason if no first batch is measured.
LIBRARIES = {
    "pyfeed": ("pyfeed", "pyfeed", ""),
    "pytorch": ("torch.utils.data", "pytorch", ""),
    "torchdata": ("torchdata.nodes", "", "it has no reader for files of records: it reads datasets of PyTorch"),
    "tf.data": ("tensorflow", "tensorflow", ""),
    "grain": ("grain", "grain", ""),
    "spdl": ("spdl.pipeline", "", "it has no reader for files of records: its pipelines call the user's functions"),
    "mlx-data": ("mlx.data", "", "it has no reader for files of numeric records except CSV, which it returns as text"),
    "webdataset": ("webdataset", "webdataset", ""),
    "mosaicml-streaming": ("streaming", "mosaic", ""),
    "huggingface datasets": ("datasets", "huggingface", ""),
    "ray": ("ray.data", "ray_data", ""),
    "dali": ("nvidia.dali", "dali", ""),
    "turboloader": ("turboloader", "", "it has no reader for files of records except images and tokens"),
    "tensorstore": ("tensorstore", "tensorstore", ""),
    "litdata": ("litdata", "litdata", ""),
    "polars": ("polars", "polars", ""),
    "paddle": ("paddle.io", "", "it has no reader for files of records: its datasets are the user's classes"),
}
NUMPY = "numpy alone"
FIRST_BATCH_TIMEOUT = 120  # seconds
REFERENCES = ("pyfeed", NUMPY)

PROGRAM = """\
from __future__ import annotations

import os
import time
import types
from typing import Any

import numpy as np


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def emit(event, *values):
    line = "\\t".join(map(str, (event, time.monotonic_ns(), *values)))
    with open(os.environ["PYFEED_BENCHMARK_EVENTS"], "w") as f:
        f.write(line + "\\n")


{function}


if __name__ == "__main__":
    memory, began = resident(), time.perf_counter_ns()
    try:
        import {package}
    except ImportError as error:
        emit("not supported", error)
        raise
    elapsed = time.perf_counter_ns() - began
    emit("imported", elapsed)
"""
SETTLED = """\
    time.sleep(0.5)  # a library's own threads may still be at work
    emit("settled", resident() - memory)
"""
FIRST_BATCH = """\
    began = time.perf_counter_ns()
    batches, to_array = cold_start({folder!r}, types.SimpleNamespace(**{workload}), {shuffle})
    made = time.perf_counter_ns()
    batch = to_array(next(iter(batches)))
    assert batch.shape == ({batch}, {floats}) and (batch == batch[:, :1]).all(), batch
    elapsed = time.perf_counter_ns() - made
    emit("batch", made - began, elapsed)
    os._exit(0)
"""


def started(
    package: str,
    module: str,
    folder: str,
    workload: Records,
    order: str,
    failures: dict[str, Failed],
    path: str = "",
) -> Measurement:
    """Measure a program that imports a package and, if a module is given, reads a first batch.

    A `path` that is not empty is a folder that the program imports from before all others.
    """
    function = inspect.getsource(importlib.import_module(f"libraries.{module}").cold_start) if module else ""
    source = PROGRAM.format(function=function, package=package)
    if module:
        source += FIRST_BATCH.format(
            folder=folder,
            workload=vars(workload),
            shuffle=order == "shuffled",
            batch=workload.batch,
            floats=workload.floats,
        )
    with Program(source, path=path) as running:
        yield
        at, (elapsed,) = running.wait_for("imported")
        metrics: Metrics = {"import": int(elapsed) / 1e6, "whole": (at - running.began) / 1e6}
        if not module:
            return metrics
        try:
            if package in failures:
                raise failures[package]
            at, (made, first) = running.wait_for("batch", FIRST_BATCH_TIMEOUT)
        except Failed as error:
            failures[package] = error
            return metrics | dict.fromkeys(("first", "both", "whole"), error)
        metrics["first"], metrics["both"] = int(first) / 1e6, (int(made) + int(first)) / 1e6
        metrics["whole"] = (at - running.began) / 1e6
        return metrics


def settled(package: str) -> Measurement:
    """Measure a program that imports a package, and reports its memory when the threads of the import have settled."""
    with Program(PROGRAM.format(function="", package=package) + SETTLED) as running:
        yield
        _, (memory,) = running.wait_for("settled")
        return {"memory": int(memory) / 1e6}


def make_files(module: str, folder: str, workload: Records) -> None:
    importlib.import_module(f"libraries.{module}").cold_start_files(folder, workload)


def kind_of(library: str) -> str:
    return PYFEED if library == "pyfeed" else LIMIT if library == NUMPY else PEER


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="of each file")
    args = parser.parse_args()
    workload = Records(records=args.records)
    results = Results("cold_start", args)
    texts = [text for text in args.cases.split(",") if text]
    failures: dict[str, Failed] = {}

    def wanted(name: str) -> bool:
        return not results.has(name) and (not texts or any(text in name for text in texts))

    libraries = {name: library for name, library in LIBRARIES.items() if selected(args.libraries, name, REFERENCES)}
    memory = "import, memory over NumPy's"
    if wanted(memory):
        programs = {name: partial(settled, package) for name, (package, _, _) in libraries.items()}
        found = dict(interleave(programs, args.runs, together=True))  # no time is measured
        results.add(case(memory, "MB", {}, library_lines("memory", found, kind_of)))
    with tempfile.TemporaryDirectory(prefix="pyfeed-bench-") as folder:
        without = {name: reason for name, (_, _, reason) in libraries.items() if reason}
        workload.make(Path(folder))
        # Each library writes its files in a process of its own, so that this process imports none of them.
        making = {
            name: multiprocessing.get_context("spawn").Process(target=make_files, args=(module, folder, workload))
            for name, (_, module, _) in libraries.items()
            if module and hasattr(importlib.import_module(f"libraries.{module}"), "cold_start_files")
        }
        for process in making.values():
            process.start()
        for name, process in making.items():
            process.join()
            if process.exitcode:
                without[name] = "its files could not be made"
        for order in ("shuffled", "in order"):
            cases = {
                "first": (f"first batch from the start of iteration, {order}", "ms"),
                "both": (f"first batch and its reader, {order}", "ms"),
                "whole": (f"first batch from the start of the process, {order}", "ms"),
            }
            if order == "shuffled":
                cases |= {"import": ("import, over NumPy's", "ms")}
            cases = {metric: named for metric, named in cases.items() if wanted(named[0])}
            if not cases:
                continue
            programs = {
                name: partial(started, package, "" if name in without else module, folder, workload, order, failures)
                for name, (package, module, _) in libraries.items()
                if order == "shuffled" or name not in without
            }
            programs[NUMPY] = partial(started, "numpy", "", folder, workload, order, failures)
            found = dict(interleave(programs, args.runs))
            for metric, (name, unit) in cases.items():
                here, parameters = dict(found), {}
                if metric == "import":
                    del here[NUMPY]
                else:
                    parameters = {
                        "files": workload.shards,
                        "records per file": workload.records,
                        "batch": workload.batch,
                    }
                    if order == "shuffled":
                        parameters["buffer"] = workload.buffer
                    here |= {library: NotSupported(reason) for library, reason in without.items()}
                results.add(case(name, unit, parameters, library_lines(metric, here, kind_of)))


if __name__ == "__main__":
    main()
