"""Makes the tables and the pictures of docs/benchmarks.md from what is kept in benchmarks/results.

    python benchmarks/report.py [--check] [--no-plots] [--results DIR] [--page FILE]

The page's own words stand between parts that are written here: `<!-- begin: NAME -->` to `<!-- end: NAME -->`, where
NAME is a workload, or "summary", or "instructions" for the table of instructions.py. Pictures go to a folder beside the
page that has its name, one a workload, and need matplotlib. --check writes nothing, needs nothing but Python, and ends
with status 1 if the page or a picture is not what the results give.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import statistics
import sys
import textwrap
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import instructions
from measuring.results import compare, paired
from measuring.rows import LIMIT, OURS, PEER

ROOT = Path(__file__).parents[1]
WORKLOADS = ("batches", "files", "cold_start", "interruption", "training_loop")
COLUMNS = 6  # of a table, at most: more are hard to read
KINDS = (OURS, PEER, LIMIT)
AT_THE_LIMIT = "at the limit"

Found = dict[str, Any]  # of a workload, as measuring.Results writes it


class Wrong(Exception):
    """The results or the page are not as expected. The text says where."""


def load(folder: Path) -> list[Found]:
    """What is kept of all workloads, in their order. Files of another shape are no workloads."""
    found: dict[str, Found] = {}
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text())
        if not isinstance(content, dict) or "workload" not in content:
            continue
        if content["workload"] in found:
            raise Wrong(f"{path}: expected one file of a workload, found another of {content['workload']}")
        found[content["workload"]] = content
    known = [name for name in WORKLOADS if name in found]
    return [found[name] for name in [*known, *sorted(set(found) - set(known))]]


# ---- Figures ----------------------------------------------------------------------------------------


def figure(value: float) -> str:
    """With three digits that count, or all in front of the point."""
    if value == 0:
        return "0"
    if math.isinf(value):
        return "∞"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(0, digits)}f}"


def spread(values: Sequence[float]) -> str:
    return f"{figure(statistics.median(values))} ({figure(min(values))} to {figure(max(values))})"


def duration(seconds: float) -> str:
    for unit, name in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit:
            return f"{figure(seconds / unit)} {name}"
    return f"{figure(seconds / 1e-9)} ns" if seconds else "0"


def memory(size: float) -> str:
    return f"{size / (1 << 20):,.0f} MiB"


def ratios(row: Found) -> dict[str, list[float]]:
    """How many times as good our best way is as each other way with figures, run by run."""
    values = {way["way"]: way["values"] for way in row["ways"] if "values" in way}
    ours = values.pop(compare(row).get("ours"), None)
    return {way: paired(ours, theirs, row["better"]) for way, theirs in values.items()} if ours else {}


def first(row: Found) -> str:
    """Whether ours is ahead of all peers, and in every run."""
    beside = compare(row)
    if "ours" not in beside:
        return "no"
    found = ratios(row)
    peers = [found[way["way"]] for way in row["ways"] if way["kind"] == PEER and way["way"] in found]
    if not peers:
        return "alone"
    if all(min(times) > 1 for times in peers):
        return "yes"
    if all(min(times) >= 1 for times in peers):
        return "level"  # such as with nothing left behind by either
    if LIMIT in beside and beside[f"x {LIMIT}"][2] >= 1:
        return AT_THE_LIMIT
    return "within the spread" if all(statistics.median(times) >= 1 for times in peers) else "no"


def ranked(found: Found) -> list[tuple[str, str]]:
    """The ways that have figures, and their kinds: ours, peers from the best to the worst, the limit."""
    kinds: dict[str, str] = {}
    places: dict[str, list[float]] = {}
    for row in found["rows"]:
        times = ratios(row)
        for way in row["ways"]:
            if "values" in way:
                kinds[way["way"]] = way["kind"]
                median = statistics.median(times.get(way["way"], [1.0]))
                places.setdefault(way["way"], []).append(math.log(min(max(median, 1e-9), 1e9)))
    return sorted(kinds.items(), key=lambda way: (KINDS.index(way[1]), statistics.mean(places[way[0]]), way[0]))


# ---- Markdown ---------------------------------------------------------------------------------------


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def table(header: Iterable[str], lines: Iterable[Iterable[str]], numbers: Container[int] = ()) -> str:
    """A table, of which those columns are numbers."""
    head = [cell(text) for text in header]
    rule = ["---:" if at in numbers else "---" for at in range(len(head))]
    return "\n".join(
        f"| {' | '.join(line)} |" for line in [head, rule, *([cell(text) for text in line] for line in lines)]
    )


def unit(row: Found) -> str:
    return str(row["unit"]) + (", less is better" if row["better"] == "lower" else "")


def summary(workloads: Sequence[Found]) -> str:
    """Ours beside the best peer and the limit, in every row of all workloads."""
    lines = []
    for found in workloads:
        for row in found["rows"]:
            lines.append([found["workload"], row["row"], *_summed_up(row)])
    if not lines:
        return "No figures are kept."
    head = ["workload", "row", "ours", "best peer", "x best peer", "first", "x limit"]
    ahead = sum(line[5] == "yes" for line in lines)
    level = sum(line[5] == AT_THE_LIMIT for line in lines)
    beside = sum(line[5] != "alone" for line in lines)
    said = f"First by more than the spread in {ahead} of {beside} rows that a peer has figures in."
    if level:
        said += f" In {level} more ours was as fast as the limit, which nobody passes."
    return f"{said}\n\n{table(head, lines)}"


def _summed_up(row: Found) -> list[str]:
    ways = {way["way"]: way for way in row["ways"]}
    found = compare(row)
    if "ours" not in found:
        mine = next((way for way in row["ways"] if way["kind"] == OURS), {"not offered": "no way of ours"})
        return ["**" + ("failed" if "failed" in mine else "not offered") + "**", "", "", "no", ""]
    ours = f"**{figure(statistics.median(ways[found['ours']]['values']))}** {row['unit']}, {found['ours']}"
    peer = times = ""
    if PEER in found:
        peer = f"{figure(statistics.median(ways[found[PEER]]['values']))}, {found[PEER]}"
        median, least, most = found[f"x {PEER}"]
        times = f"**{figure(median)}** ({figure(least)} to {figure(most)})"
    limit = figure(found[f"x {LIMIT}"][0]) if LIMIT in found else ""
    return [ours, peer, times, first(row), limit]


def matrix(found: Found) -> str:
    """A line a way, a column a row: the median, and how many times as good ours is."""
    rows = found["rows"]
    order = ranked(found)
    parts = math.ceil(len(rows) / COLUMNS)
    width = math.ceil(len(rows) / parts) if parts else 0
    tables = []
    for begin in range(0, len(rows), width or 1):
        some = rows[begin : begin + width]
        told = [{way["way"]: way for way in row["ways"]} for row in some]
        times = [ratios(row) for row in some]
        lines = []
        for name, kind in order:
            if not any(name in ways for ways in told):
                continue
            cells = [_told(ways.get(name), x.get(name)) for ways, x in zip(told, times, strict=True)]
            lines.append([_named(name, kind), *cells])
        head = ["way", *(f"{row['row']}<br>{unit(row)}" for row in some)]
        tables.append(table(head, lines, range(1, len(head))))
    return "\n\n".join(tables)


def _named(name: str, kind: str) -> str:
    if kind == OURS:
        return f"**{name}**"
    return f"{name} (limit)" if kind == LIMIT and name != LIMIT else name


def _told(way: Found | None, times: Sequence[float] | None) -> str:
    if way is None:
        return ""
    if "values" not in way:
        return "failed" if "failed" in way else "-"
    text = _named(figure(statistics.median(way["values"])), way["kind"] if way["kind"] == OURS else PEER)
    if "waited" in way:
        text += f", waits {statistics.median(way['waited']):.0%}"
    return f"{text} (x {figure(statistics.median(times))})" if times else text


def absent(found: Found) -> str:
    """Why ways have no figures, each reason once."""
    parts = []
    for kind, title in (("not offered", "Not offered"), ("failed", "Failed")):
        reasons: dict[tuple[str, str], list[str]] = {}
        for row in found["rows"]:
            for way in row["ways"]:
                if kind in way:
                    reasons.setdefault((way["way"], way[kind]), []).append(row["row"])
                for setting, reason in way.get("failed settings", {}).items() if kind == "failed" else ():
                    reasons.setdefault((f"{way['way']} with {setting}", reason), []).append(row["row"])
        if not reasons:
            continue
        lines = []
        for (name, reason), rows in sorted(reasons.items()):
            where = "" if len(rows) == len(found["rows"]) else f" ({'; '.join(rows)})"
            lines.append(f"- {name}{where}: {' '.join(reason.split())}")
        parts.append("\n".join([f"{title}:", "", *lines]))
    return "\n\n".join(parts)


def details(found: Found) -> str:
    """All that was measured, folded away."""
    head = [
        "row",
        "way",
        "median (least to most)",
        "ours is x (least to most)",
        "CPU a unit",
        "peak memory",
        "waits",
        "setting",
    ]
    lines = []
    for row in found["rows"]:
        ways = {way["way"]: way for way in row["ways"] if "values" in way}
        times = ratios(row)
        said = ", ".join(f"{name} {value}" for name, value in row.get("parameters", {}).items())
        named = f"{row['row']}, {unit(row)}" + (f" ({said})" if said else "")
        for name, kind in ranked({"rows": [row]}):
            way = ways[name]
            lines.append(
                [
                    named,
                    _named(name, kind),
                    spread(way["values"]),
                    spread(times[name]) if name in times else "",
                    duration(statistics.median(way["cpu seconds a unit"])) if "cpu seconds a unit" in way else "",
                    memory(way["peak bytes"]) if "peak bytes" in way else "",
                    f"{statistics.median(way['waited']):.1%}" if "waited" in way else "",
                    way.get("setting", ""),
                ]
            )
            named = ""
    return f"<details><summary>All figures</summary>\n\n{table(head, lines, range(2, 7))}\n\n</details>"


def made(found: Found) -> str:
    """How the figures came to be."""
    name = found["workload"]
    command = re.sub(r" --json[ =]('[^']*'|\S+)", "", found["command"]) + f" --json benchmarks/results/{name}.json"
    here = found["machine"]
    packages = ", ".join(f"{package} {version}" for package, version in here["packages"].items())
    size = f"{here['memory'] / (1 << 30):.0f} GiB"
    return (
        f"`{command}`, {found['runs']} runs, commit `{here['commit']}`, on {here['cpu']}, {here['cores']} cores, "
        f"{size}, Linux {here['kernel']}. Python {here['python']}, {packages}. {found.get('note', '')}".rstrip()
    )


def section(found: Found, pictures: str) -> str:
    """A workload's part of the page."""
    name = found["workload"]
    picture = f"![{name}: ours and its peers in every row]({pictures}/{name}.png)"
    parts = [made(found), picture, matrix(found), absent(found), details(found)]
    return "\n\n".join(part for part in parts if part)


def parts_of(workloads: Sequence[Found], kept: Path, pictures: str) -> dict[str, str]:
    parts = {found["workload"]: section(found, pictures) for found in workloads}
    parts["summary"] = summary(workloads)
    if kept.exists():
        parts["instructions"] = instructions.markdown(json.loads(kept.read_text()))
    return parts


MARKED = re.compile(r"^<!-- begin: (\w+) -->\n(.*?)^<!-- end: (\w+) -->$", re.MULTILINE | re.DOTALL)


def fill(page: str, parts: Mapping[str, str]) -> str:
    """The page with its parts as given; one that nothing is given for says so."""
    there = re.findall(r"^<!-- begin: (\w+) -->$", page, re.MULTILINE)
    for name in sorted({*there, *parts}):
        if there.count(name) != 1:
            raise Wrong(f"expected one line <!-- begin: {name} -->, found {there.count(name)}")
    for name, _, end in (match.groups() for match in MARKED.finditer(page)):
        if name != end:
            raise Wrong(f"expected <!-- end: {name} --> behind <!-- begin: {name} -->, found <!-- end: {end} -->")
    if len(MARKED.findall(page)) != len(there):
        raise Wrong(f"expected an end of each of {', '.join(there)}")
    return MARKED.sub(lambda match: _marked(match[1], parts.get(match[1], "No figures are kept.")), page)


def _marked(name: str, text: str) -> str:
    return f"<!-- begin: {name} -->\n{text}\n<!-- end: {name} -->"


# ---- Pictures ---------------------------------------------------------------------------------------

COLOURS = {OURS: "#1668a8", PEER: "#a9b3bd", LIMIT: "#b3261e"}


def digest(found: Found) -> str:
    """What a picture is known by: it is written into the file."""
    return "results " + hashlib.sha256(json.dumps(found["rows"], sort_keys=True).encode()).hexdigest()


def draw(found: Found, path: Path) -> None:
    """A panel a row: bars of the medians, from least to most in a line, the limit dashed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    rows = found["rows"]
    names = [(name, kind) for name, kind in ranked(found) if kind != LIMIT]
    across = 2 if len(rows) == 4 else min(3, len(rows))
    down = math.ceil(len(rows) / across)
    picture = Figure(figsize=(1.2 + 3.2 * across, down * (0.75 + 0.17 * len(names))), dpi=90, layout="constrained")
    FigureCanvasAgg(picture)
    panels = picture.subplots(down, across, squeeze=False, sharey=True)
    for at, axes in enumerate(panels.flat):
        if at < len(rows):
            _panel(axes, rows[at], names)
        else:
            axes.set_axis_off()
    legend: list[Any] = [Patch(color=COLOURS[kind], label=kind) for kind in (OURS, PEER)]
    if any(way["kind"] == LIMIT for row in rows for way in row["ways"]):
        legend.append(Line2D([], [], color=COLOURS[LIMIT], lw=1, ls="--", label=LIMIT))
    picture.legend(handles=legend, loc="outside upper left", ncols=len(legend), fontsize=7, frameon=False)
    panels[0, 0].set_ylim(len(names) - 0.4, -0.6)  # the panels share it
    panels[0, 0].set_yticks(range(len(names)), [name for name, _ in names])
    for axes in panels[:, 0]:
        for label, (_, kind) in zip(axes.get_yticklabels(), names, strict=True):
            label.set(fontsize=7, weight="bold" if kind == OURS else "normal")
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = BytesIO()
    picture.savefig(drawn, format="png")
    known = PngInfo()
    known.add_text("Comment", digest(found))
    Image.open(drawn).convert("RGB").quantize(128).save(path, format="png", optimize=True, pnginfo=known)  # a third


def _panel(axes: Any, row: Found, names: Sequence[tuple[str, str]]) -> None:
    ways = {way["way"]: way for way in row["ways"]}
    limits = [statistics.median(way["values"]) for way in row["ways"] if way["kind"] == LIMIT and "values" in way]
    shown = [max(way["values"]) for way in row["ways"] if way["kind"] != LIMIT and "values" in way]
    widest = max(shown, default=0) or 1
    for limit in limits:
        if limit > 2 * widest:  # bars would be too short to compare
            said = f"limit {figure(limit)} →"
            axes.text(1, 0, said, transform=axes.transAxes, ha="right", va="bottom", fontsize=6.5, color=COLOURS[LIMIT])
        else:
            axes.axvline(limit, color=COLOURS[LIMIT], lw=1, ls="--", zorder=0)
            widest = max(widest, limit)
    for place, (name, kind) in enumerate(names):
        way = ways.get(name, {})
        if "values" not in way:
            said = "failed" if "failed" in way else "not offered" if way else ""
            axes.text(0.01 * widest, place, said, va="center", fontsize=6, color="#777777", style="italic")
            continue
        values = way["values"]
        median = statistics.median(values)
        error = [[median - min(values)], [max(values) - median]]
        axes.barh(
            place, median, color=COLOURS[kind], height=0.72, xerr=error, error_kw={"lw": 0.8, "ecolor": "#333333"}
        )
        weight = "bold" if kind == OURS else "normal"
        label = axes.text(max(values) + 0.02 * widest, place, figure(median), va="center", fontsize=6.5, weight=weight)
        label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # over the line of the limit
    axes.set_xlim(0, widest * 1.24)
    axes.tick_params(axis="x", labelsize=6.5)
    axes.tick_params(axis="y", length=0)
    axes.set_title("\n".join([*textwrap.wrap(row["row"], 40), unit(row)]), fontsize=7.5, loc="left")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


# ---- The page ---------------------------------------------------------------------------------------


def differences(page: str, new: str, workloads: Sequence[Found], pictures: Path) -> Iterator[str]:
    """What is not as the results give it."""
    now = {match[1]: match[2] for match in MARKED.finditer(new)}
    for match in MARKED.finditer(page):
        if match[2] != now[match[1]]:
            yield f"the part {match[1]}"
    for found in workloads:
        path = pictures / f"{found['workload']}.png"
        if not path.exists() or digest(found).encode() not in path.read_bytes():
            yield f"the picture {path.name}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="say what is not up to date, and write nothing")
    parser.add_argument("--no-plots", action="store_true", help="leave the pictures as they are")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks.md")
    parser.add_argument("--instructions", type=Path, default=instructions.KEPT, help="the table of instructions.py")
    args = parser.parse_args()
    pictures = args.page.with_suffix("")
    try:
        workloads = load(args.results)
        page = args.page.read_text()
        new = fill(page, parts_of(workloads, args.instructions, pictures.name))
    except Wrong as error:
        print(f"report.py: {args.page}: {error}", file=sys.stderr)
        return 1
    if args.check:
        stale = list(differences(page, new, workloads, pictures))
        for what in stale:
            print(f"{args.page}: {what} is not what the results give: run python benchmarks/report.py")
        return 1 if stale else 0
    args.page.write_text(new)
    if not args.no_plots:
        for found in workloads:
            draw(found, pictures / f"{found['workload']}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
