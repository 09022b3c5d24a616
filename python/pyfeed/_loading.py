"""Loads the library.

The memory limits are checked first, because Go's runtime ends the process if it cannot reserve memory.
"""

from __future__ import annotations

# The bytes that the library maps when it is loaded and when its threads start. Go's runtime reserves most of the
# address space at once. Each thread has a stack, and glibc gives it an arena of 64 MiB.
_ADDRESS_SPACE = 2 << 30
_DATA = 256 << 20


def check_memory_limits() -> None:
    """Raise an `ImportError` if a limit of the process leaves too little memory for the library.

    The limits are read from a file, because importing the module ``resource`` takes longer.
    """
    try:
        with open("/proc/self/limits") as file:
            limits = file.read()
    except OSError:
        return
    for what, needed, access, name, command in (
        ("Max address space", _ADDRESS_SPACE, 0, "RLIMIT_AS", "ulimit -v"),
        ("Max data size", _DATA, 3, "RLIMIT_DATA", "ulimit -d"),
    ):
        limit, *_ = limits.partition(what)[2].split(None, 1) or ["unlimited"]  # some systems list fewer limits
        if limit != "unlimited" and not _fits(needed, access):
            raise ImportError(
                f"pyfeed: expected room for {needed >> 20} MiB of memory, which its library and Go's runtime map, "
                f"found less under this process's {name} of {int(limit) >> 20} MiB: raise the limit ({command})"
            )


def _fits(size: int, access: int) -> bool:
    import mmap

    no_reserve = 0x4000  # MAP_NORESERVE of Linux, which the module mmap defines only from Python 3.13 on
    try:
        mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve, access).close()
    except OSError:
        return False
    return True


check_memory_limits()

from . import _native as _native  # noqa: E402
