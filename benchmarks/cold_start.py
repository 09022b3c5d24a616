"""What a program pays before its first batch: the import, and the way to the first of a thousand files.

    python benchmarks/cold_start.py [--json FILE] [--runs 5] [--records 1000000] [--ways all] [--rows TEXTS]

Each figure is of a program of its own, in an interpreter that has just been started; the ways take turns, every other
run in the opposite order. NumPy is imported before anything is measured, and everything comes from the page cache.

    import                    the time of the import statement, over NumPy's
    import, memory            by how much the resident set has grown half a second after it
    first batch               from the start of iteration to the first batch of 32, looked at as a NumPy array
    and its reader            the same from the end of the imports on: what some do when a reader is made, others do
                              when it is iterated over
    whole program             from the start of the process to there; the limit is an interpreter that imports NumPy

The files are a thousand of `--records` records each, 109 bytes a record: TFRecord with a message Example of 20 numbers,
shuffled with a buffer of 10,000 records, or in order. One file is made, and the others are links to it. Libraries that
do not read TFRecord read their own format of the same numbers, where they have one; what each does is in
`ways/*.py`, in functions called `cold_start`, whose source is the program.
"""

from __future__ import annotations

import importlib
import inspect
import multiprocessing
import tempfile
from functools import partial
from pathlib import Path

from measuring import LIMIT, OURS, PEER, Failed, NotOffered, Results, chosen, options
from measuring.programs import Found, Program, Running, figures, in_turns, row
from tasks.cold_start import Records

# The package that is imported, the module of `ways`, and why there is no first batch.
WAYS = {
    "ours": ("pyfeed", "ours", ""),
    "pytorch": ("torch.utils.data", "pytorch", ""),
    "torchdata": ("torchdata.nodes", "", "no reader of records: PyTorch's data sets are read"),
    "tf.data": ("tensorflow", "tensorflow", ""),
    "grain": ("grain", "grain", ""),
    "spdl": ("spdl.pipeline", "", "no reader of records: its pipelines are of functions of one's own"),
    "mlx-data": ("mlx.data", "", "no reader of records of numbers but CSV"),
    "webdataset": ("webdataset", "webdataset", ""),
    "mosaicml-streaming": ("streaming", "mosaic", ""),
    "huggingface datasets": ("datasets", "huggingface", ""),
    "ray": ("ray.data", "ray_data", ""),
    "paddle": ("paddle.io", "", "no reader of records: its data sets are functions of one's own"),
}
NUMPY = "numpy alone"
FIRST = 120  # seconds, until a first batch will not come any more
REFERENCES = ("ours", NUMPY)

PROGRAM = """\
from __future__ import annotations

import os
import time
import types
from typing import Any

import numpy as np


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


def say(word, *values):
    line = "\\t".join(map(str, (word, time.monotonic_ns(), *values)))
    with open(os.environ["PYFEED_BENCHMARK_SAYS"], "w") as f:
        f.write(line + "\\n")


{function}


if __name__ == "__main__":
    memory, began = resident(), time.perf_counter_ns()
    try:
        import {package}
    except ImportError as error:
        say("not offered", error)
        raise
    took = time.perf_counter_ns() - began
    say("imported", took)
"""
SETTLED = """\
    time.sleep(0.5)  # a library's own threads may have begun something that they are at still
    say("settled", resident() - memory)
"""
FIRST_BATCH = """\
    began = time.perf_counter_ns()
    batches, look = cold_start({folder!r}, types.SimpleNamespace(**{task}), {shuffle})
    made = time.perf_counter_ns()
    batch = look(next(iter(batches)))
    assert batch.shape == ({batch}, {floats}) and (batch == batch[:, :1]).all(), batch
    took = time.perf_counter_ns() - made
    say("batch", made - began, took)
    os._exit(0)
"""


def started(package: str, module: str, folder: str, task: Records, order: str, hopeless: dict[str, Failed]) -> Running:
    """A program that imports a package, and has a first batch if a module is given."""
    function = inspect.getsource(importlib.import_module(f"ways.{module}").cold_start) if module else ""
    source = PROGRAM.format(function=function, package=package)
    if module:
        source += FIRST_BATCH.format(
            folder=folder, task=vars(task), shuffle=order == "shuffled", batch=task.batch, floats=task.floats
        )
    with Program(source) as running:
        yield
        at, (took,) = running.heard("imported")
        found: Found = {"import": int(took) / 1e6, "whole": (at - running.began) / 1e6}
        if not module:
            return found
        try:
            if package in hopeless:
                raise hopeless[package]
            at, (made, first) = running.heard("batch", FIRST)
        except Failed as error:
            hopeless[package] = error
            return found | dict.fromkeys(("first", "both", "whole"), error)
        found["first"], found["both"] = int(first) / 1e6, (int(made) + int(first)) / 1e6
        found["whole"] = (at - running.began) / 1e6
        return found


def settled(package: str) -> Running:
    """A program that imports a package, and says what memory that takes in the end."""
    with Program(PROGRAM.format(function="", package=package) + SETTLED) as running:
        yield
        _, (memory,) = running.heard("settled")
        return {"memory": int(memory) / 1e6}


def make_files(module: str, folder: str, task: Records) -> None:
    importlib.import_module(f"ways.{module}").cold_start_files(folder, task)


def kind_of(way: str) -> str:
    return OURS if way == "ours" else LIMIT if way == NUMPY else PEER


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="of each file")
    args = parser.parse_args()
    task = Records(records=args.records)
    results = Results("cold_start", args)
    asked = [text for text in args.rows.split(",") if text]
    hopeless: dict[str, Failed] = {}

    def wanted(name: str) -> bool:
        return not results.has(name) and (not asked or any(text in name for text in asked))

    ways = {name: way for name, way in WAYS.items() if chosen(args.ways, name, REFERENCES)}
    memory = "import, memory over NumPy's"
    if wanted(memory):
        programs = {name: partial(settled, package) for name, (package, _, _) in ways.items()}
        found = dict(in_turns(programs, args.runs, together=True))  # no time is measured
        results.add(row(memory, "MB", {}, figures("memory", found, kind_of)))
    with tempfile.TemporaryDirectory(prefix="pyfeed-bench-") as folder:
        without = {name: reason for name, (_, _, reason) in ways.items() if reason}
        task.make(Path(folder))
        # In processes of their own: what they import is not to stay in this one.
        making = {
            name: multiprocessing.get_context("spawn").Process(target=make_files, args=(module, folder, task))
            for name, (_, module, _) in ways.items()
            if module and hasattr(importlib.import_module(f"ways.{module}"), "cold_start_files")
        }
        for process in making.values():
            process.start()
        for name, process in making.items():
            process.join()
            if process.exitcode:
                without[name] = "its files could not be made"
        for order in ("shuffled", "in order"):
            rows = {
                "first": (f"first batch from the start of iteration, {order}", "ms"),
                "both": (f"first batch and its reader, {order}", "ms"),
                "whole": (f"first batch from the start of the process, {order}", "ms"),
            }
            if order == "shuffled":
                rows |= {"import": ("import, over NumPy's", "ms")}
            rows = {figure: row for figure, row in rows.items() if wanted(row[0])}
            if not rows:
                continue
            programs = {
                name: partial(started, package, "" if name in without else module, folder, task, order, hopeless)
                for name, (package, module, _) in ways.items()
                if order == "shuffled" or name not in without
            }
            programs[NUMPY] = partial(started, "numpy", "", folder, task, order, hopeless)
            found = dict(in_turns(programs, args.runs))
            for figure, (name, unit) in rows.items():
                here, parameters = dict(found), {}
                if figure == "import":
                    del here[NUMPY]
                else:
                    parameters = {"files": task.shards, "records a file": task.records, "batch": task.batch}
                    if order == "shuffled":
                        parameters["buffer"] = task.buffer
                    here |= {way: NotOffered(reason) for way, reason in without.items()}
                results.add(row(name, unit, parameters, figures(figure, here, kind_of)))


if __name__ == "__main__":
    main()
