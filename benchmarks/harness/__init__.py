"""How everything is measured: libraries run one case of a workload, each in a process of its own, in turns.

`measure` has all libraries run a case, `Results` keeps the measurements, and `options` are those of every script. The
input of each workload is in `workloads`, and how each library runs it in `libraries`.
"""

from .cases import LIMIT, PEER, PYFEED, Case, Library, measure
from .results import Results, compare, options, selected
from .runner import Failed, NotSupported, Seconds, Timed

__all__ = [
    "LIMIT",
    "PEER",
    "PYFEED",
    "Case",
    "Failed",
    "Library",
    "NotSupported",
    "Results",
    "Seconds",
    "Timed",
    "compare",
    "measure",
    "options",
    "selected",
]
