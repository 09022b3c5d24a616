"""What is told of an exception where Python's own cannot go."""

from __future__ import annotations

import threading


def told(exception: BaseException) -> tuple[str, str, str]:
    """Type, text and traceback, as C takes them."""
    import traceback

    kind = type(exception)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(exception)
    except BaseException:
        message = "<its str() failed>"
    # Whatever an exception raises when it is looked at, the consumer is told: it would wait for good.
    try:
        text = "".join(traceback.format_exception(kind, exception, exception.__traceback__))
    except BaseException:
        text = "<its traceback could not be formatted>"
    return _for_c(name), _for_c(message), _for_c(text)


def untold(error: BaseException) -> None:
    """Nobody is there to raise it: tell whoever looks at what threads leave behind."""
    threading.excepthook(
        threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
    )


def _for_c(text: str) -> str:
    """C's strings end at a NUL, and are UTF-8."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")
