"""`strategy`: how several ranks train one model: each has all of it, or a share of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.core.records import TargetFacts, Value
from autotune.knobs.base import DDP, Circumstances, MemoryEffect, Plan, allowed
from autotune.knobs.choice_knob import ChoiceKnob
from autotune.knobs.influence import NEUTRAL, Factor, Influence
from autotune.knobs.wording import NOTHING, Framework, Wording

ZERO2, FSDP = "zero2", "fsdp"
ORDER: tuple[Value, ...] = (None, ZERO2, FSDP)  # by the memory that they need, the most first
# Gathering weights once more for the backward pass is half as much communication again as DDP has (Rajbhandari et al.
# 2020, ZeRO, section 7.2). How much of it shows, and which part of memory weights are, differs: wide judgements.
EFFECTS: dict[Value, Influence] = {
    ZERO2: Influence(fixed_time=Factor(1.1, 0.25), fixed_memory=Factor(0.7, 0.3)),
    FSDP: Influence(fixed_time=Factor(1.2, 0.25), fixed_memory=Factor(0.5, 0.3)),
}
CONTIGUOUS = "for one in model.parameters(): one.data = one.data.contiguous()  # fully_shard takes no other weights"
# Each rank keeps a share of its own weights, which are those of rank 0 on all of them in a probe, as DDP does it.
EQUAL = "for one in (*model.parameters(), *model.buffers()): torch.distributed.broadcast(one.data, src=0)"
ZERO_STAGES: dict[Value, int] = {ZERO2: 2, FSDP: 3}
SHARD = {
    ZERO2: "for part in (*blocks(model), model): fully_shard(part, reshard_after_forward=False)",
    FSDP: "for part in (*blocks(model), model): fully_shard(part)",
}
# Where a framework is told which parts to share out one by one; a model of transformers tells it by _no_split_modules.
BLOCKS = "# each block was shared out by itself: name their class in {}"


class Strategy(ChoiceKnob):
    """None is DistributedDataParallel where there are several ranks; the others are FSDP2's `fully_shard`.

    The update is the same up to the order of summation (decisions/0071). Offered where ranks train a model in our loop.
    """

    name = "strategy"
    alias = "strategy"
    option_help = "How ranks share a model: ddp,zero2,fsdp."
    label = "strategy"
    choices: ClassVar[Mapping[Value, str]] = {ZERO2: ZERO2, FSDP: FSDP}
    memory = MemoryEffect.SHRINKS
    of_ranks = True

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return those that can train this target, from the one that needs most memory."""
        offered = tuple(one for one in ORDER if one is None or not missing(circumstances.facts))
        return allowed(offered, circumstances.limit)

    def idle(self, values: Mapping[str, Value], circumstances: Circumstances) -> str:
        """Return that there is one rank, or a loop of the user's, which shares the model by itself."""
        return no_ranks(circumstances.facts)

    def lacking(self, value: Value, circumstances: Circumstances) -> str:
        """Return that averaged weights cannot be made of shares."""
        return "" if value is None or no_ranks(circumstances.facts) else missing(circumstances.facts)

    def needs_no_less(self, value: Value, other: Value) -> bool:
        """Return whether `value` has no less of the model on each rank."""
        return ORDER.index(value) <= ORDER.index(other)

    def parse(self, text: str) -> Value:
        """Return the value; `ddp` and `none` are one."""
        return None if text.lower() == DDP else super().parse(text)

    def show(self, value: Value) -> str:
        """Return the value as shown in tables; None is `ddp`, because nothing chooses among the strategies there."""
        return DDP if value is None else super().show(value)

    def phrase(self, value: Value) -> str:
        """Return such as `strategy fsdp`, or nothing."""
        return f"strategy {value}" if value else ""

    def influence(self, value: Value) -> Influence:
        """Return less memory for more communication."""
        return EFFECTS.get(value, NEUTRAL)

    def wording(self, value: Value, framework: Framework, device: str) -> Wording:
        """Return the framework's own sharding. What is an object of Lightning or Accelerate, the export makes."""
        if value is None:
            return NOTHING
        reshards = value == FSDP
        match framework:
            case Framework.TORCH:
                imports = (
                    "from torch.distributed.fsdp import fully_shard",
                    "from autotune.targets.checkpointing import blocks",
                )
                return Wording(setup=imports, model=(CONTIGUOUS, EQUAL, SHARD[str(value)]))
            case Framework.HUGGING_FACE:
                options = {"version": 2, "reshard_after_forward": reshards}
                named = BLOCKS.format(
                    'fsdp_config["transformer_layer_cls_to_wrap"], unless the model is of transformers'
                )
                return Wording(arguments={"fsdp": True, "fsdp_config": options}, model=(CONTIGUOUS, named))
            case Framework.LIGHTNING:
                return Wording(model=(BLOCKS.format("auto_wrap_policy={...} of the strategy"),))
            case Framework.ACCELERATE:
                named = BLOCKS.format("transformer_cls_names_to_wrap=[...] of the plugin, unless it is of transformers")
                return Wording(model=(CONTIGUOUS, named))
            case Framework.DEEPSPEED:
                return Wording(arguments={"zero_optimization": {"stage": ZERO_STAGES[value]}})
            case Framework.TORCHTITAN:
                when = "always" if reshards else "never"
                return Wording(arguments={"parallelism.fsdp_reshard_after_forward": when})

    def apply(self, value: Value, plan: Plan) -> None:
        """Say how the model is wrapped once it is built; one rank has nothing to share."""
        plan.strategy = None if value is None else str(value)


def no_ranks(facts: TargetFacts) -> str:
    """Return why no knob of ranks does anything for a target; empty where ranks train it in our loop."""
    if facts.ranks == 1:
        return "one rank trains alone"
    return "your own loop wraps its model" if facts.owns_loop or facts.is_program else ""


def missing(facts: TargetFacts) -> str:
    """Return why weights cannot be shared out among ranks; empty where they can."""
    averaged = "ema(model) copies the model, and shares of its weights cannot be copied"
    return no_ranks(facts) or (averaged if "ema" in facts.update else "")
