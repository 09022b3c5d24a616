"""The CUDA devices of this machine, and arrays in their memory.

Importing pyfeed does not open the CUDA driver. The first call of a function in this module opens it, or the
first use of a place other than `CPUPlace`. `docs/cuda.md` describes how to feed a device.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from . import _native
from ._arguments import integer, validate
from ._native import DeviceArray

__all__ = [
    "DeviceArray",
    "MemoryInfo",
    "SupportsStream",
    "available",
    "device_count",
    "device_name",
    "memory_info",
    "reason",
]

_DEVICE = integer(0, most=2**31 - 1)


class MemoryInfo(NamedTuple):
    """The memory of a device at the time of the call, as the driver reports it.

    Attributes
    ----------
    free : int
        The free memory, in bytes.
    total : int
        All memory of the device, in bytes.
    """

    free: int
    total: int


class SupportsStream(Protocol):
    """A CUDA stream of another package, which has the method ``__cuda_stream__`` of the CUDA Python packages."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the version of the protocol, which is 0, and the ``CUstream`` as a number."""


@validate()
def available() -> bool:
    """Whether there is a CUDA device that can be fed. If there is none, `reason` returns the cause.

    Returns
    -------
    bool

    Examples
    --------
    >>> from pyfeed import CPUPlace, CUDAPlace, cuda
    >>> place = CUDAPlace(0) if cuda.available() else CPUPlace()
    """
    return _native._cuda_reason() is None


@validate()
def reason() -> str | None:
    """Return the reason why no CUDA device can be fed, such as a missing driver.

    Returns
    -------
    str or None
        The message of the driver, or of the loader that looked for it. None if there is a device.

    Examples
    --------
    >>> from pyfeed import cuda
    >>> (cuda.reason() is None) == cuda.available()
    True
    """
    return _native._cuda_reason()


@validate()
def device_count() -> int:
    """Return the number of CUDA devices.

    Returns
    -------
    int

    Raises
    ------
    UnsupportedError
        There is no driver, or it does not work. The message has the reason.

    Examples
    --------
    >>> from pyfeed import cuda
    >>> cuda.device_count() > 0 if cuda.available() else True
    True
    """
    return _native._cuda_device_count()


@validate(device=_DEVICE)
def memory_info(device: int = 0) -> MemoryInfo:
    """Return how much memory a CUDA device has, and how much of it is free.

    Parameters
    ----------
    device : int
        The number of the device, from 0.

    Returns
    -------
    MemoryInfo

    Raises
    ------
    UnsupportedError
        There is no driver, or it does not work. The message has the reason.
    InvalidArgument
        There is no such device.

    Examples
    --------
    >>> from pyfeed import cuda
    >>> if cuda.available():
    ...     free, total = cuda.memory_info(0)
    """
    return MemoryInfo(*_native._cuda_device(device)[1:])


@validate(device=_DEVICE)
def device_name(device: int = 0) -> str:
    """Return the name of a CUDA device, such as ``"NVIDIA H200"``.

    Parameters
    ----------
    device : int
        The number of the device, from 0.

    Returns
    -------
    str

    Raises
    ------
    UnsupportedError, InvalidArgument
        As for `memory_info`.

    Examples
    --------
    >>> from pyfeed import cuda
    >>> name = cuda.device_name(0) if cuda.available() else "no device"
    """
    return _native._cuda_device(device)[0]
