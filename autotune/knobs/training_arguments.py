"""Settings as `TrainingArguments` of transformers 5: the same for a probe, an answer, and `autotune export`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.core.records import Value
from autotune.knobs import KNOBS, defaults, plan_of
from autotune.knobs.base import Plan
from autotune.knobs.wording import Framework

# What a user may have switched on, and what a configuration that does not name it means.
UNSET = {
    "bf16": False, "fp16": False, "dataloader_persistent_workers": False, "dataloader_prefetch_factor": None,
}  # fmt: skip
RECOMPUTE = "activation_checkpointing"  # the knob, and the name of the argument from 5.22 on
FORMER_RECOMPUTE = "gradient_checkpointing"  # its name in all versions


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
        "prefetch_factor": arguments.get("dataloader_prefetch_factor"),
        "persistent_workers": None,  # left alone, whatever it is: see `LoaderSwitch`
        "amp_dtype": "bfloat16" if arguments["bf16"] else "float16" if arguments["fp16"] else None,
    }


def in_a_script(arguments: Any) -> dict[str, Value]:
    """Settings and the Trainer's own recomputing as a script writes them: before they are checked and completed."""
    said = (getattr(arguments, name, None) for name in (RECOMPUTE, FORMER_RECOMPUTE))
    return {**present(vars(arguments)), RECOMPUTE: bool(next((one for one in said if one is not None), False))}


def all_arguments(values: Mapping[str, Value], plan: Plan) -> dict[str, Any]:
    """Return the arguments that mean these values of all knobs, of which `plan` was made."""
    words = (one.wording(values[one.name], Framework.HUGGING_FACE, plan.device) for one in KNOBS if one.name in values)
    named = {name: value for word in words for name, value in word.arguments.items()}
    said = training_arguments(plan.loader_options, plan.accumulation_steps, named)
    return said | {name: value for name, value in UNSET.items() if name not in said}


def in_all_versions(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return `arguments` by the names of later versions, too; whoever sets them leaves out what is not there."""
    recomputes = {RECOMPUTE: arguments[FORMER_RECOMPUTE]} if FORMER_RECOMPUTE in arguments else {}
    return {**arguments, **recomputes}


def rewritten(values: Mapping[str, Value], today: Mapping[str, Value]) -> dict[str, Any]:
    """Return the arguments that differ between `values` and those of `today`, as a script has to write them."""
    before, after = (
        {**all_arguments(whole, plan_of(whole, "cpu")), FORMER_RECOMPUTE: whole[RECOMPUTE]}
        for whole in ({**defaults(), **today}, {**defaults(), **values})
    )
    return {name: value for name, value in after.items() if value != before[name]}
