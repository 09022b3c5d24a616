"""Random chains of decorators, against the model in tests/python/test_chains.py, and resumed at every step."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyfeed
from pyfeed import Scope
from tests.python import test_chains as model
from tests.python import test_resume_chains as resumed
from tests.python.support import DTYPES

from .failures import Failure, expect, no_leaks


def files(rng: random.Random) -> model.Files:
    kind = rng.choice(["npy", "recordio"])
    dtype = rng.choice(DTYPES if kind == "npy" else model.FLUID)
    return model.Files(kind, dtype, [rng.randint(1, 60) for _ in range(rng.randint(1, 4))], rng.randint(1, 5))


def step(rng: random.Random) -> tuple[Any, ...]:
    kind = rng.choice(["shuffle", "multi_pass", "double_buffer", "map", "batch", "shard", "zip"])
    if kind == "shuffle":
        return kind, rng.randint(1, 80), rng.randrange(1 << 63)
    if kind == "batch":
        return kind, rng.randint(1, 20), rng.random() < 0.5
    if kind == "shard":
        world = rng.randint(1, 4)
        return kind, rng.randrange(world), world
    if kind == "map":
        return kind, rng.randint(1, 4), rng.randint(1, 9)
    return (kind,) if kind == "zip" else (kind, rng.randint(1, 3))


def chain(rng: random.Random) -> list[tuple[Any, ...]]:
    """Return random steps with at most one zip, and no zip above a batch: the model has no others."""
    steps = [step(rng) for _ in range(rng.randint(0, 7))]
    out: list[tuple[Any, ...]] = []
    for one in steps:
        if one[0] == "zip" and any(before[0] in ("zip", "batch") for before in out):
            continue
        out.append(one)
    return out


def run_round(rng: random.Random, folder: Path) -> None:
    if rng.random() < 0.5:
        resume(rng, folder)
        return
    some, steps = files(rng), chain(rng)
    reads = [rng.choice([None, rng.randint(0, 80)]) for _ in range(rng.randint(1, 5))]
    some.write(folder)
    with no_leaks():
        compare(some, steps, reads, rng.choice([0, 1, 2, 8]), folder)


def resume(rng: random.Random, folder: Path) -> None:
    some, steps, count = resumed.some_files(rng), resumed.some_steps(rng), rng.randint(1, 60)
    some.write(folder)
    with no_leaks():
        try:
            resumed.check_resume(lambda attempt: resumed.chain(some, folder, steps, attempt), count)
        except AssertionError as error:
            raise Failure("losses", f"{some} {steps} {count} steps: {error}") from error


def compare(
    some: model.Files, steps: list[tuple[Any, ...]], reads: list[int | None], threads: int, folder: Path
) -> None:
    described = f"{some} {steps} {reads} num_threads={threads}"
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
                except pyfeed.errors.StateError:
                    continue
                raise Failure("losses", f"{described}: pass {number}: an empty multi_pass raised no error") from None
            continue
        found = model.read(top, most)
        expect(found == rows, "losses", f"{described}: pass {number}: expected {len(rows)} tuples, found {len(found)}")
