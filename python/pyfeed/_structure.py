"""Structures: tuples whose arrays lie in dicts, lists and tuples.

A structure has the form of a value, with the number of its slot in place of each array: ``{"x": 0, "boxes": [1, 2]}``.
The slots are in the order of the value, and the name of a slot is its path, such as ``"boxes.0"``. None stands for
plain tuples of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from . import _arguments, _slots
from ._arguments import Check, refuse
from .errors import InvalidArgument, SlotCountError

Structure = Any
# A shape, dtype or number of levels for each slot: a sequence, or dicts and lists of them in the form of the tuples.
Shapes = Sequence[Any] | Mapping[str, Any]
DTypes = Sequence[Any] | Mapping[str, Any]
LoDLevels = Sequence[Any] | Mapping[str, Any]


class Described(NamedTuple):
    """The slots that the arguments of a function describe: an entry for each slot."""

    shapes: list[tuple[int, ...]]
    dtypes: list[str | None] | None
    lod_levels: list[int] | None
    names: list[str] | None
    structure: Structure


class _Shape(tuple[int, ...]):
    """A shape in a tree of shapes, in which other tuples are part of the structure."""


def leaf(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape that is a leaf of a tree of shapes."""
    return _Shape(shape)


# ---- Checks of arguments ---------------------------------------------------------------------


def shapes(name: str, value: Any) -> Any:
    """Accept a shape for each slot, or dicts and lists of shapes."""
    if isinstance(value, Mapping):
        return _not_too_deep(name, lambda: _shape_tree(name, value))
    if not isinstance(value, (list, tuple)) or not any(_is_nested(one) for one in value):
        return _slots.shapes(name, value)
    return _not_too_deep(name, lambda: tuple(_shape_tree(f"{name}[{i}]", one) for i, one in enumerate(value)))


def _not_too_deep(name: str, function: Callable[[], Any]) -> Any:
    """Call a recursive function. Too deep a nesting becomes an `InvalidArgument`."""
    try:
        return function()
    except RecursionError:
        raise InvalidArgument(f"{name}: expected a few levels of dicts and lists, found too many") from None


def _is_nested(value: Any) -> bool:
    """Whether an element of `shapes` holds shapes, and is not a shape itself."""
    if isinstance(value, (list, tuple)):
        return any(isinstance(one, (list, tuple, Mapping)) for one in value)
    return isinstance(value, Mapping)


def _shape_tree(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        if not value:
            refuse(name, "at least one slot", value, InvalidArgument)
        return {_key(name, key): _shape_tree(f"{name}[{key!r}]", one) for key, one in value.items()}
    if _is_nested(value):
        return _kind(value)(_shape_tree(f"{name}[{i}]", one) for i, one in enumerate(value))
    return _Shape(_slots.shape(name, value))


def _key(name: str, key: Any) -> str:
    """Accept a key of a dict: text that the library can hold."""
    return _arguments.text(f"{name}: key", key)


def _kind(value: Any) -> type[list[Any]] | type[tuple[Any, ...]]:
    return list if isinstance(value, list) else tuple


def _tree(leaf: Check, expected: str) -> Check:
    """Return a check that accepts a sequence or a dict of values, which may contain others."""

    def of_part(name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: of_part(f"{name}[{key!r}]", one) for key, one in _arguments.mapping(name, value).items()}
        if isinstance(value, (list, tuple)):
            return [of_part(f"{name}[{i}]", one) for i, one in enumerate(value)]
        return leaf(name, value)

    def checked(name: str, value: Any) -> Any:
        return of_part(name, value if isinstance(value, Mapping) else _arguments.items(name, value, expected))

    return checked


def _dtypes(name: str, value: Any) -> Any:
    return _dtype_tree(name, value) if _has_dict(value) else _slots.dtypes(name, value)


def _has_dict(value: Any) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, (list, tuple)) and any(isinstance(one, (Mapping, list)) for one in value)


_dtype_tree = _tree(_slots.dtype, "dtypes")


def _lod_levels(name: str, value: Any) -> Any:
    return _lod_tree(name, value) if _has_dict(value) else _slots.lod_levels(name, value)


_lod_tree = _tree(_arguments.integer(0, most=2**31 - 1), "numbers of levels")

# The checks of the arguments that describe slots, for functions that accept structures.
CHECKS: dict[str, Check] = {
    "shapes": shapes,
    "dtypes": _arguments.optional(_dtypes),
    "lod_levels": _arguments.optional(_lod_levels),
    "names": _arguments.optional(_arguments.names),
}
# The same for functions that may be called without shapes.
OPTIONAL_CHECKS: dict[str, Check] = {**CHECKS, "shapes": _arguments.optional(shapes)}


# ---- Descriptions ----------------------------------------------------------------------------


def describe(shapes: Any, dtypes: Any, lod_levels: Any, names: Sequence[str] | None, *, as_dict: bool) -> Described:
    """Return the slots that checked arguments describe.

    Raises
    ------
    InvalidArgument
        Names are given beside shapes that have keys, or a name occurs twice.
    SlotCountError
        An argument does not have the entries of `shapes`.
    """
    if isinstance(shapes, list):  # one for each slot
        for what, given in (("dtypes", dtypes), ("lod_levels", lod_levels)):
            if isinstance(given, Mapping) or (given is not None and _has_dict(given)):
                refuse(what, "a sequence, as shapes are one", given, InvalidArgument)
        _slots.check_length("names", names, len(shapes))
        keys = _with_defaults(names or [""] * len(shapes))
        return Described(
            shapes, dtypes, lod_levels, list(names) if names else None, by_names(keys) if as_dict else None
        )
    if names is not None:
        refuse("names", "none beside shapes with keys, which are the names", names, InvalidArgument)
    flat = list(_leaves("", shapes))
    found = [name for name, _ in flat]
    _check_unique(found)
    return Described(
        [tuple(shape) for _, shape in flat],
        _flatten("dtypes", shapes, dtypes, None),
        _flatten("lod_levels", shapes, lod_levels, 0),
        found,
        _numbered(shapes, iter(range(len(flat)))),
    )


def _children(tree: Any) -> list[tuple[str, Any]] | None:
    """Return the parts of a tree and their keys; None for a leaf."""
    if isinstance(tree, Mapping):
        return list(tree.items())
    if isinstance(tree, (list, tuple)) and not isinstance(tree, _Shape):
        return [(str(i), one) for i, one in enumerate(tree)]
    return None


def _leaves(path: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of each leaf."""
    children = _children(tree)
    if children is None:
        yield path, tree
    for key, one in children or ():
        yield from _leaves(f"{path}.{key}" if path else key, one)


def _numbered(tree: Any, numbers: Iterator[int]) -> Structure:
    if isinstance(tree, Mapping):
        return {key: _numbered(one, numbers) for key, one in tree.items()}
    if _children(tree) is None:
        return next(numbers)
    return _kind(tree)(_numbered(one, numbers) for one in tree)


def _flatten(what: str, shapes: Any, given: Any, default: Any) -> list[Any] | None:
    """Return the leaves of a tree in the order of the slots. A key that is missing in a dict has the default."""
    if given is None:
        return None
    if not isinstance(given, Mapping) and not _has_dict(given):
        flat = list(given)
        _slots.check_length(what, flat, sum(1 for _ in _leaves("", shapes)))
        return flat
    out: list[Any] = []

    def add(path: str, tree: Any, value: Any) -> None:
        children = _children(tree)
        if children is None:
            if isinstance(value, (Mapping, list)):
                refuse(f"{what}{path}", "one value, as shapes have one shape", value, SlotCountError)
            out.append(value)
            return
        if value is default:
            values: Mapping[str, Any] = {}
        elif isinstance(tree, Mapping) and isinstance(value, Mapping):
            values = value
        elif not isinstance(tree, Mapping) and isinstance(value, list) and len(value) == len(children):
            values = {str(i): one for i, one in enumerate(value)}
        else:
            refuse(f"{what}{path}", f"the form of shapes{path}", value, SlotCountError)
        unknown = [key for key in values if key not in dict(children)]
        if unknown:
            refuse(f"{what}{path}", f"keys of shapes{path}", unknown[0], SlotCountError)
        for key, one in children:
            add(f"{path}[{key!r}]", one, values.get(key, default))

    add("", shapes, given)
    return out


def _check_unique(names: Sequence[str]) -> None:
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        if first.setdefault(name, i) != i:
            raise InvalidArgument(
                f"names: expected another name for each slot, found {name!r} for slots {first[name]} and {i}"
            )


def _with_defaults(names: Sequence[str]) -> list[str]:
    """Return the names, with ``"slot2"`` for slot 2 if it has none."""
    return [name or f"slot{i}" for i, name in enumerate(names)]


def by_names(names: Sequence[str]) -> dict[str, int]:
    """Return the structure of a dict with a key for each slot."""
    _check_unique(names)
    return {name: i for i, name in enumerate(names)}


def names_of(all_slots: Sequence[_slots.Slot]) -> tuple[str, ...]:
    """Return the names of slots. Slot 2 is ``"slot2"`` if it has none."""
    return tuple(_with_defaults([s.name for s in all_slots]))


def assemble(structure: Structure, arrays: Sequence[Any]) -> Any:
    """Return the arrays of a tuple in the places that a structure has for them, as structure.c does for readers."""
    if isinstance(structure, int):
        return arrays[structure]
    if isinstance(structure, dict):
        return {key: assemble(part, arrays) for key, part in structure.items()}
    return type(structure)(assemble(part, arrays) for part in structure)


def accepted(structure: Structure, names: Sequence[str]) -> Structure:
    """Return the structure in which tuples are accepted: that in which they are delivered, or a dict by names."""
    if structure is None and all(names) and len(set(names)) == len(names):
        return by_names(names)
    return structure


def of_value(value: Any) -> tuple[Structure, tuple[str, ...]]:
    """Return the structure of a dict of values, and the names of its slots.

    Raises
    ------
    ArgumentTypeError
        A key is no str.
    InvalidArgument
        The dict is empty, or two values have the same path.
    """
    numbers = iter(range(2**31))
    names: list[str] = []

    def of(path: str, part: Any) -> Structure:
        if isinstance(part, Mapping):
            if not part:
                refuse(f"arrays{path and f': {path}'}", "at least one slot", part, InvalidArgument)
            return {_key("arrays", key): of(f"{path}.{key}" if path else key, one) for key, one in part.items()}
        if isinstance(part, (list, tuple)):
            return _kind(part)(of(f"{path}.{i}" if path else str(i), one) for i, one in enumerate(part))
        names.append(path)
        return next(numbers)

    structure = _not_too_deep("arrays", lambda: of("", value))
    _check_unique(names)
    return structure, tuple(names)


def merge(structures: Sequence[Structure], names: Sequence[Sequence[str]]) -> Structure:
    """Return the structure of tuples that are joined, given the names of their slots. Dicts become one dict.

    Raises
    ------
    InvalidArgument
        Some of the structures are dicts and others are not, or a key occurs twice.
    """
    sizes = [len(one) for one in names]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    if all(structure is None for structure in structures):
        return None
    if all(isinstance(structure, dict) for structure in structures):
        merged: dict[str, Structure] = {}
        for structure, start in zip(structures, starts, strict=True):
            for key, part in structure.items():
                if key in merged:
                    raise InvalidArgument(f"zip: expected readers with different keys, found {key!r} twice")
                merged[key] = _shifted(part, start)
        _check_unique([name for one in names for name in one])
        return merged
    if any(isinstance(structure, dict) for structure in structures):
        raise InvalidArgument("zip: expected readers that all deliver dicts, or all tuples, found both")
    return tuple(
        part
        for structure, start, size in zip(structures, starts, sizes, strict=True)
        for part in _shifted(tuple(range(size)) if structure is None else structure, start)
    )


def _shifted(structure: Structure, by: int) -> Structure:
    if isinstance(structure, int):
        return structure + by
    if isinstance(structure, dict):
        return {key: _shifted(part, by) for key, part in structure.items()}
    return type(structure)(_shifted(part, by) for part in structure)
