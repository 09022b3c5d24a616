"""The command line: convert, inspect and verify."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from pyfeed.__main__ import main

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
FORMATS: dict[str, tuple[list[str], list[str]]] = {
    "npz": ([], []),
    "recordio": (["--to-option", "compression=snappy"], []),
    "tfrecord": (["--names", "x,y"], ["--option", f"features={FEATURES}"]),
    "csv": (["--names", "x,y"], ["--option", f"columns={COLUMNS}"]),
    "tsv": (["--names", "x,y"], ["--option", f"columns={COLUMNS}"]),
    "tar": (["--names", "npy,cls"], ["--option", 'fields=["npy","cls"]']),
    "raw": ([], ["--slots", SLOTS]),
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


@pytest.mark.parametrize("target", ["npy", "csv", "recordio", "tfrecord", "idx"])
def test_nothing_to_convert(tmp_path: Path, capsys: Said, target: str) -> None:
    np.save(tmp_path / "a.npy", np.zeros((0, 2), "float32"))
    out = tmp_path / f"b.{target}"
    assert main(["convert", str(tmp_path / "a.npy"), "-o", str(out), "--names", "x"]) == 0
    assert said(capsys) == (["0 records, 0 bytes, 1 file written"], "")
    tells = target not in ("csv", "recordio")  # what would have been in it
    assert list(open_files(out) if tells else open_files(out, shapes=[(2,)], dtypes=["float32"])) == []
    if target == "npy":
        same(np.load(out), np.zeros((0, 2), "float32"))


def test_progress_if_asked_for(tmp_path: Path, capsys: Said) -> None:
    table(tmp_path / "a.npz")
    assert main(["convert", str(tmp_path / "a.npz"), "-o", str(tmp_path / "b.recordio"), "--progress"]) == 0
    assert main(["verify", str(tmp_path / "b.recordio"), "--progress"]) == 0
    out, err = said(capsys)
    assert out == ["10 records, 200 bytes, 1 file written", "1 file, 10 records, 0 damaged"]
    first, second = err.splitlines()[-1], err
    assert "\rconvert: 10 records, " in second
    assert "verify: 1/1 files, 10 records, " in first


# A format whose reader waits for what never comes.
ENDLESS = (
    PREAMBLE
    + """
from pyfeed.__main__ import main
reached, never = threading.Event(), threading.Event()

@pyfeed.register_format("endless", [".endless"], shapes=[(2,)], dtypes=["float64"])
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
        "1 damaged place skipped: see pyfeed verify\n",
    )
    assert [x.bytes_list() for (x,) in open_files(tmp_path / "b.tfrecord")] == [[b"rec%d" % i] for i in (0, 1, 3, 4, 5)]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--option", "x"], "option: expected name=value, found 'x'"),
        (["--slots", "["], "slots: expected JSON such as"),
        (["--slots", "3"], "slots: expected JSON such as"),
        (["--option", "colour=red"], "colour"),
        (["--format", "unheard"], "unheard"),
        (["--compression", "best"], "best"),
    ],
)
def test_arguments_that_are_refused(tmp_path: Path, capsys: Said, arguments: list[str], why: str) -> None:
    table(tmp_path / "a.npz")
    for command in (["convert", "-o", str(tmp_path / "b.npz")], ["inspect"], ["verify"]):
        assert main([*command, str(tmp_path / "a.npz"), *arguments]) == 2
        assert why in said(capsys)[1]


def test_a_command_line_that_is_none(capsys: Said) -> None:
    for arguments in ([], ["convert", "x"], ["convert", "x", "-o", "y", "--shuffle", "-1"], ["unheard"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
    assert "expected at least 0, found -1" in said(capsys)[1]
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert (caught.value.code, said(capsys)[0]) == (0, [pyfeed.__version__])


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
        f"{tfrecord}: tfrecord, 60 bytes, 1 records looked at",
        "  slot 0 record: uint8 (-1,), LoD levels 1, shapes (9,), 9 bytes, CRC-32 cbf43926",
    ]


def test_inspect_nothing(tmp_path: Path, capsys: Said) -> None:
    np.save(tmp_path / "a.npy", np.zeros((0, 2)))
    assert main(["inspect", str(tmp_path / "a.npy")]) == 0
    assert said(capsys)[0] == [f"{tmp_path / 'a.npy'}: npy, 128 bytes, 0 records", "  slot 0 -: float64 (2,)"]


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
