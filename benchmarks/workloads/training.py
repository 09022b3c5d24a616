"""The workload of `training_loop.py`: instances that a Python function makes batches of, and steps that take them."""

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
"""Called once a pass: its batches, of NumPy's arrays."""

CHANNELS = 3
MARGIN = 8  # what a crop takes off
BATCH = 32
AHEAD = 8  # batches that are made before they are asked for, where that can be said
WIDTH = 256  # of the matrices that a step multiplies
PRODUCTS = 60  # of a step: about 10 ms on one core of 2 to 3 GHz with AVX-512
MEAN = np.array([123.7, 116.3, 103.5], np.float32).reshape(3, 1, 1)
SCALE = 1 / np.array([58.4, 57.1, 57.4], np.float32).reshape(3, 1, 1)


@dataclass(frozen=True)
class Training:
    """What a training loop is given.

    Attributes
    ----------
    folder : Path
        With an npy file of uint8 images, (count, 3, side + 8, side + 8), which libraries map, and their copies.
    side : int
        Of an image in a batch.
    rounds : int
        Of augmentation, for each image.
    steps : int
        Of a pass, a batch each.
    checksum : float
        Of all instances of a pass.
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
        """Instances of a pass."""
        return self.steps * BATCH

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of an image in a batch."""
        return CHANNELS, self.side, self.side

    def stored(self) -> npt.NDArray[np.uint8]:
        """The images, mapped: once a process."""
        return _mapped(self.path)

    def instance(self, index: int) -> tuple[Image, np.int64]:
        """Instance of an index: what a map-style dataset gives."""
        return self.preprocessed(self.stored()[index], np.int64(index))

    def preprocessed(self, image: npt.NDArray[np.uint8], index: np.int64) -> tuple[Image, np.int64]:
        """An instance, of what is stored."""
        return preprocess(image, int(index), self.side, self.rounds), index

    def batch(self, batch: int) -> tuple[Image, Label]:
        """Batch of a number, stacked."""
        return stacked(list(map(self.instance, range(batch * BATCH, (batch + 1) * BATCH))))

    def fill(self, images: Image, labels: Label, batch: int) -> None:
        """Write the batch of a number into arrays."""
        for row, index in enumerate(range(batch * BATCH, (batch + 1) * BATCH)):
            images[row], labels[row] = self.instance(index)

    def batches(self) -> Iterator[tuple[Image, Label]]:
        """All of a pass, made in the calling thread."""
        return map(self.batch, range(self.steps))


@functools.lru_cache(1)
def _mapped(path: Path) -> npt.NDArray[np.uint8]:
    stored: npt.NDArray[np.uint8] = np.load(path, mmap_mode="r")
    return stored


def preprocess(image: npt.NDArray[np.uint8], index: int, side: int, rounds: int) -> Image:
    """The function that all libraries call: crop, flip, normalise, and rounds of contrast, saturation and a box erased.

    Its randomness is a function of the index, so that all callers make the same.
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
    """A batch of instances."""
    images, labels = zip(*instances, strict=True)
    return np.stack(images), np.stack(labels)


def checksum(images: Image) -> float:
    """Of some of all parts of each image."""
    return float(images.reshape(len(images), -1)[:, ::509].sum(dtype=np.float64))


def endless(workload: Training, batches: Iterator[tuple[Image, Label]]) -> Passes:
    """Passes of what goes on from pass to pass, so that the next is begun while the last batches of one are at work."""
    return lambda: itertools.islice(batches, workload.steps)


def write(workload: Training) -> Training:
    """Write the images, and find out the checksum of a pass."""
    workload.path.parent.mkdir()
    size = workload.side + MARGIN
    stored = np.random.default_rng(7).integers(0, 256, (workload.count, CHANNELS, size, size), np.uint8)
    np.save(workload.path, stored)
    np.save(workload.labels, np.arange(workload.count))
    return replace(workload, checksum=sum(checksum(images) for images, _ in workload.batches()))


class Loop:
    """A training loop: passes whose steps are a fixed number of products of matrices.

    Parameters
    ----------
    workload : Training
    passes : callable
        Called once a pass: an iterator over its batches.
    """

    def __init__(self, workload: Training, passes: Passes) -> None:
        self._workload, self._passes = workload, passes
        self._factors = np.random.default_rng(7).random((2, WIDTH, WIDTH), np.float32)
        self._product = np.empty((WIDTH, WIDTH), np.float32)

    def __call__(self, count: int) -> Seconds:
        """Run so many passes: how long they took, and for how long of that steps waited for their batches."""
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
    """A loop over the batches of a library's function."""
    return Loop(workload, function(workload, **given))
