"""Cold start: records in a thousand files, of which a program reads the first batch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Records:
    """Messages tf.train.Example of one feature, `x`, of 20 numbers: 109 bytes each in a file.

    One file is made, and all others are links to it: the page cache has it, so that what is measured is not the disk.
    """

    shards: int = 1000
    records: int = 1_000_000  # of a shard
    floats: int = 20
    batch: int = 32
    buffer: int = 10_000  # of the shuffle

    def make(self, folder: Path) -> None:
        import pyfeed

        features = [{"name": "x", "dtype": "float32", "shape": [self.floats]}]
        with pyfeed.open_writer(folder / "one.tfrecord", features=features) as writer:
            for i in range(self.records):
                writer.write((np.full(self.floats, i, np.float32),))
        self.link(folder / "one.tfrecord", folder / "tfrecord", ".tfrecord")

    def link(self, file: Path, folder: Path, suffix: str) -> None:
        """Have a thousand names of it."""
        folder.mkdir()
        for i in range(self.shards):
            os.link(file, folder / f"{i:04}{suffix}")
