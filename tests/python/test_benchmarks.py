"""What the benchmarks say is so: how ways take turns, the arithmetic of the report, the counts of instructions."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from . import toy_ways as toys
from .support import wait_until

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(autouse=True, scope="module")
def on_path() -> Iterator[None]:
    sys.path.insert(0, str(BENCHMARKS))
    yield
    sys.path.remove(str(BENCHMARKS))


def run(script: str, *options: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *map(str, options)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )


# ---- Measuring --------------------------------------------------------------------------------------


def measured(
    makes: Mapping[str, Callable[[], Any] | dict[str, Callable[[], Any]]], runs: int = 3, **options: Any
) -> dict[str, dict[str, Any]]:
    """What is said of each way."""
    from measuring import Row, Way, measure

    ways = [Way(name, make if isinstance(make, dict) else {"": make}) for name, make in makes.items()]
    options = {"amount": 1, "unit": "units a second", **options}
    return {way["way"]: way for way in measure(Row("row", ways, **options), runs, 0.1)["ways"]}


def wait_for_the_end(folder: Path) -> list[str]:
    """Wait until no process is at work whose number is in the folder, and give their names."""
    numbers = {file.stem: int(file.read_text()) for file in folder.glob("*.pid")}
    # Those that are killed take a moment; nobody may have asked after them yet.
    wait_until(lambda: all(toys.state(pid) in (None, "Z", "X") for pid in numbers.values()))
    return sorted(numbers)


def test_ways_take_turns_while_all_others_are_stopped(tmp_path: Path) -> None:
    ways = measured({name: partial(toys.watches, tmp_path, name) for name in "abc"}, runs=4)
    # Every way has done one unit when it is made, and one to see how fast it is, which takes as long as a turn may.
    turns = [line.split() for line in (tmp_path / "turns").read_text().splitlines()]
    assert sorted(name for name, _, _ in turns[:3]) == ["a", "b", "c"]
    assert "".join(name for name, _, _ in turns[3:]) == "abc" + "abc" + "cba" + "abc" + "cba"
    assert {state for _, _, state in turns[:3]} == {"start"}
    assert {state for _, _, state in turns[3:]} <= {"R", "S"}  # its own worker goes on
    assert [way["values"] for way in ways.values()] == [[10.0] * 4] * 3
    assert wait_for_the_end(tmp_path) == ["a", "a-worker", "b", "b-worker", "c", "c-worker"]


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Those of this process, of which there seem to be two: twice the same if there is but one."""
    cores = sorted(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: [cores[0], cores[-1]])
    return {cores[0]}


def test_as_many_ways_are_started_at_a_time_as_there_are_cores(tmp_path: Path, two_cores: set[int]) -> None:
    ways = measured({"a": partial(toys.meets, tmp_path, "a", "b"), "b": partial(toys.meets, tmp_path, "b", "a")})
    assert [way["values"] for way in ways.values()] == [[10.0] * 3] * 2


def test_turns_on_one_core_are_all_on_the_first(tmp_path: Path, two_cores: set[int]) -> None:
    measured({name: partial(toys.on_cores, tmp_path, name) for name in "abcd"}, runs=2, cores=1)
    turns = [line.split(maxsplit=1) for line in (tmp_path / "turns").read_text().splitlines()]
    found = [json.loads(cores) for _, cores in turns]
    assert all(cores == [[*two_cores]] * 2 for cores in found[4:])
    assert len(found) == 16
    assert all(len(cores) == 1 for threads in found for cores in threads)  # they are told of one, wherever they start


def test_processes_of_ways_are_started_as_in_any_program() -> None:
    assert measured({"way": toys.start_method})["way"]["values"] == [1.0] * 3


def test_turns_have_as_many_units_as_fill_the_time(tmp_path: Path) -> None:
    found = measured({"ms": partial(toys.counts, tmp_path, "ms", 1)}, amount=2)["ms"]
    # A quarter of the time, 0.1 s, is enough to see how fast it is; then there are eight turns in each of three runs.
    assert (tmp_path / "turns").read_text().split()[1::2] == ["1", "1", "4", "16", "64"] + ["12"] * 24
    assert found["values"] == pytest.approx([2000.0] * 3)


def test_those_that_may_be_first_take_turns_in_quick_alternation(tmp_path: Path) -> None:
    takes = {"fast": 20, "near": 30, "slow": 45}  # ms a unit
    found = measured({name: partial(toys.counts, tmp_path, name, ms) for name, ms in takes.items()}, runs=2)
    words = (tmp_path / "turns").read_text().split()
    turns = list(zip(words[::2], words[1::2], strict=True))[-18:]
    # In 0.1 s the first has five turns, the second three; the third, half as fast as the first, has them at once.
    fast, near, slow = ("fast", "1"), ("near", "1"), ("slow", "2")
    run = [fast, near, slow] + [near, fast] + [fast, near] + [fast] * 2
    opposite = [slow, near, fast] + [fast, near] + [near, fast] + [fast] * 2
    assert turns == run + opposite
    assert [way["values"] for way in found.values()] == [pytest.approx([1000 / ms] * 2) for ms in takes.values()]


def test_the_fastest_setting_is_measured() -> None:
    settings = {f"{ms} ms": partial(toys.takes, ms / 1000) for ms in (30, 10, 20)}
    way = measured({"way": {**settings, "none": toys.not_offered}})["way"]
    assert (way["setting"], way["values"]) == ("10 ms", pytest.approx([100.0] * 3))


def test_a_setting_that_is_near_the_fastest_is_tried_again() -> None:
    settings: dict[str, Callable[[], Any]] = {
        "steady": partial(toys.takes, 0.05),
        "unlucky at first": partial(toys.hastens, 0.08, 0.04),
    }
    way = measured({"way": settings})["way"]
    assert (way["setting"], way["values"]) == ("unlucky at first", pytest.approx([25.0] * 3))


IN_THE_BACKGROUND = """
from measuring.programs import Program, in_turns

def told():
    script = 'import signal, time; from tasks.interruption import say; '
    script += 'say("heeds", signal.getsignal(signal.SIGINT) is signal.default_int_handler)'
    with Program(script) as running:
        yield
        return {"heeds": running.heard("heeds")[1] == ["True"]}

print(dict(in_turns({"way": told}, 1)))
"""


def test_programs_heed_ctrl_c_also_of_a_job_in_the_background() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_THE_BACKGROUND],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(BENCHMARKS), *sys.path])},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("{'way': {'heeds': [True]}}\n", "")


def test_settings_that_fail_are_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from measuring import results

    settings: dict[str, Callable[[], Any]] = {
        "none": toys.not_offered,
        "not made": partial(toys.not_made, tmp_path),
        "raises": partial(toys.raises, tmp_path, 0),
        "works": partial(toys.takes, 0.5),
    }
    way = measured({"way": settings})["way"]
    assert (way["setting"], way["values"]) == ("works", [2.0] * 3)
    expected = {"not made": "KeyError: 'no such thing\\nand a second line'", "raises": "ValueError: no more of it"}
    assert way["failed settings"] == expected
    said = results._said(way).splitlines()
    assert said[0].endswith("  works")
    assert said[1:] == [f"    {setting} failed: {reason}" for setting, reason in expected.items()]


def test_what_a_way_says_of_waiting_is_kept() -> None:
    ways = measured({"says": partial(toys.takes, 0.5, 0.125), "does not": partial(toys.takes, 0.5)})
    assert ways["says"]["waited"] == [0.25] * 3
    assert "waited" not in ways["does not"]


@pytest.mark.parametrize("stays", [True, False])
def test_processor_time_of_workers_counts(tmp_path: Path, stays: bool) -> None:
    way = measured({"burns": partial(toys.burns, tmp_path, "burns", stays)}, runs=2)["burns"]
    assert len(way["cpu seconds a unit"]) == 2
    assert min(way["cpu seconds a unit"]) > toys.BURNT - 0.05  # the system counts in hundredths
    if stays:  # from the unit that it is made with on, each has left one
        assert way["peak bytes"] > 3 * (64 << 20)


def test_ways_without_figures_say_why_and_leave_nothing(tmp_path: Path) -> None:
    ways = measured(
        {
            "not offered": toys.not_offered,
            "not made": partial(toys.not_made, tmp_path),
            "raises": partial(toys.raises, tmp_path, 3),
            "dies": partial(toys.dies, tmp_path, 3),
            "works": partial(toys.takes, 0.5),
        }
    )
    assert ways["not offered"] == {"way": "not offered", "kind": "peer", "not offered": "it has no queue"}
    assert ways["not made"]["failed"] == "KeyError: 'no such thing\\nand a second line'"
    assert ways["raises"]["failed"] == "ValueError: no more of it"
    assert ways["dies"]["failed"] == "its process ended with status 3"
    assert ways["works"]["values"] == [2.0] * 3
    assert all("values" not in way for name, way in ways.items() if name != "works")
    assert wait_for_the_end(tmp_path) == ["dies", "not_made", "raises"]


def test_ctrl_c_ends_it_and_all_processes(tmp_path: Path) -> None:
    ways = {"interrupts": partial(toys.interrupts, tmp_path), "waits": partial(toys.watches, tmp_path, "waits")}
    with pytest.raises(KeyboardInterrupt):
        measured(ways)
    assert wait_for_the_end(tmp_path) == ["interrupts", "waits", "waits-worker"]


def test_ctrl_c_ends_ways_that_are_being_started(tmp_path: Path, two_cores: set[int]) -> None:
    ways = {name: partial(toys.hangs, tmp_path, name) for name in ("hangs", "is not reached")}
    with pytest.raises(KeyboardInterrupt):
        measured({"strikes": partial(toys.strikes, tmp_path, "hangs"), **ways})
    assert set(wait_for_the_end(tmp_path)) >= {"hangs"}


# ---- Results ----------------------------------------------------------------------------------------


def results(path: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Any:
    from measuring import Results
    from measuring import options as parser

    monkeypatch.setattr(sys, "argv", ["zoo.py", "--json", str(path), *options])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    return Results("zoo", parser("").parse_args())


def test_missing_keeps_the_rows_of_the_same_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "build" / "zoo.json"
    first = results(path, monkeypatch, "--runs", "2")
    first.add(row(way("ours", [1, 2]), name="lions"))
    second = results(path, monkeypatch, "--missing", "--runs", "2")
    assert second.has("lions")
    assert not second.has("lions", "tigers")
    second.add(row(way("ours", [3, 4]), name="tigers"))
    found = json.loads(path.read_text())
    assert [kept["row"] for kept in found["rows"]] == ["lions", "tigers"]
    assert found["command"] == "python benchmarks/zoo.py --runs 2"
    assert [file.name for file in path.parent.iterdir()] == ["zoo.json"]
    # Without --missing, all is measured again.
    again = results(path, monkeypatch, "--runs", "2")
    assert not again.has("lions")


def test_missing_keeps_nothing_of_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "zoo.json"
    assert not results(path, monkeypatch, "--missing").has("lions")
    results(path, monkeypatch).add(row(way("ours", [1, 2]), name="lions"))
    with pytest.raises(SystemExit, match=r"zoo.json: expected command python .* --runs 2, found python .*zoo.py$"):
        results(path, monkeypatch, "--missing", "--runs", "2")
    kept = json.loads(path.read_text())
    kept["machine"]["commit"] = "another"
    path.write_text(json.dumps(kept))
    with pytest.raises(SystemExit, match="expected machine"):
        results(path, monkeypatch, "--missing")


def test_a_peer_that_has_lost_its_figures_is_named(tmp_path: Path) -> None:
    def keep(folder: str, rows: dict[str, dict[str, dict[str, Any]]]) -> Path:
        path = tmp_path / folder
        path.mkdir()
        found = [
            {"row": row, "ways": [{"way": way, **said} for way, said in ways.items()]} for row, ways in rows.items()
        ]
        (path / "files.json").write_text(json.dumps({"workload": "files", "rows": found}))
        return path

    ran, failed = {"values": [1.0]}, {"failed": "No module named 'b'"}
    kept = keep("kept", {"tar": {"a": ran, "b": ran, "c": failed, "d": ran}, "npy": {"a": ran}})
    found = keep("found", {"tar": {"a": ran, "b": failed, "c": failed}})
    checked = run("complete.py", found, "--kept", kept, "--workloads", "files")
    assert checked.returncode == 1
    assert checked.stdout.splitlines()[:-1] == [
        "files, tar, b: No module named 'b'",
        "files, tar, d: the way was not run",
        "files, npy: the row was not run",
    ]
    assert run("complete.py", kept, "--kept", kept, "--workloads", "files").returncode == 0


DISTRIBUTIONS = {  # of what the modules of benchmarks/ways import
    "absl": "grain",
    "array_record": "grain",
    "datasets": "datasets",
    "grain": "grain",
    "mlx": "mlx-data",
    "numpy": "numpy",
    "paddle": "paddlepaddle",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "ray": "ray",
    "spdl.io": "spdl-io",
    "spdl.pipeline": "spdl-core",
    "streaming": "mosaicml-streaming",
    "tensorflow": "tensorflow-cpu",
    "tfrecord": "tfrecord",
    "torch": "torch",
    "torchdata": "torchdata",
    "webdataset": "webdataset",
}


def test_every_package_that_a_way_imports_is_required() -> None:
    """A package that is missing from requirements-peers.txt fails in a new environment only."""
    lines = (ROOT / "requirements-peers.txt").read_text().splitlines()
    required = {re.split(r"[\[=]", line)[0] for line in lines if not line.startswith("#")}
    imports = {
        found
        for way in (BENCHMARKS / "ways").glob("*.py")
        for found in re.findall(r"^ +(?:from|import) (\w+(?:\.\w+)?)", way.read_text(), re.MULTILINE)
    }
    modules = {name if name in DISTRIBUTIONS else name.partition(".")[0] for name in imports}
    others = modules - {"pyfeed", "tasks", "measuring", "ways"} - sys.stdlib_module_names
    assert others <= DISTRIBUTIONS.keys()
    assert {DISTRIBUTIONS[name] for name in others} <= required


# ---- The report -------------------------------------------------------------------------------------


def way(name: str, values: Any = None, kind: str = "peer", **more: Any) -> dict[str, Any]:
    return {"way": name, "kind": kind, **({} if values is None else {"values": values}), **more}


def row(*ways: dict[str, Any], name: str = "row", better: str = "higher") -> dict[str, Any]:
    return {"row": name, "unit": "GB/s" if better == "higher" else "ms", "better": better, "cores": 0, "ways": [*ways]}


def workload(*rows: dict[str, Any], name: str = "batches") -> dict[str, Any]:
    machine = {
        **{
            "cpu": "A CPU",
            "cores": 2,
            "memory": 8 << 30,
            "kernel": "6.1",
            "python": "3.11.2",
            "commit": "0123456789ab",
        },
        "packages": {"pyfeed": "0.1.0"},
    }
    command = f"python benchmarks/{name}.py --json there.json --ways all"
    return {"workload": name, "command": command, "machine": machine, "runs": 3, "rows": [*rows]}


def test_ratios_are_those_of_the_same_run() -> None:
    import report

    rates = row(way("ours", [4, 6, 10], "ours"), way("a", [1, 3, 2]), way("limit", [8, 12, 20], "limit"))
    assert report.ratios(rates) == {"a": [4, 2, 5], "limit": [0.5, 0.5, 0.5]}
    times = row(way("ours", [4, 6, 10], "ours"), way("a", [8, 3, 20]), better="lower")
    assert report.ratios(times) == {"a": [2, 0.5, 2]}
    counts = row(way("ours", [0, 0], "ours"), way("a", [0, 2]), better="lower")
    assert report.ratios(counts) == {"a": [1, float("inf")]}
    two = row(way("worse", [1, 1], "ours"), way("better", [2, 4], "ours"), way("a", [1, 1]))
    assert report.ratios(two) == {"worse": [2, 4], "a": [2, 4]}
    assert report.ratios(row(way("ours", kind="ours", failed="it fell"), way("a", [1]))) == {}


def test_ours_is_compared_with_the_nearest_limit() -> None:
    from measuring.results import compare

    limits = way("near", [6, 5], "limit"), way("far", [9, 8], "limit")
    found = compare(row(way("ours", [3, 4], "ours"), *limits))
    assert (found["limit"], found["x limit"]) == ("near", [0.65, 0.5, 0.8])
    found = compare(row(way("ours", [12, 10], "ours"), *limits, better="lower"))
    assert (found["limit"], found["x limit"]) == ("far", [0.775, 0.75, 0.8])


@pytest.mark.parametrize(
    ("ours", "peers", "said"),
    [
        ([4, 5, 6], [[1, 2, 3], [3, 4, 5]], "yes"),
        ([4, 5, 6], [[3, 3, 3], [1, 6, 1]], "within the spread"),  # one that is not the best was ahead once
        ([4, 5, 6], [[4, 4, 4]], "level"),
        ([4, 5, 6], [[5, 6, 7], [1, 1, 1]], "no"),
        ([4, 5, 6], [], "alone"),
        (None, [[1, 1, 1]], "no"),
    ],
)
def test_first_is_who_is_ahead_of_all_in_every_run(ours: list[float] | None, peers: list[Any], said: str) -> None:
    import report

    mine = way("ours", ours, "ours") if ours else way("ours", kind="ours", failed="it fell")
    assert report.first(row(mine, *(way(f"peer {n}", values) for n, values in enumerate(peers)))) == said


def test_who_is_as_fast_as_the_limit_can_be_no_faster() -> None:
    import report

    ours, limit = way("ours", [4, 5, 6], "ours"), way("limit", [5, 5, 7], "limit")
    assert report.first(row(ours, way("peer", [5, 6, 7]), limit)) == "at the limit"
    assert report.first(row(ours, way("peer", [3, 4, 5]), limit)) == "yes"
    assert report.first(row(ours, way("peer", [5, 6, 7]), way("limit", [5, 6, 7], "limit"))) == "no"
    said = report.summary([workload(row(ours, way("peer", [5, 6, 7]), limit))]).splitlines()[0]
    assert said.endswith(
        "in 0 of 1 rows that a peer has figures in. In 1 more ours was as fast as the limit, which nobody passes."
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0, "0"), (0.001234, "0.00123"), (0.5, "0.500"), (1, "1.00"), (12.345, "12.3"), (99.96, "100.0")),
        *((123.4, "123"), (1234.5, "1,230"), (1234567, "1,230,000"), (float("inf"), "∞")),
    ],
)
def test_figures_have_three_digits(value: float, text: str) -> None:
    import report

    assert report.figure(value) == text


def test_the_tables_have_every_way_and_why_others_have_no_figures() -> None:
    import report

    found = workload(
        row(
            way("slow", [1, 2, 1])
            | {"cpu seconds a unit": [0.5, 0.25, 1], "peak bytes": 3 << 20, "setting": "2 workers"}
            | {"failed settings": {"4 workers": "KeyError: 'x'"}},
            way("none") | {"not offered": "has | no queue"},
            way("fails", failed="ValueError: no more") | {"failed settings": {}},
            way("ours", [4, 4, 8], "ours", waited=[0.5, 0.25, 0.5]),
            way("copy", [8, 8, 8], "limit"),
            name="small",
        ),
        row(
            way("slow", [2, 1, 2]), way("fails", [1, 1, 1]), way("ours", [1, 1, 1], "ours"), name="big", better="lower"
        ),
    )
    assert report.matrix(found).splitlines() == [
        "| way | small<br>GB/s | big<br>ms, less is better |",
        "| --- | ---: | ---: |",
        "| **ours** | **4.00**, waits 50% | **1.00** |",
        "| fails | failed | 1.00 (x 1.00) |",
        "| slow | 1.00 (x 4.00) | 2.00 (x 2.00) |",
        "| copy (limit) | 8.00 (x 0.500) |  |",
    ]
    assert report.absent(found).splitlines() == [
        *("Not offered:", "", "- none (small): has | no queue", ""),
        *("Failed:", "", "- fails (small): ValueError: no more", "- slow with 4 workers (small): KeyError: 'x'"),
    ]
    assert report.summary([found]).splitlines() == [
        "First by more than the spread in 1 of 2 rows that a peer has figures in.",
        "",
        "| workload | row | ours | best peer | x best peer | first | x limit |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| batches | small | **4.00** GB/s, ours | 1.00, slow | **4.00** (2.00 to 8.00) | yes | 0.500 |",
        "| batches | big | **1.00** ms, ours | 1.00, fails | **1.00** (1.00 to 1.00) | level |  |",
    ]
    details = report.details(found).splitlines()
    assert "|  | slow | 1.00 (1.00 to 2.00) | 4.00 (2.00 to 8.00) | 500 ms | 3 MiB |  | 2 workers |" in details
    assert "| small, GB/s | **ours** | 4.00 (4.00 to 8.00) |  |  |  | 50.0% |  |" in details
    made = report.made(found)
    assert "`python benchmarks/batches.py --ways all --json benchmarks/results/batches.json`, 3 runs" in made
    assert "commit `0123456789ab`, on A CPU, 2 cores, 8 GiB" in made
    assert "pyfeed 0.1.0" in made
    assert report.made({**found, "note": "Once more."}) == f"{made} Once more."


def test_a_row_that_ours_fails_in_is_told() -> None:
    import report

    found = workload(row(way("a", [1, 1, 1]), way("ours", kind="ours", failed="it fell")))
    assert "| batches | row | **failed** |  |  | no |  |" in report.summary([found])
    assert "in 0 of 1 rows" in report.summary([found])


def test_wide_tables_are_split_evenly() -> None:
    import report

    found = workload(*(row(way("ours", [1], "ours"), name=f"row {n}") for n in range(7)))
    heads = [line for line in report.matrix(found).splitlines() if line.startswith("| way")]
    assert [head.count("<br>") for head in heads] == [4, 3]


def test_workloads_have_their_order_and_other_files_are_left_alone(tmp_path: Path) -> None:
    import report

    for name in ("zoo", "files", "batches", "training_loop"):
        (tmp_path / f"{name}.json").write_text(json.dumps(workload(name=name)))
    (tmp_path / "program_overhead.json").write_text('{"operators": []}')
    assert [found["workload"] for found in report.load(tmp_path)] == ["batches", "files", "training_loop", "zoo"]
    (tmp_path / "again.json").write_text(json.dumps(workload(name="files")))
    with pytest.raises(report.Wrong, match=r"files.json: expected one file of a workload, found another of files"):
        report.load(tmp_path)


MARKS = "# Title\n\n<!-- begin: a -->\nold\n<!-- end: a -->\nwords\n<!-- begin: b -->\n<!-- end: b -->\n"


def test_only_what_is_between_the_markers_is_replaced() -> None:
    import report

    page = report.fill(MARKS, {"a": r"new \1"})
    assert page == (
        "# Title\n\n<!-- begin: a -->\nnew \\1\n<!-- end: a -->\nwords\n"
        "<!-- begin: b -->\nNo figures are kept.\n<!-- end: b -->\n"
    )
    assert report.fill(page, {"a": r"new \1"}) == page


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (MARKS.replace(": b -->", ": c -->"), "expected one line <!-- begin: b -->, found 0"),
        (MARKS + MARKS, "expected one line <!-- begin: a -->, found 2"),
        (MARKS.replace("end: a", "end: b"), "expected <!-- end: a --> behind <!-- begin: a -->, found <!-- end: b -->"),
        (MARKS.replace("<!-- end: b -->", ""), "expected an end of each of a, b"),
    ],
)
def test_markers_that_are_wrong(page: str, message: str) -> None:
    import report

    with pytest.raises(report.Wrong, match=f"^{re.escape(message)}$"):
        report.fill(page, {"a": "x", "b": "y"})


def test_the_page_is_what_the_results_give() -> None:
    done = run("report.py", "--check")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_check_finds_what_is_not_up_to_date(tmp_path: Path) -> None:
    results, page, kept = tmp_path / "results", tmp_path / "page.md", tmp_path / "kept.json"
    results.mkdir()
    found = workload(row(way("ours", [2, 2, 2], "ours"), way("a", [1, 1, 1])))
    (results / "batches.json").write_text(json.dumps(found))
    kept.write_text(json.dumps({"versions": {"machine": "x86_64"}, "operations": {"push": 1234.5}}))
    names = ("summary", "batches", "instructions")
    page.write_text("".join(f"<!-- begin: {name} -->\n<!-- end: {name} -->\n" for name in names))
    options = ("--results", results, "--page", page, "--instructions", kept)

    def stale() -> list[str]:
        done = run("report.py", "--check", *options)
        lines = done.stdout.splitlines()
        assert done.returncode == (1 if lines else 0), done.stderr
        prefix, suffix = f"{page}: the ", " is not what the results give: run python benchmarks/report.py"
        assert all(line.startswith(prefix) and line.endswith(suffix) for line in lines)
        return [line.removeprefix(prefix).removesuffix(suffix) for line in lines]

    picture = "picture batches.png"
    assert stale() == ["part summary", "part batches", "part instructions", picture]
    # Without what only pictures need.
    (tmp_path / "numpy.py").write_text("raise ImportError('numpy')")
    (tmp_path / "matplotlib.py").write_text("raise ImportError('matplotlib')")
    done = run("report.py", "--no-plots", *options, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert stale() == [picture]
    assert "| push of a tuple of 64 bytes, copied | 1,234 |" in page.read_text()
    (tmp_path / "page").mkdir()
    import report

    (tmp_path / "page" / "batches.png").write_bytes(b"\x89PNG" + report.digest(found).encode())
    assert stale() == []
    found["rows"][0]["ways"][0]["values"][1] = 3
    (results / "batches.json").write_text(json.dumps(found))
    assert stale() == ["part batches", picture] or stale() == ["part summary", "part batches", picture]
    page.write_text("no markers")
    assert "page.md: expected one line <!-- begin: batches -->, found 0" in run("report.py", "--check", *options).stderr


# ---- Instructions -----------------------------------------------------------------------------------


def counts(versions: str = "1.26", **operations: float) -> Any:
    return {"versions": {"Go": versions}, "operations": operations}


def test_a_rise_of_more_than_five_percent_is_wrong() -> None:
    import instructions

    kept = counts(push=1000, pop=1000, slot=1000)
    compared = instructions.compare(kept, counts(push=1060, pop=1040, slot=960))
    assert compared == (["push has risen by 6.0%: from 1000 to 1060"], [])


def test_operations_that_come_go_or_become_cheaper_are_named() -> None:
    import instructions

    compared = instructions.compare(counts(push=1000, pop=1000), counts(push=900, slot=500))
    assert compared.wrong == ["pop is no longer counted"]
    assert compared.told == ["push has fallen by 10.0%: --update keeps that", "slot is new: --update keeps it"]


def test_it_is_said_when_versions_differ() -> None:
    import instructions

    compared = instructions.compare(counts(push=1000), counts("1.27", push=1100))
    assert compared.wrong == ["push has risen by 10.0%: from 1000 to 1100"]
    assert compared.told == ["this compares across versions: Go was 1.26, is 1.27"]


def test_the_kept_table_is_of_the_operations_there_are() -> None:
    import instructions

    kept = json.loads(instructions.KEPT.read_text())
    assert list(kept["operations"]) == list(instructions.OPERATIONS)
    assert all(count > 0 for count in kept["operations"].values())
    main = (BENCHMARKS / "instructions" / "main.cpp").read_text()
    assert sorted(instructions.OPERATIONS) == sorted(set(re.findall(r'operation == "(\w+)"', main)))


def test_without_valgrind_nothing_is_counted(tmp_path: Path) -> None:
    done = run("instructions.py", "--kept", tmp_path / "kept.json", "--update", PATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (2, "instructions.py: there is no valgrind on PATH\n")
    assert not (tmp_path / "kept.json").exists()


def test_a_tool_that_fails_is_told_with_what_it_said(tmp_path: Path) -> None:
    for name, script in (("valgrind", "echo valgrind-3.19.0"), ("cmake", "echo no callgrind.h; exit 3")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    done = run("instructions.py", "--prefix", tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert (done.returncode, done.stderr) == (
        2,
        "instructions.py: cmake ended with status 3:\nno callgrind.h\n",
    )


def test_the_library_says_what_it_was_built_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import instructions

    import pyfeed

    (tmp_path / "valgrind").write_text("#!/bin/sh\necho valgrind-3.19.0\n")
    (tmp_path / "valgrind").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    found = instructions.versions(Path(pyfeed.get_library_dir(), "libpyfeed.so.0"))
    assert re.fullmatch(r"1\.\d+(\.\d+)?(rc\d+)?", found["Go"])
    assert found["valgrind"] == "3.19.0"
    assert {"GCC", "clang"} & set(found)
