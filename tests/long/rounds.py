"""Run rounds of one part in this process: ``python -m tests.long.rounds PART --seed S --first N --seconds T``.

The campaign starts this program and reads the lines of JSON that it prints: one at the beginning of each round, and one
at its end.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from .failures import Failure, expect, process_status, random_of_round

# Limits of the process that runs the rounds.
MAX_THREADS = 200
MAX_GROWTH = 1 << 30  # bytes


def emit(**event: object) -> None:
    print(json.dumps(event), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0, help="0: one round")
    args = parser.parse_args()
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, chain=False)
    run_round = importlib.import_module(f"{__package__}.{args.part}").run_round

    resident = 0
    end = time.monotonic() + args.seconds
    number = args.first
    while True:
        emit(round=number)
        try:
            with tempfile.TemporaryDirectory(prefix="pyfeed-long-") as folder:
                run_round(random_of_round(args.seed, args.part, number), Path(folder))
            threads = process_status("Threads")
            expect(threads <= MAX_THREADS, "leaks", f"the process has {threads} threads")
            resident = resident or process_status("VmRSS")
            grown = process_status("VmRSS") - resident
            expect(grown <= MAX_GROWTH, "leaks", f"the process has grown by {grown} bytes")
        except BaseException as error:
            kind = error.kind if isinstance(error, Failure) else "crashes"
            emit(failure=kind, text=traceback.format_exc())
            return 1  # the next round runs in a new process
        emit(done=number)
        number += 1
        if time.monotonic() >= end:
            return 0


if __name__ == "__main__":
    sys.exit(main())
