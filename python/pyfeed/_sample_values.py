"""The values of the samples of a dataset, as arrays."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ._lod import LoDTensor
from .errors import DTypeError, ShapeError, UnsupportedError

Array = np.ndarray[Any, Any]
_DTYPE = operator.attrgetter("dtype")

NUMBERS = (bool, int, float, complex, np.number, np.bool_)
_CONVERTED = (*NUMBERS, list, tuple)  # what may be converted to another dtype
# The kinds of dtypes. A number may be stored as one of the same or of a higher order.
_ORDER = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


class SampleSlot(NamedTuple):
    """A slot of the samples of a dataset: what `from_dataset` expects of the values at a place of each sample."""

    name: str
    dtype: str
    shape: tuple[int, ...]  # -1 stands for any size
    is_sequence: bool = False  # the value is one sequence of a LoDTensor: its first dimension is of any size

    @property
    def label(self) -> str:
        return self.name or "value"


def name_of(index: int | None) -> str:
    """Return what an error calls a sample; None: the result of a collate function."""
    return "the result of collate_fn" if index is None else f"sample {index}"


def array_of(value: Any, label: str, index: int | None) -> Array:
    """Return a value of sample number `index` as an array of the host. `label` names the value in errors.

    An index of None stands for the result of a collate function.

    Raises
    ------
    DTypeError
        It is neither an array, a number, text, nor a list of numbers.
    UnsupportedError
        It is a tensor that is not in memory of the host.
    """
    if type(value) is np.ndarray:
        array = value
    elif _is_tensor(value):
        array = _tensor_array(value, label, index)
    elif isinstance(value, str):
        array = np.frombuffer(value.encode("utf-8", "surrogateescape"), np.uint8)
    elif isinstance(value, (bytes, bytearray)):
        array = np.frombuffer(value, np.uint8)
    elif isinstance(value, np.ma.MaskedArray):
        raise DTypeError(f"{name_of(index)}: {label}: expected an array without a mask, found a masked one")
    elif isinstance(value, _CONVERTED) or hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        try:
            array = np.asarray(value)
        except ValueError:  # lists of different lengths
            array = np.empty(1, object)
        if array.dtype == np.float64 and isinstance(value, (list, tuple)) and _has_integers_only(value):
            array = np.asarray(value, object)  # one of them is larger than int64
    else:
        array = np.empty(1, object)
    if array.dtype.kind not in _ORDER and not _is_bfloat16(array.dtype):
        if array.dtype != object:
            found = f"dtype {array.dtype}"
        else:
            found = repr(value) if isinstance(value, int) else str(type(value))
        raise DTypeError(
            f"{name_of(index)}: {label}: expected an array, a number, text, bytes or a list of numbers, found {found}"
        )
    return array


def _has_integers_only(values: Any) -> bool:
    return bool(values) and all(
        _has_integers_only(x) if isinstance(x, (list, tuple)) else isinstance(x, (int, np.integer)) for x in values
    )


def _is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of PyTorch, which is not imported for this."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def _tensor_array(tensor: Any, label: str, index: int | None) -> Array:
    array: Array
    try:
        array = tensor.numpy()
        return array
    except (TypeError, RuntimeError):  # a tensor with gradients, on a device, sparse, conjugated, or of bfloat16
        pass
    if tensor.device.type != "cpu":
        raise UnsupportedError(
            f"{name_of(index)}: {label}: expected a tensor in memory of the host, found one on {tensor.device}"
        )
    torch, tensor = sys.modules["torch"], tensor.detach()
    try:
        if tensor.dtype is torch.bfloat16:
            array = tensor.view(torch.int16).numpy()
            return array.view("V2")
        array = tensor.resolve_conj().resolve_neg().numpy()
        return array
    except (TypeError, RuntimeError) as error:
        raise DTypeError(
            f"{name_of(index)}: {label}: expected a dense tensor that NumPy can view, found {error}"
        ) from None


def _is_bfloat16(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize == 2 and ((dtype.str == "|V2" and dtype.names is None) or dtype.name == "bfloat16")


def dtype_name(array: Array) -> str:
    """Return the name of the dtype of an array of `array_of`."""
    return "bfloat16" if _is_bfloat16(array.dtype) else array.dtype.name


@functools.cache
def dtype_of(name: str) -> np.dtype[Any]:
    """Return the dtype of a name. That of bfloat16 is V2: NumPy has none."""
    return np.dtype("V2" if name == "bfloat16" else name)


def convert(value: Any, slot: SampleSlot, index: int | None) -> Array:
    """Return a value of sample number `index` as an array with the dtype of a slot.

    Only numbers and lists of numbers are converted to another dtype, of the same or of a higher kind.

    Raises
    ------
    DTypeError
        It has another dtype, or is out of its range.
    """
    array = array_of(value, slot.label, index)
    expected = dtype_of(slot.dtype)
    if array.dtype == expected:
        return array
    if not array.dtype.isnative and array.dtype.newbyteorder() == expected:
        return array.astype(expected)
    if slot.dtype == "bfloat16" and _is_bfloat16(array.dtype):
        return array.view(expected)
    if isinstance(value, _CONVERTED) and slot.dtype != "bfloat16":
        converted = _convert_numbers(array, expected)
        if converted is not None:
            return converted
    number = f" {value!r}" if isinstance(value, NUMBERS) else ""
    raise DTypeError(f"{name_of(index)}: {slot.label}: expected {slot.dtype}, found {dtype_name(array)}{number}")


def _convert_numbers(array: Array, dtype: np.dtype[Any]) -> Array | None:
    """Convert numbers to a dtype of the same or a later kind; None: it cannot represent them."""
    if array.size == 0:  # a list without numbers, which NumPy takes for one of float64
        return array.astype(dtype)
    if _ORDER[array.dtype.kind] > _ORDER[dtype.kind]:
        return None
    if dtype.kind in "iu" and array.dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            return None
    return array.astype(dtype)


def check_value(value: Any, slot: SampleSlot, index: int | None) -> Array:
    """Return `convert` of a value, whose shape is that of the slot.

    Raises
    ------
    DTypeError, UnsupportedError
        As for `convert`.
    ShapeError
        It has another shape.
    """
    array = convert(value, slot, index)
    found, expected = array.shape, slot.shape
    if found == expected:
        return array
    if len(found) == len(expected) and all(n in (-1, m) for m, n in zip(found, expected, strict=True)):
        return array
    alike = found[1:] == expected[1:] and len(found) == len(expected)
    hint = ": if samples differ in length, give shapes with a first dimension of -1" if alike else ""
    raise ShapeError(f"{name_of(index)}: {slot.label}: expected shape {expected}, found {found}{hint}")


def zeros_of(slot: SampleSlot) -> Any:
    """Return the value of a sample of zeros. A dimension of any size is 0."""
    shape = tuple(max(n, 0) for n in slot.shape)
    array = np.zeros((0, *shape[1:]) if slot.is_sequence else shape, dtype_of(slot.dtype))
    return LoDTensor(array, [np.array([0, 0])]) if slot.is_sequence else array


# ---- Batches ---------------------------------------------------------------------------------


def stack(to: Any, values: Sequence[Any]) -> bool:
    """Write the values of one slot into a batch at once. Return False if they have to be written one by one.

    They have to if they are not alike, or do not fit: `convert` then finds the one that does not.
    """
    if type(to) is not np.ndarray or len(to) != len(values):
        return False
    shape = to.shape[1:]
    if _is_tensor(values[0]):
        return _stack_tensors(to, values)
    kinds = set(map(type, values))
    if kinds == {np.ndarray}:
        if not shape or any(x.shape != shape or x.dtype != to.dtype for x in values):
            return False
        np.concatenate(values, out=to.reshape(len(to) * shape[0], *shape[1:]), casting="no")
        return True
    if shape or not all(issubclass(kind, NUMBERS) for kind in kinds) or to.dtype.kind == "V":
        return False
    try:
        numbers = np.array(values)
    except OverflowError:
        return False
    converted = _convert_numbers(numbers, to.dtype) if numbers.dtype.kind in _ORDER else None
    if converted is None:
        return False
    to[...] = converted
    return True


def _stack_tensors(to: Array, values: Sequence[Any]) -> bool:
    torch = sys.modules["torch"]
    first = values[0]
    if type(first) is not torch.Tensor or not first.numel() or _dtype_of_tensor(first) != to.dtype.name:
        return False
    if tuple(first.shape) != to.shape[1:]:
        return False
    try:
        if list(map(_DTYPE, values)).count(first.dtype) != len(values):
            return False
        torch.stack(values, out=torch.from_numpy(to))
    except (AttributeError, TypeError, RuntimeError):  # not only tensors; or other shapes, layouts, with gradients
        return False
    return True


def _dtype_of_tensor(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")
