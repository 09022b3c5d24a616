"""Programs and the executor that runs them.

A `Program` describes a training loop: which readers to make, which kernels to call for each batch, and when
to stop. The functions of `pyfeed.program.layers` build it, and an `Executor` runs it. A saved program runs in
a C++ process without Python. `docs/program.md` describes the concepts.

Examples
--------
>>> import numpy as np
>>> from pyfeed.program import Executor, Program, layers, program_guard
>>> program = Program()
>>> with program_guard(program):
...     total = layers.increment(layers.data("x", [], "int64", append_batch_size=False), 10)
>>> Executor().run(program, feed={"x": np.int64(5)}, fetch=[total])
(array(15),)
"""

from __future__ import annotations

from .._native import CancelToken
from ._executor import Executor
from ._program import (
    Block,
    Operator,
    Program,
    Variable,
    default_main_program,
    default_startup_program,
    program_guard,
)

__all__ = [
    "Block",
    "CancelToken",
    "Executor",
    "Operator",
    "Program",
    "Variable",
    "default_main_program",
    "default_startup_program",
    "kernels",
    "layers",
    "program_guard",
]

from . import kernels, layers
