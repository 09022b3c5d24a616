"""Calls of the functions of map readers, for threads of pyfeed and for worker processes of pyfeed_worker."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


class FlatFunction:
    """A function of a map reader that returns tuples of arrays, whatever structure the reader delivers."""


class ResultWriter(FlatFunction, ABC):
    """A function of a map reader that writes its results into memory of the library."""

    @abstractmethod
    def slots(self, arguments: tuple[Any, ...]) -> tuple[tuple[str, tuple[int, ...], int, str], ...]:
        """Return dtype, shape, number of levels of detail and name of each array of the result for these arguments."""

    @abstractmethod
    def write(self, arguments: tuple[Any, ...], arrays: list[Any]) -> None:
        """Write the result into arrays that `slots` describes. No local variable may refer to one of them."""

    def fill(self, arguments: tuple[Any, ...], memory: tuple[Any, ...]) -> None:
        """Call `write`. Afterwards nothing refers to the memory, not even the traceback of an exception."""
        arrays = list(memory)
        del memory
        try:
            self.write(arguments, arrays)
        except StopIteration as stop:
            raise RuntimeError("the function raised StopIteration") from stop
        finally:
            arrays.clear()


class MapCall:
    """The function of a map reader, and what it is called with. Any number of threads may call it.

    Parameters
    ----------
    function : callable
        The user's function.
    with_position : bool
        Whether it gets the position of the tuple.
    seed : int, optional
        The seed of the generators that the function gets; None: it gets none.
    """

    def __init__(self, function: Callable[..., Any], *, with_position: bool, seed: int | None) -> None:
        self._function, self._with_position, self._seed = function, with_position, seed
        self.needs_position = with_position or seed is not None
        self._generators = threading.local()

    def __call__(self, arguments: tuple[Any, ...], position: tuple[int, int]) -> Any:
        """Return the result for a tuple: a tuple, a list or a mapping.

        A `StopIteration` of the function becomes a `RuntimeError`. Otherwise the loop of the consumer would take it for
        the end of the data.
        """
        options: dict[str, Any] = {"position": position} if self._with_position else {}
        if self._seed is not None:
            options["rng"] = self._generator(self._seed, *position)
        try:
            result = self._function(*arguments, **options)
        except StopIteration as stop:
            raise RuntimeError("the function raised StopIteration") from stop
        return result if isinstance(result, (tuple, list, Mapping)) else (result,)

    def _generator(self, seed: int, pass_id: int, index: int) -> np.random.Generator:
        """Return the thread's generator, set to a position: this takes a tenth of the time of making a new one."""
        mine = self._generators
        if not hasattr(mine, "generator"):
            mine.philox = np.random.Philox(key=seed)
            mine.state = mine.philox.state
            mine.generator = np.random.Generator(mine.philox)
        # The lowest of the four words counts the draws of four numbers.
        mine.state["state"]["counter"][:] = (0, 0, index, pass_id)
        mine.philox.state = mine.state
        generator: np.random.Generator = mine.generator
        return generator
