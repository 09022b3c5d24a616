"""The reliability campaign of tests/long: a round of each part except `fuzz`; crashes, hangs and losses are found."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.long import campaign, resume
from tests.long.failures import Failure

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


def test_a_campaign_that_cannot_run_a_part_does_not_end_well(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise FileNotFoundError("go")

    monkeypatch.setattr(campaign.Campaign, "_rounds", missing)
    found = campaign.Campaign(1, ["corruption"], 60)
    with pytest.raises(FileNotFoundError, match=r"^go$"):
        found.run(2)


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
    monkeypatch.setattr(campaign, "HANG_TIMEOUT", 5.0)  # the interpreter starts in that time, too
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


# ---- The part resume ----


def test_a_number_of_kills() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.long.resume", "--kills", "40", "--seed", "5", "--jobs", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert (figures["rounds"], figures["kills"], figures["failures"]) == (2, 40, 0)
    assert (figures["lost"], figures["repeated"]) == (0, 0)
    assert figures["in_writing"] >= 10
    assert sum(figures["kinds"].values()) == 40
    assert figures["batches"] > 40
    assert figures["records"] > 0


WRONG_TRAINING = """if True:
    import socket
    from tests.long import training

    open_chain = training.open_chain

    class WrongReader:
        def __init__(self, plan):
            self.reader, self.loaded = open_chain(plan), False
            self.state_dict = self.reader.state_dict

        def load_state_dict(self, state):
            self.reader.load_state_dict(state)
            self.loaded = True
            if {mistake!r} == "leaves out a batch":
                next(self.reader)
            elif {mistake!r} == "reads batches again":
                self.reader.reset()

        def __iter__(self):
            for slots in self.reader:
                if self.loaded and {mistake!r} == "changes a batch":
                    slots = (*slots, slots[0])
                    self.loaded = False
                yield slots

    training.open_chain = WrongReader
    training.serve(socket.socket(fileno=0))
"""


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("leaves out a batch", r"[1-9]\d* records lost, "),
        ("reads batches again", r" records lost, [1-9]\d* repeated: "),
        ("changes a batch", r": step \d+: other contents"),
    ],
    ids=["left out", "repeated", "changed"],
)
def test_a_resume_that_is_not_exact(
    mistake: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = resume.Server([sys.executable, "-c", WRONG_TRAINING.format(mistake=mistake)])
    monkeypatch.setattr(resume, "_server", server)
    try:
        with pytest.raises(Failure, match=message) as caught:
            resume.Round(random.Random(3), tmp_path).run(8)
    finally:
        server.stop()
    assert caught.value.kind == "losses"
