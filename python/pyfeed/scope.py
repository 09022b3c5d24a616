"""Scopes: variables by name, which C++ finds what Python made in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from . import _attributes, _native

T = TypeVar("T")


class Scope(_native.Scope):
    """A map from names to variables, which hold a tensor, a queue or a reader.

    A C++ executor gets the scope by its number, `handle`, and finds in it by name what Python put
    there. Variables live until they are erased or the scope goes.

    Parameters
    ----------
    parent : Scope, optional
        Where look-ups go on that fail here. It is kept alive.
    """

    def __new__(cls, parent: Scope | None = None) -> Scope:
        return cls._new(0 if parent is None else parent.handle)

    def _use(self, name: str, function: Callable[[int], T], *, make: bool = False) -> T:
        """Call function with the variable's handle, which is good for that call only."""
        return self._with_var(name, make, function)

    def _create(self, op: str, out: str, *ins: str, **attributes: object) -> None:
        """Run the operator `op`: a reader of those in the variables `ins`, into the variable `out`."""
        self._create_reader(op, out, ins, _attributes.encode(attributes))

    def create_py_array_reader(self, out: str, feeder_name: str) -> None:
        """The operator: a reader of the queue in variable `feeder_name`, into variable `out`."""
        self._create("create_py_array_reader", out, feeder_name=feeder_name)

    def create_batch_reader(self, out: str, reader: str, batch_size: int, drop_last: bool = False) -> None:
        """The operator: batches of what the reader in variable `reader` delivers. See `Reader.batch`."""
        size = _attributes.number("batch_size", batch_size, 1, "tuple")
        self._create("create_batch_reader", out, reader, batch_size=size, drop_last=bool(drop_last))

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        try:
            self.kind(name)
        except LookupError:
            return False
        return True

    def __getitem__(self, name: str) -> Any:
        """A read-only array over the tensor in a variable. It stays valid, and as it is."""
        return self.get_tensor(name)

    def __setitem__(self, name: str, array: Any) -> None:
        """Copy an array into a variable."""
        self.set_tensor(name, array)


_global: Scope | None = None


def global_scope() -> Scope:
    """The scope that all parts of the process share, C++ included."""
    global _global
    if _global is None:
        _global = Scope._global()
    return _global
