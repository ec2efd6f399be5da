"""The facts of a model that say which knobs can gain with it."""

from __future__ import annotations

from typing import Any

from torch import nn

from autotune.knobs.wording import IMAGE_DIMENSIONS
from autotune.targets.checkpointing import checkpointable_blocks

_IMAGE_CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)  # channels_last is a format of four dimensions
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def model_facts(*models: nn.Module) -> dict[str, Any]:
    """Return fields of `TargetFacts` for a model, in one or several modules, that no knob has changed yet."""
    modules = [part for model in models for part in model.modules()]
    parameters = {id(one): one for model in models for one in model.parameters()}.values()
    return {
        "parameter_count": sum(parameter.numel() for parameter in parameters),
        # Layers of the user's own call `conv2d` with a weight that they hold themselves: it has four dimensions, too.
        "has_convolution": any(isinstance(module, _IMAGE_CONVOLUTIONS) for module in modules)
        or any(parameter.dim() == IMAGE_DIMENSIONS for parameter in parameters),
        "has_batch_norm": any(isinstance(module, _BATCH_NORMS) for module in modules),
        "has_data_parallel": any(isinstance(model, nn.DataParallel) for model in models),
        "compiles_model": any(map(_is_compiled, modules)),
        "checkpointable_blocks": sum(map(checkpointable_blocks, models)),
    }


def _is_compiled(module: nn.Module) -> bool:
    """Return whether it is a module that `torch.compile` returned, or its `compile` was called."""
    return "_orig_mod" in module._modules or module._compiled_call_impl is not None
