"""`activation_checkpointing`: store less of the forward pass, and recompute it in the backward pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.core.records import TargetFacts, Value
from autotune.knobs.base import NOT_DONE, SWITCH_WORDS, Circumstances, Knob, MemoryEffect, Plan, allowed
from autotune.knobs.influence import NEUTRAL, Factor, Influence
from autotune.knobs.observed import Observed
from autotune.knobs.wording import NOTHING, Framework, Wording

FEWEST_CHECKPOINTED_BLOCKS = 2  # one block alone needs all its memory again when it is recomputed
THIRD, SECOND, SELECTIVE = "every_third", "every_second", "selective"
EVERY: dict[Value, int] = {THIRD: 3, SECOND: 2, True: 1}  # n: one of n blocks is recomputed
# In order of memory, the most first; selective lies between none and all, where depends on the model.
CHOICES: tuple[Value, ...] = (False, THIRD, SECOND, SELECTIVE, True)
SPELLINGS: dict[str, Value] = {**SWITCH_WORDS, "none": False, "full": True}
SHOWN: dict[Value, str] = {
    False: NOT_DONE, THIRD: "every 3rd", SECOND: "every 2nd", SELECTIVE: "selective", True: "ckpt"
}  # fmt: skip
PHRASES: dict[Value, str] = {
    False: "",
    THIRD: "activation checkpointing of every third block",
    SECOND: "activation checkpointing of every second block",
    SELECTIVE: "selective activation checkpointing",
    True: "activation checkpointing",
}
CALLS: dict[Value, str] = {
    THIRD: "autotune.checkpoint_blocks(model, every=3)",
    SECOND: "autotune.checkpoint_blocks(model, every=2)",
    SELECTIVE: "autotune.checkpoint_blocks(model, selective=True)",
    True: "autotune.checkpoint_blocks(model)",
}


def _recomputed(longer: float, spread: float, kept: float) -> Influence:
    return Influence(
        fixed_time=Factor(longer, spread),
        sample_time=Factor(longer, spread),
        fixed_memory=Factor(1.0, 0.03),
        sample_memory=Factor(kept, 0.4),
    )


# The forward pass is a third of the time, and its recomputed part runs twice. Memory of a sample:
# benchmarks/checkpointing.py (docs/notes/throughput.md 4); deeper models keep less.
RECOMPUTED: dict[Value, Influence] = {
    SELECTIVE: _recomputed(1.1, 0.05, 0.8),
    THIRD: _recomputed(10 / 9, 0.03, 0.8),
    SECOND: _recomputed(7 / 6, 0.04, 0.7),
    True: _recomputed(4 / 3, 0.08, 0.5),
}


class ActivationCheckpointing(Knob):
    """A ladder of policies that trade more and more time for memory. Offered where the model has blocks to recompute.

    True means all blocks and False none, as in studies of earlier versions, which had only these two. The arithmetic is
    the same: random numbers are repeated, and BatchNorm counts a batch once.
    """

    name = "activation_checkpointing"
    alias = "checkpointing"
    arguments = r"(use_|enable_)?(grad(ient)?|activation)_?checkpoint(ing|s)?"
    option_help = "Recompute activations to save memory: false,every_third,every_second,selective,true."
    label = "checkpointing"
    ordered = False
    default: Value = False
    memory = MemoryEffect.SHRINKS
    only_computes = True
    former = (False, True)
    formats: Mapping[str, Mapping[Value, str]] = {"": {True: "true", False: "false"}}

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return the policies that recompute different blocks, beginning with the one that needs most memory."""
        return allowed(tuple(dict.fromkeys(self._distinct(circumstances.facts))), circumstances.limit)

    def _distinct(self, facts: TargetFacts) -> tuple[Value, ...]:
        blocks = facts.checkpointable_blocks
        if blocks < FEWEST_CHECKPOINTED_BLOCKS:
            return (False,)
        if self.name in facts.written:  # the argument of a Trainer, which knows all or none
            return (False, True)
        fewer = -(-blocks // EVERY[THIRD]) < -(-blocks // EVERY[SECOND])
        return tuple(one for one in CHOICES if one != THIRD or fewer)

    def idle(self, values: Mapping[str, Value], circumstances: Circumstances) -> str:
        """Return that the model has no blocks, or, for a selective policy, that they are compiled; else empty.

        Compiled code writes products into buffers that are reused, which selective policies cannot keep.
        """
        if not _may_recompute(circumstances.facts):
            return "the model has no repeated blocks, or your code recomputes them already"
        is_compiled = values[self.name] == SELECTIVE and values.get("compile_mode") is not None
        return "compiled blocks are recomputed as a whole" if is_compiled else ""

    def instead(self, value: Value, circumstances: Circumstances) -> Value:
        """Return all blocks for a selective policy, if there are blocks."""
        return True if _may_recompute(circumstances.facts) else super().instead(value, circumstances)

    def needs_no_less(self, value: Value, other: Value) -> bool:
        """Return whether `value` recomputes no more than `other`.

        For a selective policy it is only known that recomputing all blocks needs no more: the policy keeps products
        that training without it would not keep, so it may even need more than no policy (docs/notes/throughput.md 4).
        Every third and every second block are different blocks, which may differ in size.
        """
        if (value, other) == (THIRD, SECOND):
            return False
        if SELECTIVE in (value, other):
            return value == other or other is True
        return CHOICES.index(value) <= CHOICES.index(other)

    def takes_no_longer(self, value: Value, other: Value) -> bool:
        """Return whether `value` recomputes fewer whole blocks; of selective policies nothing is sure."""
        return SELECTIVE not in (value, other) and CHOICES.index(value) < CHOICES.index(other)

    def check(self, value: Value) -> None:
        """Raise `ValueError` unless it is one of `CHOICES`."""
        if not isinstance(value, bool | str) or value not in CHOICES:
            words = ", ".join(str(choice).lower() for choice in CHOICES)
            raise ValueError(f"{self.name} must be one of {words}, got {value!r}")

    def parse(self, text: str) -> Value:
        """Return what `false` or `none`, `every_third`, `every_second`, `selective`, `true` or `full` stands for."""
        value = SPELLINGS.get(text.lower(), text.lower())
        self.check(value)
        return value

    def show(self, value: Value) -> str:
        """Return the value as shown in tables, such as `every 2nd`."""
        return SHOWN[value]

    def phrase(self, value: Value) -> str:
        """Return the value in words, such as `activation checkpointing of every second block`."""
        return PHRASES[value]

    def caution(self, value: Value) -> float:
        """Return 1 unless off: it changes the classes of the model's blocks."""
        return float(bool(value))

    def influence(self, value: Value) -> Influence:
        """Return the expected cost and saving of the policy, relative to the next weaker one."""
        return RECOMPUTED.get(value, NEUTRAL)

    def wording(self, value: Value, framework: Framework, device: str) -> Wording:
        """Return the function that the probes used: the frameworks' own cover other parts or their own models only."""
        if not value:
            return NOTHING
        return Wording(setup=("import autotune",), model=(f"model = {CALLS[value]}",))

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return whether activations were recomputed; which blocks is not seen, so all policies fit."""
        if observed.recomputes is None:
            return ()
        return (True, *CHOICES[1:]) if observed.recomputes else (False,)

    def apply(self, value: Value, plan: Plan) -> None:
        """Add a model transform that makes blocks recompute as `value` says."""
        if not value:
            return

        def recompute(model: Any) -> Any:
            from autotune.targets.checkpointing import checkpoint_blocks  # torch

            return checkpoint_blocks(model, every=EVERY.get(value, 1), selective=value == SELECTIVE)

        plan.model_transforms.append(recompute)


def _may_recompute(facts: TargetFacts) -> bool:
    """Return whether there are blocks, or an argument of the user's own loop decides about them."""
    return bool(facts.checkpointable_blocks) or facts.owns_loop
