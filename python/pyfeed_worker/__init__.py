"""pyfeed_worker pushes tuples of arrays into a trainer's `pyfeed.SharedFeedQueue`, from another process.

A worker imports this package only: it has no Go in it and no libpyfeed, so that nothing of it minds a fork. What is
pushed is written once, into memory that the trainer reads.

Examples
--------
In the trainer, a queue starts workers, each of which is given its `Producer`:

>>> def work(producer, worker):
...     for i in range(3):
...         producer.push((np.full((32, 784), i, np.float32),))
>>> queue = pyfeed.SharedFeedQueue([(-1, 784)], ["float32"], cell_bytes=1 << 20)  # doctest: +SKIP
>>> queue.start(work, num_workers=2)  # doctest: +SKIP
"""

from __future__ import annotations

from . import _loading as _loading
from ._errors import (
    ByteOrderError,
    CorruptRingError,
    DTypeError,
    Error,
    InvalidArgument,
    OutOfMemoryError,
    QueueClosed,
    ShapeError,
    SlotCountError,
    StateError,
    Timeout,
    TooLargeError,
    TrainerGone,
    UnsupportedError,
)
from ._lod import LoDTensor
from ._native import __version__
from ._producer import Producer

__all__ = [
    "ByteOrderError",
    "CorruptRingError",
    "DTypeError",
    "Error",
    "InvalidArgument",
    "LoDTensor",
    "OutOfMemoryError",
    "Producer",
    "QueueClosed",
    "ShapeError",
    "SlotCountError",
    "StateError",
    "Timeout",
    "TooLargeError",
    "TrainerGone",
    "UnsupportedError",
    "__version__",
]
