"""The repr of a reader: its slots, and the chain of readers that it is on top of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import _slots
from .errors import Error

if TYPE_CHECKING:
    from ._reader import Reader
    from ._slots import Slot

# Details that appear elsewhere in the line, or that change while the reader reads.
_LEFT_OUT = {
    "num_threads",
    "opened",
    "corrupt",
    "ledger",
    "replays",
    "skipped",
    "skips",
    "pass_id",
    "workers_waited_seconds",
}
_READS_AHEAD = {"shuffle", "double_buffer", "map"}


def reader_repr(reader: Reader) -> str:
    """Return a line for the reader and its slots, and a line for each reader of the chain, the lowest first."""
    name = f"<Reader {reader.name!r}{', closed' if reader.closed else ''}"
    try:
        stats = reader._described()
    except Error:  # in a forked child, for example
        return name + ">"
    head = f"{name}: {_described(_slots.from_attributes(stats['slots']))}"
    return "\n    ".join([head, *describe_chain(stats, reader)]) + ">"


def _described(described: Iterable[Slot]) -> str:
    return ", ".join(
        f"{f'{s.name} ' if s.name else ''}{s.dtype or 'any dtype'} {s.shape}"
        f"{f' lod_levels={s.lod_levels}' if s.lod_levels else ''}"
        for s in described
    )


def describe_chain(stats: dict[str, Any], reader: Reader | None) -> list[str]:
    """Return a line for each reader of a chain, the lowest first."""
    kind = stats["reader"]
    details = stats.get("details", {})
    arguments = ", ".join(f"{key}={value!r}" for key, value in details.items() if key not in _LEFT_OUT)
    below = stats.get("below", [])
    threads = details.get("num_threads", 0) + (kind in _READS_AHEAD) + (reader._threads if reader else 0)
    if reader and reader._recipe and reader._recipe.operator == "from_generator":
        kind = "from_generator"
    line = f"{'.' if below else ''}{kind}({arguments})"
    processes = reader._processes if reader else 0
    helpers = [(threads, "thread", "s"), (processes, "process", "es")]
    if texts := [f"{n} {noun}{plural if n > 1 else ''}" for n, noun, plural in helpers if n]:
        line += f"  # {', '.join(texts)}"
    readers = reader._readers_below() if reader else []
    chains = [describe_chain(each, readers[i] if len(readers) == len(below) else None) for i, each in enumerate(below)]
    if len(chains) == 1:
        return [*chains[0], line]
    return [*(f"{'- ' if i == 0 else '  '}{one}" for chain in chains for i, one in enumerate(chain)), line]
