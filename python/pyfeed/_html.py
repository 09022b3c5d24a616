"""Readers and previews in notebooks. Everything from files and users is escaped.

The HTML needs no script and no style sheet. Its colours are those of the notebook, with grey that is half transparent,
so that it can be read in light and dark themes.
"""

from __future__ import annotations

import itertools
from base64 import b64encode
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _picture, _slots
from ._lod import LoDTensor
from ._preview import (
    MOST_ROWS,
    column_name,
    cut,
    decode_text,
    describe,
    describe_bytes,
    describe_count,
    describe_value,
    pieces_of_bytes,
    visible,
)
from ._repr import describe_chain
from .errors import Error

if TYPE_CHECKING:
    from ._preview import Preview
    from ._reader import Reader
    from ._slots import Slot

_MOST_SLOTS = 200  # in the table of a reader
_MOST_PIECES = 8  # images, or pieces of text, in a cell
_MOST_TEXT = 200  # characters of a text, or of each of several
_MOST_FILE_BYTES = 256 << 10  # of an image file that is shown
_MOST_BYTES = 4 << 20  # of all pictures of a preview
_SMALL = 48  # smaller pictures are enlarged

_LINE = "1px solid rgba(128,128,128,.4)"
_CELL = f"border:{_LINE};padding:3px 8px;text-align:left;vertical-align:top;background:transparent;color:inherit"
_HEAD = f"{_CELL};background:rgba(128,128,128,.15);font-weight:600;white-space:nowrap"
_MUTED = "opacity:.7;font-weight:normal;white-space:nowrap"
_MONO = "font-family:monospace,monospace;font-size:.95em"


# ---- Readers ---------------------------------------------------------------------------------


def reader_html(reader: Reader) -> str:
    """Return the HTML of a reader: its slots, and the chain of readers that it is on top of."""
    title = f"<b>Reader</b> {_code(visible(reader.name))}{' (closed)' if reader.closed else ''}"
    try:
        stats = reader._described()
    except Error:  # in a forked child, for example
        return f"<div>{title}</div>"
    slots = _slots.from_attributes(stats["slots"])
    rows = [
        (str(i), escape(visible(s.name)), s.dtype or "any dtype", str(s.shape), str(s.lod_levels or ""))
        for i, s in enumerate(slots[:_MOST_SLOTS])
    ]
    chain = escape("\n".join(map(visible, describe_chain(stats, reader))))
    table = _table(("slot", "name", "dtype", "shape", "LoD levels"), rows)
    return (
        f'<div style="overflow-x:auto">{title}'
        f'<pre style="margin:4px 0;padding:0;background:transparent;color:inherit;{_MONO}">{chain}</pre>'
        f"{table}{_more(len(slots) - len(rows), 'slots')}</div>"
    )


# ---- Previews --------------------------------------------------------------------------------


def preview_html(preview: Preview) -> str:
    """Return the HTML of a preview: a table, with pictures for images."""
    pictures = _Pictures()
    first = preview._rows[:MOST_ROWS]
    head = (
        "",
        *(
            f'{escape(cut(column_name(i, slot)))}<br><span style="{_MUTED}">{escape(describe(slot))}</span>'
            for i, slot in enumerate(preview.slots)
        ),
    )
    rows = [
        (str(number), *(_cell(value, slot, pictures) for value, slot in zip(row, preview.slots, strict=True)))
        for number, row in enumerate(first)
    ]
    return (
        f'<div style="overflow-x:auto"><div style="{_MUTED}">{describe_count(len(preview.tuples))}</div>'
        f"{_table(head, rows)}{_more(len(preview.tuples) - len(first), 'tuples')}</div>"
    )


def _cell(value: Any, slot: Slot, pictures: _Pictures) -> str:
    """Return the HTML of an array."""
    pieces = pieces_of_bytes(value)
    if pieces is not None:
        most = _MOST_TEXT if len(value) == 1 else _MOST_TEXT // 4
        parts = [_piece(piece, most, pictures) for piece in itertools.islice(pieces, _MOST_PIECES)]
        return "".join(parts) + _more(len(value) - len(parts), "sequences")
    if not isinstance(value, LoDTensor):
        images = _picture.find_images(np.asarray(value), slot.shape)
        parts = [pictures.of_array(image) for image in images[:_MOST_PIECES]]
        if parts and all(parts):
            return " ".join(parts) + _more(len(images) - len(parts), "images")
    return _code(describe_value(value, slot))


def _piece(piece: np.ndarray[Any, np.dtype[np.uint8]], most: int, pictures: _Pictures) -> str:
    """Return the HTML of a piece of bytes, or of a text of which `most` characters are shown."""
    media_type = _picture.find_type(piece)
    if media_type is not None:
        return pictures.of_file(piece, media_type) or f"<div>{_code(f'{len(piece):,} bytes, {media_type}')}</div>"
    text = decode_text(piece, most)
    if text is None:
        return f"<div>{_code(describe_bytes(piece))}</div>"
    return f'<div style="max-width:30em;overflow-wrap:anywhere">{escape(text)}</div>'


class _Pictures:
    """Makes the pictures of a preview, up to a number of bytes."""

    def __init__(self) -> None:
        self._left = _MOST_BYTES

    def of_array(self, image: np.ndarray[Any, Any]) -> str:
        """Return a picture of an image; "" if there are too many pictures."""
        if self._left == 0:
            return ""
        small = _picture.shrink(image)
        height, width = small.shape[:2]
        scale = max(1, _SMALL // max(height, width))
        size = f"width:{width * scale}px;height:{height * scale}px;max-width:none;image-rendering:pixelated"
        return self._picture(_picture.encode_png(small), "image/png", size, str(image.shape))

    def of_file(self, piece: np.ndarray[Any, np.dtype[np.uint8]], media_type: str) -> str:
        """Return a picture of an image file; "" if it is too large, or if there are too many pictures."""
        if len(piece) >= _MOST_FILE_BYTES:
            return ""
        size = f"max-width:{_picture.MOST_PIXELS}px;max-height:{_picture.MOST_PIXELS}px"
        return self._picture(piece.tobytes(), media_type, size, f"{len(piece):,} bytes")

    def _picture(self, data: bytes, media_type: str, style: str, title: str) -> str:
        if len(data) > self._left:
            self._left = 0  # make no more pictures
            return ""
        self._left -= len(data)
        return (
            f'<img src="data:{media_type};base64,{b64encode(data).decode()}" title="{escape(title)}" '
            f'style="{style};display:inline-block;vertical-align:top;margin:1px">'
        )


# ---- Elements --------------------------------------------------------------------------------


def _code(text: str) -> str:
    return (
        f'<code style="background:transparent;color:inherit;padding:0;white-space:nowrap;{_MONO}">{escape(text)}</code>'
    )


def _more(number: int, of: str) -> str:
    return f' <span style="{_MUTED}">… {number:,} more {of}</span>' if number > 0 else ""


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table of cells in HTML."""
    header = "".join(f'<th style="{_HEAD}">{cell}</th>' for cell in head)
    body = "".join(
        f'<tr style="background:transparent">{"".join(f"""<td style="{_CELL}">{cell}</td>""" for cell in row)}</tr>'
        for row in rows
    )
    return (
        '<table style="border-collapse:collapse;table-layout:auto;margin:4px 0;color:inherit">'
        f"<thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"
    )
