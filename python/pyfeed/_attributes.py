"""What operators and formats are told, as JSON."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _native
from ._arguments import shown
from ._errors import ArgumentTypeError, InvalidArgument


def encode_of_operator(attributes: Mapping[str, Any]) -> str:
    """The same for an operator of a program, whose numbers may be infinite or none."""
    return encode({name: _with_floats(value) for name, value in attributes.items()})


def decode_of_operator(text: str | bytes) -> Any:
    """What `encode_of_operator` gave."""
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
    """A JSON object; NumPy's numbers and dtypes, and paths, are said as JSON can say them."""
    try:
        if (text := _simple(attributes)) is not None:
            return text
    except RecursionError:
        pass  # of which json says why
    import json

    try:
        return json.dumps(attributes, default=_plain, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        for name, value in attributes.items():
            try:
                json.dumps(value, default=_plain, allow_nan=False)
            except InvalidArgument as error:
                raise type(error)(f"{name}: {error}") from None
            except (TypeError, ValueError, RecursionError) as error:
                raise InvalidArgument(f"{name}: expected what JSON can say, found {shown(value)}: {error}") from None
        raise


def _simple(value: Any) -> str | None:
    """JSON of what most readers are told; None of the rest. `json` takes as long to import as all of this package."""
    kind = type(value)
    if kind is str:
        return f'"{value}"' if value.isascii() and value.isprintable() and not {'"', "\\"} & set(value) else None
    if value is None or kind is bool:
        return {None: "null", True: "true", False: "false"}[value]
    if kind is int:
        return str(value)
    if kind is dict:
        members = [(_simple(name), _simple(each)) for name, each in value.items() if type(name) is str]
        said = [f"{name}: {each}" for name, each in members if name and each]
        return f"{{{', '.join(said)}}}" if len(said) == len(value) else None
    if kind is list or kind is tuple:
        elements = [each for each in map(_simple, value) if each]
        return f"[{', '.join(elements)}]" if len(elements) == len(value) else None
    return None


def decode(text: str | bytes) -> Any:
    """What the library says of itself."""
    import json

    return json.loads(text)


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (bytes, bytearray)):
        raise ArgumentTypeError(f"expected a number, text, list or dict, found {shown(value)}")
    if isinstance(value, (np.dtype, type)):
        return _native._dtype_name(value)
    if isinstance(value, (set, frozenset)) or not hasattr(value, "__iter__"):
        raise ArgumentTypeError(f"expected a number, text, list or dict, found {shown(value)}")
    return list(value)
