"""SIGKILL of a training process at any moment: the next process goes on, with exactly the next batch.

    python -m tests.long.resume --kills 10000 --seed 1 --jobs 2   # prints the figures, in about 10 minutes
    python -m tests.long.campaign --part resume --seed 1 --round 77   # one round again

A round draws a chain of readers and files, and runs the training once without disturbance. It then kills the training
KILLS times, each time in a new process that has loaded the checkpoint before. A kill counts if it falls between the
first batch that the process has got and its end. One of HALTED kills is made to fall within the writing of a
checkpoint, between the creation of the partial file and its renaming; others may fall there by chance.

After each kill, the digest of all batches and the numbers of all records must be those of the undisturbed training at
that step, and no step that was committed may be missing. Seeds decide the chains and the plan of all kills, but not the
instant at which the system delivers a signal.
"""

from __future__ import annotations

import argparse
import atexit
import collections
import concurrent.futures
import dataclasses
import json
import multiprocessing
import os
import pickle
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import pyfeed

from .failures import TIMEOUT, Failure, expect, random_of_round
from .training import DELIVERED, ENDED, ROW, WRITING, Checkpoint, Plan, Reference

ROOT = Path(__file__).resolve().parents[2]
KILLS = 24  # in a round
HALTED = 4  # one in this many kills is made to fall while a checkpoint is written
STEPS = 250  # of a whole training, about
MAX_STATE_BYTES = 1024  # of a reader of at most eight files at a time, as JSON
FORMATS = (
    "npy",
    "npz",
    "idx",
    "raw",
    "tfrecord",
    "csv",
    "jsonl",
    "recordio",
    "tar",
    "arrow",
    "tokens",
    "parquet",
    "mds",
)


@dataclasses.dataclass
class Figures:
    """The results of rounds. Lost and repeated records are those that a failure has found."""

    rounds: int = 0
    kills: int = 0  # that count
    in_writing: int = 0  # of them, those between the creation of the partial file and its renaming
    not_counted: int = 0  # kills before the first batch
    ends: int = 0  # runs that have ended before they were killed, and the last of each round
    batches: int = 0  # that the runs have got
    records: int = 0  # of all trainings that have ended, without those that were read a second time
    lost: int = 0
    repeated: int = 0
    failures: int = 0
    state_bytes: int = 0  # of the largest state of a reader without zip, as JSON
    kinds: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)  # kills of each

    def add(self, other: Figures) -> None:
        for field in dataclasses.fields(self):
            mine, its = getattr(self, field.name), getattr(other, field.name)
            setattr(self, field.name, max(mine, its) if field.name == "state_bytes" else mine + its)


# ---- Chains and files ------------------------------------------------------------------------


def record(kind: str, number: int) -> tuple[Any, ...]:
    word = f"record {number}" * (number % 3)
    if kind in ("npy", "idx", "tar", "tokens"):
        row = np.array([number, 7 * number, -number][:ROW], "int32")
        return (row, word) if kind == "tar" else (row,)
    if kind in ("csv", "jsonl"):
        return np.int64(number), np.float64(number / 7), word
    slots = np.int64(number), np.arange(number, number + 3, dtype="float32")
    return slots if kind in ("npz", "raw") else (*slots, word)


def options(kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of open_writer and of open_files."""
    if kind == "raw":
        slots = {"shapes": [(), (3,)], "dtypes": ["int64", "float32"]}
        return slots, slots
    if kind == "tfrecord":
        features = [
            {"name": "id", "dtype": "int64", "shape": []},
            {"name": "x", "dtype": "float32", "shape": [3]},
            {"name": "word", "dtype": "bytes"},
        ]
        return {"features": features}, {"features": features}
    if kind == "tokens":
        tokens = {"format": kind, "dtype": "int32"}
        return tokens, {**tokens, "length": ROW}
    names = {"npz": ["id", "x"], "csv": ["id", "x", "word"], "jsonl": ["id", "x", "word"], "tar": ["npy", "txt"]}.get(
        kind
    )
    return ({"names": names} if names else {}), {}


def write_files(rng: random.Random, kind: str, folder: Path, most: int) -> tuple[str, int]:
    """Write files of random lengths; return their pattern and the number of all records."""
    packs = rng.random() < 0.25 and kind != "parquet"
    suffix = kind + (rng.choice([".gz", ".gz" if kind == "tfrecord" else ".zst"]) if packs else "")
    written = options(kind)[0]
    if kind == "recordio":
        written = {"records_per_chunk": rng.choice([3, 20, 1000]), "compression": rng.choice(["none", "snappy"])}
    if kind == "arrow":
        written = {"batch_records": rng.choice([3, 20, 1000]), "compression": rng.choice(["none", "lz4", "zstd"])}
    if kind == "parquet":
        written = {
            "row_group_records": rng.choice([3, 20, 1000]),
            "compression": rng.choice(["none", "snappy", "zstd"]),
        }
    count = 0
    for file in range(rng.randint(1, 12)):
        with pyfeed.open_writer(folder / f"{file:02}.{suffix}", **written) as writer:
            # Enough in the first file, so that a pass has a tuple behind shard and batch(drop_last=True).
            for _ in range(rng.randint(1 if file else 40, most)):
                writer.write(record(kind, count))
                count += 1
    return f"*.{suffix}", count


def draw_chain(rng: random.Random) -> list[tuple[str, dict[str, Any]]]:
    """Draw decorators in any order: at most one batch, one shard and one multi_pass."""
    kinds = [kind for kind in ("batch", "shuffle", "double_buffer") if rng.random() < 0.8]
    kinds += [kind for kind in ("map", "multi_pass", "shard") if rng.random() < 0.4]
    rng.shuffle(kinds)
    if rng.random() < 0.3:
        kinds.append("double_buffer")
    arguments: dict[str, dict[str, Any]] = {
        "batch": {"batch_size": rng.randint(1, 16), "drop_last": rng.random() < 0.3},
        "shuffle": {"buffer_size": rng.choice([2, 10, 100, 1000]), "seed": rng.randrange(1 << 60)},
        "map": {"seed": rng.randrange(1 << 60)},
        "multi_pass": {"pass_num": rng.randint(1, 4)},
        "shard": {"rank": rng.randrange(2), "world": 2},
    }
    return [(kind, arguments.get(kind, {})) for kind in kinds]


def draw(rng: random.Random, folder: Path) -> tuple[str, int, Plan]:
    """Draw a chain and write its files; return the format, the number of records, and the undisturbed run."""
    kind, chain = rng.choice(FORMATS), draw_chain(rng)
    batches = any(name == "batch" for name, _ in chain)
    pattern, count = write_files(rng, kind, folder, rng.choice([40, 40, 400]) if batches else 40)
    opened: dict[str, Any] = {**options(kind)[1], "interleave": rng.choice([1, 2, 3, 8])}
    if rng.random() < 0.3:
        opened["shuffle_files"] = rng.randrange(1 << 60)
    in_a_pass = float(count)
    for name, arguments in chain:
        in_a_pass *= {"multi_pass": arguments.get("pass_num", 1), "shard": 0.5}.get(name, 1)
        in_a_pass /= arguments.get("batch_size", 1)
    return (
        kind,
        count,
        {
            "folder": str(folder),
            "pattern": pattern,
            "open": opened,
            "second": rng.random() < 0.1,
            "chain": chain,
            "epochs": max(1, min(100, round(STEPS / max(in_a_pass, 1)))),
            "rows": kind in ("npy", "idx", "tar", "tokens"),
            "reading": {},
            "map_threads": 1,
            "depth": 2,
            "step_seconds": 0.0,
            "sync": False,
            "halt": None,
            "reference": True,
        },
    )


def vary(rng: random.Random, plan: Plan, halted: bool) -> Plan:
    """Draw the run of one process: what may differ from the process before, and where it stops."""
    return {
        **plan,
        "reading": {"num_threads": rng.randint(1, 8), "io": rng.choice(["auto", "map", "read"])},
        "map_threads": rng.randint(1, 3),
        "depth": rng.choice([1, 2, 2, 8]),
        "step_seconds": rng.choice([0.0, 0.0005]),
        "sync": rng.random() < 0.1,
        "halt": (rng.randint(0, 10), rng.choice([0.0, rng.random(), 1.0])) if halted else None,
        "reference": False,
    }


# ---- Processes -------------------------------------------------------------------------------


class Server:
    """The process that forks a process for each run."""

    def __init__(self, command: Sequence[str] = (sys.executable, "-m", f"{__package__}.training")) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(TIMEOUT)
        with theirs:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # else NumPy starts threads before the fork
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
            )
        atexit.register(self.stop)

    def stop(self) -> None:
        self.control.close()
        self.process.wait()


class Run:
    """A process that trains."""

    def __init__(self, server: Server, plan: Plan) -> None:
        self.server = server
        self.seen = b""  # the events so far
        self.events, theirs = os.pipe()
        try:
            socket.send_fds(server.control, [json.dumps(plan).encode()], [theirs])
        finally:
            os.close(theirs)
        self.process = int(server.control.recv(64))

    def wait_for(self, event: bytes, times: int = 1) -> bool:
        """Wait until an event has happened some times; return False if the run has ended before."""
        while self.seen.count(event) < times:
            if not select.select([self.events], [], [], TIMEOUT)[0]:
                os.kill(self.process, signal.SIGUSR1)  # prints the stacks
                self.kill()
                raise Failure("hangs", f"no event in {TIMEOUT:g} s after {self.seen[-3:]!r}")
            found = os.read(self.events, 65536)
            if not found:
                return False
            self.seen += found
        return True

    def kill(self) -> None:
        os.kill(self.process, signal.SIGKILL)  # which has no effect on a process that has ended

    def end(self) -> int:
        """Wait for the end of the run; return its exit status."""
        while found := os.read(self.events, 65536):
            self.seen += found
        os.close(self.events)
        self.server.control.send(b"w")
        return int(self.server.control.recv(64))


_server: Server | None = None


def server() -> Server:
    """Return the server of this process, which is started once."""
    global _server
    if _server is None:
        _server = Server()
    return _server


# ---- Rounds ----------------------------------------------------------------------------------


class LossError(Failure):
    """A training that has lost or repeated records."""

    def __init__(self, lost: int, repeated: int, text: str) -> None:
        super().__init__("losses", f"{lost} records lost, {repeated} repeated: {text}")
        self.lost, self.repeated = lost, repeated


def compare(found: Checkpoint, reference: Reference, described: str) -> None:
    """Expect that a training has got exactly the batches of the reference up to its step."""
    step = found["step"]
    expect(step < len(reference["ends"]), "losses", f"{described}: step {step} of {len(reference['ends']) - 1}")
    expected = reference["ids"][: reference["ends"][step]]
    if found["ids"] != expected:
        mine, wanted = collections.Counter(found["ids"]), collections.Counter(expected)
        raise LossError((wanted - mine).total(), (mine - wanted).total(), f"{described}: step {step}")
    expect(found["digest"] == reference["digests"][step], "losses", f"{described}: step {step}: other contents")


def saved(folder: Path) -> Checkpoint:
    """Return the checkpoint of the last run, or that before the first step."""
    try:
        out: Checkpoint = pickle.loads((folder / "checkpoint").read_bytes())
    except FileNotFoundError:
        return {"epoch": 0, "step": 0, "digest": b"", "ids": array("q"), "reader": None}
    return out


def changed(file: Path) -> int:
    """Return the time of the last change of a file, or 0 if there is none."""
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


class Round:
    """The files and the chain of a round, the undisturbed training, and what has happened to the others."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng, self.folder = rng, folder
        self.figures = Figures(rounds=1)
        self.kind, count, self.plan = draw(rng, folder)
        names = ("pattern", "open", "second", "chain", "epochs")
        self.described = json.dumps({name: value for name, value in self.plan.items() if name in names})
        run = Run(server(), self.plan)
        run.wait_for(ENDED)
        status = run.end()
        expect(status == 0, "crashes", f"{self.described}: the undisturbed training has ended with status {status}")
        self.reference: Reference = pickle.loads((folder / "reference").read_bytes())
        self.check_reference(count)

    def check_reference(self, count: int) -> None:
        """Expect each record of the files once in each pass, if no reader of the chain leaves records out."""
        times = self.plan["epochs"]
        for name, arguments in self.plan["chain"]:
            if name == "shard" or arguments.get("drop_last"):
                return
            times *= arguments.get("pass_num", 1)
        found = collections.Counter(self.reference["ids"])
        expected = collections.Counter(dict.fromkeys(range(count), times))
        if found != expected:
            raise LossError((expected - found).total(), (found - expected).total(), f"{self.described}: undisturbed")

    def run(self, kills: int) -> None:
        """Kill the training so many times, and let the last run end."""
        while self.figures.kills < kills:
            self.kill_one()
        plan, before = vary(self.rng, self.plan, halted=False), saved(self.folder)
        run = Run(server(), plan)
        run.wait_for(ENDED)
        self.check(run, before, changed(self.folder / "checkpoint.partial"))
        self.figures.records += len(self.reference["ids"])

    def kill_one(self) -> None:
        """Start a run, kill it, and check what it has left behind."""
        rng = self.rng
        halted = self.figures.kills % HALTED == 0
        plan = vary(rng, self.plan, halted)
        early, batches, delay = rng.random() < 0.05, rng.randint(1, 12), rng.random()
        before, written = saved(self.folder), changed(self.folder / "checkpoint.partial")
        run = Run(server(), plan)
        if halted:
            run.wait_for(WRITING)
        elif early:  # mostly before the first batch
            time.sleep(delay * 0.06)
        else:
            run.wait_for(DELIVERED, batches)
            time.sleep(delay**2 * 0.002)  # up to some steps
        run.kill()
        self.check(run, before, written)

    def check(self, run: Run, before: Checkpoint, written: int) -> None:
        """Check what a run has left behind; `written` is when the partial file had changed before it began."""
        status, figures = run.end(), self.figures
        expect(status in (0, -signal.SIGKILL), "crashes", f"{self.described}: a run has ended with status {status}")
        after, delivered = saved(self.folder), run.seen.count(DELIVERED)
        figures.batches += delivered
        # Each step is committed before the next batch is asked for, so at most the last one is not.
        committed = after["step"] - before["step"]
        described = f"{self.described}: {delivered} batches after step {before['step']}, then the checkpoint"
        expect(max(0, delivered - 1) <= committed <= delivered, "losses", f"{described} of step {after['step']}")
        compare(after, self.reference, described)
        if not self.plan["second"]:
            size = len(json.dumps(after["reader"]))
            expect(size <= MAX_STATE_BYTES, "losses", f"{described} has a state of {size} bytes: {after['reader']}")
            figures.state_bytes = max(figures.state_bytes, size)
        if status == 0 or ENDED in run.seen:
            expect(after["step"] == len(self.reference["ends"]) - 1, "losses", f"{described} is the last one")
            (self.folder / "checkpoint").unlink()  # the next run begins again
            figures.ends += 1
        elif delivered:
            figures.kills += 1
            figures.in_writing += changed(self.folder / "checkpoint.partial") != written
            figures.kinds[self.kind] += 1
        else:
            figures.not_counted += 1


def run_round(rng: random.Random, folder: Path) -> None:
    Round(rng, folder).run(KILLS)


# ---- A number of kills -----------------------------------------------------------------------


def round_figures(seed: int, number: int, kills: int) -> tuple[Figures, str]:
    """Run a round; return its figures, and the text of its failure or an empty string."""
    figures, text = Figures(rounds=1), ""
    with tempfile.TemporaryDirectory(prefix="pyfeed-long-") as folder:
        try:
            here = Round(random_of_round(seed, "resume", number), Path(folder))
            figures = here.figures
            here.run(kills)
        except Exception as error:
            text = f"round {number}: {getattr(error, 'kind', 'crashes')}: {error}"
            figures.failures += 1
            if isinstance(error, LossError):
                figures.lost += error.lost
                figures.repeated += error.repeated
    return figures, text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    began, total = time.monotonic(), Figures()
    # A process that is forked from this one could not use pyfeed.
    with concurrent.futures.ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
        first = range(0, args.kills, KILLS)
        rounds = [pool.submit(round_figures, args.seed, i // KILLS, min(KILLS, args.kills - i)) for i in first]
        for done in concurrent.futures.as_completed(rounds):
            figures, text = done.result()
            total.add(figures)
            if text:
                print(text, file=sys.stderr, flush=True)
            elif total.rounds % 50 == 0:
                print(f"{time.monotonic() - began:7.0f} s  {total.kills} kills, {total.failures} failures", flush=True)
    out = {"seed": args.seed, "seconds": round(time.monotonic() - began, 1), **vars(total)}
    print(json.dumps(out))
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
