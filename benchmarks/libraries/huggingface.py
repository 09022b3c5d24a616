"""Hugging Face datasets."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import NotSupported
from workloads import tables
from workloads.batches import MAX_IN_FLIGHT, Arrays, Batches
from workloads.files import Batch, Files, columns, stack_bytes
from workloads.interruption import slow
from workloads.resume import Pipeline, Prepared, Records, Stateful
from workloads.training import AHEAD, BATCH, Passes, Training


def _made(workload: Batches, producers: list[int]) -> Iterator[dict[str, Any]]:
    (producer,) = producers  # the library divides the list among the workers
    for data, numbers in workload.fresh_batches(producer):
        yield {"data": data, "numbers": numbers}


def batches(workload: Batches) -> Iterator[Arrays]:
    """IterableDataset.from_generator in PyTorch's DataLoader: https://huggingface.co/docs/datasets/use_with_pytorch.

    The code does not call with_format("torch"), which would convert bytes to int64.
    """
    if not workload.processes:
        raise NotSupported("it uses the workers of PyTorch's DataLoader, which are processes, not threads")
    from datasets import IterableDataset
    from torch.utils.data import DataLoader

    made = IterableDataset.from_generator(
        _made, gen_kwargs={"workload": workload, "producers": list(range(workload.producers))}
    )
    loader = DataLoader(
        made,
        batch_size=None,
        num_workers=workload.producers,
        prefetch_factor=MAX_IN_FLIGHT // workload.producers,
        multiprocessing_context="fork",
    )
    for batch in loader:
        yield batch["data"].numpy(), batch["numbers"].numpy()
        del batch


def cold_start_files(folder: str, workload: Any) -> None:
    """Arrow files with record batches of 1,000, as `save_to_disk` writes them."""
    from pathlib import Path

    import numpy as np
    import pyarrow as pa

    schema = pa.schema({"x": pa.list_(pa.float32(), workload.floats)})
    with pa.ipc.new_stream(f"{folder}/one.arrow", schema) as writer:
        for begin in range(0, workload.records, 1000):
            values = np.repeat(np.arange(begin, begin + 1000, dtype=np.float32), workload.floats)
            writer.write_batch(
                pa.record_batch([pa.FixedSizeListArray.from_arrays(values, workload.floats)], schema=schema)
            )
    workload.link(Path(folder) / "one.arrow", Path(folder) / "arrow", ".arrow")


def cold_start(folder: str, workload: Any, shuffle: bool) -> Any:
    """Arrow, its own format, streamed: https://huggingface.co/docs/datasets/stream."""
    import glob

    import datasets

    names = sorted(glob.glob(f"{folder}/arrow/*.arrow"))
    data = datasets.load_dataset("arrow", data_files=names, split="train", streaming=True).with_format("numpy")
    if shuffle:
        data = data.shuffle(seed=1, buffer_size=workload.buffer)
    return data.iter(batch_size=workload.batch), lambda batch: batch["x"]


def interruption_generator() -> Callable[[], object]:
    import datasets

    iterator = iter(datasets.IterableDataset.from_generator(_generator))
    return lambda: next(iterator)


def _generator() -> Iterator[Any]:
    for x in slow():
        yield {"x": x}


def training(workload: Training, workers: int) -> Passes:
    """A Dataset of bytes with ``with_transform``, in PyTorch's DataLoader with persistent workers.

    https://huggingface.co/docs/datasets/use_with_pytorch
    """
    from datasets import Dataset, Features, Value, load_from_disk
    from torch.utils.data import DataLoader

    folder = workload.folder / "huggingface"
    if not folder.exists():
        features = Features({"image": Value("binary"), "label": Value("int64")})
        Dataset.from_dict(
            {"image": [image.tobytes() for image in workload.stored()], "label": list(range(workload.count))}, features
        ).save_to_disk(folder)
    stored = workload.stored().shape[1:]

    def transform(samples: dict[str, Any]) -> dict[str, Any]:
        images = [np.frombuffer(image, np.uint8).reshape(stored) for image in samples["image"]]
        made = [
            workload.preprocessed(image, np.int64(label)) for image, label in zip(images, samples["label"], strict=True)
        ]
        return {"image": [image for image, _ in made], "label": [label for _, label in made]}

    loader = DataLoader(
        load_from_disk(folder).with_transform(transform),
        batch_size=BATCH,
        num_workers=workers,
        prefetch_factor=AHEAD // workers,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    return lambda: ((batch["image"].numpy(), batch["label"].numpy()) for batch in loader)


def files(workload: Files) -> Callable[[], Iterator[Batch]]:
    """A streaming dataset with a shuffle buffer for tar; a fully shuffled Dataset, in Arrow on disk, for the others.

    https://huggingface.co/docs/datasets: the loader "webdataset" with `streaming=True` reads the files in each pass. So
    does the loader "csv", but it is much slower than Arrow. In the cases of CSV, RecordIO and tf.train.Example the
    library therefore reads the same instances from Arrow. Batches come from `iter(batch_size)`.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HOME"] = str(workload.folder / "huggingface")
    if workload.format not in ("recordio", "example", "tar", "csv") and not workload.content:
        raise NotSupported("it has no loader for such files")
    import datasets

    if workload.content:
        rows = datasets.load_dataset(
            {"jsonl": "json"}.get(workload.kind, workload.kind),
            data_files=list(workload.paths),
            split="train",
            features=_features(workload),
            cache_dir=str(workload.folder / "huggingface"),
        ).with_format("arrow")
        return lambda: (tables.arrow_batch(workload, batch) for batch in rows.shuffle().iter(workload.batch))

    if workload.format == "tar":
        data = datasets.load_dataset("webdataset", data_files=list(workload.paths), split="train", streaming=True)
        data = data.shuffle(buffer_size=workload.block)

        def streamed() -> Iterator[Batch]:
            for batch in data.iter(workload.batch):
                yield stack_bytes(batch["bin"]), np.array(batch["cls"])

        return streamed
    rows = datasets.load_from_disk(str(workload.own("arrow", functools.partial(_arrow, workload))))
    formatted = rows.with_format({"recordio": None, "csv": "arrow", "example": "numpy"}[workload.format])

    def begin() -> Iterator[Batch]:
        for batch in formatted.shuffle().iter(workload.batch):
            if workload.format == "recordio":
                yield (stack_bytes(batch["record"]),)
            elif workload.format == "csv":
                yield (np.column_stack([column.to_numpy() for column in batch.columns]),)
            else:
                yield batch["image"], batch["label"]

    return begin


def _features(workload: Files) -> Any:
    """The types of the columns, which the loader of JSON would infer otherwise."""
    from datasets import Features, List, Value

    if workload.content == "text":
        return Features({"text": Value("string"), "label": Value("int64")})
    if workload.content == "tokens":
        return Features({"tokens": List(Value("int32"))})
    return Features({**dict.fromkeys(columns(workload), Value("float32")), "label": Value("int64")})


def _arrow(workload: Files, folder: Path) -> None:
    import datasets

    if workload.format == "csv":
        features = datasets.Features({name: datasets.Value("float32") for name in columns(workload)})
        made = datasets.load_dataset(
            "csv", data_files=list(workload.paths), split="train", features=features, cache_dir=str(folder / "cache")
        )
        made.save_to_disk(str(folder))
        shutil.rmtree(folder / "cache")
        return
    if workload.format == "recordio":
        features = datasets.Features({"record": datasets.Value("binary")})
    else:
        image = datasets.List(datasets.Value("float32"), length=784)
        features = datasets.Features({"image": image, "label": datasets.Value("int64")})

    def instances() -> Iterator[dict[str, Any]]:
        for i in range(workload.count):
            array = workload.array(i)
            yield {"record": array.tobytes()} if workload.format == "recordio" else {"image": array, "label": i}

    made = datasets.Dataset.from_generator(instances, features=features, cache_dir=str(folder / "cache"))
    made.save_to_disk(str(folder))
    shutil.rmtree(folder / "cache")


def resume(workload: Records) -> Prepared:
    """A streaming dataset of Arrow files with a shuffle buffer: https://huggingface.co/docs/datasets/stream."""
    written = workload.own("arrow", functools.partial(_arrow_records, workload))
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HOME"] = f"{workload.folder}/huggingface"
    import datasets
    import torch  # noqa: F401  the library would import it while the pipeline is made

    paths = sorted(map(str, written.iterdir()))

    def make() -> Pipeline:
        data = datasets.load_dataset("arrow", data_files=paths, split="train", streaming=True)
        data = data.shuffle(seed=workload.seed, buffer_size=workload.buffer).batch(workload.batch)
        return Stateful(data, lambda batch: stack_bytes(batch["record"]))

    return make


def _arrow_records(workload: Records, folder: Path) -> None:
    """Arrow files with record batches of at most 1,000, as `save_to_disk` writes them."""
    import pyarrow as pa

    schema = pa.schema({"record": pa.binary()})
    for k, path in workload.names(folder, "arrow"):
        records = workload.shard(k)
        with pa.ipc.new_stream(path, schema) as writer:
            while some := list(itertools.islice(records, 1000)):
                writer.write_batch(pa.record_batch([pa.array(some, pa.binary())], schema=schema))
