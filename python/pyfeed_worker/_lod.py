"""LoDTensor: an array whose first dimension is divided into sequences by ragged offsets (LoD, level of detail)."""

from __future__ import annotations

from . import _lod_tensor


class _Named(type):
    """Accepts pyfeed.LoDTensor as well, in a worker that also imports pyfeed."""

    def __instancecheck__(cls, instance: object) -> bool:
        kind = type(instance)
        return kind is cls or (kind.__name__ == "LoDTensor" and kind.__module__.partition(".")[0] in _PACKAGES)


_PACKAGES = ("pyfeed", "pyfeed_worker")


class LoDTensor(_lod_tensor.LoDTensor, metaclass=_Named):
    __doc__ = _lod_tensor.LoDTensor.__doc__

    __slots__ = ()
