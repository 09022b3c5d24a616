"""Polars."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from harness import NotSupported
from workloads import tables
from workloads.batches import Arrays, Batches
from workloads.files import Batch, Files, columns, shuffled_rows


def batches(workload: Batches) -> Iterator[Arrays]:
    raise NotSupported("it has no queue for batches that a program makes")


def cold_start_files(folder: str, workload: Any) -> None:
    """Parquet files with row groups of 10,000."""
    from pathlib import Path

    import numpy as np
    import polars

    numbers = np.repeat(np.arange(workload.records, dtype=np.float32)[:, None], workload.floats, axis=1)
    frame = polars.DataFrame({"x": numbers}, schema={"x": polars.Array(polars.Float32, workload.floats)})
    frame.write_parquet(f"{folder}/polars.parquet", row_group_size=10_000)
    workload.link(Path(folder, "polars.parquet"), Path(folder, "polars"), ".parquet")


def cold_start(folder: str, workload: Any, shuffle: bool) -> Any:
    """Parquet, scanned in batches. Polars has no shuffle buffer; its `sample` shuffles each batch of the scan."""
    import polars

    def batches() -> Any:
        rows = workload.buffer if shuffle else workload.batch
        for some in polars.scan_parquet(f"{folder}/polars/*.parquet").collect_batches(chunk_size=rows):
            if shuffle:
                some = some.sample(fraction=1, shuffle=True)
            yield from some.iter_slices(workload.batch)

    return batches(), lambda batch: batch["x"].to_numpy()


def files(workload: Files, lazy: bool) -> Callable[[], Iterator[Batch]]:
    """`read_csv` of each file, or `scan_csv` in batches. NumPy shuffles the rows, which is faster than `sample`.

    https://docs.pola.rs/user-guide/io/csv
    """
    if workload.format != "csv" and not workload.content:
        raise NotSupported("it has no reader for such files")
    os.environ["POLARS_MAX_THREADS"] = str(workload.cores)
    import polars

    if workload.content:
        return _tables(workload, lazy)
    schema = dict.fromkeys(columns(workload), polars.Float32)

    def frames() -> Iterator[Any]:
        if lazy:
            return iter(polars.scan_csv(list(workload.paths), schema=schema).collect_batches(chunk_size=workload.block))
        return (polars.read_csv(path, schema=schema) for path in workload.paths)

    def begin() -> Iterator[Batch]:
        for frame in frames():
            yield from shuffled_rows(frame.to_numpy(order="c"), workload.batch)

    return begin


def _tables(workload: Files, lazy: bool) -> Callable[[], Iterator[Batch]]:
    """A `read_` function for each file, or `scan_` of all in batches. The frames are shuffled as tables of Arrow."""
    import polars

    options: dict[str, Any] = {}
    if workload.kind == "jsonl":
        fields: dict[str, Any] = {"text": polars.String, "label": polars.Int64}
        options = {"schema": fields if workload.content == "text" else {"tokens": polars.List(polars.Int32)}}
    name = {"parquet": "parquet", "arrow": "ipc", "jsonl": "ndjson"}[workload.kind]

    def frames() -> Iterator[Any]:
        if lazy:
            scanned = getattr(polars, f"scan_{name}")(list(workload.paths), **options)
            return iter(scanned.collect_batches(chunk_size=workload.block))
        return (getattr(polars, f"read_{name}")(path, **options) for path in workload.paths)

    def begin() -> Iterator[Batch]:
        for frame in frames():
            yield from tables.shuffled_table(workload, frame.to_arrow(compat_level=polars.CompatLevel.oldest()))

    return begin
