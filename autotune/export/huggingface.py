"""The recommendation as `TrainingArguments` of transformers."""

from __future__ import annotations

from autotune.export.recipe import Recipe, call, for_each_batch, program


def text(found: Recipe) -> str:
    """Python about `model`; `args` is for `Trainer(model, args, ...)`. Written for transformers 5."""
    options = {f"dataloader_{name}": value for name, value in found.loader.items() if name != "batch_size"}
    arguments = {
        "output_dir": "out",
        "per_device_train_batch_size": found.loader["batch_size"],
        "gradient_accumulation_steps": found.accumulation_steps,
        **found.arguments,
        **options,
        **({"use_cpu": True} if found.device == "cpu" else {}),
    }
    return program(
        found,
        ("from transformers import TrainingArguments",),
        *found.model,
        f"args = {call('TrainingArguments', **arguments)}",
        for_each_batch(found),
    )
