"""Trains with Keras, and goes on in the middle of an epoch from the backup of Keras' own BackupAndRestore.

    pip install pyarrayfeed keras torch
    KERAS_BACKEND=torch python examples/frameworks/keras_fit.py run  # stop it at any moment: Ctrl-C, kill -9
    KERAS_BACKEND=torch python examples/frameworks/keras_fit.py run  # goes on
    rm -r run                                                        # to begin again

`fit` takes a DataLoader of PyTorch, whatever the backend. A layer of the model keeps the position of the reader, so it
is in the same file as the weights and the state of the optimizer, and all of them belong to the same step. A callback
says which epoch comes next, because `fit` reads a batch before the first epoch, to learn the shapes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
from pyfeed.torch import ReaderDataset
from torch.utils.data import DataLoader

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


class ReaderPosition(keras.layers.Layer):  # type: ignore[misc]
    """Passes its input on. The position of a dataset is saved and loaded as its only weight."""

    def __init__(self, dataset: ReaderDataset) -> None:
        super().__init__()
        self.dataset = dataset

    def call(self, image: Any) -> Any:
        return image

    def save_own_variables(self, store: Any) -> None:
        store["position"] = np.frombuffer(json.dumps(self.dataset.state_dict()).encode(), np.uint8)

    def load_own_variables(self, store: Any) -> None:
        self.dataset.load_state_dict(json.loads(np.asarray(store["position"]).tobytes()))


class Epochs(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, dataset: ReaderDataset) -> None:
        super().__init__()
        self.dataset = dataset

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.dataset.set_epoch(epoch)  # the rest of this epoch, if its beginning was trained before


def train(folder: Path, epochs: int) -> keras.Model:
    """Train to the end of the last epoch, from the backup in the folder if there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "digits.npz").exists():
        write_digits(folder / "digits.npz")

    def make_reader() -> pyfeed.Reader:
        return pyfeed.open_files(folder / "digits.npz").shuffle(IMAGES, seed=1).batch(BATCH_SIZE).double_buffer()

    keras.utils.set_random_seed(0)
    dataset = ReaderDataset(make_reader)
    model = keras.Sequential(
        [
            keras.Input((64,)),
            ReaderPosition(dataset),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    backup = keras.callbacks.BackupAndRestore(folder / "backup", save_freq=5, delete_checkpoint=False)
    loader = DataLoader(dataset, batch_size=None)
    model.fit(loader, epochs=epochs, callbacks=[backup, Epochs(dataset)], shuffle=False, verbose=0)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    model = train(args.folder, args.epochs)
    image, label = np.load(args.folder / "digits.npz").values()
    print(f"accuracy on the training set: {float((model.predict(image, verbose=0).argmax(1) == label).mean()):.2f}")


if __name__ == "__main__":
    main()
