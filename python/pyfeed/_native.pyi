"""The types of the extension module. What they do is said in its docstrings."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, final

import numpy.typing as npt
from typing_extensions import disjoint_base

_T = TypeVar("_T")

__version__: str

class _MemoryStats(TypedDict):
    handles: int
    tuples_on_loan: int
    live_queue_bytes: int
    live_lent_bytes: int
    live_batch_bytes: int
    live_view_bytes: int
    idle_bytes: int
    live_buffers: int

class _QueueStats(TypedDict):
    size: int
    capacity: int
    reserved: int
    bytes: int
    bytes_limit: int
    pass_id: int
    closed: bool
    failed: bool
    shut_down: bool
    restartable: bool
    waiting_producers: int
    waiting_consumers: int
    pushed: int
    popped: int
    dropped: int
    pushed_bytes: int
    producers_waited: float
    consumers_waited: float

def memory_stats() -> _MemoryStats: ...
def _waiting_threads() -> list[int]: ...
def _stop() -> None: ...

@final
class Memory: ...

@final
class Slot:
    def __enter__(self) -> tuple[Any, ...]: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None, /
    ) -> bool: ...

@disjoint_base
class Queue:
    @property
    def handle(self) -> int: ...
    @classmethod
    def _init_once(
        cls,
        var: int,
        capacity: int,
        slots: tuple[tuple[Any, tuple[int, ...], int], ...],
        bytes_limit: int,
        restartable: bool,
        place: tuple[int, int],
        /,
    ) -> Self: ...
    @classmethod
    def _of(cls, var: int, /) -> Self: ...
    def push(
        self, arrays: Sequence[Any], /, *, copy: bool = True, timeout: float | None = None, pass_id: int = 0
    ) -> None: ...
    def pop(self, timeout: float | None = None) -> tuple[Any, ...]: ...
    def slot(
        self,
        rows: int | None = None,
        *,
        shapes: Sequence[Sequence[int]] | None = None,
        lod: Sequence[Sequence[npt.ArrayLike] | None] | None = None,
        timeout: float | None = None,
        pass_id: int = 0,
    ) -> Slot: ...
    def close(self, pass_id: int = 0) -> None: ...
    def _fail(self, exception: BaseException, kind: str, message: str, traceback: str, pass_id: int, /) -> None: ...
    def reopen(self) -> int: ...
    def wait_pass(self, after: int, timeout: float | None = None) -> int: ...
    def shutdown(self) -> None: ...
    def stats(self) -> _QueueStats: ...
    def _slots(self) -> tuple[tuple[str | None, tuple[int, ...], int], ...]: ...

@disjoint_base
class Reader:
    @property
    def handle(self) -> int: ...
    @classmethod
    def _of(cls, var: int, direct: bool = False, /) -> Self: ...
    def read(self, timeout: float | None = None) -> tuple[Any, ...]: ...
    def has_next(self, timeout: float | None = None) -> bool: ...
    def reset(self) -> None: ...
    def __next__(self) -> tuple[Any, ...]: ...

@disjoint_base
class Scope:
    @property
    def handle(self) -> int: ...
    @classmethod
    def _new(cls, parent: int, /) -> Self: ...
    @classmethod
    def _global(cls) -> Self: ...
    def _with_var(self, name: str, make: bool, function: Callable[[int], _T], /) -> _T: ...
    def erase(self, name: str, /) -> None: ...
    def kind(self, name: str, /) -> str: ...
    def get_tensor(self, name: str, /) -> Any: ...
    def set_tensor(self, name: str, array: Any, /) -> None: ...
    def create_py_array_reader(self, out: str, feeder_name: str) -> None: ...
    def create_batch_reader(self, out: str, reader: str, batch_size: int, drop_last: bool = False) -> None: ...
    def read(self, reader: str, outs: Sequence[str], timeout: float | None = None) -> None: ...
