"""Traces of programs, readers and queues, and statistics of memory."""

from __future__ import annotations

import json
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _native
from ._arguments import integer, optional, path, refuse, validate
from ._native import memory_stats

if TYPE_CHECKING:
    from matplotlib.axes import Axes as _Axes  # type: ignore[import-not-found,unused-ignore]

__all__ = ["Trace", "memory_stats", "trace"]


def _check_axes(name: str, value: Any) -> Any:
    """A matplotlib Axes, which is recognized without an import of matplotlib."""
    return value if hasattr(value, "add_collection") else refuse(name, "a matplotlib Axes", value)


class Trace(_native.Trace):
    """A recording, made by `trace`.

    Attributes
    ----------
    file : str or None
        The file that the recording is written to when it ends.
    """

    file: str | None

    @validate()
    def stop(self) -> None:
        """End the recording. A second call does nothing."""
        self._stop()

    @property
    def summary(self) -> dict[str, Any]:
        """What limits the loop, by how much, and where the time went.

        ``limited_by`` is ``"producer"``, ``"reader"``, ``"copy"``, ``"transfer"``, ``"compute"`` or ``"executor"``,
        or ``""`` if it is unknown. ``"compute"`` is the loop's own computation, such as the training step;
        `docs/traces.md` defines all parts. ``sentence`` says the same in words, or says why it is unknown.
        ``parts`` lists all parts with their ``seconds``, their ``share`` of the time of runs and of threads
        that read, and the ``speedup`` of the loop if the part took no time. ``consumers`` has the parts of each
        thread. ``devices`` lists the devices that data was copied to, with ``bytes``, ``bytes_per_second``,
        ``overlap`` and ``stalls``. ``operators`` lists the recorded operations by name.

        Raises
        ------
        StateError
            The recording has not ended.
        """
        found: dict[str, Any] = json.loads(self._text("summary"))
        return found

    @validate()
    def table(self) -> str:
        """The `summary` as a table, as text.

        Returns
        -------
        str
        """
        return self._text("table")

    @validate()
    def chrome(self) -> str:
        """The recorded operations as JSON in Chrome's trace format, for https://ui.perfetto.dev and chrome://tracing.

        Returns
        -------
        str
        """
        return self._text("chrome")

    @validate(ax=optional(_check_axes))
    def plot(self, ax: _Axes | None = None) -> _Axes:
        """Draw the recording with matplotlib: a row for each thread, for each run, and for threads that wait.

        At each time, a row has the color of the innermost operation that was under way. The title is the summary's
        sentence. Operations that are narrower than a pixel are merged: in such a place, the height of each color is
        its share of the time. For a closer look, open the file of the trace in https://ui.perfetto.dev.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw in. Without it, pyplot makes a figure, whose height depends on the number of rows.

        Returns
        -------
        matplotlib.axes.Axes
            ``ax``, or the axes of the new figure, ``plot().figure``.

        Raises
        ------
        StateError
            The recording has not ended.
        UnsupportedError
            matplotlib is not installed, or cannot be imported. ``pip install 'pyarrayfeed[plot]'`` installs it.

        Examples
        --------
        >>> from pyfeed import random_data
        >>> from pyfeed.diagnostics import trace
        >>> with trace() as t:
        ...     for x, in random_data([(2,)], count=3):
        ...         pass
        >>> t.plot().figure.savefig("trace.png")  # doctest: +SKIP
        """
        from ._trace_plot import plot

        return plot(self.summary, self.chrome, ax)

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
            error.add_note(f"the trace could not be written: {failure}")  # the first error is raised


@validate(file=optional(path), max_events=integer(0, "spans"))
def trace(file: str | os.PathLike[str] | None = None, *, max_events: int = 0) -> Trace:
    """Record what the programs, loops, readers and queues of this process do during a ``with`` statement.

    Parameters
    ----------
    file : str or path, optional
        The file that the recording is written to at the end, in Chrome's JSON format.
    max_events : int
        The largest number of operations to record, of 56 bytes each; 0 means a million. Further operations are
        only counted.

    Returns
    -------
    Trace

    Raises
    ------
    StateError
        A recording is active already.

    Examples
    --------
    >>> from pyfeed import random_data
    >>> from pyfeed.diagnostics import trace
    >>> with trace() as t:
    ...     for x, in random_data([(2,)], count=3):
    ...         pass
    >>> isinstance(t.summary, dict), len(t.table()) > 0
    (True, True)
    """
    if file is not None:
        with open(file, "ab"):  # a file that cannot be written fails now, not at the end of the recording
            pass
    out = Trace._start(max_events)
    out.file = None if file is None else os.fspath(file)
    return out
