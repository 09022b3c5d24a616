"""Rotates handwritten digits in worker processes, which write them into memory that the trainer reads.

    pip install scikit-learn matplotlib
    python examples/gallery/worker_processes.py --picture workers.svg

The rotation is written in plain Python, which holds the GIL: threads would rotate one image at a time. The order of
batches from several workers depends on timing. The trainer only adds up images, so its results do not depend on the
order, and every machine prints the same numbers. The picture is optional, and only the picture needs matplotlib.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyfeed_worker

import pyfeed

Images = npt.NDArray[np.uint8]  # (n, 8, 8): pixels from 0 to 16
Labels = npt.NDArray[np.int64]  # (n,)

NUM_WORKERS = 2
BATCH = 32
ANGLES = [(1.0, 0.0), (24 / 25, 7 / 25), (24 / 25, -7 / 25)]  # cosine and sine; one angle for each pass
STYLE = Path(__file__).with_name("gallery.mplstyle")


# ---- The workers --------------------------------------------------------------------------------


def rotated(image: Sequence[Sequence[int]], cosine: float, sine: float) -> list[list[int]]:
    """Rotate an image around its centre. Each pixel is interpolated between four pixels of the image."""
    size = len(image)
    padded = [[0] * (size + 2), *[[0, *row, 0] for row in image], [0] * (size + 2)]
    out = [[0] * size for _ in range(size)]
    centre = (size - 1) / 2
    for i in range(size):
        for j in range(size):
            y = min(max(centre + cosine * (i - centre) + sine * (j - centre), -1), size - 0.001) + 1
            x = min(max(centre - sine * (i - centre) + cosine * (j - centre), -1), size - 0.001) + 1
            top, left = int(y), int(x)
            down, across = y - top, x - left
            above = (1 - across) * padded[top][left] + across * padded[top][left + 1]
            below = (1 - across) * padded[top + 1][left] + across * padded[top + 1][left + 1]
            out[i][j] = round((1 - down) * above + down * below)
    return out


def work(producer: pyfeed_worker.Producer, worker: int, image: Images, label: Labels) -> None:
    """Push this worker's batches of one pass: each is written into memory that the trainer reads."""
    cosine, sine = ANGLES[producer.pass_id or 0]
    for start in range(worker * BATCH, len(label), NUM_WORKERS * BATCH):
        rows = slice(start, start + BATCH)
        began = time.monotonic()
        with producer.reserve(len(label[rows])) as (images, labels, made):
            for row, pixels in enumerate(image[rows].tolist()):
                images[row] = rotated(pixels, cosine, sine)
            labels[:] = label[rows]
            made[:] = worker, began, time.monotonic()


def work_until_killed(producer: pyfeed_worker.Producer, worker: int, image: Images, label: Labels) -> None:
    """Push three batches, then die like a process that the system kills because no memory is left."""
    for _ in range(3):
        producer.push((image[:BATCH], label[:BATCH], np.zeros(3)))
    os.kill(os.getpid(), signal.SIGKILL)


# ---- The trainer --------------------------------------------------------------------------------


def load() -> tuple[Images, Labels, Images, Labels]:
    """Load the digits of scikit-learn: the training set, and every fifth image as the test set.

    Each worker process imports this file. Only the trainer calls this function, so only the trainer imports
    scikit-learn.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    image, label = digits.images.astype(np.uint8), digits.target.astype(np.int64)
    test = np.arange(len(label)) % 5 == 0
    return image[~test], label[~test], image[test], label[test]


def new_queue() -> pyfeed.shared.SharedFeedQueue:
    """Make a queue of batches: images, labels, and the worker with the times at which it began and ended a batch."""
    shapes, dtypes = [(-1, 8, 8), (-1,), (3,)], ["uint8", "int64", "float64"]
    return pyfeed.shared.SharedFeedQueue(shapes, dtypes=dtypes, cell_bytes=4096)


class MeanDigits:
    """A model that recognizes a digit by the nearest mean image. Its numbers are integers."""

    def __init__(self) -> None:
        self.total, self.count = np.zeros((10, 8, 8), np.int64), np.zeros(10, np.int64)

    def learn(self, image: Images, label: Labels) -> None:
        """Add images to the totals of their digits."""
        np.add.at(self.total, label, image)
        self.count += np.bincount(label, minlength=10)

    def means(self) -> npt.NDArray[np.int64]:
        """Return the mean image of each digit, in units of 1/256."""
        return 256 * self.total // self.count.reshape(10, 1, 1)

    def recognize(self, image: Images) -> Labels:
        """Return the digit with the nearest mean for each image."""
        difference = 256 * image[:, np.newaxis].astype(np.int64) - self.means()
        digits: Labels = np.argmin((difference**2).sum(axis=(2, 3)), axis=1)
        return digits


def train(
    model: MeanDigits, image: Images, label: Labels, test_image: Images, test_label: Labels
) -> list[tuple[float, ...]]:
    """Train on one pass for each angle; return when the batches of the last pass were made and used."""
    queue = new_queue()
    queue.start(work, (image, label), num_workers=NUM_WORKERS, persistent=True)
    for pass_id in range(len(ANGLES)):
        if pass_id > 0:
            queue.reopen()  # the workers begin the next pass
        images, times = 0, []
        for pixels, digits, made in queue:
            began = time.monotonic()
            model.learn(pixels, digits)
            images += len(digits)
            times.append((*made.tolist(), began, time.monotonic()))
        workers = {worker for worker, *_ in times}
        right = int((model.recognize(test_image) == test_label).sum())
        print(f"pass {pass_id}: {images} images from {len(workers)} workers, ", end="")
        print(f"then {right} of {len(test_label)} test images recognized")
    return times


# ---- A worker that dies -------------------------------------------------------------------------


def lose_a_worker(image: Images, label: Labels) -> None:
    """Read from a worker that is killed, then begin the next pass with other workers."""
    queue = new_queue()
    queue.start(work_until_killed, (image, label))
    batches = 0
    try:
        for _ in queue:
            batches += 1
    except pyfeed.errors.WorkerError:
        print(f"WorkerError after {batches} batches, which is all that the worker had pushed")

    queue.reopen()
    queue.start(work, (image, label), num_workers=NUM_WORKERS)
    print(f"the next pass: {sum(len(digits) for _, digits, _ in queue)} images")


# ---- All of it ----------------------------------------------------------------------------------


def draw(path: Path, times: Sequence[tuple[float, ...]], means: npt.NDArray[np.int64]) -> None:
    """Draw when each worker rotated a batch and when the trainer used it, and the mean image of each digit."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(STYLE):
        figure = Figure()
        left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[3, 2]).flat
        axes = left.add_subplot()
        first = min(began for _, began, *_ in times)
        rows = [f"worker {n}" for n in range(NUM_WORKERS)] + ["trainer"]
        for row, name in enumerate(rows):
            if name == "trainer":
                spans = [(began, ended) for *_, began, ended in times]
            else:
                spans = [(began, ended) for worker, began, ended, *_ in times if worker == row]
            bars = [(1000 * (began - first), 1000 * (ended - began)) for began, ended in spans]
            edge = f"C{row}" if name == "trainer" else "white"  # the trainer's bars are narrow
            axes.broken_barh(bars, (row - 0.35, 0.7), color=f"C{row}", edgecolor=edge, linewidth=0.5)
        axes.set(title="the last pass: each bar is a batch", xlabel="milliseconds")
        axes.set_yticks(range(len(rows)), rows)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.invert_yaxis()

        right.suptitle("the mean images", fontsize="medium")
        for axes, mean in zip(right.subplots(2, 5).flat, means, strict=True):
            axes.imshow(mean, cmap="gray_r")
            axes.set_axis_off()
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--picture", type=Path, metavar="FILE", help="a .png or .svg file, drawn by matplotlib")
    args = parser.parse_args()

    image, label, test_image, test_label = load()
    model = MeanDigits()
    times = train(model, image, label, test_image, test_label)
    lose_a_worker(image, label)

    if args.picture:
        try:
            draw(args.picture, times, model.means())
        except ImportError as error:
            print(f"no picture without matplotlib: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
