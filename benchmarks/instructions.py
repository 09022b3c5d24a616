"""Counts the instructions of frequent operations of the library, and compares them with the counts in the repository.

    python benchmarks/instructions.py [--update] [--runs 3] [--prefix PREFIX]

The script builds a C++ program, benchmarks/instructions, which calls the C functions under valgrind's callgrind. The
program makes 5,000 operations first, then switches the counter on for 20,000 more. The counter counts the instructions
of all threads of the process, so other load on the machine does not change the counts. Go's scheduler runs one thread
(GOMAXPROCS=1), the garbage collector is off (GOGC=off), and the scheduler does not preempt goroutines by signals, which
callgrind does not support (GODEBUG=asyncpreemptoff=1). Repeated counts then differ by less than 1 %, even for shuffle,
which prefetches in another thread. The result is the median of the runs.

The exit status is 1 if an operation takes over 5 % more instructions than in the table, benchmarks/instructions.json,
or is no longer counted. It is 2 if nothing can be counted, as without valgrind. --update writes the table. The table
contains the versions of the compilers and of valgrind, since another compiler may change the counts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple, TypedDict

SOURCE = Path(__file__).with_suffix("")
KEPT = SOURCE.with_suffix(".json")
ALLOWED = 1.05
WARM, COUNT = 5_000, 20_000

OPERATIONS = {
    "push": "push of a tuple of 64 bytes, copied",
    "push_lent": "push of a tuple of 64 bytes, lent",
    "slot": "reservation of a tuple of 64 bytes, and its commit",
    "pop": "pop of a tuple of 64 bytes, which also releases the tuple popped before",
    "next": "read of a record of 64 bytes from a raw file, one record at a time",
    "shuffle": "read of a record of 64 bytes through shuffle, one record at a time",
    "batch": "read of a record of 64 bytes through batch, in batches of 50",
    "shuffle_batch": "read of a record of 64 bytes through shuffle and batch, in batches of 50",
}


class Table(TypedDict):
    """The contents of benchmarks/instructions.json."""

    versions: dict[str, str]
    operations: dict[str, float]


class Comparison(NamedTuple):
    errors: list[str]  # the exit status is 1 if there are any
    notes: list[str]


class CountError(Exception):
    """Nothing can be counted. The message gives the reason."""


def compare(kept: Table, found: Table) -> Comparison:
    """Compare new counts with the table."""
    errors, notes = [], []
    for name in {**kept["versions"], **found["versions"]}:
        before, now = (table["versions"].get(name, "none") for table in (kept, found))
        if before != now:
            notes.append(f"this compares across versions: {name} was {before}, is {now}")
    for name, count in found["operations"].items():
        before_count = kept["operations"].get(name)
        if before_count is None:
            notes.append(f"{name} is new: --update keeps it")
        elif count > before_count * ALLOWED:
            errors.append(f"{name} has risen by {count / before_count - 1:.1%}: from {before_count:.0f} to {count:.0f}")
        elif count * ALLOWED < before_count:
            notes.append(f"{name} has fallen by {1 - count / before_count:.1%}: --update keeps that")
    errors += [f"{name} is no longer counted" for name in kept["operations"] if name not in found["operations"]]
    return Comparison(errors, notes)


def markdown(table: Table) -> str:
    """The table in the form of docs/benchmarks.md."""
    lines = ["| operation | instructions |", "|---|---:|"]
    lines += [f"| {OPERATIONS.get(name, name)} | {count:,.0f} |" for name, count in table["operations"].items()]
    versions = dict(table["versions"])
    machine = versions.pop("machine")
    said = ", ".join(f"{name} {version}" for name, version in versions.items())
    return "\n".join([*lines, "", f"Counted on {machine}, with {said}."])


def _output(command: list[str], environment: dict[str, str] | None = None, seconds: float = 300) -> str:
    """Run a command and return its standard output and standard error. A failure raises `CountError`."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds,
        )
    except FileNotFoundError:
        raise CountError(f"there is no {name} on PATH") from None
    except subprocess.TimeoutExpired:
        raise CountError(f"{name}: expected an end within {seconds:g} s") from None
    if done.returncode:
        raise CountError(f"{name} ended with status {done.returncode}:\n{done.stdout.rstrip()}")
    return done.stdout


def build(prefix: str, folder: Path) -> Path:
    """Build the binary against the package installed in `prefix`."""
    _output(["cmake", "-S", str(SOURCE), "-B", str(folder), f"-DCMAKE_PREFIX_PATH={prefix}"])
    _output(["cmake", "--build", str(folder)])
    return folder / SOURCE.name


def count(binary: Path, operation: str, records: Path) -> float:
    """Count the instructions of one operation."""
    out = records.with_suffix(".callgrind")
    tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
    environment = {"GOMAXPROCS": "1", "GOGC": "off", "GODEBUG": "asyncpreemptoff=1"}
    said = _output([*tool, str(binary), operation, str(WARM), str(COUNT), str(records)], environment)
    collected = re.search(r"Collected : (\d+)", said)
    if collected is None or collected[1] == "0":
        raise CountError(f"callgrind has counted nothing:\n{said.rstrip()}")
    return int(collected[1]) / COUNT


def versions(library: Path) -> dict[str, str]:
    """The versions of the library's compilers, from its binary, and of valgrind."""
    found = library.read_bytes()
    go = re.search(rb"\xff Go buildinf:.{19}go([\w.-]+)", found, re.DOTALL)
    gcc, clang = re.search(rb"GCC: \([^)]*\) ([\d.]+)", found), re.search(rb"clang version ([\d.]+)", found)
    return {
        "Go": go[1].decode() if go else "unknown",
        **({"GCC": gcc[1].decode()} if gcc else {}),
        **({"clang": clang[1].decode()} if clang else {}),
        "valgrind": _output(["valgrind", "--version"]).strip().removeprefix("valgrind-"),
        "machine": platform.machine(),
    }


def show(kept: Table | None, found: dict[str, list[float]]) -> None:
    print(f"{'operation':14} {'kept':>7} {'now':>7} {'change':>7}  {'spread':>6}")
    for name, counts in found.items():
        now = statistics.median(counts)
        before = kept["operations"].get(name) if kept else None
        text = f"{before:7.0f} {now:7.0f} {now / before - 1:+7.1%}" if before else f"{'':7} {now:7.0f} {'':7}"
        print(f"{name:14} {text}  {(max(counts) - min(counts)) / now:6.2%}  {OPERATIONS[name]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="write the table")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--prefix", help="where pyfeed is installed, if not as a package of this Python")
    parser.add_argument("--kept", type=Path, default=KEPT, help="the table")
    args = parser.parse_args()
    found: dict[str, list[float]] = {}
    try:
        if shutil.which("valgrind") is None:
            raise CountError("there is no valgrind on PATH")
        prefix = args.prefix
        if prefix is None:
            import pyfeed

            prefix = os.path.dirname(pyfeed.get_include())
        with tempfile.TemporaryDirectory(prefix="pyfeed-bench-") as name:
            records = Path(name, "records.raw")
            records.write_bytes(os.urandom(64) * (WARM + COUNT))
            binary = build(os.path.abspath(prefix), Path(name, "build"))
            for operation in OPERATIONS:
                found[operation] = [count(binary, operation, records) for _ in range(args.runs)]
        built_with = versions(Path(prefix, "lib", "libpyfeed.so.0"))
    except CountError as error:
        print(f"instructions.py: {error}", file=sys.stderr)
        return 2
    medians = {operation: round(statistics.median(counts), 1) for operation, counts in found.items()}
    table: Table = {"versions": built_with, "operations": medians}
    kept: Table | None = json.loads(args.kept.read_text()) if args.kept.exists() else None
    show(kept, found)
    if args.update:
        args.kept.write_text(json.dumps(table, indent=1) + "\n")
        return 0
    if kept is None:
        print(f"instructions.py: there is no table {args.kept}: --update writes it", file=sys.stderr)
        return 1
    comparison = compare(kept, table)
    for line in [*comparison.notes, *comparison.errors]:
        print(line)
    return 1 if comparison.errors else 0


if __name__ == "__main__":
    sys.exit(main())
