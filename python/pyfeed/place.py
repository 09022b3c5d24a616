"""Places: where the memory of a tensor is."""

from __future__ import annotations

from typing import NamedTuple


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
    """The memory of a GPU. This version has no reader or queue there yet: it is refused by name."""
    return Place(1, device)


def CUDAPinnedPlace() -> Place:  # noqa: N802
    """Host memory that GPUs copy from by themselves. Refused by name by this version."""
    return Place(2, 0)
