"""Readers of datasets of Ray Data."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from . import _arguments
from ._arguments import flag, integer, validate
from ._lod import LoDTensor
from ._producing import start_passes
from ._reader import Reader, feed
from .errors import DTypeError, InvalidArgument

Batch = Mapping[str, Any]

_NO_ORDER = (
    "a dataset of Ray Data delivers its blocks as they become ready. pyfeed.ray.FeedService, or open_files with the "
    "files of the dataset, has an order"
)


def _check_dataset(name: str, value: Any) -> Any:
    """Accept a dataset, or one of the iterators of its ``streaming_split``."""
    if not hasattr(value, "iter_batches"):
        _arguments.refuse(name, "a ray.data.Dataset, or a DataIterator of its streaming_split", value)
    return value


@validate(
    dataset=_check_dataset,
    batch_size=integer(1, "row"),
    prefetch_batches=integer(0, "batches"),
    drop_last=flag,
    as_dict=flag,
    capacity=integer(1, "tuple"),
)
def from_dataset(
    dataset: Any,
    batch_size: int,
    *,
    prefetch_batches: int = 2,
    drop_last: bool = False,
    as_dict: bool = False,
    capacity: int = 2,
) -> Reader:
    """Make a reader of a dataset of Ray Data, whose arrays are views of Ray's object store.

    Parameters
    ----------
    dataset
        A ``ray.data.Dataset`` or ``ray.data.DataIterator``.
        In a worker of Ray Train, usually ``ray.train.get_dataset_shard("train")``, which
        ``Dataset.streaming_split`` has made.
    batch_size : int
        The number of rows in a batch, at least 1.
    prefetch_batches : int
        The number of batches that Ray Data fetches ahead.
    drop_last : bool
        Whether the last batch of a pass is dropped if it has fewer rows.
    as_dict : bool
        Whether tuples are delivered as dicts from the names of columns to arrays.
    capacity : int
        The largest number of batches that wait for the consumer, at least 1.

    Returns
    -------
    Reader
        Each column is a slot, with the name of the column. Numbers and arrays of one shape are arrays; text, bytes and
        arrays of different lengths are a `LoDTensor`. Arrays are read-only.

    Raises
    ------
    InvalidArgument
        The dataset has no rows, so its columns are not known.
    DTypeError
        A column has other values.

    Notes
    -----
    - This call reads the first batch, to learn the columns; the first pass begins with it. With ``streaming_split``,
      it waits until all trainers have made their readers, because Ray begins a pass for all of them together.
    - Each pass executes the dataset again. Ray Data has no order of its own: with several blocks, batches and
      their rows depend on timing. So `Reader.state_dict` is refused; `FeedService` has an order.
    - A daemon thread iterates over the dataset. A read raises its exceptions.
    """
    options = {"batch_size": batch_size, "prefetch_batches": prefetch_batches, "drop_last": drop_last}
    first = iter(dataset.iter_batches(batch_format="numpy", **options))
    try:
        batch = next(first)
    except StopIteration:
        raise InvalidArgument("dataset: expected a row, to learn the columns from, found none") from None
    names = tuple(batch)
    slots = [_as_slot(name, batch[name]) for name in names]
    source, queue = feed(
        capacity,
        [(-1, *slot.shape[1:]) for slot in slots],
        dtypes=[slot.dtype for slot in slots],
        lod_levels=[len(slot.lod) if isinstance(slot, LoDTensor) else 0 for slot in slots],
        names=names,
        as_dict=as_dict,
        restartable=True,
        no_order=_NO_ORDER,
    )
    passes = _Passes(dataset, options, names, itertools.chain([batch], first))
    start_passes(source, queue, passes, copy=False)
    return source


class _Passes:
    """Makes the iterable of each pass. The first pass goes on with the batches that were begun already."""

    def __init__(self, dataset: Any, options: dict[str, Any], names: tuple[str, ...], begun: Iterable[Batch]) -> None:
        self._dataset, self._options, self._names = dataset, options, names
        self._begun: Iterable[Batch] | None = begun

    def __call__(self) -> Iterator[list[Any]]:
        batches, self._begun = self._begun, None
        if batches is None:
            batches = self._dataset.iter_batches(batch_format="numpy", **self._options)
        for batch in batches:
            yield [_as_slot(name, batch[name]) for name in self._names]


def _as_slot(name: str, column: Any) -> Any:
    """Return the values of a column as an array or a `LoDTensor`."""
    array = np.asarray(column)
    if array.dtype.kind in "SU":
        array = array.astype(object)
    if array.dtype.kind in "mM":
        return array.view("int64")
    if array.dtype != object:
        return array
    values = list(array)
    if all(isinstance(value, (str, bytes)) for value in values):
        return LoDTensor.from_bytes(values)
    try:
        return LoDTensor.from_sequences([np.asarray(value) for value in values])
    except (TypeError, ValueError) as error:
        raise DTypeError(
            f"column {name!r}: expected numbers, arrays of one dtype, text or bytes, "
            f"found {_arguments.format_value(values[0])}: {error}"
        ) from error
