"""Traces: what runs, readers and queues did, and what limits them."""

from __future__ import annotations

import json
import os
from types import TracebackType
from typing import Any

from . import _native
from ._arguments import integer, optional, path, takes


class Trace(_native.Trace):
    """A recording, made by `trace`.

    Attributes
    ----------
    file : str or None
        Where it is written when it ends.
    """

    file: str | None

    @takes()
    def stop(self) -> None:
        """End the recording. Twice is fine."""
        self._stop()

    @property
    def summary(self) -> dict[str, Any]:
        """What limits the loop, and by how much; where the time went.

        ``sentence`` says it; ``limited_by`` is ``"producer"``, ``"reader"``, ``"copy"``, ``"transfer"``,
        ``"compute"`` or ``"executor"``, or ``""`` if it cannot be told: the sentence says why. ``parts`` are all of
        these with their ``seconds``, their ``share`` of the time of runs and of threads that read, and the
        ``speedup`` if they took none; ``consumers`` has them for each thread. ``devices`` are those that something
        was copied to, with ``bytes``, ``bytes_per_second``, ``overlap`` and ``stalls``; ``operators`` are all that
        was recorded, by its name.

        Raises
        ------
        StateError
            The recording has not ended.
        """
        found: dict[str, Any] = json.loads(self._text("summary"))
        return found

    @takes()
    def table(self) -> str:
        """The same as `summary`, for people."""
        return self._text("table")

    @takes()
    def chrome(self) -> str:
        """All that was recorded, as JSON: for https://ui.perfetto.dev, and chrome://tracing."""
        return self._text("chrome")

    def __str__(self) -> str:
        return self.table()

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()
        if self.file is None:
            return
        try:
            with open(self.file, "w", encoding="utf-8") as file:
                file.write(self.chrome())
        except OSError as failure:
            if error is None:
                raise
            error.add_note(f"the trace could not be written: {failure}")  # what went wrong first is to be seen


@takes(file=optional(path), max_events=integer(0, "spans"))
def trace(file: str | os.PathLike[str] | None = None, *, max_events: int = 0) -> Trace:
    """Record what programs, loops, readers and queues of this process do: in a with statement.

    Parameters
    ----------
    file : str or path, optional
        Where what was recorded is written to at the end, in Chrome's JSON format.
    max_events : int
        Most spans that are recorded, of 56 bytes each; 0: a million. What does not fit is counted.

    Raises
    ------
    StateError
        There is a recording already.

    Examples
    --------
    >>> from pyfeed import random_data, trace
    >>> with trace() as t:
    ...     for x, in random_data([(2,)], count=3):
    ...         pass
    >>> isinstance(t.summary, dict), len(t.table()) > 0
    (True, True)
    """
    if file is not None:
        with open(file, "ab"):  # to hear now, not when all is over, if it cannot be written
            pass
    out = Trace._start(max_events)
    out.file = None if file is None else os.fspath(file)
    return out
