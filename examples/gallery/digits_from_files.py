"""Trains on handwritten digits from files, which pyfeed reads, shuffles and batches, then reads a damaged file.

    pip install scikit-learn matplotlib
    python examples/gallery/digits_from_files.py --picture digits.svg

The pixels are integers, and so are the weights of the model. So every machine prints the same numbers, with any number
of threads. The picture is optional, and only the picture needs matplotlib.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

import pyfeed

Images = npt.NDArray[np.uint8]  # (n, 64): 8x8 pixels from 0 to 16
Labels = npt.NDArray[np.int64]  # (n,)
Weights = npt.NDArray[np.int64]  # (10, 64)

PASSES = 10
STYLE = Path(__file__).with_name("gallery.mplstyle")


# ---- The files ----------------------------------------------------------------------------------


def write_files(folder: Path) -> None:
    """Write the digits of scikit-learn: every fifth image to a test set, the others to four compressed files."""
    digits = load_digits()
    image, label = digits.data.astype(np.uint8), digits.target.astype(np.int64)
    test = np.arange(len(label)) % 5 == 0
    np.savez(folder / "test.npz", image=image[test], label=label[test])

    records = list(zip(image[~test], label[~test], strict=True))
    for part in range(4):
        path = folder / f"train-{part}.recordio"
        with pyfeed.open_writer(path, names=["image", "label"], compression="snappy", records_per_chunk=50) as writer:
            for record in records[part::4]:
                writer.write(record)


# ---- The model ----------------------------------------------------------------------------------


def recognize(weights: Weights, image: Images) -> Labels:
    """Return the digit with the highest score for each image."""
    digits: Labels = np.argmax(image.astype(np.int64) @ weights.T, axis=1)
    return digits


def train(reader: pyfeed.Reader, passes: int) -> Iterator[Weights]:
    """Train a perceptron, and yield the sum of the weights of all batches so far after each pass.

    The sum recognizes digits better than the weights after the last batch, since the last batches count less.
    """
    weights = np.zeros((10, 64), np.int64)
    total = np.zeros_like(weights)
    for _ in range(passes):
        for image, label in reader:
            guess = recognize(weights, image)
            wrong = guess != label
            np.add.at(weights, label[wrong], image[wrong])
            np.subtract.at(weights, guess[wrong], image[wrong])
            total += weights
        yield total.copy()


# ---- Damage -------------------------------------------------------------------------------------


def read_damaged(files: Path, damaged: Path) -> None:
    """Flip a bit in the middle of one file, and read all files again."""
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)

    read = 0
    try:
        for _ in pyfeed.open_files(files):
            read += 1
    except pyfeed.errors.CorruptRecordError as error:
        print(f"CorruptRecordError after {read} images: {Path(error.file or '').name}, record {error.record}")

    reader = pyfeed.open_files(files, on_corrupt="skip")
    read = sum(1 for _ in reader)
    details = reader.stats()["details"]
    print(f"with on_corrupt='skip': {read} images, {details['corrupt']} damaged place")


# ---- All of it ----------------------------------------------------------------------------------


def draw(path: Path, right: Sequence[int], image: Images, label: Labels, guess: Labels) -> None:
    """Draw the number of recognized images after each pass, and the images that were not recognized."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(STYLE):
        figure = Figure()
        left, right_side = figure.subfigures(1, 2, squeeze=False, width_ratios=[2, 3]).flat
        axes = left.add_subplot()
        axes.plot(range(1, len(right) + 1), [100 * n / len(label) for n in right], marker="o")
        axes.set(title="test images recognized, %", xlabel="pass", xticks=range(2, len(right) + 1, 2))

        right_side.suptitle("images that were not recognized: the digit, and the guess", fontsize="medium")
        wrong = np.flatnonzero(guess != label)
        for axes, at in zip(right_side.subplots(2, 8).flat, wrong, strict=False):
            axes.imshow(image[at].reshape(8, 8), cmap="gray_r")
            axes.set_title(f"{label[at]}, {guess[at]}", loc="center")
            axes.set_axis_off()
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--threads", type=int, default=2, help="number of threads that read files (default: %(default)s)"
    )
    parser.add_argument("--picture", type=Path, metavar="FILE", help="a .png or .svg file, drawn by matplotlib")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        files = Path(folder, "train-*.recordio")
        reader = pyfeed.open_files(files, num_threads=args.threads).shuffle(2000, seed=1).batch(32).double_buffer()
        image, label = pyfeed.open_files(Path(folder, "test.npz")).batch(1000).read()

        right = []
        for number, weights in enumerate(train(reader, PASSES), 1):
            guess = recognize(weights, image)
            right.append(int((guess == label).sum()))
            print(f"pass {number}: {right[-1]} of {len(label)} test images recognized")
        read_damaged(files, Path(folder, "train-2.recordio"))

    if args.picture:
        try:
            draw(args.picture, right, image, label, guess)
        except ImportError as error:
            print(f"no picture without matplotlib: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
