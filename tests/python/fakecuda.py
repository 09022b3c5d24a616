"""The fake CUDA driver of tests/fakecuda, for pytest: how it is built, found and controlled.

A process finds it as ``libcuda.so.1``: a child by ``LD_LIBRARY_PATH``, this one because it is loaded already::

    environment = {**os.environ, **fakecuda.environment(FAKECUDA_DEVICES=2)}   # of a child
    fake = fakecuda.Fake.load()                                                # here, before pyfeed looks for a driver
    fake = fakecuda.Fake()                                                     # in a child that has it already

``tests/fakecuda/fakecuda.h`` says what each function does, which counts and which variables of the environment there
are. Streams and addresses are integers; codes are CUDA's, 0 for success.
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
    """The folder with the fake ``libcuda.so.1``, built once a process. CGO_CPPFLAGS says where cuda.h is."""
    folder = Path(tempfile.mkdtemp(prefix="fakecuda-"))
    atexit.register(_remove, folder, os.getpid())
    subprocess.run(["sh", SOURCES / "build.sh", folder], check=True)
    return folder


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not a forked child of its
        shutil.rmtree(folder, ignore_errors=True)


def environment(**variables: object) -> dict[str, str]:
    """What makes a child find the fake, with variables of its own such as ``FAKECUDA_DEVICES=2``."""
    paths = [str(build()), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"LD_LIBRARY_PATH": ":".join(paths), **{name: str(value) for name, value in variables.items()}}


class Fake:
    """The fake driver that this process has loaded.

    Raises
    ------
    OSError
        No ``libcuda.so.1`` is loaded.
    AttributeError
        The one that is loaded is not the fake.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        self._call: dict[str, Any] = {}
        self._sums: list[c_uint64] = []  # streams write there
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(self._library, f"fakecuda_{name}")
            function.restype, function.argtypes = result, arguments
            self._call[name] = function

    @classmethod
    def load(cls) -> Fake:
        """Builds it and loads it into this process. Whoever opens ``libcuda.so.1`` from then on gets it."""
        ctypes.CDLL(str(build() / "libcuda.so.1"), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        return cls()

    def count(self, name: str) -> int:
        """A count of fakecuda.h's, or the calls of an entry point (``"cuMemAlloc_v2"``)."""
        return self._known(name, self._call["count"](name.encode()))

    def wait(self, name: str, at_least: int, seconds: float = 30.0) -> bool:
        """Whether a count is so high before time is up."""
        return self._known(name, self._call["await"](name.encode(), at_least, seconds)) == 1

    @staticmethod
    def _known(name: str, answer: int) -> int:
        if answer < 0:
            raise ValueError(f"expected the name of a count or an entry point, found {name!r}")
        return answer

    def complaint(self) -> str:
        """The last hazard, misuse or leak."""
        text: bytes = self._call["complaint"]()
        return text.decode()

    def streams(self) -> list[int]:
        """Those that were made and not destroyed, the oldest first."""
        found: list[int] = []
        while stream := self._call["stream_at"](len(found)):
            found.append(stream)
        return found

    def reset(self) -> None:
        """Everything as at the start, but what is alive."""
        self._call["reset"]()

    def fail(self, call: str, nth: int, code: int, *, later: bool = False, from_then_on: bool = False) -> None:
        """The nth call from now on of an entry point, or of any (``"*"``), fails; `later`: its work does."""
        if self._call["fail"](call.encode(), nth, code, later, from_then_on):
            raise ValueError(f"expected an entry point or *, and numbers from 1, found {call!r}, {nth}, {code}")

    def break_context(self, code: int, device: int = 0) -> None:
        self._done("break", device, code)

    def set_devices(self, n: int) -> None:
        """How many there are; before the driver is initialized."""
        self._call["devices"](n)

    def set_memory(self, nbytes: int) -> None:
        """Of each device."""
        self._call["memory"](nbytes)

    def set_pinned(self, nbytes: int) -> None:
        """Of pinned and registered memory, in all."""
        self._call["pinned"](nbytes)

    def set_pace(self, gbps: float = 0.0, latency_us: float = 0.0) -> None:
        """How fast copies to and from the host are; 0: as it comes."""
        self._call["pace"](gbps, latency_us)

    def deinitialize(self, yes: bool = True) -> None:
        """As if the process ended."""
        self._call["deinitialize"](yes)

    def _done(self, name: str, *arguments: object) -> None:
        if code := self._call[name](*arguments):
            raise RuntimeError(f"fakecuda_{name}: expected 0, found {code}")

    def pause(self, stream: int) -> None:
        """Nothing is running in the stream then, and nothing begins."""
        self.let(stream, 0)

    def resume(self, stream: int) -> None:
        self.let(stream, -1)

    def let(self, stream: int, n: int) -> None:
        """So many more pieces of the stream's work may begin."""
        self._done("let", stream, n)

    def let_copies(self, n: int, device: int = 0) -> None:
        """So many more copies to the device may begin; -1: all."""
        self._done("let_copies", device, n)

    @contextmanager
    def paused_copies(self, device: int = 0) -> Iterator[None]:
        """No copy to the device begins meanwhile."""
        self.let_copies(0, device)
        try:
            yield
        finally:
            self.let_copies(-1, device)

    @contextmanager
    def stream(self, device: int = 0, *, non_blocking: bool = True) -> Iterator[int]:
        """A consumer's stream, in the device's primary context. Its work is waited for in the end."""
        made = c_uint64()
        self._done("stream_create", device, non_blocking, byref(made))
        try:
            yield made.value
        finally:
            self._call["stream_destroy"](made)

    def synchronize(self, stream: int) -> int:
        """Waits for a stream's work. Answers a code."""
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
        """Work that reads and fills (with 0xC3) ranges of device memory, each an address and a number of bytes."""
        self._done("kernel", stream, us, *reads, *writes, code)

    def sum(self, stream: int, address: int, nbytes: int) -> Sum:
        """Work that hashes device memory, in the stream's order."""
        out = c_uint64()
        self._sums.append(out)
        self._done("sum", stream, address, nbytes, byref(out))
        return Sum(self, stream, out)

    def hash(self, data: bytes) -> int:
        """What `sum` finds where this is."""
        found: int = self._call["hash"](data, len(data))
        return found

    def peek(self, address: int, nbytes: int) -> bytes:
        """Device memory as it is now."""
        to = ctypes.create_string_buffer(nbytes)
        self._done("peek", address, to, nbytes)
        return to.raw

    @contextmanager
    def capture(self, stream: int, mode: int = GLOBAL) -> Iterator[list[int]]:
        """Captures what is submitted meanwhile. Appends the code with which the capture ended to what it gives."""
        self._done("begin_capture", stream, mode)
        ended: list[int] = []
        try:
            yield ended
        finally:
            ended.append(self._call["end_capture"](stream))


class Sum:
    """A hash that a stream works out."""

    def __init__(self, fake: Fake, stream: int, out: c_uint64) -> None:
        self._fake, self._stream, self._out = fake, stream, out

    def value(self) -> int:
        """Waits for the stream."""
        if code := self._fake.synchronize(self._stream):
            raise RuntimeError(f"the stream: expected 0, found {code}")
        return self._out.value
