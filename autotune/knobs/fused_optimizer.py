"""`fused_optimizer`: whether optimizers update one parameter after another, lists of them, or by a fused kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.core.records import TargetFacts, Value
from autotune.knobs.base import Circumstances, MemoryEffect, Plan, allowed
from autotune.knobs.choice_knob import ChoiceKnob
from autotune.knobs.influence import NEUTRAL, Factor, Influence
from autotune.knobs.observed import Observed
from autotune.knobs.optimizer_implementations import FOR_LOOP, FOREACH, FUSED, OPTIONS
from autotune.knobs.wording import NOTHING, Framework, Wording

CHOICES: tuple[Value, ...] = (None, FOR_LOOP, FOREACH, FUSED)
# The time of an update belongs to the step and not to its samples. On a CPU 0.05 to 2 times the time of a for-loop
# (benchmarks/optimizers.py), of which an update takes a part; on a GPU a step gains 0 to 20 % (docs/knobs.md).
UPDATE = Influence(fixed_time=Factor(0.95, 0.2))
# Of the time of the first step, in which all else is slower than later.
# The rule is sharper once steps are measured (`context/trades.py`).
LEAST_UPDATE_SHARE = 0.01


class FusedOptimizer(ChoiceKnob):
    """The implementation of the optimizer's update. None leaves it as the code has it.

    The formula is the same, rounding is not. Offered is what torch has for class and device of the optimizer: on a CPU
    where the update takes a part of a step that is worth it, on a GPU fused beside torch's own foreach.
    """

    name = "fused_optimizer"
    alias = "fused_optimizer"
    option_help = "Optimizer's update: none,for-loop,foreach,fused."
    label = "optim"
    choices: ClassVar[Mapping[Value, str]] = {FOR_LOOP: "loop", FOREACH: FOREACH, FUSED: FUSED}
    memory = MemoryEffect.NONE  # foreach on a CPU: temporaries of one parameter after another, as the for-loop has
    only_computes = only_updates = True
    arguments = r"fused_optimizer|optimizer_implementation"
    formats: Mapping[str, Mapping[Value, str]] = {"": {FOR_LOOP: FOR_LOOP, FOREACH: FOREACH, FUSED: FUSED}}

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return None, or what the code says, and the others that may be faster here."""
        facts, optimizer = circumstances.facts, circumstances.facts.optimizer
        own = facts.found.get(self.name)
        if optimizer is None:
            return allowed((own,), circumstances.limit)
        is_cpu = circumstances.environment.device_kind == "cpu"
        share = optimizer.step_share
        worthwhile = not is_cpu or share is None or share >= LEAST_UPDATE_SHARE
        hopeful = (FOREACH, FUSED) if is_cpu else (FUSED,)
        others = [one for one in hopeful if worthwhile and one in optimizer.possible]
        offered = dict.fromkeys([own, *others])
        if own is not None and worthwhile:
            offered |= dict.fromkeys([optimizer.usual])
        return allowed(tuple(one for one in CHOICES if one in offered), circumstances.limit)

    def canonical(self, values: dict[str, Value], circumstances: Circumstances) -> Value:
        """Return what the code says for None, and None for what torch would choose where the code says nothing."""
        return _shortest(values[self.name], circumstances.facts)

    def lacking(self, value: Value, circumstances: Circumstances) -> str:
        """Return that the optimizer has no such update, where it was looked at."""
        optimizer = circumstances.facts.optimizer
        if value is None or optimizer is None or value in optimizer.possible:
            return ""
        return f"{', '.join(optimizer.names)} has no such update in torch, for its parameters on this device"

    def phrase(self, value: Value) -> str:
        """Return such as `fused optimizer`, or nothing."""
        return f"{value} optimizer" if value else ""

    def influence(self, value: Value) -> Influence:
        """Return a small gain of every step, which may be a loss."""
        return UPDATE if value in (FOREACH, FUSED) else NEUTRAL

    def wording(self, value: Value, framework: Framework, device: str) -> Wording:
        """Return torchtitan's argument; elsewhere it is an argument of the optimizer, which the plan has."""
        if value is not None and framework is Framework.TORCHTITAN:
            return Wording(arguments={"optimizer.implementation": value})
        return NOTHING

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return None, which leaves any, and what the optimizer says."""
        if observed.optimizer_implementation is None:
            return ()
        return (None, observed.optimizer_implementation) if observed.optimizer_implementation in OPTIONS else (None,)

    def found(self, observed: Observed) -> Value | None:
        """Return what the optimizer says, unless it leaves that to torch."""
        return observed.optimizer_implementation if observed.optimizer_implementation in OPTIONS else None

    def apply(self, value: Value, plan: Plan) -> None:
        """Set the implementation of optimizers in the plan."""
        if isinstance(value, str):
            plan.optimizer_options |= OPTIONS[value]


def _shortest(value: Value, facts: TargetFacts) -> Value:
    own = facts.found.get(FusedOptimizer.name)
    if own is not None:
        return own if value is None else value
    return None if facts.optimizer is not None and value == facts.optimizer.usual else value
