"""`cudnn_benchmark`: whether cuDNN times its algorithms for each new shape, and takes the fastest."""

from __future__ import annotations

from autotune.core.records import TargetFacts, Value
from autotune.knobs.base import Circumstances, MemoryEffect, Plan, SwitchKnob, allowed
from autotune.knobs.influence import Factor, Influence
from autotune.knobs.observed import Observed
from autotune.knobs.wording import NOTHING, Framework, Wording

# Model-dependent: a few per cent in most, 20 times as fast where the heuristic choice is a cliff (docs/knobs.md). Not
# measured by this project. A workspace is chosen with the algorithm.
TRIED = Influence(sample_time=Factor(0.95, 0.15), fixed_memory=Factor(1.0, 0.05), sample_memory=Factor(1.0, 0.05))


class CudnnBenchmark(SwitchKnob):
    """Offered for models with convolutions on CUDA, unless the user's code asks for deterministic algorithms.

    Shapes that vary are timed each: where they do, the probe shows what that costs.
    """

    name = "cudnn_benchmark"
    alias = "cudnn_benchmark"
    option_help = "Let cuDNN time its algorithms: true,false."
    label = "cudnn"
    words = "cudnn.benchmark"
    memory = MemoryEffect.UNSEEN
    only_computes = True
    arguments = r"cudnn_?benchmark"
    effect = TRIED

    def is_offered(self, facts: TargetFacts) -> bool:
        """Return whether there are convolutions, and no wish for deterministic ones."""
        return facts.has_convolution and not facts.is_deterministic

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return both values on CUDA where it can gain, or what the user's code sets."""
        if circumstances.facts.found.get(self.name):
            return allowed((True,), circumstances.limit)
        if circumstances.environment.device_kind != "cuda":
            return allowed((False,), circumstances.limit)
        return super().domain(circumstances)

    def canonical(self, values: dict[str, Value], circumstances: Circumstances) -> Value:
        """Return True where the user's code sets it."""
        return True if circumstances.facts.found.get(self.name) else values[self.name]

    def caution(self, value: Value) -> float:
        """Return 1 for on: it may take another algorithm in the next run."""
        return float(bool(value))

    def wording(self, value: Value, framework: Framework, device: str) -> Wording:
        """Return the argument of Lightning's Trainer, else the line."""
        if not value:
            return NOTHING
        if framework is Framework.LIGHTNING:
            return Wording(arguments={"benchmark": True})
        return Wording(setup=("torch.backends.cudnn.benchmark = True",))

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return whether it was on."""
        return () if observed.times_algorithms is None else (observed.times_algorithms,)

    def found(self, observed: Observed) -> Value | None:
        """Return True where the user's code sets it."""
        return observed.times_algorithms or None

    def apply(self, value: Value, plan: Plan) -> None:
        """Switch it on for the whole process."""
        if not value:
            return

        def switch() -> None:
            import torch

            torch.backends.cudnn.benchmark = True

        plan.setup.append(switch)
