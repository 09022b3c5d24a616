"""The workload of `cold_start.py`: records in a thousand files, of which a program reads the first batch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Records:
    """Messages tf.train.Example with one feature, `x`, of 20 numbers. Each takes 109 bytes in a file.

    One file is written, and all others are hard links to it. The file is in the page cache, so that the disk does not
    affect the measurement.
    """

    shards: int = 1000
    records: int = 1_000_000  # in each shard
    floats: int = 20
    batch: int = 32
    buffer: int = 10_000  # records in the buffer of the shuffle

    def make(self, folder: Path) -> None:
        import pyfeed

        features = [{"name": "x", "dtype": "float32", "shape": [self.floats]}]
        with pyfeed.open_writer(folder / "one.tfrecord", features=features) as writer:
            for i in range(self.records):
                writer.write((np.full(self.floats, i, np.float32),))
        self.link(folder / "one.tfrecord", folder / "tfrecord", ".tfrecord")

    def link(self, file: Path, folder: Path, suffix: str) -> None:
        """Link the file to a name for each shard."""
        folder.mkdir()
        for i in range(self.shards):
            os.link(file, folder / f"{i:04}{suffix}")
