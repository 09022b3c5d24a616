"""Exceptions as text, for consumers that do not get the exception object, such as C++."""

from __future__ import annotations

import threading
from typing import Any


def format_exception(exception: BaseException) -> tuple[str, str, str]:
    """Return the type, the text and the traceback of an exception, each as text for C."""
    import traceback

    kind = type(exception)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = _exit_call(exception) if issubclass(kind, SystemExit) else str(exception)
    except BaseException:
        message = "<its str() failed>"
    # The methods of the exception may fail. This function must not raise: the consumer would wait for ever.
    try:
        text = "".join(traceback.format_exception(kind, exception, exception.__traceback__))
    except BaseException:
        text = "<its traceback could not be formatted>"
    return _for_c(name), _for_c(message), _for_c(text)


def _exit_call(exception: Any) -> str:
    code = exception.code
    return "it called sys.exit()" if code is None else f"it called sys.exit({code!r})"


def note_yield(error: BaseException, number: int, iterable: Any) -> None:
    """Add to the error of a push which tuple of an iterable it was, and which line of a generator yielded it."""
    frame = getattr(iterable, "gi_frame", None)
    where = f", yielded at {frame.f_code.co_filename}, line {frame.f_lineno}" if frame is not None else ""
    name = getattr(iterable, "__qualname__", type(iterable).__qualname__)
    error.add_note(f"This was tuple {number} of {name}{where}.")


def report_unraisable(error: BaseException) -> None:
    """Report an exception to `threading.excepthook`, because there is no consumer left that could raise it."""
    threading.excepthook(
        threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
    )


def _for_c(text: str) -> str:
    """Make text that C can represent: UTF-8 without a NUL."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")
