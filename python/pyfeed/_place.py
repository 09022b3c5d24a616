"""Places: the kinds of memory that a tensor can be in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ._arguments import format_value, integer, items, number, refuse, validate
from .errors import ArgumentTypeError


class Place(NamedTuple):
    """Where the memory of a tensor is: made by `CPUPlace`, `CUDAPlace` or `CUDAPinnedPlace`.

    Attributes
    ----------
    kind : int
        0: ordinary host memory. 1: the memory of a CUDA device. 2: pinned host memory.
    device : int
        The number of the CUDA device, from 0. It is 0 for the other kinds.
    """

    kind: int
    device: int

    def __repr__(self) -> str:
        return ("CPUPlace()", f"CUDAPlace({self.device})", "CUDAPinnedPlace()")[self.kind]


@validate()
def CPUPlace() -> Place:  # noqa: N802 (Fluid's name)
    """Return the place of ordinary host memory.

    Returns
    -------
    Place

    Examples
    --------
    >>> from pyfeed import CPUPlace
    >>> CPUPlace()
    CPUPlace()
    """
    return Place(0, 0)


@validate(device=integer(0, most=2**31 - 1))
def CUDAPlace(device: int = 0) -> Place:  # noqa: N802
    """Return the place of the memory of a CUDA device.

    The call does not open the CUDA driver. Tuples for this place are written into pinned host memory, and copied
    to the device from there: see `docs/cuda.md`.

    Parameters
    ----------
    device : int
        The number of the device, from 0. Whether the device exists is checked when the place is used.

    Returns
    -------
    Place

    Examples
    --------
    >>> from pyfeed import CUDAPlace
    >>> CUDAPlace(1)
    CUDAPlace(1)
    """
    return Place(1, device)


@validate()
def CUDAPinnedPlace() -> Place:  # noqa: N802
    """Return the place of pinned (page-locked) host memory, from which a GPU can copy without the CPU.

    Returns
    -------
    Place

    Examples
    --------
    >>> from pyfeed import CUDAPinnedPlace
    >>> CUDAPinnedPlace()
    CUDAPinnedPlace()
    """
    return Place(2, 0)


def check_place(name: str, value: Any) -> Place:
    """Accept a place."""
    if isinstance(value, (list, tuple)) and not isinstance(value, Place):  # of dtypes, by position
        found = format_value(value)
        raise ArgumentTypeError(f"{name}: expected a Place, found {found}: dtypes are given by name, dtypes={found}")
    if not isinstance(value, Place):
        refuse(name, "a Place", value)
    number(f"{name}: kind", value.kind, 0, most=2)
    number(f"{name}: device", value.device, 0, most=2**31 - 1)
    return value


def check_places(name: str, value: Any) -> Place | list[Place]:
    """Accept a place, or several."""
    if isinstance(value, Place):
        return check_place(name, value)
    every = items(name, value, "a Place, or a sequence of them")
    if not all(isinstance(one, Place) for one in every):
        refuse(name, "a Place, or a sequence of them", value)
    return [check_place(f"{name}[{i}]", one) for i, one in enumerate(every)]


def place_attribute(place: Place | Sequence[Place]) -> Any:
    """Return a place, or several, as an attribute of an operator."""
    if isinstance(place, Place):
        return {"kind": place.kind, "device": place.device}
    return [place_attribute(each) for each in place]
