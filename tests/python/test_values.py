"""Numbers, text and bytes of Python as values of slots."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyfeed
from pyfeed import from_generator, open_files, open_writer, py_array_reader, random_data

from .support import raises

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SHAPES = [(), (), (-1,)]
REST: dict[str, Any] = {"dtypes": ["int16", "float32", "uint8"], "lod_levels": [0, 0, 1]}
FLOATS = ["float16", "bfloat16", "float32", "float64"]


def pushed(value: Any, dtype: Any, *, copy: bool = True) -> Any:
    """Return the array that a queue with one scalar slot makes of a value."""
    _, queue = py_array_reader(1, [()], dtypes=[dtype])
    queue.push((value,), copy=copy)
    return queue.pop()[0]


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize(
    ("value", "dtype"), [(True, "bool"), (-3, "int64"), (2.5, "float64"), (1 + 2j, "complex128"), (False, "bool")]
)
def test_the_first_value_decides_the_dtype(value: Any, dtype: str, copy: bool) -> None:
    found = pushed(value, None, copy=copy)
    assert found.dtype == dtype
    assert found.item() == value


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_take_the_dtype_of_the_slot(dtype: str) -> None:
    info = np.iinfo(dtype)
    for value in (0, 1, True, info.min, info.max):
        found = pushed(value, dtype)
        assert found.dtype == dtype
        assert found.item() == value
    for value in (info.min - 1, info.max + 1, 10**30, -(10**30)):
        with raises(
            pyfeed.errors.InvalidArgument, f"slot 0: expected an integer that {dtype} can hold, found {value}", slot=0
        ):
            pushed(value, dtype)
    with raises(pyfeed.errors.DTypeError, f"slot 0: dtype: expected {dtype}, found the float 1.0", slot=0):
        pushed(1.0, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_and_integers_take_a_float_dtype(dtype: str) -> None:
    of = getattr(ml_dtypes, dtype, None) or np.dtype(dtype).type
    for value in (0, -1, True, 0.1, 1 / 3, 65504.0, -0.0, 1e-5, math.inf, -math.inf):
        found = pushed(value, dtype)
        assert found.dtype == np.dtype(of)
        assert found.tobytes() == np.array(value, of).tobytes()
    assert math.isnan(float(pushed(math.nan, dtype)))
    with raises(pyfeed.errors.DTypeError, f"slot 0: dtype: expected {dtype}, found the complex number 1j", slot=0):
        pushed(1j, dtype)
    with pytest.raises(pyfeed.errors.InvalidArgument, match=r"^slot 0: expected a number that"):
        pushed(10**400, dtype)


def test_bfloat16_is_rounded_to_even() -> None:
    for i in range(0, 1 << 16, 37):
        value = float(np.array([(0x3F80 << 16) + i], "uint32").view("float32")[0])
        assert pushed(value, "bfloat16").tobytes() == np.array(value, ml_dtypes.bfloat16).tobytes()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_all_numbers_take_a_complex_dtype(dtype: str) -> None:
    for value in (True, 3, 2.5, 1 - 2j):
        assert pushed(value, dtype).item() == value


def test_a_number_that_python_does_not_format() -> None:
    for dtype in ("int8", "float32"):
        with pytest.raises(pyfeed.errors.InvalidArgument, match="can hold, found <class 'int'>"):
            pushed(10**5000, dtype)


def test_numbers_are_no_bools() -> None:
    with raises(pyfeed.errors.DTypeError, "slot 0: dtype: expected bool, found the int 1", slot=0):
        pushed(1, "bool")


def test_scalars_of_numpy_keep_their_dtype() -> None:
    with pytest.raises(pyfeed.errors.DTypeError, match="expected float32, found float64"):
        pushed(np.float64(1), "float32")
    assert pushed(np.float16(1), None).dtype == np.float16


def test_subclasses_of_int_are_integers() -> None:
    class Color(enum.IntEnum):
        RED = 3

    assert pushed(Color.RED, "int8").item() == 3


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("value", ["", "text é", b"", b"raw\0", bytearray(b"abc")])
def test_text_is_one_sequence_of_a_slot_with_a_level(value: Any, copy: bool) -> None:
    raw = value.encode() if isinstance(value, str) else bytes(value)
    for dtype in ("uint8", None):
        _, queue = py_array_reader(1, [(-1,)], dtypes=[dtype], lod_levels=[1])
        queue.push((value,), copy=copy)
        assert queue.pop()[0].bytes_list() == [raw]
        _, queue = py_array_reader(1, [(-1,)], dtypes=[dtype])
        queue.push((value,), copy=copy)
        assert queue.pop()[0].tobytes() == raw


def test_text_that_does_not_fit() -> None:
    with raises(pyfeed.errors.DTypeError, "slot 0: dtype: expected int64, found <class 'str'>", slot=0):
        pushed("3", "int64")
    with pytest.raises(pyfeed.errors.InvalidArgument, match=r"^slot 0: expected text that UTF-8 can encode"):
        pushed("\ud800", "uint8")
    with pytest.raises(pyfeed.errors.ShapeError):
        pushed("text", "uint8")


def test_many_pushes_of_numbers_leave_nothing() -> None:
    reader, queue = py_array_reader(4, [(), (), (-1,)], dtypes=["float32", "int8", "uint8"], lod_levels=[0, 0, 1])
    for i in range(1000):
        queue.push((i, i % 100, "x" * (i % 50)), copy=i % 2 == 0)
        x, y, z = reader.read()
        assert (x, y, z.bytes_list()) == (i, i % 100, [b"x" * (i % 50)])
    del x, y, z


@pytest.mark.parametrize("make", [lambda f: random_data([()], count=3).map(lambda x: f(), shapes=SHAPES, **REST)])
def test_functions_of_map_return_numbers_and_text(make: Callable[[Any], Any]) -> None:
    reader = make(lambda: (1, 2.5, "text"))
    assert [(x.item(), y.item(), z.bytes_list()) for x, y, z in reader] == [(1, 2.5, [b"text"])] * 3


def test_generators_yield_numbers_and_text() -> None:
    reader = from_generator(lambda: iter([(1, 2, "text")]), SHAPES, **REST)
    ((x, y, z),) = reader
    assert (x.dtype, y.dtype, z.bytes_list()) == (np.int16, np.float32, [b"text"])


def test_writers_take_numbers_and_text(tmp_path: Path) -> None:
    with open_writer(tmp_path / "a.recordio") as writer:
        writer.write((1.5, True, "text", 2))
        writer.write((2, False, b"more", 3))  # the first tuple has decided: float64
        with raises(pyfeed.errors.DTypeError, "slot 3: dtype: expected int64, found the float 2.5", slot=3):
            writer.write((2, False, b"more", 2.5))
    found = [(x, y, z.bytes_list(), n) for x, y, z, n in open_files(tmp_path / "a.recordio")]
    assert found == [(1.5, True, [b"text"], 2), (2.0, False, [b"more"], 3)]
    with open_writer(tmp_path / "b.npy", shapes=[()], dtypes=["float32"]) as writer:
        writer.write((3,))
    assert np.load(tmp_path / "b.npy").dtype == np.float32


def test_a_variable_takes_a_number() -> None:
    scope = pyfeed.Scope()
    scope["rate"] = 0.5
    assert scope["rate"].dtype == np.float64
    assert scope["rate"].item() == 0.5
