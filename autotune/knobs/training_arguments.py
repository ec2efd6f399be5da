"""Settings as `TrainingArguments` of transformers 5: the same for a probe of a Trainer and for `autotune export`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.core.records import Value

# What a user may have switched on, and what a configuration that does not name it means.
UNSET = {
    "bf16": False, "fp16": False, "dataloader_persistent_workers": False, "dataloader_prefetch_factor": None,
}  # fmt: skip


def training_arguments(
    loader: Mapping[str, Any], accumulation_steps: int, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """`loader` are options of a DataLoader, `arguments` those that knobs name themselves (`Wording.arguments`)."""
    return {
        "per_device_train_batch_size": loader["batch_size"],
        "gradient_accumulation_steps": accumulation_steps,
        **arguments,
        **{f"dataloader_{name}": value for name, value in loader.items() if name != "batch_size"},
    }


def present(arguments: Mapping[str, Any]) -> dict[str, Value]:
    """The knobs' values that these arguments mean, by knob name."""
    return {
        "batch_size": arguments["per_device_train_batch_size"],
        "gradient_accumulation_steps": arguments["gradient_accumulation_steps"],
        "num_workers": arguments["dataloader_num_workers"],
        "amp_dtype": "bfloat16" if arguments["bf16"] else "float16" if arguments["fp16"] else None,
    }
