"""The messages of `pyfeed.torch`: objects as a pickle whose tensors and large arrays lie in shared memory."""

from __future__ import annotations

import ctypes
import io
import marshal
import pickle
import threading
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch

Location = tuple[int, int, int]  # the number of a segment within the message, the offset and the size in bytes
Allocate = Callable[[int], tuple[int, int, int]]  # returns the number of a segment, the offset and the address
Find = Callable[[int], tuple[int, int] | None]  # the segment and the offset of an address

_INLINE_BYTES = 16 << 10  # a smaller pickle is a part of the message, a larger one lies in a segment
_MESSAGE_BYTES = 32 << 10  # the largest message
_ARRAY_BYTES = 512  # smaller NumPy arrays are a part of the pickle
_WHOLE_STORAGE_BYTES = 64 << 10  # storages of at most this size are copied whole
_DTYPES = sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype)}, key=str)
_DTYPE_NUMBERS = {dtype: i for i, dtype in enumerate(_DTYPES)}


def is_plain(tensor: Any) -> bool:
    """Whether a tensor consists of a dtype, a shape, strides and a part of a storage in CPU memory."""
    if type(tensor) is not torch.Tensor or tensor.is_nested or tensor.layout is not torch.strided:
        return False
    return bool(tensor.device.type == "cpu" and not tensor.is_quantized)


class _Pickler(ForkingPickler):
    """Pickles all but the contents of tensors and large arrays, which it adds to a `_Contents`."""

    def __init__(self, file: io.BytesIO, contents: _Contents) -> None:
        # A callback of the pickler itself would be a cycle of references, which would keep the batch.
        super().__init__(file, pickle.HIGHEST_PROTOCOL, True, contents.add_buffer)
        self._contents = contents

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is torch.Tensor:
            if is_plain(obj) and not obj.requires_grad:
                if obj.is_conj() or obj.is_neg():  # PyTorch's own reducers lose these bits
                    obj = obj.resolve_conj().resolve_neg()
                storage = obj.untyped_storage()
                if not storage.is_shared():
                    return _tensor, (self._contents.add_tensor(obj, storage),)
        elif kind is torch.UntypedStorage:
            if obj.device.type == "cpu" and not obj.is_shared():
                return _storage, (self._contents.add_whole_storage(obj),)
        elif kind is np.ndarray and obj.nbytes >= _ARRAY_BYTES and not obj.dtype.hasobject and not obj.flags.forc:
            return np.ascontiguousarray(obj).__reduce_ex__(5)  # else NumPy makes a bytes object
        return NotImplemented


class _Contents:
    """The tensors and arrays of a pickle.

    Tensors are byte ranges of storages. When the pickle is complete, ranges that overlap are joined, so that tensors
    that share memory share it in the trainer too.
    """

    def __init__(self) -> None:
        self.buffers: list[memoryview] = []
        self.tensors: list[tuple[int, int, int, tuple[int, ...], tuple[int, ...], int, int]] = []
        self.storages: list[torch.UntypedStorage] = []
        self._whole: set[int] = set()  # storages that are pickled by themselves
        self._numbers: dict[int, int] = {}  # of storages, by address

    def add_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """Return whether the buffer is so small that it becomes a part of the pickle."""
        view = buffer.raw()
        if view.nbytes < _ARRAY_BYTES:
            return True
        self.buffers.append(view)
        return False

    def add_whole_storage(self, storage: torch.UntypedStorage) -> int:
        """Return the number of the storage."""
        number = self._add_storage(storage)
        self._whole.add(number)
        return number

    def _add_storage(self, storage: torch.UntypedStorage) -> int:
        address = storage.data_ptr() or -1 - len(self.storages)  # empty storages have no address
        number = self._numbers.setdefault(address, len(self.storages))
        if number == len(self.storages):
            self.storages.append(storage)
        return number

    def add_tensor(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> int:
        """Return the number of the tensor."""
        offset, shape, stride = tensor.storage_offset(), tuple(tensor.shape), tensor.stride()
        width = tensor.element_size()
        begin = end = offset * width
        if tensor.numel():
            end += (1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))) * width
        number = self._add_storage(storage)
        self.tensors.append((number, _DTYPE_NUMBERS[tensor.dtype], offset, shape, stride, begin, end))
        return len(self.tensors) - 1

    def place(self, allocate: Allocate, find: Find) -> tuple[list[Location], list[Any], dict[int, int]]:
        """Copy the storages into shared memory, except those that lie there.

        Returns the locations, the tensors over these locations, and the locations of the storages that are pickled by
        themselves.
        """
        ranges: list[list[tuple[int, int, int]]] = [[] for _ in self.storages]  # begin, end, tensor
        for i, (number, *_, begin, end) in enumerate(self.tensors):
            ranges[number].append((begin, end, i))
        locations: list[Location] = []
        tensors: list[Any] = [None] * len(self.tensors)
        whole: dict[int, int] = {}
        for number, (storage, used) in enumerate(zip(self.storages, ranges, strict=True)):
            size, address = storage.nbytes(), storage.data_ptr()
            found = find(address) if size else None
            if found is not None:
                parts = [(0, size)]
                locations.append((*found, size))
            else:
                parts = [(0, size)] if number in self._whole else _parts(used, size)
                for begin, end in parts:
                    if begin == end:
                        locations.append((-1, 0, 0))
                        continue
                    segment, at, target = allocate(end - begin)
                    ctypes.memmove(target, address + begin, end - begin)
                    locations.append((segment, at, end - begin))
            first = len(locations) - len(parts)
            if number in self._whole:
                whole[number] = first
            for begin, _, i in used:
                part = max((p for p in range(len(parts)) if parts[p][0] <= begin), default=0)
                _, dtype, offset, shape, stride, *_ = self.tensors[i]
                skipped = parts[part][0] // _DTYPES[dtype].itemsize
                tensors[i] = (first + part, dtype, offset - skipped, shape, stride)
        return locations, tensors, whole


def _parts(used: Sequence[tuple[int, int, int]], size: int) -> list[tuple[int, int]]:
    """Return the byte ranges of a storage to copy: all of it, unless tensors use a small part of a large one."""
    if size <= _WHOLE_STORAGE_BYTES:
        return [(0, size)]
    parts: list[tuple[int, int]] = []
    for begin, end, _ in sorted(used):
        begin &= ~15  # the alignment of every dtype
        if parts and begin <= parts[-1][1]:
            parts[-1] = (parts[-1][0], max(parts[-1][1], end))
        else:
            parts.append((begin, end))
    return [(0, size)] if 2 * sum(end - begin for begin, end in parts) >= size else parts


def encode(obj: Any, allocate: Allocate, find: Find) -> bytes | Location:
    """Pickle an object, and return the body of a message or, if it is large, its location."""
    file = io.BytesIO()
    contents = _Contents()
    _Pickler(file, contents).dump(obj)
    locations, tensors, whole = contents.place(allocate, find)
    buffers = []
    for view in contents.buffers:
        segment, at, address = allocate(view.nbytes)
        ctypes.memmove(address, np.frombuffer(view, np.uint8).ctypes.data, view.nbytes)
        buffers.append((segment, at, view.nbytes))
    stream: bytes | Location
    stream = file.getvalue() if file.tell() <= _INLINE_BYTES else _store(file.getbuffer(), allocate)
    body = marshal.dumps((locations, tensors, whole, buffers, stream))
    return body if len(body) <= _MESSAGE_BYTES else _store(body, allocate)


def _store(data: bytes | memoryview, allocate: Allocate) -> Location:
    segment, at, address = allocate(len(data))
    ctypes.memmove(address, np.frombuffer(data, np.uint8).ctypes.data, len(data))
    return segment, at, len(data)


class _Loading(threading.local):
    """What `_tensor` and `_storage` read while this thread unpickles a message."""

    leases: Sequence[Any]
    locations: list[Location]
    tensors: list[Any]
    whole: dict[int, int]
    storages: dict[int, torch.UntypedStorage]


_loading = _Loading()


def decode(body: bytes | Location, leases: Sequence[Any]) -> Any:
    """Return the object of a message, whose tensors and arrays are views of the leases."""
    if not isinstance(body, bytes):
        body = bytes(_view(leases, body))
    _loading.locations, _loading.tensors, _loading.whole, buffers, stream = marshal.loads(body)
    _loading.leases, _loading.storages = leases, {}
    try:
        data = stream if isinstance(stream, bytes) else _view(leases, stream)
        return pickle.loads(data, buffers=[_view(leases, b) for b in buffers])
    finally:
        _loading.leases, _loading.storages = (), {}


def _view(leases: Sequence[Any], location: Location) -> memoryview:
    segment, at, nbytes = location
    return memoryview(leases[segment])[at : at + nbytes]


def _storage_at(number: int) -> torch.UntypedStorage:
    storage = _loading.storages.get(number)
    if storage is None:
        segment, at, nbytes = _loading.locations[number]
        if nbytes:
            lease = _loading.leases[segment]
            storage = torch.frombuffer(lease, dtype=torch.uint8, count=nbytes, offset=at).untyped_storage()
        else:
            storage = torch.UntypedStorage(0)
        _loading.storages[number] = storage
    return storage


def _storage(number: int) -> torch.UntypedStorage:
    """Return a storage of the message that is being unpickled."""
    return _storage_at(_loading.whole[number])


def _tensor(number: int) -> torch.Tensor:
    """Return a tensor of the message that is being unpickled."""
    location, dtype, offset, shape, stride = _loading.tensors[number]
    return torch.empty(0, dtype=_DTYPES[dtype]).set_(_storage_at(location), offset, shape, stride)


class IndexPickler(ForkingPickler):
    """Pickles indices for a worker. Tensors are pickled by value, which needs no descriptor."""

    def reducer_override(self, obj: Any) -> Any:
        plain = type(obj) is torch.Tensor and obj.layout is torch.strided and obj.device.type == "cpu"
        if plain and not obj.requires_grad and obj.dtype in _NUMPY_DTYPES:
            return torch.from_numpy, (obj.numpy(),)
        return NotImplemented


_NUMPY_DTYPES = {
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float32,
    torch.float64,
}
