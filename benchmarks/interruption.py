"""What becomes of a program that is interrupted, killed, at its end, or has nothing to do.

    python benchmarks/interruption.py [--json FILE] [--runs 5] [--seconds 1] [--ways all] [--rows TEXTS]

Each figure is of a program of its own, in a session of its own, that waits in some state; the ways take turns, every
other run in the opposite order. Whether a program has come to its state is seen from the outside: it has said that it
is about to wait, its workers have said that they are there, and the main threads of all of them sleep, look after
look.

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

The states are below, with what each way does in them: functions in `ways`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from measuring import OURS, PEER, Failed, Results, chosen, options
from measuring.programs import Found, Program, Running, figures, in_turns, row, switches, wake_ups

LIBRARIES = (
    *("pytorch", "torchdata", "tf.data", "grain", "spdl", "mlx-data", "webdataset", "mosaicml-streaming"),
    *("huggingface datasets", "ray", "paddle"),
)
QUEUES = ("queue.Queue", "multiprocessing.Queue")
REFERENCES = ("ours", "queue.Queue", "multiprocessing.Queue", "python's open")

PATIENCE = 5  # seconds, until something will not happen any more
WORKERS = "workers that hang"

NO_QUEUE = "no queue that a program pushes into and pops from"
NO_WORKERS = "no workers of its own"
FILES_ONLY = "reads its own files only"

# What waits, in each state: the function of `ways`, after its module; or why there is none. What a state does not name
# has `else` as its reason.
STATES: dict[str, dict[str, str]] = {
    "pop from an empty queue": {
        "ours": "ours.interruption_pop",
        "queue.Queue": "plain.interruption_get",
        "else": NO_QUEUE,
    },
    "push into a full queue": {
        "ours": "ours.interruption_push",
        "ours, lent": "ours.interruption_lent_push",
        "ours, slot": "ours.interruption_slot",
        "queue.Queue": "plain.interruption_put",
        "multiprocessing.Queue": "plain.interruption_mp_put",
        "else": NO_QUEUE,
    },
    "wait for a pass to end": {"ours": "ours.interruption_wait_pass", "else": NO_QUEUE},
    "a chain over an empty queue": {
        "ours": "ours.interruption_batch",
        "ours, double_buffer": "ours.interruption_double_buffer",
        "ours, executor": "ours.interruption_executor",
        "else": NO_QUEUE,
    },
    "a generator that hangs": {
        "ours": "ours.interruption_generator",
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
        "ours": "ours.interruption_map",
        "tf.data": "tensorflow.interruption_map",
        "grain": "grain.interruption_map",
        "spdl": "spdl.interruption_map",
        "torchdata": "pytorch.interruption_mapper",
        "else": "its functions run in the main thread, or in workers",
    },
    "a file that does not come": {
        "ours": "ours.interruption_files",
        "tf.data": "it reads no FIFO",
        "else": "its files are read by Python in the main thread, or in workers",
    },
    "a file that cannot be opened yet": {
        "ours": "ours.interruption_opening",
        "python's open": "plain.interruption_opening",
        "tf.data": "it reads no FIFO",
        "else": "its files are opened by Python in the main thread, or in workers",
    },
    WORKERS: {
        "ours": "ours.interruption_workers",
        "ours, a chain": "ours.interruption_workers_chain",
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
    "ours": "ours.interruption_worker_push",
    "multiprocessing.Queue": "plain.interruption_mp_worker_put",
    "queue.Queue": NO_WORKERS,
    "else": "its workers do not push: a thread of theirs does",
}

HEADER = """\
from __future__ import annotations
import os, sys, threading, time
from tasks.interruption import FOR_EVER, quick_item, say, slow_item
from measuring import NotOffered
import importlib

def state():
    module, function = {what!r}.split(".")
    try:
        return getattr(importlib.import_module("ways." + module), function)({arguments})
    except (ImportError, NotOffered) as error:
        say("not offered", error)
        raise
"""
WAITS = """
if __name__ == "__main__":
    wait = state()
    say("waits")
    try:
        wait()
    except KeyboardInterrupt:
        say("interrupted")
    except BaseException as error:
        try:
            say("raised", type(error).__name__)
        except KeyboardInterrupt:
            say("raised", type(error).__name__)
        raise
    else:
        say("raised", "nothing")
"""
TAKES = """
if __name__ == "__main__":
    wait = state()
    wait()
    say("waits")
    time.sleep(FOR_EVER)
"""
FAILS = """
if __name__ == "__main__":
    wait = state()
    say("waits")
    try:
        wait()
    except Exception as error:
        say("failed", type(error).__name__)
"""
ENDS = """
def run(wait):
    say("waits")
    try:
        wait()
    except BaseException as error:
        say("thread raised", type(error).__name__)

if __name__ == "__main__":
    wait = state()
    threading.Thread(target=run, args=(wait,), daemon=True).start()
    sys.stdin.readline()
    say("ends")
"""
IMPORTED = """
from tasks.interruption import say
import pyfeed, sys
say("waits")
sys.stdin.readline()
"""


def program(what: str, rest: str, item: str = "") -> Program:
    """Start a program of which a function of `ways` makes what it waits for."""
    if not what.endswith(("_files", "_opening")):
        return Program(HEADER.format(what=what, arguments=item) + rest)
    # A file that does not come is a FIFO with somebody who could write into it; else it cannot even be opened.
    fifo = 'os.environ["TMPDIR"] + "/fifo.tfrecord"'
    made = f"os.mkfifo({fifo})\n"
    if what.endswith("_files"):
        made += f"writer = os.open({fifo}, os.O_RDWR)\n"
    return Program(HEADER.format(what=what, arguments=fifo) + made + rest)


def waiting(running: Program) -> None:
    """The program comes to its state."""
    running.heard("waits")
    running.at_rest()
    running.objections()


def interrupted(what: str, seconds: float, hopeless: dict[str, Failed]) -> Running:
    """A program that waits, for so many seconds if any, and is then interrupted."""
    with program(what, WAITS) as running:
        yield
        waiting(running)
        if "worker" in what:
            running.heard("worker")
            running.at_rest()
        found: Found = {}
        if seconds:
            began, before = time.monotonic(), switches(running.pid)
            yield
            time.sleep(max(0, began + seconds - time.monotonic()))
            woken = wake_ups(before, switches(running.pid))
            found["idle"] = woken / (time.monotonic() - began)
        yield
        at = running.interrupt()
        found["Ctrl-C"] = tried(lambda: running.heard("interrupted", PATIENCE)[0] - at, what, hopeless)
        if "did not come" in str(found["Ctrl-C"]):
            found["Ctrl-C, to the end"] = found["Ctrl-C"]
            return found
        found["Ctrl-C, to the end"] = tried(lambda: running.ended(PATIENCE) - at, f"{what}, end", hopeless)
        return found


def worker_struck(what: str, then: str, number: signal.Signals, figure: str, word: str) -> Running:
    """A worker that waits gets a signal, alone: how long until the word is heard."""
    with program(what, then) as running:
        yield
        waiting(running)
        worker = int(running.heard("worker")[1][0])
        running.at_rest()
        yield
        at = time.monotonic_ns()
        os.kill(worker, number)
        return {figure: (running.heard(word, PATIENCE)[0] - at) / 1e6}


def ended(what: str) -> Running:
    with program(what, ENDS) as running:
        yield
        waiting(running)
        yield
        running.tell()
        at = running.heard("ends")[0]
        return {"exit": (running.ended(PATIENCE) - at) / 1e6}


def trainer_killed(what: str) -> Running:
    with program(what, TAKES, "quick_item") as running:
        yield
        running.heard("waits")
        running.at_rest()
        yield
        workers, at = running.kill(), time.monotonic()
        yield
        time.sleep(max(0, at + 1 - time.monotonic()))
        left: Found = {name: len(found) for name, found in running.left_behind(workers).items()}
        yield  # what is ended now may be another's
        return left


def imported(seconds: float) -> Running:
    with Program(IMPORTED) as running:
        waiting(running)
        before = switches(running.pid)
        yield
        time.sleep(seconds)
        return {"idle": wake_ups(before, switches(running.pid)) / seconds}


def tried(measured: Callable[[], int], what: str, hopeless: dict[str, Failed]) -> float | Failed:
    """Milliseconds, unless it has failed before: nobody waits for that again."""
    if what in hopeless:
        return hopeless[what]
    try:
        return measured() / 1e6
    except Failed as error:
        hopeless[what] = error
        return error


def ways_of(state: dict[str, str], asked: str) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """What is to be run, and those that do not offer it."""
    names = [*state, *(name for name in (*QUEUES, *LIBRARIES) if name not in state)]
    run, not_offered = {}, []
    for name in names:
        if name == "else" or not chosen(asked, name.partition(",")[0], REFERENCES):
            continue
        what = state.get(name, state["else"])
        if "interruption_" in what:
            run[name] = what
        else:
            not_offered.append({"way": name, "kind": PEER, "not offered": what})
    return run, not_offered


def kind_of(way: str) -> str:
    return OURS if way.startswith("ours") else PEER


def main() -> None:
    parser = options(__doc__, seconds=1)
    args = parser.parse_args()
    results = Results("interruption", args)
    asked = [text for text in args.rows.split(",") if text]

    def wanted(name: str) -> bool:
        return not results.has(name) and (not asked or any(text in name for text in asked))

    hopeless: dict[str, Failed] = {}

    def add(
        rows: dict[str, tuple[str, str]],
        programs: dict[str, Callable[[], Running]],
        not_offered: list[dict[str, Any]],
        exits: dict[str, Callable[[], Running]] | None = None,
    ) -> None:
        """Measure, and add a row of each figure that is wanted: its name and unit. All are started together."""
        rows = {figure: row for figure, row in rows.items() if wanted(row[0])}
        exits = exits if exits and "exit" in rows else {}
        programs = programs if rows.keys() - {"exit"} else {}
        if rows:
            found = dict(in_turns(programs | {f"{way} exits": ends for way, ends in exits.items()}, args.runs, True))
            exited = {way: found.pop(f"{way} exits") for way in exits}
            for figure, (name, unit) in rows.items():
                ways = figures(figure, exited if figure == "exit" else found, kind_of)
                results.add(row(name, unit, {}, [*ways, *not_offered]))

    for state, what in STATES.items():
        run, not_offered = ways_of(what, args.ways)
        rows = {
            "Ctrl-C": (f"Ctrl-C: {state}", "ms"),
            "Ctrl-C, to the end": (f"Ctrl-C, to the end: {state}", "ms"),
            "idle": (f"idle: {state}", "wake-ups/s"),
            "exit": (f"exit: {state}", "ms"),
        }
        seconds = args.seconds if wanted(rows["idle"][0]) else 0
        waits: dict[str, Callable[[], Running]] = {
            w: partial(interrupted, f, seconds, hopeless) for w, f in run.items()
        }
        add(rows, waits, not_offered, {w: partial(ended, f) for w, f in run.items()})
    run, not_offered = ways_of(STATES[WORKERS], args.ways)
    rows = {left: (f"killed trainer: {left} left behind", left) for left in ("processes", "shared memory", "files")}
    add(rows, {w: partial(trainer_killed, f) for w, f in run.items()}, not_offered)
    rows = {"killed worker": ("killed worker, until the trainer is told", "ms")}
    add(
        rows,
        {w: partial(worker_struck, f, FAILS, signal.SIGKILL, "killed worker", "failed") for w, f in run.items()},
        not_offered,
    )

    run, not_offered = ways_of(WORKER_WAITS, args.ways)
    rows = {"Ctrl-C": ("Ctrl-C: a worker that pushes into a full queue", "ms")}
    add(
        rows,
        {w: partial(worker_struck, f, WAITS, signal.SIGINT, "Ctrl-C", "worker interrupted") for w, f in run.items()},
        not_offered,
    )
    run = {"ours": ""} if chosen(args.ways, "ours", REFERENCES) else {}
    rows = {"idle": ("idle: nothing but imported", "wake-ups/s")}
    add(rows, {w: partial(imported, args.seconds) for w in run}, [])


if __name__ == "__main__":
    main()
