"""The recommendation as `TrainingArguments` of transformers."""

from __future__ import annotations

from typing import Any

from autotune.export.data import ExportedData, call
from autotune.export.own_training import stays
from autotune.export.recipe import Recipe, assembled, for_each_batch
from autotune.knobs.training_arguments import training_arguments

MADE = "transformers:TrainingArguments"  # from `arguments`
DDP_UNUSED = "ddp_find_unused_parameters"
OPTIM_FUSED = "adamw_torch_fused"  # AdamW alone has a name for its fused update (transformers 5.23, `OptimizerNames`)
ALL_GPUS = (
    "# Trainer takes every GPU that it sees (DataParallel), and the global batch grows with them: hide all but one\n"
    "# by `export CUDA_VISIBLE_DEVICES=0`, or start one process for each with torchrun"
)


def text(found: Recipe) -> str:
    """Python about `model`; `args` is for `Trainer(model, args, ...)`. Written for transformers 5."""
    return assembled(
        found,
        ("from transformers import TrainingArguments",),
        *found.model,
        f"args = {call('TrainingArguments', **arguments(found))}",
        *_for_the_trainer(found.data),
        ALL_GPUS * (found.device == "cuda" and found.world_size == 1),
        stays(found.data),
        for_each_batch(found, "data_collator"),
        found.beside_optimizer * ("optim" not in values(found)),
    )


def arguments(found: Recipe) -> dict[str, Any]:
    """The values, and a folder for what the Trainer writes."""
    return {"output_dir": "out", **values(found)}


def values(found: Recipe) -> dict[str, Any]:
    """The values by the names of `TrainingArguments`, as a file for `HfArgumentParser` has them too."""
    return {
        **training_arguments(found.loader, found.accumulation_steps, found.arguments),
        # Left out, a Trainer searches every graph for parameters without a gradient (transformers 5.23).
        **({DDP_UNUSED: found.finds_unused} if found.replicated is not None and found.finds_unused is not None else {}),
        **({"use_cpu": True} if found.device == "cpu" else {}),
        **({"optim": OPTIM_FUSED} if found.optimizer.get("fused") and found.optimizers == ("AdamW",) else {}),
    }


def _for_the_trainer(data: ExportedData) -> tuple[str, ...]:
    """Return remarks on the parts of the target's own that a Trainer takes: loader, collate, sampler."""
    if data.framework == "hf":  # it has them all
        return ()
    if data.kind == "dataloader":
        return ("# and a subclass of Trainer whose get_train_dataloader() returns your dataloader(...)",)
    return (
        *("# and Trainer(..., data_collator=collate)",) * data.has_collate,
        *("# and a subclass of Trainer whose _get_train_sampler() returns your sampler(dataset)",) * data.has_sampler,
        *data.origin * (data.has_collate or data.has_sampler),
    )
