"""Shared code of the tests: calls in threads, waits for events, exact comparison of errors, other processes, DLPack."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pytest

import pyfeed
from pyfeed import PyArrayFeedQueue, Reader, Scope

T = TypeVar("T")
Array = npt.NDArray[Any]

# Multiplies time limits, for an emulated machine: see tests/aarch64.
SLOWNESS = float(os.environ.get("PYFEED_TEST_SLOWNESS", "1"))
# A time limit in seconds for calls that must not block for ever: longer than any such call takes.
STUCK = 30.0 * SLOWNESS

_KINDS: dict[str, list[Any]] = {
    "bool": [""],
    "int": [8, 16, 32, 64],
    "uint": [8, 16, 32, 64],
    "float": [16, 32, 64],
    "complex": [64, 128],
}
DTYPES = [f"{kind}{bits}" for kind, sizes in _KINDS.items() for bits in sizes]

# The suffixes of files of each format that the library can write, "tokens" for the format without a suffix.
FILE_FORMATS = ["npy", "npz", "tfrecord", "recordio", "tar", "raw", "csv", "idx"]
FILE_FORMATS += ["arrow", "arrows", "jsonl", "tokens", "parquet", "mds"]


def needs_gil(reason: str) -> pytest.MarkDecorator:
    """Skip a test in a Python that runs without a GIL."""
    return pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason=reason)


def feed(
    capacity: int = 4, shapes: Sequence[Sequence[int]] = ((2,),), **options: Any
) -> tuple[Reader, PyArrayFeedQueue]:
    """Create a queue and its reader in a new scope."""
    return pyfeed.py_array_reader(capacity, shapes, scope=Scope(), **options)


def tuple_of(value: float, size: int = 2) -> tuple[Array]:
    """Return a tuple that fits the default slots of feed() and holds `value`."""
    return (np.full(size, value, np.float64),)


def value_of(arrays: Sequence[Any]) -> Any:
    """Return the value that tuple_of was called with."""
    return arrays[0].flat[0].item()


def values_in(reader: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return the values that a loop reads: all of a pass, or the rest of one."""
    return [value_of(arrays) for arrays in reader]


def wait_until(condition: Callable[[], object], timeout: float = STUCK) -> None:
    """Wait until another thread has made the condition true."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.0005)


def wait_for_ends(pids: Iterable[int | str]) -> None:
    """Wait until all these processes have ended. They may be zombies: their parent may be an init that reaps late."""
    wait_until(lambda: not any(map(_is_running, pids)))


def _is_running(pid: int | str) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def wait_for_producers(queue: PyArrayFeedQueue, number: int = 1) -> None:
    """Wait until `number` threads are blocked in a push."""
    wait_until(lambda: queue.stats()["waiting_producers"] == number)


def wait_for_consumers(queue: PyArrayFeedQueue, number: int = 1) -> None:
    """Wait until `number` threads are blocked in a pop or a read."""
    wait_until(lambda: queue.stats()["waiting_consumers"] == number)


def wait_for_readers(reader: Reader) -> None:
    """Wait until a thread sleeps in this reader, which makes the reader's waiting time grow."""
    wait_until(lambda: reader.stats()["waited_seconds"] < reader.stats()["waited_seconds"])


class Background(Generic[T]):
    """A call in a new thread."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function: Callable[[], T] | None = function
        self._value: T | None = None
        self._error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            assert self._function is not None
            self._value = self._function()
        except BaseException as error:
            self._error = error
        self._function = None

    def done(self) -> bool:
        return not self.thread.is_alive()

    def wait(self) -> None:
        self.thread.join(STUCK)
        assert self.done(), "the thread is stuck"

    def result(self) -> T:
        """Wait for the call; return its result or raise its exception."""
        self.wait()
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None
        return self._value  # type: ignore[return-value]


def together(*functions: Callable[[], Any]) -> list[Any]:
    """Call all functions at the same time, each in a thread; return their results."""
    return [b.result() for b in [Background(f) for f in functions]]


@contextlib.contextmanager
def raises(
    kind: type[BaseException], message: str | None, *, slot: int | None = None, also: type[BaseException] | None = None
) -> Iterator[None]:
    """Expect an error of exactly this class, message and slot, which is also an instance of the class `also`."""
    with pytest.raises(kind) as caught:
        yield
    assert caught.type is kind
    assert message is None or str(caught.value) == message
    assert getattr(caught.value, "slot", None) == slot
    assert also is None or issubclass(kind, also)
    assert issubclass(kind, pyfeed.errors.Error)


# ---- Processes ----


PREAMBLE = """
import atexit, gc, os, signal, sys, threading, time, warnings
warnings.filterwarnings("ignore", "This process .* is multi-threaded, use of fork", DeprecationWarning)
import numpy as np
import pyfeed

def feed(capacity=1, **options):
    options.setdefault("scope", pyfeed.Scope())
    return pyfeed.py_array_reader(capacity, [(2,)], dtypes=["float64"], **options)

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def tuple_of(value):
    return (np.full(2, value, float),)

def when_waiting(threads, action):
    # calls action in a new thread when `threads` threads wait in pyfeed
    def run():
        while len(pyfeed._native._waiting_threads()) < threads:
            time.sleep(0.001)
        action()
    threading.Thread(target=run, daemon=True).start()

def until_waiting(threads):
    while len(pyfeed._native._waiting_threads()) < threads:
        time.sleep(0.001)

def start(*functions, daemon=False):
    threads = [threading.Thread(target=f, daemon=daemon) for f in functions]
    for thread in threads:
        thread.start()
    return threads
"""


class Process:
    """A Python program in another process."""

    def __init__(self, program: str, *options: str, preamble: str = PREAMBLE, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *options, "-c", preamble + textwrap.dedent(program)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # communicate() would miss lines in a buffer
            env={**os.environ, **environment},
        )

    def line(self) -> str:
        """Return the next line of the program's output."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], STUCK)[0]:
            self.process.kill()
            raise AssertionError("the process has closed its output: " + self.process.communicate()[1].decode())
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError("the process ended: " + self.process.communicate(timeout=STUCK)[1].decode())
        return line.decode().rstrip("\n")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> None:
        """Wait until the process has ended, or the time limit is over. Its output is not read, so it must be short."""
        ended = os.WEXITED | os.WNOWAIT | os.WNOHANG
        with contextlib.suppress(AssertionError):  # `end` reports a process that hangs
            wait_until(lambda: os.waitid(os.P_PID, self.process.pid, ended))

    def without_a_processor(self) -> float:
        """Return the seconds in which its main thread was ready to run but had no processor."""
        with open(f"/proc/{self.process.pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9

    def end(self, status: int = 0) -> tuple[list[str], str]:
        """Wait until the process has ended; return its remaining lines of output, and its standard error."""
        hangs = False
        try:
            raw_out, raw_err = self.process.communicate(timeout=STUCK)
        except subprocess.TimeoutExpired:
            hangs = True
            self.process.kill()
            try:
                raw_out, raw_err = self.process.communicate(timeout=STUCK)
            except subprocess.TimeoutExpired as held:
                raw_out, raw_err = held.stdout or b"", (held.stderr or b"") + b"a child of the process hangs\n"
        out, err = raw_out.decode(), raw_err.decode()
        assert not hangs, f"the process hangs:\n{out}{err}"
        assert self.process.returncode == status, f"exit status {self.process.returncode}:\n{out}{err}"
        return out.splitlines(), err


def run(program: str, *options: str, status: int = 0, **environment: str) -> list[str]:
    """Run a program; return its lines of output. It must write nothing to standard error."""
    out, err = Process(program, *options, **environment).end(status)
    assert err == ""
    return out


def run_file(file: Path, *filters: str, **environment: str) -> list[str]:
    """Run a program in a file; return its lines of output. Warnings are errors, unless a filter ignores them."""
    options = [option for each in ("error", *filters) for option in ("-W", each)]
    done = subprocess.run(
        [sys.executable, *options, str(file)],
        capture_output=True,
        text=True,
        timeout=STUCK,
        cwd=file.parent,
        env={**os.environ, **environment},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def ends_within_a_second(program: str, status: int = 0) -> tuple[list[str], str]:
    """Run a program that prints "ready" just before its main thread ends, and must then end within a second.

    Other programs may use the machine too: the time in which the main thread had no processor does not count, and a
    program that takes longer is run again. Its output must be right each time.
    """
    for _ in range(4):
        process = Process(program)
        while process.line() != "ready":
            pass
        began, without = time.monotonic(), process.without_a_processor()
        process.wait()
        took = time.monotonic() - began - (process.without_a_processor() - without)
        out, err = process.end(status)
        print(f"ended after {took:.3f} s")
        if took < 1:
            break
    assert took < 1
    return out, err


# ---- DLPack ----


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _DLManagedTensor(ctypes.Structure):
    _fields_ = (
        ("dl_tensor", _DLTensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

_exports: list[Any] = []  # objects that ctypes must never free
_exported_arrays: dict[int, Array] = {}  # arrays whose deleter has not been called
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


class DLPackArray:
    """An array that can be read through DLPack only, as that of another framework."""

    def __init__(
        self,
        array: Array,
        *,
        strides: bool = True,
        offset: int = 0,
        device: int = 1,
        code: int | None = None,
        lanes: int = 1,
        shape: Sequence[int] | None = None,
    ) -> None:
        self.array = array
        self.exported = 0
        self._deleted: list[int] = []
        self._strides, self._offset, self._device = strides, offset, device
        self._code = _CODES.get(array.dtype.kind, 4) if code is None else code
        self._lanes = lanes
        self._shape = array.shape if shape is None else tuple(shape)

    @property
    def deleted(self) -> int:
        return len(self._deleted)

    def __dlpack__(self) -> object:
        rank, a = len(self._shape), self.array
        managed = _DLManagedTensor()
        tensor = managed.dl_tensor
        shape = (ctypes.c_int64 * max(rank, 1))(*self._shape)
        tensor.data = a.ctypes.data - self._offset
        tensor.byte_offset = self._offset
        tensor.device_type, tensor.ndim = self._device, rank
        tensor.code, tensor.bits, tensor.lanes = self._code, a.dtype.itemsize * 8, self._lanes
        tensor.shape = shape
        if self._strides:
            tensor.strides = (ctypes.c_int64 * max(rank, 1))(*(s // a.dtype.itemsize for s in a.strides))

        export, deleted = len(_exports), self._deleted

        def delete(_: int) -> None:
            del _exported_arrays[export]
            deleted.append(export)

        deleter = _Deleter(delete)
        managed.deleter = ctypes.cast(deleter, ctypes.c_void_p).value
        _exports.append((managed, shape, deleter))
        _exported_arrays[export] = a
        self.exported += 1
        capsule: object = _new_capsule(ctypes.addressof(managed), b"dltensor", None)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self._device, 0)


def same(found: Any, expected: Array) -> None:
    """Expect an array to be equal in shape, dtype and every bit."""
    assert type(found) is np.ndarray
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()
