"""The reliability campaign, behind ``make test-long MINUTES=180 JOBS=2 SEED=1``.

    python -m tests.long.campaign --minutes 180 --jobs 2 --seed 1
    python -m tests.long.campaign --part files --seed 1 --round 77   # one round again

Every round draws all it does from the seed, the part's name and its own number, which a finding names. A round that
says nothing for so long is a hang: the stacks of its threads are saved, and it is ended. Findings are counted for each
part, and lie in build/long/findings; build/long/summary.json has the counts. The exit status is 1 if there is one.

Parts:

    fuzz        Go's fuzzers of every parser; a round is an input
    files       files of every format, damaged with and without their checksums made right
    kills       SIGKILL of workers, trainers and writers
    operations  random calls on queues, readers, buffers and traces, from several threads
    account     every tuple that is pushed comes out of a random chain once
    chains      random chains of decorators against a model in Python
    ends        forks, and exits in every state
    calls       random calls of the C API with valid, stale and wild handles
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
PARTS = ("fuzz", "files", "kills", "operations", "account", "chains", "ends", "calls")
KINDS = ("crashes", "hangs", "losses", "leaks")
HANG = 180.0  # seconds without a line from a round
SLICE = 60.0  # seconds of one part before the next has its turn


@dataclass
class Count:
    """What one part has done and found."""

    rounds: int = 0
    seconds: float = 0.0
    running: int = 0
    found: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))


class Campaign:
    """Parts in turn, several at a time, until the time is over."""

    def __init__(self, seed: int, parts: list[str], seconds: float) -> None:
        self.seed = seed
        self.counts = {part: Count() for part in parts}
        self.begin = time.monotonic()
        self.end = self.begin + seconds
        self.slice = min(SLICE, max(1.0, seconds / len(parts)))
        self.lock = threading.Lock()
        self.first = dict.fromkeys(parts, 0)
        self.fuzzers = Fuzzers() if "fuzz" in parts else None

    def run(self, jobs: int) -> None:
        threads = [threading.Thread(target=self._work) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self) -> None:
        while (left := self.end - time.monotonic()) > 0:
            with self.lock:  # the part that had the least time, of those that run in the fewest processes
                part = min(self.counts, key=lambda part: (self.counts[part].running, self.counts[part].seconds))
                count = self.counts[part]
                count.running += 1
            began = time.monotonic()
            try:
                if part == "fuzz":
                    assert self.fuzzers
                    self._fuzz(count, min(left, self.slice))
                else:
                    self._rounds(part, count, min(left, self.slice))
            finally:
                with self.lock:
                    count.seconds += time.monotonic() - began
                    count.running -= 1
                    print(self.line(part), flush=True)

    def _rounds(self, part: str, count: Count, seconds: float) -> None:
        with self.lock:
            first = self.first[part]
            self.first[part] += 1_000_000  # more than a slice has
        rounds = Rounds(part, self.seed, first, seconds)
        kind, text = rounds.run()
        with self.lock:
            count.rounds += rounds.done
            if kind:
                self._found(part, kind, rounds.number, text)

    def _fuzz(self, count: Count, seconds: float) -> None:
        assert self.fuzzers
        name, executions, text = self.fuzzers.run(seconds)
        with self.lock:
            count.rounds += executions
            if text:
                self._found("fuzz", "hangs" if "deadline" in text or "hung" in text else "crashes", name, text)

    def _found(self, part: str, kind: str, number: int | str, text: str) -> None:
        self.counts[part].found[kind] += 1
        again = f"python -m tests.long.campaign --part {part} --seed {self.seed} --round {number}"
        if part == "fuzz":
            again = "the input is in testdata/fuzz of its package"
        file = OUT / "findings" / f"{part}-{self.seed}-{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{kind}\n{again}\n\n{text}")
        last = text.strip().splitlines()[-1] if text.strip() else ""
        print(f"FOUND {kind} in {part}, round {number}: {last}\n      {again}\n      {file}", flush=True)

    def line(self, part: str) -> str:
        count = self.counts[part]
        found = ", ".join(f"{n} {kind}" for kind, n in count.found.items())
        return f"{time.monotonic() - self.begin:7.0f} s  {part:10} {count.rounds:9} rounds, {found}"

    def summary(self) -> dict[str, object]:
        return {
            "seed": self.seed,
            "seconds": round(time.monotonic() - self.begin, 1),
            "parts": {
                part: {"rounds": c.rounds, "seconds": round(c.seconds, 1), **c.found} for part, c in self.counts.items()
            },
        }

    def findings(self) -> int:
        return sum(sum(count.found.values()) for count in self.counts.values())


class Rounds:
    """A process that plays rounds of one part, with an eye on whether it goes on."""

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
        """The kind of what was found and the text about it, both empty if there is nothing."""
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
                    line = lines.get(timeout=HANG)
                except Empty:
                    kind, text = "hangs", stacks(process)
                    break
                if line is None:
                    break
                told = json.loads(line)
                self.number = told.get("round", self.number)
                self.done += "done" in told
                if "found" in told:
                    kind, text = told["found"], told["text"]
            try:
                code = process.wait(timeout=HANG)
            except subprocess.TimeoutExpired:  # the rounds are over, but the process does not end
                kind, text = "hangs", stacks(process)
                code = 0
            end_group(process.pid)
        said = self.log.read_text(errors="replace")
        if not kind and code:
            kind, text = "crashes", f"the process ended with status {code}"
        if kind:
            text = f"{said}\n{text}"
        self.log.unlink()
        return kind, text


def follow(file: IO[str], lines: Queue[str | None]) -> None:
    for line in file:
        if line.startswith("{"):
            lines.put(line)
    lines.put(None)


def end_group(pid: int) -> None:
    """A finding must not leave processes to the next round."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def stacks(process: subprocess.Popen[str]) -> str:
    """Has Python's stacks printed on standard error, and says where the kernel has each thread; then ends it."""
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
    """Every fuzzer of the tree, in turn, from binaries that are built once."""

    def __init__(self) -> None:
        self.turn = 0
        self.all: list[tuple[Path, str]] = []
        for file in sorted([*ROOT.glob("pyfeed/**/*_test.go"), *ROOT.glob("readers/**/*_test.go")]):
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
        """The next fuzzer: its name, the number of inputs and, if it found something, what it says."""
        folder, name = self.all[self.turn % len(self.all)]
        self.turn += 1
        cache = OUT / "fuzz" / "cache"
        cached = cache / name
        if cached.exists() and sum(1 for _ in cached.iterdir()) > 2000:
            shutil.rmtree(cached)  # begins again from the corpus in git
        command = [
            str(self.binary(folder)),
            *("-test.run=^$", f"-test.fuzz=^{name}$", f"-test.fuzztime={max(1, int(seconds))}s", "-test.parallel=1"),
            *(f"-test.fuzzcachedir={cache}", "-test.fuzzminimizetime=10x"),
        ]
        try:
            done = subprocess.run(
                command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds + HANG
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
    parser.add_argument("--seed", type=int, default=0, help="0: by the clock")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this one; may be given several times")
    parser.add_argument("--round", type=int, help="this round only, of the part and the seed")
    args = parser.parse_args()
    parts = args.part or list(PARTS)
    if args.round is not None:
        command = [*("-m", "tests.long.rounds", parts[0]), *("--seed", str(args.seed), "--first", str(args.round))]
        return subprocess.run([sys.executable, *command], cwd=ROOT).returncode

    seed = args.seed or time.time_ns() % 1_000_000_007
    print(f"seed {seed}, {args.minutes:g} minutes, {args.jobs} at a time: {' '.join(parts)}", flush=True)
    shutil.rmtree(OUT / "findings", ignore_errors=True)
    campaign = Campaign(seed, parts, args.minutes * 60)
    campaign.run(args.jobs)
    summary = campaign.summary()
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(f"\nseed {seed}, {summary['seconds']} s:")
    for part in parts:
        print(campaign.line(part))
    print(f"{campaign.findings()} findings; {OUT / 'summary.json'}")
    return 1 if campaign.findings() else 0


if __name__ == "__main__":
    sys.exit(main())
