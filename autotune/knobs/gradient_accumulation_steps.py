"""`gradient_accumulation_steps`: micro-batches per optimizer step; follows from a held global batch."""

from __future__ import annotations

from autotune.knobs.base import Circumstances, CountKnob, MemoryEffect, Plan, allowed
from autotune.knobs.influence import NEUTRAL, Influence
from autotune.records import Value

# More would only amortise the optimizer further: raw throughput always prefers the cap (simulated on 20 machines),
# while every doubling changes what the model learns. Stated in the header of a search.
LADDER: tuple[Value, ...] = (1, 2, 4, 8)


class GradientAccumulationSteps(CountKnob):
    """Derived as global batch / micro-batch when the global batch is held, else a short ladder."""

    name = "gradient_accumulation_steps"
    alias = "accum"
    option_help = "Micro-batches per optimizer step: 1:8, or 1,2,4."
    label = "accum"
    default: Value = 1
    # Gradients stay alive between micro-steps, but next to activations that hardly counts; and under a held global
    # batch accumulation falls as the micro-batch grows, where GROWS would keep the guard from concluding anything.
    memory = MemoryEffect.NONE

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """The ladder; `derive` overrides it where the global batch is held."""
        return allowed(LADDER, circumstances.limit)

    def derive(self, values: dict[str, Value], circumstances: Circumstances) -> Value | None:
        """Global batch / micro-batch."""
        if circumstances.global_batch is None:
            return None
        return circumstances.global_batch // int(values["batch_size"] or 1)

    def show(self, value: Value) -> str:
        """`×4`."""
        return f"×{value}"

    def influence(self, value: Value) -> Influence:
        """The model's own variable."""
        return NEUTRAL

    def apply(self, value: Value, plan: Plan) -> None:
        """Set the number of micro-batches per optimizer step."""
        plan.accumulation_steps = int(value or 1)
