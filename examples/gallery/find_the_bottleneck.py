"""Finds what limits three loops with traces, and changes their pipelines until the loops no longer wait for data.

    pip install matplotlib
    python examples/gallery/find_the_bottleneck.py --picture bottleneck.svg

All slow steps sleep: the decoding, the storage and the training. So the result depends neither on the processors nor on
the disk. If other programs keep the machine busy, use longer steps (--step 50). The picture is optional, and only the
picture needs matplotlib.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pyfeed.diagnostics import Trace, trace

import pyfeed

BATCHES = 40
STYLE = Path(__file__).with_name("gallery.mplstyle")
Pipeline = Callable[[int], AbstractContextManager[pyfeed.Reader]]  # makes a reader with so many threads
Measured = tuple[str, Trace]  # the name of a loop, and its trace


# ---- The measurement ----------------------------------------------------------------------------


def measure(pipeline: Pipeline, num_threads: int, train_seconds: float) -> Trace:
    """Record a loop over one pass."""
    with pipeline(num_threads) as reader, trace() as recording:
        for _ in reader:
            time.sleep(train_seconds)
    return recording


def waiting_share(summary: dict[str, Any]) -> float:
    """Return the share of the loop's time in which it waited for data."""
    shares = {part["name"]: float(part["share"]) for part in summary["parts"]}
    return 1 - shares["compute"]


def tune(name: str, pipeline: Pipeline, train_seconds: float) -> Iterator[Measured]:
    """Measure a loop with 1 thread and then with 8, until the training limits it."""
    for num_threads in (1, 8):
        recording = measure(pipeline, num_threads, train_seconds)
        summary = recording.summary
        threads = "1 thread" if num_threads == 1 else f"{num_threads} threads"
        waits = f"waits for data for {100 * waiting_share(summary):.0f} % of the time"
        print(f"{name}, {threads}: {waits}; {summary['sentence'].partition(':')[0]}")
        yield f"{name}, {threads}", recording
        if summary["limited_by"] == "compute":
            return


# ---- The pipelines ------------------------------------------------------------------------------


def decode(seconds: float, image: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Simulate a decoder that releases the GIL."""
    time.sleep(seconds)
    return image


@contextmanager
def decoded_images(seconds: float, num_threads: int) -> Iterator[pyfeed.Reader]:
    """Make a reader of images that are decoded by a Python function in threads."""
    images = pyfeed.random_data([(28, 28)], count=BATCHES)
    yield images.map(functools.partial(decode, seconds), num_threads=num_threads).double_buffer()


def serve(path: Path, seconds: float) -> None:
    """Simulate slow storage: send a file through a pipe, some time after the reader has opened it."""
    with open(path, "wb") as file:
        time.sleep(seconds)
        file.write(np.zeros((28, 28), np.float32).tobytes())


@contextmanager
def slow_storage(seconds: float, num_threads: int) -> Iterator[pyfeed.Reader]:
    """Make a reader of files that arrive slowly."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{i:03}.raw") for i in range(BATCHES)]
        for file in files:
            os.mkfifo(file)
        servers = [threading.Thread(target=serve, args=(file, seconds), daemon=True) for file in files]
        for server in servers:
            server.start()
        slots: dict[str, Any] = {"shapes": [(28, 28)], "dtypes": ["float32"]}
        yield pyfeed.open_raw(files, **slots, num_threads=num_threads, ordered=False).double_buffer()
        for server in servers:
            server.join()


# ---- All of it ----------------------------------------------------------------------------------


def draw(path: Path, measured: list[Measured]) -> None:
    """Draw where the time of each loop goes, and the beginning of the first trace."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(STYLE):
        figure = Figure(figsize=(8, 4.2))
        shares, timeline = figure.subplots(2, 1, height_ratios=[2, 3])
        loops = [name for name, _ in measured]
        parts = [{part["name"]: part["share"] for part in recording.summary["parts"]} for _, recording in measured]
        left = np.zeros(len(loops))
        for name in ("compute", "producer", "reader"):
            widths = [100 * part[name] for part in parts]
            shares.barh(loops, widths, left=left, label=name)
            left += widths
        shares.set(title="where the time of each loop goes, %", xlim=(0, 100))
        shares.invert_yaxis()
        shares.legend(loc="center left", bbox_to_anchor=(1, 0.5))

        name, recording = measured[0]
        recording.plot(timeline).collections[0].set_rasterized(True)  # an .svg file of all bars would be large
        timeline.set(title=f"the trace of the loop with {name}", xlim=(0, recording.summary["seconds"] / 8))
        timeline.get_legend().set(loc="center left", bbox_to_anchor=(1, 0.5), frame_on=False)
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--step", type=float, default=10, help="milliseconds of a short step (default: %(default)g)")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="a .png or .svg file, drawn by matplotlib")
    args = parser.parse_args()
    short, long = args.step / 1000, 4 * args.step / 1000

    measured = [
        *tune("slow decoding", functools.partial(decoded_images, long), short),
        *tune("slow storage", functools.partial(slow_storage, long), short),
        *tune("slow training", functools.partial(decoded_images, short), long),
    ]

    if args.picture:
        try:
            draw(args.picture, measured)
        except ImportError as error:
            print(f"no picture without matplotlib: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
