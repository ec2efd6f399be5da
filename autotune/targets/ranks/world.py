"""The ranks that train one model together, as seen by one of them: its number, and values that all agree on.

    world()            ─► rank, size          from the environment that whoever started the ranks gives each of them
    join(device)                              the group for gradients, and one on the host for a few numbers
    agreed(value)      ─► rank 0's value      gathered(value) ─► everybody's

Only ranks that autotune started itself count: for ranks of a distributed launcher in a command, the user's script makes
the group. With one rank all functions here do nothing. Torch is imported only if there are more.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

RANKS_FOLDER_VARIABLE = "AUTOTUNE_RANKS_FOLDER"  # the folder in which ranks that were started here meet
STORE = "store"  # file in that folder by which the ranks find one another; a port could be taken by others
_host_group: Any = None  # of gloo, once this process has joined


@dataclass(frozen=True, kw_only=True)
class World:
    """The place of this process among the ranks that train one model."""

    rank: int = 0
    size: int = 1
    folder: Path | None = None  # in which they meet; None: one rank, or ranks that autotune did not start


def world() -> World:
    """Return the place of this process, by RANK and WORLD_SIZE; alone if autotune did not start the ranks."""
    folder = os.environ.get(RANKS_FOLDER_VARIABLE)
    if not folder:
        return World()
    return World(rank=int(os.environ["RANK"]), size=int(os.environ["WORLD_SIZE"]), folder=Path(folder))


def nccl_variables() -> list[str]:
    """Return the names of the environment variables that steer NCCL, sorted; not of those that only log."""
    return sorted(name for name in os.environ if name.startswith("NCCL_") and not name.startswith("NCCL_DEBUG"))


def join(device: str) -> None:
    """Join the group of ranks, once in a process; waits for all of them. `device`: "cpu" by gloo, "cuda:0" by NCCL.

    The group is never left by `destroy_process_group`, which may wait for ranks that have ended: a process simply ends.
    """
    if world().size > 1:
        _joined(device)


def agreed(value: int) -> int:
    """Return rank 0's value on all ranks; with one rank the value itself. Every rank must call it."""
    return gathered(value)[0]


def gathered(*values: int) -> tuple[int, ...]:
    """Return the values of all ranks, in the order of ranks. Every rank must call it; values have 64 bits.

    If there are several values, all of rank 0 come first, then all of rank 1, and so on: each rank must give equally
    many.
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
    """Make both groups: one for gradients, and one on the host, so that numbers never wait for a GPU."""
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
