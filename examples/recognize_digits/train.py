"""Learns to recognize handwritten digits: Python threads prepare the images, and a C++ executor trains on them.

    pip install pyarrayfeed scikit-learn tqdm
    DIR=$(python -c 'import pyfeed; print(pyfeed.get_cmake_dir())')
    cmake -S examples/recognize_digits -B build/recognize_digits -Dpyfeed_DIR="$DIR"
    cmake --build build/recognize_digits
    python examples/recognize_digits/train.py

The progress bar shows how full the queue is, and for how much of the time the producers and the executor wait. If the
queue is full and the producers wait, the executor is the slower side. At the end, the script prints the accuracy on the
test images. The exit status is 1 if the accuracy is below 0.95.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import pyfeed

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]

GOAL = 0.95


# ---- The producers ------------------------------------------------------------------------------


def shift(images: Floats, axis: int, pixels: Floats) -> Floats:
    """Shift each image by its own distance of -1 to 1 pixels. Pixels from outside of the image are zeros."""
    padding = [(0, 0)] * images.ndim
    padding[axis] = (1, 1)
    padded = np.pad(images, padding)
    before, here, after = (padded.take(range(i, i + images.shape[axis]), axis) for i in range(3))
    weight = pixels.reshape(-1, 1, 1)
    return np.maximum(weight, 0) * before + (1 - abs(weight)) * here + np.maximum(-weight, 0) * after


def augment(images: Floats, random: np.random.Generator) -> Floats:
    """Augment the images: a random shift of up to one pixel, and random noise."""
    for axis in (1, 2):
        images = shift(images, axis, 2 * random.random(len(images), np.float32) - 1)
    return images + 0.05 * random.standard_normal(images.shape, np.float32)


def batches(images: Floats, labels: Labels, args: argparse.Namespace, worker: int) -> Iterator[tuple[Floats, Labels]]:
    """Make one worker's share of the batches of all epochs.

    The contents of each batch depend only on the seed, not on the number of workers.
    """
    number = itertools.count()
    for epoch in range(args.epochs):
        order = np.random.default_rng((args.seed, epoch)).permutation(len(images))
        for start in range(0, len(order), args.batch_size):
            if next(number) % args.threads == worker:
                rows = order[start : start + args.batch_size]
                random = np.random.default_rng((args.seed, epoch, start))
                yield augment(images[rows], random).reshape(len(rows), 64), labels[rows]


# ---- The executor -------------------------------------------------------------------------------


class Progress(ctypes.Structure):
    """The progress of the executor, updated while it runs. executor.cpp declares the same struct."""

    _fields_ = (
        ("total", ctypes.c_uint64),
        ("images", ctypes.c_uint64),
        ("loss", ctypes.c_float),
        ("test_accuracy", ctypes.c_float),
    )


class Executor:
    """The C++ executor. It gets a scope, and the names of the variables to read there."""

    def __init__(self, path: Path) -> None:
        # CDLL releases the GIL during a call. PyDLL would hold it for the whole training.
        self._train = ctypes.CDLL(str(path.resolve())).train_digits
        self._train.argtypes = [
            ctypes.c_uint64,
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_uint32,
            ctypes.POINTER(Progress),
            ctypes.c_char_p,
            ctypes.c_size_t,
        ]
        self.progress = Progress()

    def train(self, scope: pyfeed.Scope, reader: str, test_image: str, test_label: str, seed: int) -> float:
        """Train until the end of the reader, and return the accuracy on the test set."""
        names = (name.encode() for name in (reader, test_image, test_label))
        error = ctypes.create_string_buffer(4096)
        if self._train(scope.handle, *names, seed, self.progress, error, len(error)) != 0:
            raise RuntimeError(error.value.decode(errors="replace"))
        return float(self.progress.test_accuracy)


# ---- Both together ------------------------------------------------------------------------------


def watch(training: Future[float], progress: Progress, queue: pyfeed.PyArrayFeedQueue, threads: int) -> None:
    """Show the progress of the training, and the waiting times of both sides, until the training ends."""
    began = time.monotonic()
    with tqdm(total=progress.total, unit=" images", unit_scale=True) as bar:
        ended = False
        while not ended:
            ended = bool(wait([training], timeout=0.1).done)
            stats, elapsed = queue.stats(), time.monotonic() - began
            bar.n = progress.images
            bar.set_postfix_str(
                f"loss {progress.loss:.3f}, queue {stats['size']}/{stats['capacity']}, waiting: "
                f"producers {stats['producers_waited'] / threads / elapsed:.0%} "
                f"executor {stats['consumers_waited'] / elapsed:.0%}"
            )


def run(args: argparse.Namespace) -> float:
    """Train and test, and return the accuracy."""
    digits = load_digits()
    images, test_images, labels, test_labels = train_test_split(
        (digits.images / 16).astype(np.float32),
        digits.target.astype(np.int64),
        test_size=0.2,
        stratify=digits.target,
        random_state=0,
    )

    scope = pyfeed.Scope()
    scope["test_image"] = test_images.reshape(-1, 64)
    scope["test_label"] = test_labels
    reader, queue = pyfeed.py_array_reader(args.capacity, [(-1, 64), (-1,)], dtypes=["float32", "int64"], scope=scope)

    executor = Executor(args.executor)
    executor.progress.total = args.epochs * len(images)
    # At the end of the with block the queue is closed, or failed with the exception of the block (also that of Ctrl-C).
    # Either ends the executor's reads, so the pool can then wait for the executor.
    with ThreadPoolExecutor(max_workers=1) as pool, queue:
        training = pool.submit(executor.train, scope, reader.name, "test_image", "test_label", args.seed)
        queue.produce(lambda worker: batches(images, labels, args, worker), args.threads)
        watch(training, executor.progress, queue, args.threads)
    return training.result()


def positive(text: str) -> int:
    """Parse a positive integer, for argparse."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epochs", type=positive, default=150)
    parser.add_argument("--batch-size", type=positive, default=64)
    parser.add_argument("--threads", type=positive, default=2, help="that produce (default: %(default)s)")
    parser.add_argument("--capacity", type=positive, default=16, help="of the queue, in batches")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--executor", type=Path, default=Path("build/recognize_digits/executor.so"), help="default: %(default)s"
    )
    args = parser.parse_args(argv)
    if not args.executor.exists():
        parser.error(f"there is no {args.executor}: build it as {__file__} says in its first lines")

    try:
        accuracy = run(args)
    except KeyboardInterrupt:
        sys.exit(130)
    except RuntimeError as error:
        sys.exit(f"training failed: {error}")
    print(f"test accuracy: {accuracy:.2f}")
    if accuracy < GOAL:
        sys.exit(f"expected an accuracy of at least {GOAL}, found {accuracy:.4f}")


if __name__ == "__main__":
    main()
