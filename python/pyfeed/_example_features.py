"""The features of a ``tf.train.Example`` or ``SequenceExample``, as ``open_tfrecord(features=...)`` takes them.

``readers/tfrecord/wire.go`` lists the messages. As there, unknown fields are skipped, and of several features with the
same name the last one counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

_VARINT, _BYTES, _FIXED32 = 0, 2, 5  # wire types of protobuf
_FIXED_SIZES = {1: 8, _FIXED32: 4}

_FEATURE_LISTS = 2  # the field of a SequenceExample

# For each kind of list in a Feature: its dtype, and the wire type of a number that is not packed.
_LISTS = {1: ("bytes", -1), 2: ("float32", _FIXED32), 3: ("int64", _VARINT)}

_CONTINUED = bytes(range(0x80, 0x100))  # the bytes of a varint before its last one
_TOO_LONG = re.compile(rb"[\x80-\xff]{9}[^\x00\x01]")  # a varint of more than 64 bits


def describe_example(record: bytes | memoryview) -> dict[str, Any] | None:
    """Return the features of an Example by name, sorted, each as a dtype or a `TFRecordFeature`.

    A feature without a list and a feature with an empty name are left out, because `open_tfrecord` cannot read them.
    For a `SequenceExample`, the features of the context come before the feature lists. A feature list that has the
    name of a feature of the context is left out.

    Returns
    -------
    dict or None
        None if the record is neither an Example nor a SequenceExample.
    """
    try:
        found = {name: _describe_feature(feature) for name, feature in _features_of(record)}
        lists = {name: _describe_steps(steps) for name, steps in _features_of(record, _FEATURE_LISTS)}
    except ValueError:
        return None
    described = {name: found[name] for name in sorted(found) if name and found[name] is not None}
    steps = {name: lists[name] for name in sorted(lists) if name and name not in described and lists[name] is not None}
    if _is_sequence(record) and not steps:
        part = {"part": "context"}
        described = {name: {**_as_dict(about), **part} for name, about in described.items()}
    return {**described, **steps}


def array_sizes(record: bytes | memoryview) -> dict[str, int]:
    """Return the sizes of the features of an Example that may be the memory of an array.

    They are one byte string, which is neither empty nor text. If the record is not an Example, the result is empty.
    """
    sizes: dict[str, int] = {}
    try:
        for name, feature in _features_of(record):
            sizes.pop(name, None)
            number, message = _last_message(feature, _LISTS)
            values = [value for _, value in _messages(message, (1,))] if number == 1 else []
            if name and len(values) == 1 and values[0] and not _is_text(values[0]):
                sizes[name] = len(values[0])
    except ValueError:
        return {}
    return sizes


def _is_text(value: memoryview) -> bool:
    try:
        return "".join(str(value, "utf-8").split()).isprintable()
    except UnicodeDecodeError:
        return False


def _features_of(record: bytes | memoryview, part: int = 1) -> Iterator[tuple[str, memoryview]]:
    """Yield the name and the Feature or FeatureList of each entry. Raise `ValueError` if the record is no message."""
    for _, message in _messages(memoryview(record), (part,)):
        for _, entry in _messages(message, (1,)):
            names = _messages(entry, (1,))
            yield str(names[-1][1], "utf-8") if names else "", _last_message(entry, (2,))[1]


def _is_sequence(record: bytes | memoryview) -> bool:
    return bool(_messages(memoryview(record), (_FEATURE_LISTS,)))


def _as_dict(about: Any) -> dict[str, Any]:
    return about if isinstance(about, dict) else {"dtype": about}


def _describe_steps(feature_list: memoryview) -> dict[str, Any] | None:
    """Return the description of a FeatureList, or None if no step has a list."""
    steps = [_describe_feature(step) for _, step in _messages(feature_list, (1,))]
    kinds = [_as_dict(about) for about in steps if about is not None]
    if not kinds or any(about["dtype"] != kinds[0]["dtype"] for about in kinds):
        return None
    alike = len(kinds) == len(steps) and all(about == kinds[0] for about in kinds)
    return {**(kinds[0] if alike else {"dtype": kinds[0]["dtype"], "kind": "variable"}), "part": "feature_lists"}


def _describe_feature(feature: memoryview) -> Any:
    """Return the description of a Feature, or None if it has no list."""
    number, values = _last_message(feature, _LISTS)
    if number not in _LISTS:
        return None
    dtype, unpacked = _LISTS[number]
    count = 0
    for number, kind, value in _fields(values):
        if number == 1 and kind == _BYTES:
            count += 1 if dtype == "bytes" else _count_packed(dtype, value)
        elif number == 1 and kind == unpacked:
            count += 1
    if count == 0:
        return {"dtype": dtype, "kind": "variable"}
    return dtype if count == 1 else {"dtype": dtype, "shape": [count]}


def _messages(data: memoryview, numbers: Collection[int]) -> list[tuple[int, memoryview]]:
    """Return the fields with these numbers whose values have a length."""
    return [(number, value) for number, kind, value in _fields(data) if kind == _BYTES and number in numbers]


def _last_message(data: memoryview, numbers: Collection[int]) -> tuple[int, memoryview]:
    """Return the last of the fields with these numbers, whose parts are joined; number 0 if there is none."""
    last, parts = 0, [memoryview(b"")]
    for number, value in _messages(data, numbers):
        if number != last:
            last, parts = number, []
        parts.append(value)
    return last, parts[0] if len(parts) == 1 else memoryview(b"".join(parts))


def _count_packed(dtype: str, data: memoryview) -> int:
    if dtype == "float32":
        if len(data) % 4:
            raise ValueError
        return len(data) // 4
    if (data and data[-1] >= 0x80) or _TOO_LONG.search(data):
        raise ValueError
    return len(bytes(data).translate(None, _CONTINUED))


def _fields(data: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Yield the number, wire type and value of each field. Raise `ValueError` for a group, and for no message."""
    at = 0
    while at < len(data):
        tag, at = _parse_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _BYTES:
            size, at = _parse_varint(data, at)
        elif kind == _VARINT:
            size = _parse_varint(data, at)[1] - at
        elif kind in _FIXED_SIZES:
            size = _FIXED_SIZES[kind]
        else:
            raise ValueError
        if not 0 < number < 2**29 or size > len(data) - at:
            raise ValueError
        yield number, kind, data[at : at + size]
        at += size


def _parse_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a varint and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            if value >= 2**64:
                break
            return value, at
    raise ValueError
