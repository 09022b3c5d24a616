"""Trains with Lightning, and goes on in the middle of an epoch from Lightning's own checkpoint.

    pip install pyarrayfeed lightning
    python examples/frameworks/lightning_trainer.py run  # stop it at any moment: Ctrl-C, kill -9, a lost machine
    python examples/frameworks/lightning_trainer.py run  # goes on
    rm -r run                                            # to begin again

The state of the reader is in the checkpoint, as the state of the data module. Lightning also saves the state of each
loader that has `state_dict`, but does not load it in all cases. It calls `set_epoch` of the loader. The number of
batches must be known: without `len(reader)`, Lightning reads a batch ahead, which the saved state would count.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from pyfeed.torch import TensorLoader

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


class Digits(lightning.LightningDataModule):  # type: ignore[misc]
    def __init__(self, folder: Path) -> None:
        super().__init__()
        reader = pyfeed.open_files(folder / "digits.npz").shuffle(IMAGES, seed=1).batch(BATCH_SIZE).double_buffer()
        self.loader = TensorLoader(reader)

    def train_dataloader(self) -> TensorLoader:
        return self.loader

    def state_dict(self) -> dict[str, Any]:
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.loader.load_state_dict(state_dict)


class Recognizer(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

    def training_step(self, batch: Any, _: int) -> Any:
        image, label = batch
        return torch.nn.functional.cross_entropy(self.layers(image), label)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def train(folder: Path, epochs: int, callbacks: Sequence[Callback] = ()) -> Recognizer:
    """Train to the end of the last epoch, from the checkpoint in the folder if there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "digits.npz").exists():
        write_digits(folder / "digits.npz")
    lightning.seed_everything(0, verbose=False)
    model, checkpoint = Recognizer(), folder / "last.ckpt"
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        callbacks=[*callbacks, ModelCheckpoint(folder, save_top_k=0, save_last=True, every_n_train_steps=5)],
        logger=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    trainer.fit(model, datamodule=Digits(folder), ckpt_path=checkpoint if checkpoint.exists() else None)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    model = train(args.folder, args.epochs)
    image, label = (torch.from_numpy(x) for x in np.load(args.folder / "digits.npz").values())
    print(f"accuracy on the training set: {float((model.layers(image).argmax(1) == label).float().mean()):.2f}")


if __name__ == "__main__":
    main()
