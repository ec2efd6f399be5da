"""The recommendation as `TrainingArguments` of transformers."""

from __future__ import annotations

from autotune.export.data import Data, call
from autotune.export.recipe import Recipe, for_each_batch, program

ALL_GPUS = (
    "# Trainer takes every GPU that it sees (DataParallel), and the global batch grows with them: hide all but one\n"
    "# by `export CUDA_VISIBLE_DEVICES=0`, or start one process for each with torchrun"
)


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
        *_for_the_trainer(found.data),
        ALL_GPUS * (found.device == "cuda"),
        for_each_batch(found),
    )


def _for_the_trainer(data: Data) -> tuple[str, ...]:
    """What the target brings of its own, where a Trainer takes it: remarks."""
    if data.kind == "dataloader":
        return ("# and a subclass of Trainer whose get_train_dataloader() returns your dataloader(...)",)
    return (
        *("# and Trainer(..., data_collator=collate)",) * data.has_collate,
        *("# and a subclass of Trainer whose _get_train_sampler() returns your sampler(dataset)",) * data.has_sampler,
    )
