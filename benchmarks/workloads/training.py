"""The workload of `training_loop.py`: a Python function that makes instances, and training steps that take batches."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from harness import Seconds

Image = npt.NDArray[np.float32]
Label = npt.NDArray[np.int64]
Passes = Callable[[], Iterator[tuple[Image, Label]]]
"""A function that is called once for each pass, and returns the batches of the pass as NumPy arrays."""

CHANNELS = 3
MARGIN = 8  # pixels that a crop removes from each side length
BATCH = 32
AHEAD = 8  # batches to prefetch, if a library has a setting for that
WIDTH = 256  # size of the matrices that a step multiplies
PRODUCTS = 60  # products in a step: about 10 ms on one core of 2 to 3 GHz with AVX-512
MEAN = np.array([123.7, 116.3, 103.5], np.float32).reshape(3, 1, 1)
SCALE = 1 / np.array([58.4, 57.1, 57.4], np.float32).reshape(3, 1, 1)


@dataclass(frozen=True)
class Training:
    """The input of a training loop.

    Attributes
    ----------
    folder : Path
        A folder with an npy file of uint8 images, (count, 3, side + 8, side + 8), which libraries map. Copies of the
        images in the formats of libraries are there too.
    side : int
        The side length of an image in a batch, in pixels.
    rounds : int
        The rounds of augmentation for each image.
    steps : int
        The steps of a pass. Each takes one batch.
    checksum : float
        The checksum of all instances of a pass.
    """

    folder: Path
    side: int
    rounds: int
    steps: int
    checksum: float = math.nan

    @property
    def path(self) -> Path:
        return self.folder / "images.npy"

    @property
    def labels(self) -> Path:
        return self.folder / "labels.npy"

    @property
    def count(self) -> int:
        """The number of instances of a pass."""
        return self.steps * BATCH

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of an image in a batch."""
        return CHANNELS, self.side, self.side

    def stored(self) -> npt.NDArray[np.uint8]:
        """The stored images, which each process maps once."""
        return _mapped(self.path)

    def instance(self, index: int) -> tuple[Image, np.int64]:
        """The instance with an index: the item of a map-style dataset."""
        return self.preprocessed(self.stored()[index], np.int64(index))

    def preprocessed(self, image: npt.NDArray[np.uint8], index: np.int64) -> tuple[Image, np.int64]:
        """Make an instance from a stored image."""
        return preprocess(image, int(index), self.side, self.rounds), index

    def batch(self, batch: int) -> tuple[Image, Label]:
        """Make the batch with a number."""
        return stacked(list(map(self.instance, range(batch * BATCH, (batch + 1) * BATCH))))

    def fill(self, images: Image, labels: Label, batch: int) -> None:
        """Write the batch with a number into arrays."""
        for row, index in enumerate(range(batch * BATCH, (batch + 1) * BATCH)):
            images[row], labels[row] = self.instance(index)

    def batches(self) -> Iterator[tuple[Image, Label]]:
        """The batches of a pass, made in the calling thread."""
        return map(self.batch, range(self.steps))


@functools.lru_cache(1)
def _mapped(path: Path) -> npt.NDArray[np.uint8]:
    stored: npt.NDArray[np.uint8] = np.load(path, mmap_mode="r")
    return stored


def preprocess(image: npt.NDArray[np.uint8], index: int, side: int, rounds: int) -> Image:
    """The function that all libraries call: crop, flip, normalise, and rounds of contrast, saturation and a box erased.

    The random choices depend only on the index, so that all callers make the same image.
    """
    top, left = index * 7 % (MARGIN + 1), index * 5 % (MARGIN + 1)
    image = image[:, top : top + side, left : left + side]
    if index % 2:
        image = image[:, :, ::-1]
    out: Image = np.subtract(image, MEAN, dtype=np.float32, order="C")
    out *= SCALE
    for i in range(rounds):
        out += (out.mean(axis=(1, 2), keepdims=True) - out) * np.float32(0.1)
        out = np.clip(out + (out.mean(axis=0) - out) * np.float32(0.1), -3, 3)
        box = (index * 3 + i * 11) % (side - side // 8)
        out[:, box : box + side // 8, box : box + side // 8] = 0
    return out


def stacked(instances: Sequence[tuple[Image, np.int64]]) -> tuple[Image, Label]:
    """Stack instances into a batch."""
    images, labels = zip(*instances, strict=True)
    return np.stack(images), np.stack(labels)


def checksum(images: Image) -> float:
    """The sum of every 509th number of each image."""
    return float(images.reshape(len(images), -1)[:, ::509].sum(dtype=np.float64))


def endless(workload: Training, batches: Iterator[tuple[Image, Label]]) -> Passes:
    """Divide an endless stream of batches into passes, so that batches of the next pass are prefetched."""
    return lambda: itertools.islice(batches, workload.steps)


def write(workload: Training) -> Training:
    """Write the images, and compute the checksum of a pass."""
    workload.path.parent.mkdir()
    size = workload.side + MARGIN
    stored = np.random.default_rng(7).integers(0, 256, (workload.count, CHANNELS, size, size), np.uint8)
    np.save(workload.path, stored)
    np.save(workload.labels, np.arange(workload.count))
    return replace(workload, checksum=sum(checksum(images) for images, _ in workload.batches()))


class Loop:
    """A training loop. Each step makes a fixed number of matrix products.

    Parameters
    ----------
    workload : Training
    passes : callable
        Called once for each pass; returns an iterator over its batches.
    """

    def __init__(self, workload: Training, passes: Passes) -> None:
        self._workload, self._passes = workload, passes
        self._factors = np.random.default_rng(7).random((2, WIDTH, WIDTH), np.float32)
        self._product = np.empty((WIDTH, WIDTH), np.float32)

    def __call__(self, count: int) -> Seconds:
        """Run a number of passes. Return their time, and the part of it in which steps waited for their batches."""
        total = waited = 0.0
        for _ in range(count):
            took = self._pass()
            total, waited = total + took.total, waited + took.waited
        return Seconds(total, waited)

    def _pass(self) -> Seconds:
        seen = np.zeros(self._workload.count, np.int64)
        found = waited = 0.0
        start = asked = time.perf_counter()
        batches = self._passes()
        while (batch := next(batches, None)) is not None:
            waited += time.perf_counter() - asked
            images, labels = batch
            if images.shape != (BATCH, *self._workload.shape) or images.dtype != np.float32:
                raise AssertionError(f"a batch of {images.dtype} {images.shape}")
            np.add.at(seen, labels, 1)
            found += checksum(images)
            for _ in range(PRODUCTS):
                np.matmul(self._factors[0], self._factors[1], out=self._product)
            asked = time.perf_counter()
        end = time.perf_counter()
        waited += end - asked
        if not (seen == 1).all():
            raise AssertionError(f"{(seen != 1).sum()} of {len(seen)} instances were not seen once in a pass")
        if not math.isclose(found, self._workload.checksum, rel_tol=1e-6):
            raise AssertionError(f"a pass with checksum {found}, not {self._workload.checksum}")
        return Seconds(end - start, waited)


def loop(function: Callable[..., Passes], workload: Training, **given: Any) -> Loop:
    """Make a loop over the batches of a library's function."""
    return Loop(workload, function(workload, **given))
