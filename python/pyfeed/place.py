"""Places: where the memory of a tensor is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Place(NamedTuple):
    """A sort of memory. Make one with `CPUPlace`, `CUDAPlace` or `CUDAPinnedPlace`."""

    kind: int
    device: int

    def __repr__(self) -> str:
        return ("CPUPlace()", f"CUDAPlace({self.device})", "CUDAPinnedPlace()")[self.kind]


def CPUPlace() -> Place:  # noqa: N802 (Fluid's name)
    """Ordinary memory."""
    return Place(0, 0)


def CUDAPlace(device: int = 0) -> Place:  # noqa: N802
    """The memory of a GPU. What is pushed for it is written into pinned memory, and copied from there."""
    return Place(1, device)


def CUDAPinnedPlace() -> Place:  # noqa: N802
    """Host memory that GPUs copy from by themselves."""
    return Place(2, 0)


def one(place: Place | None) -> Place:
    """A place: the CPU's if none is given."""
    if place is None:
        return CPUPlace()
    if not isinstance(place, Place):
        raise TypeError(f"place: expected a Place, found {place!r}")
    return place


def attribute(place: Place | Sequence[Place] | None) -> Any:
    """A place, or several, as an operator is told of it."""
    if place is None:
        return attribute(CPUPlace())
    if isinstance(place, Place):
        return {"kind": place.kind, "device": place.device}
    if all(isinstance(p, Place) for p in place):
        return [attribute(p) for p in place]
    raise TypeError(f"place: expected a Place, or a sequence of them, found {place!r}")
