"""Prints the notes of a release, its section of CHANGELOG.md: python -m distribution.notes VERSION."""

import re
import sys
from itertools import zip_longest
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parent.parent / "CHANGELOG.md"


def notes(changelog: str, version: str) -> str:
    """Return the section of a version, without its heading, which is like ``## [0.1.0] - 2026-01-31``.

    Raises
    ------
    ValueError
        The version has no section, its heading has no date, or the section is empty.
    """
    headings = list(re.finditer(r"^## .*$", changelog, re.MULTILINE))
    for heading, following in zip_longest(headings, headings[1:]):
        if not heading[0].startswith(f"## [{version}]"):
            continue
        if not re.fullmatch(rf"## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", heading[0]):
            raise ValueError(
                f"CHANGELOG.md: expected a heading like '## [{version}] - 2026-01-31', found '{heading[0]}'"
            )
        text = changelog[heading.end() : following.start() if following else None].strip()
        if not text:
            raise ValueError(f"CHANGELOG.md: expected changes below '{heading[0]}', found none")
        return text + "\n"
    found = ", ".join(heading[0].removeprefix("## ") for heading in headings)
    raise ValueError(f"CHANGELOG.md: expected a section '## [{version}] - DATE', found only {found or 'no sections'}")


if __name__ == "__main__":
    try:
        print(notes(CHANGELOG.read_text(), sys.argv[1]), end="")
    except ValueError as error:
        sys.exit(str(error))
