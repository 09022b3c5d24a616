"""Traces: what is recorded, as JSON for Chrome, and summed up."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyfeed
from pyfeed import Executor, Program, Scope, layers, program_guard, register_kernel, trace

from .support import run


def train(compute: float = 0, read: float = 0, batches: int = 10) -> None:
    """A loop that reads, and computes: which takes so many seconds each."""
    main, startup, scope, executor = Program(), Program(), Scope(), Executor()

    def numbers() -> Any:
        for i in range(batches):
            time.sleep(read)
            yield (np.full(4, i),)

    source = pyfeed.from_generator(numbers, [(4,)], ["int64"], scope=scope, capacity=1)
    with program_guard(main, startup):
        reader = layers.double_buffer(source)
        more = layers.fill_constant([], "bool", 1)
        with layers.While(more).block():
            layers.call("compute", layers.read_file(reader))
            layers.has_next(reader, out=more)
    executor.run(startup, scope=scope)
    with register_kernel("compute", lambda x: time.sleep(compute)):
        executor.run(main, scope=scope)


def test_chrome_s_format(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    with trace(file) as t:
        train()
    found = json.loads(file.read_text())
    assert json.loads(t.chrome()) == found
    spans = [e for e in found["traceEvents"] if e["ph"] == "X"]
    names = [span["name"] for span in spans]
    assert names.count("compute") == 10
    assert {"read", "has_next", "double_buffer", "push", "run"} <= set(names)
    for span in spans:
        assert span["dur"] >= 0
        assert {"name", "ph", "ts", "dur", "pid", "tid"} <= set(span)


@pytest.mark.parametrize("slow", ["compute", "read"])
def test_the_summary_says_what_limits_the_loop(slow: str) -> None:
    with trace() as t:
        train(compute=0.02) if slow == "compute" else train(read=0.02)
    summary, table = t.summary, t.table()
    assert str(t) == table
    limit = "compute" if slow == "compute" else "producer"
    assert summary["limited_by"] == summary["parts"][0]["name"] == limit
    assert summary["parts"][0]["share"] > 0.5
    assert summary["sentence"].startswith(f"the {limit} limits the loop")
    assert summary["sentence"] in table
    assert summary["runs"] == 2
    assert sum(part["seconds"] for part in summary["parts"]) == pytest.approx(summary["run_seconds"])
    (called,) = (op for op in summary["operators"] if op["name"] == "compute")
    assert called["count"] == 10


def test_the_summary_says_what_is_copied_to_devices() -> None:
    with trace() as t:
        train(batches=1)
    assert t.summary["devices"] == []
    assert t.summary["backlog_seconds"] == 0
    said = run(
        """
        import json
        from pyfeed import CUDAPlace, random_data, trace

        reader = random_data([(1000, 64)], count=20).double_buffer([CUDAPlace(0), CUDAPlace(1)])
        with trace() as t:
            for (x,) in reader:
                x.synchronize()
        say(json.dumps(t.summary))
        say(t.chrome().replace("\\n", ""))
        """,
        PYFEED_CUDA="host",
    )
    summary, chrome = map(json.loads, said)
    assert [d["place"] for d in summary["devices"]] == ["CUDAPlace(0)", "CUDAPlace(1)"]
    for device in summary["devices"]:
        assert device["transfers"] == 10
        assert device["bytes"] == 10 * 256_000
        assert device["bytes_per_second"] == pytest.approx(device["bytes"] / device["busy_seconds"])
        assert device["busy_seconds"] + device["idle_seconds"] == pytest.approx(summary["seconds"])
        assert 0 <= device["overlap"] <= 1
        stalls = device["stalls"]
        assert stalls["count"] >= 10
        assert 0 <= stalls["median_seconds"] <= stalls["p99_seconds"] <= stalls["max_seconds"] <= stalls["seconds"]
    rows = {e["tid"]: e["args"]["name"] for e in chrome["traceEvents"] if e["name"] == "thread_name"}
    copies = [e for e in chrome["traceEvents"] if e.get("cat") == "transfer"]
    assert len(copies) == 20
    for copy in copies:
        assert rows[copy["tid"]] == f"copies to {copy['name']}"
        assert copy["args"]["bytes"] == 256_000
        assert copy["args"]["GB/s"] == pytest.approx(copy["args"]["bytes"] / copy["dur"] / 1000, rel=1e-3)


def test_one_recording_at_a_time() -> None:
    with trace() as t:
        with pytest.raises(pyfeed.StateError):
            trace()
        with pytest.raises(pyfeed.StateError):
            t.table()
    t.stop()
    with trace() as other:
        train(batches=1)
    assert other.table()
    assert t.table()


def test_a_file_is_written_even_if_the_block_fails(tmp_path: Path) -> None:
    def failing() -> None:
        train(batches=2)
        raise KeyError

    with pytest.raises(KeyError), trace(str(tmp_path / "t.json")):
        failing()
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    with pytest.raises(FileNotFoundError), trace(tmp_path / "none" / "t.json"):
        pass
    with trace():  # the one before has ended all the same
        pass


def test_what_does_not_fit_is_counted() -> None:
    with trace(max_events=5) as t:
        train()
    assert len([e for e in json.loads(t.chrome())["traceEvents"] if e["ph"] == "X"]) <= 5
    assert t.summary["dropped_spans"] > 0


def test_a_recording_that_is_dropped_ends() -> None:
    t = trace()
    del t
    with trace():
        pass


def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        trace(tmp_path / "nowhere" / "t.json")
    for wrong in (-1, 2**64):
        with pytest.raises((pyfeed.InvalidArgument, OverflowError), match="max_events"):
            trace(max_events=wrong)
    with trace():  # none of these is on
        pass


def test_what_was_raised_is_not_hidden_by_a_trace_that_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()

    def lose_the_folder() -> None:
        (folder / "t.json").unlink()
        folder.rmdir()
        raise KeyError("first")

    with pytest.raises(KeyError) as caught, trace(folder / "t.json"):
        lose_the_folder()
    assert "the trace could not be written" in caught.value.__notes__[0]
    with pytest.raises(FileNotFoundError), trace(tmp_path / "t.json") as t:
        t.file = str(folder / "t.json")
