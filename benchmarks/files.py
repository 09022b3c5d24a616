"""How fast files come out as shuffled batches of 32, beside what reads the same instances elsewhere.

    python benchmarks/files.py [--ways all] [--json FILE] [--rows tfrecord,npy] [--runs 5] [--cores 1,2] [--folder DIR]

Files are made once in a temporary folder, or the one given, and read before anything is timed, so that they come from
the page cache. What is timed is a pass: from the first file to the last batch, delivered to a Python consumer that
takes a byte of every page of every array, and afterwards looks whether each instance came once, with its own label,
not in the files' order. A batch is a NumPy array a slot, or what becomes one without a copy. All shuffle: in blocks
or a buffer of the number of instances in the table, or all of them.

    row                 files                                                  instances   shuffled among
    tfrecord large      4 of 100 KB records                                    2 000       256
    tfrecord small      4 of 100 B records                                     50 000     10 000
    tfrecord example    4 of tf.train.Example: 784 floats and a label          20 000      10 000
    npy 4 KiB           one array a file                                       4 000       all or 1000
    npy 64 KiB          the same                                               2 000       all or 1000
    npy rows            rows of 3 KiB of one file                              40 000      10 000
    tar                 4 of 1 KiB and a class, as WebDataset names members    20 000      1000
    csv                 4 of 20 columns of floats                              50 000      10 000
    recordio large      as tfrecord                                            2 000       256
    recordio small                                                             50 000     10 000
    raw large           4 of records of one size and nothing between           2 000       256
    raw small                                                                  50 000     10 000

The ways, with the settings that are tried, are in `ways`, one module a library; what the documentation of each says
is in its function. A way whose name has another format in brackets reads the same instances from that, which is its
own; it was written before anything was timed. `read` is what none can be faster than: `read` of all the bytes into
one buffer, by a thread a core.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from measuring import LIMIT, OURS, PEER, Results, Row, Way, chosen, measure, options
from tasks import files as task
from tasks.files import Files
from ways import (
    arrow,
    grain,
    huggingface,
    mlx_data,
    mosaic,
    ours,
    paddle,
    pandas,
    plain,
    pytorch,
    ray_data,
    spdl,
    tensorflow,
    webdataset,
)

REFERENCES = ("ours", "numpy", "read")

#       row, format, instances, shape, dtype, block, whether it is told in GB/s
ROWS: list[tuple[str, str, int, tuple[int, ...], str, int, bool]] = [
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
]


def ways(files: Files) -> Iterator[Way]:
    """All of them; those that do not offer it too."""

    def way(name: str, function: Callable[..., Any], settings: list[dict[str, Any]], kind: str = PEER) -> Way:
        made = {_said(setting): partial(task.passes, function, files, **setting) for setting in settings}
        return Way(name, made, kind)

    cores = files.cores
    mine: list[dict[str, Any]] = [{"double_buffer": depth} for depth in ((0, 2) if cores == 1 else (0, 2, 8))]
    if files.format == "npy":
        unordered = {"double_buffer": 0, "ordered": False}
        mine += [unordered, unordered | {"more_threads": 1}]
    yield way("ours", ours.files, mine, OURS)
    yield way("tf.data", tensorflow.files, [{}])
    yield way("torch DataLoader", pytorch.files, [{"workers": 0}, {"workers": cores}])
    yield way("torchdata nodes", pytorch.files_nodes, [{"workers": cores}])
    yield way(
        "grain (arrayrecord)" if files.format == "recordio" else "grain",
        grain.files,
        [{"threads": 0}, {"threads": cores}],
    )
    yield way("spdl", spdl.files, [{"concurrency": cores}])
    yield way("mlx-data", mlx_data.files, [{"threads": cores}])
    yield way("webdataset", webdataset.files, [{"workers": 0}, {"workers": cores}])
    own = files.format in ("recordio", "example")  # the nearest to formats that have records of bytes, or of fields
    yield way("streaming (mds)" if own else "streaming", mosaic.files, [{"workers": 0}, {"workers": cores}])
    yield way("datasets (arrow)" if own or files.format == "csv" else "datasets", huggingface.files, [{}])
    yield way("ray data", ray_data.files, [{}])
    workers = (0, cores) if files.format in task.RANDOM_ACCESS else (0,)  # see `paddle.files`
    yield way("paddle DataLoader", paddle.files, [{"workers": n} for n in workers])
    yield way("pyarrow", arrow.files, [{}])
    yield way("pandas", pandas.files, [{}])
    yield way("numpy", plain.files, [{}])
    yield Way("read", {"": partial(plain.files_read, files)}, LIMIT)


def _said(setting: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in setting.items())


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--cores", default="1,2", help="each row on so many cores")
    parser.add_argument("--folder", type=Path, help="where the files are made, and stay; a temporary one if not given")
    args = parser.parse_args()
    results = Results("files", args)
    only = [text for text in args.rows.split(",") if text]
    with ExitStack() as stack:
        folder = args.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyfeed-bench-")))
        for name, format, count, shape, dtype, block, large in ROWS:
            if only and not any(text in name for text in only):
                continue
            named = {f"{name}, {cores} core{'s' * (cores > 1)}": cores for cores in map(int, args.cores.split(","))}
            if results.has(*named):
                continue
            files = task.make(folder, name, format, count, shape, dtype, block)
            for row_name, cores in named.items():
                if results.has(row_name):
                    continue
                mine = files(cores)
                row = Row(
                    row_name,
                    [way for way in ways(mine) if chosen(args.ways, way.name.partition(" (")[0], REFERENCES)],
                    mine.bytes / 1e9 if large else mine.count / 1e3,
                    "GB/s" if large else "thousand instances/s",
                    cores,
                    parameters={"instances": mine.count, "bytes": mine.bytes, "batch": mine.batch, "block": mine.block},
                )
                results.add(measure(row, args.runs, args.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
