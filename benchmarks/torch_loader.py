"""Measures the loaders of pyfeed for PyTorch datasets beside PyTorch's DataLoader and others, with two workers.

    python benchmarks/torch_loader.py [--json FILE] [--runs 5] [--seconds 3] [--cases images,dicts] [--libraries all]

The environment needs torch, pillow and psutil, and for `--libraries all` SPDL, Grain and MosaicML Streaming.
`__getitem__` makes new arrays each time. The loaders take turns, and every other run uses the opposite order. A turn
makes a loader, takes eight batches that do not count, and then counts batches for `--seconds`. The consumer reads one
element of each batch.

`pyfeed` is `pyfeed.torch.DataLoader`, and `from_dataset` is `pyfeed.from_dataset`, which delivers NumPy arrays.
They, PyTorch, SPDL (`get_pytorch_dataloader`) and MosaicML (`StreamingDataLoader`, which is PyTorch's loader with a
count of samples) get the same dataset and the same collate function. Grain's processes send NumPy arrays, so its
samples are NumPy arrays, which it stacks. It keeps as many batches ahead as PyTorch, two for each worker.

Cases, in batches per second:
    images          3 x 224 x 224, float32, batch 64
    small           16 floats, batch 256; small, NumPy: the same as NumPy arrays
    tokens          lists of 10 to 200 integers, padded by the collate function, batch 64
    dicts           dicts of ten tensors of 32 floats, batch 64
    pictures        JPEG files of 256 x 256 that PIL decodes, batch 32

Other cases:
    first batch     the time that it takes to make the loader and to get the first batch, with spawn, for 10 MB of
                    data, in seconds, in a new process that imports only the measured loader
    memory          the largest memory of the trainer and its forked workers (proportional set size) in ten epochs over
                    a list of ten million integers, in MiB
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import PEER, PYFEED, Results, options, selected

CLASSES = {"pytorch": "torch.utils.data", "pyfeed": "pyfeed.torch", "mosaicml": "streaming"}
# What makes a loader in the scripts, where `options` are those of DataLoader.
LOADERS = {
    "pytorch": "from torch.utils.data import DataLoader",
    "pyfeed": "from pyfeed.torch import DataLoader",
    "from_dataset": """
from pyfeed import from_dataset
def DataLoader(data, batch_size, num_workers, shuffle=False, multiprocessing_context="fork"):
    return from_dataset(data, batch_size, num_workers=num_workers, method=multiprocessing_context)
""",
}
NAMES = {"mosaicml": "StreamingDataLoader"}
LIBRARIES = ("pytorch", "pyfeed", "from_dataset", "spdl", "grain", "mosaicml")
WORKERS, AHEAD, WARM_UP = 2, 2, 8


class Endless:
    """A data set of samples that are made anew each time."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make

    def __len__(self) -> int:
        return 10**7

    def __getitem__(self, i: int) -> Any:
        return self.make(i)


def image(i: int) -> Any:
    import torch

    return torch.full((3, 224, 224), float(i))


def small(i: int) -> Any:
    import torch

    return torch.full((16,), float(i))


def small_array(i: int) -> Any:
    return np.full(16, i, np.float32)


def tokens(i: int) -> list[int]:
    return list(range(10 + i * 7919 % 191))


def padded(batch: list[list[int]]) -> Any:
    import torch

    return torch.nn.utils.rnn.pad_sequence([torch.tensor(words) for words in batch], batch_first=True)


def fields(i: int) -> Any:
    import torch

    return {f"field {k}": torch.full((32,), float(i + k)) for k in range(10)}


class Picture:
    """Decodes a JPEG file that is in memory."""

    def __init__(self) -> None:
        from PIL import Image

        file = io.BytesIO()
        noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
        Image.fromarray(noise).resize((256, 256)).save(file, "JPEG")
        self.data = file.getvalue()

    def __call__(self, i: int) -> Any:
        from PIL import Image

        return np.asarray(Image.open(io.BytesIO(self.data)))


CASES: dict[str, tuple[Callable[[], Any], int, Any]] = {
    "images": (lambda: image, 64, None),
    "small": (lambda: small, 256, None),
    "small, NumPy": (lambda: small_array, 256, None),
    "tokens": (lambda: tokens, 64, padded),
    "dicts": (lambda: fields, 64, None),
    "pictures": (Picture, 32, None),
}


def image_array(i: int) -> Any:
    return np.full((3, 224, 224), i, np.float32)


def array_fields(i: int) -> Any:
    return {f"field {k}": np.full(32, i + k, np.float32) for k in range(10)}


def padded_arrays(batch: list[list[int]]) -> Any:
    padded = np.zeros((len(batch), max(map(len, batch))), np.int64)
    for row, words in zip(padded, batch, strict=True):
        row[: len(words)] = words
    return padded


# The samples of Grain, and its collate function if it is not Grain's own.
ARRAYS: dict[str, tuple[Any, Any]] = {
    "images": (image_array, None),
    "small": (small_array, None),
    "tokens": (tokens, padded_arrays),
    "dicts": (array_fields, None),
}


def loader_of(name: str, library: str) -> Any:
    """Return a loader of batches."""
    make, size, collate = CASES[name]
    if library == "grain":
        import grain

        sample, collate = ARRAYS.get(name) or (make(), collate)
        batches = grain.MapDataset.source(Endless(sample)).batch(size, batch_fn=collate)
        return batches.to_iter_dataset(grain.ReadOptions(0, 0)).mp_prefetch(
            grain.MultiprocessingOptions(WORKERS, per_worker_buffer_size=AHEAD)
        )
    if library == "from_dataset":
        from pyfeed import from_dataset

        return from_dataset(Endless(make()), size, num_workers=WORKERS, method="fork", collate_fn=collate)
    if library == "spdl":
        from spdl.dataloader import get_pytorch_dataloader

        return get_pytorch_dataloader(
            Endless(make()), size, num_workers=WORKERS, collate_fn=collate, prefetch_factor=AHEAD, in_order=True
        )
    name = NAMES.get(library, "DataLoader")
    loader_class = getattr(__import__(CLASSES[library], fromlist=[name]), name)
    return loader_class(Endless(make()), batch_size=size, num_workers=WORKERS, collate_fn=collate)


def batches_per_second(name: str, seconds: float, library: str) -> float:
    iterator = iter(loader_of(name, library))
    for _ in range(WARM_UP):
        next(iterator)
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        batch = next(iterator)
        first = next(iter(batch.values())) if isinstance(batch, dict) else batch
        first = first[0] if isinstance(first, tuple) else first
        first.reshape(-1)[0].item()
        count += 1
    return count / (time.perf_counter() - began)


FIRST_BATCH = """
import sys, time
{imports}
class Data{bases}:
    def __init__(self):
        self.data = b"x" * 10_000_000
    def __len__(self):
        return 1000
    def __getitem__(self, i):
        return i
if __name__ == "__main__":
    began = time.perf_counter()
    loader = DataLoader(Data(), batch_size=8, num_workers=2, multiprocessing_context="spawn")
    next(iter(loader))
    print(time.perf_counter() - began)
"""

MEMORY = """
import psutil
{imports}
class Data{bases}:
    def __init__(self):
        self.data = [i + 1000 for i in range(10_000_000)]
    def __len__(self):
        return len(self.data)
    def __getitem__(self, i):
        return self.data[i]
    def __getitems__(self, indices):
        return [self.data[i] for i in indices]
loader = DataLoader(Data(), batch_size=10_000, num_workers=2, shuffle=False)
most = 0
for epoch in range(10):
    for k, batch in enumerate(loader):
        if k % 200 == 199:
            me = psutil.Process()
            most = max(most, sum(p.memory_full_info().pss for p in [me, *me.children()]))
print(most / 2**20)
"""


def printed(script: str, library: str) -> float:
    """Run a script in a new process, and return the number that it prints."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "script.py")  # spawned processes import it
        imports, bases = LOADERS[library], ""
        if library != "from_dataset":
            imports, bases = f"from torch.utils.data import Dataset\n{imports}", "(Dataset)"
        file.write_text(script.format(imports=imports, bases=bases))
        done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    args = options(__doc__, seconds=3).parse_args()
    import torch

    torch.set_num_threads(1)
    libraries = [
        library for library in LIBRARIES if selected(args.libraries, library, ("pytorch", "pyfeed", "from_dataset"))
    ]
    results = Results("torch_loader", args)
    cases: list[tuple[str, str, str, Callable[[str], float]]] = [
        (name, "batches/s", "higher", partial(batches_per_second, name, args.seconds)) for name in CASES
    ]
    cases.append(("first batch", "s", "lower", lambda library: printed(FIRST_BATCH, library)))
    cases.append(("memory", "MiB", "lower", lambda library: printed(MEMORY, library)))
    for name, unit, better, measured in cases:
        if args.cases and not any(text in name for text in args.cases.split(",")):
            continue
        if results.has(name):
            continue
        compared = [x for x in libraries if name not in ("first batch", "memory") or x in LOADERS]
        values: dict[str, list[float]] = {library: [] for library in compared}
        for run in range(1 if name == "memory" else args.runs):
            for library in compared[:: 1 if run % 2 == 0 else -1]:
                values[library].append(measured(library))
        results.add(
            {
                "case": name,
                "unit": unit,
                "better": better,
                "parameters": {"workers": WORKERS},
                "libraries": [
                    {
                        "library": library,
                        "kind": PYFEED if library in ("pyfeed", "from_dataset") else PEER,
                        "values": values[library],
                    }
                    for library in compared
                ],
            }
        )


if __name__ == "__main__":
    main()
