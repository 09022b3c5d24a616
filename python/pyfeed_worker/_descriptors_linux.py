"""What Linux has for memory that processes share by descriptors. A port to another system replaces this module."""

from __future__ import annotations

import os


def memory_file(name: str) -> int:
    """Return a descriptor of a new file in memory, which executed programs do not inherit. `name` is for debuggers."""
    return os.memfd_create(name, os.MFD_CLOEXEC)


def path_of(fd: int, pid: int | str = "self") -> str:
    """Return a path that opens the file of a descriptor of a process again."""
    return f"/proc/{pid}/fd/{fd}"
