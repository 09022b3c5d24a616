"""orjson."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from harness import NotSupported
from workloads import tables
from workloads.files import Batch, Files


def files(workload: Files) -> Callable[[], Iterator[Batch]]:
    """`orjson.loads` of each line, in one thread, since it holds the GIL: https://github.com/ijl/orjson.

    In the DataLoader of PyTorch, worker processes call it.
    """
    if workload.kind != "jsonl":
        raise NotSupported("it has no reader for such files")
    import orjson

    return lambda: tables.parsed(workload, workload.paths, orjson.loads)
