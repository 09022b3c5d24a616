"""Scopes, which map names to variables. C++ finds queues and readers that Python made by these names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from . import _attributes, _native
from ._arguments import anything, flag, instance, integer, optional, text, validate

T = TypeVar("T")


class Scope(_native.Scope):
    """A map from names to variables. A variable contains a tensor, a queue or a reader, or is empty.

    C++ gets the scope as a number, ``handle``, and finds variables by their names. A variable lives until it is
    erased, or until the scope is released. All methods may be called from any thread.

    ``scope[name]`` returns the tensor in a variable as a read-only array, as `get_tensor` does.
    ``scope[name] = array`` copies an array into a variable, as `set_tensor` does. ``name in scope`` tells whether
    the scope or a parent has the variable.

    Parameters
    ----------
    parent : Scope, optional
        A scope in which look-ups continue that fail in this one. The scope keeps its parent alive. By default,
        there is no parent.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed import Scope
    >>> scope = Scope()
    >>> scope["weight"] = np.ones(2)
    >>> scope["weight"].tolist(), "bias" in scope
    ([1.0, 1.0], False)
    """

    @validate(parent=optional(instance(_native.Scope, "a Scope")))
    def __new__(cls, parent: Scope | None = None) -> Scope:
        return cls._new(0 if parent is None else parent.handle)

    @validate(name=text)
    def var(self, name: str) -> ScopeVariable:
        """Return the variable of a name in this scope itself. If there is none, an empty variable is made.

        Parameters
        ----------
        name : str
            The name of the variable. Parents are not searched.

        Returns
        -------
        ScopeVariable

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
        """Call a function with the handle of a variable, which is valid during this call only."""
        return self._with_var(name, make, function)

    def _create(self, op: str, out: str, *ins: str, **attributes: object) -> None:
        """Run the operator `op`, which makes a reader of the readers in `ins`, in the variable `out`."""
        self._create_reader(op, out, ins, _attributes.encode(attributes))

    @validate(out=text, feeder_name=text)
    def create_py_array_reader(self, out: str, feeder_name: str) -> None:
        """Create a reader of a queue, by the operator ``create_py_array_reader``. `Reader.in_variable` returns it.

        Parameters
        ----------
        out : str
            The name of the variable for the reader. It is made if it does not exist.
        feeder_name : str
            The name of the variable that contains the queue.

        Raises
        ------
        NotFoundError
            There is no variable `feeder_name`.
        StateError
            The variable `feeder_name` contains no queue.
        """
        self._create("create_py_array_reader", out, feeder_name=feeder_name)

    @validate(out=text, reader=text, batch_size=integer(1, "tuple"), drop_last=flag, ragged=flag)
    def create_batch_reader(
        self, out: str, reader: str, batch_size: int, drop_last: bool = False, *, ragged: bool = False
    ) -> None:
        """Create a reader of batches, by the operator ``create_batch_reader``. See `Reader.batch`.

        Parameters
        ----------
        out : str
            The name of the variable for the new reader. It is made if it does not exist.
        reader : str
            The name of the variable that contains the reader to read from.
        batch_size, drop_last, ragged
            As for `Reader.batch`.

        Raises
        ------
        NotFoundError
            There is no variable `reader`.
        StateError
            The variable `reader` contains no reader.
        """
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
        """Return a read-only view of the tensor in a variable. It stays valid and unchanged."""
        return self.get_tensor(name)

    def __setitem__(self, name: str, array: Any) -> None:
        """Copy an array into a variable."""
        self.set_tensor(name, array)


check_scope = instance(Scope, "a Scope")


class ScopeVariable:
    """A variable of a scope, as `Scope.var` returns it.

    Attributes
    ----------
    scope : Scope
        The scope that the variable is in.
    name : str
        The name of the variable.
    """

    __slots__ = ("name", "scope")

    @validate(scope=check_scope, name=text)
    def __init__(self, scope: Scope, name: str) -> None:
        self.scope, self.name = scope, name

    @property
    def kind(self) -> str:
        """What the variable contains: ``"empty"``, ``"tensor"``, ``"queue"`` or ``"reader"``."""
        return self.scope.kind(self.name)

    @validate()
    def get_tensor(self) -> Any:
        """Return a read-only view of the tensor in the variable.

        Returns
        -------
        numpy.ndarray, LoDTensor or DeviceArray
            The view stays valid and unchanged when the variable is written later.

        Raises
        ------
        NotFoundError
            The variable was erased.
        StateError
            The variable contains no tensor.
        """
        return self.scope.get_tensor(self.name)

    @validate(array=anything)
    def set_tensor(self, array: Any) -> None:
        """Copy an array into the variable, in place of its content.

        Parameters
        ----------
        array : array
            A `LoDTensor`, or any array as for `PyArrayFeedQueue.push`.
        """
        self.scope.set_tensor(self.name, array)

    def __repr__(self) -> str:
        return f"<ScopeVariable {self.name!r}: {self.kind}>"


_global: Scope | None = None


@validate()
def global_scope() -> Scope:
    """Return the global scope, which Python and C++ share within the process.

    Returns
    -------
    Scope

    Examples
    --------
    >>> from pyfeed import global_scope
    >>> global_scope() is global_scope()
    True
    """
    global _global
    if _global is None:
        _global = Scope._global()
    return _global
