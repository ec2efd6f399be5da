"""`activation_memory_budget`: the share of their activations that compiled graphs may keep for the backward pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.core.records import Value
from autotune.knobs.base import Circumstances, MemoryEffect, Plan
from autotune.knobs.choice_knob import ChoiceKnob
from autotune.knobs.influence import NEUTRAL, Factor, Influence
from autotune.knobs.observed import Observed
from autotune.knobs.torch_switch import SET_BY_CODE
from autotune.knobs.wording import NOTHING, Framework, Wording

ALL = 1.0  # torch's default: keep what is fastest
# A knapsack over floating-point operations chooses the kept ones, so the cheapest are recomputed first (torch 2.13,
# `torch._functorch.config`). Judgements between none and checkpointing of all blocks; not run on a GPU.
RECOMPUTED: dict[Value, Influence] = {
    share: Influence(fixed_time=Factor(longer, 0.05), sample_time=Factor(longer, 0.05), sample_memory=Factor(kept, 0.3))
    for share, longer, kept in ((0.75, 1.03, 0.85), (0.5, 1.08, 0.7), (0.25, 1.15, 0.55))
}


class ActivationMemoryBudget(ChoiceKnob):
    """A share below 1, or None for torch's own choice. On request, and for compiled models only.

    torch.compile then recomputes the cheapest operations in the backward pass, until the rest is within the share. This
    is the counterpart of `activation_checkpointing` for compiled models. Graphs with less to recompute keep more.
    """

    name = "activation_memory_budget"
    alias = "memory_budget"
    option_help = "Share of activations that compiled graphs keep: none,0.75,0.5,0.25."
    label = "memory_budget"
    on_request = True
    memory = MemoryEffect.UNSEEN  # a shape run compiles nothing
    only_computes = True
    choices: ClassVar[Mapping[Value, str]] = {0.75: "75%", 0.5: "50%", 0.25: "25%"}

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return all shares if there is a compiler, or the user's list."""
        if circumstances.limit is not None and circumstances.limit.values is not None:
            return circumstances.limit.values
        return (None, *self.choices) if circumstances.environment.no_compiler == "" else (None,)

    def idle(self, values: Mapping[str, Value], circumstances: Circumstances) -> str:
        """Return that nothing is compiled, or that the user's code sets it."""
        facts = circumstances.facts
        if self.name in facts.found:
            return SET_BY_CODE
        return "" if values["compile_mode"] or facts.compiles_itself else "only compiled graphs have a budget"

    def parse(self, text: str) -> Value:
        """Return the share that was typed, such as `0.5` or `50%`."""
        shares = {f"{share:g}": share for share in RECOMPUTED if isinstance(share, float)}
        return shares[text] if text in shares else super().parse(text)

    def phrase(self, value: Value) -> str:
        """Return the value in words, `50% of the activations kept by compiled graphs`; empty for the default."""
        return "" if value is None else f"{self.choices[value]} of the activations kept by compiled graphs"

    def influence(self, value: Value) -> Influence:
        """Return the prior cost and saving of recomputing."""
        return RECOMPUTED.get(value, NEUTRAL)

    def wording(self, value: Value, framework: Framework, device: str) -> Wording:
        """Return torch's setting, which is read when a graph is compiled."""
        if value is None:
            return NOTHING
        return Wording(
            setup=("import torch._functorch.config", f"torch._functorch.config.activation_memory_budget = {value}")
        )

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return the observed share; None for torch's default, or a share of the user's that is not offered."""
        share = observed.kept_activations
        if share is None:
            return ()
        return (share,) if share in self.choices else (None,)

    def found(self, observed: Observed) -> Value | None:
        """Return the share that the user's code sets, if it is one of these."""
        share = observed.kept_activations
        return share if share in self.choices else None

    def apply(self, value: Value, plan: Plan) -> None:
        """Set the share for all graphs of this process."""
        if value is None:
            return

        def limit() -> None:
            import torch._functorch.config as config

            config.activation_memory_budget = float(value)

        plan.setup.append(limit)
