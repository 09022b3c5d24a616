"""The benchmarks: how libraries take turns, the arithmetic of the report, the counts of instructions."""

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

from . import toy_libraries as toys
from .support import wait_for_ends

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
    """The measurements of each library."""
    from harness import Case, Library, measure

    libraries = [Library(name, make if isinstance(make, dict) else {"": make}) for name, make in makes.items()]
    options = {"amount": 1, "unit": "units a second", **options}
    found = measure(Case("case", libraries, **options), runs, 0.1)["libraries"]
    return {library["library"]: library for library in found}


def wait_for_the_end(folder: Path) -> list[str]:
    """Wait until no process is at work whose number is in the folder, and give their names."""
    numbers = {file.stem: int(file.read_text()) for file in folder.glob("*.pid")}
    # Those that are killed take a moment; nobody may have asked after them yet.
    wait_for_ends(numbers.values())
    return sorted(numbers)


def test_libraries_take_turns_while_all_others_are_stopped(tmp_path: Path) -> None:
    libraries = measured({name: partial(toys.watches, tmp_path, name) for name in "abc"}, runs=4)
    # Every library has done one unit when it is made, and one to see how fast it is, which takes as long as a turn may.
    turns = [line.split() for line in (tmp_path / "turns").read_text().splitlines()]
    assert sorted(name for name, _, _ in turns[:3]) == ["a", "b", "c"]
    assert "".join(name for name, _, _ in turns[3:]) == "abc" + "abc" + "cba" + "abc" + "cba"
    assert {state for _, _, state in turns[:3]} == {"start"}
    assert {state for _, _, state in turns[3:]} <= {"R", "S"}  # its own worker goes on
    assert [library["values"] for library in libraries.values()] == [[10.0] * 4] * 3
    assert wait_for_the_end(tmp_path) == ["a", "a-worker", "b", "b-worker", "c", "c-worker"]


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Those of this process, of which there seem to be two: twice the same if there is but one."""
    cores = sorted(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: [cores[0], cores[-1]])
    return {cores[0]}


def test_as_many_libraries_are_started_at_a_time_as_there_are_cores(tmp_path: Path, two_cores: set[int]) -> None:
    libraries = measured({"a": partial(toys.meets, tmp_path, "a", "b"), "b": partial(toys.meets, tmp_path, "b", "a")})
    assert [library["values"] for library in libraries.values()] == [[10.0] * 3] * 2


def test_turns_on_one_core_are_all_on_the_first(tmp_path: Path, two_cores: set[int]) -> None:
    measured({name: partial(toys.on_cores, tmp_path, name) for name in "abcd"}, runs=2, cores=1)
    turns = [line.split(maxsplit=1) for line in (tmp_path / "turns").read_text().splitlines()]
    found = [json.loads(cores) for _, cores in turns]
    assert all(cores == [[*two_cores]] * 2 for cores in found[4:])
    assert len(found) == 16
    assert all(len(cores) == 1 for threads in found for cores in threads)  # they are told of one, wherever they start


def test_processes_of_libraries_are_started_as_in_any_program() -> None:
    assert measured({"library": toys.start_method})["library"]["values"] == [1.0] * 3


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
    assert [library["values"] for library in found.values()] == [
        pytest.approx([1000 / ms] * 2) for ms in takes.values()
    ]


def test_the_fastest_setting_is_measured() -> None:
    settings = {f"{ms} ms": partial(toys.takes, ms / 1000) for ms in (30, 10, 20)}
    library = measured({"library": {**settings, "none": toys.not_supported}})["library"]
    assert (library["setting"], library["values"]) == ("10 ms", pytest.approx([100.0] * 3))


def test_a_setting_that_is_near_the_fastest_is_tried_again() -> None:
    settings: dict[str, Callable[[], Any]] = {
        "steady": partial(toys.takes, 0.05),
        "unlucky at first": partial(toys.hastens, 0.08, 0.04),
    }
    library = measured({"library": settings})["library"]
    assert (library["setting"], library["values"]) == ("unlucky at first", pytest.approx([25.0] * 3))


IN_THE_BACKGROUND = """
from harness.programs import Program, interleave

def handler():
    script = 'import signal, time; from workloads.interruption import emit; '
    script += 'emit("handler", signal.getsignal(signal.SIGINT) is signal.default_int_handler)'
    with Program(script) as running:
        yield
        return {"default": running.wait_for("handler")[1] == ["True"]}

print(dict(interleave({"library": handler}, 1)))
"""


def test_programs_handle_ctrl_c_also_in_a_background_job() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_THE_BACKGROUND],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(BENCHMARKS), *sys.path])},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("{'library': {'default': [True]}}\n", "")


def test_settings_that_fail_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from harness import results

    settings: dict[str, Callable[[], Any]] = {
        "none": toys.not_supported,
        "not made": partial(toys.not_made, tmp_path),
        "raises": partial(toys.raises, tmp_path, 0),
        "works": partial(toys.takes, 0.5),
    }
    library = measured({"library": settings})["library"]
    assert (library["setting"], library["values"]) == ("works", [2.0] * 3)
    expected = {"not made": "KeyError: 'no such thing\\nand a second line'", "raises": "ValueError: no more of it"}
    assert library["failed_settings"] == expected
    lines = results._line(library).splitlines()
    assert lines[0].endswith("  works")
    assert lines[1:] == [f"    {setting} failed: {reason}" for setting, reason in expected.items()]


def test_the_share_of_waiting_is_kept() -> None:
    libraries = measured({"measured": partial(toys.takes, 0.5, 0.125), "not": partial(toys.takes, 0.5)})
    assert libraries["measured"]["wait_fraction"] == [0.25] * 3
    assert "wait_fraction" not in libraries["not"]


@pytest.mark.parametrize("stays", [True, False])
def test_processor_time_of_workers_counts(tmp_path: Path, stays: bool) -> None:
    library = measured({"burns": partial(toys.burns, tmp_path, "burns", stays)}, runs=2)["burns"]
    assert len(library["cpu_seconds_per_unit"]) == 2
    assert min(library["cpu_seconds_per_unit"]) > toys.BURNT - 0.05  # the system counts in hundredths
    if stays:  # from the unit that it is made with on, each has left one
        assert library["peak_bytes"] > 3 * (64 << 20)


def test_libraries_without_values_have_a_reason_and_leave_no_processes(tmp_path: Path) -> None:
    libraries = measured(
        {
            "not supported": toys.not_supported,
            "not made": partial(toys.not_made, tmp_path),
            "raises": partial(toys.raises, tmp_path, 3),
            "dies": partial(toys.dies, tmp_path, 3),
            "works": partial(toys.takes, 0.5),
        }
    )
    assert libraries["not supported"] == {
        "library": "not supported",
        "kind": "peer",
        "not_supported": "it has no queue",
    }
    assert libraries["not made"]["failed"] == "KeyError: 'no such thing\\nand a second line'"
    assert libraries["raises"]["failed"] == "ValueError: no more of it"
    assert libraries["dies"]["failed"] == "its process ended with status 3"
    assert libraries["works"]["values"] == [2.0] * 3
    assert all("values" not in library for name, library in libraries.items() if name != "works")
    assert wait_for_the_end(tmp_path) == ["dies", "not_made", "raises"]


def test_ctrl_c_ends_it_and_all_processes(tmp_path: Path) -> None:
    libraries = {"interrupts": partial(toys.interrupts, tmp_path), "waits": partial(toys.watches, tmp_path, "waits")}
    with pytest.raises(KeyboardInterrupt):
        measured(libraries)
    assert wait_for_the_end(tmp_path) == ["interrupts", "waits", "waits-worker"]


def test_ctrl_c_ends_libraries_that_are_being_started(tmp_path: Path, two_cores: set[int]) -> None:
    libraries = {name: partial(toys.hangs, tmp_path, name) for name in ("hangs", "is not reached")}
    with pytest.raises(KeyboardInterrupt):
        measured({"strikes": partial(toys.strikes, tmp_path, "hangs"), **libraries})
    assert set(wait_for_the_end(tmp_path)) >= {"hangs"}


# ---- Results ----------------------------------------------------------------------------------------


def results(path: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Any:
    from harness import Results
    from harness import options as parser

    monkeypatch.setattr(sys, "argv", ["zoo.py", "--json", str(path), *options])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    return Results("zoo", parser("").parse_args())


def test_missing_keeps_the_cases_of_the_same_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "build" / "zoo.json"
    first = results(path, monkeypatch, "--runs", "2")
    first.add(case(library("pyfeed", [1, 2]), name="lions"))
    second = results(path, monkeypatch, "--missing", "--runs", "2")
    assert second.has("lions")
    assert not second.has("lions", "tigers")
    second.add(case(library("pyfeed", [3, 4]), name="tigers"))
    found = json.loads(path.read_text())
    assert [kept["case"] for kept in found["cases"]] == ["lions", "tigers"]
    assert found["command"] == "python benchmarks/zoo.py --runs 2"
    assert [file.name for file in path.parent.iterdir()] == ["zoo.json"]
    # Without --missing, all is measured again.
    again = results(path, monkeypatch, "--runs", "2")
    assert not again.has("lions")


def test_missing_keeps_nothing_of_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "zoo.json"
    assert not results(path, monkeypatch, "--missing").has("lions")
    results(path, monkeypatch).add(case(library("pyfeed", [1, 2]), name="lions"))
    with pytest.raises(SystemExit, match=r"zoo.json: expected command python .* --runs 2, found python .*zoo.py$"):
        results(path, monkeypatch, "--missing", "--runs", "2")
    kept = json.loads(path.read_text())
    kept["machine"]["commit"] = "another"
    path.write_text(json.dumps(kept))
    with pytest.raises(SystemExit, match="expected machine"):
        results(path, monkeypatch, "--missing")


def test_a_peer_that_has_lost_its_values_is_named(tmp_path: Path) -> None:
    def keep(folder: str, cases: dict[str, dict[str, dict[str, Any]]]) -> Path:
        path = tmp_path / folder
        path.mkdir()
        found = [
            {"case": case, "libraries": [{"library": name, **values} for name, values in libraries.items()]}
            for case, libraries in cases.items()
        ]
        (path / "files.json").write_text(json.dumps({"workload": "files", "cases": found}))
        return path

    ran, failed = {"values": [1.0]}, {"failed": "No module named 'b'"}
    kept = keep("kept", {"tar": {"a": ran, "b": ran, "c": failed, "d": ran}, "npy": {"a": ran}})
    found = keep("found", {"tar": {"a": ran, "b": failed, "c": failed}})
    checked = run("complete.py", found, "--kept", kept, "--workloads", "files")
    assert checked.returncode == 1
    assert checked.stdout.splitlines()[:-1] == [
        "files, tar, b: No module named 'b'",
        "files, tar, d: the library was not run",
        "files, npy: the case was not run",
    ]
    assert run("complete.py", kept, "--kept", kept, "--workloads", "files").returncode == 0


DISTRIBUTIONS = {  # of the modules that benchmarks/libraries imports
    "absl": "grain",
    "array_record": "grain",
    "datasets": "datasets",
    "duckdb": "duckdb",
    "grain": "grain",
    "litdata": "litdata",
    "mlx": "mlx-data",
    "numpy": "numpy",
    "nvidia": "nvidia-dali-cuda120",
    "orjson": "orjson",
    "paddle": "paddlepaddle",
    "pandas": "pandas",
    "polars": "polars",
    "pyarrow": "pyarrow",
    "ray": "ray",
    "spdl.io": "spdl-io",
    "spdl.pipeline": "spdl-core",
    "streaming": "mosaicml-streaming",
    "tensorflow": "tensorflow-cpu",
    "tensorstore": "tensorstore",
    "tfrecord": "tfrecord",
    "torch": "torch",
    "torchdata": "torchdata",
    "turboloader": "turboloader",
    "webdataset": "webdataset",
}


def test_every_package_that_a_library_imports_is_required() -> None:
    """A package that is missing from requirements-peers.txt fails in a new environment only."""
    lines = (ROOT / "requirements-peers.txt").read_text().splitlines()
    required = {re.split(r"[\[=]", line)[0] for line in lines if not line.startswith("#")}
    imports = {
        found
        for module in (BENCHMARKS / "libraries").glob("*.py")
        for found in re.findall(r"^ +(?:from|import) (\w+(?:\.\w+)?)", module.read_text(), re.MULTILINE)
    }
    modules = {name if name in DISTRIBUTIONS else name.partition(".")[0] for name in imports}
    others = modules - {"pyfeed", "workloads", "harness", "libraries"} - sys.stdlib_module_names
    assert others <= DISTRIBUTIONS.keys()
    assert {DISTRIBUTIONS[name] for name in others} <= required


# ---- Files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [8, 50_000])  # all rows in one call, and two batches in each call
def test_shuffled_rows_are_all_rows_once_in_another_order(size: int) -> None:
    import numpy as np
    from workloads.files import shuffled_rows

    rows = np.repeat(np.arange(50, dtype=np.uint8)[:, None], size, axis=1)
    batches = [batch for (batch,) in shuffled_rows(rows, 8)]
    assert [len(batch) for batch in batches] == [8] * 6 + [2]
    found = np.concatenate(batches)
    assert (found == found[:, :1]).all()
    assert sorted(found[:, 0].tolist()) == list(range(50))
    assert found[:, 0].tolist() != list(range(50))


def _table(folder: Path, dtype: str) -> Any:
    from workloads.files import make

    return make(folder, f"json lines {dtype}", "jsonl", 400, (), dtype, 100)(1)


@pytest.mark.parametrize("dtype", ["str", "int32"])
def test_the_rows_of_json_lines_arrive_whole(tmp_path: Path, dtype: str) -> None:
    from workloads import tables
    from workloads.files import passes

    workload = _table(tmp_path, dtype)

    def reading(lost: int) -> Any:
        return lambda _: (
            lambda: (batch for n, batch in enumerate(tables.parsed(workload, workload.paths, json.loads)) if n >= lost)
        )

    passes(reading(0), workload)(1)  # raises if an instance is missing
    with pytest.raises(ValueError, match="expected 400 instances, found 368"):
        passes(reading(1), workload)(1)


def test_rows_with_contents_of_others_are_not_accepted(tmp_path: Path) -> None:
    import numpy as np
    from workloads import tables

    workload = _table(tmp_path, "int32")
    for others, expected in ((0, True), (1, False)):
        consumer = tables.Consumer(workload)
        lists = [tables.tokens(i + others) for i in range(400)]
        for i, tokens in enumerate(lists):
            tokens[0] = i
        consumer.take(tables.token_batch(lists))
        if expected:
            assert np.array_equal(consumer.check(), np.arange(400))
        else:
            with pytest.raises(ValueError, match="expected the contents that were written"):
                consumer.check()


# ---- Resume -----------------------------------------------------------------------------------------


def test_a_resumed_reader_of_ours_delivers_the_same_batches(tmp_path: Path) -> None:
    path = tmp_path / "resume.json"
    smaller = ("--smaller", "50", "--runs", "2", "--cases", "1 KiB", "--folder", str(tmp_path))
    done = run("resume.py", *smaller, "--json", path)
    assert done.returncode == 0, done.stderr
    cases = {case["case"].partition(", 1 KiB")[0]: case for case in json.loads(path.read_text())["cases"]}
    names = {name: [library["library"] for library in case["libraries"]] for name, case in cases.items()}
    assert names == {
        "state": ["pyfeed"],
        "take": ["pyfeed", "pyfeed text"],
        "restore": ["pyfeed"],
        "restore, already made": ["pyfeed"],
        "restore, a second time": ["pyfeed"],
        "batches that differ": ["pyfeed"],
    }
    assert all(len(library["values"]) == 2 for case in cases.values() for library in case["libraries"])
    assert max(cases["state"]["libraries"][0]["values"]) <= 1024
    assert cases["batches that differ"]["libraries"][0]["values"] == [0, 0]
    assert cases["batches that differ"]["unit"] == "of 4"
    assert cases["state"]["parameters"]["step"] == 109


def test_batches_that_differ_after_a_restore_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resume
    from workloads.resume import Records

    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    monkeypatch.syspath_prepend(Path(__file__).parent)
    toys = {name: f"toy_libraries.{name}" for name in ("resumes", "loses_a_batch", "is_missing")}
    records = Records(str(tmp_path), files=1, records=400, size=64, buffer=1, step=9, batch=8, following=5)
    found = dict(resume.measured(toys, records, tmp_path, 1))
    assert found["resumes"]["differ"] == [0]
    assert found["loses_a_batch"]["differ"] == [5]
    assert found["resumes"]["state"] == [len('{"done":9}')]
    assert str(found["is_missing"]) == "toy"


def test_the_state_is_written_as_json_or_by_pickle(tmp_path: Path) -> None:
    from workloads.resume import read_state, write_state

    for state, size in (({"n": [1, "a"]}, 13), ({"n": b"a"}, None)):
        write_state(str(tmp_path / "state"), state)
        assert read_state(str(tmp_path / "state")) == state
        assert size in (None, (tmp_path / "state").stat().st_size)


def test_each_run_has_the_median_of_its_takes() -> None:
    import resume

    times = [1e-6, 2e-6, 9e-6, 3e-6, 2e-6, *[5e-6] * 5]
    assert resume._medians(json.dumps(times)) == pytest.approx([2, 5])
    assert resume._medians("[]") == []


def test_batches_in_order_or_with_a_record_twice_are_not_accepted() -> None:
    import numpy as np
    from workloads.resume import Records, check

    workload = Records("", files=1, records=8, size=16, buffer=1, step=1, batch=4)

    def batch(*numbers: int) -> Any:
        return (np.frombuffer(b"".join(map(workload.record, numbers)), np.uint8).reshape(len(numbers), -1),)

    check(workload, [batch(3, 1, 2, 0), batch(4, 5, 6, 7)])
    for wrong in ([batch(0, 1, 2, 3)], [batch(3, 1, 2, 0), batch(4, 5, 6, 0)], [batch(1, 0, 2)]):
        with pytest.raises(AssertionError):
            check(workload, wrong)


# ---- The report -------------------------------------------------------------------------------------


def library(name: str, values: Any = None, kind: str = "peer", **more: Any) -> dict[str, Any]:
    return {"library": name, "kind": kind, **({} if values is None else {"values": values}), **more}


def case(*libraries: dict[str, Any], name: str = "case", better: str = "higher") -> dict[str, Any]:
    unit = "GB/s" if better == "higher" else "ms"
    return {"case": name, "unit": unit, "better": better, "cores": 0, "libraries": [*libraries]}


def workload(*cases: dict[str, Any], name: str = "batches") -> dict[str, Any]:
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
    command = f"python benchmarks/{name}.py --json there.json --libraries all"
    return {"workload": name, "command": command, "machine": machine, "runs": 3, "cases": [*cases]}


def test_ratios_are_those_of_the_same_run() -> None:
    import report

    rates = case(
        library("pyfeed", [4, 6, 10], "pyfeed"), library("a", [1, 3, 2]), library("limit", [8, 12, 20], "limit")
    )
    assert report.ratios(rates) == {"a": [4, 2, 5], "limit": [0.5, 0.5, 0.5]}
    times = case(library("pyfeed", [4, 6, 10], "pyfeed"), library("a", [8, 3, 20]), better="lower")
    assert report.ratios(times) == {"a": [2, 0.5, 2]}
    counts = case(library("pyfeed", [0, 0], "pyfeed"), library("a", [0, 2]), better="lower")
    assert report.ratios(counts) == {"a": [1, float("inf")]}
    two = case(library("worse", [1, 1], "pyfeed"), library("better", [2, 4], "pyfeed"), library("a", [1, 1]))
    assert report.ratios(two) == {"worse": [2, 4], "a": [2, 4]}
    assert report.ratios(case(library("pyfeed", kind="pyfeed", failed="it fell"), library("a", [1]))) == {}


def test_pyfeed_is_compared_with_the_nearest_limit() -> None:
    from harness.results import compare

    limits = library("near", [6, 5], "limit"), library("far", [9, 8], "limit")
    found = compare(case(library("pyfeed", [3, 4], "pyfeed"), *limits))
    assert (found["limit"], found["x limit"]) == ("near", [0.65, 0.5, 0.8])
    found = compare(case(library("pyfeed", [12, 10], "pyfeed"), *limits, better="lower"))
    assert (found["limit"], found["x limit"]) == ("far", [0.775, 0.75, 0.8])


@pytest.mark.parametrize(
    ("values", "peers", "expected"),
    [
        ([4, 5, 6], [[1, 2, 3], [3, 4, 5]], "yes"),
        ([4, 5, 6], [[3, 3, 3], [1, 6, 1]], "within the spread"),  # one that is not the best was ahead once
        ([4, 5, 6], [[4, 4, 4]], "level"),
        ([4, 5, 6], [[5, 6, 7], [1, 1, 1]], "no"),
        ([4, 5, 6], [], "alone"),
        (None, [[1, 1, 1]], "no"),
    ],
)
def test_first_is_yes_if_pyfeed_is_ahead_of_all_in_every_run(
    values: list[float] | None, peers: list[Any], expected: str
) -> None:
    import report

    failed = library("pyfeed", kind="pyfeed", failed="it fell")
    mine = library("pyfeed", values, "pyfeed") if values else failed
    others = (library(f"peer {n}", theirs) for n, theirs in enumerate(peers))
    assert report.standing(case(mine, *others)) == expected


def test_pyfeed_at_the_limit_can_be_no_faster() -> None:
    import report

    mine, limit = library("pyfeed", [4, 5, 6], "pyfeed"), library("limit", [5, 5, 7], "limit")
    assert report.standing(case(mine, library("peer", [5, 6, 7]), limit)) == "at the limit"
    assert report.standing(case(mine, library("peer", [3, 4, 5]), limit)) == "yes"
    assert report.standing(case(mine, library("peer", [5, 6, 7]), library("limit", [5, 6, 7], "limit"))) == "no"
    line = report.summary([workload(case(mine, library("peer", [5, 6, 7]), limit))]).splitlines()[0]
    assert line.endswith("in 0 of 1 cases in which a peer has values. In 1 more, pyfeed is as fast as the limit.")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0, "0"), (0.001234, "0.00123"), (0.5, "0.500"), (1, "1.00"), (12.345, "12.3"), (99.96, "100.0")),
        *((123.4, "123"), (1234.5, "1,230"), (1234567, "1,230,000"), (float("inf"), "∞")),
    ],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    import report

    assert report.number(value) == text


def test_the_tables_have_every_library_and_why_others_have_no_values() -> None:
    import report

    found = workload(
        case(
            library("slow", [1, 2, 1])
            | {"cpu_seconds_per_unit": [0.5, 0.25, 1], "peak_bytes": 3 << 20, "setting": "2 workers"}
            | {"failed_settings": {"4 workers": "KeyError: 'x'"}},
            library("none") | {"not_supported": "has | no queue"},
            library("fails", failed="ValueError: no more") | {"failed_settings": {}},
            library("pyfeed", [4, 4, 8], "pyfeed", wait_fraction=[0.5, 0.25, 0.5]),
            library("copy", [8, 8, 8], "limit"),
            name="small",
        ),
        case(
            library("slow", [2, 1, 2]),
            library("fails", [1, 1, 1]),
            library("pyfeed", [1, 1, 1], "pyfeed"),
            name="big",
            better="lower",
        ),
    )
    assert report.matrix(found).splitlines() == [
        "| library | small<br>GB/s | big<br>ms, less is better |",
        "| --- | ---: | ---: |",
        "| **pyfeed** | **4.00**, waits 50% | **1.00** |",
        "| fails | failed | 1.00 (x 1.00) |",
        "| slow | 1.00 (x 4.00) | 2.00 (x 2.00) |",
        "| copy (limit) | 8.00 (x 0.500) |  |",
    ]
    assert report.without_values(found).splitlines() == [
        *("Not supported:", "", "- none (small): has | no queue", ""),
        *("Failed:", "", "- fails (small): ValueError: no more", "- slow with 4 workers (small): KeyError: 'x'"),
    ]
    assert report.summary([found]).splitlines() == [
        "pyfeed is ahead of every peer in every run in 1 of 2 cases in which a peer has values.",
        "",
        "| workload | case | pyfeed | best peer | ratio to best peer | first | ratio to limit |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| batches | small | **4.00** GB/s, pyfeed | 1.00 GB/s, slow | **4.00** (2.00 to 8.00) | yes | 0.500 |",
        "| batches | big | **1.00** ms, pyfeed | 1.00 ms, fails | **1.00** (1.00 to 1.00) | level |  |",
    ]
    details = report.details(found).splitlines()
    assert "|  | slow | 1.00 (1.00 to 2.00) | 4.00 (2.00 to 8.00) | 500 ms | 3 MiB |  | 2 workers |" in details
    assert "| small, GB/s | **pyfeed** | 4.00 (4.00 to 8.00) |  |  |  | 50.0% |  |" in details
    provenance = report.provenance(found)
    assert "`python benchmarks/batches.py --libraries all --json benchmarks/results/batches.json`, 3 runs" in provenance
    assert "commit `0123456789ab`, on A CPU, 2 cores, 8 GiB" in provenance
    assert "pyfeed 0.1.0" in provenance
    assert report.provenance({**found, "note": "Once more."}) == f"{provenance} Once more."


def test_a_case_in_which_pyfeed_failed_is_in_the_summary() -> None:
    import report

    found = workload(case(library("a", [1, 1, 1]), library("pyfeed", kind="pyfeed", failed="it fell")))
    assert "| batches | case | **failed** |  |  | no |  |" in report.summary([found])
    assert "in 0 of 1 cases" in report.summary([found])


def test_the_first_table_has_the_chosen_cases_that_have_results() -> None:
    import report

    workload_name, name, job = report.HIGHLIGHTS[0]
    mine, peer = library("pyfeed slot", [4, 4, 8], "pyfeed"), library("SPDL", [1, 2, 1])
    found = workload(case(mine, peer, name="another"), case(mine, peer, name=name), name=workload_name)
    assert report.highlights([found]).splitlines() == [
        "| job | pyfeed | best peer | ratio | case |",
        "| --- | --- | --- | --- | --- |",
        f"| {job} | **4.00** GB/s, pyfeed slot | 1.00 GB/s, SPDL | **4.00** (2.00 to 8.00) | {workload_name}: {name} |",
    ]
    assert report.highlights([workload(case(mine, peer, name="another"))]) == "No results are kept."


def test_the_chosen_cases_have_results_of_pyfeed_and_a_peer() -> None:
    import report

    lines = report.highlights(report.load(BENCHMARKS / "results")).splitlines()[2:]
    assert [line.split(" | ")[-1].rstrip(" |") for line in lines] == [
        f"{workload_name}: {name}" for workload_name, name, _ in report.HIGHLIGHTS
    ]
    assert not any("|  |" in line for line in lines)


def test_libraries_have_their_full_names_on_the_page(tmp_path: Path) -> None:
    import report

    found = workload(case(library("mp.Queue", [1, 1, 1]), library("another", [2, 2, 2])))
    (tmp_path / "batches.json").write_text(json.dumps(found))
    ((loaded,),) = (results["cases"] for results in report.load(tmp_path))
    assert [line["library"] for line in loaded["libraries"]] == ["multiprocessing.Queue", "another"]
    for results in report.load(BENCHMARKS / "results"):
        for measured_case in results["cases"]:
            names = [line["library"] for line in measured_case["libraries"]]
            assert len(set(names)) == len(names)


def test_wide_tables_are_split_evenly() -> None:
    import report

    found = workload(*(case(library("pyfeed", [1], "pyfeed"), name=f"case {n}") for n in range(7)))
    heads = [line for line in report.matrix(found).splitlines() if line.startswith("| library")]
    assert [head.count("<br>") for head in heads] == [4, 3]


def test_workloads_have_their_order_and_other_files_are_left_alone(tmp_path: Path) -> None:
    import report

    for name in ("zoo", "files", "batches", "training_loop"):
        (tmp_path / f"{name}.json").write_text(json.dumps(workload(name=name)))
    (tmp_path / "program_overhead.json").write_text('{"operators": []}')
    assert [found["workload"] for found in report.load(tmp_path)] == ["batches", "files", "training_loop", "zoo"]
    (tmp_path / "again.json").write_text(json.dumps(workload(name="files")))
    with pytest.raises(
        report.ReportError, match=r"files.json: expected one file of a workload, found another of files"
    ):
        report.load(tmp_path)


MARKS = "# Title\n\n<!-- begin: a -->\nold\n<!-- end: a -->\nwords\n<!-- begin: b -->\n<!-- end: b -->\n"


def test_only_what_is_between_the_markers_is_replaced() -> None:
    import report

    page = report.fill(MARKS, {"a": r"new \1"})
    assert page == (
        "# Title\n\n<!-- begin: a -->\nnew \\1\n<!-- end: a -->\nwords\n"
        "<!-- begin: b -->\nNo results are kept.\n<!-- end: b -->\n"
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

    with pytest.raises(report.ReportError, match=f"^{re.escape(message)}$"):
        report.fill(page, {"a": "x", "b": "y"})


def test_the_page_matches_the_results() -> None:
    done = run("report.py", "--check")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_check_finds_what_is_not_up_to_date(tmp_path: Path) -> None:
    results, page, kept = tmp_path / "results", tmp_path / "page.md", tmp_path / "kept.json"
    results.mkdir()
    found = workload(case(library("pyfeed", [2, 2, 2], "pyfeed"), library("a", [1, 1, 1])))
    (results / "batches.json").write_text(json.dumps(found))
    kept.write_text(json.dumps({"versions": {"machine": "x86_64"}, "operations": {"push": 1234.5}}))
    names = ("highlights", "summary", "batches", "instructions")
    page.write_text("".join(f"<!-- begin: {name} -->\n<!-- end: {name} -->\n" for name in names))
    options = ("--results", results, "--page", page, "--instructions", kept)

    def stale() -> list[str]:
        done = run("report.py", "--check", *options)
        lines = done.stdout.splitlines()
        assert done.returncode == (1 if lines else 0), done.stderr
        prefix, suffix = f"{page}: the ", " does not match the results: run python benchmarks/report.py"
        assert all(line.startswith(prefix) and line.endswith(suffix) for line in lines)
        return [line.removeprefix(prefix).removesuffix(suffix) for line in lines]

    picture = "picture batches.png"
    assert stale() == ["part highlights", "part summary", "part batches", "part instructions", picture]
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
    found["cases"][0]["libraries"][0]["values"][1] = 3
    (results / "batches.json").write_text(json.dumps(found))
    assert stale() == ["part batches", picture] or stale() == ["part summary", "part batches", picture]
    page.write_text("no markers")
    assert "page.md: expected one line <!-- begin: batches -->, found 0" in run("report.py", "--check", *options).stderr


# ---- Instructions -----------------------------------------------------------------------------------


def counts(versions: str = "1.26", **operations: float) -> Any:
    return {"versions": {"Go": versions}, "operations": operations}


def test_a_rise_of_more_than_five_percent_is_an_error() -> None:
    import instructions

    kept = counts(push=1000, pop=1000, slot=1000)
    compared = instructions.compare(kept, counts(push=1060, pop=1040, slot=960))
    assert compared == (["push has risen by 6.0%: from 1000 to 1060"], [])


def test_operations_that_come_go_or_become_cheaper_are_named() -> None:
    import instructions

    compared = instructions.compare(counts(push=1000, pop=1000), counts(push=900, slot=500))
    assert compared.errors == ["pop is no longer counted"]
    assert compared.notes == ["push has fallen by 10.0%: --update keeps that", "slot is new: --update keeps it"]


def test_different_versions_are_noted() -> None:
    import instructions

    compared = instructions.compare(counts(push=1000), counts("1.27", push=1100))
    assert compared.errors == ["push has risen by 10.0%: from 1000 to 1100"]
    assert compared.notes == ["this compares across versions: Go was 1.26, is 1.27"]


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


def test_a_tool_that_fails_is_reported_with_its_output(tmp_path: Path) -> None:
    for name, script in (("valgrind", "echo valgrind-3.19.0"), ("cmake", "echo no callgrind.h; exit 3")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    done = run("instructions.py", "--prefix", tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert (done.returncode, done.stderr) == (
        2,
        "instructions.py: cmake ended with status 3:\nno callgrind.h\n",
    )


def test_the_versions_of_the_build_are_read_from_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import instructions

    import pyfeed

    (tmp_path / "valgrind").write_text("#!/bin/sh\necho valgrind-3.19.0\n")
    (tmp_path / "valgrind").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    found = instructions.versions(Path(pyfeed.get_library_dir(), "libpyfeed.so.0"))
    assert re.fullmatch(r"1\.\d+(\.\d+)?(rc\d+)?", found["Go"])
    assert found["valgrind"] == "3.19.0"
    assert {"GCC", "clang"} & set(found)


# ---- Ablations --------------------------------------------------------------------------------------


def test_each_ablation_still_applies_and_is_in_the_table_of_heuristics() -> None:
    import ablations

    page = (ROOT / "docs/performance.md").read_text()
    table = page.partition("## Heuristics and tuned constants")[2].partition("### Taken out")[0]
    rows = dict(re.findall(r"^\| ([^|]*) \| `([^`]*)` \|", table, re.M))
    found = ablations.table()
    assert {ablation["name"]: ablation["file"] for ablation in found} == rows
    for ablation in found:
        source = (ROOT / ablation["file"]).read_text()
        assert ablations.edited(source, ablation) != source
        assert ablation.get("cases") or ablation["elsewhere"]
    folders = {ablations.folder_name(ablation) for ablation in found}
    assert len(folders) == len(found)


def test_an_ablation_that_no_longer_applies_is_named() -> None:
    import ablations

    ablation = {"name": "spin", "file": "wait.c", "old": "spin();", "new": ""}
    with pytest.raises(SystemExit, match=r"^spin: expected its old text once in wait\.c$"):
        ablations.edited("spin(); spin();", ablation)
    assert ablations.edited("if (late) spin();", ablation) == "if (late) "


@pytest.mark.parametrize(("better", "worth"), [("higher", [2, 1.25, 4]), ("lower", [0.5, 0.25, 0.8])])
def test_a_heuristic_is_worth_the_ratio_with_and_without_it(better: str, worth: list[float]) -> None:
    import ablations

    def line(library: str, *values: float) -> dict[str, Any]:
        return {"library": library, "values": list(values)}

    case = {
        "case": "files: npy",
        "better": better,
        "libraries": [line("with: pyfeed", 10, 8, 5), line("spin: pyfeed", 5, 2, 4), {"library": "same: pyfeed"}],
    }
    expected = [{"without": "spin", "case": "files: npy", "setting": "pyfeed", "worth": worth}]
    assert ablations.worths(case, ["with", "spin", "same"]) == expected
