"""JSON Lines: the values that Python's json module finds, and what users of the options meet."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyfeed import LoDTensor, errors, open_jsonl, open_writer

WORDS = [
    "",
    "a",
    "é",
    "東京",
    "𝄞",
    '"quoted"',
    "back\\slash",
    "line\nend\r\n",
    "\x00\x1f\x7f",
    "tab\t",
    "/",
    "<script>\u2028",
    "x" * 300,
]


def records(count: int) -> list[dict[str, Any]]:
    rng = random.Random(7)
    return [
        {
            "id": rng.randint(-(2**63), 2**63 - 1),
            "big": rng.randint(0, 2**64 - 1),
            "x": rng.choice([rng.gauss(0, 1), rng.random() * 10 ** rng.randint(-300, 300), 0.1, -0.0]),
            "text": "".join(rng.choices(WORDS, k=rng.randint(0, 5))),
            "ok": rng.random() < 0.5,
            "tokens": [rng.randint(0, 50_000) for _ in range(rng.randint(0, 20))],
            "matrix": [[rng.gauss(0, 1) for _ in range(rng.randint(0, 3))] for _ in range(rng.randint(0, 3))],
            "words": rng.choices(WORDS, k=rng.randint(0, 4)),
            "meta": {"a.b": {"c": [1, {"d": rng.randint(0, 9)}]}, "other": None},
        }
        for _ in range(count)
    ]


@pytest.mark.parametrize("ensure_ascii", [False, True])
@pytest.mark.parametrize("suffix", ["jsonl", "ndjson", "jsonl.gz"])
def test_the_values_are_those_of_the_json_module(tmp_path: Path, suffix: str, ensure_ascii: bool) -> None:
    written = records(300)
    text = "".join(json.dumps(one, ensure_ascii=ensure_ascii) + "\n" for one in written).encode()
    path = tmp_path / f"a.{suffix}"
    if suffix.endswith(".gz"):
        text = gzip.compress(text)
    path.write_bytes(text)
    columns = ["id", "big", "x", "text", "ok", "tokens", "matrix", "words", "/meta/a.b/c/1/d"]
    for io in ("read", "auto"):
        reader = open_jsonl(path, columns=columns, io=io)
        assert [slot.name for slot in reader.slots] == columns
        found = list(reader)
        assert len(found) == len(written)
        for one, row in zip(written, found, strict=True):
            assert row[0].item() == one["id"]
            assert row[1].item() == one["big"]
            assert row[2].item().hex() == one["x"].hex()
            assert row[3].bytes_list() == [one["text"].encode()]
            assert row[4].dtype == bool
            assert row[4].item() == one["ok"]
            assert row[5].sequences()[0].tolist() == one["tokens"]
            assert [inner.tolist() for inner in row[6].sequences()[0].sequences()] == one["matrix"]
            assert row[7].bytes_list() == [word.encode() for word in one["words"]]
            assert row[8].item() == one["meta"]["a.b"]["c"][1]["d"]


def test_batches_of_lists(tmp_path: Path) -> None:
    written = records(40)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in written))
    ((tokens, label),) = open_jsonl(
        tmp_path / "a.jsonl", columns={"t": "tokens", "y": "ok"}, column_dtypes={"tokens": "uint16"}
    ).batch(40)
    assert tokens.dtype == np.uint16
    assert [one.tolist() for one in tokens.sequences()] == [one["tokens"] for one in written]
    assert label.tolist() == [one["ok"] for one in written]


def test_files_that_are_written_are_those_of_the_json_module(tmp_path: Path) -> None:
    floats = [0.0, -0.0, 1.0, 0.1, 1e22, 5e-324, 1.7976931348623157e308, 123456789.125]
    with open_writer(tmp_path / "a.jsonl", names=["x", "text", "tokens", "image"]) as writer:
        for x, text in zip(floats, WORDS, strict=False):
            tokens = LoDTensor(np.arange(len(text), dtype="int32"), [[0, len(text)]])
            writer.write((np.float64(x), text, tokens, np.arange(4, dtype="uint8").reshape(2, 2)))
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    for line, x, text in zip(lines, floats, WORDS, strict=False):
        found = json.loads(line)
        assert list(found) == ["x", "text", "tokens", "image"]
        assert found["x"].hex() == x.hex()
        assert (found["text"], found["tokens"], found["image"]) == (text, list(range(len(text))), [[0, 1], [2, 3]])
    for x in (float("nan"), float("inf")):
        numbers = r"slot 0: jsonl: expected numbers that JSON has, found (NaN|Infinity)"
        with pytest.raises(errors.InvalidArgument, match=numbers), open_writer(tmp_path / "b.jsonl") as writer:
            writer.write((np.float32(x),))
    invalid = r"expected text in UTF-8, found the byte 0xff at position 1 of 2"
    with pytest.raises(errors.InvalidArgument, match=invalid), open_writer(tmp_path / "b.jsonl") as writer:
        writer.write((b"a\xff",))
    assert not (tmp_path / "b.jsonl").exists()


def test_damage_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 1}\n\n{"x": 2, "y": [1, }\n{"x": 3}\n{"x": NaN}\n')
    reader = open_jsonl(path, columns=["x"])
    with pytest.raises(errors.CorruptRecordError, match=r"line 3: expected a value, found '}'") as caught:
        list(reader)
    assert (caught.value.file, caught.value.record, caught.value.offset) == (str(path), 1, 28)
    reader = open_jsonl(path, columns=["x"], on_corrupt="skip")
    assert [x.item() for (x,) in reader] == [1, 3]
    assert [entry["record"] for entry in reader.stats()["details"]["ledger"]] == [1, 3]


def test_options_that_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": {"b": 1}, "t": "x"}\n{"a": {"b": null}, "t": "y"}\n')
    options: Any
    for options, message in (
        (
            {},
            r'found an object, \{"b": 1\} in line 1: select values in it by their paths, such as "a.name"',
        ),
        ({"columns": ["a.c"]}, r'expected a value in column "a.c" within the first MiB'),
        (
            {"columns": ["a.b"], "column_dtypes": {"a.d": "int8"}},
            r'dtypes: expected .*, found "a.d": did you mean "a.b"\?',
        ),
        ({"columns": [{"columns": "t", "dtype": "str"}]}, r'did you mean "bytes"\?'),
        ({"column": ["t"]}, r"found 'column': did you mean 'columns'\?"),
    ):
        with pytest.raises(ValueError if "bytes" not in message else errors.DTypeError, match=message):
            open_jsonl(path, **options)
    reader = open_jsonl(path, columns=["a.b"])
    with pytest.raises(errors.InvalidArgument, match=r'column "a.b": expected a number of int64, found null or none'):
        list(reader)
    assert [x.item() for (x,) in open_jsonl(path, columns=["a.b"], default=-5)] == [1, -5]
    (json_text,) = open_jsonl(path, columns=[{"columns": "a", "dtype": "json"}]).batch(2).read()
    assert json_text.bytes_list() == [b'{"b": 1}', b'{"b": null}']


def test_records_by_number(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"x": {i}}}\n' + "\n" * (i % 7 == 0) for i in range(100)))
    reader = open_jsonl(path, index=True)
    assert len(reader) == 100
    assert [reader[i][0].item() for i in (99, 0, 50)] == [99, 0, 50]
    found = [x.item() for (x,) in open_jsonl(path, index=True, shuffle_records=3)]
    assert sorted(found) == list(range(100))
    assert found != list(range(100))


def test_a_position_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(f'{{"x": "{i}\\n"}}' for i in range(100)))
    reader = open_jsonl(path).shuffle(16, 5).batch(4)
    first = [reader.read()[0].bytes_list() for _ in range(9)]
    state = reader.state_dict()
    rest = [x.bytes_list() for (x,) in reader]
    other = open_jsonl(path).shuffle(16, 5).batch(4)
    other.load_state_dict(state)
    assert [x.bytes_list() for (x,) in other] == rest
    assert sum(map(len, first + rest)) == 100
