"""Forks, and exits in every state: with threads that wait, read, push and trace."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from .failures import TIMEOUT, Failure, expect

BEGIN = """
import atexit, faulthandler, os, signal, sys, threading, time
faulthandler.register(signal.SIGUSR1, chain=False)
import numpy as np
import pyfeed
from pyfeed import Scope, diagnostics

def begin(function, daemon):
    threading.Thread(target=quiet, args=(function,), daemon=daemon).start()

def quiet(function):
    try:
        function()
    except (pyfeed.errors.Error, StopIteration):
        pass

def feed(capacity=1):
    return pyfeed.py_array_reader(capacity, [(2,)], dtypes=["float64"], scope=Scope())

def endless(worker=0):
    while True:
        yield (np.zeros(2),)

def some(worker=0):
    for i in range(500):
        yield (np.zeros(2),)

kept = []
"""

# Each line begins work that is still in progress when the process exits. {d}: whether its threads are daemons.
STATES = [
    "r, q = feed(); kept += [r, q]; begin(lambda: q.pop(), {d})",
    "r, q = feed(); kept += [r, q]; begin(lambda: r.read(), {d})",
    "r, q = feed(); kept += [r, q]; q.push((np.zeros(2),)); begin(lambda: q.push((np.zeros(2),)), {d})",
    "r, q = feed(); kept += [r, q]; begin(lambda: [q.push((np.zeros(2),)) for _ in range(1000)], {d}); r.read()",
    "r, q = feed(); kept += [r, q]; q.produce(some, num_threads=2); r.read()",
    "r, q = feed(4); q.produce(some); r = r.batch(3).double_buffer(); kept += [r, q]; r.read()",
    "r = pyfeed.from_generator(some, [(2,)], dtypes=['float64'], scope=Scope()).shuffle(10); kept.append(r); r.read()",
    "r = pyfeed.from_generator(endless, [(2,)], dtypes=['float64'], scope=Scope()); kept.append(r); r.read()",
    "r = pyfeed.open_files('a.npy', scope=Scope()).multi_pass(9).double_buffer(); kept.append(r); r.read()",
    "r = pyfeed.open_files('a.npy', scope=Scope()).map(lambda x: (x + 1,), 2); kept.append(r); r.read()",
    "r = pyfeed.open_files('a.npy', scope=Scope()).map(lambda x: time.sleep(60), 2); kept.append(r); "
    "begin(lambda: r.read(timeout=0.05), True)",
    "w = pyfeed.open_writer('b.npy'); w.write((np.zeros(3),)); kept.append(w)",
    "kept.append(diagnostics.trace())",
    "r, q = feed(); s = q.reserve(); kept += [r, q, s]; s.__enter__()",
    "r, q = feed(); q.push((np.arange(2.0),), copy=False); kept += [r, q, *r.read()]",
    "b = pyfeed.staging.get_buffer(pyfeed.CPUPlace(), 2); begin(lambda: b.get(), {d})",
    "atexit.register(lambda: quiet(lambda: feed()[0].read(timeout=0.01)))",
    "os.fork() or os._exit(0)",
]

# In a forked child every call of pyfeed raises an error, and the child exits.
IN_CHILD = [
    "feed()",
    "kept and repr(kept[0])",
    "kept and kept.clear()",
    "pyfeed.diagnostics.memory_stats()",
    "pyfeed.open_files('a.npy')",
    "pyfeed.global_scope()",
]

EXITS = [
    ("pass", 0),
    ("sys.exit(3)", 3),
    ("os._exit(4)", 4),
    ("raise ValueError('the end')", 1),
    ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT),
    ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -signal.SIGTERM),
    ("kept.clear()", 0),
    ("del pyfeed, kept", 0),
    ("import gc; gc.collect(); sys.modules.pop('pyfeed')", 0),
]

# Words that must not be on standard error.
FATAL = [
    "Fatal Python error",
    "panic:",
    "fatal error:",
    "SIGSEGV",
    "unexpected signal",
    "goroutine ",
    "AddressSanitizer",
]


def script(rng: random.Random) -> tuple[str, int]:
    """A program, and its exit status."""
    lines = ["np.save('a.npy', np.zeros((100, 2)))"]
    states = rng.sample(STATES, rng.randint(0, 4))
    lines += [state.format(d=rng.random() < 0.7) for state in states]
    if rng.random() < 0.4:
        child = "; ".join(f"quiet(lambda: {line})" for line in rng.sample(IN_CHILD, rng.randint(1, 3)))
        end = rng.choice(["os._exit(0)", "sys.exit(0)"])
        lines += [
            "sys.stdout.flush(); child = os.fork()",
            f"if not child:\n    {child}; {end}",
            "assert os.waitpid(child, 0)[1] == 0, 'the child failed'",
        ]
    if rng.random() < 0.5:
        lines.append(f"time.sleep({rng.choice([0.001, 0.01, 0.2])})")
    end, status = rng.choice(EXITS)
    return "\n".join([BEGIN, *lines, end]), status


def run_round(rng: random.Random, folder: Path) -> None:
    program, status = script(rng)
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
        start_new_session=True,
    )
    shown = textwrap.indent(program.removeprefix(BEGIN), "    ")
    try:
        _, stderr = process.communicate(timeout=2 * TIMEOUT)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGUSR1)
        try:
            process.communicate(timeout=2)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            stderr = process.communicate()[1] or str(error.stderr)
        raise Failure("hangs", f"{shown}\n{stderr}\nthe process does not end") from None
    for word in FATAL:
        expect(word not in stderr, "crashes", f"{shown}\n{stderr}\nstandard error has {word!r}")
    # CPython forgets the interrupt if a function at exit compiles code, as namedtuple does; the status is then 1.
    expect(
        process.returncode == status or (status == -signal.SIGINT and process.returncode == 1),
        "crashes",
        f"{shown}\n{stderr}\nexpected status {status}, found {process.returncode}",
    )
    if status in (0, 1, 3):  # after other exits no cleanup runs
        left = {p.name for p in folder.iterdir()} - {"a.npy", "b.npy"}
        expect(not left, "leaks", f"{shown}\nleft files: {left}")
