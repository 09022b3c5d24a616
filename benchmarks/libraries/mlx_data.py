"""mlx-data."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from harness import NotSupported
from workloads.batches import MAX_IN_FLIGHT, Arrays, Batches
from workloads.files import Batch, Files
from workloads.interruption import slow
from workloads.training import AHEAD, BATCH, Image, Label, Passes, Training


def batches(workload: Batches) -> Iterator[Arrays]:
    """A stream of numbers, and a transform that makes a batch from each number.

    https://ml-explore.github.io/mlx-data/build/html/quick_start.html
    """
    if workload.processes:
        raise NotSupported("it makes batches in threads only, not in worker processes")
    import mlx.data

    def made(sample: dict[str, Any]) -> dict[str, Any]:
        data, numbers = workload.item(int(sample["i"]))
        return {"data": data, "numbers": numbers}

    stream = mlx.data.stream_python_iterable(lambda: ({"i": i} for i in itertools.count()))
    for sample in stream.sample_transform(made).prefetch(MAX_IN_FLIGHT, workload.producers):
        yield sample["data"], sample["numbers"]
        del sample


def interruption_generator() -> Callable[[], object]:
    import mlx.data

    stream = mlx.data.stream_python_iterable(lambda: ({"x": x} for x in slow())).prefetch(2, 1)
    return lambda: next(stream)


def training(workload: Training, workers: int) -> Passes:
    """A buffer with a transform, batched and prefetched.

    https://ml-explore.github.io/mlx-data/build/html/quick_start.html
    """
    import mlx.data

    def instance(sample: dict[str, Any]) -> dict[str, Any]:
        image, label = workload.instance(int(sample["i"]))
        return {"image": image, "label": label}

    buffer = mlx.data.buffer_from_vector([{"i": i} for i in range(workload.count)]).sample_transform(instance)

    def one() -> Iterator[tuple[Image, Label]]:
        for sample in buffer.batch(BATCH).ordered_prefetch(AHEAD, workers):
            yield sample["image"], sample["label"]
            del sample

    return one


def files(workload: Files, threads: int) -> Callable[[], Iterator[Batch]]:
    """Buffers and streams: `load_numpy` or `read_from_tar`, and `prefetch` in threads.

    https://ml-explore.github.io/mlx-data: the buffer is shuffled; the stream is batched and then prefetched.
    """
    if workload.format == "csv":
        raise NotSupported("its CSV reader returns text, not numbers")
    if workload.format not in ("npy", "tar"):
        raise NotSupported("it has no reader for such files")
    import mlx.data as dx

    def label(text: Any) -> Any:
        return np.int64(text.tobytes())

    if workload.format == "tar":
        with_names = []
        for path in workload.paths:
            found = dx.files_from_tar(path)
            names = sorted(bytes(found[i]["file"]) for i in range(len(found)))
            with_names += [
                {"tar": path.encode(), "bin": first, "cls": second}
                for first, second in zip(names[::2], names[1::2], strict=True)
            ]
        rows = dx.buffer_from_vector(with_names)
    else:
        rows = dx.buffer_from_vector([{"x": path.encode()} for path in workload.paths])

    def stream() -> Any:
        if workload.format == "npy":
            return rows.shuffle().to_stream().load_numpy("x")
        out = rows.shuffle().to_stream()
        out = out.read_from_tar("tar", "bin", "x", from_key=True).read_from_tar("tar", "cls", "y", from_key=True)
        return out.key_transform("y", label)

    def begin() -> Iterator[Batch]:
        for batch in stream().batch(workload.batch).prefetch(8, threads):
            yield (batch["x"], batch["y"]) if workload.labelled else (batch["x"],)

    return begin
