"""Traces: what is recorded, as JSON for Chrome, summed up, and as rows of a plot."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyfeed._trace_plot import BETWEEN_READS, KINDS, Row, make_bars, read_rows, row_labels
from pyfeed.diagnostics import trace
from pyfeed.errors import Timeout
from pyfeed.program import Executor, Program, layers, program_guard
from pyfeed.program.kernels import register_kernel

import pyfeed
from pyfeed import Reader, Scope, from_generator, open_files

from .support import Background, feed, run, wait_until


def train(compute: float = 0, read: float = 0, batches: int = 10) -> None:
    """A loop that reads, and computes: which takes so many seconds each."""
    main, startup, scope, executor = Program(), Program(), Scope(), Executor()

    def numbers() -> Any:
        for i in range(batches):
            time.sleep(read)
            yield (np.full(4, i),)

    source = pyfeed.from_generator(numbers, [(4,)], dtypes=["int64"], scope=scope, capacity=1)
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
        train(compute=0.1) if slow == "compute" else train(read=0.1)
    summary, table = t.summary, t.table()
    assert str(t) == table
    limit = "compute" if slow == "compute" else "producer"
    assert summary["limited_by"] == summary["parts"][0]["name"] == limit
    assert summary["parts"][0]["share"] > 0.5
    who = "the loop's own computation limits it: " if slow == "compute" else "the producer limits the loop: "
    assert summary["sentence"].startswith(who)
    assert summary["sentence"] in table
    assert summary["runs"] == 2
    assert sum(part["seconds"] for part in summary["parts"]) == pytest.approx(summary["run_seconds"])
    (called,) = (op for op in summary["operators"] if op["name"] == "compute")
    assert called["count"] == 10


READS = ("next", "has_next", "pop", "read")


class Most:
    """Takes at least four fifths of the time since it was made, however busy the machine is.

    It takes 400 ms at least, for what comes after it was last asked.
    """

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.taken = 0.0

    def take(self) -> None:
        begun = time.perf_counter()
        others = max(begun - self.start - self.taken, 0.1)
        while self.taken + (time.perf_counter() - begun) < 4 * others:
            time.sleep(0.0005)
        self.taken += time.perf_counter() - begun


def asleep(reader: Reader) -> bool:
    """Whether somebody sleeps in it for want of data."""
    before = reader.stats()["waited_seconds"]
    return bool(reader.stats()["waited_seconds"] > before)


Stretches = list[tuple[int, int]]


def both(a: Stretches, b: Stretches) -> Stretches:
    found = [(max(s, t), min(e, f)) for s, e in a for t, f in b]
    return [(s, e) for s, e in found if s < e]


def union(a: Stretches) -> Stretches:
    out: Stretches = []
    for s, e in sorted(a):
        if out and s <= out[-1][1]:
            out[-1] = (out[-1][0], max(e, out[-1][1]))
        else:
            out.append((s, e))
    return out


def length(a: Stretches) -> int:
    return sum(e - s for s, e in union(a))


def shares_of_spans(t: pyfeed.diagnostics.Trace) -> dict[str, int]:
    """The parts of the one thread that reads, in nanoseconds, from what was recorded."""
    events = json.loads(t.chrome())["traceEvents"]
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [
        (rows[e["tid"]], e["cat"], e["name"], (round(e["ts"] * 1000), round(e["ts"] * 1000) + round(e["dur"] * 1000)))
        for e in events
        if e["ph"] == "X"
    ]

    def find(*categories: str, track: str | None = None) -> Stretches:
        return [at for row, cat, _, at in spans if cat in categories and track in (None, row)]

    reads = union([at for row, cat, name, at in spans if (row, cat) == ("consumer", "read") and name in READS])
    asleep = union(find("wait", track="consumer"))
    own = both(union(find("copy", track="consumer")), reads)
    made = union(find("producer", "make"))
    copied = union(find("copy") + made)
    parts = {
        "compute": reads[-1][1] - reads[0][0] - length(reads),
        "producer": length(both(asleep, made)),
        "copy": length(both(asleep, copied)) - length(both(asleep, made)) + length(own) - length(both(own, asleep)),
    }
    parts["reader"] = length(reads) - parts["producer"] - parts["copy"]
    return parts


def check_limit(t: pyfeed.diagnostics.Trace, limit: str, reads: int) -> None:
    summary = t.summary
    found = shares_of_spans(t)
    parts = {part["name"]: part for part in summary["parts"]}
    for name, ns in found.items():
        # Between a try that found nothing and the wait for it a thread may do anything: it is left out.
        left_out = summary["unanswered_seconds"] if name == "compute" else 0
        assert parts[name]["seconds"] + left_out == pytest.approx(ns / 1e9, abs=1e-6), (name, found, summary)
    assert max(found, key=lambda name: found[name]) == limit, (found, summary)
    assert summary["limited_by"] == limit
    who = {"copy": "copying limits the loop", "compute": "the loop's own computation limits it"}
    assert summary["sentence"].startswith(f"{who.get(limit, f'the {limit} limits the loop')}: "), summary["sentence"]
    assert f" of the time of {reads} reads; " in summary["sentence"]
    assert summary["reads"] == reads
    (consumer,) = summary["consumers"]
    assert consumer["limited_by"] == limit
    assert consumer["thread"] == threading.get_native_id()
    assert consumer["parts"] == summary["parts"]
    assert sum(part["seconds"] for part in summary["parts"]) == pytest.approx(summary["consumer_seconds"])


def pushing(
    reader: Callable[[], Reader], queue: pyfeed.PyArrayFeedQueue, n: int, hold: Callable[[], None]
) -> Background[None]:
    """A thread that pushes: each tuple when the reader's consumer has slept for most of the time."""

    def push() -> None:
        for i in range(n):
            wait_until(lambda: asleep(reader()))
            hold()
            queue.push((np.full(2, float(i)),))
        queue.close()

    return Background(push)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("source", ["queue", "file"])
def test_a_loop_that_computes_is_limited_by_that(source: str, ahead: bool, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((10, 2)))
    reader: Reader
    if source == "queue":
        reader, queue = feed(10)
        for i in range(10):
            queue.push((np.full(2, float(i)),))
        queue.close()
    else:
        reader = open_files(tmp_path / "x.npy")
    if ahead:
        reader = reader.double_buffer()
    with trace() as t:
        most = Most()
        for _ in reader:
            most.take()
    check_limit(t, "compute", 11)
    assert t.summary["parts"][0]["share"] > 0.75


@pytest.mark.parametrize("ahead", [False, True])
def test_a_loop_that_waits_for_pushes_is_limited_by_their_producer(ahead: bool) -> None:
    reader, queue = feed(4)
    if ahead:
        reader = reader.double_buffer()
    with trace() as t:
        pushes = pushing(lambda: reader, queue, 10, Most().take)
        for _ in reader:
            pass
    pushes.wait()
    check_limit(t, "producer", 11)
    assert t.summary["full_seconds"] < t.summary["producer_seconds"]


@pytest.mark.parametrize("ahead", [False, True])
def test_a_loop_that_waits_for_a_function_of_map_is_limited_by_its_producer(ahead: bool) -> None:
    reader, queue = feed(10)
    for i in range(10):
        queue.push((np.full(2, float(i)),))
    queue.close()

    def hold(x: Any) -> Any:
        wait_until(lambda: asleep(reader))
        most.take()
        return x

    reader = reader.map(hold, num_threads=1)
    if ahead:
        reader = reader.double_buffer()
    with trace() as t:
        most = Most()
        for _ in reader:
            pass
    check_limit(t, "producer", 11)


@pytest.mark.parametrize("num_threads", [0, 1])
@pytest.mark.parametrize("ahead", [False, True])
def test_a_loop_that_waits_for_files_is_limited_by_their_reader(ahead: bool, num_threads: int, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.raw")
    reader = open_files(tmp_path / "x.raw", shapes=[(2,)], dtypes=["float64"], num_threads=num_threads)
    if ahead:
        reader = reader.double_buffer()

    def write() -> None:
        with open(tmp_path / "x.raw", "wb", buffering=0) as pipe:
            for i in range(10):
                wait_until(lambda: asleep(reader))
                most.take()
                pipe.write(np.full(2, float(i)).tobytes())

    # A queue that has nothing to do with the loop, and a consumer that sleeps in it behind a thread that reads ahead.
    other, idle = feed()
    other = other.double_buffer()
    with trace() as t:
        most = Most()
        slept = Background(lambda: other.read())
        writing = Background(write)
        for _ in reader:
            pass
        idle.push((np.zeros(2),))
        slept.wait()
    writing.wait()
    summary = t.summary
    assert summary["limited_by"] == "reader"
    assert summary["sentence"].startswith("the reader limits the loop: ")
    assert summary["producer_seconds"] > 0
    assert {part["name"]: part["seconds"] for part in summary["parts"]}["producer"] == 0
    idle.close()


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("source", ["queue", "file"])
def test_a_loop_that_waits_for_copies_is_limited_by_them(source: str, ahead: bool, tmp_path: Path) -> None:
    rows = np.zeros((16, 1 << 20), "uint8")
    np.save(tmp_path / "x.npy", rows)

    def make() -> Reader:
        if source == "file":
            return open_files(tmp_path / "x.npy")
        reader, queue = feed(16, shapes=[rows.shape[1:]], dtypes=["uint8"])
        for row in rows:
            queue.push((row,))
        queue.close()
        return reader

    # A copy cannot be held up. So there are loops until nothing else has held up one; each has the shares of its spans.
    for _ in range(1000):
        reader = make().batch(8)
        if ahead:
            reader = reader.double_buffer(depth=1)
        with trace() as t:
            for _ in reader:
                pass
        found = shares_of_spans(t)
        check_limit(t, max(found, key=lambda name: found[name]), 3)
        if t.summary["limited_by"] == "copy":
            return
    pytest.fail("no loop was limited by copies")


def test_pops_and_looks_ahead_are_reads_as_well() -> None:
    reader, queue = feed(10)
    for i in range(4):
        queue.push((np.full(2, float(i)),))
    with trace() as t:
        queue.pop()
        assert reader.has_next()
        reader.read()
    assert t.summary["reads"] == 3
    names = {op["name"] for op in t.summary["operators"] if op["track"] == "consumer"}
    assert names == {"pop", "has_next", "next"}


def test_several_threads_that_read_are_summed() -> None:
    reader, queue = feed(100)
    for i in range(100):
        queue.push((np.full(2, float(i)),))
    queue.close()
    numbers: list[int] = []

    def loop() -> None:
        numbers.append(threading.get_native_id())
        barrier.wait()
        for _ in reader.current_pass():
            pass

    barrier = threading.Barrier(3)
    with trace() as t:
        threads = [Background(loop) for _ in range(3)]
        for thread in threads:
            thread.wait()
    summary = t.summary
    assert {consumer["thread"] for consumer in summary["consumers"]} == set(numbers)
    assert sum(consumer["reads"] for consumer in summary["consumers"]) == summary["reads"] == 103
    assert sum(c["seconds"] for c in summary["consumers"]) == pytest.approx(summary["consumer_seconds"])
    counted = [c for c in summary["consumers"] if c["seconds"] > 0]
    if len(counted) > 1:
        reads = sum(c["reads"] for c in counted)
        assert f" of the time of {reads} reads by {len(counted)} threads, summed; " in summary["sentence"]


def test_a_generator_that_reads_is_between_two_loops() -> None:
    source, queue = feed(10)
    for i in range(10):
        queue.push((np.full(2, float(i)),))
    queue.close()

    def between() -> Iterator[tuple[Any]]:
        for (x,) in source:
            wait_until(lambda: asleep(last[0]))
            most.take()
            yield (x + 1,)

    last = [from_generator(between, [(2,)], dtypes=["float64"], scope=Scope())]
    with trace() as t:
        most = Most()
        for _ in last[0]:
            pass
    last.clear()  # which the generator leads to
    summary = t.summary
    assert summary["limited_by"] == "producer"
    by_thread = {consumer["thread"]: consumer for consumer in summary["consumers"]}
    loop = by_thread.pop(threading.get_native_id())
    assert (loop["limited_by"], loop["pushes"]) == ("producer", False)
    assert summary["consumer_seconds"] == pytest.approx(loop["seconds"])
    (generator,) = by_thread.values()
    assert (generator["limited_by"], generator["pushes"]) == ("compute", True)


def test_what_a_kernel_reads_and_what_a_loop_runs_count_once() -> None:
    reader, queue = feed(20)
    for i in range(20):
        queue.push((np.full(2, float(i)),))
    most = Most()

    def kernel() -> None:
        reader.read()
        most.take()
        reader.read()

    main = Program()
    with program_guard(main, Program()):
        layers.call("kernel", [])
    executor = Executor()
    with register_kernel("kernel", kernel), trace() as t:
        most.__init__()  # type: ignore[misc]
        reader.read()
        for _ in range(3):
            executor.run(main, scope=Scope())
        reader.read()
    summary = t.summary
    assert summary["runs"] == 3
    assert summary["reads"] == 2
    assert summary["limited_by"] == "compute"
    assert " of the time of 3 runs and 2 reads; " in summary["sentence"]
    # The thread's time between its two reads, less the runs, and the runs: no more than all.
    assert summary["consumer_seconds"] <= summary["seconds"]
    queue.close()


def test_what_cannot_be_told_is_said_with_its_reason() -> None:
    reader, queue = feed(4)
    queue.push((np.zeros(2),))
    with trace() as t:
        reader.read()
    assert t.summary["limited_by"] == ""
    assert t.summary["sentence"].startswith("cannot tell what limits the loop: no thread read twice")

    queue.push((np.zeros(2),))
    queue.push((np.zeros(2),))
    with trace() as t:
        most = Most()
        for _ in range(5):  # polls, and does something else meanwhile, or sleeps: the trace cannot know
            try:
                reader.read(timeout=0)
            except Timeout:
                most.take()
    assert t.summary["limited_by"] == ""
    assert "after reads that timed out" in t.summary["sentence"]

    with trace() as t:
        most = Most()
        waiting = Background(lambda: reader.read())
        wait_until(lambda: asleep(reader))
        most.take()
    assert t.summary["limited_by"] == ""
    assert t.summary["pending_seconds"] > 0
    assert "had not ended when the recording did" in t.summary["sentence"]
    queue.push((np.zeros(2),))
    waiting.wait()


def test_the_summary_says_what_is_copied_to_devices() -> None:
    with trace() as t:
        train(batches=1)
    assert t.summary["devices"] == []
    assert t.summary["backlog_seconds"] == 0
    said = run(
        """
        import json
        from pyfeed import CUDAPlace, random_data
        from pyfeed.diagnostics import trace

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
        with pytest.raises(pyfeed.errors.StateError):
            trace()
        with pytest.raises(pyfeed.errors.StateError):
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
        with pytest.raises((pyfeed.errors.InvalidArgument, OverflowError), match="max_events"):
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


# ---- The plot; tests/adapters tests what matplotlib draws of it ----

NAMES = list(KINDS)
Spans = list[tuple[str, float, float]]  # category, begin and end in microseconds


def chrome_of(*rows: tuple[str, Spans]) -> str:
    """A trace in Chrome's format."""
    events: list[dict[str, Any]] = [{"ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": {"name": "pyfeed"}}]
    for tid, (name, spans) in enumerate(rows, 1):
        events.append({"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": name}})
        events += [
            {"ph": "X", "pid": 1, "tid": tid, "name": "span", "cat": kind, "ts": begin, "dur": end - begin}
            | ({"args": {"bytes": 8}} if kind == "copy" else {})
            for kind, begin, end in spans
        ]
    return json.dumps({"traceEvents": events})


def segments(row: Row) -> list[tuple[str, int, int]]:
    columns = (row.kinds.tolist(), row.starts.tolist(), row.ends.tolist())
    return [(NAMES[kind], start, end) for kind, start, end in zip(*columns, strict=True)]


def test_a_row_shows_the_innermost_span() -> None:
    run: Spans = [
        ("run", 1, 20),
        ("read", 2, 10),
        ("wait", 3, 5),
        ("copy", 5, 6),
        ("compute", 10, 18),
        ("compute", 18, 18.5),
    ]
    empty: Spans = [("stall", 4, 4)]
    apart: Spans = [("read", 0, 1), ("full", 1, 2), ("read", 7, 8.125)]
    rows = read_rows(chrome_of(("run", run), ("copies", empty), ("double_buffer", apart), ("none", [])))
    assert [row.name for row in rows] == ["run", "copies", "double_buffer", "none"]
    assert [segments(row) for row in rows] == [
        [
            ("run", 1000, 2000),
            ("read", 2000, 3000),
            ("wait", 3000, 5000),
            ("copy", 5000, 6000),
            ("read", 6000, 10000),
            ("compute", 10000, 18500),
            ("run", 18500, 20000),
        ],
        [],
        [("read", 0, 1000), ("full", 1000, 2000), ("read", 7000, 8125)],
        [],
    ]


def test_a_consumer_shows_the_time_between_its_reads() -> None:
    spans = [("copy", 1, 2), ("read", 3, 4), ("read", 6, 9), ("wait", 7, 8), ("run", 10, 11), ("read", 12, 13)]
    (row,) = read_rows(chrome_of(("consumer", [*spans, ("copy", 15, 16)])))
    assert segments(row) == [
        ("copy", 1000, 2000),
        ("read", 3000, 4000),
        (BETWEEN_READS, 4000, 6000),
        ("read", 6000, 7000),
        ("wait", 7000, 8000),
        ("read", 8000, 9000),
        (BETWEEN_READS, 9000, 10000),
        ("run", 10000, 11000),
        (BETWEEN_READS, 11000, 12000),
        ("read", 12000, 13000),
        ("copy", 15000, 16000),
    ]


def test_spans_of_random_programs() -> None:
    """The rows have the time of each kind that a look at every microsecond finds."""
    rng = np.random.default_rng(1)
    for _ in range(100):
        spans: Spans = []

        def nest(begin: int, end: int, spans: Spans = spans) -> None:
            at = begin
            while at < end:
                a, b = np.sort(rng.integers(at, end + 1, 2)).tolist()
                spans.append((NAMES[rng.choice([0, 2, 3, 4, 6, 7])], a, b))
                if rng.random() < 0.6 and b - a < end - begin:
                    nest(a, b)
                at = b + int(rng.integers(0, 2)) + (a == b)

        nest(0, 40)
        innermost = [next((kind for kind, a, b in reversed(spans) if a <= t < b), None) for t in range(40)]
        (row,) = read_rows(chrome_of(("run", spans)))
        assert (row.starts < row.ends).all()
        assert (row.starts[1:] >= row.ends[:-1]).all()
        found: list[str | None] = [None] * 40
        for kind, start, end in segments(row):
            found[start // 1000 : end // 1000] = [kind] * ((end - start) // 1000)
        assert found == innermost


def bars(row: Row, width: int) -> list[tuple[str, float, float, float, float]]:
    b = make_bars(row, width)
    columns = (b.begin.tolist(), b.end.tolist(), b.bottom.round(9).tolist(), b.top.round(9).tolist())
    return [(NAMES[kind], *corners) for kind, *corners in zip(b.kinds.tolist(), *columns, strict=True)]


def test_spans_narrower_than_a_pixel_are_merged() -> None:
    wide = [("read", 0, 0.25), ("compute", 0.25, 1.25)]
    narrow = [
        ("read", 2, 2.03),
        ("compute", 2.03, 2.05),
        ("read", 2.05, 2.06),
        ("read", 2.095, 2.105),
        ("full", 9, 9.001),
    ]
    (row,) = read_rows(chrome_of(("run", [*wide, *narrow])))
    assert bars(row, 100) == [
        ("read", 0, 250, 0, 1),
        ("compute", 250, 1250, 0, 1),
        # 20 ns of 100 are compute's, and 45 the reads', of which one goes on in the next column
        ("compute", 2000, 2100, 0, 0.2),
        ("read", 2000, 2100, 0.2, 0.65),
        ("read", 2100, 2200, 0, 0.15),  # what takes any time can be seen
        ("full", 9000, 9100, 0, 0.15),
    ]
    assert [bar[0] for bar in bars(row, 1)] == ["read", "compute", "read", "compute", "read", "read", "full"]
    (nothing,) = read_rows(chrome_of(("run", [])))
    assert bars(nothing, 100) == []


def test_a_trace_of_many_spans_has_few_bars() -> None:
    n = 200_000
    starts = np.arange(n) * 1000
    row = Row("double_buffer", starts, starts + 700, np.arange(n) % 2 * 2)
    columns = 1000
    found = make_bars(row, n * 1000 // columns)
    assert len(found.kinds) == 2 * columns
    shares = (found.top - found.bottom).reshape(columns, 2)
    assert shares == pytest.approx(np.full((columns, 2), 0.35))


def test_rows_of_one_name_are_numbered() -> None:
    rows = read_rows(chrome_of(*((name, []) for name in ("consumer", "map", "map", "consumer", "map"))))
    assert row_labels(rows) == ["consumer", "map", "map (2)", "consumer (2)", "map (3)"]


def test_the_rows_of_a_trace() -> None:
    with trace() as t:
        train(compute=0.005)
    rows = read_rows(t.chrome())
    assert sum(int((row.ends - row.starts).sum()) for row in rows if row.name == "run") == pytest.approx(
        t.summary["run_seconds"] * 1e9, abs=1
    )
    (run,) = (row for row in rows if row.name == "run")
    times = {part["name"]: part["seconds"] for part in t.summary["parts"]}
    compute = run.kinds == NAMES.index("compute")
    assert (run.ends - run.starts)[compute].sum() / 1e9 == pytest.approx(times["compute"])
    assert "double_buffer" in row_labels(rows)


def test_a_plot_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.collections", None)
    with trace() as t, pytest.raises(pyfeed.errors.StateError):
        t.plot()
    with pytest.raises(
        pyfeed.errors.UnsupportedError, match=r"plot needs matplotlib.*: pip install 'pyarrayfeed\[plot\]'"
    ) as caught:
        t.plot()
    assert isinstance(caught.value.__cause__, ImportError)
