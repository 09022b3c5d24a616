"""How everything is measured: ways to do one task, each in a process of its own, that take turns.

`measure` has all ways do a row of a table, `Results` keeps the figures, and `options` are those that every workload
has. What is measured is in `tasks`, and how each library does it in `ways`.
"""

from .results import Results, chosen, compare, options
from .rows import LIMIT, OURS, PEER, Row, Way, measure
from .trainer import Failed, NotOffered, Seconds, Timed

__all__ = [
    "LIMIT",
    "OURS",
    "PEER",
    "Failed",
    "NotOffered",
    "Results",
    "Row",
    "Seconds",
    "Timed",
    "Way",
    "chosen",
    "compare",
    "measure",
    "options",
]
