"""Collation into shared memory, for `pyfeed.torch`: what PyTorch's worker loop calls instead of its own functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data._utils import collate, fetch

from ._torch_messages import is_plain

if TYPE_CHECKING:
    from ._torch_worker import BatchMemory

_EARLY_LEAF_BYTES = 16 << 10  # smaller parts of a sample are copied when the batch is complete
_EARLY_BATCH_BYTES = 1 << 20  # smaller slots of a batch are copied then, too: they stay in the cache of a core

_TORCH_DTYPES = {
    np.dtype(name): getattr(torch, name)
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
}


def install(memory: BatchMemory) -> None:
    """Make PyTorch's functions of this process collate into `memory`."""
    rows = _EarlyRows(memory)
    collate.default_collate_fn_map[torch.Tensor] = _StackTensors(memory, rows)
    collate.default_collate_fn_map[np.ndarray] = _StackArrays(memory, rows)
    by_index, by_iterator = fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher
    by_index.fetch = _fetch_map_with(rows, by_index.fetch)
    by_iterator.fetch = _fetch_iterable_with(rows, by_iterator.fetch)


def _fetch_map_with(rows: _EarlyRows, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a replacement of ``_MapDatasetFetcher.fetch``, which copies the large parts of a sample at once.

    Then a part is still in the cache of the core, and its memory is free for the next sample. PyTorch makes all samples
    of a batch first: 64 images of 600 kB do not fit into a cache. The collation itself is PyTorch's, and so are its
    errors. It finds that the parts of all samples lie one behind the other.
    """

    def fetch_samples(self: Any, indices: Any) -> Any:
        dataset = self.dataset
        if not _is_default(self, indices) or getattr(dataset, "__getitems__", None):
            return original(self, indices)
        first = dataset[indices[0]]
        if not rows.begin(first, len(indices)):
            return self.collate_fn([first, *[dataset[i] for i in indices[1:]]])
        try:
            samples = [rows.replace(first, 0)]
            del first
            for i in range(1, len(indices)):
                samples.append(rows.replace(dataset[indices[i]], i))
            return self.collate_fn(samples)
        finally:
            rows.end()

    return fetch_samples


def _fetch_iterable_with(rows: _EarlyRows, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a replacement of ``_IterableDatasetFetcher.fetch`` that does the same."""

    def fetch_samples(self: Any, indices: Any) -> Any:
        if self.ended or not _is_default(self, indices):
            return original(self, indices)
        samples: list[Any] = []
        try:
            for i in range(len(indices)):
                try:
                    sample = next(self.dataset_iter)
                except StopIteration:
                    self.ended = True
                    break
                if i == 0:
                    rows.begin(sample, len(indices))
                samples.append(rows.replace(sample, i))
            if not samples or (self.drop_last and len(samples) < len(indices)):
                raise StopIteration
            return self.collate_fn(samples)
        finally:
            rows.end()

    return fetch_samples


def _is_default(fetcher: Any, indices: Any) -> bool:
    """Whether a fetcher makes batches by PyTorch's own collation."""
    own = fetcher.auto_collation and fetcher.collate_fn is collate.default_collate
    return own and type(indices) is list and bool(indices)


class _EarlyRows:
    """Memory in the current batch for the large tensors and arrays of its samples.

    A part of a sample is identified by its place: the keys and indices that lead to it.
    """

    def __init__(self, memory: BatchMemory) -> None:
        self._memory = memory
        self._places: dict[tuple[Any, ...], torch.Tensor] = {}
        self._by_address: dict[int, torch.Tensor] = {}

    def begin(self, sample: Any, count: int) -> bool:
        """Allocate rows for the large parts of samples like this one. Return False if it has none."""
        for place, leaf in _leaves(sample, ()):
            if leaf.nbytes >= _EARLY_LEAF_BYTES and count * leaf.nbytes >= _EARLY_BATCH_BYTES:
                dtype = _TORCH_DTYPES[leaf.dtype] if isinstance(leaf, np.ndarray) else leaf.dtype
                rows = self._memory.empty((count, *leaf.shape), dtype)
                self._places[place] = self._by_address[rows.data_ptr()] = rows
        return bool(self._places)

    def replace(self, sample: Any, i: int, place: tuple[Any, ...] = ()) -> Any:
        """Copy the large parts into row i. Return the sample with views of the rows in their place."""
        if not self._places:
            return sample
        kind = type(sample)
        if kind is dict:
            return {key: self.replace(value, i, (*place, key)) for key, value in sample.items()}
        if kind is tuple or kind is list:
            return kind(self.replace(value, i, (*place, k)) for k, value in enumerate(sample))
        rows = self._places.get(place)
        if rows is None:
            return sample
        row = rows[i]
        if kind is np.ndarray:
            array: Any = row.numpy()
            if sample.shape != array.shape or sample.dtype != array.dtype:
                return sample
            np.copyto(array, sample)
            return array
        if not is_plain(sample) or sample.requires_grad:
            return sample
        if sample.shape != row.shape or sample.dtype != row.dtype:
            return sample
        return row.copy_(sample)

    def complete(self, batch: Any, addresses: Callable[[Any], int]) -> torch.Tensor | None:
        """Return the rows if the batch consists of all of them, in order."""
        if not self._by_address:
            return None
        rows = self._by_address.get(addresses(batch[0]))
        if rows is None or len(batch) != len(rows):
            return None
        begin, size = rows.data_ptr(), rows.nbytes // len(rows)
        if any(type(x) is not type(batch[0]) or addresses(x) != begin + i * size for i, x in enumerate(batch)):
            return None
        return rows

    def end(self) -> None:
        """Forget the rows, which now belong to the batch."""
        self._places, self._by_address = {}, {}


def _leaves(sample: Any, place: tuple[Any, ...]) -> list[tuple[tuple[Any, ...], Any]]:
    """Return the tensors and arrays of a sample that can be copied before the batch is complete, and their places."""
    kind = type(sample)
    if kind is dict:
        return [leaf for key, value in sample.items() for leaf in _leaves(value, (*place, key))]
    if kind is tuple or kind is list:
        return [leaf for k, value in enumerate(sample) for leaf in _leaves(value, (*place, k))]
    if kind is np.ndarray:
        return [(place, sample)] if sample.dtype in _TORCH_DTYPES and sample.ndim else []
    return [(place, sample)] if is_plain(sample) and not sample.requires_grad else []


class _StackTensors:
    """Collates tensors into shared memory."""

    def __init__(self, memory: BatchMemory, rows: _EarlyRows) -> None:
        self._memory, self._rows = memory, rows

    def __call__(self, batch: Any, *, collate_fn_map: Any = None) -> Any:
        first = batch[0]
        if not is_plain(first):
            return collate.collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
        rows = self._rows.complete(batch, torch.Tensor.data_ptr)
        if rows is not None:
            return rows
        shape = (len(batch), *first.shape)
        try:
            return torch.stack(batch, 0, out=self._memory.empty(shape, first.dtype) if first.numel() else None)
        except TypeError:  # not only tensors
            return collate.collate_tensor_fn(batch, collate_fn_map=collate_fn_map)


class _StackArrays:
    """Collates NumPy arrays into shared memory."""

    def __init__(self, memory: BatchMemory, rows: _EarlyRows) -> None:
        self._memory, self._rows = memory, rows

    def __call__(self, batch: Any, *, collate_fn_map: Any = None) -> Any:
        first = batch[0]
        dtype = _TORCH_DTYPES.get(first.dtype)
        alike = set(map(type, batch)) == {np.ndarray} and len({a.shape for a in batch}) == 1
        if dtype is None or not alike or first.size == 0 or first.ndim == 0:
            return collate.collate_numpy_array_fn(batch, collate_fn_map=collate_fn_map)
        rows = self._rows.complete(batch, lambda array: int(array.ctypes.data))
        if rows is not None:
            return rows
        tensor = self._memory.empty((len(batch), *first.shape), dtype)
        try:  # np.stack takes twice as long
            np.concatenate(batch, out=tensor.numpy().reshape(-1, *first.shape[1:]), casting="no")
        except TypeError:  # arrays of several dtypes
            return collate.collate_numpy_array_fn(batch, collate_fn_map=collate_fn_map)
        return tensor
