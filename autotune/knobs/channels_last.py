"""`channels_last`: the memory format of models with two-dimensional convolutions, and of their inputs."""

from __future__ import annotations

from typing import Any

from autotune.knobs.base import Circumstances, Knob, MemoryEffect, Plan, allowed, check_switch, parse_switch
from autotune.knobs.influence import NEUTRAL, Factor, Influence
from autotune.knobs.wording import IMAGE_DIMENSIONS, NOTHING, Framework, Wording
from autotune.records import Value

# 1.17 to 1.55 times as fast on a CPU, 1.08 to 1.35 with autocast on GPUs, slower without (docs/notes/throughput.md 2);
# on the surface resnet 1.1 to 1.4, on denoiser, whose layers have eight channels, 0.4 to 0.9.
LAYOUT = Influence(sample_time=Factor(0.9, 0.3), fixed_memory=Factor(1.0, 0.02), sample_memory=Factor(1.0, 0.08))


class ChannelsLast(Knob):
    """Offered only if the model has convolutions; nothing else can gain."""

    name = "channels_last"
    alias = "channels_last"
    label = "layout"
    ordered = False
    default: Value = False
    memory = MemoryEffect.CHANGES

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Both, or only False without convolutions."""
        offered: tuple[Value, ...] = (False, True) if circumstances.facts.has_convolution else (False,)
        return allowed(offered, circumstances.limit)

    def check(self, value: Value) -> None:
        """True or False."""
        check_switch(value, self.name)

    def parse(self, text: str) -> Value:
        """`true` or `false`."""
        return parse_switch(text, self.name)

    def show(self, value: Value) -> str:
        """`nhwc` or `nchw`."""
        return "nhwc" if value else "nchw"

    def phrase(self, value: Value) -> str:
        """`channels_last`, or nothing."""
        return "channels_last" if value else ""

    def caution(self, value: Value) -> float:
        """0: the numbers differ by rounding only."""
        return 0.0

    def influence(self, value: Value) -> Influence:
        """Faster convolutions, or slower ones."""
        return LAYOUT if value else NEUTRAL

    def wording(self, value: Value, framework: Framework, device: str) -> Wording:
        """Lines for model and images: no framework has an argument for it."""
        if not value:
            return NOTHING
        return Wording(
            model=("model = model.to(memory_format=torch.channels_last)",),
            images=("contiguous(memory_format=torch.channels_last)",),
        )

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
