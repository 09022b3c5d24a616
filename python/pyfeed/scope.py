"""Scopes: variables by name, which C++ finds what Python made in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from . import _attributes, _native
from ._arguments import anything, flag, instance, integer, optional, takes, text

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

    @takes(parent=optional(instance(_native.Scope, "a Scope")))
    def __new__(cls, parent: Scope | None = None) -> Scope:
        return cls._new(0 if parent is None else parent.handle)

    @takes(name=text)
    def var(self, name: str) -> ScopeVariable:
        """The variable of that name in this scope itself: made, empty, if there is none.

        Examples
        --------
        >>> from pyfeed import CPUPlace, PyArrayFeedQueueHolder, Scope
        >>> variable = Scope().var("feeder")
        >>> variable
        <ScopeVariable 'feeder': empty>
        >>> queue = PyArrayFeedQueueHolder(variable).init_once(2, [(-1,)], CPUPlace())
        >>> variable.kind
        'queue'
        """
        return ScopeVariable(self, self._use(name, lambda _: name, make=True))

    def _use(self, name: str, function: Callable[[int], T], *, make: bool = False) -> T:
        """Call function with the variable's handle, which is good for that call only."""
        return self._with_var(name, make, function)

    def _create(self, op: str, out: str, *ins: str, **attributes: object) -> None:
        """Run the operator `op`: a reader of those in the variables `ins`, into the variable `out`."""
        self._create_reader(op, out, ins, _attributes.encode(attributes))

    @takes(out=text, feeder_name=text)
    def create_py_array_reader(self, out: str, feeder_name: str) -> None:
        """The operator: a reader of the queue in variable `feeder_name`, into variable `out`."""
        self._create("create_py_array_reader", out, feeder_name=feeder_name)

    @takes(out=text, reader=text, batch_size=integer(1, "tuple"), drop_last=flag, ragged=flag)
    def create_batch_reader(
        self, out: str, reader: str, batch_size: int, drop_last: bool = False, *, ragged: bool = False
    ) -> None:
        """The operator: batches of what the reader in variable `reader` delivers. See `Reader.batch`."""
        self._create("create_batch_reader", out, reader, batch_size=batch_size, drop_last=drop_last, ragged=ragged)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        try:
            self.kind(name)
        except (LookupError, ValueError):
            return False
        return True

    def __getitem__(self, name: str) -> Any:
        """A read-only array over the tensor in a variable. It stays valid, and as it is."""
        return self.get_tensor(name)

    def __setitem__(self, name: str, array: Any) -> None:
        """Copy an array into a variable."""
        self.set_tensor(name, array)


a_scope = instance(Scope, "a Scope")


class ScopeVariable:
    """A variable of a scope, as `Scope.var` gives it.

    Attributes
    ----------
    scope : Scope
    name : str
    """

    __slots__ = ("name", "scope")

    @takes(scope=a_scope, name=text)
    def __init__(self, scope: Scope, name: str) -> None:
        self.scope, self.name = scope, name

    @property
    def kind(self) -> str:
        """What it holds: ``"empty"``, ``"tensor"``, ``"queue"`` or ``"reader"``."""
        return self.scope.kind(self.name)

    @takes()
    def get_tensor(self) -> Any:
        """A read-only array over the tensor in it. It stays valid, and as it is."""
        return self.scope.get_tensor(self.name)

    @takes(array=anything)
    def set_tensor(self, array: Any) -> None:
        """Copy an array into it."""
        self.scope.set_tensor(self.name, array)

    def __repr__(self) -> str:
        return f"<ScopeVariable {self.name!r}: {self.kind}>"


_global: Scope | None = None


@takes()
def global_scope() -> Scope:
    """The scope that all parts of the process share, C++ included."""
    global _global
    if _global is None:
        _global = Scope._global()
    return _global
