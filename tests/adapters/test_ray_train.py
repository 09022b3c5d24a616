"""pyfeed in the workers of Ray Train, with readers of Ray Data, and in programs without Ray."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import ray.data
import ray.train
from pyfeed.errors import DTypeError, InvalidArgument, StateError
from pyfeed.ray import FeedService, from_dataset, reader_for_worker, save_state
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

import pyfeed

from .ray_feeds import STREAMS, expected, feed_of, flat, labels, write_numbers

pytestmark = pytest.mark.timeout(600)  # processes of Ray start slowly on a busy machine


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGINT)
    ray.init("local", num_cpus=6, include_dashboard=False, log_to_driver=False, object_store_memory=200 << 20)
    yield
    ray.shutdown()
    signal.signal(signal.SIGINT, handler)  # Ray Train leaves its own, which aborts its run


# ---- Ray Train -------------------------------------------------------------------------------


def train(config: dict[str, Any]) -> None:
    """Log the labels that a worker sees, and save the position after every third step. Fail once, at `fail_at`."""
    folder = Path(config["folder"])
    rank, world = ray.train.get_context().get_world_rank(), ray.train.get_context().get_world_size()

    def make_reader(rank: int, world: int) -> Any:
        if config["service"] is not None:
            return config["service"].reader(rank, world)
        data = pyfeed.open_files(config["path"]).shuffle(100, seed=1).map(lambda x, y: (2 * x, y))
        return data.batch(16, drop_last=True).split_batches(rank, world)

    reader = reader_for_worker(make_reader)
    for batch in reader:
        state = reader.state_dict()
        at = state.get("reader", state)["n"] - 1
        with (folder / f"log-{rank}").open("a") as file:
            file.write(json.dumps([at, world, labels(batch)]) + "\n")
        if at % 3 == 2:  # a report takes seconds
            saved = folder / f"checkpoint-{at}"
            if rank == 0:
                saved.mkdir(exist_ok=True)
                save_state(reader, saved)
            ray.train.report({}, checkpoint=ray.train.Checkpoint.from_directory(saved) if rank == 0 else None)
        if at == config["fail_at"] and rank == world - 1 and not (folder / "failed").exists():
            (folder / "failed").touch()
            raise RuntimeError("as the test wants it")
        if at == config["stop_at"]:
            return


def fit(function: Any, folder: Path, workers: int, **config: Any) -> Any:
    """Run a training. It goes on from the last checkpoint of an earlier run with the same folder."""
    return DataParallelTrainer(
        function,
        train_loop_config={"folder": str(folder), **config},
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(
            name="run", storage_path=str(folder / "storage"), failure_config=FailureConfig(max_failures=1)
        ),
    ).fit()


def logged(folder: Path) -> list[list[int]]:
    """Return the batches of all workers together. What is repeated after the failure must have the same rows."""
    parts: dict[int, dict[int, list[int]]] = {}
    for rank in range(4):
        for at, _, rows in map(json.loads, (folder / f"log-{rank}").read_text().splitlines()):
            assert parts.setdefault(at, {}).setdefault(rank, rows) == rows
    assert sorted(parts) == list(range(len(parts)))
    return [flat(parts[at][rank] for rank in sorted(parts[at])) for at in sorted(parts)]


@pytest.mark.parametrize("source", ["files", "service"])
def test_workers_that_fail_and_a_run_that_goes_on_with_others(source: str, tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "numbers.npz", rows=192)
    options = {"num_cpus": 0.1}
    with FeedService(
        feed_of(path, rows=192), num_streams=STREAMS, message_bytes=2000, worker_options=options
    ) as service:
        config = {"path": path, "service": service if source == "service" else None}
        fit(train, tmp_path, 2, fail_at=4, stop_at=5, **config)
        assert (tmp_path / "failed").exists()
        fit(train, tmp_path, 4, fail_at=-1, stop_at=-1, **config)
        if source == "service":
            every = [
                rows[: len(rows) - len(rows) % (2 if at < 6 else 4)]
                for at, rows in enumerate(expected(feed_of(path, 192))[0])
            ]
        else:
            data = pyfeed.open_files(path).shuffle(100, seed=1).batch(16, drop_last=True)
            every = [y.tolist() for _, y in data]
        assert logged(tmp_path) == every
        assert {len(path.read_text().splitlines()) for path in tmp_path.glob("log-[23]")} == {len(every) - 6}


def test_outside_of_train() -> None:
    reader = reader_for_worker(lambda rank, world: pyfeed.random_data([(rank + 1, world)], count=3))
    assert reader.slots[0].shape == (1, 1)
    with pytest.raises(pyfeed.errors.ArgumentTypeError, match="make_reader: the result: expected a reader"):
        reader_for_worker(lambda rank, world: [])  # type: ignore[type-var]


def load_a_checkpoint_without_a_reader(config: dict[str, Any]) -> None:
    if ray.train.get_checkpoint() is None:
        ray.train.report({}, checkpoint=ray.train.Checkpoint.from_directory(config["empty"]))
    else:
        reader_for_worker(lambda rank, world: pyfeed.random_data([()], count=3))


def test_a_checkpoint_without_a_reader(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    fit(load_a_checkpoint_without_a_reader, tmp_path, 1, empty=str(tmp_path / "empty"))
    with pytest.raises(Exception, match=r"expected pyfeed_reader\.json in it, which save_state writes, found no such"):
        fit(load_a_checkpoint_without_a_reader, tmp_path, 1, empty=str(tmp_path / "empty"))


# ---- Ray Data --------------------------------------------------------------------------------


def test_a_dataset_of_ray_data() -> None:
    items = [{"x": np.full(4, i, "float32"), "y": i, "t": f"text {i}", "s": [1] * (i % 3)} for i in range(50)]
    reader = from_dataset(ray.data.from_items(items, override_num_blocks=1), 16, as_dict=True)
    assert reader.names == ("x", "y", "t", "s")
    for _ in range(2):
        batches = list(reader)
        assert sorted(flat(batch["y"].tolist() for batch in batches)) == list(range(50))
        for batch in batches:
            np.testing.assert_array_equal(batch["x"], np.repeat(batch["y"][:, None], 4, 1).astype("float32"))
            assert batch["t"].bytes_list() == [f"text {i}".encode() for i in batch["y"]]
            assert np.diff(batch["s"].lod[0]).tolist() == [i % 3 for i in batch["y"]]
            assert not batch["x"].flags.writeable
    with pytest.raises(
        StateError, match=r"Ray Data delivers its blocks as they become ready\. pyfeed\.ray\.FeedService"
    ):
        reader.state_dict()
    with pytest.raises(StateError, match="Ray Data delivers its blocks"):
        from_dataset(ray.data.range(3), 1).batch(2).state_dict()


def test_the_parts_of_streaming_split() -> None:
    dataset = ray.data.range(100, override_num_blocks=4)
    with ThreadPoolExecutor(2) as pool:  # Ray begins a pass when all trainers have asked for it
        batches = pool.map(lambda part: flat(x.tolist() for (x,) in from_dataset(part, 10)), dataset.streaming_split(2))
        assert sorted(flat(batches)) == list(range(100))


def test_datasets_that_are_refused() -> None:
    with pytest.raises(pyfeed.errors.ArgumentTypeError, match=r"a ray\.data\.Dataset, or a DataIterator"):
        from_dataset([1, 2], 3)
    with pytest.raises(InvalidArgument, match="a row, to learn the columns from, found none"):
        from_dataset(ray.data.range(3).filter(lambda row: False), 2)
    with pytest.raises(DTypeError, match="column 'a': expected numbers, arrays of one dtype, text or bytes"):
        from_dataset(ray.data.from_items([{"a": {"b": 1}}]), 1)


def test_an_exception_of_a_dataset() -> None:
    def fail(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 5:
            raise ValueError("row 5 is bad")
        return row

    with pytest.raises(Exception, match="row 5 is bad"):
        list(from_dataset(ray.data.range(8, override_num_blocks=8).map(fail), 1))


# ---- Without Ray -----------------------------------------------------------------------------


def test_import_pyfeed_does_not_import_ray() -> None:
    program = "import sys, pyfeed; print(sorted(name for name in sys.modules if name.split('.')[0] == 'ray'))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"


def test_without_ray() -> None:
    program = (
        "import sys; sys.modules['ray'] = None\nimport pyfeed\nprint(next(pyfeed.random_data([()], count=1))[0].shape)"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "()\n"
    done = subprocess.run([sys.executable, "-c", program + "\nimport pyfeed.ray"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr
