"""The public modules of the package."""

from __future__ import annotations

from types import ModuleType

from pyfeed.program import kernels

import pyfeed
from pyfeed import cuda, diagnostics, errors, formats, layers, program, shared, staging, typing, unique_name

PUBLIC_MODULES: list[ModuleType] = [
    pyfeed,
    cuda,
    diagnostics,
    errors,
    formats,
    program,
    kernels,
    layers,
    shared,
    staging,
    typing,
    unique_name,
]

# Public modules that import a framework, which only `make test-adapters` and `make docs` know, with their names.
FRAMEWORK_MODULES = {
    "pyfeed.jax": ("ArrayLoader",),
    "pyfeed.ray": ("FeedReader", "FeedService", "from_dataset", "reader_for_worker", "save_state"),
    "pyfeed.torch": ("DataLoader", "ReaderDataset", "StatefulDataLoader", "TensorLoader"),
}

# The modules whose names have this prefix in the tables of the tests.
WITH_PREFIX = {cuda: "cuda.", layers: "layers.", unique_name: "unique_name."}
