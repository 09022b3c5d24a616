"""MDS, compared with what MosaicML's library has written and read: readers/mds/testdata/make.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyfeed.__main__ import main

import pyfeed
from pyfeed import LoDTensor, open_files, open_mds, open_writer

DATA = Path(__file__).resolve().parents[2] / "readers/mds/testdata"
SAMPLES: list[dict[str, Any]] = json.loads((DATA / "expected.json").read_text())
# Columns whose slots are bytes: text, apart from b.
TEXT = ("d", "j", "s")


def value(name: str, slot: Any) -> Any:
    """Return a slot in the form of expected.json."""
    if name == "b":
        return slot.bytes_list()[0].hex()
    if name in TEXT:
        return slot.bytes_list()[0].decode()
    array = np.asarray(slot.data if isinstance(slot, LoDTensor) else slot)
    if name in ("n", "nd", "nds", "wide"):
        return {"dtype": str(array.dtype), "shape": list(array.shape), "values": array.ravel().tolist()}
    return array.item()


def texts(reader: pyfeed.Reader) -> list[str]:
    return [text.bytes_list()[0].decode() for (text,) in reader]


@pytest.mark.parametrize("io", ["map", "read"])
@pytest.mark.parametrize("opened", ["folder", "index", "open_files", "glob"])
def test_all_encodings(io: str, opened: str) -> None:
    folder = DATA / "plain"
    given = {"folder": folder, "index": folder / "index.json", "open_files": folder, "glob": folder / "*.mds"}[opened]
    reader = open_files(given, io=io, interleave=1) if opened == "open_files" else open_mds(given, io=io, interleave=1)
    assert reader.names == tuple(SAMPLES[0])
    found = [{name: value(name, slot) for name, slot in zip(reader.names, row, strict=True)} for row in reader]
    assert found == SAMPLES
    lods = {slot.name: (slot.dtype, slot.shape, slot.lod_levels) for slot in reader.slots}
    assert (lods["n"], lods["nd"], lods["nds"]) == (
        ("int64", (-1, 2), 1),
        ("int32", (-1,), 1),
        ("float32", (2, 3), 0),
    )


@pytest.mark.parametrize("name", ["zstd", "gz", "snappy"])
def test_compressed_shards(name: str) -> None:
    reader = open_mds(DATA / name, interleave=1, verify_first=True)
    assert [(s.bytes_list()[0].decode(), int(u)) for s, u in reader] == [(x["s"], x["u8"]) for x in SAMPLES]
    assert (
        pyfeed.list_files(DATA / name)[0] == f"mds:{DATA / name}/shard.00000.mds.{'zstd' if name == 'zstd' else name}"
    )


@pytest.mark.parametrize("name", ["br", "bz2"])
def test_other_compressions_are_refused(name: str) -> None:
    with pytest.raises(pyfeed.errors.UnsupportedError, match=f"compressed by zstd, gzip or snappy, or not, .* .{name}"):
        open_mds(DATA / name)


def test_a_shard_as_it_is_is_read_rather_than_the_compressed_one(tmp_path: Path) -> None:
    shutil.copytree(DATA / "zstd", tmp_path, dirs_exist_ok=True)
    for file in pyfeed.list_files(tmp_path):
        path = Path(file.partition(":")[2])
        with open_writer(path.with_suffix("")) as writer:
            for s, u in open_mds(path):
                writer.write((s, u))
    assert [Path(file).name for file in pyfeed.list_files(tmp_path)] == ["shard.00000.mds", "shard.00001.mds"]
    assert len(open_mds(tmp_path, index=True)) == len(SAMPLES)


def test_pickles_are_refused() -> None:
    with pytest.raises(pyfeed.errors.UnsupportedError, match=r"pkl/shard.*column \"p\": .* pickled objects of Python"):
        open_mds(DATA / "pkl")
    assert [u.item() for (u,) in open_mds(DATA / "pkl", columns=["u8"])] == [0, 1, 2]
    ((raw,), *_) = open_mds(DATA / "pkl", columns=[{"columns": "p", "dtype": "bytes"}])
    assert raw.bytes_list()[0].startswith(b"\x80")


def test_columns(tmp_path: Path) -> None:
    reader = open_mds(
        DATA / "plain", columns={"text": "s", "image": {"columns": "wide", "dims": (1, 300)}}, interleave=1
    )
    assert [(s.name, s.shape, s.lod_levels) for s in reader.slots] == [("text", (-1,), 1), ("image", (1, 300), 0)]
    _, images = reader.batch(10).read()
    assert images[:, 0, 5].tolist() == list(range(10))
    by_shapes = open_mds(DATA / "plain", shapes=[(1, 300)], dtypes=["uint8"], names=["wide"], interleave=1)
    assert [x[0, 0] for (x,) in by_shapes] == list(range(10))


def test_hashes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(DATA / "plain", tmp_path, dirs_exist_ok=True)
    assert main(["verify", str(tmp_path)]) == 0
    path = tmp_path / "shard.00001.mds"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # a value: the samples are still valid
    path.write_bytes(data)
    assert len(list(open_mds(tmp_path))) == 10
    with pytest.raises(
        pyfeed.errors.CorruptRecordError, match=r"(sha1|md5|xxh32|xxh64): expected .*as index.json says"
    ):
        list(open_mds(tmp_path, verify_first=True))
    reader = open_mds(tmp_path, verify_first=True, on_corrupt="skip")
    assert (len(list(reader)), reader.stats()["details"]["corrupt"]) == (7, 1)
    assert main(["verify", str(tmp_path)]) == 1
    assert "shard.00001.mds: 0 whole records, 1 damaged place" in capsys.readouterr().out
    with pytest.raises(pyfeed.errors.UnsupportedError, match=r"index\.json: shard 0: expected one of the hashes md5"):
        list(open_mds(DATA / "xxh3", verify_first=True))


@pytest.mark.parametrize("shuffle", [None, 7])
def test_goes_on_at_every_step(shuffle: int | None) -> None:
    def make() -> pyfeed.Reader:
        return open_mds(DATA / "plain", columns=["s", "i"], shuffle_records=shuffle).shuffle(4, 1).batch(2)

    def step(batch: Any) -> tuple[list[bytes], list[int]]:
        return batch[0].bytes_list(), batch[1].tolist()

    reader = make()
    states, batches = [], []
    for _ in range(2):
        for batch in reader:
            batches.append(step(batch))
            states.append(json.dumps(reader.state_dict()))
    for i, state in enumerate(states):
        resumed = make()
        resumed.load_state_dict(json.loads(state))
        after = [step(batch) for batch in resumed.current_pass()]
        if i < len(batches) // 2:
            after += [step(batch) for batch in resumed]
        assert after == batches[i + 1 :]


def test_by_number_and_in_shards(tmp_path: Path) -> None:
    reader = open_mds(DATA / "plain", columns=["i"], index=True)
    assert [reader[i][0].item() for i in range(len(reader))] == [-i for i in range(10)]
    assert not list((DATA / "plain").glob(".*"))
    parts = [
        [x.item() for (x,) in open_mds(DATA / "plain", columns=["i"], rank=r, world=2, virtual_shards=2)]
        for r in (0, 1)
    ]
    assert sorted(parts[0] + parts[1]) == list(range(-9, 1))
    with pytest.raises(pyfeed.errors.UnsupportedError, match="index: "):
        open_mds(DATA / "snappy", index=True)


def test_convert_and_back(tmp_path: Path) -> None:
    rows = [(np.int64(i), np.full((2, 2), i, "float32"), f"text {i}") for i in range(10)]
    with open_writer(tmp_path / "a.recordio") as writer:
        for row in rows:
            writer.write(row)
    out = tmp_path / "out"
    out.mkdir()
    convert = ["convert", str(tmp_path / "a.recordio"), "-o", str(out / "shard.mds"), "--names", "n,x,text"]
    assert main([*convert, "--shard-records", "4", "--to-option", "update_index=true"]) == 0
    assert [shard["samples"] for shard in json.loads((out / "index.json").read_text())["shards"]] == [4, 4, 2]
    reader = open_mds(out, interleave=1)
    assert reader.names == ("n", "x", "text")
    for (n, x, text), row in zip(reader, rows, strict=True):
        assert (n.item(), x.tolist(), text.bytes_list()[0].decode()) == (row[0], row[1].tolist(), row[2])
    assert main(["inspect", str(out)]) == 0
    assert main(["verify", str(out)]) == 0


def test_a_folder_of_another_library_is_no_data_set(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text(json.dumps({"chunks": [], "config": {}}))
    with pytest.raises(pyfeed.errors.InvalidArgument, match=r"index\.json: expected a name with the prefix or suffix"):
        open_files(tmp_path)
    (tmp_path / "index.json").write_text(json.dumps({"shards": [{"format": "mds"}], "version": 2}))
    with pytest.raises(
        pyfeed.errors.CorruptRecordError, match=r"index\.json: shard 0: raw_data: expected the file of the shard"
    ):
        open_files(tmp_path)
