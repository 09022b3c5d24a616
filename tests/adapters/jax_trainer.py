"""A process of a job of JAX: `python jax_trainer.py PORT RANK FILES`. Prints what each step has, as JSON."""

from __future__ import annotations

import json
import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from pyfeed.jax import ArrayLoader

import pyfeed


def main() -> None:
    port, rank, files = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=rank)
    mesh = Mesh(np.array(jax.devices()), ("data",))
    reader = pyfeed.open_files(files).shuffle(24, seed=1).batch(8, drop_last=True).split_batches("auto").double_buffer()
    loader = ArrayLoader(reader, NamedSharding(mesh, PartitionSpec("data")))
    total = jax.jit(lambda x: x.sum())
    for (x,) in loader:
        mine = [shard.data.tolist() for shard in x.addressable_shards]
        print(json.dumps([list(x.shape), mine, int(total(x))]), flush=True)
    assert jax.process_count() == 2


if __name__ == "__main__":
    main()
