"""What the loaders for frameworks have in common: loops, passes and states of a reader that they own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from ._arguments import flag, integer, validate
from ._attributes import decode
from ._reader import Reader
from .errors import InvalidArgument, StateError


class Loader(ABC):
    """Iterates over a reader for a framework. A subclass converts the tuples, in `_convert`."""

    def __init__(self, reader: Reader) -> None:
        reader._check_open()
        self._reader = reader
        self._in_pass = False  # whether a loop has begun since the loader was made or a state was loaded
        self._epoch: int | None = None  # the pass of the next loop; None: the next one
        self._first: str | None = None  # the state before the first loop

    @property
    def reader(self) -> Reader:
        """The reader that the loader reads from."""
        return self._reader

    def __iter__(self) -> Iterator[Any]:
        # This is a generator, so a pass begins with the first tuple: frameworks make iterators that they do not use.
        source = self._begin_loop()
        try:
            yield from self._convert(source)
        finally:
            del source  # the traceback of an exception refers to this frame, and would keep the reader's loop active

    @abstractmethod
    def _convert(self, source: Iterator[Any]) -> Iterator[Any]:
        """Yield the tuples of a loop over the reader as the framework wants them."""

    def _begin_loop(self) -> Iterator[Any]:
        if self._first is None:
            try:
                self._first = self._reader._get_state()
            except StateError:  # a chain without states
                self._epoch = None
        if self._epoch is not None:
            self._go_to_pass(self._epoch)
            self._epoch = None
        source = iter(self._reader)
        self._in_pass = True
        return source

    def _go_to_pass(self, wanted: int) -> None:
        """Go to the beginning of a pass, unless the next loop goes through this pass anyway."""
        assert self._first is not None
        state = self._reader.state_dict()
        here = state["pass"]
        if here + (self._in_pass or "ended" in state) == wanted:
            return
        if here >= wanted:
            here = decode(self._first)["pass"]
            if here > wanted:
                raise InvalidArgument(f"epoch: expected at least {here}, where the reader was at first, found {wanted}")
            self._reader._set_state(self._first, True)
        for _ in range(here, wanted):
            self._reader.reset()

    def __len__(self) -> int:
        return len(self._reader)

    def __bool__(self) -> bool:
        return True

    @validate(epoch=integer(0))
    def set_epoch(self, epoch: int) -> None:
        """Choose the pass of the next loop. Without this call, each loop goes through the next pass.

        If a state in the middle of this pass was loaded, the loop goes through the rest of it. A framework that
        counts epochs calls this method, or lets a callback call it. It has no effect for a reader whose position is
        not known, such as one with ``ordered=False``.

        Parameters
        ----------
        epoch : int
            The number of the pass, from 0.
        """
        self._epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """Return the position behind the last tuple that a loop has got, as `Reader.state_dict` does.

        Returns
        -------
        dict

        Raises
        ------
        StateError
            As for `Reader.state_dict`.
        """
        return self._get_state()

    def _get_state(self) -> dict[str, Any]:
        return self._reader.state_dict()

    @validate(strict=flag)
    def load_state_dict(self, state: dict[str, Any] | str, *, strict: bool = True) -> None:
        """Go to a position that `state_dict` has returned: `Reader.load_state_dict`.

        Parameters
        ----------
        state, strict
            As for `Reader.load_state_dict`.

        Raises
        ------
        StateError, InvalidArgument, FileError
            As for `Reader.load_state_dict`.
        """
        self._set_state(state, strict)

    def _set_state(self, state: dict[str, Any] | str, strict: bool) -> None:
        if self._first is None:
            self._first = self._reader._get_state()
        self._reader.load_state_dict(state, strict=strict)
        self._in_pass, self._epoch = False, None

    def close(self) -> None:
        """Close the reader. Tuples that were delivered stay valid. A second call does nothing."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._reader!r})"
