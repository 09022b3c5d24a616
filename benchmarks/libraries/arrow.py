"""Apache Arrow: pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from harness import NotSupported
from workloads import tables
from workloads.files import Batch, Files, columns, shuffled_rows
from workloads.training import Passes, Training


def files(workload: Files) -> Callable[[], Iterator[Batch]]:
    """`pyarrow.csv.open_csv`, which parses block by block and prefetches. The rows of each block are shuffled.

    `ParquetFile.iter_batches`, `ipc.open_file` of a mapped file, and `json.read_json`, for the other formats.

    https://arrow.apache.org/docs/python/csv.html
    """
    if workload.format != "csv" and not workload.content:
        raise NotSupported("it has no reader for such files")
    import pyarrow
    from pyarrow import csv

    pyarrow.set_cpu_count(workload.cores)
    if workload.content:
        return lambda: (
            batch
            for path in workload.paths
            for table in tables.tables(workload, path)
            for batch in tables.shuffled_table(workload, table)
        )
    reading = csv.ReadOptions(block_size=2 << 20, use_threads=workload.cores > 1)  # about 10 000 lines
    types = csv.ConvertOptions(column_types={name: pyarrow.float32() for name in columns(workload)})

    def begin() -> Iterator[Batch]:
        for path in workload.paths:
            for block in csv.open_csv(path, read_options=reading, convert_options=types):
                yield from shuffled_rows(
                    np.column_stack([column.to_numpy() for column in block.columns]), workload.batch
                )

    return begin


def training(workload: Training) -> Passes:
    raise NotSupported("it has no workers that call a function for each instance of a batch")
