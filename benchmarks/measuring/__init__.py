"""How everything is measured: ways to do one task, each in a process of its own, that take turns.

`measure` has all ways do a row of a table, `Results` keeps the figures, and `options` are those that every workload
has. What is measured is in `tasks`, and how each library does it in `ways`.
"""

from .results import Results, compare, options
from .rows import Row, Way, measure
from .trainer import Failed, NotOffered, Seconds, Timed

__all__ = ["Failed", "NotOffered", "Results", "Row", "Seconds", "Timed", "Way", "compare", "measure", "options"]
