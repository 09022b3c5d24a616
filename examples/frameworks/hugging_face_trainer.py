"""Trains with the Trainer of Hugging Face, and goes on in the middle of an epoch from the Trainer's own checkpoint.

    pip install pyarrayfeed transformers accelerate
    python examples/frameworks/hugging_face_trainer.py run  # stop it at any moment: Ctrl-C, kill -9, a lost machine
    python examples/frameworks/hugging_face_trainer.py run  # goes on
    rm -r run                                               # to begin again

The Trainer gets its batches from a `TensorLoader`. A callback keeps the position of the reader in the file
trainer_state.json of each checkpoint. `ignore_data_skip` tells the Trainer not to read the first batches again.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pyfeed.torch import TensorLoader
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import get_last_checkpoint

import pyfeed

IMAGES, BATCH_SIZE = 1000, 50


def write_digits(path: Path) -> None:
    """Write a training set: a pattern for each of ten labels, under much noise."""
    rng = np.random.default_rng(0)
    label = rng.integers(10, size=IMAGES)
    image = rng.standard_normal((10, 64))[label] + 1.5 * rng.standard_normal((IMAGES, 64))
    with pyfeed.open_writer(path, names=["image", "label"]) as writer:
        for record in zip(image.astype(np.float32), label, strict=True):
            writer.write(record)


class ReaderPosition(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Keeps the position of the reader in the checkpoints of a Trainer."""

    def __init__(self) -> None:
        self.position: dict[str, Any] | None = None  # the Trainer sets it to that of a checkpoint
        self.loader: TensorLoader | None = None

    def on_train_begin(self, *_: Any, train_dataloader: TensorLoader, **__: Any) -> None:
        self.loader = train_dataloader
        if self.position is not None:
            self.loader.load_state_dict(self.position)

    def state(self) -> dict[str, Any]:
        position = None if self.loader is None else self.loader.state_dict()
        return {"args": {}, "attributes": {"position": position}}


class Recognizer(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

    def forward(self, image: Any) -> Any:
        return self.layers(image)


class ReaderTrainer(Trainer):  # type: ignore[misc]
    def __init__(self, model: Any, reader: pyfeed.Reader, args: TrainingArguments) -> None:
        super().__init__(model, args, callbacks=[ReaderPosition()])
        self.loader = TensorLoader(reader)

    def get_train_dataloader(self) -> TensorLoader:
        return self.loader

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        image, label = inputs
        return torch.nn.functional.cross_entropy(model(image), label)


def train(folder: Path, epochs: int) -> Recognizer:
    """Train to the end of the last epoch, from the last checkpoint in the folder if there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "digits.npz").exists():
        write_digits(folder / "digits.npz")
    set_seed(0)
    model = Recognizer()
    args = TrainingArguments(
        folder / "checkpoints",
        num_train_epochs=epochs,
        per_device_train_batch_size=BATCH_SIZE,  # for the Trainer's statistics: the reader makes the batches
        learning_rate=1e-3,
        save_steps=5,
        save_total_limit=2,
        ignore_data_skip=True,
        restore_callback_states_from_checkpoint=True,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    reader = pyfeed.open_files(folder / "digits.npz").shuffle(IMAGES, seed=1).batch(BATCH_SIZE).double_buffer()
    trainer = ReaderTrainer(model, reader, args)
    checkpoints = folder / "checkpoints"
    trainer.train(resume_from_checkpoint=get_last_checkpoint(checkpoints) if checkpoints.exists() else None)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    model = train(args.folder, args.epochs)
    image, label = (torch.from_numpy(x) for x in np.load(args.folder / "digits.npz").values())
    print(f"accuracy on the training set: {float((model(image).argmax(1) == label).float().mean()):.2f}")


if __name__ == "__main__":
    main()
