"""The files of `files.py` whose instances are rows of a table, lists of tokens, or text with a label.

Numbers are columns `x0` to `x9` and `label`. A list of tokens begins with the number of its instance, and the lengths
of the lists differ. Text comes as UTF-8, or as a list of `str` from libraries that parse into objects of Python. A
batch of lists or text has the values of all instances, one after the other, and offsets, as in Arrow.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .files import GATHERED, NOISE, Batch, Files, columns, shard, shuffled

GROUP = 10_000  # rows of a row group or record batch
TOKENS = np.random.default_rng(2).integers(0, 50_000, 1 << 20, dtype=np.int32)
WORDS = ["feed", "the", "batch", "of", "an", "\u00e9poch", "quick", 'so-called "loss"', "line\n", "gradient", "7.5"]
TEXT = " ".join(WORDS[n % len(WORDS)] for n in NOISE[: 1 << 18].tolist())


# ---- Contents ----------------------------------------------------------------------------------------


def length(i: int) -> int:
    """The number of tokens, or characters, of instance i."""
    return 64 + int(NOISE[i % len(NOISE)])


def tokens(i: int) -> npt.NDArray[np.int32]:
    begin = i * 97 % 900_000
    made = TOKENS[begin : begin + length(i)].copy()
    made[0] = i
    return made


def text(i: int) -> str:
    begin = i * 97 % 900_000
    return f"{i % 10}{TEXT[begin : begin + length(i)]}"


@functools.cache
def _ends(count: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The lengths and the last tokens of all lists."""
    return np.array([length(i) for i in range(count)]), np.array([tokens(i)[-1] for i in range(count)])


@functools.cache
def _sizes(count: int) -> npt.NDArray[np.int64]:
    """The bytes of all texts."""
    return np.array([len(text(i).encode()) for i in range(count)])


# ---- Writing the files -------------------------------------------------------------------------------


def write(workload: Files, paths: list[Path]) -> None:
    if workload.kind == "mds":
        _write_mds(workload, paths[0].parent)
        return
    for k, path in enumerate(paths):
        if workload.kind == "jsonl":
            with path.open("w") as lines:
                lines.writelines(
                    json.dumps(_fields(workload, i), ensure_ascii=False) + "\n" for i in shard(workload, k)
                )
        elif workload.kind == "parquet":
            from pyarrow import parquet

            codec = workload.format.partition(" ")[2]
            parquet.write_table(_table(workload, shard(workload, k)), path, row_group_size=GROUP, compression=codec)
        else:
            import pyarrow

            made = _table(workload, shard(workload, k))
            with pyarrow.ipc.new_file(path, made.schema) as file:
                file.write_table(made, GROUP)


def _fields(workload: Files, i: int) -> dict[str, Any]:
    return {"text": text(i), "label": i} if workload.content == "text" else {"tokens": tokens(i).tolist()}


def _table(workload: Files, rows: range) -> Any:
    import pyarrow

    if workload.content == "numbers":
        numbers = np.stack([workload.array(i) for i in rows])
        made = {name: numbers[:, j] for j, name in enumerate(columns(workload))}
        return pyarrow.table({**made, "label": np.array(rows)})
    lists = [tokens(i) for i in rows]
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int32)
    return pyarrow.table({"tokens": pyarrow.ListArray.from_arrays(offsets, np.concatenate(lists))})


def _write_mds(workload: Files, folder: Path) -> None:
    """Shards of as many bytes as make `len(workload.paths)` of them."""
    from streaming import MDSWriter

    each = workload.size + 64
    size = -(-workload.count // len(workload.paths)) * each
    with MDSWriter(out=str(folder), columns={"data": "bytes", "label": "int"}, size_limit=size) as writer:
        for i in range(workload.count):
            writer.write({"data": workload.array(i).tobytes(), "label": i})


# ---- Shuffling ---------------------------------------------------------------------------------------


def shuffled_table(workload: Files, table: Any) -> Iterator[Batch]:
    """Shuffle the rows of a table or record batch of Arrow, and yield batches."""
    import pyarrow

    order = np.random.default_rng().permutation(table.num_rows)
    if workload.content == "numbers":
        arrays = [column.to_numpy() for column in table.columns]
        each = max(1, GATHERED // (sum(array.itemsize for array in arrays) * workload.batch)) * workload.batch
        for i in range(0, len(order), each):
            gathered = [array.take(order[i : i + each]) for array in arrays]
            for j in range(0, len(gathered[0]), workload.batch):
                yield tuple(array[j : j + workload.batch] for array in gathered)
        return
    by_name = _by_name(table.take(pyarrow.array(order)))
    values, offsets = _lists(workload, by_name)
    labels = by_name["label"].to_numpy() if workload.content == "text" else None
    for i in range(0, len(order), workload.batch):
        some = offsets[i : i + workload.batch + 1]
        batch = values[some[0] : some[-1]], some - some[0]
        yield batch if labels is None else (*batch, labels[i : i + workload.batch])


def text_buffers(strings: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    """The UTF-8 and the offsets of an array of strings of Arrow, without a copy."""
    import pyarrow

    _, offsets, values = strings.buffers()
    dtype = np.int64 if pyarrow.types.is_large_string(strings.type) else np.int32
    found = np.frombuffer(offsets, dtype)[strings.offset : strings.offset + len(strings) + 1]
    return np.frombuffer(values, np.uint8), found


def _by_name(table: Any) -> dict[str, Any]:
    """The columns of a table or record batch of Arrow, each in one array."""
    import pyarrow

    arrays = [column.combine_chunks() if isinstance(table, pyarrow.Table) else column for column in table.columns]
    return dict(zip(table.schema.names, arrays, strict=True))


def _lists(workload: Files, by_name: dict[str, Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The values and the offsets of the text or tokens of a table."""
    if workload.content == "text":
        return text_buffers(by_name["text"])
    return by_name["tokens"].values.to_numpy(), by_name["tokens"].offsets.to_numpy()


def arrow_batch(workload: Files, table: Any) -> Batch:
    """The arrays of one batch that has already been shuffled, a table or record batch of Arrow."""
    by_name = _by_name(table)
    if workload.content == "numbers":
        return tuple(array.to_numpy() for array in by_name.values())
    values, offsets = _lists(workload, by_name)
    batch = values[offsets[0] : offsets[-1]], offsets - offsets[0]
    return (*batch, by_name["label"].to_numpy()) if workload.content == "text" else batch


def tables(workload: Files, path: str) -> Iterator[Any]:
    """Read a file with pyarrow: a table or record batch for each block of the shuffle."""
    import pyarrow

    if workload.kind == "parquet":
        from pyarrow import parquet

        yield from parquet.ParquetFile(path).iter_batches(workload.block, use_threads=workload.cores > 1)
    elif workload.kind == "arrow":
        with pyarrow.ipc.open_file(pyarrow.memory_map(path)) as file:
            for k in range(file.num_record_batches):
                yield file.get_batch(k)
    else:
        from pyarrow import json as reader

        options = reader.ReadOptions(use_threads=workload.cores > 1, block_size=4 << 20)
        fields = {"text": pyarrow.string(), "label": pyarrow.int64()}
        schema = pyarrow.schema(fields if workload.content == "text" else {"tokens": pyarrow.list_(pyarrow.int32())})
        yield reader.read_json(path, options, reader.ParseOptions(explicit_schema=schema))


def parsed(workload: Files, paths: Iterable[str], parse: Callable[[bytes], Any]) -> Iterator[Batch]:
    """Read JSON Lines line by line, shuffle the lines, and parse those of each batch in Python."""

    def lines() -> Iterator[bytes]:
        for path in paths:
            with open(path, "rb") as file:
                yield from file

    for some in shuffled(lines(), workload.block, workload.batch):
        fields = list(map(parse, some))
        if workload.content == "text":
            yield [one["text"] for one in fields], np.array([one["label"] for one in fields])  # type: ignore[misc]
        else:
            yield token_batch([one["tokens"] for one in fields])


def token_batch(lists: list[Any]) -> Batch:
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(one) for one in lists], out=offsets[1:])
    if isinstance(lists[0], np.ndarray):
        return np.concatenate(lists), offsets
    return np.fromiter(itertools.chain.from_iterable(lists), np.int32, offsets[-1]), offsets


# ---- The consumer ------------------------------------------------------------------------------------


class Consumer:
    """Collects the numbers of the instances, and what shows that all of each instance has arrived.

    Of text, an object of Python is kept until the clock has stopped.
    """

    def __init__(self, workload: Files) -> None:
        self._workload = workload
        self._numbers: list[Any] = []
        self._found: list[Any] = []

    def take(self, batch: Batch) -> None:
        if self._workload.content == "numbers":
            self._numbers.append(batch[-1].copy())
            self._found.append(batch[0].copy())
            return
        if self._workload.content == "text":
            self._numbers.append(batch[-1].copy())
            if len(batch) == 2:
                self._found.append(batch[0])
                return
            self._found.append((np.diff(batch[1]), batch[0][batch[1][:-1]]))
        else:
            values, offsets = batch
            self._numbers.append(values[offsets[:-1]])
            self._found.append((np.diff(offsets), values[offsets[1:] - 1]))

    def check(self) -> npt.NDArray[np.int64]:
        """The numbers of the instances, in the order in which they came.

        Raises
        ------
        ValueError
            The contents of an instance are not those that were written.
        """
        seen = np.concatenate(self._numbers).astype(np.int64)
        count = self._workload.count
        if self._workload.content == "numbers":
            same = np.array_equal(np.concatenate(self._found), seen)
        else:
            found = [_of_objects(one) if isinstance(one, list) else one for one in self._found]
            first, second = (np.concatenate([one[k] for one in found]) for k in (0, 1))
            if self._workload.content == "text":
                same = np.array_equal(first, _sizes(count)[seen]) and np.array_equal(second, seen % 10 + ord("0"))
            else:
                lengths, last = _ends(count)
                same = np.array_equal(first, lengths[seen]) and np.array_equal(second, last[seen])
        if not same:
            raise ValueError("expected the contents that were written, found others")
        return seen


def _of_objects(texts: list[str]) -> tuple[Any, Any]:
    encoded = [one.encode() for one in texts]
    return np.array([len(one) for one in encoded]), np.array([one[0] for one in encoded])
