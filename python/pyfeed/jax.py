"""Arrays of JAX from a reader, put on devices ahead of time, and sharded over a mesh if asked.

`docs/frameworks.md` shows how to use it. Importing this module imports JAX; `import pyfeed` does not. It also
makes `LoDTensor` a pytree whose leaves are the values and the offsets of each level, so that functions of JAX
accept it.

Examples
--------
>>> import pyfeed
>>> from pyfeed.jax import ArrayLoader
>>> reader = pyfeed.random_data([(2,), ()], ["float32", "int32"], high=9, count=5).batch(2)
>>> [type(x).__name__ for x in next(iter(ArrayLoader(reader)))]
['ArrayImpl', 'ArrayImpl']
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import jax

from . import _arguments
from ._arguments import instance, integer, validate
from ._attributes import decode
from ._loader import Loader
from ._lod import LoDTensor
from ._native import DeviceArray
from ._reader import Reader
from .errors import StateError, Timeout

__all__ = ["ArrayLoader"]

jax.tree_util.register_pytree_node(
    LoDTensor,
    lambda tensor: ((tensor.data, tensor.lod), None),
    lambda _, children: LoDTensor._wrap(*children),
)


def _check_sharding(name: str, value: Any) -> Any:
    """Accept None, a sharding, or a pytree of shardings."""
    for leaf in jax.tree_util.tree_leaves(value):
        if not isinstance(leaf, jax.sharding.Sharding):
            _arguments.refuse(name, "a jax.sharding.Sharding, or a pytree of them", leaf)
    return value


def _from_device_array(leaf: Any) -> Any:
    return jax.dlpack.from_dlpack(leaf) if isinstance(leaf, DeviceArray) else leaf


class ArrayLoader(Loader):
    """Delivers the tuples of a reader with arrays of JAX, which are put on devices ahead of time.

    A loader is iterated like its reader: each ``for`` loop goes through one pass (epoch), and the order is that
    of the reader. It has ``len`` if the reader has.

    Parameters
    ----------
    reader : Reader
        The topmost reader of a chain, usually a `Reader.double_buffer`. Read only from the loader afterwards.
        `close` closes the reader too.
    sharding : jax.sharding.Sharding or pytree of them, optional
        By default, arrays are put on JAX's default device. With a sharding, each array is a global array of it,
        as by ``jax.make_array_from_process_local_data``: this process gives the part of the data that its devices
        hold. A pytree has shardings for parts of the tuple, such as ``(images, labels)``.
    depth : int
        The number of tuples that are put on devices in addition to the one that is being consumed, at least 0.

    Raises
    ------
    StateError
        The reader is closed.

    Notes
    -----
    - Putting an array on a device is asynchronous, so no thread is needed for it. The loader does not wait for a
      tuple if another one is ready.
    - With several processes, each must deliver the same number of tuples of the same shapes, as with
      `Reader.split_batches` and ``drop_last=True``. Otherwise the computations of the processes wait for each
      other.
    - On the CPU, an array of JAX may share the memory of the reader's array. The memory is not reused as long as
      the array of JAX exists.
    - Unless ``jax_enable_x64`` is set, JAX converts 64-bit arrays to 32 bits.
    - A slot with ragged offsets (LoD, level of detail) is delivered as a `LoDTensor` of arrays of JAX. Arrays of
      different lengths make ``jax.jit`` compile again.
    - `state_dict` is the position behind the last tuple that a loop has got. Tuples that were put ahead do not
      count.
    - One thread at a time may loop over a loader.

    Examples
    --------
    >>> import pyfeed
    >>> from pyfeed.jax import ArrayLoader
    >>> reader = pyfeed.random_data([(2,)], count=5).batch(2)
    >>> with ArrayLoader(reader) as loader:
    ...     for epoch in range(2):
    ...         print([x.shape for x, in loader])
    [(2, 2), (2, 2), (1, 2)]
    [(2, 2), (2, 2), (1, 2)]
    """

    @validate(reader=instance(Reader, "a Reader"), sharding=_check_sharding, depth=integer(0, "tuples"))
    def __init__(self, reader: Reader, sharding: Any = None, *, depth: int = 2) -> None:
        super().__init__(reader)
        self._sharding = sharding
        self._depth = depth
        self._position: str | StateError | None = None  # behind the last delivered tuple; None: where the reader is
        self._failed_ahead = False  # whether the reader has raised an error that no loop has raised yet

    def _begin_loop(self) -> Iterator[Any]:
        if self._failed_ahead:  # the reader's next loop would start where it is, not at the next pass
            self._reader.reset()
            self._failed_ahead = self._in_pass = False
        source = super()._begin_loop()
        self._position = None
        return source

    def _convert(self, source: Iterator[Any]) -> Iterator[Any]:
        ahead: deque[tuple[Any, str | StateError]] = deque()
        failure: Exception | None = None  # also StopIteration, the end of the pass
        try:
            while True:
                while failure is None and len(ahead) <= self._depth:
                    try:
                        if ahead and not self._is_ready():
                            break
                        item = next(source)
                        ahead.append((self._put(item), self._position_of_reader()))
                    except Exception as error:
                        failure = error
                        self._failed_ahead = not isinstance(error, StopIteration)
                if ahead:
                    arrays, self._position = ahead.popleft()
                    yield arrays
                    continue
                self._position, self._failed_ahead = None, False
                if failure is None or isinstance(failure, StopIteration):
                    return
                raise failure
        finally:
            del source  # as in Loader.__iter__

    def _is_ready(self) -> bool:
        """Report whether a read does not have to wait. This may raise the error of the read in its place."""
        try:
            self._reader.has_next(0)
        except Timeout:
            return False
        return True

    def _position_of_reader(self) -> str | StateError:
        try:
            return self._reader._get_state()
        except StateError as error:
            return error

    def _put(self, item: Any) -> Any:
        if any(isinstance(leaf, DeviceArray) for leaf in jax.tree_util.tree_leaves(item)):
            item = jax.tree_util.tree_map(_from_device_array, item)
        if self._sharding is None:
            return jax.device_put(item)
        return jax.make_array_from_process_local_data(self._sharding, item)

    def _get_state(self) -> dict[str, Any]:
        if self._position is None:
            return super()._get_state()
        if isinstance(self._position, StateError):
            raise self._position
        state: dict[str, Any] = decode(self._position)
        return state

    def _set_state(self, state: dict[str, Any] | str, strict: bool) -> None:
        super()._set_state(state, strict)
        self._position, self._failed_ahead = None, False
