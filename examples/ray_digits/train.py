"""Trains a network of PyTorch on handwritten digits, with preprocessing on three nodes of Ray, one of which is lost.

    pip install pyarrayfeed[ray] scikit-learn torch
    python examples/ray_digits/train.py

The cluster runs in this machine: a head, and three nodes that shift the images and add noise. Two trainers, which are
processes, average their gradients. The training runs twice. In the second run, a node is killed in the middle. The
script prints both loss curves and the accuracy. The exit status is 1 if a loss or a weight of the two runs differs, or
if the accuracy is below 0.95.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
import pyfeed.ray
import ray
import torch
import torch.distributed
from ray.cluster_utils import Cluster
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import pyfeed

GOAL = 0.95
STREAMS = 3


def split() -> Any:
    """Return the images and labels for the training, and those for the test."""
    digits = load_digits()
    images = (digits.images / 16).astype("float32")
    return train_test_split(images, digits.target, test_size=0.2, stratify=digits.target, random_state=0)


def make_reader(stream: int, streams: int) -> pyfeed.Reader:
    """Make the reader of a stream, in a worker of the service. Each image is changed anew in each pass."""
    images, _, labels, _ = split()
    own = range(stream, len(images), streams)

    def samples(start: int) -> Any:
        return ((images[i], labels[i]) for i in own[start:])

    def augment(image: Any, label: Any, rng: np.random.Generator) -> Any:
        shifted = np.roll(image, rng.integers(-1, 2, 2), (0, 1))
        return shifted + 0.05 * rng.standard_normal(image.shape, "float32"), label

    source = pyfeed.from_generator(samples, [(8, 8), ()], dtypes=["float32", "int64"])
    return source.shuffle(512, seed=1).map(augment, rng=True, seed=2).batch(64, drop_last=True)


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


class Trainer:
    """One of the processes that train."""

    def __init__(self, rank: int, world: int, port: int) -> None:
        torch.set_num_threads(1)
        torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
        self.rank, self.world = rank, world
        self.steps = 0

    def progress(self) -> int:
        """Return the number of steps."""
        return self.steps

    def train(self, service: pyfeed.ray.FeedService, epochs: int, pause: float) -> tuple[list[float], dict[str, Any]]:
        """Return the mean loss of each step, over all trainers, and the weights."""
        model = make_model()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        losses = []
        self.steps = 0
        with service.reader(self.rank, self.world) as reader:
            for _ in range(epochs):
                for image, label in reader:
                    optimizer.zero_grad()
                    loss = nn.functional.cross_entropy(model(torch.tensor(image)), torch.tensor(label))
                    loss.backward()
                    total = loss.detach().clone()
                    for tensor in [total, *(parameter.grad for parameter in model.parameters())]:
                        torch.distributed.all_reduce(tensor)
                        tensor /= self.world
                    optimizer.step()
                    losses.append(float(total))
                    self.steps += 1
                    time.sleep(pause)
        return losses, {name: weights.numpy() for name, weights in model.state_dict().items()}


def run(cluster: Cluster, nodes: list[Any], lose_node: bool, args: argparse.Namespace) -> tuple[list[float], Any]:
    """Train once, and lose a node in the middle if that is wanted."""
    options = {"num_cpus": 0.5, "resources": {"preprocessing": 1}}
    service = pyfeed.ray.FeedService(make_reader, num_streams=STREAMS, num_workers=3, worker_options=options)
    with service:
        actor = ray.remote(Trainer)
        trainers = [
            actor.options(num_cpus=0.5, max_concurrency=2).remote(rank, 2, args.port + lose_node) for rank in range(2)
        ]
        results = [trainer.train.remote(service, args.epochs, args.pause) for trainer in trainers]
        if lose_node:
            middle = args.epochs * 21 // 2  # 3 streams of 7 batches
            while ray.get(trainers[0].progress.remote()) < middle and not ray.wait(results, timeout=0.05)[0]:
                pass
            cluster.remove_node(nodes.pop(), allow_graceful=False)
            print(f"node killed after {ray.get(trainers[0].progress.remote())} steps", flush=True)
        (losses, weights), _ = ray.get(results)
        for trainer in trainers:
            ray.kill(trainer)
    print(
        f"loss of {len(losses)} steps: " + " ".join(f"{loss:.3f}" for loss in losses[:: len(losses) // 10]), flush=True
    )
    return losses, weights


def accuracy(weights: dict[str, Any]) -> float:
    """Return the share of the test images that a network recognizes."""
    _, images, _, labels = split()
    model = make_model()
    model.load_state_dict({name: torch.tensor(values) for name, values in weights.items()})
    with torch.no_grad():
        return float((model(torch.tensor(images)).argmax(1).numpy() == labels).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--pause", type=float, default=0.01, help="seconds that a step takes longer")
    parser.add_argument("--port", type=int, default=29580, help="of torch.distributed; the second run has the next")
    args = parser.parse_args()
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "include_dashboard": False, "object_store_memory": 200 << 20},
    )
    nodes = [
        cluster.add_node(num_cpus=1, resources={"preprocessing": 2}, object_store_memory=100 << 20) for _ in range(3)
    ]
    ray.init(cluster.address, log_to_driver=False)
    try:
        losses, weights = run(cluster, nodes, False, args)
        losses_2, weights_2 = run(cluster, nodes, True, args)
    finally:
        ray.shutdown()
        cluster.shutdown()
    print(f"test accuracy: {accuracy(weights):.2f}")
    same = losses == losses_2 and all(np.array_equal(weights[name], weights_2[name]) for name in weights)
    print("the losses and weights of both runs are equal" if same else "the losses or weights of the runs differ")
    if not same or accuracy(weights) < GOAL:
        sys.exit(1)


if __name__ == "__main__":
    main()
