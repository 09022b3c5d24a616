"""Places: where the memory of a tensor is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ._arguments import integer, items, number, refuse, takes


class Place(NamedTuple):
    """A sort of memory. Make one with `CPUPlace`, `CUDAPlace` or `CUDAPinnedPlace`."""

    kind: int
    device: int

    def __repr__(self) -> str:
        return ("CPUPlace()", f"CUDAPlace({self.device})", "CUDAPinnedPlace()")[self.kind]


@takes()
def CPUPlace() -> Place:  # noqa: N802 (Fluid's name)
    """Ordinary memory."""
    return Place(0, 0)


@takes(device=integer(0, most=2**31 - 1))
def CUDAPlace(device: int = 0) -> Place:  # noqa: N802
    """The memory of a GPU. What is pushed for it is written into pinned memory, and copied from there."""
    return Place(1, device)


@takes()
def CUDAPinnedPlace() -> Place:  # noqa: N802
    """Host memory that GPUs copy from by themselves."""
    return Place(2, 0)


def a_place(name: str, value: Any) -> Place:
    """A place."""
    if not isinstance(value, Place):
        refuse(name, "a Place", value)
    number(f"{name}: kind", value.kind, 0, most=2)
    number(f"{name}: device", value.device, 0, most=2**31 - 1)
    return value


def places(name: str, value: Any) -> Place | list[Place]:
    """A place, or several."""
    if isinstance(value, Place):
        return a_place(name, value)
    every = items(name, value, "a Place, or a sequence of them")
    if not all(isinstance(one, Place) for one in every):
        refuse(name, "a Place, or a sequence of them", value)
    return [a_place(f"{name}[{i}]", one) for i, one in enumerate(every)]


def attribute(place: Place | Sequence[Place]) -> Any:
    """A place, or several, as an operator is told of it."""
    if isinstance(place, Place):
        return {"kind": place.kind, "device": place.device}
    return [attribute(each) for each in place]
