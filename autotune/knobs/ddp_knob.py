"""The base class of knobs that are arguments of DistributedDataParallel: they leave the update as it is."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.core.communication import EXPOSED_SHARE
from autotune.core.records import Value
from autotune.knobs.base import Circumstances, Knob, MemoryEffect, Plan
from autotune.knobs.strategy import Strategy, no_ranks
from autotune.knobs.wording import NOTHING, Framework, Wording


class DdpKnob(Knob):
    """An argument of DDP, searched if an exchange of gradients takes `EXPOSED_SHARE` of a micro-step or more."""

    memory = MemoryEffect.CHANGES
    of_ranks = True

    def shows(self, circumstances: Circumstances) -> bool:
        """Return whether ranks of our loop wait long enough for the exchange that a probe is worthwhile."""
        facts = circumstances.facts
        return not no_ranks(facts) and (facts.exposed_communication or 0.0) > EXPOSED_SHARE

    def idle(self, values: Mapping[str, Value], circumstances: Circumstances) -> str:
        """Return that there is one rank, or another strategy, which has no such argument."""
        shared = "weights are shared out, and DistributedDataParallel is not used"
        return no_ranks(circumstances.facts) or (shared if values.get(Strategy.name) is not None else "")

    def wording(self, value: Value, framework: Framework, device: str) -> Wording:
        """Return the argument where the framework passes it on, and a remark elsewhere."""
        if value == self.default:
            return NOTHING
        if framework is not Framework.HUGGING_FACE:
            return NOTHING  # the export itself makes the wrapper or its arguments; DeepSpeed and torchtitan have none
        if self.name == "gradient_as_bucket_view":
            return Wording(model=(f"# DistributedDataParallel(model, {self.name}={value})",))
        return Wording(arguments={f"ddp_{self.name}": value})

    def apply(self, value: Value, plan: Plan) -> None:
        """Set the argument of `DistributedDataParallel`, if it is not the default."""
        if value != self.default:
            plan.parallel_options[self.name] = value
