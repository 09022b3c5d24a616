"""Trains with PyTorch, and goes on exactly where it was when it is killed.

    pip install pyarrayfeed torch
    python examples/resume_torch/train.py run  # stop it at any moment: Ctrl-C, kill -9, a lost machine
    python examples/resume_torch/train.py run  # goes on
    rm -r run                                  # to begin again

The folder holds the training set, which the first start writes, and the checkpoint. The checkpoint is one file with the
states of the model, the optimiser, the random generator of PyTorch and the reader, so all of them belong to the same
step. Steps since the last checkpoint are done again, with the same batches. However often the training is killed, the
weights at the end are, bit for bit, those of a training that was never killed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import pyfeed

Image = npt.NDArray[np.float32]  # (64,): 8x8 pixels
Label = npt.NDArray[np.int64]  # ()

FILES, IMAGES = 6, 500  # the files of the training set, and the images in each of them
GOAL = 0.9


# ---- The data -----------------------------------------------------------------------------------


def draw_images(file: int) -> tuple[Image, Label]:
    """Return the images of a file and their labels: a pattern for each of ten labels, under much noise."""
    patterns = np.random.default_rng(0).standard_normal((10, 64))
    rng = np.random.default_rng((1, file))
    label = rng.integers(10, size=IMAGES)
    return (patterns[label] + 1.5 * rng.standard_normal((IMAGES, 64))).astype(np.float32), label


def write_files(folder: Path) -> None:
    """Write the files that are missing. A writer that is killed leaves no incomplete file."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in range(FILES):
        path = folder / f"train-{file}.recordio"
        if not path.exists():
            with pyfeed.open_writer(path, names=["image", "label"]) as writer:
                for image, label in zip(*draw_images(file), strict=True):
                    writer.write((image, label))


def augment(image: Image, label: Label, rng: np.random.Generator) -> tuple[Image, Label]:
    """Return the image with some pixels set to zero. The numbers of `rng` depend on the position of the image only."""
    return image * (rng.random(64) > 0.1).astype(np.float32), label


def open_reader(folder: Path, args: argparse.Namespace) -> pyfeed.Reader:
    return (
        pyfeed.open_files(folder / "train-*.recordio", shuffle_files=1, num_threads=args.threads)
        .map(augment, args.threads, rng=True, seed=2)
        .shuffle(1000, seed=3)
        .batch(50)
        .multi_pass(args.passes)
        .double_buffer()
    )


# ---- The training -------------------------------------------------------------------------------


class Training:
    """A model and everything else that a step changes."""

    def __init__(self, reader: pyfeed.Reader) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Dropout(0.2), nn.Linear(48, 10))
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.reader = reader
        self.step = 0
        self.finished = False

    def learn(self, image: Any, label: Any) -> float:
        """Do one step; return its loss."""
        self.optimiser.zero_grad()
        loss = nn.functional.cross_entropy(self.model(torch.from_numpy(image)), torch.from_numpy(label))
        loss.backward()
        self.optimiser.step()
        self.step += 1
        return float(loss.detach())

    def save(self, path: Path) -> None:
        """Write the checkpoint under another name, and rename it: a kill leaves the old one or the new one."""
        partial = path.with_name(path.name + ".partial")
        with partial.open("wb") as file:
            torch.save(
                {
                    "step": self.step,
                    "finished": self.finished,
                    "model": self.model.state_dict(),
                    "optimiser": self.optimiser.state_dict(),
                    "random": torch.get_rng_state(),  # dropout draws from it
                    "reader": self.reader.state_dict(),
                },
                file,
            )
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)

    def load(self, path: Path) -> None:
        saved = torch.load(path)
        self.step, self.finished = saved["step"], saved["finished"]
        self.model.load_state_dict(saved["model"])
        self.optimiser.load_state_dict(saved["optimiser"])
        torch.set_rng_state(saved["random"])
        self.reader.load_state_dict(saved["reader"])

    def accuracy(self) -> float:
        """Return the part of new images that the model recognizes."""
        image, label = draw_images(FILES)
        self.model.eval()
        with torch.no_grad():
            guess = self.model(torch.from_numpy(image)).argmax(dim=1)
        self.model.train()
        return float((guess.numpy() == label).mean())

    def digest(self) -> str:
        weights = b"".join(weight.numpy().tobytes() for weight in self.model.state_dict().values())
        return hashlib.sha256(weights).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="that read and augment (default: %(default)s)")
    args = parser.parse_args()

    # The sums of several threads may differ in the last bits from one run to the next.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    write_files(args.folder)
    training, checkpoint = Training(open_reader(args.folder, args)), args.folder / "checkpoint.pt"
    if checkpoint.exists():
        training.load(checkpoint)
        print(f"goes on after step {training.step}", flush=True)

    if not training.finished:
        for image, label in training.reader:
            loss = training.learn(image, label)
            print(f"step {training.step}: loss {loss:.4f}", flush=True)
            if training.step % args.every == 0:
                training.save(checkpoint)
        training.finished = True
        training.save(checkpoint)

    accuracy = training.accuracy()
    print(f"weights {training.digest()}, accuracy {accuracy:.2f}")
    if accuracy < GOAL:
        sys.exit(f"expected an accuracy of at least {GOAL}, found {accuracy:.4f}")


if __name__ == "__main__":
    main()
