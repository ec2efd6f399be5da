"""`activation_checkpointing`: store less of the forward pass, and recompute it in the backward pass."""

from __future__ import annotations

from typing import Any

from autotune.core.records import TargetFacts, Value
from autotune.knobs.base import NOT_DONE, MemoryEffect, Plan, SwitchKnob
from autotune.knobs.influence import Factor, Influence
from autotune.knobs.observed import Observed
from autotune.knobs.wording import NOTHING, Framework, Wording

FEWEST_BLOCKS = 2  # one block alone needs all its memory again when it is recomputed
# The forward pass is a third of the time and runs twice. Memory of a sample: -53 % in full precision and -37 % with
# autocast for a small GPT (docs/notes/throughput.md 4), more for deeper models.
RECOMPUTED = Influence(
    fixed_time=Factor(4 / 3, 0.08),
    sample_time=Factor(4 / 3, 0.08),
    fixed_memory=Factor(1.0, 0.03),
    sample_memory=Factor(0.5, 0.4),
)


class ActivationCheckpointing(SwitchKnob):
    """Offered where the model has blocks to recompute.

    The arithmetic is the same: random numbers are replayed, and BatchNorm counts a batch once.
    """

    name = "activation_checkpointing"
    alias = "checkpointing"
    arguments = r"(use_|enable_)?(grad(ient)?|activation)_?checkpoint(ing|s)?"
    option_help = "Recompute activations to save memory: true,false."
    label = "recompute"
    shown = (NOT_DONE, "ckpt")
    words = "activation checkpointing"
    memory = MemoryEffect.CHANGES
    only_computes = True
    effect = RECOMPUTED

    def is_offered(self, facts: TargetFacts) -> bool:
        """Return whether there are blocks to recompute."""
        return facts.checkpointable_blocks >= FEWEST_BLOCKS

    def caution(self, value: Value) -> float:
        """Return 1 for on: it changes the classes of the model's blocks."""
        return float(bool(value))

    def wording(self, value: Value, framework: Framework, device: str) -> Wording:
        """Return the function that the probes used: the frameworks' own cover other parts or their own models only."""
        if not value:
            return NOTHING
        return Wording(setup=("import autotune",), model=("model = autotune.checkpoint_blocks(model)",))

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return whether activations were recomputed."""
        return () if observed.recomputes is None else (observed.recomputes,)

    def apply(self, value: Value, plan: Plan) -> None:
        """Make the blocks of the model recompute."""
        if not value:
            return

        def recompute(model: Any) -> Any:
            from autotune.targets.checkpointing import checkpoint_blocks  # torch

            return checkpoint_blocks(model)

        plan.model_transforms.append(recompute)
