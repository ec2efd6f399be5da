"""The recommendation as an `Accelerator` and the loader for it."""

from __future__ import annotations

from autotune.export.recipe import OPTIMIZER, Recipe, call, loader, program


def text(found: Recipe) -> str:
    """Python about `model`, `dataset`, `loss_fn` and `optimizer`; batches are pairs of tensors. For Accelerate 1."""
    arguments = {
        **found.arguments,
        "gradient_accumulation_steps": found.accumulation_steps,
        **({"cpu": True} if found.device == "cpu" else {}),
    }
    return program(
        found,
        ("from accelerate import Accelerator", "from torch.utils.data import DataLoader"),
        f"accelerator = {call('Accelerator', **arguments)}",
        *found.model,
        loader(found),
        OPTIMIZER,
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
        "for images, labels in loader:",
        *(f"    {line}" for line in found.batch),
        "    with accelerator.accumulate(model), accelerator.autocast():",
        "        loss = loss_fn(model(images), labels)",
        "        accelerator.backward(loss)  # divided by the accumulation, and scaled",
        "        optimizer.step()",
        "        optimizer.zero_grad()",
    )
