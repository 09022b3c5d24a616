"""SequenceExamples: written by the package tfrecord, and read by it, with the messages of protobuf."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tfrecord
from pyfeed.__main__ import main
from pyfeed._example_features import describe_example
from tfrecord import example_pb2

from pyfeed import LoDTensor, errors, open_tfrecord, open_writer

FEATURES: dict[str, Any] = {
    "id": "int64",
    "frames": {"dtype": "float32", "shape": 3, "part": "feature_lists"},
    "labels": {"dtype": "int32", "kind": "variable", "part": "feature_lists"},
    "words": {"dtype": "bytes", "part": "feature_lists"},
}


def record(i: int) -> tuple[dict[str, Any], dict[str, Any]]:
    rng = random.Random(i)
    steps = rng.randint(0, 5)
    lists = {
        "frames": ([[rng.randint(-9, 9) / 4 for _ in range(3)] for _ in range(steps)], "float"),
        "labels": ([[rng.randint(-99, 99) for _ in range(rng.randint(0, 3))] for _ in range(steps)], "int"),
        "words": ([[bytes(rng.choices(b"abc", k=rng.randint(0, 4)))] for _ in range(steps)], "byte"),
    }
    return {"id": (i, "int")}, lists


def write(path: Path, count: int) -> None:
    writer = tfrecord.TFRecordWriter(str(path))
    for i in range(count):
        writer.write(*record(i))
    writer.close()


def check(row: Any, i: int) -> None:
    lists = record(i)[1]
    assert row[0].item() == i
    assert row[1].sequences()[0].tolist() == lists["frames"][0]
    assert [step.tolist() for step in row[2].sequences()[0].sequences()] == lists["labels"][0]
    assert row[3].bytes_list() == [step[0] for step in lists["words"][0]]


def test_what_tfrecord_writes_is_read(tmp_path: Path) -> None:
    write(tmp_path / "a.tfrecord", 200)
    for num_threads in (0, 2):
        rows = list(open_tfrecord(tmp_path / "a.tfrecord", features=FEATURES, num_threads=num_threads))
        assert len(rows) == 200
        for i, row in enumerate(rows):
            check(row, i)
    slots = open_tfrecord(tmp_path / "a.tfrecord", features=FEATURES).slots
    assert [(slot.shape, slot.lod_levels) for slot in slots] == [((), 0), ((-1, 3), 1), ((-1,), 2), ((-1,), 2)]


def test_what_is_written_is_read_by_tfrecord(tmp_path: Path) -> None:
    write(tmp_path / "a.tfrecord", 50)
    with open_writer(tmp_path / "b.tfrecord", features=FEATURES) as writer:
        for row in open_tfrecord(tmp_path / "a.tfrecord", features=FEATURES):
            writer.write(row)
    with open_writer(tmp_path / "bytes.tfrecord") as writer:
        for row in open_tfrecord(tmp_path / "b.tfrecord"):
            writer.write(row)
    for i, (data,) in enumerate(open_tfrecord(tmp_path / "bytes.tfrecord")):
        message = example_pb2.SequenceExample.FromString(data.bytes_list()[0])
        context, lists = record(i)
        assert list(message.context.feature["id"].int64_list.value) == [context["id"][0]]
        found = {name: message.feature_lists.feature_list[name].feature for name in lists}
        assert [list(step.float_list.value) for step in found["frames"]] == lists["frames"][0]
        assert [list(step.int64_list.value) for step in found["labels"]] == lists["labels"][0]
        assert [list(step.bytes_list.value) for step in found["words"]] == lists["words"][0]


def test_missing_lists(tmp_path: Path) -> None:
    write(tmp_path / "a.tfrecord", 3)
    other: Any = {"dtype": "float32", "part": "feature_lists"}
    with pytest.raises(
        errors.ShapeError, match=r'feature "other": not in the feature lists, whose features are "frames"'
    ):
        open_tfrecord(tmp_path / "a.tfrecord", features={"other": other}).read()
    about: Any
    for about in ({**other, "allow_missing": True}, {**other, "kind": "variable"}):
        (found,) = open_tfrecord(tmp_path / "a.tfrecord", features={"other": about}).batch(3).read()
        assert [
            step.tolist() if not isinstance(step, LoDTensor) else step.data.tolist() for step in found.sequences()
        ] == [[], [], []]
    with pytest.raises(
        errors.DTypeError,
        match=r'expected a tf.train.Example, found a tf.train.SequenceExample: give its features their "part"',
    ):
        open_tfrecord(tmp_path / "a.tfrecord", features={"id": "int64"}).read()
    with pytest.raises(errors.InvalidArgument, match=r'part: expected context or feature_lists, found "steps"'):
        open_tfrecord(tmp_path / "a.tfrecord", features={"id": {"dtype": "int64", "part": "steps"}})


def test_damage_is_one_record(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    write(path, 20)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    reader = open_tfrecord(path, features=FEATURES, on_corrupt="skip")
    found = {row[0].item(): row for row in reader}
    assert len(found) == 19
    for i, row in found.items():
        check(row, i)
    assert len(reader.stats()["details"]["ledger"]) == 1


def test_inspect_and_convert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.tfrecord", 10)
    (first,) = open_tfrecord(tmp_path / "a.tfrecord").read()
    described = describe_example(first.bytes_list()[0])
    assert described is not None
    assert list(described) == ["id", "frames", "labels", "words"]
    assert described["id"] == "int64"
    assert described["frames"] == {"dtype": "float32", "shape": [3], "part": "feature_lists"}
    assert described["words"] == {"dtype": "bytes", "part": "feature_lists"}
    assert main(["inspect", str(tmp_path / "a.tfrecord")]) == 0
    assert '"part": "feature_lists"' in capsys.readouterr().out
    as_json = str(
        [{"name": name, **(about if isinstance(about, dict) else {"dtype": about})} for name, about in FEATURES.items()]
    ).replace("'", '"')
    options = ["--option", f"features={as_json}", "--to-option", f"features={as_json}"]
    assert main(["convert", str(tmp_path / "a.tfrecord"), "-o", str(tmp_path / "b.tfrecord"), *options]) == 0
    for i, row in enumerate(open_tfrecord(tmp_path / "b.tfrecord", features=FEATURES)):
        check(row, i)


def test_batches(tmp_path: Path) -> None:
    write(tmp_path / "a.tfrecord", 8)
    ids, frames, labels, words = open_tfrecord(tmp_path / "a.tfrecord", features=FEATURES).batch(8).read()
    assert ids.tolist() == list(range(8))
    assert [x.tolist() for x in frames.sequences()] == [record(i)[1]["frames"][0] for i in range(8)]
    assert frames.data.dtype == np.float32
    assert words.bytes_list() == [step[0] for i in range(8) for step in record(i)[1]["words"][0]]
    assert labels.data.tolist() == [v for i in range(8) for step in record(i)[1]["labels"][0] for v in step]
