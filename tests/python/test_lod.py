"""Ragged offsets (LoD, level of detail): passed on, merged by batches, and checked."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, cast

import hypothesis
import numpy as np
import pyfeed_worker
import pytest
from hypothesis import strategies as st

import pyfeed
from pyfeed import LoDTensor

from .support import DLPackArray, feed, raises, same


def offsets(tensor: LoDTensor) -> list[list[int]]:
    return [level.tolist() for level in tensor.lod]


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("levels", range(1, 9))
def test_levels_are_carried(levels: int, copy: bool) -> None:
    _, queue = feed(1, [(-1, 2)], lod_levels=[levels])
    outer = [[0, 2, 2]] + [[0, 1, 2]] * (levels - 2) if levels > 1 else []
    given = LoDTensor(np.arange(10.0).reshape(5, 2), [*outer, [0, 2, 5]])
    queue.push((given,), copy=copy)
    (found,) = queue.pop()
    assert isinstance(found, LoDTensor)
    same(found.data, given.data)
    assert offsets(found) == offsets(given)
    for level in found.lod:
        assert level.dtype == np.int64
        assert not level.flags.writeable


def test_lod_and_plain_slots_side_by_side() -> None:
    """The batch dimension of a tensor with LoD is its number of sequences."""
    _, queue = feed(2, [(-1,), (-1,)], lod_levels=[1, 0])
    queue.push((LoDTensor.from_lengths(np.arange(5.0), [[2, 3]]), np.array([1, 0])))
    text, label = queue.pop()
    assert isinstance(text, LoDTensor)
    assert isinstance(label, np.ndarray)
    assert len(text) == len(label) == 2
    queue.push([LoDTensor.from_lengths(np.zeros(0), [[0, 0, 0]]), np.zeros(3, int)])
    assert offsets(queue.pop()[0]) == [[0, 0, 0, 0]]


def test_the_classs_own_sums() -> None:
    tensor = LoDTensor.from_lengths(np.zeros((20, 3), np.float32), [[2, 2, 1, 1], [1, 5, 2, 5, 2, 5]])
    assert offsets(tensor) == [[0, 2, 4, 5, 6], [0, 1, 6, 8, 13, 15, 20]]
    assert tensor.recursive_sequence_lengths() == [[2, 2, 1, 1], [1, 5, 2, 5, 2, 5]]
    assert (tensor.shape, tensor.dtype, len(tensor)) == ((20, 3), np.float32, 4)
    assert len(LoDTensor(np.zeros(7))) == 7
    assert np.asarray(tensor) is tensor.data
    assert np.array(tensor, copy=True) is not tensor.data
    assert np.asarray(tensor, dtype=np.float64).dtype == np.float64
    assert np.from_dlpack(tensor).ctypes.data == tensor.data.ctypes.data
    assert repr(LoDTensor(np.zeros(1), [[0, 1]])) == "LoDTensor(array([0.]), lod=[[0, 1]])"
    level = np.array([0, 20])
    assert LoDTensor(tensor.data, [level]).lod[0] is level


def test_offsets_are_checked_where_the_tensor_is_made() -> None:
    data, odd = np.arange(5.0), cast(Any, [[2.5], 2.5])
    cases: list[tuple[Callable[[], object], type[pyfeed.errors.Error], str]] = [
        (lambda: LoDTensor(data, [[]]), pyfeed.errors.ShapeError, "LoD level 0: expected at least 1 offset, found 0"),
        (
            lambda: LoDTensor(data, [[0], [0, 5]]),
            pyfeed.errors.ShapeError,
            "LoD level 0: expected the last offset to be 1, the number of sequences of level 1, found 0",
        ),
        (
            lambda: LoDTensor(data, [[0, 3, 2, 5]]),
            pyfeed.errors.ShapeError,
            "LoD level 0: offset 2 decreases from 3 to 2",
        ),
        (
            lambda: LoDTensor(data, [[0, 4]]),
            pyfeed.errors.ShapeError,
            "LoD level 0: expected the last offset to be 5, the first dimension, found 4",
        ),
        (
            lambda: LoDTensor(bytes(5), [[0, 4]]),
            pyfeed.errors.ShapeError,
            "LoD level 0: expected the last offset to be 5, the first dimension, found 4",
        ),
        (
            lambda: LoDTensor(np.float32(1), [[0, 1]]),
            pyfeed.errors.ShapeError,
            "LoD: expected a tensor with a first dimension, found a scalar",
        ),
        (lambda: LoDTensor(data, [0, 5]), pyfeed.errors.ShapeError, "LoD level 0: expected one dimension, found 0"),
        (
            lambda: LoDTensor(data, [[0, 2.5, 5]]),
            pyfeed.errors.DTypeError,
            "LoD level 0: expected integers, found float64",
        ),
        (
            lambda: LoDTensor(data, [odd]),
            pyfeed.errors.DTypeError,
            "LoD level 0: expected an array of integers, found [[2.5], 2.5]",
        ),
        (
            lambda: LoDTensor(data, [np.array([0, 2**63 + 1, 5], np.uint64)]),
            pyfeed.errors.ShapeError,
            "LoD level 0: offset 1 decreases from 0 to -9223372036854775807",
        ),
        (
            lambda: LoDTensor.from_lengths(data, [[6, -1]]),
            pyfeed.errors.InvalidArgument,
            "lengths: level 0: expected lengths of at least 0, found -1",
        ),
        (
            lambda: LoDTensor.from_lengths(data, [[2, 2]]),
            pyfeed.errors.ShapeError,
            "LoD level 0: expected the last offset to be 5, the first dimension, found 4",
        ),
        (
            lambda: LoDTensor.from_lengths(data, [odd[0]]),
            pyfeed.errors.DTypeError,
            "lengths: LoD level 0: expected integers, found float64",
        ),
    ]
    for make, kind, message in cases:
        with raises(kind, message):
            make()
    with pytest.raises(pyfeed_worker.ShapeError, match="LoD level 0: offset 2 decreases from 3 to 2"):
        pyfeed_worker.LoDTensor(data, [[0, 3, 2, 5]])
    with pytest.raises(pyfeed_worker.DTypeError, match="LoD level 0: expected integers, found float64"):
        pyfeed_worker.LoDTensor(data, [[0.0, 5.0]])
    unknown = DLPackArray(np.zeros(3, np.uint8))  # its length is not known
    assert LoDTensor(unknown, [[0, 9]]).lod[0].tolist() == [0, 9]
    assert LoDTensor(data[:0], [[0, 0], [0]]).sequences()[0].shape == (0,)


def test_data_of_any_sort() -> None:
    _, queue = feed(1, [(-1,)], lod_levels=[1])
    for data in (bytes(range(5)), memoryview(bytes(range(5))), DLPackArray(np.arange(5, dtype=np.uint8))):
        queue.push((LoDTensor(data, [[0, 2, 5]]),))
        (found,) = queue.pop()
        same(found.data, np.arange(5, dtype=np.uint8))
        assert offsets(found) == [[0, 2, 5]]
    strided = np.arange(10, dtype=np.uint8)[::2]
    queue.push((LoDTensor(strided, [[0, 2, 5]]),))
    same(queue.pop()[0].data, np.ascontiguousarray(strided))


def test_what_comes_out_goes_in_again() -> None:
    _, queue = feed(1, [(-1,)], lod_levels=[2])
    given = LoDTensor(np.arange(5.0), [[0, 2], [0, 2, 5]])
    queue.push((given,))
    for copy in (True, False, False, True):
        queue.push(queue.pop(), copy=copy)
    (found,) = queue.pop()
    assert offsets(found) == offsets(given)
    same(found.data, given.data)


def test_slots_with_lod() -> None:
    _, queue = feed(1, [(-1,), (-1,)], dtypes=["float64", "int64"], lod_levels=[1, 0])
    with queue.reserve(shapes=[(5,), (2,)], lod=[[[0, 2, 5]], None]) as (text, label):
        assert isinstance(text, LoDTensor)
        assert text.data.flags.writeable
        assert not text.lod[0].flags.writeable
        text.data[:] = np.arange(5)
        label[:] = 7
    with pytest.raises(ValueError, match="read-only"):
        text.data[:] = 0
    found, _ = queue.pop()
    assert found.data.tolist() == [0, 1, 2, 3, 4]
    assert offsets(found) == [[0, 2, 5]]


def test_a_batch_merges() -> None:
    """The offsets {0,2,4,5,6}/{0,1,6,8,13,15,20} are pushed in two parts; the batch merges them again."""
    reader, queue = feed(2, [(-1, 1)], lod_levels=[2])
    whole = LoDTensor(np.arange(20.0).reshape(20, 1), [[0, 2, 4, 5, 6], [0, 1, 6, 8, 13, 15, 20]])
    queue.push((LoDTensor(whole.data[:13], [[0, 2, 4], [0, 1, 6, 8, 13]]),))
    queue.push((LoDTensor(whole.data[13:], [[0, 1, 2], [0, 2, 7]]),))
    (found,) = reader.batch(2).read()
    same(found.data, whole.data)
    assert offsets(found) == offsets(whole)


Lengths = list[list[int]]


@st.composite
def two_levels(draw: Any) -> Lengths:
    """Return the lengths of sequences of sequences."""
    outer = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    inner = draw(st.lists(st.integers(0, 3), min_size=sum(outer), max_size=sum(outer)))
    return [outer, inner]


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(parts=st.lists(two_levels().filter(lambda lengths: lengths[1]), min_size=1, max_size=5))
def test_merging_appends_the_lengths_of_every_level(parts: list[Lengths]) -> None:
    reader, queue = feed(len(parts), [(-1,)], lod_levels=[2])
    batch = reader.batch(len(parts))
    values = [np.arange(sum(lengths[-1]), dtype=float) + 100 * i for i, lengths in enumerate(parts)]
    for data, lengths in zip(values, parts, strict=True):
        queue.push((LoDTensor.from_lengths(data, lengths),))
    (found,) = batch.read()
    for level, lengths in enumerate(found.recursive_sequence_lengths()):
        assert lengths == list(itertools.chain(*(part[level] for part in parts)))
    same(found.data, np.concatenate(values))


def test_split_over_places_and_merge_are_inverses() -> None:
    data = np.arange(40).reshape(20, 2)
    levels = [[0, 2, 4, 5, 6], [0, 1, 6, 8, 13, 15, 20]]
    for lod in ([], levels[1:], levels):
        tensor = LoDTensor(data, lod)
        for places in (1, 2, 3, 4, 50):
            parts = tensor.split(places)
            sizes = [len(part) for part in parts]
            assert len(parts) == min(places, len(tensor))
            assert sum(sizes) == len(tensor)
            assert sizes == sorted(sizes, reverse=True)
            assert max(sizes) - min(sizes) <= 1
            assert all(np.shares_memory(part.data, data) for part in parts)
            merged = LoDTensor.merge(parts)
            assert [level.tolist() for level in merged.lod] == [list(level) for level in lod]
            same(merged.data, data)
    first, second = LoDTensor(data, levels).split(2)
    assert [level.tolist() for level in first.lod] == [[0, 2, 4], [0, 1, 6, 8, 13]]
    assert [level.tolist() for level in second.lod] == [[0, 1, 2], [0, 2, 7]]
    same(second.data, data[13:])


def test_tensors_that_cannot_be_merged() -> None:
    one = LoDTensor(np.zeros((2, 3)), [[0, 2]])
    for other, kind, message in [
        (LoDTensor(np.zeros((2, 3))), pyfeed.errors.ShapeError, "tensors[1]: expected 1 levels of detail, found 0"),
        (
            LoDTensor(np.zeros((2, 4)), [[0, 2]]),
            pyfeed.errors.ShapeError,
            "tensors[1]: expected a tensor of shape (-1, 3), found (2, 4)",
        ),
        (
            LoDTensor(np.zeros((2, 3), int), [[0, 2]]),
            pyfeed.errors.DTypeError,
            "tensors[1]: expected a tensor of float64, found dtype('int64')",
        ),
    ]:
        with raises(kind, message):
            LoDTensor.merge([one, other])
    with raises(pyfeed.errors.InvalidArgument, "tensors: expected at least one LoDTensor, found []"):
        LoDTensor.merge([])


def test_a_tensor_has_no_elements() -> None:
    tensor = LoDTensor(np.arange(3), [[0, 1, 3]])
    message = r"^a LoDTensor has no elements: use sequences\(\), a list of arrays, or data, an array$"
    with pytest.raises(TypeError, match=message):
        tensor[0]
    with pytest.raises(TypeError, match=message):
        list(tensor)  # type: ignore[call-overload]
    assert np.asarray(tensor).tolist() == [0, 1, 2]
