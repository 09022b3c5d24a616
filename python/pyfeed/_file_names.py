"""Conversion of file names to and from the text that the library uses in JSON.

Python represents bytes of a name that are not UTF-8 by surrogates, as `os.fsdecode` does (``surrogateescape``). In JSON
and in saved programs, such a byte is a NUL and two hexadecimal digits: see ``pf_file_list`` in ``pyfeed.h``. This is
unambiguous, because no file name contains a NUL.
"""

from __future__ import annotations

import os


def encode_file_name(name: str) -> str:
    """Return a file name as the library represents it in JSON."""
    if name.isascii():
        return name
    text = os.fsencode(name).decode("utf-8", "surrogateescape")
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join(f"\0{ord(c) - 0xDC00:02x}" if "\udc80" <= c <= "\udcff" else c for c in text)
    return text


def decode_file_name(text: str) -> str:
    """Return the file name that a text of the library represents."""
    if "\0" not in text:
        return text if text.isascii() else os.fsdecode(text.encode())
    first, *rest = text.split("\0")
    return os.fsdecode(first.encode() + b"".join(bytes.fromhex(part[:2]) + part[2:].encode() for part in rest))
