"""A file system in memory whose calls fail as they are told to, through FUSE: for what no real disk does when asked.

The server is a process of its own, which speaks the kernel's protocol: a thread that waits for it, in a page fault too,
may hold the interpreter's lock.
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
DIRECT_IO = 1  # of an opening
LARGEST_WRITE = 1 << 20
MINOR, BIG_WRITES, MAX_PAGES = 31, 1 << 5, 1 << 22  # of the protocol 7

LOOKUP, FORGET, GETATTR, SETATTR, UNLINK, RENAME = 1, 2, 3, 4, 10, 12
OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH, INIT = 14, 15, 16, 17, 18, 20, 25, 26
OPENDIR, READDIR, RELEASEDIR, CREATE, INTERRUPT, DESTROY, BATCH_FORGET, RENAME2 = 27, 28, 29, 35, 36, 38, 42, 45
WITHOUT_AN_ANSWER = {FORGET, BATCH_FORGET, INTERRUPT}
# What a disk that is full may refuse: all that a writer calls to make a file, in order.
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
    """A file, or the folder, which is all there is."""

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
    """A call that is answered with an error."""


class Server:
    """Answers the kernel's calls. What fails is in `faults`, which `configure` sets:

    errno, start, end
        A READ that touches the bytes from `start` to `end` fails. One that begins before them is short, with direct_io.
    passing
        A READ that failed does not fail again once the file was asked for its attributes.
    short
        The most bytes that a READ answers, with direct_io.
    direct_io
        No page is cached: each read of the program's is a READ.
    no_size
        Files say that they have 0 bytes.
    full_at, full_from
        The number of the call of `WRITING`, from 1, that fails with errno, or from which on all do.
    open_errno, getattr_errno
        What each OPEN, or GETATTR, fails with.
    """

    def __init__(self, device: int) -> None:
        self.device = device
        self.files = {ROOT: File(stat.S_IFDIR | 0o755)}
        self.names: dict[bytes, int] = {}
        self.faults: dict[str, Any] = {}
        self.written: list[str] = []  # the calls of WRITING
        self.failed = False  # a READ has

    def configure(self, faults: dict[str, Any]) -> list[str]:
        """Have other faults from now on. The answer is what was called meanwhile, of what writes."""
        self.faults, self.failed, written, self.written = faults, False, self.written, []
        return written

    def serve_one(self) -> bool:
        """Answer one call; False: it is unmounted."""
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
        # A call may have been given up.
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
    """Mount at a folder; the answer is the descriptor that the kernel's calls come from."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"faulty", os.fsencode(folder), b"fuse", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    return device


def serve(folder: str) -> None:
    """The process: it answers calls, and lines of JSON on its standard input."""
    try:
        server = Server(mount(folder))
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES, errno.ENOENT, errno.ENODEV, errno.ENXIO):
            raise
        print(json.dumps(str(error)), flush=True)
        return
    print(json.dumps(None), flush=True)
    alive, commands = True, io.FileIO(0)  # what was read ahead would not be waited for
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
    """There is no right to mount a file system here."""


class Disk:
    """The file system, from outside."""

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
        """Have these faults, and no others, from now on. The answer is the calls since the last time that write."""
        assert self.server.stdin is not None
        self.server.stdin.write(json.dumps(faults).encode() + b"\n")
        self.server.stdin.flush()
        answer: list[str] = self._answer()
        return answer

    def close(self) -> None:
        """The end: what waits for an answer gets an error."""
        with self.server:
            assert self.server.stdin is not None
            self.server.stdin.close()
            self.server.wait(30)


if __name__ == "__main__":
    serve(sys.argv[1])
