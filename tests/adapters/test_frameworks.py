"""The examples for Lightning, Hugging Face and Keras go on in the middle of an epoch, from a framework's checkpoint."""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import pyfeed

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "frameworks"
EPOCHS, BATCHES = 3, 20  # of the whole training, and in an epoch


class Killed(BaseException):
    """Ends a training in the middle of a step. What was not in a file by then is lost."""


class Steps:
    """Notes the labels of each step, and kills the training in some step."""

    def __init__(self) -> None:
        self.labels: list[list[int]] = []
        self.last: int | None = None

    def note(self, label: Any) -> None:
        if len(self.labels) == self.last:
            raise Killed
        self.labels.append(torch.as_tensor(label).flatten().tolist())


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def expected_labels(folder: Path) -> list[list[int]]:
    """Return the labels of each batch of all epochs, as the reader itself delivers them."""
    reader = pyfeed.open_files(folder / "digits.npz").shuffle(1000, seed=1).batch(50)
    return [label.tolist() for _ in range(EPOCHS) for _, label in reader]


def check(folder: Path, train: Callable[[Path], Any], weights: Callable[[Any], list[Any]], steps: Steps) -> None:
    """Kill the training in the middle of an epoch, at its end, and soon after a resume. Compare with a whole one."""
    whole = weights(train(folder / "whole"))
    expected = expected_labels(folder / "whole")
    assert len(expected) == EPOCHS * BATCHES
    assert steps.labels == expected

    saved = 0
    for last in (
        13,
        22,
        47,
    ):  # a checkpoint is made after every fifth step: the second one resumes at the end of an epoch
        steps.labels, steps.last = [], last - saved
        with pytest.raises(Killed):
            train(folder / "killed")
        assert steps.labels == expected[saved:last]
        saved = last // 5 * 5
    steps.labels, steps.last = [], None
    found = weights(train(folder / "killed"))
    assert steps.labels == expected[saved:]
    for one, other in zip(found, whole, strict=True):
        np.testing.assert_array_equal(one, other)


def test_lightning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example, steps = load("lightning_trainer"), Steps()
    step = example.Recognizer.training_step

    def training_step(self: Any, batch: Any, number: int) -> Any:
        steps.note(batch[1])
        return step(self, batch, number)

    monkeypatch.setattr(example.Recognizer, "training_step", training_step)
    check(
        tmp_path,
        lambda folder: example.train(folder, EPOCHS),
        lambda model: [x.numpy() for x in model.state_dict().values()],
        steps,
    )


def test_hugging_face(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example, steps = load("hugging_face_trainer"), Steps()
    loss = example.ReaderTrainer.compute_loss

    def compute_loss(self: Any, model: Any, inputs: Any, *more: Any, **options: Any) -> Any:
        steps.note(inputs[1])
        return loss(self, model, inputs, *more, **options)

    monkeypatch.setattr(example.ReaderTrainer, "compute_loss", compute_loss)
    check(
        tmp_path,
        lambda folder: example.train(folder, EPOCHS),
        lambda model: [x.numpy() for x in model.state_dict().values()],
        steps,
    )


def test_keras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")  # read when Keras is imported
    example, steps = load("keras_fit"), Steps()
    keras: Any = example.keras
    step = keras.Model.train_step

    def train_step(self: Any, data: Any) -> Any:
        steps.note(data[1])
        return step(self, data)

    monkeypatch.setattr(keras.Model, "train_step", train_step)
    check(
        tmp_path,
        lambda folder: example.train(folder, EPOCHS),
        lambda model: [keras.ops.convert_to_numpy(x) for x in model.variables],
        steps,
    )


# ---- The page ----

PAGE = (ROOT / "docs/frameworks.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_python_of_the_page_runs(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "block", "exec"), {"__name__": "__main__"})
    said = re.findall(r"print\(.*\)  # (.*)", block)
    assert said
    assert capsys.readouterr().out.splitlines() == said


def test_the_code_of_the_page_is_that_of_the_examples() -> None:
    """The page leaves out types and comments."""
    example = "".join((EXAMPLES / f"{n}.py").read_text() for n in ("hugging_face_trainer", "keras_fit"))
    plain = re.sub(r"  # .*|(: [\w.\[\], |]+)(?=[,)=]| =)| -> [\w.\[\], ]+(?=:)", "", example)
    for name in ("def state(", "def on_train_begin(", "def save_own_variables(", "def load_own_variables("):
        (body,) = re.findall(rf"    {re.escape(name)}.*\n((?: {{8}}.*\n)+)", plain)
        assert body in PAGE, name


def test_tested_versions_are_stated() -> None:
    pinned = (ROOT / "requirements-adapters.txt").read_text()
    names = {
        "PyTorch": "torch",
        "JAX": "jax",
        "Lightning": "lightning",
        "Transformers": "transformers",
        "Keras": "keras",
    }
    for name, package in names.items():
        version = re.search(rf"^{package}==(\d+\.\d+)", pinned, re.MULTILINE)
        assert version
        assert f"{name} {version[1]}" in PAGE
