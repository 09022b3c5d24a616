"""Measures the overhead of programs: the time of one operator, and reading in a program compared with C++ and C.

    python benchmarks/program_overhead.py [--json FILE] [--runs 7] [--megabytes 128] [--loops 200000]

A C++ binary without Python, benchmarks/program_overhead, makes all measurements. The script builds it first.

    operator    the seconds that one operator adds to the body of a loop, from loops with ten of them and with none, in
                turns
    run         the seconds of a run of an empty program, and of a program that is fed an array which is fetched again
    reading     tuples/s of a loop of read and call over tuples of 4 KiB, up to the end of the data or with has_next
                before each read, in turns with C++ and C code that calls the same reader. All of them read every byte

Values are medians over the runs. A ratio is the median of the ratios within each run. The file is in the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TUPLE = 4096
SOURCE = Path(__file__).with_suffix("")


def build(prefix: str, folder: Path) -> Path:
    """Build the binary against the package installed in `prefix`."""
    configure = ["-S", str(SOURCE), "-B", str(folder), f"-DCMAKE_PREFIX_PATH={prefix}"]
    for options in (configure, ["--build", str(folder)]):
        subprocess.run(["cmake", *options], check=True, stdout=subprocess.DEVNULL)
    return folder / SOURCE.name


def show(found: dict[str, Any]) -> None:
    for op in found["operators"]:
        costs = [1e9 * s for s in op["seconds"]]
        print(f"{op['operator']:16} {statistics.median(costs):6.0f} ns ({min(costs):.0f} to {max(costs):.0f})")
    loop = 1e9 * statistics.median(s for op in found["operators"] for s in op["loop_seconds"])
    print(f"{'the loop itself':16} {loop:6.0f} ns: while, increment, less_than")
    for row in found["runs"]:
        costs = [1e9 * s for s in row["seconds"]]
        print(f"{'a run, ' + row['run']:22} {statistics.median(costs):6.0f} ns ({min(costs):.0f} to {max(costs):.0f})")
    for row in found["reading"]:
        rates = row["tuples_per_second"]
        text = f"{row['source']:18} {row['loop']:10} {statistics.median(rates['program']) / 1e6:5.2f} M tuples/s"
        for peer in ("C++", "C"):
            ratios = [ours / theirs for ours, theirs in zip(rates["program"], rates[peer], strict=True)]
            text += f"  {statistics.median(ratios):5.2f} x {peer} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=128, help="of the file that is read")
    parser.add_argument("--loops", type=int, default=200_000, help="turns of the loops of operators")
    parser.add_argument("--prefix", help="where pyfeed is installed, if not as a package of this Python")
    args = parser.parse_args()
    prefix = args.prefix
    if prefix is None:
        import pyfeed

        prefix = os.path.dirname(pyfeed.get_include())
    with tempfile.TemporaryDirectory(prefix="pyfeed-bench-") as name:
        file = Path(name, "tuples.raw")
        noise = os.urandom(1 << 20)
        with file.open("wb") as out:
            for _ in range(args.megabytes):
                out.write(noise)
        command = [build(prefix, Path(name, "build")), file, file.stat().st_size // TUPLE, args.runs, args.loops]
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        print(f"{SOURCE.name} ended with status {done.returncode}", file=sys.stderr)
        return 1
    found = json.loads(done.stdout)
    show(found)
    if args.json:
        machine = {"machine": platform.machine(), "cpus": os.cpu_count(), "python": platform.python_version()}
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps({"machine": machine, **found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
