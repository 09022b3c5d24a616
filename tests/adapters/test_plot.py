"""`Trace.plot` draws a trace with matplotlib."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from pyfeed._trace_plot import KINDS, make_bars, plot, read_rows, row_labels
from pyfeed.diagnostics import Trace, trace

import pyfeed

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.colors import to_hex

LABELS = {color: label for label, color in KINDS.values()}


@pytest.fixture(autouse=True)
def figures() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    pyplot.close("all")


@pytest.fixture
def loop() -> Trace:
    """A loop that waits for the functions of map, then computes."""

    def function(x: Any) -> Any:
        time.sleep(0.01)
        return x

    reader = pyfeed.random_data([(8,)], count=20).map(function).double_buffer()
    with trace() as t:
        for _ in reader:
            time.sleep(0.02)
    return t


def rectangles(ax: Any) -> list[tuple[int, str, float, float, float, float]]:
    """What is drawn: row, kind, begin and end in seconds, bottom and top as shares of the bar's height."""
    (collection,) = ax.collections
    out = []
    for path, color in zip(collection.get_paths(), collection.get_facecolors(), strict=True):
        (x0, y0), (x1, y1) = path.vertices.min(axis=0), path.vertices.max(axis=0)
        row = round((y0 + y1) / 2)
        low, high = ((row + 0.4 - y) / 0.8 for y in (y1, y0))
        out.append((row, LABELS[to_hex(color)], x0, x1, low, high))
    return out


def labels(ax: Any) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


def test_rows_and_bars(loop: Trace) -> None:
    ax: Any = loop.plot()
    rows = read_rows(loop.chrome())
    assert labels(ax) == row_labels(rows)
    assert {"consumer", "double_buffer", "map"} <= set(labels(ax))
    assert ax.get_xlim() == (0, loop.summary["seconds"])
    assert ax.get_ylim() == (len(rows) - 0.5, -0.5)  # the first row is at the top
    assert ax.get_xlabel() == "seconds since the start of the recording"

    drawn = rectangles(ax)
    assert {row for row, *_ in drawn} == {i for i, row in enumerate(rows) if len(row.starts)}
    for _, _, begin, end, low, high in drawn:
        assert 0 <= begin < end <= loop.summary["seconds"] * 1.01
        assert -1e-9 <= low < high <= 1 + 1e-9

    # The loop computed for 20 times 20 ms, which is more than a pixel each time.
    computed = [bar for bar in drawn if bar[0] == labels(ax).index("consumer") and bar[5] - bar[4] == pytest.approx(1)]
    computed = [bar for bar in computed if bar[1] == "between two reads of a loop"]
    assert len(computed) == 20
    (consumer,) = (row for row in rows if row.name == "consumer")
    index = list(KINDS).index("between reads")
    begins = consumer.starts[(consumer.kinds == index) & (consumer.ends - consumer.starts >= 20_000_000)] / 1e9
    assert [bar[2] for bar in computed] == pytest.approx(begins.tolist())
    made = [bar for bar in drawn if bar[0] == labels(ax).index("map")]
    assert {bar[1] for bar in made} == {"function of map"}


def test_the_title_and_the_legend(loop: Trace) -> None:
    ax: Any = loop.plot()
    assert ax.get_title(loc="left").replace("\n", " ") == loop.summary["sentence"]
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    shown = {kind for _, kind, *_ in rectangles(ax)}
    assert legend == [label for label, _ in KINDS.values() if label in shown]
    assert {"between two reads of a loop", "read", "function of map"} <= set(legend)
    handles = {
        text.get_text(): to_hex(patch.get_facecolor())
        for text, patch in zip(ax.get_legend().get_texts(), ax.get_legend().get_patches(), strict=True)
    }
    assert handles == {label: color for label, color in KINDS.values() if label in shown}


def test_axes_of_the_caller(loop: Trace, tmp_path: Path) -> None:
    figure, (upper, lower) = pyplot.subplots(2, figsize=(6, 8))
    assert loop.plot(lower) is lower
    assert loop.plot(ax=upper) is upper
    assert len(figure.axes) == len(pyplot.get_fignums()) + 1 == 2  # no other figure was made
    # A title fits the axes that it is above of.
    assert upper.get_title(loc="left").count("\n") > loop.plot().get_title(loc="left").count("\n")
    figure.savefig(tmp_path / "trace.svg")
    assert "seconds since the start" in (tmp_path / "trace.svg").read_text()


@pytest.mark.parametrize("wrong", [3, "axes", []])
def test_axes_that_are_none(loop: Trace, wrong: Any) -> None:
    with pytest.raises(pyfeed.errors.ArgumentTypeError, match="ax: expected a matplotlib Axes"):
        loop.plot(wrong)


def test_an_empty_trace(tmp_path: Path) -> None:
    with trace() as t:
        pass
    ax: Any = t.plot()
    assert (labels(ax), rectangles(ax), ax.get_legend()) == ([], [], None)
    assert ax.get_title(loc="left") == "nothing was recorded"
    assert ax.get_xlim()[0] == 0
    ax.figure.savefig(tmp_path / "empty.png")


def test_names_that_look_like_formulas() -> None:
    """A text between two "$" is not a formula: this one would be wrong."""
    event = {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": r"$\frac$"}}
    summary = {"seconds": 1.0, "sentence": r"$\sqrt$ limits the loop"}
    ax: Any = plot(summary, lambda: json.dumps({"traceEvents": [event]}), None)
    ax.figure.canvas.draw()
    assert labels(ax) == [r"$\frac$"]
    assert ax.get_title(loc="left") == summary["sentence"]


def test_hundreds_of_thousands_of_spans(tmp_path: Path) -> None:
    with trace() as t:
        for _ in range(8):
            for _ in pyfeed.random_data([(2,)], count=25_000).shuffle(100).double_buffer():
                pass
    assert t.summary["spans"] >= 200_000
    ax: Any = t.plot()
    drawn = rectangles(ax)
    rows = read_rows(t.chrome())
    width = ax.get_window_extent().width
    assert len(drawn) < 6 * width * len(rows)
    ax.figure.savefig(tmp_path / "many.png")

    # The areas of the bars are the times of the kinds: what is shown in a row is what was recorded there.
    consumer = labels(ax).index("consumer")
    times = np.bincount(rows[consumer].kinds, rows[consumer].ends - rows[consumer].starts, len(KINDS)) / 1e9
    areas = dict.fromkeys(LABELS.values(), 0.0)
    for row, kind, begin, end, low, high in drawn:
        if row == consumer:
            areas[kind] += (end - begin) * (high - low)
    shown = [areas[label] for label, _ in KINDS.values()]
    assert shown == pytest.approx(times.tolist(), abs=0.02 * t.summary["seconds"])


def test_the_bars_are_those_of_the_rows(loop: Trace) -> None:
    ax: Any = loop.plot(pyplot.figure(figsize=(10, 5), dpi=100).add_axes((0, 0, 1, 1)))
    width = int(max(loop.summary["seconds"], 0) * 1e9) // 1000
    expected = []
    for i, row in enumerate(read_rows(loop.chrome())):
        bars = make_bars(row, width)
        expected += [(i, a / 1e9, b / 1e9) for a, b in zip(bars.begin, bars.end, strict=True)]
    assert [bar[0] for bar in rectangles(ax)] == [bar[0] for bar in expected]
    assert [bar[2:4] for bar in rectangles(ax)] == [pytest.approx(bar[1:]) for bar in expected]
