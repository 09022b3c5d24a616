"""Cuts nodes of a cluster of Ray off from the network, as the failure of a switch does, while trainers read.

    build/adapters/bin/python -m tests.long.ray_partitions --partitions 20 --seed 1

Needs root and Linux: each node is in a network namespace of its own, which a bridge connects with the head. Two
trainers read as in ray_kills.py. A partition takes up to 12 seconds: shorter ones heal before Ray gives the node up,
and its workers send what they made meanwhile; after longer ones, the node is started anew. If the kernel has netem,
packets of the nodes are delayed by 20 ms. The exit status is 1 if a batch is lost, repeated or out of order, or if the
trainers make no step for two minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import ray

from . import ray_kills

NODES = 3
LONGEST = 12.0  # seconds of a partition
BRIDGE, NETWORK, PORT = "pyfeed-bridge", "10.77.0", 6399
HEAD = f"{NETWORK}.1:{PORT}"


def run(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr or done.stdout}")


@contextlib.contextmanager
def network() -> Iterator[None]:
    """Make a bridge, and a namespace for each node that is connected with it."""
    links = [f"pyfeed-{i}" for i in range(NODES)]
    try:
        run(f"ip link add {BRIDGE} type bridge")
        run(f"ip address add {NETWORK}.1/24 dev {BRIDGE}")
        run(f"ip link set {BRIDGE} up")
        for i, link in enumerate(links):
            run(f"ip netns add {link}")
            run(f"ip link add {link} type veth peer name eth0 netns {link}")
            run(f"ip link set {link} master {BRIDGE} up")
            run(f"ip -n {link} address add {NETWORK}.{i + 2}/24 dev eth0")
            run(f"ip -n {link} link set eth0 up")
            run(f"ip -n {link} link set lo up")
        try:
            for link in links:
                run(f"tc qdisc add dev {link} root netem delay 20ms 5ms")
        except SystemExit as error:
            print(f"no delays: {error}", flush=True)
        yield
    finally:
        for link in links:
            subprocess.run(["ip", "link", "del", link], capture_output=True, check=False)
            subprocess.run(["ip", "netns", "del", link], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)


class Campaign(ray_kills.Campaign):
    """A cluster in namespaces, a service and two trainers."""

    def start_cluster(self) -> str:
        self.restarted = 0
        health = json.dumps(ray_kills.HEALTH)
        self.head = self.start(1, "--head", f"--port={PORT}", "--include-dashboard=false", f"--system-config={health}")
        self.connect()
        self.nodes: list[subprocess.Popen[bytes]] = []
        for i in range(NODES):  # one by one: they share a folder
            self.nodes.append(self.start_node(i))
            end = time.monotonic() + ray_kills.STUCK
            while sum(node["Alive"] for node in ray.nodes()) < i + 2:
                if self.nodes[i].poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"node {i} did not start:\n{(self.folder / f'node-{i + 2}').read_text()}")
                time.sleep(0.1)
        return HEAD

    def end_cluster(self) -> None:
        for node in [*self.nodes, self.head]:
            node.terminate()
        for node in [*self.nodes, self.head]:
            with contextlib.suppress(subprocess.TimeoutExpired):
                node.wait(20)
            node.kill()

    def connect(self) -> None:
        end = time.monotonic() + ray_kills.STUCK
        while True:
            try:
                ray.init(HEAD, log_to_driver=False, logging_level="ERROR")
                return
            except (ConnectionError, RuntimeError, ValueError) as error:
                if time.monotonic() > end or self.head.poll() is not None:
                    raise SystemExit(f"the head did not start: {error}") from error
                time.sleep(0.2)

    def start(self, host: int, *options: str, namespace: str | None = None) -> subprocess.Popen[bytes]:
        inside = ["ip", "netns", "exec", namespace] if namespace else []
        command = [*inside, sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=2"]
        command += [f"--node-ip-address={NETWORK}.{host}", f"--object-store-memory={100 << 20}", *options]
        with (self.folder / f"node-{host}").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def start_node(self, i: int) -> subprocess.Popen[bytes]:
        resources = json.dumps({"preprocessing": 4})
        return self.start(i + 2, f"--address={HEAD}", f"--resources={resources}", namespace=f"pyfeed-{i}")

    def partition(self) -> None:
        """Cut a node off for a while, and start it anew if it has ended."""
        i, seconds = self.rng.randrange(NODES), self.rng.uniform(0.5, LONGEST)
        self.kills.append((time.time(), "partition"))
        run(f"ip link set pyfeed-{i} down")
        time.sleep(seconds)
        run(f"ip link set pyfeed-{i} up")
        self.wait_for_steps(20)
        for k, node in enumerate(self.nodes):
            if node.poll() is not None:
                self.restarted += 1
                self.nodes[k] = self.start_node(k)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    os.environ["RAY_AUTH_MODE"] = "disabled"  # `ray start` makes no token
    with tempfile.TemporaryDirectory() as name, network():
        campaign = Campaign(Path(name), args.seed, [])
        began = time.monotonic()
        try:
            campaign.wait_for_steps(1)
            for _ in range(args.partitions):
                campaign.partition()
                print(f"{len(campaign.kills)} partitions, {time.monotonic() - began:.0f} s", flush=True)
            campaign.wait_for_steps(30)
        finally:
            campaign.end()
        result = ray_kills.check(Path(name))
    waits = result.pop("waits")
    print(f"seed {args.seed}, {len(campaign.kills)} partitions, {campaign.restarted} nodes were started anew")
    print(", ".join(f"{name}: {value}" for name, value in result.items()))
    print(f"the longest waits: {', '.join(f'{waited:.1f} s' for waited, _ in waits[:8])}")
    if result["lost"] or result["repeated"] or result["disordered"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
