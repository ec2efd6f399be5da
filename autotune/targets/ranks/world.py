"""The ranks that train one model together, as one of them sees them: who it is, and what all of them agree on.

    world()            ─► rank, size          from the environment that whoever started the ranks gives each of them
    join(device)                              the group for gradients, and one on the host for a few numbers
    agreed(value)      ─► rank 0's value      gathered(value) ─► everybody's

Only ranks that this package started itself count: those of a distributed launcher in a command are the user's, whose
script makes their group. Where there is one rank nothing here does anything. Imports torch only where there are more.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

RANKS_FOLDER_VARIABLE = "AUTOTUNE_RANKS_FOLDER"  # the folder in which ranks that were started here meet
STORE = "store"  # file in that folder by which the ranks find one another: no port that others may take
_host_group: Any = None  # of gloo, once this process has joined


@dataclass(frozen=True, kw_only=True)
class World:
    """The place of this process among the ranks that train one model."""

    rank: int = 0
    size: int = 1
    folder: Path | None = None  # in which they meet; None: one rank, or ranks that somebody else started


def world() -> World:
    """Return the place of this process, by RANK and WORLD_SIZE; alone where they are not of our making."""
    folder = os.environ.get(RANKS_FOLDER_VARIABLE)
    if not folder:
        return World()
    return World(rank=int(os.environ["RANK"]), size=int(os.environ["WORLD_SIZE"]), folder=Path(folder))


def join(device: str) -> None:
    """Meet the other ranks, once in a process; waits for all of them. `device`: "cpu" by gloo, "cuda:0" by NCCL.

    Nobody leaves by `destroy_process_group`, which may wait for ranks that are gone: a process simply ends.
    """
    if world().size > 1:
        _joined(device)


def agreed(value: int) -> int:
    """Return what rank 0 says, on all ranks: the value itself where there is one rank. Every rank has to call it."""
    return gathered(value)[0]


def gathered(*values: int) -> tuple[int, ...]:
    """Return what every rank says, in the order of ranks. Every rank has to call it; each within 64 bits.

    Of several values all that rank 0 says, then all that rank 1 says, and so on: each rank has to give as many.
    """
    if world().size == 1:
        return values
    import torch
    from torch import distributed

    own = torch.tensor(values, dtype=torch.int64)
    everybody = [torch.empty_like(own) for _ in range(world().size)]
    distributed.all_gather(everybody, own, group=_host_group)
    return tuple(torch.cat(everybody).tolist())


@cache
def _joined(device: str) -> None:
    """Make both groups. A group on the host beside that of NCCL: numbers then never wait for what a GPU computes."""
    global _host_group
    import torch
    from torch import distributed

    own = world()
    assert own.folder is not None, "there are several ranks"
    is_cuda = device.startswith("cuda")
    if is_cuda:
        torch.cuda.set_device(device)
    distributed.init_process_group(
        "nccl" if is_cuda else "gloo",
        init_method=(own.folder / STORE).absolute().as_uri(),
        rank=own.rank,
        world_size=own.size,
        device_id=torch.device(device) if is_cuda else None,
    )
    _host_group = distributed.new_group(backend="gloo")
