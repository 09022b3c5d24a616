"""The command line: convert, inspect and verify."""

from __future__ import annotations

import argparse
import ast
import io
import itertools
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from pyfeed.__main__ import EXAMPLES, Progress, main, parser, show_example

import pyfeed
from pyfeed import open_files, open_writer

from .support import PREAMBLE, Process, same

Said = pytest.CaptureFixture[str]


def said(capsys: Said) -> tuple[list[str], str]:
    out, err = capsys.readouterr()
    return out.splitlines(), err


def table(path: Path, rows: int = 10) -> list[tuple[Any, ...]]:
    """Rows of two slots that every format can hold, one way or another."""
    x = np.arange(3 * rows, dtype="float32").reshape(rows, 3) / 4
    y = np.arange(rows) * 7
    np.savez(path, x=x, y=y)
    return list(zip(x, y, strict=True))


# How each format is written and read so that the rows of table come back: suffix, of writing, of reading.
SLOTS = json.dumps([{"dtype": "float32", "dims": [3]}, {"dtype": "int64"}])
FEATURES = json.dumps([{"name": "x", "dtype": "float32", "shape": [3]}, {"name": "y", "dtype": "int64"}])
COLUMNS = json.dumps([{"columns": "x_0:x_2", "dtype": "float32"}, {"columns": "y"}])
FIELDS = json.dumps([{"columns": "x", "dtype": "float32", "dims": [3]}, "y"])
FORMATS: dict[str, tuple[list[str], list[str]]] = {
    "npz": ([], []),
    "arrow": (["--to-option", "compression=zstd", "--to-option", "batch_records=4"], []),
    "arrows": ([], []),
    "recordio": (["--to-option", "compression=snappy"], []),
    "tfrecord": (["--names", "x,y"], ["--option", f"features={FEATURES}"]),
    "csv": (["--names", "x,y"], ["--option", f"columns={COLUMNS}"]),
    "tsv": (["--names", "x,y"], ["--option", f"columns={COLUMNS}"]),
    "jsonl": (["--names", "x,y"], ["--option", f"columns={FIELDS}"]),
    "tar": (["--names", "npy,cls"], ["--option", 'fields=["npy","cls"]']),
    "raw": ([], ["--slots", SLOTS]),
    "parquet": (["--to-option", "compression=zstd"], []),
}


def rows_of(path: Path, arguments: list[str]) -> list[tuple[Any, ...]]:
    """What the command line's arguments make of a file, without it."""
    options: dict[str, Any] = {}
    for flag, value in zip(arguments[::2], arguments[1::2], strict=True):
        if flag == "--option":
            name, _, text = value.partition("=")
            options[name] = json.loads(text)
        else:
            slots = json.loads(value)
            options |= {"shapes": [s.get("dims", ()) for s in slots], "dtypes": [s["dtype"] for s in slots]}
    return list(open_files(path, **options))


# ---- convert ----


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("target", FORMATS)
def test_every_format_to_every_other(tmp_path: Path, capsys: Said, source: str, target: str) -> None:
    rows = table(tmp_path / "rows.npz")
    a, b = tmp_path / f"a.{source}", tmp_path / f"b.{target}"
    assert main(["convert", str(tmp_path / "rows.npz"), "-o", str(a), *FORMATS[source][0]]) == 0
    assert main(["convert", str(a), *FORMATS[source][1], "-o", str(b), *FORMATS[target][0]]) == 0
    # float32 of three and int64: 20 bytes a row; not a word to a standard error that nobody looks at
    assert said(capsys) == (["10 records, 200 bytes, 1 file written"] * 2, "")
    found = rows_of(b, FORMATS[target][1])
    assert len(found) == 10
    for row, expected in zip(found, rows, strict=True):
        for array, other in zip(row, expected, strict=True):
            same(array, np.asarray(other))


@pytest.mark.parametrize("target", ["npy", "idx"])
def test_formats_of_one_slot(tmp_path: Path, capsys: Said, target: str) -> None:
    images = np.arange(24, dtype="uint8").reshape(4, 2, 3)
    np.save(tmp_path / "a.npy", images)
    assert main(["convert", str(tmp_path / "a.npy"), "-o", f"{target}:{tmp_path / 'b'}"]) == 0
    assert main(["convert", f"{target}:{tmp_path / 'b'}", "-o", str(tmp_path / "c.npy")]) == 0
    same(np.load(tmp_path / "c.npy"), images)
    table(tmp_path / "two.npz")
    assert main(["convert", str(tmp_path / "two.npz"), "-o", str(tmp_path / "two"), "--to", target]) == 2
    out, err = said(capsys)
    assert len(out) == 2
    assert err.startswith("pyfeed: ")
    assert not (tmp_path / "two").exists()


def test_shards(tmp_path: Path, capsys: Said) -> None:
    rows = table(tmp_path / "rows.npz")
    for most, sizes in ((4, [4, 4, 2]), (5, [5, 5]), (10, [10]), (11, [10])):
        folder = tmp_path / f"by{most}"
        folder.mkdir()
        source, target = str(tmp_path / "rows.npz"), str(folder / "part.recordio")
        assert main(["convert", source, "-o", target, "--shard-records", str(most)]) == 0
        files = sorted(folder.iterdir())
        assert [f.name for f in files] == [f"part-{i:05d}.recordio" for i in range(len(sizes))]
        found = [list(open_files(f)) for f in files]
        assert [len(f) for f in found] == sizes
        for (x, y), (x2, y2) in zip(itertools.chain(*found), rows, strict=True):
            same(x, x2)
            assert y == y2
        plural = "s" * (len(sizes) != 1)
        assert said(capsys) == ([f"10 records, 200 bytes, {len(sizes)} file{plural} written"], "")


def test_shuffled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(100))
    for name, seed in (("b", "5"), ("c", "5"), ("d", "6")):
        arguments = ["-o", str(tmp_path / f"{name}.npy"), "--shuffle", "100", "--seed", seed]
        assert main(["convert", str(tmp_path / "a.npy"), *arguments]) == 0
    b, c, d = (np.load(tmp_path / f"{name}.npy").tolist() for name in "bcd")
    assert b == c != d
    assert sorted(b) == sorted(d) == list(range(100))
    assert b == [int(x) for (x,) in open_files(tmp_path / "a.npy").shuffle(100, 5)]


def test_many_sources(tmp_path: Path) -> None:
    for i in range(3):
        np.save(tmp_path / f"{i}.npy", np.arange(2) + 10 * i)
    assert main(["convert", str(tmp_path), "-o", str(tmp_path / "all.npz"), "--names", "x"]) == 0
    assert np.load(tmp_path / "all.npz")["x"].tolist() == [0, 10, 20, 1, 11, 21]


@pytest.mark.parametrize("target", ["npy", "csv", "jsonl", "recordio", "tfrecord", "idx"])
def test_nothing_to_convert(tmp_path: Path, capsys: Said, target: str) -> None:
    np.save(tmp_path / "a.npy", np.zeros((0, 2), "float32"))
    out = tmp_path / f"b.{target}"
    assert main(["convert", str(tmp_path / "a.npy"), "-o", str(out), "--names", "x"]) == 0
    assert said(capsys) == (["0 records, 0 bytes, 1 file written"], "")
    tells = target not in ("csv", "jsonl", "recordio")  # what would have been in it
    assert list(open_files(out) if tells else open_files(out, shapes=[(2,)], dtypes=["float32"])) == []
    if target == "npy":
        same(np.load(out), np.zeros((0, 2), "float32"))


# A format whose reader waits for what never comes.
ENDLESS = (
    PREAMBLE
    + """
from pyfeed.__main__ import main
reached, never = threading.Event(), threading.Event()

@pyfeed.formats.register_format("endless", [".endless"], shapes=[(2,)], dtypes=["float64"])
def endless(path):
    for i in range(3):
        yield tuple_of(i)
    reached.set()
    never.wait()

def interrupt(files):
    # once the command has nothing left to do but to wait, and has completed these files
    reached.wait()
    while not all(map(os.path.exists, files)):
        time.sleep(0.001)
    when_waiting(2, lambda: os.kill(os.getpid(), signal.SIGINT))
"""
)


@pytest.mark.parametrize(
    ("command", "left"),
    [
        (["convert", "-o", "out.npy"], []),
        (["convert", "-o", "out.npy", "--shard-records", "2"], ["out-00000.npy"]),
        (["inspect"], []),
        (["verify"], []),
    ],
)
def test_ctrl_c(tmp_path: Path, command: list[str], left: list[str]) -> None:
    (tmp_path / "a.endless").touch()
    process = Process(
        f"""
        os.chdir({str(tmp_path)!r})
        start(lambda: interrupt({left!r}), daemon=True)
        sys.exit(main([*{command!r}, "a.endless"]))
        """,
        preamble=ENDLESS,
    )
    assert process.end(130) == ([], "")
    assert sorted(f.name for f in tmp_path.iterdir()) == ["a.endless", *left]


def test_targets_that_cannot_be_written(tmp_path: Path, capsys: Said) -> None:
    table(tmp_path / "a.npz")
    for target, why in (
        ("none/b.npz", "no such file or directory"),
        ("b.unheard", "b.unheard"),
        ("b.npy", "slot"),  # holds one
    ):
        assert main(["convert", str(tmp_path / "a.npz"), "-o", str(tmp_path / target)]) == 2
        out, err = said(capsys)
        assert out == []
        assert err.startswith("pyfeed: ")
        assert why in err
    assert [f.name for f in tmp_path.iterdir()] == ["a.npz"]


def test_a_target_stays_what_it_was_if_the_source_is_damaged(tmp_path: Path, capsys: Said) -> None:
    damaged(tmp_path / "a.recordio", 2)
    (tmp_path / "b.tfrecord").write_text("old")
    arguments = ["convert", str(tmp_path / "a.recordio"), "-o", str(tmp_path / "b.tfrecord")]
    assert main(arguments) == 1
    assert "a.recordio, byte 56, record 2: checksum of a chunk" in said(capsys)[1]
    assert (tmp_path / "b.tfrecord").read_text() == "old"
    assert sorted(f.name for f in tmp_path.iterdir()) == ["a.recordio", "b.tfrecord"]
    assert main([*arguments, "--on-corrupt", "skip"]) == 0
    assert said(capsys) == (
        ["5 records, 20 bytes, 1 file written"],
        "1 damaged place skipped: see python -m pyfeed verify\n",
    )
    assert [x.bytes_list() for (x,) in open_files(tmp_path / "b.tfrecord")] == [[b"rec%d" % i] for i in (0, 1, 3, 4, 5)]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--option", "x"], "--option: expected NAME=VALUE, found 'x'"),
        (["--slots", "["], "--slots: expected JSON such as"),
        (["--slots", "3"], "--slots: expected JSON such as"),
        (["--option", "colour=red"], "colour"),
        (["--format", "unheard"], "unheard"),
        (["--compression", "best"], "best"),
    ],
)
def test_arguments_that_are_refused(tmp_path: Path, capsys: Said, arguments: list[str], why: str) -> None:
    table(tmp_path / "a.npz")
    for command in (["convert", "-o", str(tmp_path / "b.npz")], ["inspect"], ["verify"], ["index"]):
        assert main([*command, str(tmp_path / "a.npz"), *arguments]) == 2
        assert why in said(capsys)[1]


def test_wrong_names(tmp_path: Path, capsys: Said) -> None:
    table(tmp_path / "a.npz")
    assert main(["convert", str(tmp_path / "a.npz"), "-o", str(tmp_path / "b.csv"), "--names", "x,y,z"]) == 2
    message, *example = said(capsys)[1].splitlines()
    assert message == (
        "pyfeed: --names: expected 2 names with commas between them, one for each slot of the sources, found 3"
    )
    assert example[0] == "example: python -m pyfeed convert images.npz -o images.tar --names npy,cls"


def test_wrong_command_lines(capsys: Said) -> None:
    for arguments in ([], ["convert", "x"], ["convert", "x", "-o", "y", "--shuffle", "-1"], ["unheard"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
    assert "--shuffle: expected at least 0, found -1" in said(capsys)[1]
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert (caught.value.code, said(capsys)[0]) == (0, [pyfeed.__version__])


# ---- Texts ----

COMMANDS = ["convert", "inspect", "verify", "index"]


def subparser(command: str) -> argparse.ArgumentParser:
    top = parser()
    (commands,) = (action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    found: argparse.ArgumentParser = commands.choices[command]
    return found


def examples_in(text: str) -> list[list[str]]:
    """The command lines in a text, as a shell would split them."""
    lines = text.replace("\\\n", "").splitlines()
    commands = [line.removeprefix("example: ").strip() for line in lines]
    return [shlex.split(c)[3:] for c in commands if re.match(r"python -m pyfeed [a-z]+ (?!--help)", c)]


def help_of(capsys: Said, *command: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main([*command, "--help"])
    out, err = capsys.readouterr()
    assert (caught.value.code, err) == (0, "")
    return out


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command(capsys: Said, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = help_of(capsys, command)
    options = text[: text.index("SOURCE is a file")]
    assert max(map(len, text.splitlines())) <= 80
    for action in subparser(command)._actions:
        assert action.help
        for name in action.option_strings or [str(action.metavar)]:
            assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", options), name
    found = examples_in(text)
    assert len(found) >= 2
    for example in found:
        assert parser().parse_args(example).run.__name__ == command


@pytest.mark.parametrize("command", COMMANDS)
def test_the_examples_work(tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """Those of the help, and those that go with the errors about each option."""
    commands = examples_in(help_of(capsys, command))
    assert commands == [shlex.split(c) for c in EXAMPLES[command]]
    for action in subparser(command)._actions:
        if action.dest != "help":
            show_example(command, action.dest)
            (example,) = examples_in(capsys.readouterr().err)
            assert action.dest == "sources" or set(action.option_strings) & set(example)
            commands.append(example)

    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("indexes").mkdir()
    np.savez("train.npz", x=np.zeros((10, 3), "float32"), y=np.arange(10))
    np.savez("images.npz", image=np.zeros((10, 2, 2), "uint8"), label=np.arange(10))
    np.save("data/labels.npy", np.arange(10, dtype="uint8"))
    Path("data.raw").write_bytes(bytes(2 * 28 * 28))
    for source, target in (
        ("images.npz", "train.recordio"),
        ("images.npz", "data/0.tfrecord"),
        ("images.npz", "data/0.tfrecord.gz"),
        ("data/labels.npy", "idx:train-images"),
        ("data/labels.npy", "train.csv"),
        ("data/labels.npy", "train.csv.gz"),
        ("data/labels.npy", "train-0.csv"),
    ):
        names = ["--names", "y"] if ".csv" in target else []
        assert main(["convert", source, "-o", target, *names]) == 0
    for words in commands:
        assert main(words) == 0, (words, capsys.readouterr().err)


def test_the_help_of_all_commands(capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = help_of(capsys)
    assert max(map(len, text.splitlines())) <= 80
    assert [example[0] for example in examples_in(text)] == COMMANDS
    for command in COMMANDS:
        assert re.search(rf"^    {command} +[A-Z].*", text, re.MULTILINE)
    assert "--help" in text
    assert "--version" in text


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True

    def shown(self) -> list[str]:
        """The lines that a terminal shows, on which a carriage return begins the line again."""
        lines = []
        for line in self.getvalue().removesuffix("\n").split("\n"):
            shown = ""
            for part in line.split("\r"):
                shown = part + shown[len(part) :]
            lines.append(shown.rstrip())
        return lines


def use_terminal(monkeypatch: pytest.MonkeyPatch, columns: int = 80) -> Terminal:
    """Make standard error a terminal."""
    stream = Terminal()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stderr", stream)  # not in a fixture: pytest would replace it again
    return stream


# Command lines that fail, and the option of their example.
WRONG: list[tuple[str, str | None]] = [
    ("", None),
    ("unheard", None),
    ("convert a.npz", None),
    ("inspect", None),
    ("verify a.npz --nonsense", None),
    ("convert a.npz -o", "-o"),
    ("convert a.npz -o b.npz --shuffle x", "--shuffle"),
    ("convert a.npz -o b.npz --seed 3.5", "--seed"),
    ("convert a.npz -o b.npz --on-corrupt perhaps", "--on-corrupt"),
    ("convert a.npz -o b.npz --threads 99999999999999999999", "--threads"),
    ("convert a.npz -o b.npz --shard-records -1", "--shard-records"),
    ("inspect a.npz --records -2", "--records"),
    ("inspect a.npz --option x", "--option"),
    ("verify a.npz --slots [", "--slots"),
    ("inspect a.npz --option color=red", "--option"),
    ("convert a.npz -o b.npz --option color=red", "--option"),
    ("convert a.npz -o b.npz --to-option color=red", "--to-option"),
    ("convert a.npz -o b.npz --to-option color", "--to-option"),
    ("inspect a.npz --format unheard", "--format"),
    ("convert a.npz -o b.npz --to unheard", "--to"),
    ("convert a.npz -o b.unheard", "--to"),
    ("convert a.npz -o b.unheard --shard-records 3", "--to"),
    ("convert a.unheard -o b.npz", "--format"),
    ("inspect a.npz --compression best", "--compression"),
    ("inspect a.raw", "--slots"),
    ("inspect --format tfrecord a.raw --option 'features=[\"x\"]'", "--option"),
    ("convert a.npz -o b.tfrecord --to-option 'features={\"x\": 3}'", "--to-option"),
    ("convert a.npz -o b.npz --names x", "--names"),
    ("convert a.npz -o b.npy", None),
    ("inspect nothing*.npy", None),
]


def fails(capsys: Said, line: str) -> str:
    """What a command line that is wrong prints on standard error, which is not always capsys's."""
    with pytest.raises(SystemExit) as caught:  # of the parser, or this one
        sys.exit(main(shlex.split(line)))
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize(("line", "option"), WRONG)
def test_errors(tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch, line: str, option: str | None) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    table(Path("a.npz"))
    Path("a.raw").touch()
    Path("a.unheard").write_bytes(b"unheard of")

    # To a file, a message is one line, which can be searched for.
    message, *rest = fails(capsys, line).splitlines()
    assert message.startswith("pyfeed: ")
    assert "attributes: " not in message
    command = line.partition(" ")[0] if line.partition(" ")[0] in COMMANDS else ""
    assert rest[-1] == f"help:    python -m pyfeed {command + ' ' if command else ''}--help"
    (example,) = examples_in("\n".join(rest))
    assert parser().parse_args(example).run.__name__ == (command or "convert")
    if option is not None:
        assert option in example
        assert re.search(rf"{option}\b", message) or "suffix of a format" in message

    # On a terminal, the same is folded.
    terminal = use_terminal(monkeypatch)
    fails(capsys, line)
    shown = terminal.shown()
    assert max(map(len, shown)) <= 80
    assert " ".join(" ".join(shown[: -len(rest)]).split()) == " ".join(message.split())
    assert shown[-len(rest) :] == rest


def test_errors_about_files_have_no_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch, columns=40)
    path = tmp_path / f"{'long' * 20} name.npy"
    assert main(["inspect", str(path)]) == 2
    # A word is not broken, even if the line is too short for it.
    assert terminal.shown() == ["pyfeed:", f"  {path.parent / ('long' * 20)}", "  name.npy: no such file or directory"]


def test_the_output_ends_when_nothing_reads_it(tmp_path: Path) -> None:
    for i in range(300):
        np.save(tmp_path / f"{i:03d}-{'x' * 200}.npy", np.zeros(2))
    command = f"{shlex.quote(sys.executable)} -m pyfeed inspect {tmp_path}; echo status $? >&2"
    done = subprocess.run(["sh", "-c", f"({command}) | head -n 1"], capture_output=True, text=True)
    assert done.stdout.startswith(f"{tmp_path / '000'}")
    assert done.stderr == "status 141\n"


# ---- Progress ----


@pytest.fixture(params=["tqdm", "plain"])
def progress(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether tqdm is installed. Each record updates the progress."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(Progress, "INTERVAL", 0.0)
    if request.param == "plain":
        monkeypatch.setitem(sys.modules, "tqdm", None)
    return str(request.param)


def shares(err: str) -> list[int]:
    return [int(n) for n in re.findall(r"(\d+) ?%", err)]


def test_progress_in_records(tmp_path: Path, capsys: Said, progress: str) -> None:
    table(tmp_path / "a.npz")
    assert main(["convert", str(tmp_path / "a.npz"), "-o", str(tmp_path / "b.recordio"), "--progress"]) == 0
    out, err = said(capsys)
    assert out == ["10 records, 200 bytes, 1 file written"]
    last = re.split("[\r\n]+", err)[-2]
    if progress == "tqdm":
        assert re.fullmatch(r"convert: 100%\|.*\| 10/10 \[.* records/s, \d+ MB/s\]", last)
    else:
        assert re.fullmatch(r"convert: 100 %, 10 records, \d+ MB/s", last)
    assert set(range(10, 101, 10)) <= set(shares(err))
    assert shares(err) == sorted(shares(err))
    assert max(map(len, re.split("[\r\n]", err))) < 80


@pytest.mark.parametrize("command", COMMANDS[:3])
def test_progress_in_bytes_of_files(tmp_path: Path, capsys: Said, progress: str, command: str) -> None:
    with open_writer(tmp_path / "a.tfrecord") as a, open_writer(tmp_path / "b.tfrecord.gz") as b:
        for _ in range(10):
            a.write((bytes(84),))  # 100 bytes in the file
            b.write((bytes(84),))
    whole, packed = str(tmp_path / "a.tfrecord"), str(tmp_path / "b.tfrecord.gz")
    output = ["-o", str(tmp_path / "c.tfrecord")] if command == "convert" else []
    assert main([command, whole, *output, "--progress"]) == 0
    err = said(capsys)[1]
    for k in range(1, 11):
        assert any(abs(n - 8.4 * k) <= 1 for n in shares(err))
    assert shares(err) == sorted(shares(err))
    assert shares(err)[-1] == 100
    assert "10 records" in re.split("[\r\n]+", err)[-2]

    # How much of a compressed file was read is not known before its end.
    assert main([command, packed, *output, "--progress"]) == 0
    err = said(capsys)[1]
    assert set(shares(err)) <= (set() if command == "convert" else {0, 100})
    assert "10 records" in err.replace("10 [", "10 records [")


def test_progress_and_output_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, progress: str) -> None:
    terminal = use_terminal(monkeypatch)
    monkeypatch.setattr(sys, "stdout", terminal)
    for i in range(3):
        np.save(tmp_path / f"{i}.npy", np.zeros((5, 2)))
    assert main(["inspect", str(tmp_path)]) == 0
    shown = terminal.shown()
    slot = f"  slot 0 -: float64 (2,), shapes (2,), 80 bytes, CRC-32 {crc32(bytes(80)):08x}"
    expected = [[f"{tmp_path / f'{i}.npy'}: npy, 208 bytes, 5 records", slot] for i in range(3)]
    assert shown[:-1] == list(itertools.chain(*expected))
    assert shown[-1].startswith("inspect: 100")


def test_no_progress_of_what_fails_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, progress: str) -> None:
    terminal = use_terminal(monkeypatch)
    (tmp_path / "a.npy").write_bytes(b"nothing of the kind")
    assert main(["inspect", str(tmp_path / "a.npy")]) == 1
    assert terminal.shown()[0].startswith("pyfeed:")
    assert not [line for line in terminal.shown() if line.startswith("inspect")]


@pytest.mark.parametrize("flags", [[], ["--no-progress"]])
def test_progress_on_a_terminal_only(tmp_path: Path, flags: list[str]) -> None:
    np.save(tmp_path / "a.npy", np.zeros((5, 2)))
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "pyfeed", "verify", str(tmp_path / "a.npy"), *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=slave, text=True, env={**os.environ, "COLUMNS": "80"})
    os.write(slave, b"the end\n")
    err = ""
    while "the end" not in err:
        err += os.read(master, 1 << 16).decode()
    os.close(slave)
    os.close(master)
    assert (done.returncode, done.stdout) == (0, "1 file, 5 records, 0 damaged\n")
    assert ("verify: 100%" in err) == (not flags)
    assert (err == "the end\r\n") == bool(flags)
    # Standard error of the other tests is no terminal: nothing is shown there.


# ---- inspect ----


def test_inspect(tmp_path: Path, capsys: Said) -> None:
    table(tmp_path / "a.npz")
    with open_writer(tmp_path / "b.tfrecord") as writer:
        for record in (b"123456789", b"", b"abc"):
            writer.write((record,))
    npz, tfrecord = tmp_path / "a.npz", tmp_path / "b.tfrecord"
    assert main(["inspect", str(npz), str(tfrecord)]) == 0
    x, record = np.load(npz)["x"].tobytes(), b"123456789abc"
    assert said(capsys) == (
        [
            f"{npz}: npz, {npz.stat().st_size} bytes, 10 records",
            f"  slot 0 x: float32 (3,), shapes (3,), 120 bytes, CRC-32 {crc32(x):08x}",
            f"  slot 1 y: int64 (), shapes (), 80 bytes, CRC-32 {crc32((np.arange(10) * 7).tobytes()):08x}",
            f"{tfrecord}: tfrecord, 60 bytes, 3 records",
            f"  slot 0 record: uint8 (-1,), LoD levels 1, shapes (0..9,), 12 bytes, CRC-32 {crc32(record):08x}",
        ],
        "",
    )
    assert main(["inspect", "--records", "1", f"tfrecord:{tfrecord}"]) == 0
    assert said(capsys)[0] == [
        f"{tfrecord}: tfrecord, 60 bytes, 1 record looked at",
        "  slot 0 record: uint8 (-1,), LoD levels 1, shapes (9,), 9 bytes, CRC-32 cbf43926",
    ]


def test_inspect_nothing(tmp_path: Path, capsys: Said) -> None:
    np.save(tmp_path / "a.npy", np.zeros((0, 2)))
    assert main(["inspect", str(tmp_path / "a.npy")]) == 0
    assert said(capsys)[0] == [f"{tmp_path / 'a.npy'}: npy, 128 bytes, 0 records", "  slot 0 -: float64 (2,)"]


def examples(path: Path, *names: str) -> tuple[Any, ...]:
    """Two records of three features with these names."""
    rows = [(b"jpeg", np.int64(480), np.arange(8, dtype="float32")), (b"png", np.int64(0), np.zeros(8, "float32"))]
    with open_writer(path, format="tfrecord", names=names) as writer:
        for row in rows:
            writer.write(row)
    return rows[0]


@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord.gz", "tfrecord:a"])
def test_inspect_finds_the_features_of_examples(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path(name.removeprefix("tfrecord:"))
    image, height, weights = examples(path, "image_raw", "height", "weights")
    for flags in ([], ["--records", "1"], ["--option", "features=null"]):
        assert main(["inspect", name, *flags]) == 0
        out, err = said(capsys)
        assert (len(out), err) == (3, "")
        assert out[1].startswith("  slot 0 record: uint8 (-1,), LoD levels 1, shapes ")
        assert out[2] == (
            '  features={"height": "int64", "image_raw": "bytes", "weights": {"dtype": "float32", "shape": [8]}}'
            "  (of the first record)"
        )

    # The line is an argument in Python, and an option of the command line.
    given = out[2].strip().removesuffix("  (of the first record)")
    reader = eval(f"pyfeed.open_tfrecord({str(path)!r}, {given})", {"pyfeed": pyfeed})
    height_found, image_found, weights_found = reader.read()
    same(height_found, np.asarray(height))
    same(weights_found, weights)
    assert image_found.bytes_list() == [image]
    assert main(["inspect", name, "--option", given]) == 0
    out, err = said(capsys)
    assert (len(out), err) == (4, "")
    assert [line.split(":")[0] for line in out[1:]] == ["  slot 0 height", "  slot 1 image_raw", "  slot 2 weights"]


def test_inspect_finds_features_that_may_be_arrays(tmp_path: Path, capsys: Said) -> None:
    path = tmp_path / "a.tfrecord"
    with open_writer(path, names=["image", "jpeg", "label", "name", 'mask "é"']) as writer:
        for i in range(25):
            jpeg = b"\xff\xd8" + bytes(20 + i)
            mask = bytes(784 if i < 20 else 5)  # only the first records are compared
            writer.write((bytes(784), jpeg, np.int64(i), f"item {i:02d}", mask))
    for flags, count in ([], 20), (["--records", "3"], 3):
        assert main(["inspect", str(path), *flags]) == 0
        out, err = said(capsys)
        assert err == ""
        assert out[3:] == [
            f"  These features have bytes of the same size in the first {count} records. If they",
            "  are the memory of an array, give its dtype and shape, such as (Python: True)",
            '    "image": {"dtype": "uint8", "shape": [784], "raw": true}',
            '    "mask \\"é\\"": {"dtype": "uint8", "shape": [784], "raw": true}',
        ]
        assert max(map(len, out[3:])) <= 80
    given = f"features={{{out[5].strip()}}}"
    assert main(["inspect", str(path), "--option", given]) == 0
    assert "slot 0 image: uint8 (784,), shapes (784,)" in said(capsys)[0][1]

    # One record has nothing to be compared with.
    assert main(["inspect", str(path), "--records", "1"]) == 0
    assert len(said(capsys)[0]) == 3


def test_inspect_prints_what_is_before_damage(tmp_path: Path, capsys: Said) -> None:
    path = tmp_path / "a.tfrecord"
    examples(path, "image", "height", "weights")
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    for flags in (["--records", "2"], []):
        assert main(["inspect", str(path), *flags]) == 1
        out, err = said(capsys)
        assert out[0] == f"{path}: tfrecord, {len(whole) - 5} bytes, 1 record before the error"
        assert out[1].startswith("  slot 0 record: uint8 (-1,), LoD levels 1, shapes ")
        assert out[2].startswith('  features={"height": "int64", "image": "bytes", ')
        assert len(out) == 3
        assert err.startswith(f"pyfeed: {path}, byte ")
        assert err.endswith("of their CRC, found the end of the file after 85: the record is truncated\n")

    # The first records are whole.
    assert main(["inspect", str(path), "--records", "1"]) == 0
    assert said(capsys)[0][0].endswith("1 record looked at")

    # The output comes before the error, also in a file of both.
    command = [sys.executable, "-m", "pyfeed", "inspect", str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert (done.stdout.splitlines(), done.returncode) == ([*out, err.strip()], 1)

    # Nothing is known of a file whose first record is damaged.
    path.write_bytes(whole[:100])
    assert main(["inspect", str(path)]) == 1
    assert said(capsys)[0] == []


def test_inspect_prints_what_is_before_a_record_that_does_not_match(tmp_path: Path, capsys: Said) -> None:
    path = tmp_path / "a.tfrecord"
    with open_writer(path, names=["height"]) as writer:
        for height in (7, 480):
            writer.write((np.int64(height),))
    assert main(["inspect", str(path), "--option", 'features={"height": "int8"}']) == 2
    out, err = said(capsys)
    assert out[0].endswith(", 1 record before the error")
    assert out[1].startswith("  slot 0 height: int8 (), shapes (), 1 bytes, CRC-32 ")
    assert len(out) == 2
    assert err.endswith(
        'record 1: slot 0: feature "height": value 0: expected a value that fits into int8, found 480\n'
    )


def test_inspect_escapes_the_names_of_features(tmp_path: Path, capsys: Said) -> None:
    names = ("größe", 'a "b"\\c', "\n\x1b[31m\x85\u202e\U000e0001")
    examples(tmp_path / "a.tfrecord", *names)
    assert main(["inspect", str(tmp_path / "a.tfrecord")]) == 0
    line = said(capsys)[0][2]
    assert line.isprintable()
    assert "größe" in line
    features = ast.literal_eval(line.strip().removeprefix("features=").removesuffix("(of the first record)").strip())
    assert set(features) == set(names)
    assert len(pyfeed.open_tfrecord(tmp_path / "a.tfrecord", features=features).read()) == 3


def test_inspect_prints_features_of_tfrecord_only(tmp_path: Path, capsys: Said) -> None:
    """An Example may be in a file of another format, and a TFRecord file may have records of any bytes, or none."""
    examples(tmp_path / "a.tfrecord", "x", "y", "z")
    (example, *_) = next(iter(open_files(tmp_path / "a.tfrecord")))[0].bytes_list()
    no_records: list[bytes] = []
    for name, records in (
        ("b.recordio", [example]),
        ("c.tfrecord", [b"text"]),
        ("d.tfrecord", [b""]),
        ("e.tfrecord", no_records),
    ):
        with open_writer(tmp_path / name, shapes=[(-1,)], dtypes=["uint8"], lod_levels=[1]) as writer:
            for record in records:
                writer.write((record,))
        assert main(["inspect", str(tmp_path / name)]) == 0
        out, err = said(capsys)
        assert (len(out), err) == (2, "")


# ---- verify ----


def damaged(path: Path, *places: int) -> None:
    """Six records in chunks of 28 bytes each, some with a wrong byte."""
    with open_writer(path, layout="go", compression="none", records_per_chunk=1) as writer:
        for i in range(6):
            writer.write((b"rec%d" % i,))
    data = bytearray(path.read_bytes())
    assert len(data) == 6 * 28
    for place in places:
        data[28 * place + 25] ^= 1
    path.write_bytes(data)


def test_verify(tmp_path: Path, capsys: Said) -> None:
    damaged(tmp_path / "a.recordio")
    damaged(tmp_path / "b.recordio", 1, 4)
    a, b = str(tmp_path / "a.recordio"), str(tmp_path / "b.recordio")
    assert main(["verify", a]) == 0
    assert said(capsys) == (["1 file, 6 records, 0 damaged"], "")
    assert main(["verify", str(tmp_path)]) == 1
    out, err = said(capsys)
    assert err == ""
    assert [line.partition(": checksum of a chunk: expected ")[0] for line in out] == [
        f"{b}, byte 28, record 1",
        f"{b}, byte 112, about record 3",  # how many were in the damaged chunk is not known
        f"{b}: 4 whole records, 2 damaged places",
        "2 files, 10 records, 1 damaged",
    ]


def test_verify_a_file_without_an_end(tmp_path: Path, capsys: Said) -> None:
    damaged(tmp_path / "a.recordio")
    whole = (tmp_path / "a.recordio").read_bytes()
    (tmp_path / "a.recordio").write_bytes(whole[:-1])
    assert main(["verify", str(tmp_path / "a.recordio")]) == 1
    out, _ = said(capsys)
    assert out[0].startswith(f"{tmp_path / 'a.recordio'}, byte 140, record 5: ")
    assert out[1:] == [
        f"{tmp_path / 'a.recordio'}: 5 whole records, 1 damaged place",
        "1 file, 5 records, 1 damaged",
    ]


def test_verify_what_is_of_no_format(tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "a.npy").write_bytes(b"nothing of the kind")
    assert main(["verify", str(tmp_path / "a.npy")]) == 1
    out, err = said(capsys)
    assert out[0].startswith(f"{tmp_path / 'a.npy'}, byte 0")
    assert (out[1:], err) == (["1 file, 0 records, 1 damaged"], "")


def test_verify_what_is_not_there(tmp_path: Path, capsys: Said) -> None:
    for command in ("verify", "inspect"):
        assert main([command, str(tmp_path / "a.npy")]) == 2
        assert said(capsys) == ([], f"pyfeed: {tmp_path / 'a.npy'}: no such file or directory\n")


def test_verify_goes_on_after_what_cannot_be_read(tmp_path: Path, capsys: Said) -> None:
    """Nobody says what is in a raw file; what is in the others is verified all the same."""
    (tmp_path / "a.raw").write_bytes(b"1234")
    damaged(tmp_path / "b.recordio", 3)
    assert main(["verify", str(tmp_path / "a.raw"), str(tmp_path / "b.recordio")]) == 2
    out, err = said(capsys)
    assert err.startswith("pyfeed: ")
    assert "a.raw" in err
    assert out[-1] == "2 files, 5 records, 1 damaged, 1 not verified"


# ---- index ----


def test_index(tmp_path: Path, capsys: Said) -> None:
    for i, n in enumerate([3, 1, 7]):
        with pyfeed.open_writer(tmp_path / f"{i}.recordio", shapes=[(2,)], dtypes=["float32"]) as writer:
            for _ in range(n):
                writer.write((np.zeros(2, np.float32),))
    assert main(["index", str(tmp_path), "--threads", "2"]) == 0
    counts = ["3 records", "1 record", "7 records"]
    lines = [f"{tmp_path}/{i}.recordio: {count}" for i, count in enumerate(counts)]
    assert said(capsys) == ([*lines, "3 files, 11 records"], "")
    assert sorted(f.name for f in tmp_path.glob(".*")) == [f".{i}.recordio.pfindex" for i in range(3)]
    (tmp_path / "there").mkdir()
    assert main(["index", str(tmp_path / "0.recordio"), "--index-dir", str(tmp_path / "there")]) == 0
    assert len(list((tmp_path / "there").glob(".0.recordio-*.pfindex"))) == 1


def test_index_of_what_is_converted(tmp_path: Path, capsys: Said) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(20, dtype="float32").reshape(10, 2), y=np.arange(10))
    source, out = str(tmp_path / "a.npz"), str(tmp_path / "b.recordio")
    assert main(["convert", source, "-o", out, "--index", "--shard-records", "4"]) == 0
    assert sorted(f.name for f in tmp_path.glob(".*")) == [f".b-0000{i}.recordio.pfindex" for i in range(3)]
    assert main(["convert", source, "-o", str(tmp_path / "c.csv.gz"), "--index"]) == 2
    assert "--index: expected an output that is not compressed" in said(capsys)[1]
    assert not (tmp_path / "c.csv.gz").exists()
    for target in ("c.raw", "c.csv", "c.npz"):
        assert main(["convert", source, "-o", str(tmp_path / target), "--index", "--names", "x,y"]) == 0
    assert said(capsys)[1] == ""


def test_index_of_damage(tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "a.csv").write_text("x\n1\ny\n3\n")
    slots = '[{"dtype": "int64", "name": "x"}]'
    command = ["index", str(tmp_path / "a.csv"), "--slots", slots]
    assert main(command) == 1
    assert "a.csv, byte 4, record 1: " in said(capsys)[1]
    assert main([*command, "--on-corrupt", "skip"]) == 0
    assert said(capsys)[0][-1] == "1 file, 2 records"
    assert main(command) == 1
    assert "index: expected no damage, found 1 damaged places when the index was made" in said(capsys)[1]
