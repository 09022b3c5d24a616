"""The iterator of `pyfeed.torch.StatefulDataLoader`, in a module of its own: it needs a private class of torchdata."""

from __future__ import annotations

from torchdata.stateful_dataloader import stateful_dataloader

from ._torch_trainer import SharedMemoryIterator


class StatefulIterator(
    SharedMemoryIterator,
    stateful_dataloader._StatefulMultiProcessingDataLoaderIter,  # type: ignore[misc]
):
    """torchdata's iterator of a loader with workers, with the transport of `pyfeed.torch`."""

    _with_state = True
