"""Measures how fast libraries read the same instances from files and deliver them as shuffled batches of 32.

    python benchmarks/files.py [--libraries all] [--json FILE] [--cases tfrecord,npy] [--cores 1,2] [--folder DIR]

The script writes the files once, into a temporary folder or `--folder`, and reads them before the first measurement, so
that they are in the page cache. It times passes, each from the first file to the last batch. A Python consumer takes
the batches and reads one byte of every page of every array. After the pass it checks that every instance came exactly
once, with its own label, and not in the order of the files. A batch has one array for each slot: a NumPy array, or an
array that converts to one without a copy. All libraries shuffle, within blocks or a buffer of as many instances as the
table says, or over all instances.

    case                files                                                  instances   shuffled among
    tfrecord large      4 of 100 KB records                                    2 000       256
    tfrecord small      4 of 100 B records                                     50 000     10 000
    tfrecord example    4 of tf.train.Example: 784 floats and a label          20 000      10 000
    npy 4 KiB           one array a file                                       4 000       all or 1000
    npy 64 KiB          one array a file                                       2 000       all or 1000
    npy rows            rows of 3 KiB of one file                              40 000      10 000
    tar                 4 of 1 KiB and a class, as WebDataset names members    20 000      1000
    csv                 4 of 20 columns of floats                              50 000      10 000
    recordio large      4 of 100 KB records                                    2 000       256
    recordio small      4 of 100 B records                                     50 000     10 000
    raw large           4 of 100 KB records, one after the other               2 000       256
    raw small           4 of 100 B records, one after the other                50 000     10 000
    parquet numbers     4 of 10 columns of floats and a label; snappy, zstd    200 000    10 000
    parquet tokens      4 of lists of 64 to 319 tokens; snappy, zstd           20 000     10 000
    arrow numbers       the same in Arrow IPC files                            200 000    10 000
    arrow tokens        the same in Arrow IPC files                            20 000     10 000
    jsonl text          4 of text of 65 to 320 characters and a label          50 000     10 000
    jsonl tokens        4 of lists of 64 to 319 tokens                         20 000     10 000
    mds                 4 shards of 1 KiB and a label, as MosaicML writes them 20 000     10 000
    tokens              4 of tokens without a header, in windows of 1024       40 000     10 000

`libraries` contains one module for each library, with links to its documentation. The code below lists the settings
that the script tries. If the name of a library contains a format in brackets, the library reads the same instances from
that format; the script writes those files before the measurement. `read` is the limit: one process for each core calls
`read` for all the bytes, into one buffer.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness import LIMIT, PEER, PYFEED, Case, Library, Results, measure, options, selected
from libraries import (
    arrow,
    dali,
    duckdb,
    grain,
    huggingface,
    litdata,
    mlx_data,
    mosaic,
    orjson,
    paddle,
    pandas,
    plain,
    polars,
    pyfeed,
    pytorch,
    ray_data,
    spdl,
    tensorflow,
    tensorstore,
    turboloader,
    webdataset,
)
from workloads import files as workloads
from workloads.files import Files

REFERENCES = ("pyfeed", "numpy", "read")

# The case, format, instances, shape, dtype, block, and whether the unit is GB/s.
CASES: list[tuple[str, str, int, tuple[int, ...], str, int, bool]] = [
    ("tfrecord large", "tfrecord", 2_000, (100_000,), "uint8", 256, True),
    ("tfrecord small", "tfrecord", 50_000, (100,), "uint8", 10_000, False),
    ("tfrecord example", "example", 20_000, (784,), "float32", 10_000, False),
    ("npy 4 KiB", "npy", 4_000, (4, 256), "float32", 1_000, False),
    ("npy 64 KiB", "npy", 2_000, (64, 256), "float32", 1_000, True),
    ("npy rows", "rows", 40_000, (768,), "float32", 10_000, True),
    ("tar", "tar", 20_000, (1024,), "uint8", 1_000, False),
    ("csv", "csv", 50_000, (20,), "float32", 10_000, False),
    ("recordio large", "recordio", 2_000, (100_000,), "uint8", 256, True),
    ("recordio small", "recordio", 50_000, (100,), "uint8", 10_000, False),
    ("raw large", "raw", 2_000, (100_000,), "uint8", 256, True),
    ("raw small", "raw", 50_000, (100,), "uint8", 10_000, False),
    ("parquet numbers snappy", "parquet snappy", 200_000, (10,), "float32", 10_000, False),
    ("parquet numbers zstd", "parquet zstd", 200_000, (10,), "float32", 10_000, False),
    ("parquet tokens snappy", "parquet snappy", 20_000, (), "int32", 10_000, False),
    ("parquet tokens zstd", "parquet zstd", 20_000, (), "int32", 10_000, False),
    ("arrow numbers", "arrow", 200_000, (10,), "float32", 10_000, False),
    ("arrow tokens", "arrow", 20_000, (), "int32", 10_000, False),
    ("jsonl text", "jsonl", 50_000, (), "str", 10_000, False),
    ("jsonl tokens", "jsonl", 20_000, (), "int32", 10_000, False),
    ("mds", "mds", 20_000, (1024,), "uint8", 10_000, False),
    ("tokens", "tokens", 40_000, (1024,), "uint16", 10_000, True),
]

# For each format of the last cases, the libraries that read it; for the others, `workloads.not_supported` says so.
READ_BY = {
    "parquet": {"torch DataLoader", "grain", "datasets (arrow)", "ray data", "pyarrow", "polars", "duckdb"},
    "arrow": {"torch DataLoader", "datasets (arrow)", "pyarrow", "polars"},
    "jsonl": {
        *("torch DataLoader", "datasets (arrow)", "ray data", "pyarrow", "polars", "duckdb", "orjson", "numpy"),
    },
    "mds": {"streaming"},
    "tokens": {
        *("tf.data", "torch DataLoader", "torchdata nodes", "grain", "spdl", "paddle DataLoader", "dali"),
        *("turboloader", "numpy"),
    },
}

# The packages that write the files of a format.
WRITTEN_WITH = {"parquet": "pyarrow", "arrow": "pyarrow", "mds": "streaming"}


def libraries_of(files: Files) -> Iterator[Library]:
    """Yield all libraries, including those that do not support the format."""

    def library(name: str, function: Callable[..., Any], settings: list[dict[str, Any]], kind: str = PEER) -> Library:
        if kind == PEER and name not in READ_BY.get(files.kind, {name}):
            return Library(name, {"": workloads.not_supported}, kind)
        tried = {_text(setting): partial(workloads.passes, function, files, **setting) for setting in settings}
        return Library(name, tried, kind)

    cores = files.cores
    depths: list[dict[str, Any]] = [{"double_buffer": depth} for depth in ((0, 2) if cores == 1 else (0, 2, 8))]
    if files.format == "npy":
        unordered = {"double_buffer": 0, "ordered": False}
        depths += [unordered, unordered | {"extra_threads": 1}]
    yield library("pyfeed", pyfeed.files, depths, PYFEED)
    yield library("tf.data", tensorflow.files, [{}])
    yield library("torch DataLoader", pytorch.files, [{"workers": 0}, {"workers": cores}])
    yield library("torchdata nodes", pytorch.files_nodes, [{"workers": cores}])
    yield library(
        "grain (arrayrecord)" if files.format == "recordio" else "grain",
        grain.files,
        [{"threads": 0}, {"threads": cores}],
    )
    yield library("spdl", spdl.files, [{"concurrency": cores}])
    yield library("mlx-data", mlx_data.files, [{"threads": cores}])
    yield library("webdataset", webdataset.files, [{"workers": 0}, {"workers": cores}])
    own = files.format in ("recordio", "example")  # these formats have an equivalent among the libraries' own
    yield library("streaming (mds)" if own else "streaming", mosaic.files, [{"workers": 0}, {"workers": cores}])
    yield library(
        "datasets (arrow)" if own or files.format == "csv" or files.content else "datasets", huggingface.files, [{}]
    )
    yield library("ray data", ray_data.files, [{}])
    workers = (0, cores) if files.format in workloads.RANDOM_ACCESS else (0,)  # see `paddle.files`
    yield library("paddle DataLoader", paddle.files, [{"workers": n} for n in workers])
    yield library("dali", dali.files, [{"depth": 1}, {"depth": 4}])
    threads = (0, cores) if files.format == "npy" else (0,)  # see `turboloader.files`
    yield library("turboloader", turboloader.files, [{"threads": n} for n in threads])
    yield library("tensorstore (zarr)", tensorstore.files, [{"ahead": 1}, {"ahead": 2}])
    yield library("litdata (chunks)" if own else "litdata", litdata.files, [{"workers": 0}, {"workers": cores}])
    yield library("pyarrow", arrow.files, [{}])
    yield library("pandas", pandas.files, [{}])
    yield library("duckdb", duckdb.files, [{}])
    yield library("orjson", orjson.files, [{}])
    yield library("polars", polars.files, [{"lazy": False}, {"lazy": True}])
    yield library("numpy", plain.files, [{}])
    yield Library("read", {"": partial(plain.files_read, files)}, LIMIT)


def _text(setting: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in setting.items())


def cases(args: argparse.Namespace, folder: Path, done: Callable[..., bool]) -> Iterator[Case]:
    """Yield the cases without results, and write their files into the folder."""
    only = [text for text in args.cases.split(",") if text]
    for name, format, count, shape, dtype, block, large in CASES:
        if only and not any(text in name for text in only):
            continue
        named = {f"{name}, {cores} core{'s' * (cores > 1)}": cores for cores in map(int, args.cores.split(","))}
        if done(*named):
            continue
        package = WRITTEN_WITH.get(format.partition(" ")[0])
        if package and not find_spec(package):
            print(f"{name}: not run, since {package}, which writes its files, is not installed", flush=True)
            continue
        make = workloads.make(folder, name, format, count, shape, dtype, block)
        for case_name, cores in named.items():
            if done(case_name):
                continue
            files = make(cores)
            libraries = [
                one for one in libraries_of(files) if selected(args.libraries, one.name.partition(" (")[0], REFERENCES)
            ]
            yield Case(
                case_name,
                libraries,
                files.bytes / 1e9 if large else files.count / 1e3,
                "GB/s" if large else "thousand instances/s",
                cores,
                parameters={
                    "instances": files.count,
                    "bytes": files.bytes,
                    "batch": files.batch,
                    "block": files.block,
                },
            )


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--cores", default="1,2", help="run each case on so many cores")
    parser.add_argument("--folder", type=Path, help="keep the files there, instead of in a temporary folder")
    args = parser.parse_args()
    results = Results("files", args)
    with ExitStack() as stack:
        folder = args.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyfeed-bench-")))
        for case in cases(args, folder, results.has):
            results.add(measure(case, args.runs, args.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
