"""The sentences of the reasons for the choice in `codes.py`, 2xx, that take more than a line."""

from __future__ import annotations

LESS_OR_MORE = "[ ({less:difference} less)][ ({more:difference} more)]"
ACCUMULATION = "accumulation over {micro_batches} micro-batches[ ({configuration})]"

FASTER_BUT_FAILED = "{configuration} was faster in the search and failed when re-measured: {failure}"
COST = "costs {million_samples:money} per million samples[, {epoch:money} per epoch,] at {hour:money} an hour"
COST_OF_BASELINE = "the baseline costs {million_samples:money} per million samples[, {epoch:money} per epoch]"
ENERGY = (
    "{samples_per_joule:.3g} samples/J at {watts:,.0f} W of the GPU[ (baseline "
    "{baseline_samples_per_joule:.3g} samples/J at {baseline_watts:,.0f} W)]"
)
LEAST_MEMORY_IS_FASTEST = (
    "the fastest configuration also needs the least memory of those within {within:share} of its speed"
)
LEAST_MEMORY = (
    "least memory within {within:share} of the fastest: {slower:share} slower, and the fastest needs "
    "{fastest_bytes:bytes}"
)
NOISE_SCALE = (
    "gradient noise scale after {steps} steps: {phi:batch} samples ({low:batch} to {high:batch}); batches up to "
    "about {phi:batch} waste less than 50% of the samples"
)
NOISE_SCALE_AT_LEAST = (
    "gradient noise scale after {steps} steps: at least {low:batch} samples; no evidence that the largest batch "
    "wastes samples"
)
BATCH_EFFICIENCY = "estimated efficiency of a global batch of {batch}: {efficiency:.0%} ({low:.0%} to {high:.0%})"
NOISE_SCALE_GROWS = (
    "the noise scale normally grows {least:.0f} to {most} times during training, so late training tolerates "
    "larger batches"
)
BEST_GLOBAL_BATCH = (
    "estimate: a global batch of {low:batch} to {high:batch} (middle {middle:batch}) reaches a given training "
    "loss soonest; how well the model generalises is not measured"
)
GLOBAL_BATCH_UNDECLARED = (
    "no batch size was declared: {batch} reaches {share:share} of the fastest[, and it is open whether {smaller} "
    "is enough]; hold yours with --global-batch SIZE"
)
GLOBAL_BATCH_FREE = (
    "the global batch is free: {batch} reaches {share:share} of the fastest[, and it is open whether {smaller} is "
    "enough]; hold yours with --global-batch {before}"
)
FASTER_WITH_BASELINE_BATCH = (
    "if you train with {batch} today:[ {speedup:.2f}×][ ({low:.2f} to {high:.2f}),] {samples_per_second:rate} "
    "samples/s without changing it"
)
NOT_FASTER_WITH_BASELINE_BATCH = (
    "if you train with {batch} today: nothing that was confirmed is faster without changing it"
)
BASELINE_BATCH_ALONE = (
    "if you train with {batch} today: no change was confirmed with it; search again with --global-batch {batch}"
)
COMPILING = (
    "compiling takes {cold_seconds:.3g} s at the start of a run[, {warm_seconds:seconds} once torch's cache has "
    "the code][; it pays after {pays_seconds:seconds}, against the fastest without it in the same rounds][; it "
    "takes {spent_share:.1%} of a run of {run_length}, which the choice counts]"
)
GRAPH_BREAKS = (
    "torch.compile breaks the model at {breaks:counted place} into {graphs:counted graph}; TORCH_LOGS=graph_breaks "
    "shows where"
)
ACCUMULATION_PREDICTED = (
    ACCUMULATION + ": computing predicted at {predicted:rate} samples/s from micro-steps with and without an "
    "exchange, measured at {measured:rate}" + LESS_OR_MORE
)
ACCUMULATION_MISPREDICTED = (
    ACCUMULATION + " is not what micro-steps with and without an exchange predict: computing predicted at "
    "{predicted:rate} samples/s, measured at {measured:rate}" + LESS_OR_MORE + ", so that rates which were not "
    "confirmed may be as far off"
)
