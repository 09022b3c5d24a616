"""`pyfeed.torch.StatefulDataLoader`, in a module of its own: it needs torchdata."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
import torchdata
from torchdata.stateful_dataloader import stateful_dataloader

from . import torch as _module

_Item = TypeVar("_Item", covariant=True)


class StatefulDataLoader(stateful_dataloader.StatefulDataLoader[_Item]):  # type: ignore[misc]
    """A ``torchdata.stateful_dataloader.StatefulDataLoader`` with the transport of `DataLoader`.

    It takes the same arguments, and has ``state_dict`` and ``load_state_dict``. A state of torchdata's class can be
    loaded into this one, and the other way round. It needs the package torchdata. With versions of PyTorch or torchdata
    that are not tested, it warns and uses torchdata's own transport.

    It is a class of its own because a state costs time in each batch, and because trainers such as Lightning save the
    state of every loader that has a ``state_dict``.

    Raises
    ------
    UnsupportedError
        torchdata is not installed.
    """

    next_iter_state: Any

    def _get_iterator(self) -> Any:
        if (
            self.num_workers == 0
            or not _module._is_tested("torch", torch.__version__, _module._TESTED_TORCH)
            or not _module._is_tested("torchdata", torchdata.__version__, _module._TESTED_TORCHDATA)
        ):
            return super()._get_iterator()
        from ._torch_stateful_iterator import StatefulIterator  # needs a private class of torchdata

        self.check_worker_number_rationality()
        iterator = StatefulIterator(self, self.next_iter_state)
        self.next_iter_state = None
        return iterator


StatefulDataLoader.__module__ = "pyfeed.torch"
