"""How a program behaves when it is interrupted, killed, at its end, or idle.

    python benchmarks/interruption.py [--json FILE] [--runs 5] [--seconds 1] [--libraries all] [--cases TEXTS]

Each value is of a program of its own, in a session of its own, that waits in some state; the libraries take turns,
every other run in the opposite order. That a program has reached its state is observed from outside: it has emitted an
event before it waits, its workers have emitted events after they started, and the main threads of all of them sleep in
several polls in a row.

    Ctrl-C               SIGINT to the process and its workers, as a terminal sends it, while the main thread waits:
                         to KeyboardInterrupt in Python. Once to a worker alone, while it waits
    Ctrl-C, to the end   the same, to the end of the process
    exit                 a daemon thread waits in the state, and the main thread comes to the end of the script: from
                         its last statement to the end of the process
    idle                 how often a second any thread of the process and its workers is woken while it waits there,
                         for `--seconds` and more
    killed trainer       SIGKILL to the trainer whose workers are ahead of it: processes, shared memory and temporary
                         files that are there a second later
    killed worker        SIGKILL to a worker: until the trainer's call raises

The states are below, with the function in `libraries` that each library waits in.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from harness import PEER, PYFEED, Failed, Results, options, selected
from harness.programs import (
    Measurement,
    Metrics,
    Program,
    case,
    context_switches,
    interleave,
    library_lines,
    wake_ups,
)

LIBRARIES = (
    *("pytorch", "torchdata", "tf.data", "grain", "spdl", "mlx-data", "webdataset", "mosaicml-streaming"),
    *("huggingface datasets", "ray", "paddle"),
)
QUEUES = ("queue.Queue", "multiprocessing.Queue")
REFERENCES = ("pyfeed", "queue.Queue", "multiprocessing.Queue", "python's open")

TIMEOUT = 5  # seconds, for the effect of a signal
WORKERS = "workers that hang"

NO_QUEUE = "no queue that a program pushes into and pops from"
NO_WORKERS = "no workers of its own"
FILES_ONLY = "reads its own files only"

# In each state, the function of a module of `libraries` that waits; or the reason why the library has none. Libraries
# that a state does not name have the reason of `else`.
STATES: dict[str, dict[str, str]] = {
    "pop from an empty queue": {
        "pyfeed": "pyfeed.interruption_pop",
        "queue.Queue": "plain.interruption_get",
        "else": NO_QUEUE,
    },
    "push into a full queue": {
        "pyfeed": "pyfeed.interruption_push",
        "pyfeed, lent": "pyfeed.interruption_lent_push",
        "pyfeed, slot": "pyfeed.interruption_slot",
        "queue.Queue": "plain.interruption_put",
        "multiprocessing.Queue": "plain.interruption_mp_put",
        "else": NO_QUEUE,
    },
    "wait for a pass to end": {"pyfeed": "pyfeed.interruption_wait_pass", "else": NO_QUEUE},
    "a chain over an empty queue": {
        "pyfeed": "pyfeed.interruption_batch",
        "pyfeed, double_buffer": "pyfeed.interruption_double_buffer",
        "pyfeed, executor": "pyfeed.interruption_executor",
        "else": NO_QUEUE,
    },
    "a generator that hangs": {
        "pyfeed": "pyfeed.interruption_generator",
        "pytorch": "pytorch.interruption_generator",
        "torchdata": "pytorch.interruption_nodes",
        "tf.data": "tensorflow.interruption_generator",
        "grain": "grain.interruption_generator",
        "spdl": "spdl.interruption_generator",
        "mlx-data": "mlx_data.interruption_generator",
        "webdataset": "webdataset.interruption_generator",
        "huggingface datasets": "huggingface.interruption_generator",
        "paddle": "paddle.interruption_generator",
        "mosaicml-streaming": FILES_ONLY,
        "ray": "its functions run in workers: below",
        "else": "no reader",
    },
    "a function that hangs, in threads": {
        "pyfeed": "pyfeed.interruption_map",
        "tf.data": "tensorflow.interruption_map",
        "grain": "grain.interruption_map",
        "spdl": "spdl.interruption_map",
        "torchdata": "pytorch.interruption_mapper",
        "else": "its functions run in the main thread, or in workers",
    },
    "a file that does not come": {
        "pyfeed": "pyfeed.interruption_files",
        "tf.data": "it reads no FIFO",
        "else": "its files are read by Python in the main thread, or in workers",
    },
    "a file that cannot be opened yet": {
        "pyfeed": "pyfeed.interruption_opening",
        "python's open": "plain.interruption_opening",
        "tf.data": "it reads no FIFO",
        "else": "its files are opened by Python in the main thread, or in workers",
    },
    WORKERS: {
        "pyfeed": "pyfeed.interruption_workers",
        "pyfeed, a chain": "pyfeed.interruption_workers_chain",
        "multiprocessing.Queue": "plain.interruption_mp_get",
        "pytorch": "pytorch.interruption_workers",
        "torchdata": "pytorch.interruption_nodes_workers",
        "grain": "grain.interruption_workers",
        "spdl": "spdl.interruption_workers",
        "ray": "ray_data.interruption_workers",
        "paddle": "paddle.interruption_workers",
        "webdataset": "webdataset.interruption_workers",
        "huggingface datasets": "its workers are PyTorch's DataLoader's",
        "mosaicml-streaming": "its workers are PyTorch's DataLoader's",
        "else": NO_WORKERS,
    },
}
# The same where a worker waits, not the trainer.
WORKER_WAITS = {
    "pyfeed": "pyfeed.interruption_worker_push",
    "multiprocessing.Queue": "plain.interruption_mp_worker_put",
    "queue.Queue": NO_WORKERS,
    "else": "its workers do not push: a thread of theirs does",
}

HEADER = """\
from __future__ import annotations
import os, sys, threading, time
from workloads.interruption import FOR_EVER, emit, quick_item, slow_item
from harness import NotSupported
import importlib

def state():
    module, function = {function!r}.split(".")
    try:
        return getattr(importlib.import_module("libraries." + module), function)({arguments})
    except (ImportError, NotSupported) as error:
        emit("not supported", error)
        raise
"""
WAITS = """
if __name__ == "__main__":
    wait = state()
    emit("waiting")
    try:
        wait()
    except KeyboardInterrupt:
        emit("interrupted")
    except BaseException as error:
        try:
            emit("raised", type(error).__name__)
        except KeyboardInterrupt:
            emit("raised", type(error).__name__)
        raise
    else:
        emit("raised", "nothing")
"""
TAKES = """
if __name__ == "__main__":
    wait = state()
    wait()
    emit("waiting")
    time.sleep(FOR_EVER)
"""
FAILS = """
if __name__ == "__main__":
    wait = state()
    emit("waiting")
    try:
        wait()
    except Exception as error:
        emit("failed", type(error).__name__)
"""
ENDS = """
def run(wait):
    emit("waiting")
    try:
        wait()
    except BaseException as error:
        emit("thread raised", type(error).__name__)

if __name__ == "__main__":
    wait = state()
    threading.Thread(target=run, args=(wait,), daemon=True).start()
    sys.stdin.readline()
    emit("exiting")
"""
IMPORTED = """
from workloads.interruption import emit
import pyfeed, sys
emit("waiting")
sys.stdin.readline()
"""


def program(function: str, rest: str, item: str = "") -> Program:
    """Start a program that waits in a function of `libraries`."""
    if not function.endswith(("_files", "_opening")):
        return Program(HEADER.format(function=function, arguments=item) + rest)
    # A file without data is a FIFO with a writer; without a writer it cannot even be opened.
    fifo = 'os.environ["TMPDIR"] + "/fifo.tfrecord"'
    made = f"os.mkfifo({fifo})\n"
    if function.endswith("_files"):
        made += f"writer = os.open({fifo}, os.O_RDWR)\n"
    return Program(HEADER.format(function=function, arguments=fifo) + made + rest)


def wait_until_waiting(running: Program) -> None:
    """Wait until the program has reached its state."""
    running.wait_for("waiting")
    running.wait_until_asleep()
    running.raise_errors()


def interrupted(function: str, seconds: float, failures: dict[str, Failed]) -> Measurement:
    """A program that waits, for so many seconds if any, and is then interrupted."""
    with program(function, WAITS) as running:
        yield
        wait_until_waiting(running)
        if "worker" in function:
            running.wait_for("worker")
            running.wait_until_asleep()
        metrics: Metrics = {}
        if seconds:
            began, before = time.monotonic(), context_switches(running.pid)
            yield
            time.sleep(max(0, began + seconds - time.monotonic()))
            woken = wake_ups(before, context_switches(running.pid))
            metrics["idle"] = woken / (time.monotonic() - began)
        yield
        at = running.interrupt()
        metrics["Ctrl-C"] = milliseconds(lambda: running.wait_for("interrupted", TIMEOUT)[0] - at, function, failures)
        if "did not come" in str(metrics["Ctrl-C"]):
            metrics["Ctrl-C, to the end"] = metrics["Ctrl-C"]
            return metrics
        metrics["Ctrl-C, to the end"] = milliseconds(
            lambda: running.wait_for_exit(TIMEOUT) - at, f"{function}, end", failures
        )
        return metrics


def worker_signalled(function: str, rest: str, number: signal.Signals, metric: str, event: str) -> Measurement:
    """A worker that waits gets a signal, alone: the time until the event."""
    with program(function, rest) as running:
        yield
        wait_until_waiting(running)
        worker = int(running.wait_for("worker")[1][0])
        running.wait_until_asleep()
        yield
        at = time.monotonic_ns()
        os.kill(worker, number)
        return {metric: (running.wait_for(event, TIMEOUT)[0] - at) / 1e6}


def exited(function: str) -> Measurement:
    with program(function, ENDS) as running:
        yield
        wait_until_waiting(running)
        yield
        running.resume()
        at = running.wait_for("exiting")[0]
        return {"exit": (running.wait_for_exit(TIMEOUT) - at) / 1e6}


def trainer_killed(function: str) -> Measurement:
    with program(function, TAKES, "quick_item") as running:
        yield
        running.wait_for("waiting")
        running.wait_until_asleep()
        yield
        workers, at = running.kill(), time.monotonic()
        yield
        time.sleep(max(0, at + 1 - time.monotonic()))
        metrics: Metrics = {name: len(left) for name, left in running.leftovers(workers).items()}
        yield  # from here on, cleaning up may disturb others
        return metrics


def imported(seconds: float) -> Measurement:
    with Program(IMPORTED) as running:
        wait_until_waiting(running)
        before = context_switches(running.pid)
        yield
        time.sleep(seconds)
        return {"idle": wake_ups(before, context_switches(running.pid)) / seconds}


def milliseconds(measured: Callable[[], int], key: str, failures: dict[str, Failed]) -> float | Failed:
    """Milliseconds, unless it has failed before: a timeout is waited for once."""
    if key in failures:
        return failures[key]
    try:
        return measured() / 1e6
    except Failed as error:
        failures[key] = error
        return error


def libraries_of(state: dict[str, str], names: str) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The functions to be run, and the libraries that do not support the state."""
    every = [*state, *(name for name in (*QUEUES, *LIBRARIES) if name not in state)]
    run, not_supported = {}, []
    for name in every:
        if name == "else" or not selected(names, name.partition(",")[0], REFERENCES):
            continue
        function = state.get(name, state["else"])
        if "interruption_" in function:
            run[name] = function
        else:
            not_supported.append({"library": name, "kind": PEER, "not_supported": function})
    return run, not_supported


def kind_of(library: str) -> str:
    return PYFEED if library.startswith("pyfeed") else PEER


def main() -> None:
    parser = options(__doc__, seconds=1)
    args = parser.parse_args()
    results = Results("interruption", args)
    texts = [text for text in args.cases.split(",") if text]

    def wanted(name: str) -> bool:
        return not results.has(name) and (not texts or any(text in name for text in texts))

    failures: dict[str, Failed] = {}

    def add(
        cases: dict[str, tuple[str, str]],
        programs: dict[str, Callable[[], Measurement]],
        not_supported: list[dict[str, Any]],
        exits: dict[str, Callable[[], Measurement]] | None = None,
    ) -> None:
        """Measure, and add a case of each metric that is wanted: its name and unit. All are started together."""
        cases = {metric: named for metric, named in cases.items() if wanted(named[0])}
        exits = exits if exits and "exit" in cases else {}
        programs = programs if cases.keys() - {"exit"} else {}
        if cases:
            programs = programs | {f"{library} exits": program for library, program in exits.items()}
            found = dict(interleave(programs, args.runs, True))
            of_exits = {library: found.pop(f"{library} exits") for library in exits}
            for metric, (name, unit) in cases.items():
                lines = library_lines(metric, of_exits if metric == "exit" else found, kind_of)
                results.add(case(name, unit, {}, [*lines, *not_supported]))

    for state, functions in STATES.items():
        run, not_supported = libraries_of(functions, args.libraries)
        cases = {
            "Ctrl-C": (f"Ctrl-C: {state}", "ms"),
            "Ctrl-C, to the end": (f"Ctrl-C, to the end: {state}", "ms"),
            "idle": (f"idle: {state}", "wake-ups/s"),
            "exit": (f"exit: {state}", "ms"),
        }
        seconds = args.seconds if wanted(cases["idle"][0]) else 0
        waits: dict[str, Callable[[], Measurement]] = {
            name: partial(interrupted, function, seconds, failures) for name, function in run.items()
        }
        add(cases, waits, not_supported, {name: partial(exited, function) for name, function in run.items()})
    run, not_supported = libraries_of(STATES[WORKERS], args.libraries)
    cases = {left: (f"killed trainer: {left} left behind", left) for left in ("processes", "shared memory", "files")}
    add(cases, {name: partial(trainer_killed, function) for name, function in run.items()}, not_supported)
    cases = {"killed worker": ("killed worker, until the trainer is told", "ms")}
    add(
        cases,
        {
            name: partial(worker_signalled, function, FAILS, signal.SIGKILL, "killed worker", "failed")
            for name, function in run.items()
        },
        not_supported,
    )

    run, not_supported = libraries_of(WORKER_WAITS, args.libraries)
    cases = {"Ctrl-C": ("Ctrl-C: a worker that pushes into a full queue", "ms")}
    add(
        cases,
        {
            name: partial(worker_signalled, function, WAITS, signal.SIGINT, "Ctrl-C", "worker interrupted")
            for name, function in run.items()
        },
        not_supported,
    )
    run = {"pyfeed": ""} if selected(args.libraries, "pyfeed", REFERENCES) else {}
    cases = {"idle": ("idle: nothing but imported", "wake-ups/s")}
    add(cases, {name: partial(imported, args.seconds) for name in run}, [])


if __name__ == "__main__":
    main()
