"""`pyfeed.torch.ReaderDataset`: a reader as a dataset of PyTorch, for code that insists on one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils.data

from . import _arguments, _ranks
from ._arguments import function, integer, validate
from ._reader import Reader
from ._torch_tensors import TensorLoader
from .errors import InvalidArgument


class ReaderDataset(torch.utils.data.IterableDataset[Any]):  # type: ignore[misc]
    """A ``torch.utils.data.IterableDataset`` of the tuples of a reader, for code that needs a dataset.

    Each element is a tuple (a batch, if the reader makes batches) of tensors, as `TensorLoader` delivers it. So
    give it to a ``DataLoader`` or ``StatefulDataLoader`` with ``batch_size=None``. If your code accepts any
    iterable, use a `TensorLoader` instead.

    Each loop goes through one pass (epoch) of the reader. The dataset has ``len`` if the reader has.

    Parameters
    ----------
    make_reader : callable
        Called once in each process that iterates, and returns a `Reader` or a `TensorLoader`. It is called with
        ``rank=`` and ``world=`` if it has parameters of these names: the number of this part of the data, and the
        number of parts. Each worker of each process of the job then reads one part. The processes are those of
        ``torch.distributed`` or of a launcher, as for ``rank="auto"`` of `Reader.shard`. Workers are started
        by pickling, so it must be a function at the top level of a module.

    Raises
    ------
    InvalidArgument
        A loop raises it in a worker of several, if ``make_reader`` has no parameters ``rank`` and ``world``: each
        worker would read all the data.

    Notes
    -----
    A reader works in threads of its own, so it needs no workers: prefer ``num_workers=0``. With workers, use
    ``multiprocessing_context="spawn"``, because readers do not work in a forked process, and
    ``persistent_workers=True``. Workers that are started anew for each epoch begin with the first pass every
    time, unless `set_epoch` is called before.

    ``state_dict`` and ``load_state_dict`` are for torchdata's ``StatefulDataLoader``, which calls them where it
    iterates, and continues with exactly the next tuple. ``torch.utils.data.DataLoader`` does not call them.

    Examples
    --------
    >>> import pyfeed
    >>> from pyfeed.torch import ReaderDataset
    >>> from torch.utils.data import DataLoader
    >>> def make_reader():
    ...     return pyfeed.random_data([()], ["int64"], high=9, count=5).batch(2)
    >>> loader = DataLoader(ReaderDataset(make_reader), batch_size=None)
    >>> [len(x) for x, in loader]
    [2, 2, 1]
    """

    @validate(make_reader=function)
    def __init__(self, make_reader: Callable[..., Reader | TensorLoader]) -> None:
        super().__init__()
        self._make_reader = make_reader
        self._loader: TensorLoader | None = None
        self._epoch: int | None = None
        self._rank_of_process: tuple[int, int] | None = None  # known in a worker, where the job may be unknown

    def __getstate__(self) -> dict[str, Any]:
        """Return what a worker needs: no reader."""
        return {**self.__dict__, "_loader": None, "_rank_of_process": _ranks.find_rank()}

    def __iter__(self) -> Iterator[Any]:
        loader = self._open()
        if self._epoch is not None:
            loader.set_epoch(self._epoch)
            self._epoch = None
        return iter(loader)

    def __len__(self) -> int:
        return len(self._open())

    def __bool__(self) -> bool:
        return True

    @validate(epoch=integer(0))
    def set_epoch(self, epoch: int) -> None:
        """Choose the pass of the next loop in this process, and in workers that are started afterwards.

        As for `TensorLoader.set_epoch`. Accelerate and the Trainer of Hugging Face call this method.

        Parameters
        ----------
        epoch : int
            The number of the pass, from 0.
        """
        self._epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """Return the position behind the last delivered tuple.

        Returns
        -------
        dict

        Raises
        ------
        StateError
            As for `Reader.state_dict`.
        """
        return self._open().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any] | str) -> None:
        """Go to a position that `state_dict` has returned in the same worker of a loader with as many workers.

        Parameters
        ----------
        state_dict : dict or str

        Raises
        ------
        StateError, InvalidArgument, FileError
            As for `Reader.load_state_dict`.
        """
        self._open().load_state_dict(state_dict)
        self._epoch = None

    def _open(self) -> TensorLoader:
        if self._loader is None:
            made = self._make_reader(**self._part())
            if not isinstance(made, (Reader, TensorLoader)):
                _arguments.refuse("make_reader", "a function that returns a Reader or a TensorLoader", made)
            self._loader = made if isinstance(made, TensorLoader) else TensorLoader(made)
        return self._loader

    def _part(self) -> dict[str, int]:
        """Return the arguments of `make_reader`: which part of the data this process reads."""
        rank, world = self._rank_of_process or _ranks.find_rank()
        worker = torch.utils.data.get_worker_info()
        workers = 1 if worker is None else worker.num_workers
        if worker is not None:
            rank, world = rank * workers + worker.id, world * workers
        names = inspect.signature(self._make_reader).parameters
        if "rank" in names and "world" in names:
            return {"rank": rank, "world": world}
        if workers > 1:
            raise InvalidArgument(
                f"make_reader: expected a function with the parameters rank and world, because each of {workers} "
                "workers reads a part of the data, found one without"
            )
        return {}


ReaderDataset.__module__ = "pyfeed.torch"
