"""Readers of datasets: objects of Python that return any sample by its number."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from . import _arguments, _ranks, _samples, _structure
from ._arguments import flag, integer, optional, refuse, start_method, text, validate
from ._cells import MOST_CELL_BYTES, size_of_tuple
from ._open import create_reader
from ._reader import Reader, check_on_error, from_generator
from ._sample_values import NUMBERS, SampleSlot, array_of, check_value, dtype_name, dtype_of, name_of
from ._scope import Scope, check_scope
from ._structure import DTypes, Shapes, Structure
from .errors import ArgumentTypeError, DTypeError, InvalidArgument

_UNKNOWN_SIZES: tuple[int | None, int | None] = (None, None)
_MOST_SKIPPED = 100  # samples that are tried, until one determines the slots
_AHEAD_BYTES = 32 << 20  # of batches that wait for the consumer, by default


def check_dataset(name: str, value: Any) -> Any:
    """Accept an object that returns samples by their numbers, and knows how many there are."""
    if isinstance(value, (str, bytes, bytearray, type, Mapping)) or not hasattr(value, "__getitem__"):
        hint = ": from_generator takes iterables" if isinstance(value, Iterable) or callable(value) else ""
        raise ArgumentTypeError(
            f"{name}: expected an object with __len__ and __getitem__, found {_arguments.format_value(value)}{hint}"
        )
    try:
        len(value)
    except TypeError as error:
        raise ArgumentTypeError(f"{name}: expected an object with __len__ and __getitem__: {error}") from error
    return value


def check_sampler(name: str, value: Any) -> Any:
    """Accept an object that can be iterated over again and again."""
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes, bytearray, Mapping)):
        refuse(name, "an iterable of the numbers of samples", value)
    if isinstance(value, Iterator):
        refuse(name, "an object that can be iterated over in each pass, such as a list", value)
    return value


def check_seed(name: str, value: Any) -> int:
    """Accept a seed."""
    if isinstance(value, (bool, np.bool_)):
        refuse(name, "a seed, such as 1", value)
    return _arguments.number(name, value, 0)


@validate(
    dataset=check_dataset,
    batch_size=optional(integer(1, "sample")),
    shuffle=optional(check_seed),
    sampler=optional(check_sampler),
    drop_last=flag,
    collate_fn=optional(_arguments.function),
    shapes=optional(_structure.shapes),
    dtypes=_structure.CHECKS["dtypes"],
    names=_structure.CHECKS["names"],
    as_dict=flag,
    num_threads=integer(1),
    num_workers=integer(0, most=255),
    method=start_method,
    cell_bytes=optional(integer(1, most=MOST_CELL_BYTES)),
    capacity=optional(integer(1, "tuple")),
    rank=_ranks.check_optional_rank,
    world=optional(integer(1)),
    virtual_shards=optional(integer(1)),
    even=optional(text),
    on_error=text,
    scope=optional(check_scope),
)
def from_dataset(
    dataset: Any,
    batch_size: int | None = None,
    *,
    shuffle: int | None = None,
    sampler: Iterable[Any] | None = None,
    drop_last: bool = False,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    shapes: Shapes | None = None,
    dtypes: DTypes | None = None,
    names: Sequence[str] | None = None,
    as_dict: bool = False,
    num_threads: int = 1,
    num_workers: int = 0,
    method: str = "spawn",
    cell_bytes: int | None = None,
    capacity: int | None = None,
    rank: int | str | None = None,
    world: int | None = None,
    virtual_shards: int | None = None,
    even: str | None = None,
    on_error: str = "raise",
    scope: Scope | None = None,
) -> Reader:
    """Make a reader of a dataset: an object of Python that returns samples by their numbers.

    A sample is a tuple, a list or a dict of values, of nested ones, or a single value. A value is an array,
    a tensor of PyTorch, a Python number, text, bytes, or a list of numbers. Threads or worker processes read
    the samples, and write them straight into the memory of the batch. The values of samples are stacked
    under a new first dimension. The first sample determines the dtype and the shape of each value.

    Parameters
    ----------
    dataset
        An object with ``__len__`` and ``__getitem__``, such as a list, an array, or a dataset of PyTorch or
        of Hugging Face. If it has ``__getitems__``, this is called with the list of the numbers of a batch
        instead, and returns the list of the samples.
    batch_size : int, optional
        The number of samples in a batch, at least 1. By default, the reader delivers single samples.
    shuffle : int, optional
        A seed. The samples are read in another order in each pass; the order depends only on the seed, the
        number of the pass and the number of samples. By default, they are read in order.
    sampler : iterable of int, optional
        The numbers of the samples, in the order in which they are read. It is iterated over once for each
        pass. After `Reader.load_state_dict` it is iterated over again, from its beginning, up to the
        position.
    drop_last : bool
        Whether the last batch of a pass is dropped if it has fewer samples.
    collate_fn : callable, optional
        Called with the list of the samples of a batch. It returns the batch: a tuple, a list or a dict of
        values, or a single value. By default, values are stacked.
    shapes : sequence or dict of shapes, optional
        The shape of each value of a sample, or with `collate_fn` of a batch, as for `py_array_reader`. -1
        matches any size. A value with a first dimension of -1 becomes a `LoDTensor`, with a sequence for
        each sample. Text, bytes and lists of numbers are of any length by default.
    dtypes : sequence or dict, optional
        The dtype of each value, such as ``"float32"``. Numbers and lists of numbers are converted to it.
    names : sequence of str, optional
        The names of the slots, if samples are not dicts.
    as_dict : bool
        Whether tuples are delivered as dicts, whose keys are `names`. They always are if samples are dicts.
    num_threads : int
        The number of threads that read samples. More than one thread helps only as far as the dataset
        releases the GIL, as decoders and I/O do. The dataset must allow calls of several threads.
    num_workers : int
        The number of worker processes that read samples instead of threads, at most 255. By default, there
        are none.
    method, cell_bytes
        As for `Reader.map`.
    capacity : int, optional
        The largest number of batches, or of samples without `batch_size`, that are being made or wait for
        the consumer. By default 2 to 8 for each thread or process, or up to 32 samples, so that they have at most
        32 MiB if possible.
    rank, world
        As for `open_files`: this process reads only its own part of the samples. `batch_size` is that of the
        process. Not with `sampler`.
    virtual_shards : int, optional
        The number of equal parts that the samples are divided into, a multiple of `world`. By default `world`.
        The order of the samples of the job does not depend on it.
    even : {"drop", "repeat", "pad"}, optional
        What happens if `virtual_shards` does not divide the number of samples. "drop", the default, leaves out
        the last samples of a pass, which with `shuffle` are others in each pass. "repeat" delivers some samples
        twice. "pad" adds samples of zeros.
    on_error : {"raise", "skip"}
        ``"raise"``: a read raises the exception of the dataset. ``"skip"``: the sample is left out, and the
        next one takes its place in the batch. The details of the reader `map` in `Reader.stats` list them,
        in ``skips``. A state that was saved with one of the two values cannot be loaded with the other.
    scope : Scope, optional
        The scope of the variables of the readers, by default the global one.

    Returns
    -------
    Reader

    Raises
    ------
    ArgumentTypeError
        Pickle refuses the dataset, for worker processes; or `sampler` is an iterator, which ends after one
        pass.
    DTypeError
        A value of the first sample is no array, and no other value of those named above.
    InvalidArgument
        The dataset is empty and `shapes` or `dtypes` are not given; or options exclude each other.
    SlotCountError, ShapeError
        The first sample does not have the values that `shapes`, `dtypes` or `names` describe.

    Notes
    -----
    A state (`Reader.state_dict`) has the number of samples that were delivered, and a reader that loads it
    reads none of them again. The order does not depend on the number of threads or processes.

    A read raises an exception of the dataset itself, after the batches before it. A note says which sample
    it was. A value that does not have the dtype and the shape of its slot is a `DTypeError` or a
    `ShapeError`, a sample with other keys or another number of values is a `SlotCountError`.

    This call reads sample 0, in the thread of the caller. Worker processes get a pickle of the dataset, and
    have a copy of it each. If they have imported torch, it computes in one thread.

    Random augmentations belong into ``Reader.map(..., rng=True)``, whose generators are part of the exact
    resume.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed import from_dataset
    >>> class Squares:
    ...     def __len__(self):
    ...         return 10
    ...     def __getitem__(self, i):
    ...         return {"x": np.full(2, i, np.float32), "square": i * i}
    >>> reader = from_dataset(Squares(), batch_size=4, shuffle=1)
    >>> [batch["square"].tolist() for batch in reader]
    [[16, 81, 0, 4], [25, 64, 49, 9], [1, 36]]
    """
    _check_options(
        batch_size=batch_size,
        drop_last=drop_last,
        collate_fn=collate_fn,
        on_error=on_error,
        sampler=sampler,
        shuffle=shuffle,
        rank=rank,
        even=even,
        num_threads=num_threads,
        num_workers=num_workers,
    )
    division = _ranks.division(rank, world, virtual_shards, even)
    source = _Source(dataset, batch_size, drop_last, collate_fn, shapes, dtypes, names, as_dict, on_error == "skip")
    by_batches = batch_size is not None and on_error == "raise" and (collate_fn is not None or not source.is_ragged)
    if sampler is None:
        attributes = {"count": len(dataset), **{name: x for name, x in division.items() if x is not None}}
        if shuffle is not None:
            attributes["shuffle"] = shuffle
        numbers = create_reader("create_range_reader", "range_reader", None, scope, attributes, as_dict=False)
    else:
        numbers = _numbers_of(sampler, scope)
    if by_batches and batch_size is not None:
        numbers = numbers.batch(batch_size, drop_last)
    check_on_error(numbers, on_error)

    n = max(num_threads, num_workers)
    if capacity is None:
        size, most = (source.batch_bytes, 8 * n) if by_batches else (source.sample_bytes, max(8 * n, 32))
        capacity = max(min(_AHEAD_BYTES // max(size, 1), most), 2 * n)
    pads = division.get("even") == "pad"
    calls = {"with_position": False, "seed": None, "skips": on_error == "skip", "same_slots": False}
    of_worker, sizes = None, _UNKNOWN_SIZES
    if num_workers > 0:
        from pyfeed_worker import _samples as samples_of_worker

        of_worker = source.function(samples_of_worker, by_batches, pads)
        if by_batches:
            rows = batch_size if sampler is not None else min(batch_size or 1, max(len(dataset), 1))
            sizes = source.sizes_of_batches(rows or 1)
    try:
        reader = numbers._map(
            source.slots_of_batches() if by_batches else source.slots_of_samples(),
            source.delivered,
            {"function": source.function(_samples, by_batches, pads), **calls},
            capacity,
            num_threads,
            num_workers,
            method=method,
            cell_bytes=cell_bytes,
            sizes=sizes,
            function_of_worker=of_worker,
        )
    except ArgumentTypeError as error:  # of pickle
        cause = error.__cause__
        raise ArgumentTypeError(
            f"dataset: expected an object that pickle accepts, for method {method!r}, found: {cause}"
        ) from cause
    return reader if by_batches or batch_size is None else reader.batch(batch_size, drop_last)


def _check_options(**given: Any) -> None:
    """Raise the error for options that exclude each other."""
    if given["batch_size"] is None:
        for name in ("drop_last", "collate_fn"):
            if given[name]:
                refuse(name, "batch_size beside it", given[name], InvalidArgument)
    if given["sampler"] is not None:
        for name in ("shuffle", "rank"):
            if given[name] is not None:
                refuse(name, "none beside sampler, which has an order of its own", given[name], InvalidArgument)
    if given["collate_fn"] is not None:
        for name, value in (("on_error", "skip"), ("even", "pad")):
            if given[name] == value:
                refuse(name, "another value beside collate_fn, which makes whole batches", value, InvalidArgument)
    if given["num_workers"] > 0 and given["num_threads"] > 1:
        refuse("num_threads", "1 with num_workers", given["num_threads"], InvalidArgument)


# ---- The slots of a dataset ------------------------------------------------------------------


class _Source:
    """A dataset, and what its samples and batches look like.

    Attributes
    ----------
    slots : list of SampleSlot
        The slots of a sample; with a collate function, those of a batch.
    delivered
        The structure of the tuples that the reader delivers.
    is_ragged : bool
        Whether a value has a dimension of any size.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None,
        drop_last: bool,
        collate_fn: Callable[[list[Any]], Any] | None,
        shapes: Any,
        dtypes: Any,
        names: Sequence[str] | None,
        as_dict: bool,
        skips: bool,
    ) -> None:
        self._dataset, self._batch_size, self._drop_last, self._collate_fn = dataset, batch_size, drop_last, collate_fn
        has_first = len(dataset) > 0
        if not has_first and (shapes is None or dtypes is None):
            raise InvalidArgument("dataset: expected at least one sample, or both shapes and dtypes, found none")
        # The number of the first sample; None: there is none, or a collate function has made `first` of it.
        self._first: int | None = None
        first: Any = None
        if has_first:
            self._first, first = _first_of(dataset, skips=skips)
        if has_first and collate_fn is not None:
            self._first, first = None, _collate_first(collate_fn, first)
        found = _Found(first, self._first) if shapes is None else None
        about = _structure.describe(found.shapes if found else shapes, dtypes, None, names, as_dict=as_dict)
        if found is not None:
            self._structure = found.structure
        elif not isinstance(shapes, list):
            self._structure = about.structure
        else:
            self._structure = 0 if len(shapes) == 1 and not _has_one(first) else tuple(range(len(shapes)))
        # A list of lists would be taken for a list of shapes, so that a tuple is described in its place.
        self.delivered = about.structure if found is None or found.is_flat else found.structure
        values = _samples.flatten(self._structure, first, self._first) if has_first else None
        self.slots = self._slots(about, values)
        if values is not None and collate_fn is None:
            for slot, value in zip(self.slots, values, strict=True):
                check_value(value, slot, self._first)
        self.is_ragged = any(-1 in slot.shape for slot in self.slots)

    def _slots(self, about: _structure.Described, values: Sequence[Any] | None) -> list[SampleSlot]:
        given = about.dtypes or [None] * len(about.shapes)
        slots = []
        for i, (shape, dtype) in enumerate(zip(about.shapes, given, strict=True)):
            name = about.names[i] if about.names else ""
            if dtype is None:
                if values is None:
                    raise InvalidArgument(f"dtypes: slot {i}: expected a dtype for an empty dataset, found None")
                dtype = dtype_name(array_of(values[i], name or "value", self._first))
            is_sequence = self._collate_fn is None and shape[:1] == (-1,)
            slots.append(SampleSlot(name, dtype, tuple(shape), is_sequence))
        return slots

    def function(self, module: Any, by_batches: bool, pads: bool) -> Any:
        """Return the function of the map reader: of the module `_samples` of pyfeed or of pyfeed_worker."""
        if by_batches and self._collate_fn is not None:
            return module.CollatedBatches(self._dataset, self._collate_fn, self.slots, self._structure)
        make = module.Batches if by_batches else module.Samples
        return make(self._dataset, self.slots, self._structure, pads=pads)

    def slots_of_samples(self) -> list[dict[str, Any]]:
        """Return the slots of samples, as attributes of operators."""
        return [_attributes(s.name, s.dtype, s.shape, int(s.is_sequence)) for s in self.slots]

    def slots_of_batches(self) -> list[dict[str, Any]]:
        """Return the slots of batches, as attributes of operators."""
        first = () if self._collate_fn is not None else (self._batch_size or 1,) if self._drop_last else (-1,)
        return [_attributes(s.name, s.dtype, (*first, *s.shape), 0) for s in self.slots]

    def sizes_of_batches(self, rows: int) -> tuple[int | None, int | None]:
        """Return the sizes of a batch of numbers and of a batch in shared memory, as far as they are known."""

        def size_of(*slots: tuple[str, tuple[int, ...]]) -> int | None:
            size = size_of_tuple([(dtype, shape, 0, "") for dtype, shape in slots])
            return size if size <= MOST_CELL_BYTES else None

        if self._collate_fn is not None:
            return size_of(("int64", (rows,))), None
        return size_of(("int64", (rows,))), size_of(*((s.dtype, (rows, *s.shape)) for s in self.slots), ("int64", ()))

    @property
    def sample_bytes(self) -> int:
        """The size of a sample, without its dimensions of any size."""
        return sum(
            dtype_of(s.dtype).itemsize * int(np.prod([n for n in s.shape if n >= 0], dtype=object)) for s in self.slots
        )

    @property
    def batch_bytes(self) -> int:
        """The size of a batch, as far as it is known."""
        return self.sample_bytes * (self._batch_size or 1 if self._collate_fn is None else 1)


def _has_one(sample: Any) -> bool:
    """Whether a sample is a tuple or a list of one value, not the value itself."""
    return isinstance(sample, (tuple, list)) and len(sample) == 1 and not _is_list_of_numbers(sample)


def _is_list_of_numbers(value: Any) -> bool:
    """Whether a value is a list that is one array: of numbers, or of such lists."""
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(x, NUMBERS) or _is_list_of_numbers(x) for x in value)


def _attributes(name: str, dtype: str, shape: Sequence[int], lod_levels: int) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "dims": list(shape), "lod_levels": lod_levels}


def _first_of(dataset: Any, *, skips: bool) -> tuple[int, Any]:
    """Return sample 0 and its number; if samples that fail are skipped, the first of some that does not fail."""
    for index in range(min(len(dataset), _MOST_SKIPPED) if skips else 0):
        try:
            return index, _samples.fetch(dataset, index)
        except Exception:  # the loop will skip it too
            continue
    return 0, _samples.fetch(dataset, 0)


def _collate_first(collate_fn: Callable[[list[Any]], Any], first: Any) -> Any:
    try:
        return collate_fn([first])
    except StopIteration as stop:
        raise RuntimeError("collate_fn raised StopIteration") from stop
    except Exception as error:
        error.add_note("This was a call of collate_fn with the first sample alone, which determines the slots.")
        raise


class _Found:
    """What the first sample looks like, or the first result of a collate function, whose index is None.

    Attributes
    ----------
    values : list
        Its values.
    structure
        The numbers of the values in their places; 0 for a single value.
    is_flat : bool
        Whether it is a single value, or a tuple or a list of values.
    shapes
        The shapes of the values in their places, as the argument `shapes` has them.
    """

    def __init__(self, sample: Any, index: int | None) -> None:
        self._index, self._name = index, name_of(index)
        self.values: list[Any] = []
        self.structure: Structure = self._structure_of("", sample)
        shapes = self._shapes_of(self.structure)
        is_sequence = isinstance(self.structure, (tuple, list))
        self.is_flat = self.structure == 0 or (is_sequence and all(isinstance(part, int) for part in self.structure))
        self.shapes: Any = shapes
        if self.structure == 0:
            self.shapes = [shapes]
        elif is_sequence:
            self.shapes = list(shapes) if self.is_flat else tuple(shapes)

    def _structure_of(self, path: str, part: Any) -> Structure:
        if isinstance(part, Mapping) or (isinstance(part, (tuple, list)) and not _is_list_of_numbers(part)):
            if not part:
                hint = ": give shapes and dtypes" if part == [] else ""
                raise DTypeError(
                    f"{self._name}{path and f': {path}'}: expected at least one value, found {part!r}{hint}"
                )
            if isinstance(part, Mapping):
                return {
                    _arguments.text(f"{self._name}: key", key): self._structure_of(
                        f"{path}.{key}" if path else key, value
                    )
                    for key, value in part.items()
                }
            kind = list if isinstance(part, list) else tuple
            return kind(self._structure_of(f"{path}.{i}" if path else str(i), x) for i, x in enumerate(part))
        array_of(part, path or "value", self._index)
        self.values.append(part)
        return len(self.values) - 1

    def _shapes_of(self, structure: Structure) -> Any:
        if isinstance(structure, int):
            value = self.values[structure]
            shape = array_of(value, "", self._index).shape
            if self._index is None:
                return _structure.leaf([-1] * len(shape))
            any_length = isinstance(value, (str, bytes, bytearray, list))
            return _structure.leaf([-1, *shape[1:]] if any_length else shape)
        if isinstance(structure, dict):
            return {key: self._shapes_of(part) for key, part in structure.items()}
        return type(structure)(self._shapes_of(part) for part in structure)


# ---- Samplers --------------------------------------------------------------------------------


def _numbers_of(sampler: Iterable[Any], scope: Scope | None) -> Reader:
    """Make a reader of the numbers of a sampler."""

    def numbers(start: int) -> Iterator[tuple[int]]:
        for number in itertools.islice(iter(sampler), start, None):
            yield (_arguments.number("sampler", number, -(2**63)),)

    return from_generator(numbers, [()], dtypes=["int64"], names=["index"], capacity=1024, scope=scope)
