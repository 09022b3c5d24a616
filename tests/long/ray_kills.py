"""Kills and stops workers, nodes, the coordinator and trainers of a `pyfeed.ray.FeedService` at random moments.

    build/adapters/bin/python -m tests.long.ray_kills --kills 500 --seed 1

Two trainers read from a service whose workers are on three nodes of a cluster in this machine. At the end, the logs of
the trainers must have each batch once, in the order that the readers have in one process. With `--kinds stop`, and
`pause` for the coordinator, SIGSTOP stops a process, as if it hung, and SIGCONT continues it after a random time. The
longest waits for a batch are printed beside the time in which the cluster detects that a node is lost. The exit status
is 1 if a batch is lost, repeated or out of order, or if the trainers make no step for two minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import ray
from pyfeed.ray import FeedService
from ray.cluster_utils import Cluster

from . import ray_trainer

PERIOD, FAILURES = 0.5, 10  # seconds between two checks of a node, and failed checks after which it is lost
HEALTH = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": int(PERIOD * 1000),
    "health_check_failure_threshold": FAILURES,
}
KINDS = {"worker": 10, "process": 8, "coordinator": 4, "node": 3, "trainer": 2, "stop": 8, "pause": 2}  # frequencies
STALL = 3.0  # seconds after which a worker hangs
STOPPED = 12.0  # seconds for which a process is stopped, at most
BEFORE = 6.0  # seconds after which a kill may make a trainer wait: until then, it has messages
STUCK = 120.0  # seconds without a step
ROOT = Path(__file__).parents[2]


class Campaign:
    """A cluster, a service and two trainers."""

    def __init__(self, folder: Path, seed: int, kinds: list[str]) -> None:
        self.folder, self.rng, self.kinds = folder, random.Random(seed), kinds
        self.kills: list[tuple[float, str]] = []
        self.stopped: dict[int, float] = {}  # processes, and when they continue
        self.address = self.start_cluster()
        self.service = FeedService(
            ray_trainer.make_feed(0.0005),
            num_streams=ray_trainer.STREAMS,
            num_workers=4,
            worker_options={"num_cpus": 0.1, "resources": {"preprocessing": 1}},
            message_bytes=200_000,
            stall_timeout=STALL,
        )
        self.trainers = [self.start_trainer(rank) for rank in range(2)]

    def start_cluster(self) -> str:
        """Start a head and nodes for workers, connect with it, and return its address."""
        self.cluster = Cluster(
            initialize_head=True,
            connect=True,
            head_node_args={
                "num_cpus": 1,
                "include_dashboard": False,
                "object_store_memory": 200 << 20,
                "_system_config": HEALTH,
            },
        )
        self.nodes = [self.add_node() for _ in range(3)]
        self.cluster.wait_for_nodes()
        return str(self.cluster.address)

    def end_cluster(self) -> None:
        self.cluster.shutdown()

    def add_node(self) -> Any:
        return self.cluster.add_node(num_cpus=2, resources={"preprocessing": 4}, object_store_memory=100 << 20)

    def start_trainer(self, rank: int) -> subprocess.Popen[bytes]:
        service = ray.cloudpickle.dumps(self.service).hex()
        command = [sys.executable, "-m", "tests.long.ray_trainer", service, self.address, str(self.folder)]
        return subprocess.Popen([*command, str(rank)], cwd=ROOT, stderr=(self.folder / f"stderr-{rank}").open("ab"))

    def steps(self) -> list[int]:
        paths = [self.folder / f"steps-{rank}" for rank in range(2)]
        return [int(path.read_text()) if path.exists() else 0 for path in paths]

    def wait_for_steps(self, count: int) -> None:
        """Wait until both trainers have made more steps."""
        goal, end = [step + count for step in self.steps()], time.monotonic() + STUCK
        while any(step < wanted for step, wanted in zip(self.steps(), goal, strict=True)):
            for rank, trainer in enumerate(self.trainers):
                if trainer.poll() is not None:
                    raise SystemExit(f"trainer {rank} has failed:\n{(self.folder / f'stderr-{rank}').read_text()}")
            self.continue_stopped(time.monotonic())
            if time.monotonic() > end:
                raise SystemExit(f"no steps for {STUCK:.0f} s after {self.kills[-3:]}: {self.service.stats()}")
            time.sleep(0.01)

    def kill(self) -> None:
        (kind,) = self.rng.choices(self.kinds, [KINDS[kind] for kind in self.kinds])
        self.kills.append((time.time(), kind))
        getattr(self, f"kill_{kind}")()

    def kill_worker(self) -> None:
        self.kill_actor(f"worker-{self.rng.randrange(4)}")

    def kill_coordinator(self) -> None:
        self.kill_actor("coordinator")

    def kill_actor(self, name: str) -> None:
        ray.kill(ray.get_actor(name, namespace=self.service._namespace), no_restart=False)

    def kill_process(self) -> None:
        """Send SIGKILL to the process of a worker, of which Ray knows nothing before."""
        self.send("ray::Worker", signal.SIGKILL)

    def kill_stop(self) -> None:
        """Stop the process of a worker for a while."""
        self.send("ray::Worker", signal.SIGSTOP)

    def kill_pause(self) -> None:
        """Stop the coordinator for a while."""
        self.send("ray::Coordinator", signal.SIGSTOP)

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to the process of an actor, chosen at random."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if name.encode() in (entry / "cmdline").read_bytes() and self.is_mine(entry):
                    found.append(int(entry.name))
            except OSError:
                pass
        if found:
            process = self.rng.choice(sorted(found))
            if number == signal.SIGSTOP:
                self.stopped[process] = time.monotonic() + self.rng.uniform(0, STOPPED)
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def continue_stopped(self, now: float) -> None:
        """Continue the processes whose time has come."""
        for process, until in list(self.stopped.items()):
            if until <= now:
                del self.stopped[process]
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)

    def is_mine(self, entry: Path) -> bool:
        """Whether a worker belongs to this cluster, and not to another one in this machine: its parent is a raylet."""
        parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
        return self.cluster.address.encode() in (entry.parent / parent / "cmdline").read_bytes()

    def kill_node(self) -> None:
        lost = self.nodes.pop(self.rng.randrange(len(self.nodes)))
        self.cluster.remove_node(lost, allow_graceful=False)
        self.nodes.append(self.add_node())

    def kill_trainer(self) -> None:
        rank = self.rng.randrange(2)
        self.trainers[rank].kill()
        self.trainers[rank].wait()
        self.trainers[rank] = self.start_trainer(rank)

    def end(self) -> None:
        (self.folder / "end").touch()
        self.continue_stopped(math.inf)
        for trainer in self.trainers:
            trainer.kill()
            trainer.wait()
        self.service.shutdown()
        ray.shutdown()
        self.end_cluster()


def check(folder: Path) -> dict[str, Any]:
    """Compare the logs with what one process reads."""
    counts: Counter[str] = Counter(batches=0, lost=0, repeated=0, disordered=0)
    waits: list[tuple[float, float]] = []
    for rank in range(2):
        found: dict[int, list[list[int]]] = {}
        for line in (folder / f"log-{rank}").read_text().splitlines():
            number, rows, waited, asked = json.loads(line)
            found.setdefault(number, []).append(rows)
            waits.append((waited, asked))
        for number, every in zip(range(len(found)), ray_trainer.passes(), strict=False):
            halves = [len(rows) // 2 for rows in every]
            expected = [rows[rank * n : rank * n + n] for rows, n in zip(every, halves, strict=True) if n]
            got = found[number]
            counts["batches"] += len(got)
            if number == len(found) - 1:  # the last pass was not read to its end
                expected = expected[: len(got)]
            in_log, wanted = Counter(map(tuple, got)), Counter(map(tuple, expected))
            counts["lost"] += (wanted - in_log).total()
            counts["repeated"] += (in_log - wanted).total()
            counts["disordered"] += got != expected
    return {**counts, "waits": sorted(waits, reverse=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=1e9, help="end after this time, even with fewer kills")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.0, help="the least seconds between two kills")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="what is killed; default: all")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        campaign = Campaign(Path(name), args.seed, args.kinds)
        began = time.monotonic()
        try:
            campaign.wait_for_steps(1)
            while len(campaign.kills) < args.kills and time.monotonic() - began < 60 * args.minutes:
                time.sleep(args.pause + campaign.rng.random() ** 2)
                campaign.continue_stopped(time.monotonic())
                campaign.kill()
                if campaign.rng.random() < 0.7:  # otherwise the next kill comes before the trainers go on
                    campaign.wait_for_steps(1)
                if len(campaign.kills) % 25 == 0:
                    print(f"{len(campaign.kills)} kills, {time.monotonic() - began:.0f} s", flush=True)
            campaign.wait_for_steps(30)
        finally:
            campaign.end()
        result = check(Path(name))
    waits = result.pop("waits")
    kinds = Counter(kind for _, kind in campaign.kills)
    print(f"seed {args.seed}, {time.monotonic() - began:.0f} s, kills: {len(campaign.kills)}, {dict(kinds)}")
    print(", ".join(f"{name}: {value}" for name, value in result.items()))
    print(
        f"detection of a lost node: at most {PERIOD * (FAILURES + 1):.1f} s, of a stopped worker: {STALL:.1f} s; "
        "the longest waits, and kills meanwhile:"
    )
    for waited, asked in waits[:8]:
        meanwhile = Counter(kind for at, kind in campaign.kills if asked - BEFORE < at < asked + waited)
        print(f"  {waited:.2f} s: {dict(meanwhile)}")
    if result["lost"] or result["repeated"] or result["disordered"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
