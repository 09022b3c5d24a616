"""Loops over readers with a progress bar of tqdm."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tqdm import tqdm

import pyfeed
from pyfeed import Reader, Scope, open_files, open_writer, random_data


def loop(reader: Reader, **options: Any) -> tuple[int, int | None, str]:
    """Go through a pass: the number of tuples, the bar's total, and what it showed last."""
    screen = io.StringIO()
    bar = tqdm(reader, file=screen, ncols=80, ascii=True, **options)
    n = sum(1 for _ in bar)
    assert bar.n == n
    return n, bar.total, screen.getvalue().rstrip("\n").rpartition("\r")[2]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", np.zeros((100, 2)))
    return tmp_path / "x.npy"


def test_the_total_is_known(file: Path) -> None:
    chains = {
        100: open_files(file),
        13: open_files(file).shuffle(10).map(lambda x: x).batch(8).double_buffer(),
        12: open_files(file).batch(8, drop_last=True),
        50: open_files(file).shard(0, 2),
        300: open_files(file).multi_pass(3),
        7: random_data([(2,)], count=7),
    }
    for length, reader in chains.items():
        for _ in range(2):  # passes
            n, total, shown = loop(reader)
            assert (n, total) == (length, length)
            assert shown.startswith("100%|")
            assert f" {length}/{length} [" in shown


def test_the_total_is_not_known(file: Path, tmp_path: Path) -> None:
    with open_writer(tmp_path / "x.recordio") as writer:
        for _ in range(100):
            writer.write((np.zeros(2),))
    queue_reader, queue = pyfeed.py_array_reader(200, [(2,)], scope=Scope())
    for _ in range(100):
        queue.push((np.zeros(2),))
    queue.close()
    for reader in (open_files(tmp_path / "x.recordio"), queue_reader, open_files(file, on_corrupt="skip")):
        n, total, shown = loop(reader)
        assert (n, total) == (100, None)
        assert shown.startswith("100it [")


def test_a_pass_without_end() -> None:
    with random_data([(2,)]) as reader:
        bar = tqdm(reader, file=io.StringIO())
        assert bar.total is None
        for i, _ in enumerate(bar):
            if i == 10:
                break


def test_a_pass_that_goes_on(file: Path) -> None:
    reader = open_files(file)
    for _ in range(30):
        next(reader)
    bar = tqdm(reader.current_pass(), total=len(reader), initial=30, file=io.StringIO())
    assert sum(1 for _ in bar) == 70
    assert (bar.n, bar.total) == (100, 100)


def test_the_bar_that_fits_the_front_end(file: Path) -> None:
    """`tqdm.auto` is a bar of text outside notebooks. tests/adapters/test_notebook.py tests it in a notebook."""
    from tqdm.auto import tqdm as auto

    bar = auto(open_files(file).batch(8), file=io.StringIO())
    assert sum(1 for _ in bar) == 13
    assert (bar.n, bar.total) == (13, 13)


def test_nothing_is_shown_where_standard_error_is_no_terminal(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sum(1 for _ in tqdm(open_files(file), disable=None)) == 100
    assert capsys.readouterr() == ("", "")
