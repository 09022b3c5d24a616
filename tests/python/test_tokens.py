"""Files of tokens: the windows are those of NumPy's memmap, and of Megatron-LM's index as its layout is described."""

from __future__ import annotations

import itertools
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyfeed
from pyfeed import LoDTensor, open_files, open_tokens, open_writer

from .support import Array, same

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}


def tokens(count: int, dtype: str = "uint16") -> Array:
    return np.random.default_rng(count).integers(0, np.iinfo(dtype).max, count, dtype, endpoint=True)


def megatron(prefix: Path, documents: list[list[Array]], dtype: str) -> Path:
    """Write documents, each a list of sequences, in the layout of Megatron-LM. Return the path of the index."""
    sequences = [sequence for document in documents for sequence in document]
    data = b"".join(sequence.astype(dtype).tobytes() for sequence in sequences)
    sizes = np.array([len(sequence) for sequence in sequences], "<i4")
    pointers = np.concatenate([[0], np.cumsum(sizes * np.dtype(dtype).itemsize)])[:-1].astype("<i8")
    begins = np.concatenate([[0], np.cumsum([len(document) for document in documents])]).astype("<i8")
    prefix.with_suffix(".bin").write_bytes(data)
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, CODES[dtype], len(sizes), len(begins))
    index = prefix.with_suffix(".idx")
    index.write_bytes(header + sizes.tobytes() + pointers.tobytes() + begins.tobytes())
    return index


def texts(lengths: list[int], dtype: str) -> list[list[Array]]:
    """Return documents of some lengths, in sequences of at most 7 tokens."""
    whole = tokens(sum(lengths), dtype)
    cuts = np.cumsum([0, *lengths])
    documents = [whole[a:b] for a, b in itertools.pairwise(cuts)]
    return [[document[i : i + 7] for i in range(0, len(document), 7)] for document in documents]


def values(slot: Any) -> Array:
    return np.asarray(slot.data if isinstance(slot, LoDTensor) else slot)


@pytest.mark.parametrize("io", ["map", "read"])
@pytest.mark.parametrize("dtype", ["uint16", "uint32", "int32"])
def test_windows_are_those_of_memmap(tmp_path: Path, dtype: str, io: str) -> None:
    path = tmp_path / "train.bin"
    tokens(50_000, dtype).tofile(path)
    data = np.memmap(path, dtype, "r")
    for length, stride in ((1024, None), (1000, 300), (64, 1000)):
        reader = open_tokens(path, length, stride=stride, dtype=dtype, io=io)
        assert [(s.name, s.dtype, s.shape, s.lod_levels) for s in reader.slots] == [("tokens", dtype, (length,), 0)]
        starts = range(0, len(data) - length + 1, stride or length)
        assert len(reader) == len(starts)
        for start, (window,) in zip(starts, reader, strict=True):
            same(window, np.array(data[start : start + length]))
        batched = np.concatenate([x for (x,) in open_tokens(path, length, stride=stride, dtype=dtype, io=io).batch(37)])
        same(batched, np.stack([data[start : start + length] for start in starts]))
        pairs = open_tokens(path, length, stride=stride, dtype=dtype, targets=True, output_dtype="int64", io=io)
        assert [s.name for s in pairs.slots] == ["tokens", "targets"]
        starts = range(0, len(data) - length, stride or length)
        for start, (x, y) in zip(starts, pairs, strict=True):
            same(x, data[start : start + length].astype("int64"))
            same(y, data[start + 1 : start + length + 1].astype("int64"))


def test_a_mapped_window_is_a_view(tmp_path: Path) -> None:
    path = tmp_path / "train.bin"
    tokens(100_000).tofile(path)
    windows = [x for (x,) in open_tokens(path, 512, stride=256, num_threads=0)]
    assert not windows[0].flags.writeable
    assert np.shares_memory(windows[0], windows[1])
    assert not np.shares_memory(windows[0], windows[2])


def test_last_windows(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    np.arange(10, dtype="uint16").tofile(path)

    def read(**options: Any) -> list[list[int]]:
        return [values(x).tolist() for (x,) in open_tokens(path, 4, **options)]

    assert read() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert read(last="short") == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert read(stride=3) == read(stride=3, last="short") == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    short = open_tokens(path, 4, last="short", targets=True)
    assert [(s.shape, s.lod_levels) for s in short.slots] == [((-1,), 1), ((-1,), 1)]
    assert [values(y).tolist() for _, y in short] == [[1, 2, 3, 4], [5, 6, 7, 8], [9]]
    (batch,) = open_tokens(path, 4, last="short").batch(3).read()
    assert [level.tolist() for level in batch.lod] == [[0, 4, 8, 10]]


@pytest.mark.parametrize("dtype", CODES)
def test_documents_of_megatron(tmp_path: Path, dtype: str) -> None:
    lengths = [5, 0, 12, 1, 8, *range(40)]
    documents = texts(lengths, dtype)
    whole = [np.concatenate([*document, np.array([], dtype)]) for document in documents]
    index = megatron(tmp_path / "x", documents, dtype)
    for (found,), expected in zip(open_tokens(index, documents="whole"), whole, strict=True):
        same(values(found), expected)
    full = [document[i : i + 4] for document in whole for i in range(0, len(document) - 3, 4)]
    for (found,), window in zip(open_tokens(index, 4, documents="within"), full, strict=True):
        same(found, window)
    every = [document[i : i + 4] for document in whole for i in range(0, len(document), 4)]
    for (short,), window in zip(open_tokens(index, 4, documents="within", last="short"), every, strict=True):
        same(values(short), window)
    flat = np.concatenate(whole)
    for i, (found,) in enumerate(open_tokens(index, 4)):
        same(found, flat[4 * i : 4 * i + 4])
    assert i == len(flat) // 4 - 1


def test_layouts(tmp_path: Path) -> None:
    header = np.zeros(256, "int32")
    header[:3] = 20240520, 1, 6
    (tmp_path / "gpt2.bin").write_bytes(header.tobytes() + np.arange(6, dtype="uint16").tobytes())
    header[:3] = 20240801, 7, 6
    (tmp_path / "llama3.bin").write_bytes(header.tobytes() + np.arange(6, dtype="uint32").tobytes())
    for name, dtype in (("gpt2", "uint16"), ("llama3", "uint32")):
        for layout in ("auto", "llm.c"):
            found = [x for (x,) in open_tokens(tmp_path / f"{name}.bin", 3, layout=layout)]
            assert [x.tolist() for x in found] == [[0, 1, 2], [3, 4, 5]]
            assert {str(x.dtype) for x in found} == {dtype}
    index = megatron(tmp_path / "x", texts([5, 4], "int32"), "int32")
    with pytest.raises(pyfeed.errors.InvalidArgument, match=r"of Megatron-LM, with the index .*x\.idx: give"):
        open_tokens(tmp_path / "x.bin", 3)
    with pytest.raises(pyfeed.errors.CorruptRecordError, match="found the index of tokens of Megatron-LM: the format"):
        open_files(index)
    assert open_tokens(tmp_path / "x.bin", 3, layout="megatron").slots[0].dtype == "int32"
    assert len(open_tokens(tmp_path / "x.bin", 3, layout="headerless")) == 6
    assert pyfeed.list_files(index, "tokens") == [f"tokens:{index}"]


def test_errors(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"1234567")
    with pytest.raises(pyfeed.errors.InvalidArgument, match="length: expected the number of tokens of a window, found"):
        open_files(path, format="tokens")
    with pytest.raises(pyfeed.errors.InvalidArgument, match="length: expected at least 1 token, found 0"):
        open_tokens(path, 0)
    with pytest.raises(
        pyfeed.errors.DTypeError, match="output_dtype: expected an integer dtype that holds all values of"
    ):
        open_tokens(path, 2, output_dtype="int16")
    with pytest.raises(pyfeed.errors.InvalidArgument, match='documents: expected "across", because only an index of'):
        open_tokens(path, 2, documents="within")
    reader = open_tokens(path, 2)
    reader.read()
    with pytest.raises(pyfeed.errors.CorruptRecordError, match="expected tokens of 2 bytes, found 1 bytes at the") as e:
        reader.read()
    assert (e.value.file, e.value.offset, e.value.record) == (str(path), 6, 1)


@pytest.mark.parametrize("options", [{}, {"stride": 5}, {"targets": True, "stride": 11, "output_dtype": "int32"}])
@pytest.mark.parametrize("shuffle", [None, 7])
def test_goes_on_at_every_step(tmp_path: Path, options: dict[str, Any], shuffle: int | None) -> None:
    for i in range(3):
        tokens(300 + i).tofile(tmp_path / f"{i}.bin")

    def make() -> pyfeed.Reader:
        return open_tokens(tmp_path / "*.bin", 16, shuffle_records=shuffle, **options).shuffle(8, 1).batch(4)

    def step(batch: Any) -> list[Any]:
        return [x.tolist() for x in batch]

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
    index = megatron(tmp_path / "x", texts([100, 7, 55, 0, 200], "int32"), "int32")
    plain = [x.tolist() for (x,) in open_tokens(index, 6, documents="within")]
    reader = open_tokens(index, 6, documents="within", index=True)
    assert [reader[i][0].tolist() for i in range(len(reader))] == plain
    assert not list(tmp_path.glob(".*"))
    shuffled = open_tokens(index, 6, documents="within", shuffle_records=3)
    for _ in range(2):
        order = [x.tolist() for (x,) in shuffled]
        assert order != plain
        assert sorted(order) == sorted(plain)
    parts = [
        [x.tolist() for (x,) in open_tokens(index, 6, documents="within", rank=rank, world=2, virtual_shards=4)]
        for rank in range(2)
    ]
    assert [len(part) for part in parts] == [len(plain) // 4 * 2] * 2
    both = {tuple(window) for part in parts for window in part}
    assert len(both) == len(plain) // 4 * 4
    assert both <= {tuple(window) for window in plain}


def test_writer(tmp_path: Path) -> None:
    rows = [np.arange(5), np.array([], "int64"), np.array([65535])]
    with open_writer(tmp_path / "x.bin", "tokens") as writer:
        for row in rows:
            writer.write((row,))
    same(np.fromfile(tmp_path / "x.bin", "uint16"), np.concatenate(rows).astype("uint16"))
    with open_writer(tmp_path / "y.idx", "tokens", dtype=np.int32) as writer:
        for row in rows:
            writer.write((row,))
    expected = megatron(tmp_path / "z", [[row] for row in rows], "int32")
    for suffix in (".idx", ".bin"):
        wrote, model = (tmp_path / "y").with_suffix(suffix), expected.with_suffix(suffix)
        assert wrote.read_bytes() == model.read_bytes() != b""
    with (
        pytest.raises(pyfeed.errors.InvalidArgument, match="slot 0: tokens: expected values of uint16, found 65536 at"),
        open_writer(tmp_path / "w.bin", "tokens") as writer,
    ):
        writer.write((np.array([1, 65536]),))
    assert not (tmp_path / "w.bin").exists()
