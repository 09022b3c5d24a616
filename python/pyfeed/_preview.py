"""The first tuples of a reader, read by a second reader, and a table of them."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from . import _reader, _structure
from ._file_names import decode_file_name
from ._lod import LoDTensor
from ._queue import PyArrayFeedQueue
from ._scope import Scope
from .errors import UnsupportedError

if TYPE_CHECKING:
    import numpy.typing as npt

    from ._reader import Reader
    from ._recipe import Recipe
    from ._slots import Slot

MOST_ROWS = 100  # tuples in a table
_FIRST_VALUES = 3  # of an array of more values than _FEW_VALUES
_FEW_VALUES = 6
_CELL_WIDTH = 36
_TABLE_WIDTH = 110


class Preview:
    """The first tuples of a reader, as `Reader.preview` returns them. Printed, it is a table.

    Attributes
    ----------
    tuples : list of tuple or dict
        The tuples, as the reader delivers them. They stay valid.
    slots : list of Slot
        The slots of the tuples: a column of the table for each.
    """

    __slots__ = ("_rows", "slots", "tuples")

    def __init__(self, slots: list[Slot], rows: list[tuple[Any, ...]], structure: _structure.Structure = None) -> None:
        self.slots, self._rows = slots, rows
        self.tuples: list[Any] = rows if structure is None else [_structure.assemble(structure, row) for row in rows]

    def __repr__(self) -> str:
        first = self._rows[:MOST_ROWS]
        label = ["", "", *map(str, range(len(first)))]
        columns = [
            [cut(column_name(i, slot)), cut(describe(slot)), *(cut(describe_value(row[i], slot)) for row in first)]
            for i, slot in enumerate(self.slots)
        ]
        lines = [describe_count(len(self.tuples)), *_table(label, columns)]
        if len(self.tuples) > len(first):
            lines.append(f"… {len(self.tuples) - len(first):,} more, in .tuples")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the table for notebooks, with pictures."""
        from ._html import preview_html

        return preview_html(self)


# ---- The second reader -----------------------------------------------------------------------


def read_preview(reader: Reader, count: int) -> Preview:
    """Make a chain like that of a reader, and read its first tuples."""
    reader._check_open()
    recipe = reader._recipe
    if recipe is None:
        _refuse(reader)
    made: dict[int, Reader] = {}
    try:
        second = _make(recipe, Scope(), made)
        second._set_structure(None)
        rows = list(itertools.islice(second.current_pass(), count))
        return Preview(second.slots, rows, reader._structure)
    finally:
        for each in reversed(made.values()):
            each.close()


def _make(recipe: Recipe, scope: Scope, made: dict[int, Reader]) -> Reader:
    """Make the readers of a recipe in a scope, each only once: the inputs of a zip may read from one reader."""
    if id(recipe) in made:
        return made[id(recipe)]
    below = [_make(each, scope, made) for each in recipe.inputs]
    if recipe.operator == "create_double_buffer_reader":  # it delivers the same tuples
        return below[0]
    name = f"preview_{len(made)}"
    if recipe.operator == "from_generator":
        reader = _reader.from_generator(recipe.function, **recipe.attributes, capacity=1, name=name, scope=scope)
    else:
        if "filenames" in recipe.attributes:
            _check_regular(recipe.attributes)
        # No thread is ahead of the preview by more than it must be.
        fewest = {key: 1 for key in ("num_threads", "capacity") if key in recipe.attributes}
        scope._create(recipe.operator, name, *(each.name for each in below), **{**recipe.attributes, **fewest})
        is_map = recipe.function is not None
        reader = _reader.Reader._wrap_owned(scope, name, tuple(below), direct=is_map, structure=recipe.structure)
        if is_map:
            work = reader._upstream = recipe.function(below[0], failures=2)
            work.start(reader, 1)
    made[id(recipe)] = reader
    return reader


def _refuse(reader: Reader) -> NoReturn:
    """Raise the error for a chain with a reader that cannot be made again."""
    source: Reader = reader
    while below := [each for each in source._readers_below() if each._recipe is None]:
        source = below[0]
    reader._check_open()  # another thread may have closed it meanwhile
    if isinstance(source._upstream, PyArrayFeedQueue):
        found = f"found the reader {source.name!r} of a queue, whose tuples can be read only once"
    else:
        found = f"found the reader {source.name!r}, which a program or C++ has made"
    raise UnsupportedError(f"preview: expected a reader of files, random data or from_generator, {found}")


def _check_regular(attributes: Any) -> None:
    """Refuse named pipes: what is read from them is gone."""
    from ._open import list_files

    for name in list_files(list(map(decode_file_name, attributes["filenames"])), attributes["format"] or None):
        path = name.partition(":")[2]
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UnsupportedError(f"preview: expected regular files, found {path!r}, which can be read only once")


# ---- Text ------------------------------------------------------------------------------------


def visible(text: str) -> str:
    """Escape the characters of a text that cannot be seen, such as controls and lone surrogates."""
    return text if text.isprintable() else "".join(map(_visible_character, text))


def _visible_character(c: str) -> str:
    return c if c.isprintable() else c.encode("unicode_escape").decode()


def cut(text: str, most: int = _CELL_WIDTH) -> str:
    """Shorten a text."""
    return text if len(text) <= most else text[: most - 1] + "…"


def describe_count(count: int) -> str:
    """Return the first line of a table."""
    return f"Preview of {count:,} tuple{'' if count == 1 else 's'}"


def column_name(i: int, slot: Slot) -> str:
    """Return the name of a slot, or its number."""
    return visible(slot.name) if slot.name else f"slot {i}"


def describe(slot: Slot) -> str:
    """Return the dtype, the shape and the levels of detail of a slot."""
    levels = f" lod_levels={slot.lod_levels}" if slot.lod_levels else ""
    return f"{slot.dtype or 'any dtype'}{f' {slot.shape}' if slot.shape else ''}{levels}"


def describe_value(value: Any, slot: Slot) -> str:
    """Return a line for an array of a tuple: the first values, however large it is."""
    pieces = pieces_of_bytes(value)
    if pieces is not None:
        first = ", ".join(describe_bytes(piece) for piece in itertools.islice(pieces, _FIRST_VALUES))
        more = len(value) > _FIRST_VALUES
        return first if len(value) == 1 else f"{len(value)}: {first}{', …' if more else ''}"
    if isinstance(value, LoDTensor):
        lengths = " / ".join(_describe_list(np.diff(level[: _FEW_VALUES + 2]), len(level) - 1) for level in value.lod)
        return f"lengths {lengths}: {_describe_array(np.asarray(value.data), slot)}"
    return _describe_array(np.asarray(value), slot)


def _describe_array(array: npt.NDArray[Any], slot: Slot) -> str:
    if array.ndim == 0:
        return _describe_list(array.reshape(1), 1, slot)[1:-1]
    values = _describe_list(array.flat[: _FEW_VALUES + 1], array.size, slot)
    return values if array.ndim == 1 and array.size <= _FEW_VALUES else f"{array.shape} {values}"


def _describe_list(first: npt.NDArray[Any], size: int, slot: Slot | None = None) -> str:
    """Describe a list of numbers by its first ones."""
    if first.dtype.kind == "V" and first.dtype.itemsize == 2 and slot is not None and slot.dtype == "bfloat16":
        first = (first.view(np.uint16).astype(np.uint32) << 16).view(np.float32)  # there is no ml_dtypes
    count = size if size <= _FEW_VALUES else _FIRST_VALUES
    values = [_describe_number(x) for x in first[:count].tolist()]
    return f"[{', '.join([*values, '…'] if size > count else values)}]"


def _describe_number(x: Any) -> str:
    return f"{x:.4g}" if isinstance(x, (float, complex)) else visible(str(x))


def pieces_of_bytes(value: Any) -> Iterable[npt.NDArray[np.uint8]] | None:
    """Return the pieces of bytes or text in an array of a tuple, as views; None if it has none."""
    if not isinstance(value, LoDTensor) or len(value.lod) != 1 or value.dtype != np.uint8 or len(value.shape) != 1:
        return None
    offsets, data = value.lod[0], np.asarray(value.data)
    return (data[offsets[i] : offsets[i + 1]] for i in range(len(offsets) - 1))


def decode_text(piece: npt.NDArray[np.uint8], most: int) -> str | None:
    """Return the beginning of a text in UTF-8, its invisible characters escaped; None: the bytes are no such text."""
    raw = piece[: 4 * most].tobytes()  # a character has at most four bytes
    for end in range(len(raw), max(len(raw) - 4, -1), -1):
        try:
            text = raw[:end].decode()
        except UnicodeDecodeError:
            if len(raw) == len(piece):
                return None
        else:
            return cut(visible(text[: most + 1]) + "…" * (len(piece) > len(raw)), most)
    return None


def describe_bytes(piece: npt.NDArray[np.uint8], most: int = _CELL_WIDTH) -> str:
    """Return the beginning of bytes or text, in quotes."""
    text = decode_text(piece, most - 2)
    if text is not None:
        return f'"{text}"'
    first = repr(piece[:8].tobytes())
    return f"{len(piece):,} bytes {first}{'…' if len(piece) > 8 else ''}"


def _table(label: list[str], columns: Sequence[list[str]]) -> list[str]:
    """Return the lines of a table. If it is too wide, it has several parts, one below the other."""
    lines: list[str] = []
    numbers = [_are_numbers(column[2:]) for column in columns]
    widths = [max(map(len, column)) for column in columns]
    own = max(map(len, label))
    begin = 0
    while begin < len(columns):
        end, width = begin, own
        while end < len(columns) and (end == begin or width + 2 + widths[end] <= _TABLE_WIDTH):
            width += 2 + widths[end]
            end += 1
        for row, name in enumerate(label):
            cells = [
                columns[i][row].rjust(widths[i]) if numbers[i] else columns[i][row].ljust(widths[i])
                for i in range(begin, end)
            ]
            lines.append("  ".join([name.ljust(own), *cells]).rstrip())
        begin = end
    return lines


def _are_numbers(cells: list[str]) -> bool:
    """Report whether a column has single numbers, which are aligned to the right."""
    return bool(cells) and not any(cell[:1] in '"[(' or " " in cell for cell in cells)
