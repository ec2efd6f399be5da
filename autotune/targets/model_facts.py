"""The facts of a model that say which knobs can gain with it."""

from __future__ import annotations

from typing import Any

from torch import nn

from autotune.knobs.wording import IMAGE_DIMENSIONS
from autotune.targets.checkpointing import checkpointable_blocks

_IMAGE_CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)  # channels_last is a format of four dimensions
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def model_facts(model: nn.Module) -> dict[str, Any]:
    """Return fields of `TargetFacts` for a model that no knob has changed yet."""
    modules = list(model.modules())
    return {
        "parameter_count": sum(parameter.numel() for parameter in model.parameters()),
        # Layers of the user's own call `conv2d` with a weight that they hold themselves: it has four dimensions, too.
        "has_convolution": any(isinstance(module, _IMAGE_CONVOLUTIONS) for module in modules)
        or any(parameter.dim() == IMAGE_DIMENSIONS for parameter in model.parameters()),
        "has_batch_norm": any(isinstance(module, _BATCH_NORMS) for module in modules),
        "has_data_parallel": isinstance(model, nn.DataParallel),
        "checkpointable_blocks": checkpointable_blocks(model),
    }
