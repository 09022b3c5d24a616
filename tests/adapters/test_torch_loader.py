"""`pyfeed.torch`: a DataLoader whose batches lie in shared memory that is reused."""

from __future__ import annotations

import _thread
import contextlib
import doctest
import gc
import importlib
import multiprocessing
import os
import pickle
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyfeed.torch
import pytest
import torch
import torch.utils.data
from pyfeed._torch_trainer import DataLoaderIterator, ResultQueue
from pyfeed.torch import DataLoader
from torch.utils.data import BatchSampler, SequentialSampler, TensorDataset

import pyfeed

from .torch_datasets import (
    LARGE_KINDS,
    Counter,
    Everything,
    Failing,
    Large,
    LargeStream,
    OneBuffer,
    Parts,
    Pids,
    Random,
    Squares,
    Unpicklable,
    alike,
    as_is,
    failing_init,
    first,
    seeds,
)

METHODS = ["fork", "spawn", "forkserver"]
ROOT = Path(__file__).parents[2]

methods = pytest.mark.parametrize("method", METHODS)


def loader(dataset: Any, method: str = "fork", *, num_workers: int = 2, **options: Any) -> Any:
    return DataLoader(dataset, num_workers=num_workers, multiprocessing_context=method, **options)


def rows(batches: Any) -> list[list[int]]:
    return [labels.tolist() for _, labels in batches]


def descriptors() -> set[str]:
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}")
    return found


def mapped_segments() -> int:
    return Path("/proc/self/maps").read_text().count("pyfeed-torch")


# ---- the same batches ----


@methods
def test_batches_and_their_order(method: str) -> None:
    for x, y in loader(Squares(100), method, batch_size=8):
        assert x.shape == (len(y), 3)
        assert x.tolist() == [[float(i * i)] * 3 for i in y.tolist()]
    assert rows(loader(Squares(20), method, batch_size=8)) == [[*range(8)], [*range(8, 16)], [*range(16, 20)]]


@methods
def test_persistent_workers_stay(method: str) -> None:
    loaded = loader(Pids(), method, batch_size=10, persistent_workers=True)
    pids = [{int(p) for batch in loaded for p in batch} for _ in range(3)]
    assert pids[0] == pids[1] == pids[2]
    assert len(pids[0]) == 2


def test_persistent_workers_after_a_pass_that_was_left() -> None:
    loaded = loader(Squares(1000), batch_size=4, persistent_workers=True)
    for _ in range(3):
        assert next(iter(loaded))[1].tolist() == [0, 1, 2, 3]
    assert len(rows(loaded)) == 250


@pytest.mark.parametrize("options", [{"shuffle": True}, {"shuffle": True, "drop_last": True}, {"batch_size": None}])
def test_as_torch(options: dict[str, Any]) -> None:
    options = {"batch_size": 7} | options
    kinds: list[Any] = [torch.utils.data.DataLoader, DataLoader]
    found = []
    for kind in kinds:
        made = kind(Squares(50), num_workers=2, generator=torch.Generator().manual_seed(5), **options)
        found.append([[torch.as_tensor(part).tolist() for part in item] for _ in range(2) for item in made])
    assert found[0] == found[1]


def test_samplers() -> None:
    batches = BatchSampler(SequentialSampler(range(10)), 4, drop_last=True)
    assert rows(loader(Squares(10), batch_sampler=batches)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert rows(loader(Squares(10), sampler=[3, 1, 2], batch_size=2)) == [[3, 1], [2]]
    tensors = [torch.tensor(4), torch.tensor(2)]
    assert rows(loader(Squares(10), sampler=tensors, batch_size=2)) == [[4, 2]]


def test_a_batch_of_many_indices() -> None:
    (batch,) = rows(loader(Squares(100_000, width=1), batch_size=100_000))
    assert batch == [*range(100_000)]


def test_more_batches_ahead_than_a_socket_takes() -> None:
    assert rows(loader(Squares(3000), batch_size=1, prefetch_factor=1500)) == [[i] for i in range(3000)]


@methods
def test_seeds_and_worker_info(method: str) -> None:
    kinds: list[Any] = [torch.utils.data.DataLoader, DataLoader]
    found = []
    for kind in kinds:
        made = kind(
            Random(),
            num_workers=2,
            multiprocessing_context=method,
            generator=torch.Generator().manual_seed(1),
            worker_init_fn=seeds,
        )
        found.append([[float(x) for x in batch] for batch in made])
    assert found[0] == found[1]


@methods
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_of_an_iterable_end_one_by_one(method: str, persistent: bool) -> None:
    expected = sorted([0, 1, 2, *range(1000, 1006), *range(2000, 2009)])
    loaded = loader(Parts(), method, num_workers=3, batch_size=2, persistent_workers=persistent, timeout=60)
    for _ in range(2):
        assert sorted(int(i) for batch in loaded for i in batch) == expected


def test_out_of_order() -> None:
    loaded = loader(Squares(40), batch_size=4, in_order=False)
    assert sorted(i for row in rows(loaded) for i in row) == [*range(40)]


@pytest.mark.filterwarnings("ignore:.*pin_memory.*")
def test_pin_memory_without_an_accelerator() -> None:
    assert len(rows(loader(Squares(20), batch_size=4, pin_memory=True))) == 5


def test_subscript_and_base_class() -> None:
    assert DataLoader[int] is not None
    assert issubclass(DataLoader, torch.utils.data.DataLoader)
    assert rows(DataLoader(Squares(4), batch_size=2)) == [[0, 1], [2, 3]]  # no workers


# ---- every kind of object ----


@methods
def test_every_kind_of_object(method: str) -> None:
    made = Everything()
    received = list(loader(made, method, batch_size=1, collate_fn=first))
    for i, item in enumerate(received):
        for name, value in made[i].items():
            assert alike(item[name], value), (i, name)


def test_tensors_that_share_memory_share_it_in_the_trainer() -> None:
    (item, *_) = loader(Everything(), batch_size=1, collate_fn=first)
    item["base"][5] = -1
    assert item["view"][0] == -1
    a, b, c = item["rows"]
    a[5] = -2
    assert b[0] == -2
    assert c.tolist() == [*range(99_990, 100_000)]
    assert a.untyped_storage().nbytes() < 1000  # of 800,000 bytes, only the rows were sent


def test_batches_are_writable_and_of_the_size_of_their_storage() -> None:
    for x, _ in loader(Squares(8), batch_size=4):
        x += 1
        assert x.untyped_storage().nbytes() == x.numel() * 4
        assert x.storage_offset() == 0
        x.requires_grad_()
    (array, *_) = loader([np.zeros(5000) for _ in range(2)], batch_size=1, collate_fn=first)
    array += 1
    assert array.sum() == 5000


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, np.uint16, np.float16])
def test_arrays_are_collated(dtype: Any) -> None:
    data = [np.arange(6).reshape(2, 3).astype(dtype) for _ in range(4)]
    (batch,) = loader(data, batch_size=4, num_workers=1)
    assert torch.equal(batch, torch.utils.data.default_collate(data))


def test_items_that_do_not_fit_together() -> None:
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        list(loader([torch.zeros(2), torch.zeros(3)], batch_size=2))
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        list(loader([np.zeros(2), np.zeros(3)], batch_size=2))


def outcome(loader: Any) -> tuple[list[Any], str]:
    """The batches of a loader, and the class of its error: the texts of PyTorch's errors depend on the memory."""
    batches: list[Any] = []
    try:
        batches.extend(loader)
    except Exception as error:
        return batches, type(error).__name__
    return batches, ""


@pytest.mark.parametrize("kind", LARGE_KINDS)
@pytest.mark.parametrize("source", ["map", "cache", "stream", "stream, no rest"])
def test_large_samples_are_collated_as_by_pytorch(kind: str, source: str) -> None:
    if source == "cache" and kind == "fails":
        source = "map"
    data = LargeStream(kind) if "stream" in source else Large(kind, cached=source == "cache")
    options = {"batch_size": 8, "num_workers": 1, "drop_last": source == "stream, no rest"}
    expected, error = outcome(torch.utils.data.DataLoader(data, **options))
    received, found = outcome(DataLoader(data, **options))
    assert found == error
    assert received or error
    for a, b in zip(received, expected, strict=True):
        assert alike(a, b)


def test_large_samples_of_a_cache_are_not_changed() -> None:
    data = Large("dict", cached=True)
    for _ in range(2):  # the second epoch finds what the first left
        for k, batch in enumerate(loader(data, num_workers=1, batch_size=8, persistent_workers=True)):
            assert batch["image"][:, 0, 0].tolist() == [*range(8 * k, min(8 * k + 8, 21))]
            batch["image"].zero_()


def test_a_dataset_may_fill_the_same_large_tensor() -> None:
    found = [batch[:, 0, 0].tolist() for batch in loader(OneBuffer(), batch_size=8)]
    assert found == [[*range(8)], [*range(8, 16)]]


def test_batches_that_grow_and_shrink() -> None:
    sizes = [10, 30 << 20, 10, 60 << 20, 100, 5]
    items = [torch.full((n,), i, dtype=torch.uint8) for i, n in enumerate(sizes)]
    for i, batch in enumerate(loader(items, batch_size=1)):
        assert batch.shape == (1, sizes[i])
        assert batch[0, 0] == batch[0, -1] == i


# ---- kept tensors ----


@methods
def test_kept_batches_stay_as_they_are(method: str) -> None:
    kept = list(loader(Squares(2000, width=100), method, batch_size=8))
    gc.collect()
    for x, y in kept:
        assert torch.equal(x[:, 0], (y * y).float())
        assert torch.equal(x[:, 99], (y * y).float())


def test_kept_batches_need_no_descriptors() -> None:
    before = len(os.listdir("/proc/self/fd"))
    kept = []
    for batch in loader(Squares(3000, width=200), batch_size=2):
        kept.append(batch)
        assert len(os.listdir("/proc/self/fd")) < before + 30
    assert [y.tolist() for _, y in kept] == [[i, i + 1] for i in range(0, 3000, 2)]


def test_memory_is_reused_and_freed() -> None:
    most = 0
    for _batch in loader(Squares(4000, width=1000), batch_size=4):
        most = max(most, mapped_segments())
    del _batch
    gc.collect()
    assert 1 <= most <= 20  # 1000 batches
    assert mapped_segments() == 0


def test_part_of_a_batch_keeps_it() -> None:
    kept = [x[1] for x, _ in loader(Squares(400, width=1000), batch_size=4)]
    assert all(row[0] == row[999] == (4 * i + 1) ** 2 for i, row in enumerate(kept))
    arrays = [x.numpy() for x, _ in loader(Squares(400, width=1000), batch_size=4)]
    assert all(a[3, 0] == (4 * i + 3) ** 2 for i, a in enumerate(arrays))


def test_a_tensor_that_the_dataset_keeps_is_not_overwritten() -> None:
    class Keeps(Squares):
        def __getitems__(self, indices: list[int]) -> Any:
            return indices

    def collate(indices: list[int]) -> Any:
        made = torch.utils.data.default_collate([torch.full((1000,), float(i)) for i in indices])
        kept.append(made)
        return [kept[0].clone(), kept[max(0, len(kept) - 20)].clone(), made]

    kept: list[torch.Tensor] = []
    for i, (oldest, older, new) in enumerate(loader(Keeps(400), num_workers=1, batch_size=4, collate_fn=collate)):
        assert torch.all(oldest[0] == 0)
        assert torch.all(older[0] == 4 * max(0, i - 19))
        assert torch.all(new[3] == 4 * i + 3)


def test_a_child_of_fork_keeps_its_batches() -> None:
    iterator = iter(loader(Squares(4000, width=1000), batch_size=4))
    x, y = next(iterator)
    read, write = os.pipe()
    go, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(go, 1)  # by now the trainer has taken all other batches
        os.write(write, b"1" if torch.equal(x[:, 0], (y * y).float()) else b"0")
        os._exit(0)
    del x, y
    assert len(rows(iterator)) == 999
    os.write(told, b"x")
    assert os.read(read, 1) == b"1"
    os.waitpid(pid, 0)
    for fd in (read, write, go, told):
        os.close(fd)


def test_batches_can_be_pickled_and_sent_on() -> None:
    kept = [x for x, _ in loader(Squares(40), batch_size=4)]
    copies = pickle.loads(pickle.dumps(kept))
    assert all(map(torch.equal, kept, copies))
    queue = torch.multiprocessing.get_context("fork").Queue()
    queue.put(kept[3])
    assert torch.equal(queue.get(timeout=60), copies[3])
    queue.close()
    queue.join_thread()


# ---- errors ----


@methods
@pytest.mark.parametrize("how", ["segfault", "kill", "exit", "exit 3"])
def test_a_worker_that_ends(method: str, how: str) -> None:
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly") as info:
        list(loader(Failing(how), method, batch_size=2))
    signals = {"segfault": "Segmentation fault", "kill": "Killed"}
    if method != "forkserver" and how in signals:  # whose workers are not children of this process
        (worker,) = re.findall(r"\d+", str(info.value))
        cause = info.value.__cause__
        assert str(cause) == f"DataLoader worker (pid {worker}) is killed by signal: {signals[how]}. "


def test_the_status_of_a_worker_is_left_for_the_signal_handler() -> None:
    """Otherwise PyTorch's handler cannot tell which signal killed the worker."""

    class Needing:
        def flush(self) -> None: ...

        def is_needed(self, process: Any) -> bool:
            return True

    context: Any = Needing()
    process = multiprocessing.get_context("fork").Process(target=os._exit, args=(3,))
    results = ResultQueue(context)
    process.start()
    results.add_process(process)
    with pytest.raises(queue.Empty):
        results.get(timeout=60)
    assert process.pid is not None
    status = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    assert status is not None
    assert status.si_status == 3
    process.join()
    results.close()


@methods
def test_a_worker_that_hangs(method: str) -> None:
    with pytest.raises(RuntimeError, match="DataLoader timed out after 5 seconds"):
        list(loader(Failing("hang"), method, batch_size=2, timeout=5, prefetch_factor=1))


@pytest.mark.parametrize("how", ["kill", "exit"])
def test_a_worker_that_ends_is_noticed_in_any_thread(how: str) -> None:
    """Without a signal, PyTorch looks only every five seconds."""
    caught: list[str] = []

    def consume() -> None:
        try:
            list(loader(Failing(how), "forkserver", batch_size=2))
        except RuntimeError as error:
            caught.append(str(error))

    thread = threading.Thread(target=consume)
    thread.start()
    thread.join()
    assert [text[-19:] for text in caught] == ["exited unexpectedly"]


@methods
def test_exceptions(method: str) -> None:
    with pytest.raises(KeyError, match="Caught KeyError in DataLoader worker process 0"):
        list(loader(Failing("raise"), method, batch_size=6))
    with pytest.raises(OSError, match="worker 0"):
        list(loader(Squares(4), method, worker_init_fn=failing_init))


def test_an_exception_does_not_end_the_pass() -> None:
    iterator = iter(loader(Failing("raise"), batch_size=2))
    found = []
    for _ in range(5):
        try:
            found.append(next(iterator).shape[0])
        except KeyError:
            found.append(-1)
    assert found == [2, 2, -1, 2, 2]


@methods
def test_results_that_cannot_be_pickled(method: str) -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="in DataLoader worker process 0"):
        list(loader(Unpicklable(), method, collate_fn=as_is))


@pytest.mark.filterwarnings("ignore:Got pickle error")
def test_a_dataset_that_cannot_be_pickled() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError)):
        list(loader([lambda: 0], "spawn"))


def test_other_versions_use_their_own_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyfeed.torch, "_TESTED_TORCH", ("1.0",))
    with pytest.warns(RuntimeWarning, match="pyfeed.torch is tested with torch 1.0"):
        assert rows(loader(Squares(4), batch_size=2)) == [[0, 1], [2, 3]]


# ---- processes ----


@methods
def test_iterators_that_are_dropped_leave_nothing(method: str) -> None:
    next(iter(loader(Squares(1000), method, batch_size=2)))  # what multiprocessing starts once
    gc.collect()
    before, threads = descriptors(), threading.active_count()
    for i in range(10 if method == "fork" else 3):
        iterator = iter(loader(Squares(1000, width=1000), method, batch_size=2, persistent_workers=i % 2 == 1))
        for _ in range(i):
            next(iterator)
        workers = [w.pid for w in iterator._workers]
        released = weakref.ref(iterator)
        del iterator
        gc.collect()
        assert released() is None
        assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    assert multiprocessing.active_children() == []
    assert descriptors() == before
    assert threading.active_count() == threads
    assert mapped_segments() == 0


def test_spawned_workers_start_side_by_side(tmp_path: Path) -> None:
    """The second worker starts although the first does not read its arguments: both wait for each other."""
    large = torch.utils.data.TensorDataset(torch.zeros(1))
    large.padding = b"x" * (1 << 20)  # more than a pipe takes
    paths = [str(tmp_path / str(i)) for i in range(2)]
    assert len(list(loader(large, "spawn", worker_init_fn=_Meets(paths)))) == 1


class _Meets:
    """Waits for the other worker."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        for path in paths:
            os.mkfifo(path)

    def __call__(self, i: int) -> None:
        if i == 0:
            with open(self.paths[0], "w"), open(self.paths[1]):
                pass
        else:
            with open(self.paths[0]), open(self.paths[1], "w"):
                pass


def test_the_end_of_the_trainer_ends_its_workers() -> None:
    script = """
import os, sys
from pyfeed.torch import DataLoader
from tests.adapters.torch_datasets import Squares
iterator = iter(DataLoader(Squares(10**6), num_workers=2))
next(iterator)
print(*(w.pid for w in iterator._workers), flush=True)
os.kill(os.getpid(), 9)
"""
    done = run(script)
    assert done.returncode == -signal.SIGKILL
    pids = done.stdout.split()
    assert len(pids) == 2
    until = time.monotonic() + 60
    while any(Path(f"/proc/{pid}/fd").exists() and _is_running(pid) for pid in pids):
        assert time.monotonic() < until


def test_a_worker_that_starts_when_the_trainer_has_ended() -> None:
    """PyTorch's check for the end of the trainer begins after the user's function, and then sees no change."""
    script = """
import functools, os
from pyfeed.torch import DataLoader
from tests.adapters.torch_datasets import Squares, outlive
wait = functools.partial(outlive, os.getpid())
iterator = iter(DataLoader(Squares(10), num_workers=2, worker_init_fn=wait, multiprocessing_context="fork"))
print(*(w.pid for w in iterator._workers), flush=True)
os.kill(os.getpid(), 9)
"""
    done = run(script)  # waits until all processes have closed the pipe of the output
    assert done.returncode == -signal.SIGKILL
    assert len(done.stdout.split()) == 2


def _is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def run(script: str, *prefix: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*prefix, sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=110, **options
    )


@methods
def test_ctrl_c_prints_nothing_else(method: str) -> None:
    script = f"""
import os, signal
from pyfeed.torch import DataLoader
from tests.adapters.torch_datasets import Squares
if __name__ == "__main__":
    try:
        for i, batch in enumerate(DataLoader(Squares(10**6), num_workers=2, multiprocessing_context={method!r})):
            if i == 20:
                os.killpg(0, signal.SIGINT)
    except KeyboardInterrupt:
        print("interrupted")
"""
    done = run(script, start_new_session=True)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)


@pytest.mark.parametrize(
    ("method", "module", "function"),
    [
        ("spawn", "multiprocessing.util", "spawnv_passfds"),
        ("forkserver", "multiprocessing.forkserver", "connect_to_new_process"),
    ],
)
def test_ctrl_c_while_a_worker_starts(method: str, module: str, function: str) -> None:
    """The signal comes when the process exists, but has not got its data."""
    script = f"""
import gc, multiprocessing.forkserver, multiprocessing.resource_tracker, multiprocessing.util, signal, threading
from pyfeed.torch import DataLoader
from tests.adapters.torch_datasets import Squares

def interrupted(*args):
    started = start(*args)
    has_started.set()
    thread.join()
    return started

def interrupt():
    has_started.wait()
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

if __name__ == "__main__":
    multiprocessing.resource_tracker.ensure_running()
    multiprocessing.forkserver.ensure_running()
    has_started = threading.Event()
    thread = threading.Thread(target=interrupt, daemon=True)  # the main thread blocks the signal in the meantime
    thread.start()
    start = {module}.{function}
    {module}.{function} = interrupted
    try:
        list(DataLoader(Squares(10), num_workers=2, multiprocessing_context={method!r}))
    except KeyboardInterrupt:
        print("interrupted")
    gc.collect()
    print(multiprocessing.active_children())
"""
    done = run(script, start_new_session=True)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n[]\n", "", 0)


@pytest.mark.parametrize("attribute", ["_workers_done_event", "_workers", "_reset"])
def test_ctrl_c_while_an_iterator_is_made(attribute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The KeyboardInterrupt comes when PyTorch's `__init__` is about to set the attribute, or to call `_reset`."""
    assigned: list[str] = []

    def set_attribute(self: Any, name: str, value: Any) -> None:
        assigned.append(name)
        if name == attribute and assigned.count(name) == 2:  # first by pyfeed, then by PyTorch
            raise KeyboardInterrupt
        object.__setattr__(self, name, value)

    def reset(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    if attribute == "_reset":
        monkeypatch.setattr(DataLoaderIterator, "_reset", reset)
    else:
        monkeypatch.setattr(DataLoaderIterator, "__setattr__", set_attribute, raising=False)
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    with pytest.raises(KeyboardInterrupt):
        iter(loader(Squares(100)))
    gc.collect()
    assert unraisable == []
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("early", [False, True])
def test_ctrl_c_while_an_iterator_is_deleted(early: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """If early, the thread that sends the signal again gets the GIL before `__del__` has returned."""
    stop = DataLoaderIterator._shutdown_workers
    start_thread = _thread.start_new_thread
    num_sent = 0

    def send(function: Callable[..., None], args: tuple[Any, ...]) -> None:
        nonlocal num_sent
        num_sent += 1
        if early and num_sent <= 3:
            function(*args)
        else:
            start_thread(function, args)

    def interrupted(self: Any) -> None:
        if not self._shutdown:
            os.kill(os.getpid(), signal.SIGINT)
        stop(self)

    monkeypatch.setattr(DataLoaderIterator, "_shutdown_workers", interrupted)
    monkeypatch.setattr(_thread, "start_new_thread", send)
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    iterators = [iter(loader(Squares(100)))]
    next(iterators[0])

    def delete() -> None:
        iterators.clear()
        for _ in range(60):
            signal.sigtimedwait([], 1)  # until the KeyboardInterrupt, which another thread sends

    with pytest.raises(KeyboardInterrupt):
        delete()
    assert num_sent > 3 if early else num_sent > 0
    assert unraisable == []
    assert multiprocessing.active_children() == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_leaves_the_workers_alone() -> None:
    iterator = iter(loader(Squares(1000), batch_size=2))
    found = [next(iterator)[1].tolist() for _ in range(3)]
    for worker in iterator._workers:
        os.kill(worker.pid, signal.SIGINT)
    found += rows(iterator)
    assert found == [[i, i + 1] for i in range(0, 1000, 2)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system")
@methods
def test_a_shared_memory_file_system_of_one_mebibyte(method: str) -> None:
    script = f"""
import os
from pyfeed.torch import DataLoader
from tests.adapters.torch_datasets import Squares
if __name__ == "__main__":
    size = os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize
    found = 0
    for x, y in DataLoader(Squares(64, width=1 << 20), batch_size=8, num_workers=2, multiprocessing_context={method!r}):
        assert (x[:, -1] == y * y).all()
        found += len(y)
    print(size, found)
"""
    mounted = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"', "sh")
    if subprocess.run([*mounted, "true"], capture_output=True).returncode != 0:
        pytest.skip("this system does not let root mount a file system")
    done = run(script, *mounted)
    assert (done.stdout, done.stderr) == ("1048576 64\n", "")


def test_default_limit_of_descriptors() -> None:
    script = """
import resource, warnings
warnings.simplefilter("ignore")  # more workers than cores
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from pyfeed.torch import DataLoader
from tests.adapters.torch_datasets import Squares
kept = [list(DataLoader(Squares(600, width=100), num_workers=8)) for _ in range(2)]
print(sum(len(k) for k in kept))
"""
    done = run(script)
    assert (done.stdout, done.stderr) == ("1200\n", "")


def test_pyfeed_does_not_import_torch() -> None:
    assert run("import pyfeed, sys; print('torch' in sys.modules)").stdout == "False\n"


def test_workers_do_not_import_the_library() -> None:
    script = """
import sys
import pyfeed_worker._torch_worker
print("pyfeed" in sys.modules)
"""
    assert run(script).stdout == "False\n"


# ---- the state ----


def stateful(dataset: Any, **options: Any) -> Any:
    return pyfeed.torch.StatefulDataLoader(dataset, **{"num_workers": 2, "batch_size": 2} | options)


@pytest.mark.parametrize(
    "make", [lambda: Counter(20), lambda: Squares(30)], ids=["iterable dataset", "map-style dataset"]
)
@methods
def test_resume(make: Callable[[], Any], method: str) -> None:
    theirs: Any = importlib.import_module("torchdata.stateful_dataloader").StatefulDataLoader
    options = {"num_workers": 2, "batch_size": 2, "multiprocessing_context": "fork"}
    whole = [torch.as_tensor(b[-1]).tolist() for b in stateful(make(), **options)]
    assert whole == [torch.as_tensor(b[-1]).tolist() for b in theirs(make(), **options)]
    pairs = ((stateful, stateful), (stateful, theirs), (theirs, stateful))
    options["multiprocessing_context"] = method
    # With spawn and forkserver, each worker imports torch, which takes seconds.
    for saving, loading in pairs if method == "fork" else pairs[:1]:
        saved = saving(make(), **options)
        iterator = iter(saved)
        begun = [torch.as_tensor(next(iterator)[-1]).tolist() for _ in range(5)]
        state = pickle.loads(pickle.dumps(saved.state_dict()))
        del iterator
        resumed = loading(make(), **options)
        resumed.load_state_dict(state)
        assert begun + [torch.as_tensor(b[-1]).tolist() for b in resumed] == whole


def test_results_with_a_state_that_cannot_be_pickled() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="in DataLoader worker process 0"):
        list(stateful(Unpicklable(), collate_fn=as_is))


def test_without_torchdata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchdata", None)
    monkeypatch.delitem(sys.modules, "pyfeed._torch_stateful", raising=False)
    monkeypatch.delitem(vars(pyfeed.torch), "StatefulDataLoader", raising=False)
    with pytest.raises(pyfeed.errors.UnsupportedError, match="needs the package torchdata"):
        pyfeed.torch.StatefulDataLoader(Squares(3))


@pytest.fixture(autouse=True)
def _nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # After an error, PyTorch's own loader waits for its workers for so long, 5 seconds otherwise, and then ends them.
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 1.0)
    yield
    gc.collect()
    assert multiprocessing.active_children() == []


def test_tensor_dataset() -> None:
    data = TensorDataset(torch.arange(12.0).reshape(6, 2), torch.arange(6))
    assert [y.tolist() for _, y in loader(data, batch_size=3)] == [[0, 1, 2], [3, 4, 5]]


# ---- what is written ----

PAGE = (ROOT / "docs/from_torch.md").read_text()
BLOCKS = [b for b in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) if "import torch\n" in b]


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_python_of_the_page_runs(block: str, tmp_path: Path) -> None:
    file = tmp_path / "block.py"
    file.write_text(block)
    done = subprocess.run(
        [sys.executable, "-W", "ignore::UserWarning", file], capture_output=True, text=True, cwd=tmp_path, timeout=110
    )
    said = re.findall(r"print\(.*\)  # (.*)", block)
    assert (done.stdout.splitlines(), done.stderr) == (said, "")
    assert said


def test_examples_in_docstrings() -> None:
    results = doctest.testmod(pyfeed.torch)
    assert results.failed == 0
    assert results.attempted >= 5


def test_tested_versions_are_stated() -> None:
    versions = [*pyfeed.torch._TESTED_TORCH, *pyfeed.torch._TESTED_TORCHDATA]
    for text in (PAGE, str(pyfeed.torch.__doc__)):
        assert [v for v in versions if v not in text] == []
    assert torch.__version__.rpartition(".")[0] in pyfeed.torch._TESTED_TORCH
