"""Names of files: bytes that are not UTF-8, patterns, and names that look like patterns or formats."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyfeed.__main__ import main

import pyfeed
from pyfeed import layers

from .support import Process

# Bytes that are not UTF-8, bytes that are, and text that looks like the escapes of such bytes.
NAMES = [
    b"\xff.npy",
    b"a\x80\xc3\xbc\xc3.npy",
    "\u00fc\U0001f600.npy".encode(),
    b"\\udcff.npy",
    b"\\u0000ff.npy",
    b"\xed\xb3\xbf.npy",
    b"%ff\xfe.npy",
    b"new\nline\x7f\x01.npy",
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(*names: str | bytes) -> None:
    """Write files with one row each: the number of the file."""
    for i, name in enumerate(names):
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "wb") as file:
            np.save(file, np.array([i]))


def numbers(reader: pyfeed.Reader) -> list[int]:
    return [int(x) for (x,) in reader]


# ---- The number of a shard ----


def test_shards_as_tensorflow_names_them(capsys: Any) -> None:
    names = [f"train.tfrecord-{i:05d}-of-00002" for i in range(2)] + ["b.tfrecord-0-of-1.gz", "c.tfrecord.gz-0-of-1"]
    for i, name in enumerate(names):
        with pyfeed.open_writer(name, names=["x"]) as writer:
            writer.write((np.int64(i),))
        with open(name, "rb") as file:
            assert (file.read(2) == b"\x1f\x8b") == (".gz" in name)
    assert pyfeed.list_files("train.tfrecord-?????-of-?????") == [f"tfrecord:{name}" for name in names[:2]]
    assert pyfeed.list_files("*") == [f"tfrecord:{name}" for name in sorted(names)]
    features: Any = {"x": "int64"}
    assert numbers(pyfeed.open_files(names, features=features)) == [0, 1, 2, 3]
    assert main(["verify", *names, "--progress"]) == 0
    assert capsys.readouterr().out == "4 files, 4 records, 0 damaged\n"
    with pytest.raises(pyfeed.errors.InvalidArgument, match="expected a name with the prefix or suffix of a format"):
        pyfeed.open_writer("train-00000-of-00002")
    with pytest.raises(pyfeed.errors.InvalidArgument, match=r"expected gzip, as the suffix \.gz of c\.csv\.gz-0-of-1"):
        pyfeed.open_writer("c.csv.gz-0-of-1", compression="zstd")


# ---- Bytes that are not UTF-8 ----


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_any_bytes_goes_everywhere(name: bytes, folder: Path, capfdbinary: Any) -> None:
    path = os.fsdecode(name)
    with pyfeed.open_writer(path) as writer:
        writer.write((np.float32(7),))
    assert os.listdir(bytes(folder)) == [name]
    assert writer.filename == path
    listed = pyfeed.list_files("*.npy")
    assert [os.fsencode(each) for each in listed] == [b"npy:" + name]
    for given in (path, Path(path), listed, f"npy:{path}"):
        assert numbers(pyfeed.open_files(given)) == [7]
    assert pyfeed.list_files(path) == pyfeed.list_files(listed) == listed
    assert numbers(pyfeed.open_npy(path, num_threads=0)) == [7]

    assert main(["verify", path]) == 0
    assert main(["inspect", path]) == 0
    assert name + b": npy," in capfdbinary.readouterr().out


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["json", "protobuf"])
def test_saved_programs_have_names_of_any_bytes(name: bytes, form: str) -> None:
    save(name)
    startup, program = pyfeed.Program(), pyfeed.Program()
    with pyfeed.program.program_guard(program, startup):
        layers.open_files(os.fsdecode(name))
    saved = startup.to_json() if form == "json" else startup.to_bytes()
    loaded = pyfeed.Program.from_json(saved) if isinstance(saved, str) else pyfeed.Program.from_bytes(saved)
    (op,) = json.loads(loaded.to_json())["blocks"][0]["ops"]
    (text,) = op["attributes"]["filenames"]
    text.encode()  # fails if it is not valid text
    scope = pyfeed.Scope()
    pyfeed.Executor(pyfeed.CPUPlace()).run(loaded, scope=scope)
    scope.read(op["outputs"][0], ["x"])
    assert np.asarray(scope["x"]).tolist() == 0


def test_errors_and_ledgers_give_names_back() -> None:
    missing = "missing\udcff.npy"
    with pytest.raises(pyfeed.errors.MissingFileError) as caught:
        pyfeed.open_files(missing)
    assert (caught.value.file, caught.value.filename) == (missing, missing)
    assert str(caught.value).isprintable()
    damaged = "damaged\udcff.tfrecord"
    with pyfeed.open_writer(damaged) as writer:
        for word in ("one", "two"):
            writer.write((word,))
    with open(damaged, "r+b") as file:
        file.seek(14)
        file.write(b"X")
    reader = pyfeed.open_files(damaged, on_corrupt="skip")
    assert len(list(reader)) == 1
    assert [place["file"] for place in reader.stats()["details"]["ledger"]] == [damaged]


def test_paths_of_programs_may_be_any_bytes() -> None:
    program = pyfeed.Program()
    program.save("p\udcff.json")
    assert os.listdir(b".") == [b"p\xff.json"]
    assert pyfeed.Program.load("p\udcff.json").to_json() == program.to_json()


def test_what_no_name_can_be() -> None:
    with pytest.raises(
        pyfeed.errors.InvalidArgument, match=r"filenames: expected a name that utf-8 can encode, found '\\ud800'"
    ):
        pyfeed.list_files("\ud800")


def test_a_format_of_python_is_told_the_name() -> None:
    told = []

    @pyfeed.formats.register_format("named", [".named"], shapes=[()], dtypes=["int64"])
    def read_named(path: str) -> Any:
        told.append(path)
        yield (np.int64(len(path)),)

    Path("a\udcff.named").touch()
    assert numbers(pyfeed.open_files("*.named")) == [8]
    assert told == ["a\udcff.named"]


# ---- Names that look like patterns or formats, and patterns ----


def test_a_path_that_exists_is_that_file() -> None:
    save("y.npy", "npy:y.npy", "b{1,2}.npy", "b1.npy", "**.npy", "[a].npy")
    for i, name in enumerate(["./y.npy", "npy:y.npy", "b{1,2}.npy", "b1.npy", "**.npy", "[a].npy"]):
        assert numbers(pyfeed.open_files(name)) == [i]
        assert numbers(pyfeed.open_files(pyfeed.list_files(name))) == [i]
        assert numbers(pyfeed.open_npy(name)) == [i]
    assert pyfeed.list_files("y.npy") == ["npy:./y.npy"]
    os.remove("npy:y.npy")
    assert numbers(pyfeed.open_files("npy:y.npy")) == [0]
    assert pyfeed.list_files("y.npy") == ["npy:y.npy"]


def test_braces() -> None:
    save(*(f"train-{i:03}.npy" for i in range(147)))
    assert numbers(pyfeed.open_files("train-{000..146}.npy", interleave=1)) == list(range(147))
    assert numbers(pyfeed.open_files("train-{146,{003..001}}.npy", interleave=1)) == [146, 3, 2, 1]
    assert pyfeed.list_files("npy:train-00{1,7}.npy") == ["npy:train-001.npy", "npy:train-007.npy"]
    with pytest.raises(
        pyfeed.errors.MissingFileError, match=r"train-147\.npy: No such file|train-147\.npy: no such file"
    ):
        pyfeed.open_files("train-{000..147}.npy")


def test_two_stars_recurse() -> None:
    save("0.npy", "a/1.npy", "a/b/c/2.npy", "a/.hidden/3.npy", "a/.4.npy", "d/5.npy")
    os.symlink("..", "a/b/up")
    assert numbers(pyfeed.open_files("**/*.npy", interleave=1)) == [0, 1, 2, 5]
    assert pyfeed.list_files("{d,a/b}/**") == ["npy:d/5.npy", "npy:a/b/c/2.npy", "npy:a/b/up/1.npy"]


@pytest.mark.parametrize("call", ["list_files", "open_files"])
def test_a_search_ends_with_ctrl_c(call: str, folder: Path) -> None:
    """The pattern makes the search visit 50 folders a million times."""
    for i in range(50):
        os.makedirs(f"{i}/{i}")
    save("0.npy")
    process = Process(
        f"""
import pyfeed
names = ["**/0.npy"] * 1_000_000
try:
    print("begin", flush=True)
    pyfeed.{call}(names)
except KeyboardInterrupt:
    print("interrupted")
""",
        preamble="",
    )
    assert process.line() == "begin"
    process.signal(signal.SIGINT)
    assert process.end() == (["interrupted"], "")
