"""Random chains of readers go on from each of their states as the chain that was saved does."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import numpy as np
from hypothesis import strategies as st

import pyfeed
from pyfeed import Reader, open_files, open_writer

from .test_chains import Row, pieces


@pyfeed.formats.register_format("counted", [".counted"], shapes=[(2,)], dtypes=["int64"])
def counted(path: str) -> Iterator[tuple[Any, ...]]:
    """Yield the numbers of a text file. A format in Python has no positions."""
    try:
        lines = Path(path).read_text().splitlines()
    except FileNotFoundError:  # the example is over, and a closed reader reads ahead for a moment
        return
    for line in lines:
        yield (np.array([int(line), -int(line)]),)


SUFFIXES = [
    *(
        ".npy",
        ".npy.gz",
        ".npz",
        ".raw",
        ".raw.zst",
        ".recordio",
        ".recordio.sz",
        ".csv",
        ".csv.gz",
        ".tar",
        ".tar.zst",
        ".arrow",
        ".arrows",
        ".arrows.gz",
        ".parquet",
    ),
    *(".tfrecord", ".tfrecord.gz", ".counted"),
]


class Files(NamedTuple):
    """Files whose tuples have two numbers in one slot, or a text for TFRecord, and how they are read."""

    suffix: str
    sizes: list[int]
    options: dict[str, Any]
    damage: int | None = None  # with on_corrupt="skip": the place of a wrong byte in each file, in thousandths

    def write(self, folder: Path) -> None:
        slots: dict[str, Any] = {"shapes": [(2,)], "dtypes": ["int64"], "names": ["npy"]}
        if ".csv" in self.suffix:
            slots = {"shapes": [(), ()], "dtypes": ["int64", "int64"], "names": ["a", "b"]}
        elif ".tfrecord" in self.suffix:
            slots = {"shapes": [(-1,)], "dtypes": ["uint8"]}
        elif ".recordio" in self.suffix:
            slots["records_per_chunk"] = 3
        elif ".arrow" in self.suffix:
            slots["batch_records"] = 3
        elif self.suffix == ".parquet":
            slots["row_group_records"] = 3
        for f, size in enumerate(self.sizes):
            path = folder / f"{f}{self.suffix}"
            numbers = [100 * f + r for r in range(size)]
            if self.suffix == ".counted":
                path.write_text("".join(f"{n}\n" for n in numbers))
                continue
            with open_writer(path, **slots) as writer:
                for n in numbers:
                    if ".csv" in self.suffix:
                        writer.write((np.array(n), np.array(-n)))
                    elif ".tfrecord" in self.suffix:
                        writer.write((np.frombuffer(b"record %d" % n, np.uint8),))
                    else:
                        writer.write((np.array([n, -n]),))
            if self.damage is not None:
                data = bytearray(path.read_bytes())
                data[len(data) * self.damage // 1000] ^= 0x40
                path.write_bytes(data)

    def are_refused(self, folder: Path) -> bool:
        """Whether the wrong byte is in the footer, or says that a file has something that is not supported.

        Neither is ever skipped.
        """
        if self.damage is None or not self.suffix.startswith((".arrow", ".parquet")):
            return False
        try:
            reader = self.open(folder, 1)
        except (pyfeed.errors.CorruptRecordError, pyfeed.errors.UnsupportedError):
            return True
        try:
            for _ in reader:
                pass
        except pyfeed.errors.UnsupportedError:
            return True
        return False

    def open(self, folder: Path, num_threads: int) -> Reader:
        slots: dict[str, Any] = {"shapes": [(2,)], "dtypes": ["int64"]} if ".raw" in self.suffix else {}
        if self.damage is not None:
            slots["on_corrupt"] = "skip"
        names = [folder / f"{f}{self.suffix}" for f in range(len(self.sizes))]
        return open_files(names, num_threads=num_threads, **slots, **self.options)


def some_files(rng: random.Random) -> Files:
    options: dict[str, Any] = {"interleave": rng.randint(1, 4)}
    if rng.random() < 0.5:
        options["shuffle_files"] = rng.randrange(10)
    suffix = rng.choice(SUFFIXES)
    damaged = (
        suffix in (".recordio", ".tfrecord", ".csv", ".tar", ".arrow", ".arrows", ".parquet") and rng.random() < 0.5
    )
    least = 7 if damaged else 1  # so that the first record, from which slots are inferred, is whole
    sizes = [rng.randint(least, 12) for _ in range(rng.randint(1, 6))]
    first, last = (20, 450) if suffix == ".parquet" else (500, 999)  # the footer is needed to open a file
    return Files(suffix, sizes, options, rng.randint(first, last) if damaged else None)


def augment(*slots: Any, rng: np.random.Generator, position: tuple[int, int]) -> Any:
    """Return the first slot with the position and a random number behind it."""
    return (*slots[1:], np.array([*slots[0].ravel()[:2], *position, rng.integers(1 << 40)], np.int64))


def fails_at_times(*slots: Any) -> Any:
    if int(np.asarray(slots[0]).sum()) % 3 == 1 or slots[0].size % 3 == 2:
        raise ValueError("no such tuple")
    return slots


Step = tuple[Any, ...]


def some_steps(rng: random.Random) -> list[Step]:
    """Return up to six steps of a chain."""
    steps: list[Callable[[], Step]] = [
        lambda: ("shuffle", rng.randint(1, 30), rng.randrange(10)),
        lambda: ("batch", rng.randint(1, 5), rng.random() < 0.5),
        lambda: ("multi_pass", rng.randint(1, 3)),
        lambda: ("double_buffer", rng.randint(1, 3)),
        lambda: ("shard", rng.randrange(2), 2),
        lambda: ("shard", rng.randrange(3), 3, rng.choice(["drop", "repeat", "pad"])),
        lambda: ("split", rng.randrange(2), 2, rng.choice(["drop", "repeat", "pad"])),
        lambda: ("zip",),
        lambda: ("map",),
        lambda: ("skip",),
    ]
    return [rng.choice(steps)() for _ in range(rng.randint(0, 6))]


def chain(files: Files, folder: Path, steps: list[Step], attempt: int) -> Reader:
    """Make a chain. Each attempt has other numbers of threads, and other depths and capacities."""
    reader = files.open(folder, (2, 1, 8, 3, 5)[attempt % 5])
    batched = False
    for kind, *arguments in steps:
        if kind == "zip":
            if not batched:
                reader = reader.zip(files.open(folder, 1 + attempt % 3).shuffle(7, seed=3))
        elif kind == "double_buffer":
            reader = reader.double_buffer(depth=1 + (arguments[0] + attempt) % 4)
        elif kind == "map" and not batched and len(reader.slots) == 1 and ".tfrecord" not in files.suffix:
            mapped: dict[str, Any] = {"shapes": [(5,)], "dtypes": ["int64"]}
            reader = reader.map(augment, 1 + attempt % 3, **mapped, rng=True, seed=5, with_position=True)
        elif kind == "skip":
            reader = reader.map(fails_at_times, 1 + attempt % 4, capacity=1 + attempt % 7, on_error="skip")
        elif kind == "split":
            reader = reader.batch(4).split_batches(*arguments)
            batched = True
        elif kind in ("shuffle", "batch", "multi_pass", "shard"):
            reader = getattr(reader, kind)(*arguments)
            batched = batched or kind == "batch"
    return reader


def read(reader: Reader) -> Row | str:
    """Read a tuple; at the end of the pass, or after an error, begin the next pass."""
    try:
        return pieces(reader.read())
    except pyfeed.errors.EndOfData:
        end = "end"
    except pyfeed.errors.StateError as error:  # a multi_pass over a reader without tuples
        end = str(error)
    reader.reset()
    return end


def check_resume(make: Callable[[int], Reader], steps: int) -> None:
    """Go on from the state before each step, and from a second state three steps later."""
    reader = make(0)
    states, expected = [], []
    for step in range(steps):
        states.append(json.dumps(reader.state_dict()))
        if step % 4 == 1:
            try:
                reader.has_next()  # what was only asked for does not count
            except pyfeed.errors.StateError:
                pass
        expected.append(read(reader))
    reader.close()
    for step, state in enumerate(states):
        resumed = make(2 * step + 1)
        resumed.load_state_dict(json.loads(state))
        second = None
        for k, row in enumerate(expected[step : step + 25]):
            if k == 3:
                second = resumed.state_dict()
            assert read(resumed) == row, f"{k} steps after a state at step {step}"
        resumed.close()
        if second is not None:
            resumed = make(2 * step + 2)
            resumed.load_state_dict(second)
            for k, row in enumerate(expected[step + 3 : step + 13]):
                assert read(resumed) == row, f"{k} steps after a second state, 3 steps after a state at step {step}"
            resumed.close()


@hypothesis.settings(max_examples=8, deadline=None)
@hypothesis.given(rng=st.randoms(use_true_random=False), count=st.integers(5, 40))
def test_a_chain_goes_on_at_every_step(rng: random.Random, count: int) -> None:
    files, steps = some_files(rng), some_steps(rng)
    hypothesis.note(f"{files} {steps}")
    with tempfile.TemporaryDirectory() as name:
        files.write(Path(name))
        hypothesis.assume(not files.are_refused(Path(name)))
        check_resume(lambda attempt: chain(files, Path(name), steps, attempt), count)


def test_a_format_in_python_says_that_it_replays(tmp_path: Path) -> None:
    for suffix, replays in ((".counted", True), (".npy", False)):
        files = Files(suffix, [5, 4], {})
        files.write(tmp_path)
        reader = files.open(tmp_path, 1)
        next(reader)
        assert reader.stats()["details"]["replays"] is replays
