"""The examples, as somebody would run them who has read their first lines."""

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

import numpy as np
import pytest

import pyfeed

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "recognize_digits"
STUCK = 60.0  # seconds, longer than anything takes that is not


def built(example: Path, build: Path) -> Path:
    """The folder of an example that was built with what the installed package brings."""
    prefix = os.path.dirname(pyfeed.get_include())
    subprocess.run(["cmake", "-S", example, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}"], check=True)
    subprocess.run(["cmake", "--build", build], check=True)
    return build


@pytest.fixture(scope="session")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The executor of recognize_digits, in PYFEED_EXAMPLES_BUILD if that is said."""
    folder = os.environ.get("PYFEED_EXAMPLES_BUILD")
    return Path(folder or built(EXAMPLE, tmp_path_factory.mktemp("recognize_digits")), "executor.so")


def start(executor: Path, *options: object, changes: str = "") -> subprocess.Popen[str]:
    """train.py, with changes made to the module before it runs."""
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
    """Wait for its end: exit status, output and errors."""
    try:
        out, err = process.communicate(timeout=STUCK)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"the example hangs:\n{out}{err}") from None
    return process.returncode, out, err


def accuracy(out: str) -> float:
    """What its last line says."""
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
    # In the executor's words, so that it has been there; then where it came from.
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
    while not re.search(r"k/\S+ \[.*loss", shown):  # some thousand images
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
    """The files, made by the command line."""
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
    assert run(train, digits, 20) == (status, out, err)  # to the last digit of every loss


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
    """Builds the programs in a folder of their own, which has the files too."""

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
    assert run(program_train, folder) == (0, last + "\n", err)  # to the last digit of every loss


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
    # The last part of each path: those before it are of this machine.
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
    with pytest.raises(pyfeed.NotFoundError, match=r"digits_\w+.*not registered"):
        pyfeed.Executor().run(main, scope=pyfeed.Scope())


# ---- listings ----

LISTINGS = EXAMPLES / "listings"


@pytest.fixture(scope="session")
def listings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(LISTINGS, tmp_path_factory.mktemp("listings")) / "listings"


@pytest.fixture(scope="session")
def batches(digits: Path) -> bytes:
    """What readers give that no program knows of."""
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
