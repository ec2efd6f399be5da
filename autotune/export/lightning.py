"""The recommendation as a `Trainer` of Lightning and the loader for it."""

from __future__ import annotations

from typing import Any

from autotune.errors import UsageError
from autotune.export.data import call
from autotune.export.own_training import stays
from autotune.export.ranks import reshards
from autotune.export.recipe import Recipe, assembled, for_each_batch, loader

MADE = "lightning:Trainer"  # from `arguments`
ACCELERATORS = ("cpu", "cuda", "mps")  # of Lightning 2.6.6 those that autotune measures


def text(found: Recipe) -> str:
    """Python about `model` (the LightningModule) and `dataset`; then `trainer.fit(model, loader)`. For Lightning 2.

    Raises `UsageError` for a device that Lightning does not know.
    """
    return assembled(
        found,
        (
            "from lightning import Trainer",
            "from lightning.pytorch.strategies import DDPStrategy",
            "from lightning.pytorch.strategies import FSDPStrategy",
            "from torch.utils.data import DataLoader",
        ),
        *found.model,
        loader(found),
        f"trainer = {call('Trainer', *_strategy(found), **arguments(found))}",
        stays(found.data),
        for_each_batch(found, "training_step"),
        found.beside_optimizer,
    )


def arguments(found: Recipe) -> dict[str, Any]:
    """Return the arguments of the Trainer. Raises `UsageError` for a device that Lightning does not know."""
    if found.device not in ACCELERATORS:
        raise UsageError(
            f"Lightning 2 has no accelerator {found.device}, on which the study was measured. It knows "
            f"{', '.join(ACCELERATORS)}. Use --to torch or --to accelerate, or search again on another device."
        )
    return {
        "accelerator": found.device,
        "devices": found.world_size,
        **({"use_distributed_sampler": False} if found.world_size > 1 and found.data.sharing else {}),
        **found.arguments,
        "accumulate_grad_batches": found.accumulation_steps,
    }


def _strategy(found: Recipe) -> tuple[str, ...]:
    """Return the argument, in Python, that says how ranks train one model; none for the usual way."""
    if found.strategy is not None:
        own = "FULL_SHARD" if reshards(found.strategy) else "SHARD_GRAD_OP"
        return (f"strategy={call('FSDPStrategy', sharding_strategy=own)}",)
    return (f"strategy={call('DDPStrategy', **found.replicated)}",) if found.replicated else ()
