"""`omp_wait_policy`: whether torch's threads on the CPU leave their core while they wait for one another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.core.records import Value
from autotune.knobs.base import Circumstances, MemoryEffect, Plan, Reach, allowed
from autotune.knobs.choice_knob import ChoiceKnob
from autotune.knobs.influence import NEUTRAL, Factor, Influence
from autotune.knobs.num_threads import threads

VARIABLE = "OMP_WAIT_POLICY"
PASSIVE = "passive"
# A sleeping thread takes longer to go on than a spinning one, for every operator: 20 ms a micro-batch of a small
# transformer (1.2 to 1.8 times its time), 5 of a CNN (1.3 to 1.7). A sleeping thread leaves its core: the cost of
# oversubscription fell to a third or a half (surfaces char_transformer, jpeg_cnn), to almost 0 in
# docs/notes/timing.md 4.
SLEEPING = Influence(fixed_time=Factor(2.0, 0.8), sample_time=Factor(1.15, 0.2), oversubscription=Factor(0.35, 0.8))


class OmpWaitPolicy(ChoiceKnob):
    """The wait policy of OpenMP: with "passive" waiting threads sleep at once and do not spin; None leaves it as it is.

    The OpenMP runtime reads the variable when torch is imported. It can help where other processes want the cores:
    187 ms a step became 22 with two threads and two workers on two cores (docs/notes/timing.md 4).
    """

    name = "omp_wait_policy"
    alias = "omp_wait"
    option_help = "OMP_WAIT_POLICY on a CPU: none,passive."
    label = "omp_wait"
    choices: ClassVar[Mapping[Value, str]] = {PASSIVE: PASSIVE}
    memory = MemoryEffect.NONE
    only_computes = True
    reach = Reach.PROCESS

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return both on a Linux CPU with several cores and a tuned loader, unless the environment sets it."""
        environment = circumstances.environment
        worthwhile = (
            environment.device_kind == "cpu"
            and environment.platform.startswith("Linux")
            and environment.usable_cores > 1
            and environment.omp_wait_policy is None
            and circumstances.facts.tunes_loader
        )
        return allowed((None, PASSIVE) if worthwhile else (None,), circumstances.limit)

    def idle(self, values: Mapping[str, Value], circumstances: Circumstances) -> str:
        """Return that there is a single thread."""
        alone = threads(values["num_threads"], circumstances.environment) == 1
        return "a single thread waits for no other" if alone else ""

    def phrase(self, value: Value) -> str:
        """Return `OMP_WAIT_POLICY=passive`; empty for the default."""
        return f"{VARIABLE}={value}" if value else ""

    def influence(self, value: Value) -> Influence:
        """Return a slower start of every operator, and less harm by oversubscription."""
        return SLEEPING if value == PASSIVE else NEUTRAL

    def environ(self, value: Value) -> dict[str, str]:
        """Return the environment variable that `value` needs; empty for the default."""
        return {VARIABLE: str(value)} if value else {}

    def apply(self, value: Value, plan: Plan) -> None:
        """Do nothing: the runtime has read the variable before there is a plan."""
