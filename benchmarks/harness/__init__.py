"""The measuring code: the libraries run one case of a workload in turns, each in its own process.

`measure` runs a case with all libraries, `Results` keeps the measurements, and `options` makes the options that all
scripts have. `workloads` contains the input of each workload, and `libraries` the code that runs it with each library.
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
