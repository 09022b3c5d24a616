"""Tensors of PyTorch from a reader, and PyTorch's loaders with batches in shared memory that is reused.

`TensorLoader` delivers the tuples of a `Reader` as tensors, and `ReaderDataset` is a dataset of them.
`docs/frameworks.md` shows both.

`DataLoader` and `StatefulDataLoader` take a dataset of yours. They are drop-in replacements: the arguments,
the order, the seeds and the exceptions are those of ``torch.utils.data.DataLoader`` and of
``torchdata.stateful_dataloader.StatefulDataLoader``, whose iterators they use. Only the way of a batch from a
worker to the trainer differs. `docs/from_torch.md` describes it.

Importing this module imports PyTorch. All its tests run with PyTorch 2.15 and torchdata 0.11, and a part of
them ran with PyTorch 2.12, 2.13 and 2.14. With other versions, and without worker processes, `DataLoader` and
`StatefulDataLoader` work as their base classes do.

Examples
--------
>>> from pyfeed.torch import DataLoader
>>> loader = DataLoader([0.5, 1.5, 2.5], batch_size=2)
>>> [batch.tolist() for batch in loader]
[[0.5, 1.5], [2.5]]
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.utils.data

from ._torch_dataset import ReaderDataset
from ._torch_tensors import TensorLoader
from .errors import UnsupportedError

__all__ = ["DataLoader", "ReaderDataset", "StatefulDataLoader", "TensorLoader"]

_TESTED_TORCH = ("2.12", "2.13", "2.14", "2.15")
_TESTED_TORCHDATA = ("0.11",)

_Item = TypeVar("_Item", covariant=True)


def _is_tested(package: str, version: str, tested: tuple[str, ...]) -> bool:
    if ".".join(str(version).split(".")[:2]) in tested:
        return True
    warnings.warn(
        f"pyfeed.torch is tested with {package} {', '.join(tested)}, and {package} is {version}: "
        f"batches are sent as {package} sends them",
        RuntimeWarning,
        stacklevel=4,
    )
    return False


class DataLoader(torch.utils.data.DataLoader[_Item]):  # type: ignore[misc]
    """A ``torch.utils.data.DataLoader`` whose workers collate batches in shared memory that is reused.

    It takes the same arguments, and differs from it in these points only:

    - A batch lies in memory that its worker reuses when the last tensor over it is deleted. It is in no file
      system, so the size of ``/dev/shm`` does not limit it, and tensors that are kept need no descriptors.
    - With the start methods spawn and forkserver, processes with a large dataset start side by side.
    - The trainer notices at once that a worker ended unexpectedly, whatever the start method.
    - Workers ignore SIGINT. Ctrl-C raises a KeyboardInterrupt in the trainer only.
    - If a batch cannot be pickled, the loop raises the error.

    With a version of PyTorch that is not tested, it warns and uses PyTorch's own transport.

    Examples
    --------
    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> from pyfeed.torch import DataLoader
    >>> data = TensorDataset(torch.arange(6.0).reshape(6, 1), torch.arange(6))
    >>> loader = DataLoader(data, batch_size=3, num_workers=2)  # doctest: +SKIP
    >>> [label.tolist() for _, label in loader]  # doctest: +SKIP
    [[0, 1, 2], [3, 4, 5]]
    """

    def _get_iterator(self) -> Any:
        if self.num_workers == 0 or not _is_tested("torch", torch.__version__, _TESTED_TORCH):
            return super()._get_iterator()
        from ._torch_trainer import DataLoaderIterator  # needs private classes that other versions may lack

        self.check_worker_number_rationality()
        return DataLoaderIterator(self)


if TYPE_CHECKING:
    from ._torch_stateful import StatefulDataLoader
else:

    def __getattr__(name: str) -> Any:
        if name != "StatefulDataLoader":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            from ._torch_stateful import StatefulDataLoader
        except ModuleNotFoundError as error:
            if error.name != "torchdata":
                raise
            return _WithoutTorchdata
        globals()[name] = StatefulDataLoader
        return StatefulDataLoader


class _WithoutTorchdata:
    """StatefulDataLoader in an environment without torchdata."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError("StatefulDataLoader needs the package torchdata: pip install torchdata==0.11.0")
