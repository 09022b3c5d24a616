"""Readers in the workers of Ray Train, and their states in Train's checkpoints."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from . import _arguments, _ranks
from ._arguments import function, validate
from .errors import InvalidArgument

_FILE = "pyfeed_reader.json"


class Stateful(Protocol):
    """What has a position that can be saved, such as a `Reader` or a `FeedReader`."""

    def state_dict(self) -> Any:
        """Return the position."""

    def load_state_dict(self, state: Any, /) -> None:
        """Go on at a position."""


_Reader = TypeVar("_Reader", bound=Stateful)


def check_stateful(name: str, value: Any) -> Any:
    """Accept what has a position that can be saved."""
    if not (hasattr(value, "state_dict") and hasattr(value, "load_state_dict")):
        _arguments.refuse(name, "a reader, with state_dict and load_state_dict", value)
    return value


@validate(make_reader=function)
def reader_for_worker(make_reader: Callable[[int, int], _Reader]) -> _Reader:
    """Make the reader of this worker of Ray Train, and go on from the checkpoint of the run, if it has one.

    Parameters
    ----------
    make_reader : callable
        Called with the rank of the worker and the number of workers. It returns the reader, usually
        ``pyfeed.open_files(..., rank=rank, world=world).batch(batch_size // world)``, or
        ``service.reader(rank, world)`` of a `FeedService`.

    Returns
    -------
    Reader
        What `make_reader` has returned.

    Raises
    ------
    InvalidArgument
        The checkpoint of the run has no state of a reader.
    StateError
        The state is one of another chain of readers.

    Notes
    -----
    Outside Ray Train, rank and world are those of ``torch.distributed``, of ``jax.distributed`` or of a launcher, as
    with ``rank="auto"``, and there is no checkpoint. A run that goes on with fewer or more workers sees the same
    batches, of all workers together, as if it had not been interrupted.

    Examples
    --------
    >>> from pyfeed import random_data
    >>> from pyfeed.ray import reader_for_worker
    >>> reader = reader_for_worker(lambda rank, world: random_data([(2,)], count=8).batch(4))
    >>> next(reader)[0].shape
    (4, 2)
    """
    rank, world = _ranks.find_rank()
    reader = make_reader(rank, world)
    check_stateful("make_reader: the result", reader)
    checkpoint = None
    if _ranks.ray_train_context() is not None:
        from ray.train import get_checkpoint  # it needs packages of ray[train]

        checkpoint = get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            reader.load_state_dict(_load(Path(folder) / _FILE))
    return reader


def _load(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidArgument(
            f"checkpoint: expected {_FILE} in it, which save_state writes, found no such file"
        ) from None
    return json.loads(text)


@validate(reader=check_stateful, folder=_arguments.path)
def save_state(reader: Stateful, folder: str | os.PathLike[str]) -> None:
    """Save the position of a reader in a folder that becomes a checkpoint of Ray Train.

    Parameters
    ----------
    reader : Reader or FeedReader
        The topmost reader of its chain.
    folder : str or path
        An existing folder, which is then given to ``ray.train.Checkpoint.from_directory``.

    Raises
    ------
    StateError
        The reader has no position that can be saved, as that of `from_dataset`.
    OSError
        The file cannot be written.

    Notes
    -----
    All workers have the same position after the same number of batches: it is enough if one of them saves it.
    """
    path = Path(os.fspath(folder)) / _FILE
    partial = path.with_suffix(".partial")
    text = json.dumps(reader.state_dict())
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
