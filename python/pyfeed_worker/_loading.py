"""Loads the extension, before NumPy, and where it can work."""

from __future__ import annotations

from . import _native

_native._check_interpreter()
