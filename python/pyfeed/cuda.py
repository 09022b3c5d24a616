"""The GPUs that the CUDA driver has.

The driver is opened by the first call of these, or by the first place other than `CPUPlace` that is fed;
importing pyfeed does not.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from . import _native
from ._arguments import integer, takes

_DEVICE = integer(0, most=2**31 - 1)


class MemoryInfo(NamedTuple):
    """A device's memory in bytes, as the driver says now."""

    free: int
    total: int


class SupportsStream(Protocol):
    """A stream of another package's, by the protocol that CUDA's Python packages have for it."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """The version of the protocol, 0, and the stream's number."""


@takes()
def available() -> bool:
    """Whether there is a device to feed; if not, `reason` says why."""
    return _native._cuda_reason() is None


@takes()
def reason() -> str | None:
    """Why there is no device to feed, in the driver's words; None if there is.

    Examples
    --------
    >>> from pyfeed import cuda
    >>> (cuda.reason() is None) == cuda.available()
    True
    """
    return _native._cuda_reason()


@takes()
def device_count() -> int:
    """How many devices there are.

    Raises
    ------
    UnsupportedError
        There is no driver, or it does not work: its reason.
    """
    return _native._cuda_device_count()


@takes(device=_DEVICE)
def memory_info(device: int = 0) -> MemoryInfo:
    """How much memory a device has, and how much of it is free.

    Raises
    ------
    UnsupportedError
        There is no driver, or it does not work: its reason.
    InvalidArgument
        It has no such device.
    """
    return MemoryInfo(*_native._cuda_device(device)[1:])


@takes(device=_DEVICE)
def device_name(device: int = 0) -> str:
    """What a device is, such as ``"NVIDIA H200"``.

    Raises
    ------
    UnsupportedError, InvalidArgument
        As `memory_info`.
    """
    return _native._cuda_device(device)[0]
