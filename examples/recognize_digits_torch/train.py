"""Learns to recognize handwritten digits with PyTorch, first with its own DataLoader, then with that of pyfeed.

    pip install pyarrayfeed scikit-learn torch
    python examples/recognize_digits_torch/train.py

Two worker processes augment the images. The only difference between the two trainings is the class of the loader, so
both see the same batches and reach the same accuracy. For each loader, the script prints the accuracy on the test
images, the images per second, and the share of the time in which the training waited for a batch. The images are
enlarged to 56 x 56, because the transport of larger batches takes more of the time. The exit status is 1 if an accuracy
is below 0.95, or if the two differ.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
import pyfeed.torch
import torch
import torch.utils.data
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import Dataset

GOAL = 0.95
SCALE = 7  # 8 x 8 images become 56 x 56


class Digits(Dataset[Any]):  # type: ignore[misc]  # torch is not installed where types are checked
    """Images that are shifted by up to one pixel and get random noise, each time anew."""

    def __init__(self, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        down, right = torch.randint(-1, 2, (2,)).tolist()
        image = np.roll(self.images[i], (down, right), (0, 1))
        large = torch.from_numpy(image.repeat(SCALE, 0).repeat(SCALE, 1))
        return large + 0.05 * torch.randn(large.shape), int(self.labels[i])


def train(loader_class: Any, args: argparse.Namespace) -> tuple[float, float, float]:
    """Train and test. Return the accuracy, the images per second, and the share of time that the training waited."""
    digits = load_digits()
    images, test_images, labels, test_labels = train_test_split(
        (digits.images / 16).astype(np.float32), digits.target, test_size=0.2, stratify=digits.target, random_state=0
    )
    torch.manual_seed(args.seed)
    model = nn.Sequential(nn.AvgPool2d(SCALE), nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = loader_class(
        Digits(images, labels),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.num_workers,
        persistent_workers=True,
        generator=torch.Generator().manual_seed(args.seed),
    )
    waited = began = 0.0
    trained = 0
    for epoch in range(args.epochs + 1):
        if epoch == 1:  # the workers start in the first epoch, which is not measured
            began, waited, trained = time.perf_counter(), 0.0, 0
        batches = iter(loader)
        while True:
            asked = time.perf_counter()
            batch = next(batches, None)
            waited += time.perf_counter() - asked
            if batch is None:
                break
            image, label = batch
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(image[:, None]), label).backward()
            optimizer.step()
            trained += len(label)
    elapsed = time.perf_counter() - began
    with torch.no_grad():
        large = torch.from_numpy(test_images.repeat(SCALE, 1).repeat(SCALE, 2))
        right = model(large[:, None]).argmax(1) == torch.from_numpy(test_labels)
    return right.double().mean().item(), trained / elapsed, waited / elapsed


def main() -> int:
    """Train with both loaders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    accuracies = []
    for name, loader_class in (("PyTorch", torch.utils.data.DataLoader), ("pyfeed", pyfeed.torch.DataLoader)):
        accuracy, rate, waiting = train(loader_class, args)
        accuracies.append(accuracy)
        print(f"{name:8} accuracy {accuracy:.3f}, {rate:,.0f} images/s, waiting {waiting:.0%} of the time", flush=True)
    return int(min(accuracies) < GOAL or accuracies[0] != accuracies[1])


if __name__ == "__main__":
    sys.exit(main())
