"""`gradient_accumulation_steps`: micro-batches per optimizer step; follows from a held global batch."""

from __future__ import annotations

from autotune.core.records import Value
from autotune.knobs.base import Circumstances, CountKnob, MemoryEffect, Plan, allowed
from autotune.knobs.influence import NEUTRAL, Influence
from autotune.knobs.observed import Observed

# Not searched unasked: it amortises the optimizer step alone (in plain loops 512 x 4 was 0.98 and 1.03 times as fast as
# 512 x 1), and every doubling changes what the model learns (decisions/0044).
LADDER: tuple[Value, ...] = (1, 2, 4, 8)


class GradientAccumulationSteps(CountKnob):
    """Derived as global batch / micro-batch when the global batch is held, else the baseline's unless asked for."""

    name = "gradient_accumulation_steps"
    alias = "accum"
    option_help = "Micro-batches per optimizer step: 1:8, or 1,2,4."
    label = "accum"
    default: Value = 1
    on_request = True
    arguments = (
        r"(grad(ient)?s?_)?accum(ulat(e|ion))?(_?(grad(ient)?_batches|steps?|iters?|freq))?|grad_acc(_steps)?|"
        r"update_freq"
    )
    # Gradients stay alive between micro-steps, which is little next to activations; and under a held global batch
    # accumulation falls as the micro-batch grows, so that GROWS would keep the guard from any conclusion.
    memory = MemoryEffect.NONE

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return a short ladder; `derive` overrides it where the global batch is held."""
        return allowed(LADDER, circumstances.limit)

    def derive(self, values: dict[str, Value], circumstances: Circumstances) -> Value | None:
        """Return global batch / micro-batch; None if the global batch is free."""
        if circumstances.global_batch is None:
            return None
        return circumstances.global_batch // int(values["batch_size"] or 1)

    def show(self, value: Value) -> str:
        """Return the value as shown in tables, such as `×4`."""
        return f"×{value}"

    def influence(self, value: Value) -> Influence:
        """Return nothing: it is a variable of the performance model itself."""
        return NEUTRAL

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return the number of micro-batches of most steps."""
        return () if observed.micro_batches is None else (observed.micro_batches,)

    def apply(self, value: Value, plan: Plan) -> None:
        """Set the number of micro-batches per optimizer step."""
        plan.accumulation_steps = int(value or 1)
