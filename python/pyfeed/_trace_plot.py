"""The picture of a trace that `pyfeed.diagnostics.Trace.plot` draws with matplotlib."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .errors import UnsupportedError

if TYPE_CHECKING:
    from matplotlib.axes import Axes as _Axes  # type: ignore[import-not-found,unused-ignore]
    from numpy.typing import NDArray

# The categories of spans (pyfeed/trace) in the order of the legend, with their labels and colours.
BETWEEN_READS = "between reads"
KINDS = {
    "compute": ("compute", "#2ca02c"),
    BETWEEN_READS: ("between two reads of a loop", "#a6dba0"),
    "read": ("read", "#1f77b4"),
    "copy": ("copy in host memory", "#ff7f0e"),
    "make": ("function of map", "#9467bd"),
    "transfer": ("copy to a device", "#8c564b"),
    "wait": ("wait", "#c7c7c7"),
    "producer": ("wait for a producer", "#d62728"),
    "full": ("wait for room", "#aec7e8"),
    "stall": ("wait for a copy to a device", "#e377c2"),
    "backlog": ("wait for a busy device", "#bcbd22"),
    "run": ("executor", "#636363"),
}
_KIND_INDEX = {kind: i for i, kind in enumerate(KINDS)}

_BAR_HEIGHT = 0.8  # of a row
_MIN_HEIGHT = 0.15  # of a bar: a column of less would hardly be visible


class Row(NamedTuple):
    """A line of the picture. At each time it shows the innermost span: the segments follow each other in time."""

    name: str
    starts: NDArray[np.int64]  # of the segments, in nanoseconds since the start of the recording
    ends: NDArray[np.int64]
    kinds: NDArray[np.int64]  # indexes of KINDS


def read_rows(chrome: str) -> list[Row]:
    """The rows of a trace in Chrome's format, from the top of the picture to its bottom."""
    names: dict[int, str] = {}
    threads: list[int] = []
    kinds: list[int] = []
    begins: list[float] = []
    durations: list[float] = []

    def take(event: dict[str, Any]) -> dict[str, Any] | None:
        if event.get("ph") == "X":
            threads.append(event["tid"])
            kinds.append(_KIND_INDEX[event["cat"]])
            begins.append(event["ts"])
            durations.append(event["dur"])
            return None
        if event.get("name") == "thread_name":
            names[event["tid"]] = event["args"]["name"]
        return event

    json.loads(chrome, object_hook=take)  # a million dicts would take a gigabyte: each is dropped at once

    # Times are in microseconds with three digits. Integers are exact, which the nesting of spans depends on.
    start, duration = (np.rint(np.array(x, "float64") * 1000).astype("int64") for x in (begins, durations))
    end, kind, thread = start + duration, np.array(kinds, "int64"), np.array(threads, "int64")
    order = np.argsort(thread, kind="stable")
    bounds = {tid: np.searchsorted(thread[order], [tid, tid + 1]) for tid in names}
    rows = []
    for tid in sorted(names):
        own = order[slice(*bounds[tid])]
        rows.append(_row(names[tid], start[own], end[own], kind[own]))
    return rows


def _row(name: str, start: NDArray[np.int64], end: NDArray[np.int64], kind: NDArray[np.int64]) -> Row:
    """A row of spans that nest or follow each other, sorted by start, with outer spans before inner ones."""
    segments: list[tuple[int, int, int]] = []
    open_spans: list[tuple[int, int]] = []
    at = 0

    def advance(to: int) -> None:
        nonlocal at
        while open_spans:
            ends, k = open_spans[-1]
            until = min(ends, to)
            if until > at:
                if segments and segments[-1][1:] == (at, k):
                    segments[-1] = (segments[-1][0], until, k)
                else:
                    segments.append((at, until, k))
                at = until
            if ends > to:
                return
            open_spans.pop()

    for s, e, k in zip(start.tolist(), end.tolist(), kind.tolist(), strict=True):
        advance(s)
        at = s
        if e > s:
            open_spans.append((e, k))
    if open_spans:
        advance(open_spans[0][0])

    found = np.array(segments, "int64").reshape(-1, 3)
    reads = kind == _KIND_INDEX["read"]
    if name == "consumer" and reads.any():
        found = _add_gaps(found, int(start[reads].min()), int(end[reads].max()))
    return Row(name, found[:, 0], found[:, 1], found[:, 2])


def _add_gaps(segments: NDArray[np.int64], begin: int, end: int) -> NDArray[np.int64]:
    """The segments, and the gaps between them from the first read of a loop to its last."""
    gap = (segments[:-1, 1] < segments[1:, 0]) & (segments[:-1, 1] >= begin) & (segments[1:, 0] <= end)
    gaps = np.column_stack((segments[:-1, 1], segments[1:, 0], np.full(len(gap), _KIND_INDEX[BETWEEN_READS])))[gap]
    out = np.concatenate((segments, gaps))
    return np.asarray(out[np.argsort(out[:, 0], kind="stable")])


class Bars(NamedTuple):
    """Rectangles, in the order in which they are drawn."""

    begin: NDArray[np.float64]  # nanoseconds
    end: NDArray[np.float64]
    bottom: NDArray[np.float64]  # 0 to 1, of the bar's height
    top: NDArray[np.float64]
    kinds: NDArray[np.int64]


def make_bars(row: Row, width: int) -> Bars:
    """The rectangles of a row.

    A segment of at least `width` nanoseconds is a rectangle of the full height. The shorter ones are merged in columns
    of that width, in which the height of each kind is its share of the time.
    """
    long = row.ends - row.starts >= width
    starts, ends, kinds = row.starts[~long], row.ends[~long], row.kinds[~long]
    column = starts // width
    here = np.minimum(ends, (column + 1) * width) - starts  # the rest is in the next column
    times = np.concatenate((here, ends - starts - here))
    cells = np.concatenate((column, column + 1)) * len(KINDS) + np.concatenate((kinds, kinds))
    cell, index = np.unique(cells[times > 0], return_inverse=True)
    time = np.bincount(index.ravel(), times[times > 0], len(cell))
    column, kind = np.divmod(cell, len(KINDS))

    # From the bottom: the cells are sorted by column, then by kind.
    first = np.flatnonzero(np.diff(column, prepend=-1))  # of each column
    count = np.diff(np.append(first, len(cell)))
    busy = np.repeat(np.add.reduceat(time, first) if len(cell) else time, count)
    above = np.cumsum(time)
    below = above - time
    base = np.repeat(below[first], count)
    scale = np.maximum(busy / width, _MIN_HEIGHT) / busy
    return Bars(
        np.concatenate((row.starts[long], column * width)).astype("float64"),
        np.concatenate((row.ends[long], (column + 1) * width)).astype("float64"),
        np.concatenate((np.zeros(long.sum()), (below - base) * scale)),
        np.concatenate((np.ones(long.sum()), (above - base) * scale)),
        np.concatenate((row.kinds[long], kind)),
    )


def row_labels(rows: list[Row]) -> list[str]:
    """The names of the rows, with numbers for those of the same name."""
    seen: dict[str, int] = {}
    labels = []
    for row in rows:
        n = seen[row.name] = seen.get(row.name, 0) + 1
        labels.append(row.name if n == 1 else f"{row.name} ({n})")
    return labels


def plot(summary: dict[str, Any], chrome: Callable[[], str], ax: _Axes | None) -> _Axes:
    """Draw a trace. `chrome` is called for its spans once matplotlib was found."""
    try:
        from matplotlib.collections import PolyCollection  # type: ignore[import-not-found,unused-ignore]
        from matplotlib.colors import to_rgba_array  # type: ignore[import-not-found,unused-ignore]
        from matplotlib.patches import Patch  # type: ignore[import-not-found,unused-ignore]

        if ax is None:
            import matplotlib.pyplot as plt  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise UnsupportedError(
            f"plot needs matplotlib, which cannot be imported ({error}): pip install 'pyarrayfeed[plot]'"
        ) from error

    rows = read_rows(chrome())
    own_figure = ax is None
    if ax is None:
        height = min(max(1.4 + 0.32 * len(rows), 2.5), 40)
        _, ax = plt.subplots(figsize=(12, height), layout="constrained")

    end = max([summary["seconds"], *(row.ends[-1] / 1e9 for row in rows if len(row.ends))])
    pixels = ax.get_window_extent().width
    # The legend and the labels of a figure of our own still take room from the axes.
    columns = max(int(pixels * (0.7 if own_figure else 1)), 100)
    bars = [make_bars(row, max(int(end * 1e9) // columns, 1)) for row in rows]

    corners: list[NDArray[np.float64]] = []
    for i, bar in enumerate(bars):
        x0, x1 = bar.begin / 1e9, bar.end / 1e9
        y0, y1 = (i + _BAR_HEIGHT / 2 - _BAR_HEIGHT * y for y in (bar.bottom, bar.top))  # the axis points down
        corners.append(np.stack([np.stack(p, axis=-1) for p in ((x0, y0), (x1, y0), (x1, y1), (x0, y1))], axis=1))
    colors = to_rgba_array([color for _, color in KINDS.values()])
    bar_kinds = np.concatenate([bar.kinds for bar in bars]) if bars else np.empty(0, "int64")
    polygons: Any = np.concatenate(corners) if corners else np.empty((0, 4, 2))
    ax.add_collection(PolyCollection(polygons, facecolors=colors[bar_kinds], linewidths=0), autolim=False)

    ax.set_xlim(0, end or 1)
    ax.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    ax.set_xlabel("seconds since the start of the recording")
    # Track names are shown as they are: matplotlib would take a text between two "$" for a formula.
    ax.set_yticks(range(len(rows)), labels=row_labels(rows), parse_math=False)
    ax.tick_params(axis="y", length=0)
    ax.set_axisbelow(True)
    ax.grid(axis="x", color="#e5e5e5")
    found = set(bar_kinds.tolist())
    legend = [Patch(color=color, label=label) for i, (label, color) in enumerate(KINDS.values()) if i in found]
    if legend and own_figure:
        ax.legend(handles=legend, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
    elif legend:
        ax.legend(handles=legend, loc="upper right", fontsize="small")
    characters = int(pixels / ax.figure.dpi * 72 / (float(ax.title.get_fontsize()) * 0.55))
    ax.set_title(textwrap.fill(summary["sentence"], max(characters, 30)), loc="left", parse_math=False)
    return ax
