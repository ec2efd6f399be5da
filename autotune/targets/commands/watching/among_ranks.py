"""The messages of each rank of a command to the others, apart from the script's own collectives."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from torch import distributed
from torch.distributed import distributed_c10d
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from autotune.targets.commands.distributed import world_size

ABSENCE_SECONDS = 20.0  # a rank that is so late for a look takes other steps than this one: nothing more is compared
# The same where it is not known yet that all ranks step optimizers: one that only answers others, as a parameter server
# does, never comes. Shorter than the usual limit of a step, so that the rank that waits is not the one that is blamed.
FIRST_ABSENCE_SECONDS = 5.0
SHARDED = "FullyShardedDataParallel"  # of torch, and of FairScale
_POLL_SECONDS = 0.002


def said_by_all(look: int, own: object, *, all_step: bool) -> list[Any]:
    """Return what each rank said at this look, by rank; nothing if one does not come.

    `all_step`: whether all ranks are known to step optimizers.

    Through the store by which the ranks found one another: a collective might come between those of the script.
    """
    store = distributed_c10d.PrefixStore("autotune", distributed_c10d._get_default_store())
    keys = [f"{look}/{rank}" for rank in range(world_size())]
    store.set(keys[distributed.get_rank()], json.dumps(own))
    late = time.monotonic() + (ABSENCE_SECONDS if all_step else FIRST_ABSENCE_SECONDS)
    while not store.check(keys):
        if time.monotonic() > late:
            return []
        time.sleep(_POLL_SECONDS)
    return [json.loads(store.get(key)) for key in keys]


def uses_rpc() -> bool:
    """Return whether the script has begun `torch.distributed.rpc`, which needs no process group."""
    rpc = sys.modules.get("torch.distributed.rpc")
    return rpc is not None and rpc.is_available() and rpc._is_current_rpc_agent_set()


def shares_out(one: object) -> bool:
    """Return whether a module or a parameter is shared out among ranks."""
    return isinstance(one, FSDPModule | DTensor) or type(one).__name__ == SHARDED
