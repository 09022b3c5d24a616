"""Calls that work for a long time without waiting, over readers that always have the next tuple."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pyfeed
from pyfeed import Reader

from .support import Background, Process, raises, wait_until

RESET = "the reader was reset while this call waited in it"


def sparse(folder: Path) -> Reader:
    """Return a reader of one-byte records in the caller's thread, with more records than a test can read."""
    path = folder / "sparse.raw"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    return pyfeed.open_raw(str(path), [()], ["uint8"], num_threads=0)


# Each chain reads from its source all the time, but would deliver its first tuple only after a very long time.
MOST_TUPLES = 2**31  # of a batch: 10**8 bytes of a sparse file would take less than 0.4 s
CHAINS = {
    "batch": lambda source: source.batch(10**8),
    "batch of sparse": lambda source: source.batch(MOST_TUPLES),
    "batch of shuffled": lambda source: source.shuffle(1000).batch(10**8),
    "batch of pairs": lambda source: source.zip(pyfeed.random_data([()], scope=source.scope)).batch(10**8),
    "batch of passes": lambda source: source.multi_pass(0).batch(10**8),
    "shard": lambda source: source.shard(10**9 - 1, 10**9),
    "shuffle": lambda source: source.shuffle(10**8),
    "double_buffer": lambda source: source.batch(10**8).double_buffer(),
}


def make(name: str, folder: Path) -> tuple[Reader, Reader]:
    """Return a reader that is always ready, and a reader above it that never is."""
    source = sparse(folder) if "sparse" in name else pyfeed.random_data([()], ["uint8"])
    return source, CHAINS[name](source)


@pytest.mark.parametrize("name", CHAINS)
def test_a_timeout_of_a_busy_call(name: str, tmp_path: Path) -> None:
    source, top = make(name, tmp_path)
    with pytest.raises(pyfeed.errors.Timeout):
        top.read(timeout=0.05)
    with pytest.raises(pyfeed.errors.Timeout):
        top.has_next(timeout=0.05)
    top.reset()
    assert source.stats()["passes"] >= 2


@pytest.mark.parametrize("name", CHAINS)
def test_a_reset_ends_a_busy_call(name: str, tmp_path: Path) -> None:
    source, top = make(name, tmp_path)
    read = Background(top.read)
    wait_until(lambda: source.stats()["tuples"] > 0)
    while not read.done():
        top.reset()
    with raises(pyfeed.errors.Cancelled, RESET):
        read.result()


def test_a_busy_call_goes_on_where_its_timeout_ended_it() -> None:
    def source() -> Reader:
        return pyfeed.random_data([()], ["int64"], 0, 1e9, seed=7, count=2_000_000)

    (expected,) = (np.concatenate(slots) for slots in zip(*source().batch(1000), strict=True))
    whole, timeouts = source().shard(1, 2).batch(10**8), 0
    while True:
        try:
            (found,) = whole.read(timeout=1e-9)
            break
        except pyfeed.errors.Timeout:
            timeouts += 1
    assert timeouts > 0  # the call takes longer than its timeout
    np.testing.assert_array_equal(found, expected[1::2])


def test_a_busy_call_that_does_not_wait_ends_with_a_result() -> None:
    (found,) = pyfeed.random_data([()], ["uint8"], count=2_000_000).batch(10**8).read(timeout=0)
    assert len(found) == 2_000_000


@pytest.mark.parametrize("timeout", ["None", "0", "1000"])
@pytest.mark.parametrize("call", ["read", "has_next"])
def test_ctrl_c_in_a_busy_call(call: str, timeout: str) -> None:
    out, err = Process(
        f"""
        source = pyfeed.random_data([()], ["uint8"])
        reader = source.batch(10**8)
        def interrupt(before):
            while source.stats()["tuples"] == before:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)
        for _ in range(2):
            before = source.stats()["tuples"]
            start(lambda: interrupt(before), daemon=True)
            try:
                reader.{call}(timeout={timeout})
            except KeyboardInterrupt:
                say("interrupted", source.stats()["tuples"] > before)
        say(source.stats()["passes"])
        """
    ).end()
    assert (out, err) == (["interrupted True", "interrupted True", "1"], "")


def test_ctrl_c_in_a_busy_program() -> None:
    out, err = Process(
        """
        from pyfeed import layers
        main, startup, executor, scope = pyfeed.Program(), pyfeed.Program(), pyfeed.Executor(), pyfeed.Scope()
        with pyfeed.program.program_guard(main, startup):
            reader = layers.batch(layers.random_data([()], ["uint8"]), 10**8)
            data = layers.read_file(reader)
        executor.run(startup, scope)
        when_waiting(1, lambda: os.kill(os.getpid(), signal.SIGINT))
        try:
            executor.run(main, scope, fetch=[data])
        except KeyboardInterrupt:
            say("interrupted")
        """
    ).end()
    assert (out, err) == (["interrupted"], "")
