"""The recommendation as a JSON configuration of DeepSpeed, and what has to be said in code beside it."""

from __future__ import annotations

import json

from autotune.export.recipe import Recipe, loader


def text(found: Recipe) -> str:
    """JSON for `deepspeed.initialize(config=...)`; the train batch size follows from it and the devices."""
    settings = {
        "train_micro_batch_size_per_gpu": found.loader["batch_size"],
        "gradient_accumulation_steps": found.accumulation_steps,
        **found.arguments,
    }
    return json.dumps(settings, indent=2) + "\n"


def beside(found: Recipe) -> tuple[str, ...]:
    """What JSON has no key for: where the numbers come from, and statements for the script."""
    return (
        *found.remarks,
        *found.setup,
        *found.model,
        loader(found),
        *[found.function] * bool(found.function),
        *found.batch,
    )
