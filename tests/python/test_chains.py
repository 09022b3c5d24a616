"""Random chains of readers, compared with a simple model of the readers in Python."""

from __future__ import annotations

import collections
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import pyfeed
from pyfeed import LoDTensor, Reader, Scope, open_files, open_writer

from .support import DTYPES

# The dtypes of Fluid's tensors, and so of RecordIO.
FLUID = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint64", "float16", "float32", "float64"]

U64 = (1 << 64) - 1


class Piece(NamedTuple):
    """The contents of one slot of a tuple: shape, bytes and ragged offsets (LoD, level of detail)."""

    shape: tuple[int, ...]
    data: bytes
    lod: tuple[tuple[int, ...], ...] = ()


Row = tuple[Piece, ...]


def piece(slot: Any) -> Piece:
    if isinstance(slot, LoDTensor):
        return Piece(slot.data.shape, slot.data.tobytes(), tuple(tuple(level.tolist()) for level in slot.lod))
    return Piece(slot.shape, slot.tobytes())


def pieces(tuple_: Sequence[Any]) -> Row:
    return tuple(map(piece, tuple_))


def number(i: int, dtype: str) -> Any:
    """Return the 16 bits of i as an array of zeros and ones, which every dtype can hold."""
    return np.unpackbits(np.array([i], ">u2").view("uint8")).astype(dtype).reshape(4, 4)


def sequence(i: int, dtype: str) -> LoDTensor:
    """Return a sequence of zero to four steps, each with two values."""
    return LoDTensor.from_sequences([np.arange(2 * (i % 5)).reshape(-1, 2).astype(dtype)])


# ---- The model -------------------------------------------------------------------------------


class EmptyPassError(Exception):
    """A multi_pass over a reader without tuples, which is an error."""


class Model:
    """The tuples that a reader delivers in each pass, and whether a batch stacks or concatenates each slot."""

    def __init__(self, rows: Callable[[int], list[Row]], grows: list[bool]) -> None:
        self.rows = rows
        self.grows = grows  # whether a slot's first dimension is -1

    def shuffle(self, size: int, seed: int) -> Model:
        def rows(pass_id: int) -> list[Row]:
            out, under = [], self.rows(pass_id)
            for block, first in enumerate(range(0, len(under), size)):
                out += permuted(under[first : first + size], seed, pass_id, block)
            return out

        return Model(rows, self.grows)

    def batch(self, size: int, drop_last: bool) -> Model:
        def rows(pass_id: int) -> list[Row]:
            under = self.rows(pass_id)
            groups = [under[i : i + size] for i in range(0, len(under), size)]
            if drop_last and groups and len(groups[-1]) < size:
                groups.pop()
            return [
                tuple(
                    together(column, grows) for column, grows in zip(zip(*group, strict=True), self.grows, strict=True)
                )
                for group in groups
            ]

        return Model(rows, [True] * len(self.grows))

    def multi_pass(self, passes: int) -> Model:
        def rows(pass_id: int) -> list[Row]:
            out: list[Row] = []
            for i in range(passes):
                one = self.rows(pass_id * passes + i)
                if not one:
                    raise EmptyPassError
                out += one
            return out

        return Model(rows, self.grows)

    def shard(self, rank: int, world: int) -> Model:
        return Model(lambda pass_id: self.rows(pass_id)[rank::world], self.grows)

    def zip(self, other: Model) -> Model:
        return Model(
            lambda pass_id: [a + b for a, b in zip(self.rows(pass_id), other.rows(pass_id), strict=False)],
            self.grows + other.grows,
        )


def together(column: Sequence[Piece], grows: bool) -> Piece:
    """Return a slot of a batch."""
    data = b"".join(p.data for p in column)
    if not grows:
        return Piece((len(column), *column[0].shape), data)
    lod = []
    for levels in zip(*(p.lod for p in column), strict=True):
        offsets = [0]
        for level in levels:
            offsets += [offsets[-1] + offset for offset in level[1:]]
        lod.append(tuple(offsets))
    return Piece((sum(p.shape[0] for p in column), *column[0].shape[1:]), data, tuple(lod))


def permuted(rows: list[Row], seed: int, pass_id: int, block: int) -> list[Row]:
    """Return a copy that is permuted by Fisher and Yates's shuffle, with PCG-DXSM and Lemire's bounded numbers."""
    z = (pass_id + 0x9E3779B97F4A7C15) & U64  # SplitMix64's finalizer
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & U64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & U64
    state = seed << 64 | ((z ^ z >> 31) + block) & U64

    def draw() -> int:
        nonlocal state
        state = (
            state * (2549297995355413924 << 64 | 4865540595714422341)
            + (6364136223846793005 << 64 | 1442695040888963407)
        ) & ((1 << 128) - 1)
        high, low = state >> 64, state & U64
        high = (high ^ high >> 32) * 0xDA942042E4DD58B5 & U64
        return (high ^ high >> 48) * (low | 1) & U64

    rows = list(rows)
    for i in range(len(rows), 1, -1):
        product = draw() * i
        while product & U64 < (1 << 64) % i:
            product = draw() * i
        j = product >> 64
        rows[i - 1], rows[j] = rows[j], rows[i - 1]
    return rows


# ---- Files -----------------------------------------------------------------------------------


class Files(NamedTuple):
    """Files: their contents, and the options with which they are read."""

    kind: str
    dtype: str
    sizes: list[int]
    interleave: int

    def tuple_of(self, i: int) -> tuple[Any, ...]:
        if self.kind == "npy":
            return (number(i, self.dtype),)
        return (sequence(i, self.dtype), number(i, self.dtype))

    def write(self, folder: Path) -> None:
        for f, size in enumerate(self.sizes):
            with open_writer(folder / f"{f}.{self.kind}") as writer:
                for r in range(size):
                    writer.write(self.tuple_of(100 * f + r))

    def model(self) -> Model:
        rows = [pieces(self.tuple_of(i)) for i in self.order()]
        return Model(lambda pass_id: rows, [False] if self.kind == "npy" else [True, False])

    def order(self) -> list[int]:
        """Return the rows in the order of reading: one row in turn of each of `interleave` files.

        The next file takes the place of one that ends.
        """
        waiting = [collections.deque(range(100 * f, 100 * f + size)) for f, size in enumerate(self.sizes)]
        lanes = [waiting.pop(0) for _ in range(min(self.interleave, len(waiting)))]
        out, turn = [], 0
        while lanes:
            if lanes[turn]:
                out.append(lanes[turn].popleft())
                turn += 1
            elif waiting:
                lanes[turn] = waiting.pop(0)
            else:
                del lanes[turn]
            turn = 0 if turn >= len(lanes) else turn
        return out

    def open(self, folder: Path, scope: Scope, num_threads: int, ordered: bool = True) -> Reader:
        return open_files(
            [folder / f"{f}.{self.kind}" for f in range(len(self.sizes))],
            num_threads=num_threads,
            interleave=self.interleave,
            ordered=ordered,
            scope=scope,
        )


@st.composite
def some_files(draw: st.DrawFn) -> Files:
    kind = draw(st.sampled_from(["npy", "recordio"]))
    dtype = draw(st.sampled_from(DTYPES if kind == "npy" else FLUID))
    return Files(kind, dtype, draw(st.lists(st.integers(1, 40), min_size=1, max_size=3)), draw(st.integers(1, 4)))


# ---- Chains ----------------------------------------------------------------------------------


Step = tuple[Any, ...]
SHUFFLE = st.tuples(st.just("shuffle"), st.integers(1, 50), st.integers(0, 2**63 - 1))
MULTI_PASS = st.tuples(st.just("multi_pass"), st.integers(1, 3))
DOUBLE_BUFFER = st.tuples(st.just("double_buffer"), st.integers(1, 3))
MAP = st.tuples(st.just("map"), st.integers(1, 3), st.integers(1, 9))
STEPS: st.SearchStrategy[Step] = st.one_of(
    SHUFFLE,
    MULTI_PASS,
    DOUBLE_BUFFER,
    MAP,
    st.tuples(st.just("batch"), st.integers(1, 12), st.booleans()),
    st.integers(1, 3).flatmap(lambda world: st.tuples(st.just("shard"), st.integers(0, world - 1), st.just(world))),
    st.tuples(st.just("zip")),
)


def chains() -> st.SearchStrategy[list[Step]]:
    """Return chains with at most one zip, and no zip above a batch, whose batches might not fit the other reader."""

    def sound(steps: list[Step]) -> bool:
        kinds = [step[0] for step in steps]
        return kinds.count("zip") <= 1 and ("zip" not in kinds or "batch" not in kinds[: kinds.index("zip")])

    return st.lists(STEPS, max_size=6).filter(sound)


def through(*slots: Any) -> Any:
    return slots


def modelled(model: Model, other: Model, steps: list[Step]) -> Model:
    for kind, *arguments in steps:
        if kind == "zip":
            model = model.zip(other)
        elif kind not in ("double_buffer", "map"):
            model = getattr(model, kind)(*arguments)
    return model


def chained(reader: Reader, other: Reader, steps: list[Step], ordered: bool = True) -> Reader:
    for kind, *arguments in steps:
        if kind == "zip":
            reader = reader.zip(other)
        elif kind == "double_buffer":
            reader = reader.double_buffer(depth=arguments[0])
        elif kind == "map":
            reader = reader.map(through, arguments[0], capacity=arguments[1], ordered=ordered)
        else:
            reader = getattr(reader, kind)(*arguments)
    return reader


def read(reader: Reader, most: int | None) -> list[Row]:
    """Read `most` tuples, or the rest of the pass."""
    out: list[Row] = []
    while most is None or len(out) < most:
        try:
            out.append(pieces(reader.read()))
        except pyfeed.errors.EndOfData:
            break
    return out


@hypothesis.settings(max_examples=120, deadline=None)
@hypothesis.given(
    files=some_files(),
    steps=chains(),
    reads=st.lists(st.none() | st.integers(0, 60), min_size=1, max_size=4),
    threads=st.permutations([1, 2, 8]),
)
def test_a_chain_delivers_what_its_model_does(
    files: Files, steps: list[Step], reads: list[int | None], threads: list[int]
) -> None:
    """Each pass is that of the model, however far the pass before was read, and with any number of threads."""
    base = files.model()
    model = modelled(base, base, steps)
    with tempfile.TemporaryDirectory() as name:
        files.write(Path(name))
        for num_threads in threads[:2]:
            scope = Scope()
            reader, other = (files.open(Path(name), scope, num_threads) for _ in range(2))
            top = chained(reader, other, steps)
            for pass_id, most in enumerate(reads):
                if pass_id:
                    top.reset()
                try:
                    expected = model.rows(pass_id)[:most]
                except EmptyPassError:
                    if most != 0:
                        with pytest.raises(pyfeed.errors.StateError, match="had no tuples"):
                            read(top, most)
                    continue
                assert read(top, most) == expected


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(
    files=some_files(),
    steps=st.lists(st.one_of(SHUFFLE, MULTI_PASS, DOUBLE_BUFFER, MAP), max_size=4),
    reads=st.lists(st.none() | st.integers(0, 60), max_size=2),
    num_threads=st.sampled_from([1, 2, 8]),
)
def test_a_chain_without_order_delivers_the_same_tuples(
    files: Files, steps: list[Step], reads: list[int | None], num_threads: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        files.write(Path(name))
        scope = Scope()
        reader = files.open(Path(name), scope, num_threads, ordered=False)
        top = chained(reader, reader, steps, ordered=False)
        base = files.model()
        every = collections.Counter(modelled(base, base, steps).rows(0))
        for most in [*reads, None]:
            found = collections.Counter(read(top, most))
            assert found <= every
            if most is None:
                assert found == every
            top.reset()
