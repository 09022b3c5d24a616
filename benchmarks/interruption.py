"""Measures how a program behaves when it is interrupted, killed, at exit, or idle.

    python benchmarks/interruption.py [--json FILE] [--runs 5] [--seconds 1] [--libraries all] [--cases TEXTS]

Each value comes from a new process in its own session, which runs one library and blocks in one of the states below.
The libraries take turns, and every other run uses the opposite order. The script observes from outside that a program
has reached its state: the program has emitted an event just before it blocks, its workers have emitted events after
they started, and the main threads of all these processes sleep in several polls in a row.

    Ctrl-C               the time from SIGINT to KeyboardInterrupt in Python, while the main thread blocks. SIGINT goes
                         to the process and its workers, as from a terminal; in one case to a blocked worker alone
    Ctrl-C, to the end   the same, to the end of the process
    exit                 a daemon thread blocks in the state, and the main thread ends the script: the time from its
                         last statement to the end of the process
    idle                 how often per second any thread of the process and its workers wakes while the program blocks,
                         measured for at least `--seconds`
    killed trainer       SIGKILL to the trainer process, whose workers are ahead of it: the number of processes, shared
                         memory segments and temporary files that remain a second later
    killed worker        SIGKILL to a worker: the time until the blocked call of the trainer raises

`STATES` lists the states, and the function of `libraries` in which each library blocks.
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

NO_QUEUE = "it has no queue into which a program pushes and from which it pops"
NO_WORKERS = "it starts no worker processes"
FILES_ONLY = "it reads only files that its own writers have written"
NO_FIFO = "it cannot read a FIFO"
IN_WORKERS = "its functions run in worker processes: see the state `workers that hang`"
IN_A_THREAD = "its thread that calls Python code is measured in the state `a generator that hangs`"
PYTORCH_WORKERS = "it uses the worker processes of PyTorch's DataLoader: see the row `PyTorch DataLoader`"

# For each state and library: the function of `libraries` that blocks in the state, or the reason if there is none. The
# reason of `else` applies to all libraries that a state does not name.
STATES: dict[str, dict[str, str]] = {
    "pop from an empty queue": {
        "pyfeed": "pyfeed.interruption_pop",
        "queue.Queue": "plain.interruption_get",
        "multiprocessing.Queue": "its `get` is measured in the state `workers that hang`",
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
    "wait for a pass to end": {
        "pyfeed": "pyfeed.interruption_wait_pass",
        **dict.fromkeys(QUEUES, "a plain queue has no passes"),
        "else": NO_QUEUE,
    },
    "a chain over an empty queue": {
        "pyfeed": "pyfeed.interruption_batch",
        "pyfeed, double_buffer": "pyfeed.interruption_double_buffer",
        "pyfeed, executor": "pyfeed.interruption_executor",
        **dict.fromkeys(QUEUES, "a plain queue has no chain of readers"),
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
        "ray": IN_WORKERS,
        "else": "a plain queue does not read from a generator",
    },
    "a function that hangs, in threads": {
        "pyfeed": "pyfeed.interruption_map",
        "tf.data": "tensorflow.interruption_map",
        "grain": "grain.interruption_map",
        "spdl": "spdl.interruption_map",
        "torchdata": "pytorch.interruption_mapper",
        **dict.fromkeys(QUEUES, "a plain queue does not call functions"),
        "ray": IN_WORKERS,
        **dict.fromkeys(("mlx-data", "paddle"), IN_A_THREAD),
        "else": "it calls functions in the main thread or in worker processes, not in threads",
    },
    "a file that does not come": {
        "pyfeed": "pyfeed.interruption_files",
        "tf.data": NO_FIFO,
        **dict.fromkeys(QUEUES, "a plain queue does not read files"),
        "mosaicml-streaming": FILES_ONLY,
        "ray": "its worker processes read the files: see the state `workers that hang`",
        "mlx-data": "C++ code reads its files: this was not measured",
        "else": "Python code reads its files: see the state `a generator that hangs`",
    },
    "a file that cannot be opened yet": {
        "pyfeed": "pyfeed.interruption_opening",
        "python's open": "plain.interruption_opening",
        "tf.data": NO_FIFO,
        **dict.fromkeys(QUEUES, "a plain queue does not open files"),
        "mosaicml-streaming": FILES_ONLY,
        "ray": "its worker processes open the files: see the state `workers that hang`",
        "mlx-data": "C++ code opens its files: this was not measured",
        "else": "Python code opens its files: see the row `Python's open`",
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
        "huggingface datasets": PYTORCH_WORKERS,
        "mosaicml-streaming": PYTORCH_WORKERS,
        "else": NO_WORKERS,
    },
}
# The same for a state in which a worker blocks, not the trainer.
WORKER_WAITS = {
    "pyfeed": "pyfeed.interruption_worker_push",
    "multiprocessing.Queue": "plain.interruption_mp_worker_put",
    **dict.fromkeys(("queue.Queue", "tf.data", "mlx-data"), NO_WORKERS),
    "else": "in its worker processes, the library itself sends the batches: the program makes no call that pushes",
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
    """Start a program that blocks in a function of `libraries`."""
    if not function.endswith(("_files", "_opening")):
        return Program(HEADER.format(function=function, arguments=item) + rest)
    # A FIFO with a writer is a file that opens but has no data. A FIFO without a writer blocks the call that opens it.
    fifo = 'os.environ["TMPDIR"] + "/fifo.tfrecord"'
    made = f"os.mkfifo({fifo})\n"
    if function.endswith("_files"):
        made += f"writer = os.open({fifo}, os.O_RDWR)\n"
    return Program(HEADER.format(function=function, arguments=fifo) + made + rest)


def wait_until_waiting(running: Program) -> None:
    """Wait until the program blocks in its state."""
    running.wait_for("waiting")
    running.wait_until_asleep()
    running.raise_errors()


def interrupted(function: str, seconds: float, failures: dict[str, Failed]) -> Measurement:
    """Measure a program that blocks: first its wake-ups, for `seconds` if not 0, then its reaction to SIGINT."""
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
        if "did not report" in str(metrics["Ctrl-C"]):
            metrics["Ctrl-C, to the end"] = metrics["Ctrl-C"]
            return metrics
        metrics["Ctrl-C, to the end"] = milliseconds(
            lambda: running.wait_for_exit(TIMEOUT) - at, f"{function}, end", failures
        )
        return metrics


def worker_signalled(function: str, rest: str, number: signal.Signals, metric: str, event: str) -> Measurement:
    """Send a signal to a blocked worker alone, and measure the time until the event."""
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
        yield  # the cleanup after this point may disturb other programs
        return metrics


def imported(seconds: float) -> Measurement:
    with Program(IMPORTED) as running:
        wait_until_waiting(running)
        before = context_switches(running.pid)
        yield
        time.sleep(seconds)
        return {"idle": wake_ups(before, context_switches(running.pid)) / seconds}


def milliseconds(measured: Callable[[], int], key: str, failures: dict[str, Failed]) -> float | Failed:
    """Measure milliseconds. A measurement that failed before is not repeated, so that its timeout elapses only once."""
    if key in failures:
        return failures[key]
    try:
        return measured() / 1e6
    except Failed as error:
        failures[key] = error
        return error


def libraries_of(state: dict[str, str], names: str) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The functions to run, by library, and the libraries that do not support the state."""
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
        """Measure the programs, all started together, and add a case for each wanted metric."""
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
    units = {"processes": "processes", "shared memory": "segments", "files": "files"}
    cases = {left: (f"killed trainer: {left} left behind", unit) for left, unit in units.items()}
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
