"""Resets of a reader from which another reader reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pyfeed
from pyfeed import Reader, Scope

from .support import raises

CHAINS: dict[str, Callable[[Reader], Reader]] = {
    "batch": lambda r: r.batch(2),
    "shuffle": lambda r: r.shuffle(3),
    "shard": lambda r: r.shard(0, 1),
    "even shard": lambda r: r.shard(0, 1, even="drop"),
    "multi_pass": lambda r: r.multi_pass(1),
    "map": lambda r: r.map(lambda x: x),
    "double_buffer": lambda r: r.double_buffer(),
    "batch.split_batches": lambda r: r.batch(2).split_batches(0, 1),
    "batch.split_batches.double_buffer": lambda r: r.batch(2).split_batches(0, 1).double_buffer(),
    "batch.double_buffer": lambda r: r.batch(2).double_buffer(),
    "shuffle.batch.double_buffer": lambda r: r.shuffle(3).batch(2).double_buffer(),
    "zip": lambda r: r.zip(pyfeed.random_data([()], count=10, scope=r.scope)),
    "map.batch": lambda r: r.map(lambda x: x).batch(2),
}


def numbers(where: Path, scope: Scope, count: int = 10) -> Reader:
    np.save(where / "x.npy", np.arange(count))
    return pyfeed.open_files(str(where / "x.npy"), scope=scope)


def told(raw: Reader, chain: Reader) -> str:
    return (
        f'the reader "{raw.name}" was reset in the middle of a pass of "{chain.name}", which reads from it: '
        f'reset "{chain.name}", which resets all readers below it'
    )


@pytest.mark.parametrize("kind", CHAINS)
def test_a_reset_below_at_the_end_of_a_pass_is_an_error(kind: str, tmp_path: Path) -> None:
    scope = Scope()
    raw = numbers(tmp_path, scope)
    chain = CHAINS[kind](raw)
    first = [np.asarray(x).tolist() for x, *_ in chain]
    raw.reset()
    message = told(raw, chain)
    for _ in range(2):
        with raises(pyfeed.errors.StateError, message, also=RuntimeError):
            chain.read()
        with raises(pyfeed.errors.StateError, message):
            list(chain)
        with raises(pyfeed.errors.StateError, message):
            chain.has_next()
        with raises(pyfeed.errors.StateError, message):
            scope.read(chain.name, [str(i) for i in range(len(chain.slots))])
    chain.reset()
    again = [np.asarray(x).tolist() for x, *_ in chain]
    assert len(again) == len(first)
    assert sorted(map(str, again)) == sorted(map(str, first)) or "shuffle" in kind
    with pytest.raises(pyfeed.errors.EndOfData):
        chain.read()


@pytest.mark.parametrize("kind", CHAINS)
def test_a_reset_below_in_the_middle_of_a_pass_is_an_error(kind: str, tmp_path: Path) -> None:
    raw = numbers(tmp_path, Scope(), 100_000)
    chain = CHAINS[kind](raw)
    for _ in range(2):
        chain.read()
        raw.reset()
        with raises(pyfeed.errors.StateError, told(raw, chain)):
            list(chain)
        chain.reset()
    assert chain.has_next()


@pytest.mark.parametrize("kind", CHAINS)
def test_a_reset_below_before_a_pass_is_none(kind: str, tmp_path: Path) -> None:
    raw = numbers(tmp_path, Scope())
    raw.read()
    raw.reset()
    chain = CHAINS[kind](raw)
    raw.reset()
    before = sum(np.asarray(x).size for x, *_ in chain)
    chain.reset()
    raw.reset()
    assert sum(np.asarray(x).size for x, *_ in chain) == before == 10


def test_the_reader_that_was_reset_is_named_from_far_above(tmp_path: Path) -> None:
    raw = numbers(tmp_path, Scope())
    middle = raw.batch(2)
    top = middle.shuffle(2).double_buffer()
    list(top)
    middle.reset()
    with raises(pyfeed.errors.StateError, told(middle, top)):
        top.read()
    top.reset()
    raw.reset()
    assert len(list(top)) == 5


def test_two_chains_of_one_reader_tell_of_each_other(tmp_path: Path) -> None:
    raw = numbers(tmp_path, Scope())
    one, other = raw.batch(5), raw.batch(2)
    list(one)
    other.reset()
    assert len(list(other)) == 5
    with raises(pyfeed.errors.StateError, told(raw, one)):
        one.read()
    one.reset()
    assert len(list(one)) == 2
