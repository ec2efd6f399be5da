"""The sentences about losses of the codes in `codes.py`, 4xx."""

PAIRED = "{steps} paired steps at batch {batch}[ of {seeds} seeds each]"

LOSSES_NOT_CHECKED = "not checked (--stability off)"
LOSSES_FINITE = (
    "{reference}; losses finite over {steps:counted optimizer step}[, {skipped} skipped by the gradient scaler]"
)
LOSSES_NOT_COMPARED = (
    "losses finite over {steps:counted optimizer step}[, {skipped} skipped by the gradient scaler]; not compared with "
    "{reference} step by step"
)
LOSSES_NOT_CLEARED = (
    "losses finite over {steps:counted optimizer step}[, {skipped} skipped by the gradient scaler]; not shown to match "
    "{reference}"
)
LOSSES_MATCH = (
    "{candidate} loss matches {reference}: {difference:.2%} apart after " + PAIRED + " (tolerance {allowed:.1%})"
)
LEARNS_LESS = (
    "{candidate} learns less than {reference}: its loss decreases {difference:.1%} less over "
    + PAIRED
    + " (tolerance {allowed:.1%})"
)
LOSSES_UNDECIDED = (
    "{candidate} may or may not match {reference}: its loss decreases {low:.1%} to {high:.1%} less over "
    + PAIRED
    + " (tolerance {allowed:.1%})"
)
ONE_SEED_UNDECIDED = (
    "{candidate} cannot be judged from one seed: something random differs between runs, so that even {reference} "
    "differs from itself by {looseness:.1%} of the loss decrease"
)
COMPARISON_FAILED = "{candidate} could not be compared with {reference}: {failure} ({evidence})"
COMPARISON_SHORT = (
    "{candidate} could not be compared with {reference}: {steps} of {asked} paired steps were done[ in "
    "{limit:seconds}], and it takes {least}"
)
REFERENCE_NOT_FINITE = "{candidate} cannot be judged: {broken} of {steps} losses of {reference} itself are not finite"
REFERENCE_LEARNS_NOTHING = (
    "{candidate} cannot be judged: the loss of {reference} itself did not decrease in {steps} steps ({start:.4g} "
    "to {end:.4g} ± {noise:.2g})"
)
LOSSES_NOT_FINITE = (
    "{candidate} is unstable here: {broken} of {steps} losses are not finite[, the first in step {first}] "
    "({reference}: all are finite)"
)
FIRST_STEPS_SKIPPED = "{candidate} is unstable here: the gradient scaler skipped the first {skipped} steps"
STEPS_SKIPPED = (
    "{candidate} is unstable here: the gradient scaler skipped {skipped} of {steps} steps after the first success"
)
LOSS_SCALE_FELL = "{candidate} is unstable here: the loss scale fell to {scale:g}"
GRADIENTS_UNDERFLOW = (
    "{candidate} is unstable here: gradients underflow, {zeros:.0%} of their entries are exactly zero "
    "({reference}: {reference_zeros:.1%})"
)
GRADIENTS_JUMP = (
    "{candidate} is unstable here: the gradient norm exceeded {factor:g} times its running median {jumps} times in "
    "{steps} steps ({reference}: {reference_jumps} times)"
)
