"""Types for annotations of code that uses pyfeed."""

from __future__ import annotations

from ._options import Column, ReadOptions, ReadOptionsWithSlots, TarField, TFRecordFeature
from ._place import Place
from ._preview import Preview
from ._scope import ScopeVariable
from ._slots import Shape, Slot

__all__ = [
    "Column",
    "Place",
    "Preview",
    "ReadOptions",
    "ReadOptionsWithSlots",
    "ScopeVariable",
    "Shape",
    "Slot",
    "TFRecordFeature",
    "TarField",
]
