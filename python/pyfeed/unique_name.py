"""Names for variables that nobody else uses in this process."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

_next: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)


def generate(key: str) -> str:
    """``key_0``, ``key_1`` and so on. Any thread."""
    return f"{key}_{next(_next[key])}"
