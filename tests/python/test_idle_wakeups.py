"""Waiting threads are not woken periodically, and still handle signals."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from .support import Process, wait_until

PREAMBLE = """
import _thread, os, signal, sys, threading
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})  # the thread of at_signal waits for it
import numpy as np, pyfeed

def at_signal(do):
    def wait():
        while True:
            signal.sigwait({signal.SIGUSR2})
            do()
    threading.Thread(target=wait, daemon=True).start()
    print(os.getpid(), flush=True)

def heard(*args):  # may interrupt itself, in which print fails
    os.write(1, b"heard\\n")

signal.signal(signal.SIGUSR1, heard)
reader, queue = pyfeed.py_array_reader(2, [(2,)], dtypes=["float32"])
row = (np.zeros(2, np.float32),)
"""

WAITS = {
    "pop": "queue.pop()",
    "reader": "next(iter(reader))",
    "push": "while True: queue.push(row)",
    "chain": "next(iter(reader.shuffle(4).batch(2).double_buffer()))",
    "program": """
program = pyfeed.Program()
with pyfeed.program.program_guard(program, pyfeed.Program()):
    pyfeed.layers.read_file(reader)
pyfeed.Executor(pyfeed.CPUPlace()).run(program)
""",
    "shared": """
shared = pyfeed.shared.SharedFeedQueue([(2,)], dtypes=["float32"])
shared.pop()
""",
}


def wake_ups(pid: int) -> dict[str, str]:
    """Return how often each thread of a process has gone to sleep."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            status = (task / "status").read_text().splitlines()
            found[task.name] = next(line for line in status if line.startswith("voluntary_ctxt_switches"))
    return found


def wait_until_nobody_wakes(pid: int) -> None:
    """Wait until no thread of a process has woken for half a second. Threads that poll make this fail."""

    def quiet() -> bool:
        before = wake_ups(pid)
        time.sleep(0.5)
        return wake_ups(pid) == before

    wait_until(quiet)


@pytest.mark.parametrize("wait", WAITS)
def test_the_main_thread_sleeps_until_a_signal_comes(wait: str) -> None:
    process = Process("at_signal(lambda: None)\n" + WAITS[wait], preamble=PREAMBLE)
    wait_until_nobody_wakes(int(process.line()))
    process.signal(signal.SIGUSR1)
    assert process.line() == "heard"
    wait_until_nobody_wakes(process.process.pid)
    process.signal(signal.SIGINT)
    process.end(-signal.SIGINT)


@pytest.mark.parametrize("comes", ["signal.raise_signal(signal.SIGUSR1)", "_thread.interrupt_main(signal.SIGUSR1)"])
def test_a_signal_that_comes_to_another_thread(comes: str) -> None:
    process = Process(f"at_signal(lambda: {comes})\nqueue.pop()", preamble=PREAMBLE)
    wait_until_nobody_wakes(int(process.line()))
    for _ in range(3):
        process.signal(signal.SIGUSR2)
        assert process.line() == "heard"
    process.signal(signal.SIGINT)
    process.end(-signal.SIGINT)


@pytest.mark.parametrize(
    "handler",
    [
        "import asyncio; asyncio.run(asyncio.sleep(0))",
        "signal.set_wakeup_fd(-1)",
        "\n    try: queue.pop(timeout=0.15)\n    except pyfeed.errors.Timeout: pass",
    ],
    ids=["asyncio", "another descriptor", "a wait"],
)
def test_a_handler_that_ends_the_listening(handler: str) -> None:
    process = Process(
        f"""
def at_first(*args):
    signal.signal(signal.SIGUSR1, heard)
    {handler}
    print("first", flush=True)
signal.signal(signal.SIGUSR1, at_first)
at_signal(lambda: signal.raise_signal(signal.SIGUSR1))
queue.pop()
""",
        preamble=PREAMBLE,
    )
    for said in ("first", "heard"):
        wait_until_nobody_wakes(process.process.pid if said == "heard" else int(process.line()))
        process.signal(signal.SIGUSR2)
        assert process.line() == said
    process.signal(signal.SIGINT)
    process.end(-signal.SIGINT)


def test_who_listens_to_signals_keeps_them() -> None:
    out, err = Process(
        """
ours, theirs = os.pipe()
os.set_blocking(theirs, False)
signal.set_wakeup_fd(theirs)
signal.signal(signal.SIGUSR1, lambda *args: queue.push(row))
threading.Timer(0.3, signal.raise_signal, [signal.SIGUSR1]).start()
queue.pop()
print(list(os.read(ours, 10)) == [signal.SIGUSR1], signal.set_wakeup_fd(-1) == theirs)
try:
    queue.pop(timeout=0.2)
except pyfeed.errors.Timeout:
    print(signal.set_wakeup_fd(-1))
""",
        preamble=PREAMBLE,
    ).end()
    assert (out, err) == (["True True", "-1"], "")


def test_a_worker_sleeps_until_there_is_room(tmp_path: Path) -> None:
    program = tmp_path / "work.py"
    program.write_text(
        """
import os, signal, sys
import numpy as np, pyfeed

def work(producer, worker):
    signal.signal(signal.SIGUSR1, lambda *args: print("heard", flush=True))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # otherwise workers ignore SIGINT
    print(os.getpid(), flush=True)
    while True:
        producer.push((np.zeros(2, np.float32),))

if __name__ == "__main__":
    queue = pyfeed.shared.SharedFeedQueue([(2,)], dtypes=["float32"])
    queue.start(work)[0].join()
    try:
        for _ in queue:
            pass
    except pyfeed.errors.ProducerError as error:
        print(error.cause_type, flush=True)
"""
    )
    process = Process(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')", preamble="")

    pid = int(process.line())
    wait_until_nobody_wakes(pid)
    os.kill(pid, signal.SIGUSR1)
    assert process.line() == "heard"
    wait_until_nobody_wakes(pid)
    os.kill(pid, signal.SIGINT)
    assert process.line() == "KeyboardInterrupt"
    process.end()
