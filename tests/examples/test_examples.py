"""The examples, run as their first lines say."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyfeed

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "recognize_digits"
STUCK = 60.0  # seconds: longer than an example that does not hang


def built(example: Path, build: Path) -> Path:
    """Build an example with the installed package; return its folder."""
    prefix = os.path.dirname(pyfeed.get_include())
    subprocess.run(["cmake", "-S", example, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}"], check=True)
    subprocess.run(["cmake", "--build", build], check=True)
    return build


@pytest.fixture(scope="session")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the executor of recognize_digits: in the folder PYFEED_EXAMPLES_BUILD if it is set, or built here."""
    folder = os.environ.get("PYFEED_EXAMPLES_BUILD")
    return Path(folder or built(EXAMPLE, tmp_path_factory.mktemp("recognize_digits")), "executor.so")


def start(executor: Path, *options: object, changes: str = "") -> subprocess.Popen[str]:
    """Start train.py, with changes to the module before it runs."""
    if changes:
        load = f"import sys; sys.path.insert(0, {str(EXAMPLE)!r}); import train\n"
        command = [sys.executable, "-c", load + textwrap.dedent(changes) + "\ntrain.main()\n"]
    else:
        command = [sys.executable, str(EXAMPLE / "train.py")]
    return subprocess.Popen(
        [*command, "--executor", str(executor), *map(str, options)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for the end of an example; return its exit status, output and standard error."""
    try:
        out, err = process.communicate(timeout=STUCK)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"the example hangs:\n{out}{err}") from None
    return process.returncode, out, err


def accuracy(out: str) -> float:
    """Return the accuracy in the last line of output."""
    match = re.fullmatch(r"test accuracy: ([01]\.\d\d)", out.splitlines()[-1])
    assert match, out
    return float(match[1])


@pytest.mark.parametrize("options", [(), ("--threads", 5, "--capacity", 1, "--batch-size", 50)])
def test_learns_to_recognize_digits(executor: Path, options: tuple[object, ...]) -> None:
    status, out, err = end(start(executor, "--epochs", 60, "--seed", 1, *options))
    assert status == 0, err
    assert accuracy(out) >= 0.95
    assert re.search(r"100%.*queue 0/\d+, waiting: producers \d+% executor \d+%", err)


def test_falls_short_when_it_learns_too_little(executor: Path) -> None:
    status, out, err = end(start(executor, "--epochs", 1))
    assert status == 1
    assert 0.1 < accuracy(out) < 0.95
    assert "expected an accuracy of at least 0.95" in err


def test_producer_fails(executor: Path) -> None:
    changes = """
        good, calls = train.augment, 0

        def augment(images, random):
            global calls
            calls += 1
            if calls == 100:
                raise ValueError("image 17 is upside down")
            return good(images, random)

        train.augment = augment
    """
    status, out, err = end(start(executor, changes=changes))
    assert status == 1
    assert out == ""
    # The executor reports the error, so it has received it. The traceback names the function that raised it.
    assert "training failed: the producer failed: ValueError: image 17 is upside down\n" in err
    assert "in augment\n" in err


def test_executor_fails(executor: Path) -> None:
    changes = """
        good = train.batches

        def batches(*args):
            for image, label in good(*args):
                yield image, label + 1

        train.batches = batches
    """
    status, out, err = end(start(executor, "--epochs", 1000000, changes=changes))
    assert (status, out) == (1, "")
    assert err.endswith("training failed: expected labels from 0 to 9, found 10\n")


def test_interrupt_ends_it(executor: Path) -> None:
    process = start(executor, "--epochs", 1000000)
    assert process.stderr is not None
    shown = ""
    while not re.search(r"k/\S+ \[.*loss", shown):  # until it has read some thousand images
        character = process.stderr.read(1)
        assert character, shown
        shown += character
    process.send_signal(signal.SIGINT)
    status, out, err = end(process)
    assert (status, out) == (130, "")
    assert "Traceback" not in err


def test_says_what_is_missing(tmp_path: Path) -> None:
    status, out, err = end(start(tmp_path / "executor.so"))
    assert (status, out) == (2, "")
    assert f"there is no {tmp_path}/executor.so: build it as" in err


# ---- recognize_digits_files ----

FILES = EXAMPLES / "recognize_digits_files"


@pytest.fixture(scope="session")
def train(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(FILES, tmp_path_factory.mktemp("recognize_digits_files")) / "train"


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the files, which the command line creates."""
    folder = tmp_path_factory.mktemp("digits")
    status, out, err = run(sys.executable, FILES / "write_files.py", folder)
    assert (status, err) == (0, "")
    convert, records, verify, whole = out.splitlines()
    assert convert.startswith("$ python -m pyfeed convert ")
    assert records == "1437 records, 379368 bytes, 6 files written"
    assert verify.startswith("$ python -m pyfeed verify ")
    assert whole.startswith("6 files, 1437 records, 0 damaged")
    return folder


def run(*command: object) -> tuple[int, str, str]:
    return end(
        subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    )


def test_learns_from_files(train: Path, digits: Path) -> None:
    status, out, err = run(train, digits, 20)
    assert (status, err) == (0, "")
    assert out.splitlines()[-2] == "28740 images in 20 passes"
    assert accuracy(out) >= 0.95
    assert run(train, digits, 20) == (status, out, err)  # all losses are the same to the last digit


def test_it_needs_no_python(train: Path) -> None:
    needed = subprocess.run(["ldd", train], capture_output=True, text=True, check=True).stdout
    assert "libpyfeed.so.0" in needed
    assert "libpython" not in needed


def test_a_damaged_file_is_named(train: Path, digits: Path, tmp_path: Path) -> None:
    for file in digits.glob("*.*"):
        data = bytearray(file.read_bytes())
        if file.name == "train-00003.recordio":
            data[len(data) // 2] ^= 1
        (tmp_path / file.name).write_bytes(data)
    status, _, err = run(train, tmp_path)
    assert status == 1
    assert f"{tmp_path}/train-00003.recordio" in err
    assert "checksum" in err


# ---- recognize_digits_program ----

PROGRAM = EXAMPLES / "recognize_digits_program"


@pytest.fixture(scope="session")
def program_train(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(PROGRAM, tmp_path_factory.mktemp("recognize_digits_program")) / "train"


@pytest.fixture
def program(digits: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that builds the programs in a new folder with the files."""

    def build(*options: object) -> Path:
        for file in digits.iterdir():
            shutil.copy(file, tmp_path)
        status, out, err = run(sys.executable, PROGRAM / "build_program.py", tmp_path, *options)
        assert (status, err) == (0, "")
        assert [line.partition(":")[0] for line in out.splitlines()] == [
            f"{tmp_path}/startup.pb",
            f"{tmp_path}/main.pb",
        ]
        return tmp_path

    return build


def test_learns_by_a_program(program_train: Path, program: Callable[..., Path], tmp_path: Path) -> None:
    folder = program("--passes", 20)
    trace = tmp_path / "trace.json"
    status, out, err = run(program_train, folder, "--trace", trace)
    assert status == 0, err
    assert accuracy(out) >= 0.95
    assert [line.partition(":")[0] for line in err.splitlines()] == ["pass int64 ()", "loss float32 ()"] * 2
    events = {event["name"] for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"digits_learn", "digits_accuracy", "has_next", "read", "open_files"} <= events
    assert "digits_learn" in out  # in the table
    last = out.splitlines()[-1]
    assert run(program_train, folder) == (0, last + "\n", err)  # all losses are the same to the last digit


def test_no_python_is_in_its_process(program_train: Path, program: Callable[..., Path]) -> None:
    process = subprocess.Popen(
        [program_train, program("--passes", 1_000_000)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        assert process.stderr.readline().startswith("pass int64 ()")  # in the middle of the training
        maps = Path(f"/proc/{process.pid}/maps").read_text()
    finally:
        process.kill()
        process.communicate()
    # Only the last part of each path, since the folders depend on the machine.
    mapped = {line.rpartition("/")[2] for line in maps.splitlines() if "/" in line}
    assert {"train", "kernels.so", "libpyfeed.so.0"} <= mapped
    assert not [name for name in mapped if re.match(r"(lib)?python|.*\.cpython-|.*\.abi3\.so|_native", name)]


def test_a_program_falls_short_when_it_learns_too_little(program_train: Path, program: Callable[..., Path]) -> None:
    status, out, err = run(program_train, program("--passes", 0))
    assert status == 1
    assert accuracy(out) < 0.5
    assert "expected an accuracy of at least 0.95" in err


def test_a_program_says_where_a_file_is_damaged(program_train: Path, program: Callable[..., Path]) -> None:
    folder = program()
    file = folder / "train-00003.recordio"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    status, out, err = run(program_train, folder)
    assert (status, out) == (1, "")
    lines = (PROGRAM / "build_program.py").read_text().splitlines()
    line = 1 + next(i for i, text in enumerate(lines) if "layers.has_next(" in text)
    assert err.startswith("block 1, op 0: has_next(")
    assert f" at build_program.py:{line}" in err
    assert str(file) in err
    assert "checksum" in err


def test_a_program_needs_its_kernels(program: Callable[..., Path]) -> None:
    main = pyfeed.Program.load(program() / "main.pb")
    with pytest.raises(pyfeed.errors.NotFoundError, match=r"digits_\w+.*not registered"):
        pyfeed.Executor().run(main, scope=pyfeed.Scope())


# ---- cpp_resume ----

RESUME = EXAMPLES / "cpp_resume"


@pytest.fixture(scope="session")
def cpp_resume(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(RESUME, tmp_path_factory.mktemp("cpp_resume")) / "cpp_resume"


@pytest.fixture(scope="session")
def never_killed(cpp_resume: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the last lines of training without a kill: the number of steps, the weights and the accuracy."""
    status, out, err = run(cpp_resume, tmp_path_factory.mktemp("never_killed"))
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[:2] == ["begin at step 0", "step 10"]
    assert lines[-3] == "end at step 1250"
    assert re.fullmatch(r"weights:( -?0x1\.[0-9a-f]+p[+-]\d+){3}", lines[-2])
    assert re.fullmatch(r"accuracy: 0\.9\d", lines[-1])
    return lines[-3:]


def step_of(checkpoint: Path) -> int:
    """Return the number of steps in a checkpoint; 0 if there is none."""
    return int(np.frombuffer(checkpoint.read_bytes(), "int64", 1)[0]) if checkpoint.exists() else 0


@pytest.mark.parametrize("seed", range(3))
def test_kills_change_no_bit_of_the_weights(
    cpp_resume: Path, never_killed: list[str], tmp_path: Path, seed: int
) -> None:
    random = np.random.default_rng(seed)
    kills = 0
    for read in random.integers(0, 20, size=10):
        before = step_of(tmp_path / "checkpoint")
        process = subprocess.Popen([cpp_resume, tmp_path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        # The process does not wait for its lines to be read, so the kill comes anywhere behind the last of them.
        first = [process.stdout.readline() for _ in range(read)]
        process.kill()
        out, err = process.communicate(timeout=STUCK)
        assert err == ""
        lines = "".join([*first, out]).splitlines()
        assert lines[:1] in ([], [f"begin at step {before}"])
        assert process.returncode in (0, -signal.SIGKILL)
        kills += process.returncode != 0
    assert kills > 0
    status, out, err = run(cpp_resume, tmp_path)
    assert (status, err) == (0, "")
    assert out.splitlines()[-3:] == never_killed


def test_python_goes_on_where_a_killed_cpp_process_was(cpp_resume: Path, tmp_path: Path) -> None:
    process = subprocess.Popen([cpp_resume, tmp_path], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line == "step 420\n":
            break
    process.kill()
    process.communicate(timeout=STUCK)
    step = step_of(tmp_path / "checkpoint")
    assert step >= 420
    data = (tmp_path / "checkpoint").read_bytes()
    state = json.loads(data[data.index(b"{") :])

    def chain() -> pyfeed.Reader:
        slots: Any = {"shapes": [(2,), ()], "dtypes": ["float32", "int64"], "names": ["x", "label"]}
        points = pyfeed.open_files(str(tmp_path / "points-*.recordio"), **slots)
        return points.shuffle(2000, seed=1).batch(32).multi_pass(5).double_buffer()

    whole, resumed = chain(), chain()
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    batches = [[x.tolist(), label.tolist()] for x, label in whole]
    assert [[x.tolist(), label.tolist()] for x, label in resumed] == batches[step:]


def test_a_checkpoint_of_another_order_is_refused(cpp_resume: Path, never_killed: list[str], tmp_path: Path) -> None:
    assert run(cpp_resume, tmp_path)[0] == 0
    status, out, err = run(cpp_resume, tmp_path, 2)
    assert (status, out) == (1, "begin at step 1250\n")
    assert re.match(r"block 0, op 1: load_reader\(.* at main\.cpp:\d+", err)
    assert "shuffle: seed: expected 1, as when it was saved, found 2" in err
    checkpoint = (tmp_path / "checkpoint").read_bytes()
    (tmp_path / "checkpoint").write_bytes(checkpoint[:-1])
    status, out, err = run(cpp_resume, tmp_path)
    assert (status, out) == (1, "")
    assert f"{tmp_path}/checkpoint is not a checkpoint" in err
    (tmp_path / "checkpoint").write_bytes(checkpoint)
    assert run(cpp_resume, tmp_path)[1].splitlines()[1:] == never_killed


def test_cpp_resume_needs_no_python(cpp_resume: Path) -> None:
    needed = subprocess.run(["ldd", cpp_resume], capture_output=True, text=True, check=True).stdout
    assert "libpyfeed.so.0" in needed
    assert "libpython" not in needed


# ---- listings ----

LISTINGS = EXAMPLES / "listings"


@pytest.fixture(scope="session")
def listings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(LISTINGS, tmp_path_factory.mktemp("listings")) / "listings"


@pytest.fixture(scope="session")
def batches(digits: Path) -> bytes:
    """Return the batches of a reader that is used without a program."""
    reader = pyfeed.open_files(digits / "train-*.recordio").batch(32)
    found = []
    for _ in range(2):
        found += [np.int64(len(label)).tobytes() + image.tobytes() + label.tobytes() for image, label in reader]
        reader.reset()
    assert len(found) == 90
    return b"".join(found)


@pytest.mark.parametrize("listing", ["has_next_reset", "multi_pass", "staging"])
@pytest.mark.parametrize("language", ["python", "cpp"])
def test_listings_give_the_same_batches(
    listings: Path, digits: Path, batches: bytes, tmp_path: Path, listing: str, language: str
) -> None:
    command: list[object] = [listings] if language == "cpp" else [sys.executable, LISTINGS / "listings.py"]
    out = tmp_path / "batches"
    assert run(*command, listing, digits, out) == (0, "", "")
    assert out.read_bytes() == batches


def test_several_processes_go_on_in_another_number() -> None:
    example = EXAMPLES / "several_processes" / "train.py"
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, timeout=STUCK)
    expected = [f"epoch {epoch}: 960 records, each once: True" for epoch in range(2)]
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, expected, "")
