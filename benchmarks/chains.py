"""Measures chains of pyfeed that no other library has an equivalent of. `ablations.py` uses these cases.

    python benchmarks/chains.py [--json FILE] [--cases gzip,npz] [--cores 1,2] [--folder DIR]

    case            files                                       chain
    small batches   4 of 100 B records, raw                     batch(32).double_buffer()
    large batches   4 of 100 KB records, raw                    batch(1000)
    large texts     4 of 100 KB records, TFRecord               batch(1000): byte strings, joined
    gzip            4 of 100 B records, raw, compressed         batch(32)
    fortran         rows of 256 KiB of one npy, Fortran order   shuffle(10000).batch(32)
    npz             rows of 3 KiB of one npz, stored            shuffle(10000).batch(32)

The script times a pass over files in the page cache. The consumer adds up the first number of every instance. After the
pass it checks the sum and the number of instances. The npz member is larger than 64 MiB: up to that size, its checksum
is verified before the first instance.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import PYFEED, Case, Library, Results, Timed, measure, options
from workloads import files as workloads
from workloads.files import Files

# The case; format, instances, shape and dtype of the files that it is made from; whether the unit is GB/s.
CASES: list[tuple[str, str, int, tuple[int, ...], str, bool]] = [
    ("small batches", "raw", 50_000, (100,), "uint8", False),
    ("large batches", "raw", 2_000, (100_000,), "uint8", True),
    ("large texts", "tfrecord", 2_000, (100_000,), "uint8", True),
    ("gzip", "raw", 50_000, (100,), "uint8", False),
    ("fortran", "rows", 400, (65_536,), "float32", True),
    ("npz", "rows", 25_000, (768,), "float32", True),
]


def _paths(name: str, files: Files) -> list[str]:
    """The paths of the files of a case. The first call makes them from the files of a workload."""

    def write(folder: Path) -> None:
        if name == "gzip":
            for path in files.paths:
                (folder / f"{Path(path).name}.gz").write_bytes(gzip.compress(Path(path).read_bytes(), 6))
        elif name == "npz":
            np.savez(folder / "rows.npz", np.load(files.paths[0]))
        else:
            np.save(folder / "rows.npy", np.asfortranarray(np.load(files.paths[0])))

    if name in ("gzip", "fortran", "npz"):
        return sorted(str(path) for path in files.own(name, write).iterdir())
    return list(files.paths)


def _chain(name: str, files: Files, paths: list[str]) -> Any:
    import pyfeed

    raw: dict[str, Any] = {"shapes": [files.shape], "dtypes": [files.dtype]} if files.format == "raw" else {}
    reader = pyfeed.open_files(paths, num_threads=files.cores, **raw)
    if name == "small batches":
        return reader.batch(32).double_buffer()
    if name.startswith("large"):
        return reader.batch(1000)
    return reader.batch(32) if name == "gzip" else reader.shuffle(10_000).batch(32)


def passes(name: str, files: Files, paths: list[str]) -> Timed:
    """Make a function that times passes over a chain."""
    reader = _chain(name, files, paths)
    dtype = np.dtype(files.dtype)
    expected = files.count, sum(float(files.array(i).reshape(-1)[0]) for i in range(files.count))

    def one() -> float:
        reader.reset()
        instances, total = 0, 0.0
        start = time.perf_counter()
        for (batch,) in reader:
            data = batch.data if files.format == "tfrecord" else batch
            first = data.view(dtype).reshape(-1, files.size // dtype.itemsize)[:, 0]
            instances += len(first)
            total += float(first.sum(dtype=np.float64))
        seconds = time.perf_counter() - start
        if (instances, total) != expected:
            raise ValueError(f"expected {expected} instances and sum of first numbers, found {(instances, total)}")
        return seconds

    return lambda count: sum(one() for _ in range(count))


def cases(args: argparse.Namespace, folder: Path, done: Callable[..., bool]) -> Iterator[Case]:
    """Yield the cases without results, and write their files into the folder."""
    only = [text for text in args.cases.split(",") if text]
    for name, format, count, shape, dtype, large in CASES:
        named = {f"{name}, {cores} core{'s' * (cores > 1)}": cores for cores in map(int, args.cores.split(","))}
        if (only and not any(text in name for text in only)) or done(*named):
            continue
        make = workloads.make(folder, f"chain of {name}", format, count, shape, dtype, 0)
        for case_name, cores in named.items():
            if done(case_name):
                continue
            files = make(cores)
            paths = _paths(name, files)
            yield Case(
                case_name,
                [Library("pyfeed", {"": partial(passes, name, files, paths)}, PYFEED)],
                files.count * files.size / 1e9 if large else files.count / 1e3,
                "GB/s" if large else "thousand instances/s",
                cores,
                parameters={"instances": files.count, "bytes": files.count * files.size},
            )


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--cores", default="1,2", help="run each case on so many cores")
    parser.add_argument("--folder", type=Path, help="keep the files there, instead of in a temporary folder")
    args = parser.parse_args()
    results = Results("chains", args)
    with ExitStack() as stack:
        folder = args.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyfeed-bench-")))
        for case in cases(args, folder, results.has):
            results.add(measure(case, args.runs, args.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
