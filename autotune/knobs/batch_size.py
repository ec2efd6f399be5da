"""`batch_size`: the micro-batch, samples in one forward pass on one device; `DataLoader(batch_size=)`."""

from __future__ import annotations

from math import isqrt

from autotune.core.records import Limit, TargetFacts, Value
from autotune.knobs.base import Circumstances, CountKnob, MemoryEffect, Plan, allowed
from autotune.knobs.influence import NEUTRAL, Influence
from autotune.knobs.observed import Observed

SMALLEST_BATCH = 8  # below it, the fixed cost of a step dominates on any hardware; a user's limit may be lower
BATCH_MULTIPLE = 8  # tensor cores want dimensions that are multiples of 8 (docs/notes/throughput.md 2)
LARGEST_BATCH = 4096  # unless the user sets another limit; throughput no longer grows there


class BatchSize(CountKnob):
    """Powers of two; if the global batch is held, those of its divisors that suit the hardware.

    No batch is more cautious than another: the cost of a larger one is measured as memory.
    """

    name = "batch_size"
    alias = "batch"
    option_help = "Micro-batches: 8:512, or 16,32,64."
    label = "batch"
    default: Value = 32  # a usual value; DataLoader's own default is 1
    memory = MemoryEffect.GROWS
    arguments = (
        r"((per_)?(device|gpu|rank)_)?(train(ing)?_)?((micro|mini|device|local)_?)?(batch(_?size)?|bsz?|mbs)"
        r"(_per_(gpu|device|rank))?|batch_?size_train|(samples|images)_per_gpu"
    )
    doubtful = r"(global|total|effective)_(train_)?(batch(_?size)?|bsz?)|gbs|ims_per_batch"  # of an optimizer step

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return batches that are at most the dataset, and that divide a held global batch."""
        limit = circumstances.limit or Limit()
        if limit.values is not None:
            ladder = set(v for v in limit.values if isinstance(v, int))
        elif circumstances.global_batch is not None:
            ladder = _divisors(circumstances.global_batch)
        else:
            ladder = {1 << exponent for exponent in range(20)}
        most = circumstances.most_samples
        within = [size for size in ladder if most is None or size <= most]
        low = limit.low or (1 if limit.values else min(SMALLEST_BATCH, max(within, default=1)))
        high = limit.high or (max(ladder, default=1) if limit.values or circumstances.global_batch else LARGEST_BATCH)
        bounds = Limit(low=low, high=high if most is None else min(high, most))
        values = allowed(tuple(sorted(ladder)), bounds)
        if circumstances.global_batch is None:
            return values
        return tuple(v for v in values if v and circumstances.global_batch % int(v) == 0)

    def is_exact(self, facts: TargetFacts) -> bool:
        """Return False where BatchNorm takes its statistics from the micro-batch (docs/notes/throughput.md 5).

        The same where the loss is known to be no mean over samples, but one over the pairs of a batch, or a sum.
        Not covered: a loss over tokens of unequal number.
        """
        return not facts.has_batch_norm and facts.is_mean_loss is not False

    def influence(self, value: Value) -> Influence:
        """Return nothing: it is a variable of the performance model itself."""
        return NEUTRAL

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return the most common size of micro-batches, in samples; empty if none was seen."""
        return () if observed.micro_batch is None else (observed.micro_batch,)

    def apply(self, value: Value, plan: Plan) -> None:
        """Set the loader's batch size, in samples."""
        plan.loader_options["batch_size"] = value


def _divisors(global_batch: int) -> set[int]:
    """Return the divisors of `global_batch` that are powers of two, their cofactors, or multiples of 8."""
    powers = [1 << exponent for exponent in range(global_batch.bit_length()) if global_batch % (1 << exponent) == 0]
    eighth, rest = divmod(global_batch, BATCH_MULTIPLE)
    small = [] if rest else [one for one in range(1, isqrt(eighth) + 1) if eighth % one == 0]
    multiples = {BATCH_MULTIPLE * one for small_one in small for one in (small_one, eighth // small_one)}
    return {*powers, *(global_batch // power for power in powers), *multiples}
