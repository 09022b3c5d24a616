"""How a reader was made, so that `Reader.preview` can make the same chain once more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._reader import Reader


class Recipe:
    """The call that has made a reader. It refers to no reader, so that it keeps none alive.

    Attributes
    ----------
    operator : str
        The operator of the library, or ``"from_generator"``.
    attributes : Mapping
        The attributes of the operator.
    inputs : tuple of Recipe
        How the readers were made that it reads from.
    function : callable, optional
        The function of `from_generator`; for `map`, a function that makes the `MapTask` above another reader.
    structure
        The structure of the tuples; None: tuples of arrays. `from_generator` has it in its attributes.
    """

    __slots__ = ("attributes", "function", "inputs", "operator", "structure")

    def __init__(
        self,
        operator: str,
        attributes: Mapping[str, Any],
        inputs: tuple[Recipe, ...] = (),
        function: Any = None,
        structure: Any = None,
    ) -> None:
        self.operator, self.attributes, self.inputs = operator, attributes, inputs
        self.function, self.structure = function, structure

    @classmethod
    def above(cls, operator: str, attributes: Mapping[str, Any], *below: Reader, structure: Any) -> Recipe | None:
        """Return the recipe of a reader on top of others; None if one of them cannot be made again."""
        inputs = tuple(reader._recipe for reader in below if reader._recipe is not None)
        return cls(operator, attributes, inputs, structure=structure) if len(inputs) == len(below) else None
