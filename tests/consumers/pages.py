"""Reads the pages of the documentation, whose commands and programs the tests of this folder run."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(page: str, language: str) -> list[str]:
    """Return the blocks of code of a page in ``docs``, in a language."""
    text = (ROOT / "docs" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def block(page: str, language: str, beginning: str = "") -> str:
    """Return the only block of a page in a language that begins so."""
    found = [text for text in blocks(page, language) if text.startswith(beginning)]
    assert len(found) == 1, (
        f"{page}: expected one block of {language} that begins with {beginning!r}, found {len(found)}"
    )
    return found[0]


def shell(page: str) -> list[str]:
    """Return the commands in the blocks of a page, without comments."""
    lines = "".join(blocks(page, "sh")).splitlines()
    return [line.partition("  #")[0].strip() for line in lines]
