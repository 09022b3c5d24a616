"""Rounds of one part, in a process of its own: ``python -m tests.long.rounds PART --seed S --first N --seconds T``.

The campaign starts this and reads its lines of JSON: one at the beginning of a round, one at its end.
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

from . import finding

# Of the process that runs the rounds, whatever it has done before.
MOST_THREADS = 200
MOST_GROWTH = 1 << 30


def tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0, help="0: one round")
    args = parser.parse_args()
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, chain=False)
    play = importlib.import_module(f"{__package__}.{args.part}").play

    resident = 0
    end = time.monotonic() + args.seconds
    number = args.first
    while True:
        tell(round=number)
        try:
            with tempfile.TemporaryDirectory(prefix="pyfeed-long-") as folder:
                play(finding.drawn(args.seed, args.part, number), Path(folder))
            threads = finding.status("Threads")
            finding.expect(threads <= MOST_THREADS, "leaks", f"the process has {threads} threads")
            resident = resident or finding.status("VmRSS")
            grown = finding.status("VmRSS") - resident
            finding.expect(grown <= MOST_GROWTH, "leaks", f"the process has grown by {grown} bytes")
        except BaseException as error:
            kind = error.kind if isinstance(error, finding.Finding) else "crashes"
            tell(found=kind, text=traceback.format_exc())
            return 1  # what the round left behind is not the next one's
        tell(done=number)
        number += 1
        if time.monotonic() >= end:
            return 0


if __name__ == "__main__":
    sys.exit(main())
