"""Converts comments of C and C++ headers to reStructuredText."""

from __future__ import annotations

import re
from collections.abc import Callable

FIRST_RELEASE = "0.1"
LIST_ITEM = re.compile(r"- +(.*)")
TERM = re.compile(r"([A-Z][\w-]*)\.\s+(.*)", re.DOTALL)
COLUMNS = re.compile(r"(\S+ {2,})\S")


def strip_comment(raw: str) -> str:
    """The words of a comment, without its slashes and stars."""
    if raw.startswith("/*"):
        lines = re.sub(r"^/\*+<?|\s*\*/$", "", raw).splitlines()
        lines = [re.sub(r"^\s*\*( |$)", "", line) if i else line.lstrip() for i, line in enumerate(lines)]
    else:
        lines = [re.sub(r"^\s*//[/!]*<? ?", "", line) for line in raw.splitlines()]
    return "\n".join(line.rstrip() for line in lines).strip()


class Markup:
    """Converts comments. `link` marks up the names in a phrase and escapes the rest."""

    def __init__(self, link: Callable[[str], str]) -> None:
        self.link = link

    def render(self, words: str) -> list[str]:
        """The lines of a whole comment, with its paragraphs, lists, tables and code."""
        words, _, since = words.partition("\\since")
        lines: list[str] = []
        for paragraph in re.split(r"\n\s*\n", words.strip("\n")):
            lines += [*self.paragraph(paragraph.splitlines()), ""]
        release = since.strip().rstrip(".")
        if release and release != FIRST_RELEASE:
            lines += [f".. versionadded:: {release}", ""]
        return lines

    def paragraph(self, lines: list[str]) -> list[str]:
        if all(line.startswith("    ") for line in lines) and lines:
            return [".. code-block::", "", *("   " + line[4:] for line in lines)]
        if len(lines) > 2 and COLUMNS.match(lines[0]):
            return self.table(lines)
        if any(LIST_ITEM.match(line) for line in lines):
            return self.items(lines)
        return [self.phrase(" ".join(line.strip() for line in lines))]

    def items(self, lines: list[str]) -> list[str]:
        """A list. Indented lines continue an item, and the lines before the first item are a paragraph."""
        found: list[list[str]] = [[]]
        for line in lines:
            item = LIST_ITEM.match(line)
            if item:
                found.append([item[1]])
            else:
                found[-1].append(line.strip())
        out = [self.phrase(" ".join(found[0])), ""] if found[0] else []
        for item_lines in found[1:]:
            text = " ".join(item_lines)
            term = TERM.match(text) if "  " in item_lines[0] else None
            out += [term[1], f"   {self.phrase(term[2])}", ""] if term else [f"- {self.phrase(text)}"]
        return out

    def table(self, lines: list[str]) -> list[str]:
        """A table of two columns. The second column begins at the same position in every line."""
        width = len(COLUMNS.match(lines[0])[1])  # type: ignore[index]
        rows: list[list[str]] = []
        for line in lines:
            if line[:width].strip():
                rows.append([line[:width].strip(), line[width:].strip()])
            else:
                rows[-1][1] += " " + line.strip()
        out = [".. list-table::", "   :header-rows: 1", ""]
        for i, (name, text) in enumerate(rows):
            out += [f"   * - {self.phrase(name) if i == 0 else f'``{name}``'}", f"     - {self.phrase(text)}"]
        return out

    def phrase(self, text: str) -> str:
        """A phrase, in which words between backquotes become code."""
        parts = re.split(r"(`[^`]+`)", text)
        return "".join(f"``{part[1:-1]}``" if i % 2 else self.link(part) for i, part in enumerate(parts))


def escape(text: str) -> str:
    return re.sub(r"([\\*_|`])", r"\\\1", text)


def marked(text: str, names: re.Pattern[str], mark: Callable[[re.Match[str]], str | None]) -> str:
    """Mark up the names that `mark` knows, and escape the rest of the text."""
    out, end = "", 0
    for found in names.finditer(text):
        done = mark(found)
        if done is not None:
            out += f"{escape(text[end : found.start()])}\\ {done}\\ "
            end = found.end()
    return out + escape(text[end:])
