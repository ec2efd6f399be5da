"""The recommendation as an `Accelerator` and the loader for it, and as the file that starts its processes."""

from __future__ import annotations

from typing import Any

from autotune.export.data import call
from autotune.export.own_training import kept
from autotune.export.ranks import reshards
from autotune.export.recipe import Recipe, assembled, epochs, loader

MADE = "accelerate:Accelerator"  # from `arguments`


def text(found: Recipe) -> str:
    """Python about `model`, `dataset`, `loss_fn`, `optimizer` and `epochs`. For Accelerate 1.

    The prepared model autocasts by itself, the loss beside it does not: hence the context, around both and no more.
    Where the target trains by code of its own, with `optimizers`, it ends before the loop.
    """
    plugin, sharing = "", tuple[str, ...]()
    if found.strategy is not None:
        plugin = f"plugin = {call('FullyShardedDataParallelPlugin', **_sharded(found.strategy))}"
        sharing = ("fsdp_plugin=plugin",)
    elif found.replicated:
        sharing = (f"kwargs_handlers=[{call('DistributedDataParallelKwargs', **found.replicated)}]",)
    return assembled(
        found,
        (
            "from accelerate import Accelerator",
            "from accelerate.utils import DistributedDataParallelKwargs",
            "from accelerate.utils import FullyShardedDataParallelPlugin",
            "from torch.utils.data import DataLoader",
        ),
        plugin,
        f"accelerator = {call('Accelerator', *sharing, **arguments(found))}",
        *found.model,
        loader(found),
        found.optimizer_line,
        *(_own(found) if found.data.own_training else _loop(found)),
    )


def _own(found: Recipe) -> tuple[str, ...]:
    accumulates = found.accumulation_steps > 1
    return (
        "model, loader, *optimizers = accelerator.prepare(model, loader, *optimizers)",
        *kept(
            found.data,
            batch=found.batch,
            context="with accelerator.autocast():",
            backward="accelerator.backward(loss)",
            accumulation="with accelerator.accumulate(model):, around each micro-batch" * accumulates,
        ),
    )


def _loop(found: Recipe) -> tuple[str, ...]:
    accumulates = found.accumulation_steps > 1
    step: tuple[str, ...] = (
        "with accelerator.autocast():",
        f"    loss = {found.data.loss}",
        f"accelerator.backward(loss){'  # divided by the accumulation' * accumulates}",
        "optimizer.step()",
        "optimizer.zero_grad()",
    )
    if accumulates:
        step = ("with accelerator.accumulate(model):", *(f"    {line}" for line in step))
    return (
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
        *epochs(found, *found.batch, *step),
    )


def _sharded(strategy: str) -> dict[str, Any]:
    """Return the arguments of the plugin; with `fsdp_` before them they are the keys of the file."""
    return {
        "fsdp_version": 2,
        "reshard_after_forward": reshards(strategy),
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    }


def arguments(found: Recipe) -> dict[str, Any]:
    """Return the arguments of `Accelerator(...)`, by name."""
    return {
        **found.arguments,
        **({"gradient_accumulation_steps": found.accumulation_steps} if found.accumulation_steps > 1 else {}),
        **({"cpu": True} if found.device == "cpu" else {}),
    }


def values(found: Recipe) -> dict[str, Any]:
    """Return what `accelerate launch --config_file` reads: how many processes start here, their precision, and FSDP.

    Without mpirun, MULTI_CPU starts one process (1.15); MULTI_GPU starts all, which `use_cpu` then keeps on the CPU.
    """
    kind = "MULTI_GPU" if found.world_size > 1 else "NO"
    sharded = {}
    if found.strategy is not None:
        kind, names = "FSDP", _sharded(found.strategy)
        sharded = {"fsdp_config": {f"fsdp_{name.removeprefix('fsdp_')}": value for name, value in names.items()}}
    return {
        "distributed_type": kind,
        "num_processes": found.world_size,
        "num_machines": 1,
        "machine_rank": 0,
        "use_cpu": found.device == "cpu",
        "mixed_precision": found.arguments["mixed_precision"],
        **sharded,
    }
