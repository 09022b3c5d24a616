"""Samples of a dataset, and batches of them: the functions of the map readers of `from_dataset`.

They run in threads of the trainer and in worker processes. They return tuples of arrays, whatever structure the reader
delivers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ._lod import LoDTensor
from ._map_call import FlatFunction, ResultWriter
from ._sample_values import SampleSlot, check_value, convert, dtype_of, name_of, stack, zeros_of
from .errors import SlotCountError

# Larger parts of a sample are copied into the batch before the next sample is made: then they are in the cache of the
# core, and their memory is free for the next sample. Others are copied together, which takes less time for each.
_EARLY_BYTES = 16 << 10
_EARLY_BATCH_BYTES = 1 << 20

_PAD = -1  # the number that create_range_reader adds with even="pad"


class Samples(FlatFunction):
    """Returns a sample of a dataset, for its number.

    Parameters
    ----------
    dataset
        Has ``__getitem__``.
    slots : sequence of SampleSlot
        The slots of a sample.
    structure
        The structure of a sample, as in ``pyfeed._structure``; an int if a sample is a single value.
    pads : bool
        Whether the number -1 stands for a sample of zeros.
    """

    def __init__(self, dataset: Any, slots: Sequence[SampleSlot], structure: Any, *, pads: bool) -> None:
        self._dataset, self._structure, self._pads = dataset, structure, pads
        self._slots = [SampleSlot(*slot) for slot in slots]

    def __call__(self, number: Any) -> tuple[Any, ...]:
        index = int(number)
        if self._pads and index == _PAD:
            return tuple(zeros_of(slot) for slot in self._slots)
        values = flatten(self._structure, fetch(self._dataset, index), index)
        return tuple(self._convert(slot, value, index) for slot, value in zip(self._slots, values, strict=True))

    def _convert(self, slot: SampleSlot, value: Any, index: int) -> Any:
        array = check_value(value, slot, index)
        return LoDTensor(array, [np.array([0, len(array)])]) if slot.is_sequence else array


class Batches(ResultWriter):
    """Writes batches of samples, for the numbers of the samples. The parameters are those of `Samples`."""

    def __init__(self, dataset: Any, slots: Sequence[SampleSlot], structure: Any, *, pads: bool) -> None:
        self._dataset, self._structure, self._pads = dataset, structure, pads
        self._slots = [SampleSlot(*slot) for slot in slots]
        self._bytes = [dtype_of(slot.dtype).itemsize * int(np.prod(slot.shape)) for slot in self._slots]

    def slots(self, arguments: tuple[Any, ...]) -> tuple[tuple[str, tuple[int, ...], int, str], ...]:
        (numbers,) = arguments
        return tuple((slot.dtype, (len(numbers), *slot.shape), 0, "") for slot in self._slots)

    def write(self, arguments: tuple[Any, ...], arrays: list[Any]) -> None:
        (numbers,) = arguments
        indices = numbers.tolist()
        if self._pads and _PAD in indices:
            for array in arrays:
                array[numbers == _PAD] = np.zeros((), array.dtype)
            rows = [row for row, index in enumerate(indices) if index != _PAD]
            indices = [indices[row] for row in rows]
            arrays[:] = [_Rows(array, rows) for array in arrays]
            del array
        if not indices:
            return
        early = [i for i, n in enumerate(self._bytes) if n >= _EARLY_BYTES and n * len(indices) >= _EARLY_BATCH_BYTES]
        if early:
            columns = self._write_early(early, indices, arrays)
        else:
            columns = _columns(self._structure, _all_samples(self._dataset, indices), indices)
        for i in range(len(self._slots)):
            if i not in early and not stack(arrays[i], columns[i]):
                for row, value in enumerate(columns[i]):
                    self._store(arrays, row, i, value, indices[row])

    def _write_early(self, early: list[int], indices: list[int], arrays: list[Any]) -> list[Sequence[Any]]:
        """Write the values of some slots, sample by sample. Return the values of the others, slot by slot."""
        columns: list[Sequence[Any]] = [[] for _ in self._slots]
        late = [i for i in range(len(self._slots)) if i not in early]
        add = [columns[i].append for i in late]  # type: ignore[attr-defined]
        together = _all_samples(self._dataset, indices) if hasattr(self._dataset, "__getitems__") else None
        for row, index in enumerate(indices):
            # Nothing but `values` may refer to the sample, so that the next one gets its memory.
            values = flatten(self._structure, together[row] if together else fetch(self._dataset, index), index)
            for i in early:
                self._store(arrays, row, i, values[i], index)
            for i, append in zip(late, add, strict=True):
                append(values[i])
            del values
        return columns

    def _store(self, arrays: list[Any], row: int, i: int, value: Any, index: int) -> None:
        """Write a value of a sample into a row, or raise the error that says why it does not fit."""
        array = check_value(value, self._slots[i], index)
        dtype = arrays[i].dtype  # that of ml_dtypes for bfloat16, if it is imported
        arrays[i][row] = array if array.dtype == dtype else array.view(dtype)


class CollatedBatches(FlatFunction):
    """Returns batches that a function makes of samples, for the numbers of the samples.

    Parameters
    ----------
    dataset
        Has ``__getitem__``.
    collate : callable
        Called with the list of samples.
    slots : sequence of SampleSlot
        The slots of its results.
    structure
        The structure of its results, as in ``pyfeed._structure``; an int if a result is a single value.
    """

    def __init__(
        self, dataset: Any, collate: Callable[[list[Any]], Any], slots: Sequence[SampleSlot], structure: Any
    ) -> None:
        self._dataset, self._collate, self._structure = dataset, collate, structure
        self._slots = [SampleSlot(*slot) for slot in slots]

    def __call__(self, numbers: Any) -> tuple[Any, ...]:
        batch = self._collate(_all_samples(self._dataset, numbers.tolist()))
        values = flatten(self._structure, batch, None)
        return tuple(convert(x, slot, None) for x, slot in zip(values, self._slots, strict=True))


class _Rows:
    """Some rows of an array, for writes."""

    def __init__(self, array: Any, rows: Sequence[int]) -> None:
        self._array, self._rows, self.dtype = array, rows, array.dtype

    def __setitem__(self, row: int, value: Any) -> None:
        self._array[self._rows[row]] = value


# ---- Samples ---------------------------------------------------------------------------------


def fetch(dataset: Any, index: int) -> Any:
    """Return a sample. A note on an exception of the dataset says which it is."""
    return _fetch([], dataset, [index])[0]


def _fetch(samples: list[Any], dataset: Any, indices: list[int]) -> list[Any]:
    """Append samples to a list, and return it."""
    try:
        for index in indices:
            samples.append(dataset[index])
    except Exception as error:
        note = f"This was sample {indices[len(samples)]} of the dataset."
        if isinstance(error, StopIteration):  # the loop of the consumer would take it for the end of the data
            replaced = RuntimeError("__getitem__ raised StopIteration")
            replaced.add_note(note)
            raise replaced from error
        error.add_note(note)
        raise
    return samples


def _all_samples(dataset: Any, indices: list[int]) -> list[Any]:
    """Return samples, which are fetched together if the dataset can do so."""
    get_all = getattr(dataset, "__getitems__", None)
    if get_all is None:
        return _fetch([], dataset, indices)
    try:
        samples = list(get_all(list(indices)))  # a copy, which the dataset may change
    except Exception as error:
        error.add_note(f"This was __getitems__ for {len(indices)} samples from {indices[0]} to {indices[-1]}.")
        raise
    if len(samples) != len(indices):
        raise SlotCountError(
            f"__getitems__: expected {len(indices)} samples, one for each number, found {len(samples)}"
        )
    return samples


def _columns(structure: Any, samples: list[Any], indices: list[int]) -> list[Sequence[Any]]:
    """Return the values of samples, slot by slot."""
    kind = type(structure)
    if kind is int:
        return [samples]
    parts = structure.values() if kind is dict else structure
    if all(type(part) is int for part in parts) and _lengths(samples) == {len(structure)}:
        kinds = set(map(type, samples))
        if kind is dict and kinds == {dict}:
            try:
                return [list(map(operator.itemgetter(key), samples)) for key in structure]
            except KeyError:
                pass  # flatten finds the sample
        elif kind is not dict and kinds <= {tuple, list}:
            return list(zip(*samples, strict=True))
    rows = [flatten(structure, sample, index) for sample, index in zip(samples, indices, strict=True)]
    return list(zip(*rows, strict=True))


def _lengths(samples: list[Any]) -> set[int]:
    try:
        return set(map(len, samples))
    except TypeError:  # some have none
        return set()


def flatten(structure: Any, sample: Any, index: int | None) -> Sequence[Any]:
    """Return the values of a sample in the order of the slots.

    Raises
    ------
    SlotCountError
        The sample has another structure. `index` is its number, for the error; None: it is a batch.
    """
    kind = type(structure)
    if kind is int:
        return (sample,)
    if kind is dict:
        if not isinstance(sample, Mapping) or len(sample) != len(structure):
            _refuse_structure(structure, sample, index)
        try:
            values = [sample[key] for key in structure]
        except KeyError:
            _refuse_structure(structure, sample, index)
    else:
        if not isinstance(sample, (tuple, list)) or len(sample) != len(structure):
            _refuse_structure(structure, sample, index)
        values = list(sample)
    parts = structure.values() if kind is dict else structure
    if all(type(part) is int for part in parts):
        return values
    return [x for part, value in zip(parts, values, strict=True) for x in flatten(part, value, index)]


def _refuse_structure(structure: Any, found: Any, index: int | None) -> NoReturn:
    if isinstance(structure, dict):
        expected = f"a dict with the keys {', '.join(map(repr, structure))}"
    else:
        expected = f"a {type(structure).__name__} of {len(structure)} values"
    if isinstance(found, Mapping):
        text = f"one with the keys {', '.join(map(repr, found))}"
    elif isinstance(found, (tuple, list)):
        text = f"a {type(found).__name__} of {len(found)}"
    else:
        text = str(type(found))
    raise SlotCountError(f"{name_of(index)}: expected {expected}, found {text}") from None
