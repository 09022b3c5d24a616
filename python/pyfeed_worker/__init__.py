"""pyfeed_worker pushes tuples of arrays into a `pyfeed.shared.SharedFeedQueue` of a trainer, from a worker process.

A worker needs to import only this package. It contains neither Go nor libpyfeed, so it works in forked processes too. A
tuple is written once, into memory that the trainer reads.

Examples
--------
In the trainer, a queue starts workers and gives each of them a `Producer`:

>>> def work(producer, worker):
...     for i in range(3):
...         producer.push((np.full((32, 784), i, np.float32),))
>>> queue = pyfeed.shared.SharedFeedQueue([(-1, 784)], dtypes=["float32"], cell_bytes=1 << 20)  # doctest: +SKIP
>>> queue.start(work, num_workers=2)  # doctest: +SKIP
"""

from __future__ import annotations

from . import _loading as _loading
from ._lod import LoDTensor
from ._native import __version__
from ._producer import Producer
from .errors import (
    ArgumentTypeError,
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

__all__ = [
    "ArgumentTypeError",
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
