"""The result of Reader.stats: a dict that prints as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from . import _slots
from ._file_names import decode_file_name

_COLUMNS = ("reader", "tuples", "bytes", "passes", "waited_seconds")
_PLACES = 10  # damaged places of a reader that its repr lists


class ReaderStats(dict[str, Any]):
    """The statistics of a reader and the readers below it.

    The repr is a table with a row for each reader. Below the table, it lists what was skipped: damaged places, and
    tuples of `map`.
    """

    @classmethod
    def of(cls, described: dict[str, Any]) -> ReaderStats:
        """Make the statistics from the library's description of a reader."""
        stats = cls(described)
        stats.pop("length", None)  # len() returns it
        stats["slots"] = _slots.from_attributes(stats["slots"])
        stats["below"] = [cls.of(each) for each in stats.get("below", ())]
        details = stats.setdefault("details", {})
        for place in details.get("ledger") or ():
            place["file"] = decode_file_name(place["file"])
        return stats

    def __repr__(self) -> str:
        try:
            rows = list(self._rows(0))
            skipped = list(self._skipped())
        except KeyError:  # an entry was removed
            return dict.__repr__(self)
        columns = [*_COLUMNS, "corrupt"] if any("corrupt" in row for row in rows) else _COLUMNS
        table = [list(columns), *([row.get(column, "") for column in columns] for row in rows)]
        widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
        return "\n".join([*("  ".join(_aligned(row, widths)) for row in table), *skipped])

    __str__ = __repr__

    def _rows(self, depth: int) -> Iterator[dict[str, str]]:
        """Yield the cells of this reader's row, then those of the readers below."""
        row = {column: f"{self[column]:,}" for column in ("tuples", "bytes", "passes")}
        row["reader"] = "  " * depth + self["reader"]
        row["waited_seconds"] = f"{self['waited_seconds']:.3f}"
        if self["details"].get("corrupt"):
            row["corrupt"] = f"{self['details']['corrupt']:,}"
        yield row
        for each in self["below"]:
            yield from each._rows(depth + 1)

    def _skipped(self) -> Iterator[str]:
        """Yield a line for each damaged place that this reader or one below it skipped, the first ones only."""
        ledger = self["details"].get("ledger") or ()
        for place in ledger[:_PLACES]:
            file = place["file"].encode(errors="backslashreplace").decode()
            yield f"skipped: {file}{describe_position(place)}: {place['reason']}"
        if len(ledger) > _PLACES:
            yield f'skipped: {len(ledger) - _PLACES} more, in ["details"]["ledger"] of {self["reader"]}'
        skips = self["details"].get("skips") or ()
        for skip in skips[:_PLACES]:
            record = f", record {skip['record']}" if skip["record"] >= 0 else ""
            file = f" ({skip['file'].encode(errors='backslashreplace').decode()}{record})" if skip["file"] else ""
            yield f"skipped: tuple {skip['index']} of pass {skip['pass']}{file}: {skip['reason']}"
        if len(skips) > _PLACES:
            yield f'skipped: {len(skips) - _PLACES} more, in ["details"]["skips"] of {self["reader"]}'
        for each in self["below"]:
            yield from each._skipped()


def describe_position(place: Mapping[str, Any]) -> str:
    """Return the byte and the record of an entry of the ledger, as far as they are known, as errors write them."""
    byte = f", byte {place['offset']}" if place["offset"] >= 0 else ""
    record = f", {'about ' * place['approximate']}record {place['record']}" if place["record"] >= 0 else ""
    return byte + record


def _aligned(row: list[str], widths: list[int]) -> list[str]:
    """Align the first cell to the left and all others to the right."""
    return [
        cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
