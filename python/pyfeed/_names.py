"""Names of files as text for the library.

Python says the bytes of a name that are not text with `surrogateescape`, as `os.fsencode` does. In JSON and in saved
programs such a byte is a NUL and two hexadecimal digits, as ``pyfeed.h`` says: no name has a NUL.
"""

from __future__ import annotations

import os


def text_of(name: str) -> str:
    """A name as the library's attributes have it."""
    if name.isascii():
        return name
    text = os.fsencode(name).decode("utf-8", "surrogateescape")
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join(f"\0{ord(c) - 0xDC00:02x}" if "\udc80" <= c <= "\udcff" else c for c in text)
    return text


def name_of(text: str) -> str:
    """The name that the library's text stands for."""
    if "\0" not in text:
        return text if text.isascii() else os.fsdecode(text.encode())
    first, *rest = text.split("\0")
    return os.fsdecode(first.encode() + b"".join(bytes.fromhex(part[:2]) + part[2:].encode() for part in rest))
