"""DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from harness import NotSupported
from workloads import tables
from workloads.files import Batch, Files


def files(workload: Files) -> Callable[[], Iterator[Batch]]:
    """`read_parquet` or `read_json` of all files, as record batches of Arrow of the size of a block of the shuffle.

    https://duckdb.org/docs/stable/clients/python: without the order of the rows, its threads need not wait for one
    another.
    """
    if workload.kind not in ("parquet", "jsonl"):
        raise NotSupported("it has no reader for such files")
    import duckdb

    connection = duckdb.connect(config={"threads": workload.cores, "preserve_insertion_order": False})
    paths = ", ".join(f"'{path}'" for path in workload.paths)
    source = f"read_parquet([{paths}])"
    if workload.kind == "jsonl":
        fields = "text: 'VARCHAR', label: 'BIGINT'" if workload.content == "text" else "tokens: 'INTEGER[]'"
        source = f"read_json([{paths}], format = 'newline_delimited', columns = {{{fields}}})"

    def begin() -> Iterator[Batch]:
        for some in connection.sql(f"SELECT * FROM {source}").to_arrow_reader(workload.block):
            yield from tables.shuffled_table(workload, some)

    return begin
