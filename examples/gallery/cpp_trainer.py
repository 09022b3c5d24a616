"""Trains in C++, on batches from a file and then on batches from a Python generator.

    pip install scikit-learn matplotlib
    python examples/gallery/cpp_trainer.py --picture trainer.svg

The script builds trainer.cpp with CMake and a C++ compiler, and loads the result. The pixels are integers, and so are
the weights of the model, so every machine prints the same numbers. The picture is optional, and only the picture needs
matplotlib.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

import pyfeed

Images = npt.NDArray[np.uint8]  # (n, 64): 8x8 pixels from 0 to 16
Labels = npt.NDArray[np.int64]  # (n,)
Weights = npt.NDArray[np.int64]  # (10, features)

PASSES = 10
STYLE = Path(__file__).with_name("gallery.mplstyle")


# ---- The C++ function ---------------------------------------------------------------------------


def build(folder: Path) -> Path:
    """Build trainer.cpp with the CMake package that the Python package contains, and return the shared object."""
    source = Path(__file__).parent
    commands: list[list[str | Path]] = [
        ["cmake", "-S", source, "-B", folder, f"-Dpyfeed_DIR={pyfeed.get_cmake_dir()}"],
        ["cmake", "--build", folder],
    ]
    for command in commands:
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        except FileNotFoundError:
            sys.exit("expected cmake and a C++ compiler on the PATH, found no cmake")
        if done.returncode != 0:
            sys.exit(f"trainer.cpp cannot be built:\n{done.stdout}")
    return folder / "trainer.so"


class Trainer:
    """The C++ function."""

    def __init__(self, path: Path) -> None:
        # CDLL releases the GIL during a call. PyDLL would hold it for the whole training.
        self._train = ctypes.CDLL(str(path.resolve())).train
        self._train.argtypes = [
            ctypes.c_uint64,
            ctypes.c_char_p,
            ctypes.c_uint32,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_size_t,
        ]

    def train(self, reader: pyfeed.Reader, image: Images, label: Labels) -> tuple[Weights, list[int]]:
        """Train on all passes of a reader. Return the weights, and the number of recognized images after each pass."""
        reader.scope["test_image"], reader.scope["test_label"] = image, label
        weights, right = np.zeros((10, image.shape[1]), np.int64), np.zeros(PASSES, np.uint32)
        error = ctypes.create_string_buffer(4096)
        names = reader.scope.handle, reader.name.encode()
        if self._train(*names, PASSES, weights.ctypes.data, right.ctypes.data, error, len(error)) != 0:
            raise RuntimeError(error.value.decode(errors="replace"))
        return weights, right.tolist()


# ---- The data -----------------------------------------------------------------------------------


def load() -> tuple[Images, Labels, Images, Labels]:
    """Load the digits of scikit-learn: the training set, and every fifth image as the test set."""
    digits = load_digits()
    image, label = digits.data.astype(np.uint8), digits.target.astype(np.int64)
    test = np.arange(len(label)) % 5 == 0
    return image[~test], label[~test], image[test], label[test]


def with_products(image: Images) -> Images:
    """Add the products of neighbouring pixels to the pixels: they show the directions of strokes."""
    pixels = image.reshape(-1, 8, 8)
    pairs = [
        (pixels[:, :, 1:], pixels[:, :, :-1]),
        (pixels[:, 1:], pixels[:, :-1]),
        (pixels[:, 1:, 1:], pixels[:, :-1, :-1]),
        (pixels[:, 1:, :-1], pixels[:, :-1, 1:]),
    ]
    products = [(a.astype(np.uint16) * b // 16).astype(np.uint8).reshape(len(image), -1) for a, b in pairs]
    return np.concatenate([image, *products], axis=1)


# ---- Both together ------------------------------------------------------------------------------


def from_file(folder: Path, image: Images, label: Labels) -> pyfeed.Reader:
    """Write the images to a file, and make a reader that needs no Python."""
    np.savez(folder / "train.npz", image=image, label=label)
    return pyfeed.open_files(folder / "train.npz").shuffle(2000, seed=1).batch(32).double_buffer()


def from_python(image: Images, label: Labels) -> pyfeed.Reader:
    """Make a reader of what a Python generator yields: it runs in a thread of its own, once in each pass."""

    def prepared() -> Iterator[tuple[Images, np.int64]]:
        for i in range(len(label)):
            yield with_products(image[i : i + 1])[0], label[i]

    features = with_products(image[:1]).shape[1]
    source = pyfeed.from_generator(prepared, [(features,), ()], dtypes=["uint8", "int64"])
    return source.shuffle(2000, seed=1).batch(32).double_buffer()


def draw(path: Path, right: dict[str, list[int]], images: int, weights: Weights) -> None:
    """Draw the number of recognized images after each pass, and the weights of the pixels."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(STYLE):
        figure = Figure()
        left, right_side = figure.subfigures(1, 2, squeeze=False).flat
        axes = left.add_subplot()
        for name, numbers in right.items():
            axes.plot(range(1, PASSES + 1), [100 * n / images for n in numbers], marker="o", label=name)
        axes.set(title="test images recognized, %", xlabel="pass", xticks=range(2, PASSES + 1, 2))
        axes.legend(loc="lower right")

        right_side.suptitle("weights of the pixels for each digit: blue for, red against it", fontsize="medium")
        most = abs(weights).max()
        for digit, axes in enumerate(right_side.subplots(2, 5).flat):
            axes.imshow(weights[digit].reshape(8, 8), cmap="RdBu", vmin=-most, vmax=most)
            axes.set_title(digit, loc="center")
            axes.set_axis_off()
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--build", type=Path, default=Path("build/gallery"), help="folder (default: %(default)s)")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="a .png or .svg file, drawn by matplotlib")
    args = parser.parse_args()

    trainer = Trainer(build(args.build))
    image, label, test_image, test_label = load()
    right = {}
    with tempfile.TemporaryDirectory() as folder:
        weights, right["pixels, from a file"] = trainer.train(
            from_file(Path(folder), image, label), test_image, test_label
        )
    _, right["pixels and products, from Python"] = trainer.train(
        from_python(image, label), with_products(test_image), test_label
    )
    for name, numbers in right.items():
        print(f"{name}: {numbers[-1]} of {len(test_label)} test images recognized")
        print("    after each pass:", *numbers)

    if args.picture:
        try:
            draw(args.picture, right, len(test_label), weights)
        except ImportError as error:
            print(f"no picture without matplotlib: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
