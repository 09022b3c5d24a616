"""Conversion of operators' attributes and formats' options to and from JSON."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _native
from ._arguments import format_value
from .errors import ArgumentTypeError, InvalidArgument


def encode_operator_attributes(attributes: Mapping[str, Any]) -> str:
    """Encode the attributes of an operator in a program. Unlike for `encode`, numbers may be infinite or NaN."""
    return encode({name: _with_floats(value) for name, value in attributes.items()})


def decode_operator_attributes(text: str | bytes) -> Any:
    """Decode a result of `encode_operator_attributes`."""
    import json

    return json.loads(text, object_hook=lambda found: float(found["$float"]) if found.keys() == {"$float"} else found)


def _with_floats(value: Any) -> Any:
    if isinstance(value, (float, np.floating)) and not np.isfinite(value):
        return {"$float": str(float(value))}
    if isinstance(value, Mapping):
        return {name: _with_floats(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_floats(each) for each in value]
    return value


def encode(attributes: Mapping[str, Any]) -> str:
    """Encode a JSON object. NumPy's numbers, arrays and dtypes, and paths, become JSON's numbers, lists and strings."""
    try:
        if (text := _encode_simple(attributes)) is not None:
            return text
    except RecursionError:
        pass  # json.dumps raises an error with the reason
    import json

    try:
        return json.dumps(attributes, default=_to_jsonable, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        for name, value in attributes.items():
            try:
                json.dumps(value, default=_to_jsonable, allow_nan=False)
            except InvalidArgument as error:
                raise type(error)(f"{name}: {error}") from None
            except (TypeError, ValueError, RecursionError) as error:
                raise InvalidArgument(
                    f"{name}: expected a value that JSON can represent, found {format_value(value)}: {error}"
                ) from None
        raise


def _encode_simple(value: Any) -> str | None:
    """Encode simple values, which suffices for most readers; return None for others. Importing `json` takes long."""
    kind = type(value)
    if kind is str:
        return f'"{value}"' if value.isascii() and value.isprintable() and not {'"', "\\"} & set(value) else None
    if value is None or kind is bool:
        return {None: "null", True: "true", False: "false"}[value]
    if kind is int:
        return str(value)
    if kind is dict:
        members = [(_encode_simple(name), _encode_simple(each)) for name, each in value.items() if type(name) is str]
        said = [f"{name}: {each}" for name, each in members if name and each]
        return f"{{{', '.join(said)}}}" if len(said) == len(value) else None
    if kind is list or kind is tuple:
        elements = [each for each in map(_encode_simple, value) if each]
        return f"[{', '.join(elements)}]" if len(elements) == len(value) else None
    return None


def decode(text: str | bytes) -> Any:
    """Decode JSON that the library returned."""
    import json

    return json.loads(text)


def _to_jsonable(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (bytes, bytearray)):
        raise ArgumentTypeError(f"expected a number, text, list or dict, found {format_value(value)}")
    if isinstance(value, (np.dtype, type)):
        return _native._dtype_name(value)
    if isinstance(value, (set, frozenset)) or not hasattr(value, "__iter__"):
        raise ArgumentTypeError(f"expected a number, text, list or dict, found {format_value(value)}")
    return list(value)
