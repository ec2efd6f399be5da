"""The recommendation as a JSON configuration of DeepSpeed, and the code that has to accompany it."""

from __future__ import annotations

from typing import Any

from autotune.export.plain import as_json
from autotune.export.recipe import Recipe, loader


def text(found: Recipe) -> str:
    """JSON for `deepspeed.initialize(config=...)`; that of several devices refuses another number of them."""
    return as_json(values(found))


def values(found: Recipe) -> dict[str, Any]:
    """Return the recommended values by DeepSpeed's configuration keys."""
    return {
        "train_micro_batch_size_per_gpu": found.loader["batch_size"],
        "gradient_accumulation_steps": found.accumulation_steps,
        **(
            {"train_batch_size": found.loader["batch_size"] * found.accumulation_steps * found.world_size}
            if found.world_size > 1
            else {}
        ),
        **found.arguments,
    }


def lines_beside(found: Recipe) -> tuple[str, ...]:
    """Return the lines next to the JSON, which has no keys for them: where the numbers come from, and statements."""
    return (
        *found.remarks,
        *found.setup,
        *found.model,
        loader(found),
        *[found.function] * bool(found.function),
        *found.batch,
        *[found.beside_optimizer] * bool(found.beside_optimizer),
    )
