"""The reliability campaign of tests/long: a round of each part, and that it detects crashes, hangs and losses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.long import campaign

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("part", [part for part in campaign.PARTS if part != "fuzz"])
def test_a_round_of_each_part(part: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.long.rounds", part, "--seed", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"round": 0}, {"done": 0}], done.stderr
    assert done.returncode == 0


def run_program(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, str, campaign.RoundProcess]:
    """Run a program in place of the process that runs rounds."""
    monkeypatch.setattr(campaign, "OUT", tmp_path)
    rounds = campaign.RoundProcess("corruption", 1, 0, 0)
    rounds.command = [sys.executable, "-c", program]
    return *rounds.run(), rounds


def test_a_process_that_dies_is_a_crash_of_its_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = """if True:
        import os, signal
        print('{"round": 7}', flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    """
    kind, text, rounds = run_program(program, tmp_path, monkeypatch)
    assert (kind, rounds.number, rounds.done) == ("crashes", 7, 0)
    assert text.endswith(f"status {-signal.SIGSEGV}")


def test_a_round_without_an_end_is_a_hang_with_its_stacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "HANG_TIMEOUT", 2.0)
    program = """if True:
        import faulthandler, signal, threading
        faulthandler.register(signal.SIGUSR1)
        print('{"round": 0}\\n{"done": 0}\\n{"round": 1}', flush=True)
        def waits():
            threading.Event().wait()
        waits()
    """
    kind, text, rounds = run_program(program, tmp_path, monkeypatch)
    assert (kind, rounds.number, rounds.done) == ("hangs", 1, 1)
    assert "in waits" in text
    assert list(tmp_path.iterdir()) == []


def test_a_loss_is_reported_by_the_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = """print('{"round": 3}\\n{"failure": "losses", "text": "two of three"}'); raise SystemExit(1)"""
    kind, text, rounds = run_program(program, tmp_path, monkeypatch)
    assert (kind, text.strip(), rounds.number) == ("losses", "two of three", 3)


def test_every_fuzzer_is_known() -> None:
    found = {(folder.relative_to(ROOT).as_posix(), name) for folder, name in campaign.Fuzzers().all}
    assert len(found) > 12
    assert ("readers/tar", "FuzzTar") in found
    assert ("program/desc", "FuzzProtobuf") in found
