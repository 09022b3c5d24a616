"""The reliability campaign, behind ``make test-long MINUTES=180 JOBS=2 SEED=1``.

    python -m tests.long.campaign --minutes 180 --jobs 2 --seed 1
    python -m tests.long.campaign --part corruption --seed 1 --round 77   # one round again

A round depends only on the seed, the name of its part and the number of the round. Each failure reports all three. A
process that reports no progress for HANG_TIMEOUT seconds hangs: the campaign saves the stacks of its threads and kills
it. Failures are counted for each part and written to build/long/failures; build/long/summary.json has the counts. The
exit status is 1 if any round failed.

Parts:

    fuzz         the Go fuzzers of all parsers; each input counts as a round
    corruption   corrupted files of every format, with wrong and with corrected checksums
    kills        SIGKILL of workers, trainers and writers
    concurrency  random calls on queues, readers, buffers and traces, from several threads
    delivery     every pushed tuple leaves a random chain exactly once
    chains       random chains of decorators against a model in Python
    exits        forks, and exits in every state
    c_api        random calls of the C API with valid, stale and random handles
    resume       SIGKILL of a training process, which goes on from its checkpoint in a new process
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "long"
PARTS = ("fuzz", "corruption", "kills", "concurrency", "delivery", "chains", "exits", "c_api", "resume")
KINDS = ("crashes", "hangs", "losses", "leaks")
HANG_TIMEOUT = 180.0  # seconds without an event from a round
SLICE = 60.0  # seconds that one part runs before another part is chosen


@dataclass
class PartStats:
    """The rounds and failures of one part."""

    rounds: int = 0
    seconds: float = 0.0
    running: int = 0
    failures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))


class Campaign:
    """Runs the parts in turn, several at a time, until the time is over."""

    def __init__(self, seed: int, parts: list[str], seconds: float) -> None:
        self.seed = seed
        self.stats = {part: PartStats() for part in parts}
        self.begin = time.monotonic()
        self.end = self.begin + seconds
        self.slice = min(SLICE, max(1.0, seconds / len(parts)))
        self.lock = threading.Lock()
        self.first = dict.fromkeys(parts, 0)
        self.fuzzers = Fuzzers() if "fuzz" in parts else None
        self.errors: list[BaseException] = []  # raised by the campaign's own code, not by a round

    def run(self, jobs: int) -> None:
        threads = [threading.Thread(target=self._work) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _work(self) -> None:
        while (left := self.end - time.monotonic()) > 0:
            with self.lock:  # of the parts with the fewest running processes, the one that has had the least time
                part = min(self.stats, key=lambda part: (self.stats[part].running, self.stats[part].seconds))
                stats = self.stats[part]
                stats.running += 1
            began = time.monotonic()
            try:
                if part == "fuzz":
                    assert self.fuzzers
                    self._fuzz(stats, min(left, self.slice))
                else:
                    self._rounds(part, stats, min(left, self.slice))
            except BaseException as error:
                self.errors.append(error)
                self.end = 0
            finally:
                with self.lock:
                    stats.seconds += time.monotonic() - began
                    stats.running -= 1
                    print(self.line(part), flush=True)

    def _rounds(self, part: str, stats: PartStats, seconds: float) -> None:
        with self.lock:
            first = self.first[part]
            self.first[part] += 1_000_000  # more rounds than fit into a slice
        rounds = RoundProcess(part, self.seed, first, seconds)
        kind, text = rounds.run()
        with self.lock:
            stats.rounds += rounds.done
            if kind:
                self._report(part, kind, rounds.number, text)

    def _fuzz(self, stats: PartStats, seconds: float) -> None:
        assert self.fuzzers
        name, executions, text = self.fuzzers.run(seconds)
        with self.lock:
            stats.rounds += executions
            if text:
                self._report("fuzz", "hangs" if "deadline" in text or "hung" in text else "crashes", name, text)

    def _report(self, part: str, kind: str, number: int | str, text: str) -> None:
        self.stats[part].failures[kind] += 1
        again = f"python -m tests.long.campaign --part {part} --seed {self.seed} --round {number}"
        if part == "fuzz":
            again = "the input that failed is in testdata/fuzz of the fuzzer's package"
        file = OUT / "failures" / f"{part}-{self.seed}-{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{kind}\n{again}\n\n{text}")
        last = text.strip().splitlines()[-1] if text.strip() else ""
        print(f"FAILED: {kind} in {part}, round {number}: {last}\n      {again}\n      {file}", flush=True)

    def line(self, part: str) -> str:
        stats = self.stats[part]
        failures = ", ".join(f"{n} {kind}" for kind, n in stats.failures.items())
        return f"{time.monotonic() - self.begin:7.0f} s  {part:11} {stats.rounds:9} rounds, {failures}"

    def summary(self) -> dict[str, object]:
        return {
            "seed": self.seed,
            "seconds": round(time.monotonic() - self.begin, 1),
            "parts": {
                part: {"rounds": c.rounds, "seconds": round(c.seconds, 1), **c.failures}
                for part, c in self.stats.items()
            },
        }

    def failures(self) -> int:
        return sum(sum(stats.failures.values()) for stats in self.stats.values())


class RoundProcess:
    """A process that runs rounds of one part. It is killed if it makes no progress."""

    def __init__(self, part: str, seed: int, first: int, seconds: float) -> None:
        self.number = first
        self.done = 0
        OUT.mkdir(parents=True, exist_ok=True)
        self.log = OUT / f"{part}-{first}.log"
        self.command = [
            *(sys.executable, "-m", "tests.long.rounds", part),
            *("--seed", str(seed), "--first", str(first), "--seconds", str(seconds)),
        ]

    def run(self) -> tuple[str, str]:
        """Run the process; return the kind and the text of its failure, or two empty strings."""
        lines: Queue[str | None] = Queue()
        with self.log.open("w") as log:
            process = subprocess.Popen(
                self.command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
            assert process.stdout
            threading.Thread(target=follow, args=(process.stdout, lines), daemon=True).start()
            kind = text = ""
            while True:
                try:
                    line = lines.get(timeout=HANG_TIMEOUT)
                except Empty:
                    kind, text = "hangs", stacks(process)
                    break
                if line is None:
                    break
                event = json.loads(line)
                self.number = event.get("round", self.number)
                self.done += "done" in event
                if "failure" in event:
                    kind, text = event["failure"], event["text"]
            try:
                code = process.wait(timeout=HANG_TIMEOUT)
            except subprocess.TimeoutExpired:  # the rounds are over, but the process does not end
                kind, text = "hangs", stacks(process)
                code = 0
            end_group(process.pid)
        stderr = self.log.read_text(errors="replace")
        if not kind and code:
            kind, text = "crashes", f"the process ended with status {code}"
        if kind:
            text = f"{stderr}\n{text}"
        self.log.unlink()
        return kind, text


def follow(file: IO[str], lines: Queue[str | None]) -> None:
    for line in file:
        if line.startswith("{"):
            lines.put(line)
    lines.put(None)


def end_group(pid: int) -> None:
    """Kill the processes that a round has left behind, before the next round."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def stacks(process: subprocess.Popen[str]) -> str:
    """Make the process print its Python stacks on standard error, then end it; return its threads' wait channels."""
    process.send_signal(signal.SIGUSR1)
    time.sleep(1)
    out = []
    for task in sorted(Path(f"/proc/{process.pid}/task").glob("*")):
        try:
            out.append(f"{task.name} {(task / 'comm').read_text().strip()}: {(task / 'wchan').read_text()}")
        except OSError:
            pass
    process.send_signal(signal.SIGABRT)
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return "\n".join(["no progress, thread by thread:", *out])


# ---- Go's fuzzers ----------------------------------------------------------------------------


class Fuzzers:
    """Runs all Go fuzzers of the repository in turn, from binaries that are built once."""

    def __init__(self) -> None:
        self.turn = 0
        self.all: list[tuple[Path, str]] = []
        for file in sorted(
            file for top in ("program", "pyfeed", "readers") for file in ROOT.glob(f"{top}/**/*_test.go")
        ):
            names = re.findall(r"^func (Fuzz\w+)\(", file.read_text(), re.MULTILINE)
            self.all += [(file.parent, name) for name in names]

    def binary(self, folder: Path) -> Path:
        binary = OUT / "fuzz" / f"{folder.relative_to(ROOT).as_posix().replace('/', '-')}.test"
        if not binary.exists():
            binary.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(
                ["go", "test", "-c", "-fuzz=Fuzz", "-vet=off", "-o", binary, "."], cwd=folder, check=True, text=True
            )
        return binary

    def run(self, seconds: float) -> tuple[str, int, str]:
        """Run the next fuzzer; return its name, the number of inputs and, if it failed, its output."""
        folder, name = self.all[self.turn % len(self.all)]
        self.turn += 1
        cache = OUT / "fuzz" / "cache"
        cached = cache / name
        if cached.exists() and sum(1 for _ in cached.iterdir()) > 2000:
            shutil.rmtree(cached)  # the fuzzer starts again from the corpus in git
        command = [
            str(self.binary(folder)),
            *("-test.run=^$", f"-test.fuzz=^{name}$", f"-test.fuzztime={max(1, int(seconds))}s", "-test.parallel=1"),
            *(f"-test.fuzzcachedir={cache}", "-test.fuzzminimizetime=10x"),
        ]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=seconds + HANG_TIMEOUT,
            )
        except subprocess.TimeoutExpired as error:
            return name, 0, f"{name} in {folder.relative_to(ROOT)} hung\n{error.output!r}"
        executions = [int(n) for n in re.findall(r"execs: (\d+)", done.stdout + done.stderr)]
        text = "" if done.returncode == 0 else f"{folder.relative_to(ROOT)}\n{done.stdout}{done.stderr}"
        return name, max(executions, default=0), text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="0: taken from the clock")
    parser.add_argument("--part", action="append", choices=PARTS, help="run only this part; may be repeated")
    parser.add_argument("--round", type=int, help="run only this round of the given part and seed")
    args = parser.parse_args()
    parts = args.part or list(PARTS)
    if args.round is not None:
        command = [*("-m", "tests.long.rounds", parts[0]), *("--seed", str(args.seed), "--first", str(args.round))]
        return subprocess.run([sys.executable, *command], cwd=ROOT).returncode

    seed = args.seed or time.time_ns() % 1_000_000_007
    print(f"seed {seed}, {args.minutes:g} minutes, {args.jobs} at a time: {' '.join(parts)}", flush=True)
    shutil.rmtree(OUT / "failures", ignore_errors=True)
    campaign = Campaign(seed, parts, args.minutes * 60)
    campaign.run(args.jobs)
    summary = campaign.summary()
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(f"\nseed {seed}, {summary['seconds']} s:")
    for part in parts:
        print(campaign.line(part))
    print(f"{campaign.failures()} failures; {OUT / 'summary.json'}")
    return 1 if campaign.failures() else 0


if __name__ == "__main__":
    sys.exit(main())
