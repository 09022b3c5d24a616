"""A FUSE file system in memory whose calls fail on request, for tests of faults that a real disk cannot produce.

The server runs in its own process: a thread that waits for the file system, for instance in a page fault, may hold the
GIL, so a server thread in the same process could deadlock.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import json
import os
import select
import stat
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = 1
UNMOUNT_NOW = 2  # MNT_DETACH
DIRECT_IO = 1  # FOPEN_DIRECT_IO
LARGEST_WRITE = 1 << 20
MINOR, BIG_WRITES, MAX_PAGES = 31, 1 << 5, 1 << 22  # of version 7 of the protocol

LOOKUP, FORGET, GETATTR, SETATTR, UNLINK, RENAME = 1, 2, 3, 4, 10, 12
OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH, INIT = 14, 15, 16, 17, 18, 20, 25, 26
OPENDIR, READDIR, RELEASEDIR, CREATE, INTERRUPT, DESTROY, BATCH_FORGET, RENAME2 = 27, 28, 29, 35, 36, 38, 42, 45
WITHOUT_AN_ANSWER = {FORGET, BATCH_FORGET, INTERRUPT}
# The calls that a full disk may refuse: all calls of a writer that creates a file, in order.
WRITING = {
    CREATE: "create",
    WRITE: "write",
    SETATTR: "chmod",
    FSYNC: "fsync",
    FLUSH: "close",
    RENAME: "rename",
    RENAME2: "rename",
}

HEADER, ANSWER = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")


class File:
    """A file, or the root folder. There are no other folders."""

    def __init__(self, mode: int) -> None:
        self.data = bytearray()
        self.mode = mode

    def attributes(self, number: int, size: int | None = None) -> bytes:
        size = len(self.data) if size is None else size
        times = (1_000_000_000,) * 3
        return struct.pack(
            "<6Q10I", number, size, 0, *times, 0, 0, 0, self.mode, 1, os.getuid(), os.getgid(), 0, 4096, 0
        )


class Refused(Exception):
    """Makes the server answer a call with an error."""


class Server:
    """Answers the kernel's calls. `configure` sets `faults`, which decides what fails:

    errno, start, end
        A READ that touches the bytes from `start` to `end` fails with `errno`. With direct_io, a READ that begins
        before `start` returns the bytes up to there.
    passing
        After a failed READ, the next GETATTR or SETATTR removes the fault.
    short
        With direct_io: the largest number of bytes that a READ returns.
    direct_io
        No page is cached, so each read of the program becomes a READ.
    no_size
        Files report a size of 0 bytes.
    full_at, full_from
        The number, from 1, of the call of `WRITING` that fails with `errno`, or from which on all such calls fail.
    open_errno, getattr_errno
        The error with which each OPEN, or GETATTR, fails.
    """

    def __init__(self, device: int) -> None:
        self.device = device
        self.files = {ROOT: File(stat.S_IFDIR | 0o755)}
        self.names: dict[bytes, int] = {}
        self.faults: dict[str, Any] = {}
        self.written: list[str] = []  # the names of the calls in WRITING that came
        self.failed = False  # whether a READ has failed

    def configure(self, faults: dict[str, Any]) -> list[str]:
        """Set the faults; return the calls of WRITING since the last time."""
        self.faults, self.failed, written, self.written = faults, False, self.written, []
        return written

    def serve_one(self) -> bool:
        """Answer one call; return False if the file system was unmounted."""
        try:
            call = os.read(self.device, LARGEST_WRITE + 65536)
        except OSError as error:
            again: bool = error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN)
            return again
        _, code, unique, node, *_ = HEADER.unpack_from(call)
        if code in WITHOUT_AN_ANSWER:
            return True
        try:
            body, status = self.answer(code, node, call[HEADER.size :]), 0
        except Refused as refused:
            body, status = b"", -refused.args[0]
        # The write fails if the caller was interrupted meanwhile.
        with contextlib.suppress(OSError):
            os.write(self.device, ANSWER.pack(ANSWER.size + len(body), status, unique) + body)
        return bool(code != DESTROY)

    def answer(self, code: int, node: int, call: bytes) -> bytes:
        if code in WRITING:
            self.written.append(WRITING[code])
            number = len(self.written)
            if number == self.faults.get("full_at") or number >= self.faults.get("full_from", number + 1):
                raise Refused(self.faults["errno"])
        if code == INIT:
            (major,) = struct.unpack_from("<I", call)
            flags = BIG_WRITES | MAX_PAGES
            return struct.pack("<4I2H2I2H7I", major, MINOR, 0, flags, 16, 12, LARGEST_WRITE, 1, 256, 0, *[0] * 7)
        if code == LOOKUP:
            found = self.names.get(call.rstrip(b"\0"))
            if found is None:
                raise Refused(errno.ENOENT)
            return self.entry(found)
        if code in (GETATTR, SETATTR):
            if code == GETATTR and node != ROOT and "getattr_errno" in self.faults:
                raise Refused(self.faults["getattr_errno"])
            if self.failed and self.faults.get("passing"):
                self.faults.pop("start", None)
            if code == SETATTR:
                self.set_attributes(node, call)
            return struct.pack("<Q2I", 0, 0, 0) + self.attributes(node)
        if code in (OPEN, OPENDIR):
            if code == OPEN and "open_errno" in self.faults:
                raise Refused(self.faults["open_errno"])
            return self.opening()
        if code == CREATE:
            number = max(self.files) + 1
            self.files[number] = File(stat.S_IFREG | struct.unpack_from("<4I", call)[1] & 0o7777)
            self.names[call[16:].rstrip(b"\0")] = number
            return self.entry(number) + self.opening()
        if code == READ:
            _, offset, size = struct.unpack_from("<QQI", call)
            return self.read(node, offset, size)
        if code == WRITE:
            _, offset, size = struct.unpack_from("<QQI", call)
            data = self.files[node].data
            data.extend(bytes(max(0, offset - len(data))))
            data[offset : offset + size] = call[40 : 40 + size]
            return struct.pack("<2I", size, 0)
        if code == READDIR:
            _, offset, size = struct.unpack_from("<QQI", call)
            return self.entries(offset, size)
        if code == UNLINK:
            del self.names[call.rstrip(b"\0")]
            return b""
        if code in (RENAME, RENAME2):
            old, new = call[8 if code == RENAME else 16 :].rstrip(b"\0").split(b"\0")
            self.names[new] = self.names.pop(old)
            return b""
        if code == STATFS:
            return struct.pack("<5Q10I", *[1 << 20] * 5, 4096, 255, 4096, *[0] * 7)
        if code in (RELEASE, FSYNC, FLUSH, RELEASEDIR, DESTROY):
            return b""
        raise Refused(errno.ENOSYS)

    def attributes(self, node: int) -> bytes:
        unknown = self.faults.get("no_size") and node != ROOT
        return self.files[node].attributes(node, 0 if unknown else None)

    def entry(self, node: int) -> bytes:
        return struct.pack("<4Q2I", node, 1, 0, 0, 0, 0) + self.attributes(node)

    def opening(self) -> bytes:
        return struct.pack("<Q2I", 1, DIRECT_IO if self.faults.get("direct_io") else 0, 0)

    def set_attributes(self, node: int, call: bytes) -> None:
        valid, _, _, size = struct.unpack_from("<2I2Q", call)
        file = self.files[node]
        if valid & 1:  # the mode
            file.mode = stat.S_IFMT(file.mode) | struct.unpack_from("<I", call, 68)[0] & 0o7777
        if valid & 8:  # the size
            del file.data[size:]
            file.data.extend(bytes(size - len(file.data)))

    def read(self, node: int, offset: int, size: int) -> bytes:
        direct = self.faults.get("direct_io")
        if direct and "short" in self.faults:
            size = min(size, self.faults["short"])
        start, end = self.faults.get("start"), self.faults.get("end", 1 << 60)
        if start is not None and offset < end and offset + size > start:
            if not direct or offset >= start:
                self.failed = True
                raise Refused(self.faults["errno"])
            size = start - offset
        return bytes(self.files[node].data[offset : offset + size])

    def entries(self, offset: int, size: int) -> bytes:
        out = b""
        for i, (name, number) in enumerate(list(self.names.items())[offset:], offset + 1):
            entry = struct.pack("<2Q2I", number, i, len(name), stat.S_IFREG >> 12) + name
            entry += bytes(-len(entry) % 8)
            if len(out) + len(entry) > size:
                break
            out += entry
        return out


def mount(folder: str) -> int:
    """Mount the file system at a folder; return the descriptor from which the kernel's calls are read."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"faulty", os.fsencode(folder), b"fuse", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    return device


def serve(folder: str) -> None:
    """Run the server: answer the kernel's calls, and requests in lines of JSON on standard input."""
    try:
        server = Server(mount(folder))
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES, errno.ENOENT, errno.ENODEV, errno.ENXIO):
            raise
        print(json.dumps(str(error)), flush=True)
        return
    print(json.dumps(None), flush=True)
    alive, commands = True, io.FileIO(0)  # unbuffered, since select does not see buffered lines
    while alive:
        ready, _, _ = select.select([server.device, 0], [], [])
        if server.device in ready:
            alive = server.serve_one()
        if 0 in ready:
            line = commands.readline()
            if not line:
                break
            print(json.dumps(server.configure(json.loads(line))), flush=True)
    ctypes.CDLL(None).umount2(os.fsencode(folder), UNMOUNT_NOW)


class Unmountable(Exception):
    """This process may not mount a file system."""


class Disk:
    """The file system, as the tests use it: starts the server and sets its faults."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.server = subprocess.Popen(
            [sys.executable, "-S", __file__, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        refused = self._answer()
        if refused:
            self.close()
            raise Unmountable(refused)

    def _answer(self) -> Any:
        assert self.server.stdout is not None
        return json.loads(self.server.stdout.readline())

    def fault(self, **faults: Any) -> list[str]:
        """Set these faults, and no others; return the calls of WRITING since the last time."""
        assert self.server.stdin is not None
        self.server.stdin.write(json.dumps(faults).encode() + b"\n")
        self.server.stdin.flush()
        answer: list[str] = self._answer()
        return answer

    def close(self) -> None:
        """End the server. Calls that wait for an answer fail."""
        with self.server:
            assert self.server.stdin is not None
            self.server.stdin.close()
            self.server.wait(30)


if __name__ == "__main__":
    serve(sys.argv[1])
