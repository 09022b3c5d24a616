"""pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from measuring import NotOffered
from tasks.files import Batch, Files, shuffled_rows
from tasks.training import Passes, Training


def files(task: Files) -> Callable[[], Iterator[Batch]]:
    """`pandas.read_csv` in chunks of the shuffle's block, with its C parser, or pyarrow's for whole files.

    https://pandas.pydata.org/docs/user_guide/io.html
    """
    if task.format != "csv":
        raise NotOffered(f"no reader of {task.format} files")
    import pandas

    def begin() -> Iterator[Batch]:
        for path in task.paths:
            for chunk in pandas.read_csv(path, dtype=np.float32, chunksize=task.block):
                yield from shuffled_rows(chunk.to_numpy(), task.batch)

    return begin


def training(task: Training) -> Passes:
    raise NotOffered("it has no workers that call a function for each instance of a batch")
