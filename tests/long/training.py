"""The training process that resume.py kills, and the server that forks one for each run.

A run is a process of its own, since a killed process must not leave anything but its files. The server has imported
NumPy and what pyfeed imports, but not pyfeed, which does not work in a child of fork. So a run starts in about 30 ms.
"""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import json
import os
import pickle
import signal
import socket
import time
import traceback
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import numpy.random  # which map(rng=True) imports
import numpy.typing as npt

if TYPE_CHECKING:
    from pyfeed import Reader

# What a run writes to its pipe: a byte for each event.
DELIVERED, WRITING, ENDED = b"d", b"w", b"e"
MESSAGE_BYTES = 1 << 16
ROW = 3  # numbers in a record of a format with a single slot; the first one is the number of the record


class Plan(TypedDict):
    """A run: the chain that it reads, and how it writes its checkpoints."""

    folder: str
    pattern: str  # of the files
    open: dict[str, Any]  # arguments of open_files that decide the order
    second: bool  # the reader is zipped with a second reader of the same files
    chain: list[tuple[str, dict[str, Any]]]  # methods of Reader and their arguments
    epochs: int
    rows: bool  # the first slot is a row of ROW numbers, not the number of the record itself
    reading: dict[str, Any]  # arguments of open_files that may differ between two runs
    map_threads: int
    depth: int  # of double_buffer
    step_seconds: float  # how long a step takes, in addition to its checkpoint
    sync: bool  # each checkpoint is synced to the disk
    halt: tuple[int, float] | None  # stop in this checkpoint, the first is 0, after this part of its bytes
    reference: bool  # write no checkpoints, but the digest of each step at the end


class Checkpoint(TypedDict):
    """The state of a training. The digest stands for the weights: it depends on all batches and their order."""

    epoch: int
    step: int
    digest: bytes
    ids: array[int]  # the numbers of all records so far
    reader: dict[str, Any] | None


class Reference(TypedDict):
    """What the training that was not disturbed has read."""

    digests: list[bytes]  # after each step, beginning with step 0
    ends: list[int]  # how many records were read then
    ids: array[int]


def open_chain(plan: Plan) -> Reader:
    from pyfeed import LoDTensor, Scope, open_files

    def augment(first: Any, *others: Any, rng: np.random.Generator) -> tuple[Any, ...]:
        def with_noise(x: Any) -> Any:
            return x if isinstance(x, LoDTensor) else x + rng.integers(1000, size=x.shape).astype(x.dtype)

        if plan["rows"]:
            first = np.concatenate([first[..., :1], with_noise(first[..., 1:])], axis=-1)
        return first, *map(with_noise, others)

    files, scope = f"{plan['folder']}/{plan['pattern']}", Scope()
    reader = open_files(files, scope=scope, **plan["open"], **plan["reading"])
    if plan["second"]:
        reader = reader.zip(open_files(files, scope=scope, **plan["open"], **plan["reading"]))
    for kind, arguments in plan["chain"]:
        if kind == "map":
            reader = reader.map(augment, plan["map_threads"], rng=True, **arguments)
        elif kind == "double_buffer":
            reader = reader.double_buffer(depth=plan["depth"])
        else:
            reader = getattr(reader, kind)(**arguments)
    return reader


def digest_of(before: bytes, slots: tuple[Any, ...]) -> bytes:
    """Return the digest of all batches, from that of all but the last, and the last batch."""
    out = hashlib.sha256(before)
    for slot in slots:
        data: npt.NDArray[Any] = np.ascontiguousarray(getattr(slot, "data", slot) if hasattr(slot, "lod") else slot)
        out.update(f"{data.dtype} {data.shape}".encode())
        out.update(data.tobytes())
        for level in getattr(slot, "lod", ()):
            out.update(np.asarray(level, np.int64).tobytes())
    return out.digest()


def train(plan: Plan, events: int) -> None:
    """Train from the checkpoint in the folder, or from the beginning, to the end."""
    path = os.path.join(plan["folder"], "checkpoint")
    reader = open_chain(plan)
    now: Checkpoint = {"epoch": 0, "step": 0, "digest": b"", "ids": array("q"), "reader": None}
    reference: Reference = {"digests": [b""], "ends": [0], "ids": now["ids"]}
    if not plan["reference"] and os.path.exists(path):
        with open(path, "rb") as file:
            now = pickle.load(file)
        reader.load_state_dict(now["reader"] or {})
    saves = 0

    def save() -> None:
        nonlocal saves
        halt = plan["halt"][1] if plan["halt"] and plan["halt"][0] == saves else None
        saves += 1
        now["reader"] = reader.state_dict()
        data = pickle.dumps(now)
        with open(path + ".partial", "wb", buffering=0) as file:
            if halt is not None:
                file.write(data[: round(halt * len(data))])
                os.write(events, WRITING)
                signal.pause()  # until the process is killed
            file.write(data)
            if plan["sync"]:
                os.fsync(file.fileno())
        os.replace(path + ".partial", path)

    for epoch in range(now["epoch"], plan["epochs"]):
        for slots in reader:
            os.write(events, DELIVERED)
            first = np.asarray(slots[0], np.int64)
            now["ids"].extend((first.reshape(-1, ROW)[:, 0] if plan["rows"] else first.reshape(-1)).tolist())
            now["digest"] = digest_of(now["digest"], slots)
            now["step"] += 1
            if plan["reference"]:
                reference["digests"].append(now["digest"])
                reference["ends"].append(len(now["ids"]))
            else:
                time.sleep(plan["step_seconds"])
                save()
        now["epoch"] = epoch + 1
        if not plan["reference"]:
            save()
    if plan["reference"]:
        Path(plan["folder"], "reference").write_bytes(pickle.dumps(reference))
    os.write(events, ENDED)


def run(plan: Plan, events: int) -> None:
    """Train in this process, which then ends without any cleanup."""
    status = 1
    with contextlib.suppress(BaseException):
        try:
            train(plan, events)
            status = 0
        except BaseException:
            traceback.print_exc()
    os._exit(status)


def serve(control: socket.socket) -> None:
    """Fork a process for each plan that arrives with the write end of its pipe. Each answer is a number in a message.

    The first answer is the process. It is reaped when the next message arrives; its exit status is the second answer.
    So the number of the process cannot be that of another one while the client may kill it.
    """
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 1)
        if not message:
            return
        (events,) = descriptors
        process = os.fork()
        if process == 0:
            control.close()
            run(json.loads(message), events)
        os.close(events)
        control.send(str(process).encode())
        control.recv(1)
        control.send(str(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])).encode())


if __name__ == "__main__":
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    with socket.socket(fileno=0) as connection:
        serve(connection)
