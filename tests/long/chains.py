"""Random chains of decorators, against the model in tests/python/test_chains.py."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyfeed
from pyfeed import Scope
from tests.python import test_chains as model
from tests.python.support import DTYPES

from .finding import Finding, expect, nothing_left


def files(draw: random.Random) -> model.Files:
    kind = draw.choice(["npy", "recordio"])
    dtype = draw.choice(DTYPES if kind == "npy" else model.FLUID)
    return model.Files(kind, dtype, [draw.randint(1, 60) for _ in range(draw.randint(1, 4))], draw.randint(1, 5))


def step(draw: random.Random) -> tuple[Any, ...]:
    kind = draw.choice(["shuffle", "multi_pass", "double_buffer", "map", "batch", "shard", "zip"])
    if kind == "shuffle":
        return kind, draw.randint(1, 80), draw.randrange(1 << 63)
    if kind == "batch":
        return kind, draw.randint(1, 20), draw.random() < 0.5
    if kind == "shard":
        world = draw.randint(1, 4)
        return kind, draw.randrange(world), world
    if kind == "map":
        return kind, draw.randint(1, 4), draw.randint(1, 9)
    return (kind,) if kind == "zip" else (kind, draw.randint(1, 3))


def chain(draw: random.Random) -> list[tuple[Any, ...]]:
    """One zip at most, and that below any batch, as the model wants it."""
    steps = [step(draw) for _ in range(draw.randint(0, 7))]
    out: list[tuple[Any, ...]] = []
    for one in steps:
        if one[0] == "zip" and any(before[0] in ("zip", "batch") for before in out):
            continue
        out.append(one)
    return out


def play(draw: random.Random, folder: Path) -> None:
    some, steps = files(draw), chain(draw)
    reads = [draw.choice([None, draw.randint(0, 80)]) for _ in range(draw.randint(1, 5))]
    some.write(folder)
    with nothing_left():
        compare(some, steps, reads, draw.choice([0, 1, 2, 8]), folder)


def compare(
    some: model.Files, steps: list[tuple[Any, ...]], reads: list[int | None], threads: int, folder: Path
) -> None:
    told = f"{some} {steps} {reads} thread_num={threads}"
    base = some.model()
    expected = model.modelled(base, base, steps)
    scope = Scope()
    reader, other = (some.open(folder, scope, max(threads, 1)) for _ in range(2))
    top = model.chained(reader, other, steps)
    for number, most in enumerate(reads):
        if number:
            top.reset()
        try:
            rows = expected.rows(number)[:most]
        except model.EmptyPassError:
            if most != 0:
                try:
                    model.read(top, most)
                except pyfeed.StateError:
                    continue
                raise Finding("losses", f"{told}: pass {number}: a multi_pass of nothing is no error") from None
            continue
        found = model.read(top, most)
        expect(found == rows, "losses", f"{told}: pass {number}: expected {len(rows)} tuples, found {len(found)}")
