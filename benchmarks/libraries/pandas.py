"""pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from harness import NotSupported
from workloads.files import Batch, Files, shuffled_rows
from workloads.training import Passes, Training


def files(workload: Files) -> Callable[[], Iterator[Batch]]:
    """`pandas.read_csv` with its C parser, in chunks of the size of the shuffle block.

    The pyarrow parser of pandas is not used, since it reads only whole files.

    https://pandas.pydata.org/docs/user_guide/io.html
    """
    if workload.format != "csv":
        raise NotSupported("it has no reader for such files")
    import pandas

    def begin() -> Iterator[Batch]:
        for path in workload.paths:
            for chunk in pandas.read_csv(path, dtype=np.float32, chunksize=workload.block):
                yield from shuffled_rows(chunk.to_numpy(), workload.batch)

    return begin


def training(workload: Training) -> Passes:
    raise NotSupported("it has no workers that call a function for each instance of a batch")
