"""The fake CUDA driver of tests/fakecuda, for pytest: functions to build, load and control it.

A process finds the fake as ``libcuda.so.1``: a child through ``LD_LIBRARY_PATH``, this process because the library is
loaded already::

    environment = {**os.environ, **fakecuda.environment(FAKECUDA_DEVICES=2)}   # for a child
    fake = fakecuda.Fake.load()                                                # here, before pyfeed looks for a driver
    fake = fakecuda.Fake()                                                     # in a child that has loaded the fake

``tests/fakecuda/fakecuda.h`` describes the functions, the counts and the environment variables. Streams and addresses
are integers. Codes are those of CUDA, 0 for success.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int64, c_uint64, c_void_p
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).resolve().parent.parent / "fakecuda"

_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "count": (c_int64, [c_char_p]),
    "await": (c_int, [c_char_p, c_int64, c_double]),
    "complaint": (c_char_p, []),
    "stream_at": (c_uint64, [c_int]),
    "reset": (None, []),
    "fail": (c_int, [c_char_p, c_int64, c_int, c_int, c_int]),
    "break": (c_int, [c_int, c_int]),
    "devices": (None, [c_int]),
    "memory": (None, [c_uint64]),
    "pinned": (None, [c_uint64]),
    "pace": (None, [c_double, c_double]),
    "deinitialize": (None, [c_int]),
    "let": (c_int, [c_uint64, c_int64]),
    "let_copies": (c_int, [c_int, c_int64]),
    "stream_create": (c_int, [c_int, c_int, POINTER(c_uint64)]),
    "stream_destroy": (c_int, [c_uint64]),
    "synchronize": (c_int, [c_uint64]),
    "kernel": (c_int, [c_uint64, c_double, c_uint64, c_uint64, c_uint64, c_uint64, c_int]),
    "sum": (c_int, [c_uint64, c_uint64, c_uint64, c_void_p]),
    "hash": (c_uint64, [c_char_p, c_uint64]),
    "peek": (c_int, [c_uint64, c_void_p, c_uint64]),
    "begin_capture": (c_int, [c_uint64, c_int]),
    "end_capture": (c_int, [c_uint64]),
}

GLOBAL, THREAD_LOCAL, RELAXED = range(3)


@functools.cache
def build() -> Path:
    """Build the fake ``libcuda.so.1`` once; return its folder. CGO_CPPFLAGS must have the -I flag for cuda.h."""
    folder = Path(tempfile.mkdtemp(prefix="fakecuda-"))
    atexit.register(_remove, folder, os.getpid())
    subprocess.run(["sh", SOURCES / "build.sh", folder], check=True)
    return folder


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked child
        shutil.rmtree(folder, ignore_errors=True)


def environment(**variables: object) -> dict[str, str]:
    """Return environment variables with which a child finds the fake, and the given ones (``FAKECUDA_DEVICES=2``)."""
    paths = [str(build()), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"LD_LIBRARY_PATH": ":".join(paths), **{name: str(value) for name, value in variables.items()}}


class Fake:
    """The fake driver that this process has loaded.

    Raises
    ------
    OSError
        No ``libcuda.so.1`` is loaded.
    AttributeError
        The loaded ``libcuda.so.1`` is not the fake.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        self._call: dict[str, Any] = {}
        self._sums: list[c_uint64] = []  # keeps the memory to which streams write
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(self._library, f"fakecuda_{name}")
            function.restype, function.argtypes = result, arguments
            self._call[name] = function

    @classmethod
    def load(cls) -> Fake:
        """Build the fake and load it into this process, in which ``libcuda.so.1`` then means the fake."""
        ctypes.CDLL(str(build() / "libcuda.so.1"), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        return cls()

    def count(self, name: str) -> int:
        """Return a count of fakecuda.h, or the number of calls of an entry point (``"cuMemAlloc_v2"``)."""
        return self._known(name, self._call["count"](name.encode()))

    def wait(self, name: str, at_least: int, seconds: float = 30.0) -> bool:
        """Wait until a count has at least a value; return False after the timeout."""
        return self._known(name, self._call["await"](name.encode(), at_least, seconds)) == 1

    @staticmethod
    def _known(name: str, answer: int) -> int:
        if answer < 0:
            raise ValueError(f"expected the name of a count or an entry point, found {name!r}")
        return answer

    def complaint(self) -> str:
        """Describe the last hazard, misuse or leak."""
        text: bytes = self._call["complaint"]()
        return text.decode()

    def streams(self) -> list[int]:
        """Return the streams that were created and not destroyed, the oldest first."""
        found: list[int] = []
        while stream := self._call["stream_at"](len(found)):
            found.append(stream)
        return found

    def reset(self) -> None:
        """Reset settings, counts, failures, captures and broken contexts. Existing streams and memory remain."""
        self._call["reset"]()

    def fail(self, call: str, nth: int, code: int, *, later: bool = False, from_then_on: bool = False) -> None:
        """Make the nth call of an entry point, or of any (``"*"``), from now on fail; if `later`, its work fails."""
        if self._call["fail"](call.encode(), nth, code, later, from_then_on):
            raise ValueError(f"expected an entry point or *, and numbers from 1, found {call!r}, {nth}, {code}")

    def break_context(self, code: int, device: int = 0) -> None:
        self._done("break", device, code)

    def set_devices(self, n: int) -> None:
        """Set the number of devices, before the driver is initialized."""
        self._call["devices"](n)

    def set_memory(self, nbytes: int) -> None:
        """Set the memory of each device."""
        self._call["memory"](nbytes)

    def set_pinned(self, nbytes: int) -> None:
        """Limit pinned and registered memory together."""
        self._call["pinned"](nbytes)

    def set_pace(self, gbps: float = 0.0, latency_us: float = 0.0) -> None:
        """Set the speed and the additional time of copies to and from the host; 0: unlimited."""
        self._call["pace"](gbps, latency_us)

    def deinitialize(self, yes: bool = True) -> None:
        """Make all calls fail as at the end of the process, or work again."""
        self._call["deinitialize"](yes)

    def _done(self, name: str, *arguments: object) -> None:
        if code := self._call[name](*arguments):
            raise RuntimeError(f"fakecuda_{name}: expected 0, found {code}")

    def pause(self, stream: int) -> None:
        """Hold a stream: when this returns, no work of the stream is running, and none begins."""
        self.let(stream, 0)

    def resume(self, stream: int) -> None:
        self.let(stream, -1)

    def let(self, stream: int, n: int) -> None:
        """Let n more pieces of the stream's work begin."""
        self._done("let", stream, n)

    def let_copies(self, n: int, device: int = 0) -> None:
        """Let n more copies to the device begin; -1: all."""
        self._done("let_copies", device, n)

    @contextmanager
    def paused_copies(self, device: int = 0) -> Iterator[None]:
        """Let no copy to the device begin inside the with block."""
        self.let_copies(0, device)
        try:
            yield
        finally:
            self.let_copies(-1, device)

    @contextmanager
    def stream(self, device: int = 0, *, non_blocking: bool = True) -> Iterator[int]:
        """Create a stream in the device's primary context, as a consumer does; at the end wait for its work."""
        made = c_uint64()
        self._done("stream_create", device, non_blocking, byref(made))
        try:
            yield made.value
        finally:
            self._call["stream_destroy"](made)

    def synchronize(self, stream: int) -> int:
        """Wait for a stream's work; return a code."""
        code: int = self._call["synchronize"](stream)
        return code

    def kernel(
        self,
        stream: int,
        *,
        reads: tuple[int, int] = (0, 0),
        writes: tuple[int, int] = (0, 0),
        us: float = 0.0,
        code: int = 0,
    ) -> None:
        """Submit work that reads a range of device memory and fills another with 0xC3; a range is (address, bytes)."""
        self._done("kernel", stream, us, *reads, *writes, code)

    def sum(self, stream: int, address: int, nbytes: int) -> Sum:
        """Submit work that hashes device memory, in the stream's order."""
        out = c_uint64()
        self._sums.append(out)
        self._done("sum", stream, address, nbytes, byref(out))
        return Sum(self, stream, out)

    def hash(self, data: bytes) -> int:
        """Return the hash that `sum` gives for device memory with these bytes."""
        found: int = self._call["hash"](data, len(data))
        return found

    def peek(self, address: int, nbytes: int) -> bytes:
        """Return device memory as it is now."""
        to = ctypes.create_string_buffer(nbytes)
        self._done("peek", address, to, nbytes)
        return to.raw

    @contextmanager
    def capture(self, stream: int, mode: int = GLOBAL) -> Iterator[list[int]]:
        """Capture the work that is submitted in the with block; append the capture's code to the yielded list."""
        self._done("begin_capture", stream, mode)
        ended: list[int] = []
        try:
            yield ended
        finally:
            ended.append(self._call["end_capture"](stream))


class Sum:
    """A hash that a stream computes."""

    def __init__(self, fake: Fake, stream: int, out: c_uint64) -> None:
        self._fake, self._stream, self._out = fake, stream, out

    def value(self) -> int:
        """Wait for the stream; return the hash."""
        if code := self._fake.synchronize(self._stream):
            raise RuntimeError(f"the stream: expected 0, found {code}")
        return self._out.value
