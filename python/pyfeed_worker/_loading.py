"""Loads the extension before NumPy, and checks that it works in this interpreter."""

from __future__ import annotations

from . import _native as _native
