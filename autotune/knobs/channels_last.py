"""`channels_last`: the memory format of models with two-dimensional convolutions, and of their inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.core.records import Value
from autotune.knobs.base import Circumstances, MemoryEffect, Plan, SwitchKnob
from autotune.knobs.influence import Factor, Influence
from autotune.knobs.observed import Observed
from autotune.knobs.wording import IMAGE_DIMENSIONS, NOTHING, Framework, Wording

# 1.17 to 1.55 times as fast on a CPU, 1.08 to 1.35 with autocast on GPUs, slower without (docs/notes/throughput.md 2);
# on the surface resnet 1.1 to 1.4, on denoiser, whose layers have eight channels, 0.4 to 0.9.
LAYOUT = Influence(sample_time=Factor(0.9, 0.3), fixed_memory=Factor(1.0, 0.02), sample_memory=Factor(1.0, 0.08))


class ChannelsLast(SwitchKnob):
    """Offered only if the model has two-dimensional convolutions."""

    name = "channels_last"
    alias = "channels_last"
    option_help = "Memory format of convolutions: true,false."
    label = "layout"
    shown = ("nchw", "nhwc")
    words = "channels_last"
    memory = MemoryEffect.CHANGES
    only_computes = True
    arguments = r"(use_)?channels_last"
    effect = LAYOUT

    def is_offered(self, circumstances: Circumstances) -> bool:
        """Return whether the model has convolutions."""
        return circumstances.facts.has_convolution

    def idle(self, values: Mapping[str, Value], circumstances: Circumstances) -> str:
        """Return that the model has no convolutions; empty if it has, or for a program, where that is unknown."""
        facts = circumstances.facts
        return "" if facts.has_convolution or facts.is_program else "the model has no two-dimensional convolutions"

    def wording(self, value: Value, framework: Framework, device: str) -> Wording:
        """Return lines for model and images: no framework has an argument for it."""
        if not value:
            return NOTHING
        return Wording(
            model=("model = model.to(memory_format=torch.channels_last)",),
            images=("contiguous(memory_format=torch.channels_last)",),
        )

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return whether the weights are in that format; both where the images alone are: torch computes in it then."""
        if not observed.channels_last and observed.channels_last_inputs:
            return (False, True)
        return () if observed.channels_last is None else (observed.channels_last,)

    def apply(self, value: Value, plan: Plan) -> None:
        """Convert the model once, and each image batch after its copy to the device."""
        if not value:
            return

        def convert_model(model: Any) -> Any:
            import torch

            return model.to(memory_format=torch.channels_last)

        def convert_batch(tensor: Any) -> Any:
            import torch

            if tensor.dim() != IMAGE_DIMENSIONS:
                return tensor
            return tensor.contiguous(memory_format=torch.channels_last)

        plan.model_transforms.append(convert_model)
        plan.batch_transforms.append(convert_batch)
