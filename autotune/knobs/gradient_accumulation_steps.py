"""`gradient_accumulation_steps`: micro-batches per optimizer step; follows from a held global batch."""

from __future__ import annotations

from autotune.knobs.base import Circumstances, Knob, MemoryEffect, Plan, allowed, check_count, parse_count
from autotune.knobs.influence import NEUTRAL, Influence
from autotune.records import Value

# More would only amortise the optimizer further: raw throughput always prefers the cap (simulated on 20 machines),
# while every doubling changes what the model learns. Stated in the header of a search.
LADDER: tuple[Value, ...] = (1, 2, 4, 8)


class GradientAccumulationSteps(Knob):
    """Derived as global batch / micro-batch when the global batch is held, else a short ladder."""

    name = "gradient_accumulation_steps"
    alias = "accum"
    label = "accum"
    ordered = True
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

    def check(self, value: Value) -> None:
        """A whole number of at least 1."""
        check_count(value, self.name, 1)

    def parse(self, text: str) -> Value:
        """`4`."""
        return parse_count(text, self.name, 1)

    def show(self, value: Value) -> str:
        """`×4`."""
        return f"×{value}"

    def phrase(self, value: Value) -> str:
        """`gradient_accumulation_steps 4`."""
        return f"gradient_accumulation_steps {value}"

    def caution(self, value: Value) -> float:
        """0: equal global batches learn the same."""
        return 0.0

    def influence(self, value: Value) -> Influence:
        """The model's own variable."""
        return NEUTRAL

    def apply(self, value: Value, plan: Plan) -> None:
        """Set the number of micro-batches per optimizer step."""
        plan.accumulation_steps = int(value or 1)
