"""The rank of this process in its job, and the number of processes of the job (world).

The variables are those of torchrun (https://docs.pytorch.org/docs/stable/elastic/run.html), of Open MPI's ``mpirun``,
of MPICH's and Intel MPI's ``mpiexec``, and of ``srun`` (its man page, "OUTPUT ENVIRONMENT VARIABLES"). Those of
``srun`` come last: the other launchers may start their daemons by ``srun``, and pass its variables on. Within a SLURM
batch script, outside of ``srun``, ``SLURM_PROCID`` and ``SLURM_NTASKS`` are set although there is only one process:
therefore ``SLURM_STEP_NUM_TASKS`` decides, which only ``srun`` sets.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from . import _arguments
from .errors import InvalidArgument

_AUTO = "auto"

# The variables of rank and world, and whether the rank alone shows that there is a launcher.
_LAUNCHERS = [
    ("RANK", "WORLD_SIZE", True),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", True),
    ("PMI_RANK", "PMI_SIZE", True),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", False),
]


def check_rank(name: str, value: Any) -> Any:
    """Accept a rank, or ``"auto"``."""
    if isinstance(value, str):
        return value if value == _AUTO else _arguments.refuse(name, 'an integer or "auto"', value, InvalidArgument)
    return _arguments.number(name, value, 0)


def check_optional_rank(name: str, value: Any) -> Any:
    """Accept a rank, ``"auto"`` or None."""
    return None if value is None else check_rank(name, value)


def resolve(rank: Any, world: int | None) -> tuple[int, int]:
    """Return rank and world of the arguments of a method, which `check_rank` has accepted."""
    if rank == _AUTO:
        if world is not None:
            _arguments.refuse("world", 'no value beside rank="auto"', world, InvalidArgument)
        return find_rank()
    if world is None:
        _arguments.refuse("world", "the number of processes", world)
    return rank, world


def division(rank: int | str | None, world: int | None, virtual_shards: int | None, even: str | None) -> dict[str, Any]:
    """Return the attributes that divide the records among processes."""
    if rank is None:
        for name, value in (("world", world), ("virtual_shards", virtual_shards), ("even", even)):
            if value is not None:
                _arguments.refuse(name, "rank beside it", value, InvalidArgument)
        return {}
    rank, world = resolve(rank, world)
    return {"rank": rank, "world": world, "virtual_shards": virtual_shards, "even": "drop" if even is None else even}


def find_rank() -> tuple[int, int]:
    """Return the rank of this process, and the number of processes of its job.

    They are those of `torch.distributed` or `jax.distributed`, if the process has initialized one of them; else those
    of Ray Train, in one of its workers; else those in the environment; else 0 and 1. No module is imported.
    """
    if _is_initialized("torch.distributed"):
        torch = sys.modules["torch.distributed"]
        rank, world = torch.get_rank(), torch.get_world_size()
        if rank < 0:
            raise InvalidArgument("rank: expected a process of the default group of torch.distributed, found another")
        return rank, world
    if _is_initialized("jax.distributed"):
        jax = sys.modules["jax"]
        return jax.process_index(), jax.process_count()
    context = ray_train_context()
    if context is not None:
        return context.get_world_rank(), context.get_world_size()
    for rank_name, world_name, rank_suffices in _LAUNCHERS:
        if world_name in os.environ or (rank_suffices and rank_name in os.environ):
            return _from_environment(rank_name, world_name)
    return 0, 1


def ray_train_context() -> Any:
    """Return the context of this worker of Ray Train, or None in another process. No module is imported."""
    get_context = getattr(sys.modules.get("ray.train"), "get_context", None)
    try:
        return None if get_context is None else get_context()
    except RuntimeError:  # outside of a training function
        return None


def _from_environment(rank_name: str, world_name: str) -> tuple[int, int]:
    rank, world = _integer(rank_name), _integer(world_name)
    if rank >= world:
        raise InvalidArgument(
            f"rank: expected {rank_name} below {world_name} in the environment, "
            f"found {rank_name}={rank} and {world_name}={world}"
        )
    return rank, world


def _is_initialized(module: str) -> bool:
    # Some builds and versions, and a module that another thread is importing, do not have the function.
    function = getattr(sys.modules.get(module), "is_initialized", None)
    return function is not None and function()


def _integer(name: str) -> int:
    text = os.environ.get(name)
    if text is None:
        raise InvalidArgument(f"rank: expected {name} in the environment, as in that of a launcher, found none")
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        found = _arguments.format_value(text)
        raise InvalidArgument(
            f"rank: expected an integer from 0 to 10^9 - 1 in {name} in the environment, found {found}"
        )
    return int(text)
