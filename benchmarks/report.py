"""Generates the tables and the pictures of docs/benchmarks.md from the files in benchmarks/results.

    python benchmarks/report.py [--check] [--no-plots] [--results DIR] [--page FILE]

The generated parts of the page are between `<!-- begin: NAME -->` and `<!-- end: NAME -->`. NAME is a workload;
"highlights" for the table of `HIGHLIGHTS`; "summary" for the table of all cases; or "instructions" for the table of
instructions.py. The pictures, one for each workload, are written to a folder beside the page, which has the name of the
page. They need matplotlib. --check writes nothing, needs only Python, and ends with status 1 if the page or a picture
does not match the results.
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
from harness.cases import LIMIT, PEER, PYFEED
from harness.results import compare, paired_ratios

ROOT = Path(__file__).parents[1]
WORKLOADS = ("batches", "torch_loader", "files", "cold_start", "resume", "interruption", "training_loop")
COLUMNS = 6  # of a table, at most: more are hard to read
KINDS = (PYFEED, PEER, LIMIT)
NO_RESULTS = "No results are kept."
AT_THE_LIMIT = "at the limit"

HIGHLIGHTS = (
    ("batches", "1 MiB from 2 processes", "two worker processes send batches of 1 MiB"),
    ("batches", "1 MiB from 2 threads", "two threads send batches of 1 MiB"),
    ("torch_loader", "images", "two worker processes make batches of 64 images from a PyTorch dataset"),
    ("files", "tfrecord large, 2 cores", "TFRecord files of 100 KB records"),
    ("files", "tfrecord example, 2 cores", "TFRecord files of `tf.train.Example`"),
    ("files", "tar, 2 cores", "tar files as WebDataset writes them, with 1 KiB in each instance"),
    ("files", "csv, 2 cores", "CSV files with 20 numbers in a line"),
    ("files", "parquet numbers snappy, 2 cores", "Parquet files with ten numbers and a label in a row"),
    ("files", "parquet tokens snappy, 2 cores", "Parquet files with lists of tokens"),
    ("files", "jsonl text, 2 cores", "JSON Lines with a text and a label"),
    ("files", "npy rows, 1 core", "rows of 3 KiB of one npy file, on one core"),
    ("cold_start", "first batch and its reader, shuffled", "making a reader of a thousand files and its first batch"),
    ("resume", "restore, 1 KiB records", "going on in the middle of a pass, after a restart"),
    ("training_loop", "light", "a training loop whose preprocessing takes a third of a step"),
    ("training_loop", "heavy", "a training loop whose preprocessing takes nearly two steps"),
)
"""The cases of the first table of the page: the workload, the case, and the job in words."""

FULL_NAMES = {
    "DataLoader": "PyTorch DataLoader",
    "Hugging Face": "Hugging Face datasets",
    "MosaicML": "MosaicML Streaming",
    "Paddle": "Paddle DataLoader",
    "Paddle's queue": "Paddle blocking queue",
    "SimpleQueue": "queue.SimpleQueue",
    "dali": "DALI",
    "datasets": "Hugging Face datasets",
    "datasets (arrow)": "Hugging Face datasets (Arrow)",
    "grain": "Grain",
    "grain (arrayrecord)": "Grain (ArrayRecord)",
    "grain, index shuffle": "Grain, index shuffle",
    "grain, window shuffle": "Grain, window shuffle",
    "huggingface datasets": "Hugging Face datasets",
    "litdata": "LitData",
    "litdata (chunks)": "LitData (chunks)",
    "mosaic": "MosaicML Streaming",
    "mosaicml": "MosaicML Streaming",
    "mosaicml-streaming": "MosaicML Streaming",
    "mp.Queue": "multiprocessing.Queue",
    "none": "no loader",
    "numpy": "Python and NumPy",
    "numpy alone": "NumPy alone",
    "paddle": "Paddle DataLoader",
    "paddle DataLoader": "Paddle DataLoader",
    "duckdb": "DuckDB",
    "polars": "Polars",
    "pool": "multiprocessing.Pool",
    "processes": "processes and multiprocessing.Queue",
    "python's open": "Python's open",
    "pytorch": "PyTorch DataLoader",
    "ray": "Ray Data",
    "ray data": "Ray Data",
    "spdl": "SPDL",
    "streaming": "MosaicML Streaming",
    "streaming (mds)": "MosaicML Streaming (MDS)",
    "tensorstore": "TensorStore",
    "tensorstore (zarr)": "TensorStore (Zarr)",
    "threads": "threads and queue.Queue",
    "torch DataLoader": "PyTorch DataLoader",
    "torchdata nodes": "torchdata",
    "turboloader": "TurboLoader",
    "webdataset": "WebDataset",
}
"""On the page, libraries have these names in place of the short ones of the scripts and the results."""

Json = dict[str, Any]
"""The results of a workload as harness.Results writes them, one of their cases, or one library of a case."""


class ReportError(Exception):
    """The results or the page are not as expected. The message names the file."""


def load(folder: Path) -> list[Json]:
    """The results of all workloads, in the order of `WORKLOADS`, with full names. Other JSON files are ignored."""
    found: dict[str, Json] = {}
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text())
        if not isinstance(content, dict) or "workload" not in content:
            continue
        if content["workload"] in found:
            raise ReportError(f"{path}: expected one file of a workload, found another of {content['workload']}")
        for case in content["cases"]:
            for library in case["libraries"]:
                library["library"] = FULL_NAMES.get(library["library"], library["library"])
        found[content["workload"]] = content
    known = [name for name in WORKLOADS if name in found]
    return [found[name] for name in [*known, *sorted(set(found) - set(known))]]


# ---- Numbers ----------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Rounded to three significant digits, or to an integer if it has more."""
    if value == 0:
        return "0"
    if math.isinf(value):
        return "∞"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(0, digits)}f}"


def spread(values: Sequence[float]) -> str:
    return f"{number(statistics.median(values))} ({number(min(values))} to {number(max(values))})"


def duration(seconds: float) -> str:
    for unit, name in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit:
            return f"{number(seconds / unit)} {name}"
    return f"{number(seconds / 1e-9)} ns" if seconds else "0"


def memory(size: float) -> str:
    return f"{size / (1 << 20):,.0f} MiB"


def ratios(case: Json) -> dict[str, list[float]]:
    """How many times as good pyfeed's best line is as each other library with values, run by run."""
    values = {library["library"]: library["values"] for library in case["libraries"] if "values" in library}
    best = values.pop(compare(case).get(PYFEED), None)
    return {name: paired_ratios(best, theirs, case["better"]) for name, theirs in values.items()} if best else {}


def standing(case: Json) -> str:
    """Whether pyfeed is ahead of all peers, and in every run."""
    compared = compare(case)
    if PYFEED not in compared:
        return "no"
    found = ratios(case)
    peers = [
        found[library["library"]]
        for library in case["libraries"]
        if library["kind"] == PEER and library["library"] in found
    ]
    if not peers:
        return "alone"
    if all(min(times) > 1 for times in peers):
        return "yes"
    if all(min(times) >= 1 for times in peers):
        return "level"  # such as with nothing left behind by either
    if LIMIT in compared and compared[f"x {LIMIT}"][2] >= 1:
        return AT_THE_LIMIT
    return "within the spread" if all(statistics.median(times) >= 1 for times in peers) else "no"


def ranked(results: Json) -> list[tuple[str, str]]:
    """The libraries that have values, and their kinds: pyfeed, peers from the best to the worst, the limit."""
    kinds: dict[str, str] = {}
    places: dict[str, list[float]] = {}
    for case in results["cases"]:
        times = ratios(case)
        for library in case["libraries"]:
            if "values" in library:
                name = library["library"]
                kinds[name] = library["kind"]
                median = statistics.median(times.get(name, [1.0]))
                places.setdefault(name, []).append(math.log(min(max(median, 1e-9), 1e9)))
    return sorted(kinds.items(), key=lambda one: (KINDS.index(one[1]), statistics.mean(places[one[0]]), one[0]))


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


def unit(case: Json) -> str:
    return str(case["unit"]) + (", less is better" if case["better"] == "lower" else "")


def highlights(workloads: Sequence[Json]) -> str:
    """pyfeed beside the best peer, in those cases of `HIGHLIGHTS` that have results."""
    cases = {(results["workload"], case["case"]): case for results in workloads for case in results["cases"]}
    lines = []
    for workload, name, job in HIGHLIGHTS:
        if (workload, name) in cases:
            best, peer, times, _, _ = _summary_cells(cases[workload, name])
            lines.append([job, best, peer, times, f"{workload}: {name}"])
    if not lines:
        return NO_RESULTS
    return table(["job", "pyfeed", "best peer", "ratio", "case"], lines)


def summary(workloads: Sequence[Json]) -> str:
    """pyfeed beside the best peer and the limit, in every case of all workloads."""
    lines = []
    for results in workloads:
        for case in results["cases"]:
            lines.append([results["workload"], case["case"], *_summary_cells(case)])
    if not lines:
        return NO_RESULTS
    head = ["workload", "case", "pyfeed", "best peer", "ratio to best peer", "first", "ratio to limit"]
    ahead = sum(line[5] == "yes" for line in lines)
    level = sum(line[5] == AT_THE_LIMIT for line in lines)
    beside = sum(line[5] != "alone" for line in lines)
    text = f"pyfeed is ahead of every peer in every run in {ahead} of {beside} cases in which a peer has values."
    if level:
        text += f" In {level} more, pyfeed is as fast as the limit."
    return f"{text}\n\n{table(head, lines)}"


def _summary_cells(case: Json) -> list[str]:
    libraries = {library["library"]: library for library in case["libraries"]}
    compared = compare(case)
    if PYFEED not in compared:
        failed = any(library["kind"] == PYFEED and "failed" in library for library in case["libraries"])
        return [f"**{'failed' if failed else 'not supported'}**", "", "", "no", ""]
    best = f"**{number(statistics.median(libraries[compared[PYFEED]]['values']))}** {case['unit']}, {compared[PYFEED]}"
    peer = times = ""
    if PEER in compared:
        peer = f"{number(statistics.median(libraries[compared[PEER]]['values']))} {case['unit']}, {compared[PEER]}"
        median, least, most = compared[f"x {PEER}"]
        times = f"**{number(median)}** ({number(least)} to {number(most)})"
    limit = number(compared[f"x {LIMIT}"][0]) if LIMIT in compared else ""
    return [best, peer, times, standing(case), limit]


def matrix(results: Json) -> str:
    """A row for each library and a column for each case: the median, and how many times as good pyfeed is."""
    cases = results["cases"]
    order = ranked(results)
    parts = math.ceil(len(cases) / COLUMNS)
    width = math.ceil(len(cases) / parts) if parts else 0
    tables = []
    for begin in range(0, len(cases), width or 1):
        some = cases[begin : begin + width]
        columns = [{library["library"]: library for library in case["libraries"]} for case in some]
        times = [ratios(case) for case in some]
        lines = []
        for name, kind in order:
            if not any(name in libraries for libraries in columns):
                continue
            cells = [_cell(libraries.get(name), x.get(name)) for libraries, x in zip(columns, times, strict=True)]
            lines.append([_marked_name(name, kind), *cells])
        head = ["library", *(f"{case['case']}<br>{unit(case)}" for case in some)]
        tables.append(table(head, lines, range(1, len(head))))
    return "\n\n".join(tables)


def _marked_name(name: str, kind: str) -> str:
    if kind == PYFEED:
        return f"**{name}**"
    return f"{name} (limit)" if kind == LIMIT and name != LIMIT else name


def _cell(library: Json | None, times: Sequence[float] | None) -> str:
    if library is None:
        return ""
    if "values" not in library:
        return "failed" if "failed" in library else "-"
    kind = library["kind"] if library["kind"] == PYFEED else PEER
    text = _marked_name(number(statistics.median(library["values"])), kind)
    if "wait_fraction" in library:
        text += f", waits {statistics.median(library['wait_fraction']):.0%}"
    return f"{text} (x {number(statistics.median(times))})" if times else text


def without_values(results: Json) -> str:
    """The reasons why libraries have no values, each reason once."""
    parts = []
    for key, title in (("not_supported", "Not supported"), ("failed", "Failed")):
        reasons: dict[tuple[str, str], list[str]] = {}
        for case in results["cases"]:
            for library in case["libraries"]:
                name = library["library"]
                if key in library:
                    reasons.setdefault((name, library[key]), []).append(case["case"])
                for setting, reason in library.get("failed_settings", {}).items() if key == "failed" else ():
                    reasons.setdefault((f"{name} with {setting}", reason), []).append(case["case"])
        if not reasons:
            continue
        lines = []
        for (name, reason), cases in sorted(reasons.items()):
            where = "" if len(cases) == len(results["cases"]) else f" ({'; '.join(cases)})"
            lines.append(f"- {name}{where}: {' '.join(reason.split())}")
        parts.append("\n".join([f"{title}:", "", *lines]))
    return "\n\n".join(parts)


def details(results: Json) -> str:
    """All measurements of a workload, in a folded table."""
    head = [
        "case",
        "library",
        "median (least to most)",
        "ratio (least to most)",
        "CPU per unit",
        "peak memory",
        "waits",
        "setting",
    ]
    lines = []
    for case in results["cases"]:
        libraries = {library["library"]: library for library in case["libraries"] if "values" in library}
        times = ratios(case)
        parameters = ", ".join(f"{name} {value}" for name, value in case.get("parameters", {}).items())
        first_cell = f"{case['case']}, {unit(case)}" + (f" ({parameters})" if parameters else "")
        for name, kind in ranked({"cases": [case]}):
            library = libraries[name]
            cpu = library.get("cpu_seconds_per_unit")
            lines.append(
                [
                    first_cell,
                    _marked_name(name, kind),
                    spread(library["values"]),
                    spread(times[name]) if name in times else "",
                    duration(statistics.median(cpu)) if cpu else "",
                    memory(library["peak_bytes"]) if "peak_bytes" in library else "",
                    f"{statistics.median(library['wait_fraction']):.1%}" if "wait_fraction" in library else "",
                    library.get("setting", ""),
                ]
            )
            first_cell = ""
    return _folded("All measurements", table(head, lines, range(2, 7)))


def _folded(title: str, text: str) -> str:
    """A part of the page that the reader unfolds."""
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def provenance(results: Json) -> str:
    """The command, the machine and the versions."""
    name = results["workload"]
    command = re.sub(r" --json[ =]('[^']*'|\S+)", "", results["command"]) + f" --json benchmarks/results/{name}.json"
    here = results["machine"]
    packages = ", ".join(f"{package} {version}" for package, version in here["packages"].items())
    size = f"{here['memory'] / (1 << 30):.0f} GiB"
    return (
        f"`{command}`, {results['runs']} runs, commit `{here['commit']}`, on {here['cpu']}, {here['cores']} cores, "
        f"{size}, Linux {here['kernel']}. Python {here['python']}, {packages}. {results.get('note', '')}".rstrip()
    )


def section(results: Json, pictures: str) -> str:
    """A workload's part of the page."""
    name = results["workload"]
    picture = f"![{name}: pyfeed and its peers in every case]({pictures}/{name}.png)"
    parts = [provenance(results), picture, matrix(results)]
    if reasons := without_values(results):
        parts.append(_folded("Libraries without values, and why", reasons))
    return "\n\n".join([*parts, details(results)])


def parts_of(workloads: Sequence[Json], instructions_table: Path, pictures: str) -> dict[str, str]:
    parts = {results["workload"]: section(results, pictures) for results in workloads}
    parts["highlights"] = highlights(workloads)
    parts["summary"] = summary(workloads)
    if instructions_table.exists():
        parts["instructions"] = instructions.markdown(json.loads(instructions_table.read_text()))
    return parts


MARKED = re.compile(r"^<!-- begin: (\w+) -->\n(.*?)^<!-- end: (\w+) -->$", re.MULTILINE | re.DOTALL)


def fill(page: str, parts: Mapping[str, str]) -> str:
    """The page with its generated parts replaced, those without results by `NO_RESULTS`."""
    there = re.findall(r"^<!-- begin: (\w+) -->$", page, re.MULTILINE)
    for name in sorted({*there, *parts}):
        if there.count(name) != 1:
            raise ReportError(f"expected one line <!-- begin: {name} -->, found {there.count(name)}")
    for name, _, end in (match.groups() for match in MARKED.finditer(page)):
        if name != end:
            raise ReportError(f"expected <!-- end: {name} --> behind <!-- begin: {name} -->, found <!-- end: {end} -->")
    if len(MARKED.findall(page)) != len(there):
        raise ReportError(f"expected an end of each of {', '.join(there)}")
    return MARKED.sub(lambda match: _marked(match[1], parts.get(match[1], NO_RESULTS)), page)


def _marked(name: str, text: str) -> str:
    return f"<!-- begin: {name} -->\n{text}\n<!-- end: {name} -->"


# ---- Pictures ---------------------------------------------------------------------------------------

COLOURS = {PYFEED: "#1668a8", PEER: "#a9b3bd", LIMIT: "#b3261e"}


def digest(results: Json) -> str:
    """Identifies the results that a picture was drawn from: it is written into the file."""
    return "results " + hashlib.sha256(json.dumps(results["cases"], sort_keys=True).encode()).hexdigest()


def draw(results: Json, path: Path) -> None:
    """A panel a case: bars of the medians, from least to most in a line, the limit dashed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    cases = results["cases"]
    names = [(name, kind) for name, kind in ranked(results) if kind != LIMIT]
    across = 2 if len(cases) == 4 else min(3, len(cases))
    down = math.ceil(len(cases) / across)
    picture = Figure(figsize=(1.2 + 3.2 * across, down * (0.75 + 0.17 * len(names))), dpi=90, layout="constrained")
    FigureCanvasAgg(picture)
    panels = picture.subplots(down, across, squeeze=False, sharey=True)
    for at, axes in enumerate(panels.flat):
        if at < len(cases):
            _panel(axes, cases[at], names)
        else:
            axes.set_axis_off()
    legend: list[Any] = [Patch(color=COLOURS[kind], label=kind) for kind in (PYFEED, PEER)]
    if any(library["kind"] == LIMIT for case in cases for library in case["libraries"]):
        legend.append(Line2D([], [], color=COLOURS[LIMIT], lw=1, ls="--", label=LIMIT))
    picture.legend(handles=legend, loc="outside upper left", ncols=len(legend), fontsize=7, frameon=False)
    panels[0, 0].set_ylim(len(names) - 0.4, -0.6)  # the panels share it
    panels[0, 0].set_yticks(range(len(names)), [name for name, _ in names])
    for axes in panels[:, 0]:
        for label, (_, kind) in zip(axes.get_yticklabels(), names, strict=True):
            label.set(fontsize=7, weight="bold" if kind == PYFEED else "normal")
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = BytesIO()
    picture.savefig(drawn, format="png")
    info = PngInfo()
    info.add_text("Comment", digest(results))
    # A palette makes the file a third as large.
    Image.open(drawn).convert("RGB").quantize(128).save(path, format="png", optimize=True, pnginfo=info)


def _panel(axes: Any, case: Json, names: Sequence[tuple[str, str]]) -> None:
    libraries = {library["library"]: library for library in case["libraries"]}
    measured = [library for library in case["libraries"] if "values" in library]
    limits = [statistics.median(library["values"]) for library in measured if library["kind"] == LIMIT]
    shown = [max(library["values"]) for library in measured if library["kind"] != LIMIT]
    widest = max(shown, default=0) or 1
    for limit in limits:
        if limit > 2 * widest:  # bars would be too short to compare
            text = f"limit {number(limit)} →"
            axes.text(1, 0, text, transform=axes.transAxes, ha="right", va="bottom", fontsize=6.5, color=COLOURS[LIMIT])
        else:
            axes.axvline(limit, color=COLOURS[LIMIT], lw=1, ls="--", zorder=0)
            widest = max(widest, limit)
    for place, (name, kind) in enumerate(names):
        library = libraries.get(name, {})
        if "values" not in library:
            text = "failed" if "failed" in library else "not supported" if library else ""
            axes.text(0.01 * widest, place, text, va="center", fontsize=6, color="#777777", style="italic")
            continue
        values = library["values"]
        median = statistics.median(values)
        error = [[median - min(values)], [max(values) - median]]
        axes.barh(
            place, median, color=COLOURS[kind], height=0.72, xerr=error, error_kw={"lw": 0.8, "ecolor": "#333333"}
        )
        weight = "bold" if kind == PYFEED else "normal"
        label = axes.text(max(values) + 0.02 * widest, place, number(median), va="center", fontsize=6.5, weight=weight)
        label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # over the line of the limit
    axes.set_xlim(0, widest * 1.24)
    axes.tick_params(axis="x", labelsize=6.5)
    axes.tick_params(axis="y", length=0)
    axes.set_title("\n".join([*textwrap.wrap(case["case"], 40), unit(case)]), fontsize=7.5, loc="left")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


# ---- The page ---------------------------------------------------------------------------------------


def differences(page: str, new: str, workloads: Sequence[Json], pictures: Path) -> Iterator[str]:
    """The parts and pictures that do not match the results."""
    now = {match[1]: match[2] for match in MARKED.finditer(new)}
    for match in MARKED.finditer(page):
        if match[2] != now[match[1]]:
            yield f"the part {match[1]}"
    for results in workloads:
        path = pictures / f"{results['workload']}.png"
        if not path.exists() or digest(results).encode() not in path.read_bytes():
            yield f"the picture {path.name}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="report what is not up to date, and write nothing")
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
    except ReportError as error:
        print(f"report.py: {args.page}: {error}", file=sys.stderr)
        return 1
    if args.check:
        stale = list(differences(page, new, workloads, pictures))
        for what in stale:
            print(f"{args.page}: {what} does not match the results: run python benchmarks/report.py")
        return 1 if stale else 0
    args.page.write_text(new)
    if not args.no_plots:
        for results in workloads:
            draw(results, pictures / f"{results['workload']}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
