"""`pyfeed.torch.TensorLoader`: the tuples of a reader, with tensors of PyTorch in place of arrays."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from . import _arguments
from ._arguments import flag, instance, integer, optional, validate
from ._loader import Loader
from ._lod import LoDTensor
from ._native import DeviceArray
from ._place import CUDAPinnedPlace, CUDAPlace, Place
from ._reader import Reader
from .errors import InvalidArgument, UnsupportedError


def _check_device(name: str, value: Any) -> Any:
    """Accept what `torch.device` accepts, if pyfeed can deliver there."""
    try:
        device = torch.device(value)
    except (RuntimeError, TypeError):
        _arguments.refuse(name, 'a device of PyTorch, such as "cuda:0"', value)
    if device.type not in ("cpu", "cuda"):
        _arguments.refuse(name, 'a device "cpu" or "cuda"', value, UnsupportedError)
    return device


class TensorLoader(Loader):
    """Delivers the tuples of a reader with tensors in place of arrays, without a copy, on a device if asked.

    A loader is iterated like its reader: each ``for`` loop goes through one pass (epoch), and the order is that
    of the reader. It has ``len`` if the reader has.

    Parameters
    ----------
    reader : Reader
        The topmost reader of a chain. Read only from the loader afterwards. `close` closes the reader too.
    device : torch.device or str, optional
        Where the tensors are, by default in host memory. For a CUDA device, `Reader.double_buffer` copies the
        tuples there ahead of time. ``"cuda"`` is PyTorch's current device.
    pin_memory : bool
        Whether the tensors are in pinned (page-locked) host memory, from which
        ``tensor.to("cuda", non_blocking=True)`` copies without blocking the CPU.
    depth : int, optional
        The number of tuples that a thread of the library reads ahead, as for `Reader.double_buffer`. By default 2
        for a CUDA device and for pinned memory, and none for other host memory: the reader usually has a
        `Reader.double_buffer` of its own.

    Raises
    ------
    UnsupportedError
        The tuples are wanted on a CUDA device or in pinned memory, and there is no CUDA driver or no device; or
        the device is of another kind, such as ``"mps"``.
    InvalidArgument
        There is no such CUDA device; or `pin_memory` is True for a CUDA device, whose tuples are always copied
        from pinned memory.
    StateError
        The reader is closed.

    Notes
    -----
    - A tensor shares the memory of its array, and this memory is not reused as long as the tensor exists. It
      stays valid after the reader is closed.
    - PyTorch has no read-only tensors. So a read-only array is copied: a record that is a view of a file, or an
      array that a producer has lent. Arrays that `Reader.batch` makes are never read-only.
    - A slot with ragged offsets (LoD, level of detail) is delivered as a `LoDTensor`, whose ``data`` is a tensor
      and whose ``lod`` are int64 tensors in host memory.
    - Tuples may be dicts, and may be nested: lists, tuples and dicts are kept, and other objects are passed on.
    - A state can be loaded if the loader that saved it, and this one, either both read ahead by themselves
      (`device`, `pin_memory`, `depth`) or both not. The device may differ.
    - Use a tensor on a CUDA device on the stream that is current when the loop gets it: see `docs/cuda.md`.
    - Memory of a pinned tensor is reused after the work that PyTorch's current stream had when the tensor was
      deleted. So a tensor may be deleted right after a copy with ``non_blocking=True`` was started.

    Examples
    --------
    >>> import pyfeed
    >>> from pyfeed.torch import TensorLoader
    >>> reader = pyfeed.random_data([(2,), ()], ["float32", "int64"], high=9, count=5).batch(2)
    >>> with TensorLoader(reader) as loader:
    ...     for epoch in range(2):
    ...         print([tuple(x.shape) for x, label in loader])
    [(2, 2), (2, 2), (1, 2)]
    [(2, 2), (2, 2), (1, 2)]
    """

    @validate(
        reader=instance(Reader, "a Reader"),
        device=optional(_check_device),
        pin_memory=flag,
        depth=optional(integer(1, "tuple")),
    )
    def __init__(
        self, reader: Reader, device: Any = None, *, pin_memory: bool = False, depth: int | None = None
    ) -> None:
        place = _place(device, pin_memory)
        self._given = reader
        self._copies = _Copies() if pin_memory else None
        if place is not None or depth is not None:
            reader = reader.double_buffer(place, 2 if depth is None else depth)
        super().__init__(reader)

    def _convert(self, source: Iterator[Any]) -> Iterator[Any]:
        return map(_to_tensors if self._copies is None else self._copies.to_pinned_tensors, source)

    @property
    def sampler(self) -> TensorLoader:
        """The loader itself. Lightning calls `set_epoch` of the sampler of a loader before each epoch."""
        return self

    def close(self) -> None:
        """Close the reader. Tensors that were delivered stay valid. A second call does nothing."""
        super().close()
        self._given.close()


TensorLoader.__module__ = "pyfeed.torch"


def _place(device: Any, pin_memory: bool) -> Place | None:
    """Return the place to which `double_buffer` copies; None: the tuples stay where they are."""
    if device is None or device.type == "cpu":
        return CUDAPinnedPlace() if pin_memory else None
    if pin_memory:
        raise InvalidArgument(f"pin_memory: expected False with a CUDA device, found True with {device}")
    if device.index is not None:
        return CUDAPlace(device.index)
    return CUDAPlace(torch.cuda.current_device() if torch.cuda.is_available() else 0)


# ---- Conversion ---------------------------------------------------------------------------------


def _to_tensors(item: Any) -> Any:
    """Return a tuple with tensors in place of arrays. This function is on the path of every batch."""
    if isinstance(item, np.ndarray):
        return _to_tensor(item)
    if isinstance(item, DeviceArray):
        tensor = torch.from_dlpack(item)
        return LoDTensor._wrap(tensor, _offsets(item.lod)) if item.lod else tensor
    if isinstance(item, LoDTensor):
        return LoDTensor._wrap(_to_tensors(item.data), _offsets(item.lod))
    return _map_leaves(_to_tensors, item)


def _map_leaves(function: Any, item: Any) -> Any:
    """Apply a function to the elements of a tuple, list or dict. Other objects are returned unchanged."""
    if isinstance(item, dict):
        return {key: function(value) for key, value in item.items()}
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*map(function, item))
    if isinstance(item, (tuple, list)):
        return type(item)(map(function, item))
    return item


def _to_tensor(array: Any) -> Any:
    if not array.flags.writeable:  # PyTorch could write to it; to a view of a file, that would be a SIGSEGV
        array = array.copy()
    if array.dtype.kind == "V":  # bfloat16: of ml_dtypes, or V2 without that package
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _offsets(lod: tuple[Any, ...]) -> Any:
    return tuple(torch.from_numpy(level.copy()) for level in lod)  # the library's offsets are read-only


# ---- Pinned memory ------------------------------------------------------------------------------


class _Copies:
    """Keeps pinned memory of deleted tensors until copies from it are complete.

    A copy with ``non_blocking=True`` may still read the memory when its tensor is deleted. For memory that
    PyTorch has allocated, it waits by itself. For the memory of a reader, an event is recorded on the current
    stream when a tensor is deleted, and the array is kept until this event is complete.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Any, Any]] = deque()  # events, and the arrays that they keep

    def to_pinned_tensors(self, item: Any) -> Any:
        self._release_completed()
        return _to_tensors(self._guard(item))

    def _guard(self, item: Any) -> Any:
        if isinstance(item, np.ndarray):
            return np.asarray(_Guard(item, self)).view(item.dtype)  # __array_interface__ does not have bfloat16
        if isinstance(item, LoDTensor):
            return LoDTensor._wrap(self._guard(item.data), item.lod)
        return _map_leaves(self._guard, item)

    def keep(self, array: Any) -> None:
        """Keep an array whose tensor was deleted until PyTorch's current stream has finished its present work."""
        if torch.cuda.is_initialized():  # otherwise no copy was started
            event = torch.cuda.Event()
            event.record()
            self._waiting.append((event, array))

    def _release_completed(self) -> None:
        while self._waiting:
            event, array = self._waiting.popleft()
            if not event.query():
                self._waiting.appendleft((event, array))
                break

    def __del__(self) -> None:  # neither the loader nor a tensor is left
        for event, _ in self._waiting:
            event.synchronize()


class _Guard:
    """The base of a pinned array, which tells that no tensor refers to the array any more."""

    def __init__(self, array: Any, copies: _Copies) -> None:
        self._array, self._copies = array, copies
        plain = array.view(np.uint16) if array.dtype.kind == "V" else array
        self.__array_interface__ = plain.__array_interface__

    def __del__(self) -> None:
        self._copies.keep(self._array)
