"""Run workers on rings that another process overwrites: overwritten_ring.py FD SEED ROUNDS.

FD is the ring of a running trainer. In each round a worker process uses a copy of the ring, parts of which are
overwritten before the work and, by another process, during it. The program prints how often the worker ended with each
result.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import random
import signal
import struct
import sys
from collections import Counter

import numpy as np
import pyfeed_worker
from pyfeed_worker import LoDTensor, Producer

HEADER = 512
TAIL = 320  # offset in the header of `tail`, the number of the next entry of the order
SLOTS, CELLS = 4, 8
STUCK = 20  # time limit of a round in seconds


def ring_like(image: bytes) -> tuple[int, mmap.mmap]:
    fd = os.memfd_create("ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(fd, len(image))
    memory = mmap.mmap(fd, len(image))
    memory[:] = image
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd, memory


def scribble(memory: mmap.mmap, image: bytes, rng: random.Random, times: int) -> None:
    """Overwrite parts of the ring, mostly in its tables, with numbers that are wrong in many ways."""
    tables = struct.unpack_from("<7Q", image, 72)  # specs_at to data_at
    for _ in range(times):
        at = rng.choice(tables) + rng.randrange(2048) if rng.random() < 0.9 else rng.randrange(HEADER)
        width = rng.choice([1, 2, 4, 8])
        at = min(at // width * width, len(image) - width)
        number: int | None = rng.choice(
            [0, 1, 2, 7, 0x7F, 0xFF, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 62, (1 << 64) - 1, None]
        )
        number = rng.getrandbits(64) if number is None else number
        memory[at : at + width] = (number & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def work(fd: int, memory: mmap.mmap, image: bytes, rng: random.Random) -> str:
    producer = Producer(fd)
    cells, states = struct.unpack_from("<2Q", image, 96)
    consumed = [(cells, 8 * CELLS), (states, 8 * SLOTS), (TAIL, 8)]  # restored after each push, as by a consumer
    try:
        producer._mapped()
        scribble(memory, image, rng, rng.choice([0, 1, 4, 64]))
        producer.attach()
        small = np.ones((2, 5), np.float32), LoDTensor(np.ones(3, np.uint8), [[0, 1, 3]])
        large = np.ones((700, 5), np.float32), LoDTensor(np.ones(1400, np.uint8), [[*range(0, 1401, 2)]])
        for i in range(24):
            scribble(memory, image, rng, rng.choice([0, 0, 0, 1, 8]))
            if i % 3 == 2:
                with producer.reserve(shapes=[(2, 5), (4,)], lod=[None, [[0, 1, 4]]], timeout=0.001) as (a, b):
                    a[:] = 7
                    b.data[:] = 8
            else:
                producer.push(large if i % 5 == 4 else small, timeout=0.001)
            for at, size in consumed:
                memory[at : at + size] = image[at : at + size]
        producer.close()
    except pyfeed_worker.Error as error:
        try:
            producer.fail(error)
        except pyfeed_worker.Error:
            pass
        return type(error).__name__
    return "done"


def one_round(image: bytes, seed: int) -> str:
    rng = random.Random(seed)
    fd, memory = ring_like(image)
    if rng.random() < 0.3:
        scribble(memory, image, rng, rng.choice([1, 3, 50]))
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(STUCK)  # a round that hangs ends with a signal, which is reported
        os.write(into, work(fd, memory, image, rng).encode())
        os._exit(0)
    vandal = os.fork()
    if vandal == 0:
        signal.alarm(STUCK)
        while seed % 2:
            scribble(memory, image, rng, 1)
        signal.pause()
    os.close(into)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.kill(vandal, signal.SIGKILL)
    os.waitpid(vandal, 0)
    told = os.read(out, 100).decode()
    os.close(out)
    memory.close()
    os.close(fd)
    return told if status == 0 else f"seed {seed}: the worker ended with status {status}"


def main() -> None:
    fd, seed, rounds = map(int, sys.argv[1:])
    with mmap.mmap(fd, 0) as trainers:
        image = trainers[:]
    ends = Counter(one_round(image, seed + i) for i in range(rounds))
    for kind, count in sorted(ends.items()):
        print(kind, count)


if __name__ == "__main__":
    main()
