"""The recommendation as a `Trainer` of Lightning and the loader for it."""

from __future__ import annotations

from autotune.export.recipe import Recipe, call, for_each_batch, loader, program


def text(found: Recipe) -> str:
    """Python about `model` (the LightningModule) and `dataset`; then `trainer.fit(model, loader)`. For Lightning 2."""
    arguments = {
        "accelerator": found.device,
        "devices": 1,
        **found.arguments,
        "accumulate_grad_batches": found.accumulation_steps,
    }
    return program(
        found,
        ("from lightning import Trainer", "from torch.utils.data import DataLoader"),
        *found.model,
        loader(found),
        f"trainer = {call('Trainer', **arguments)}",
        for_each_batch(found),
    )
