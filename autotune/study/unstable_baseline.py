"""A baseline whose losses show that it does not learn: no other setting can mend it, and the search ends. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.core.codes import Code
from autotune.core.notices import Notice
from autotune.core.records import StudyRequest
from autotune.core.results import Measurement, Outcome, Trial
from autotune.knobs import KNOBS, is_ours
from autotune.objectives.verdict import judge
from autotune.precision.arithmetic import own_arithmetic, precision_of


def is_unstable(trial: Trial, request: StudyRequest) -> bool:
    """Return whether the losses of this probe are evidence against its configuration."""
    return judge(trial.result, request).constraints["stability"] > 0


def ends_search(trial: Trial, request: StudyRequest) -> bool:
    """Return whether the losses of this probe of the baseline show that no configuration of the space can learn.

    Not if another arithmetic may: the user's own instead of a lower precision, or another value of a declared knob.
    """
    return trial.purpose == "baseline" and is_unstable(trial, request) and not _can_be_mended(request)


def _can_be_mended(request: StudyRequest) -> bool:
    now, own = precision_of(request.baseline), own_arithmetic(request.facts)
    values = {one: request.domains.get(one.name, ()) for one in KNOBS if one.numerics}
    return any(
        (now[one.name] != own[one.name] and own[one.name] in found) or (not is_ours(one.name) and len(found) > 1)
        for one, found in values.items()
    )


def why_unstable(probes: Sequence[Trial], request: StudyRequest) -> str:
    """Return the error about a baseline with such losses, from the probes that showed it: the last two at most."""
    first, *others = probes[-2:]
    again = "".join(f"; probe {one.number} repeated it: {_doubt(one, request)}" for one in others)
    reasons = [judge(one.result, request).reason for one in probes[-2:]]
    grows = all(reason is not None and reason.code is Code.UNSTABLE_LOSS_GREW for reason in reasons)
    assumed = (
        " Its batch size was assumed: declare yours (--fresh --baseline batch=256)." if request.baseline_assumed else ""
    )
    if grows:
        return (
            f"The losses of the baseline grow: in probe {first.number}, {_doubt(first, request)}{again}. That is "
            "normal for some losses (RL, GANs, KL terms), and else means a learning rate that is too high. If yours "
            "may grow, search for speed alone with --stability off --fresh. Else lower the learning rate, or clip "
            f"gradients, and check the data.{assumed}"
        )
    cause, advice = _cause(first)
    return (
        f"The baseline does not learn: in probe {first.number}, {_doubt(first, request)}{again}. {cause} {advice}"
        f"{assumed} To search for speed alone, add --stability off --fresh."
    )


def _doubt(trial: Trial, request: StudyRequest) -> str:
    """Return what the losses did: `24 of 28 losses are not finite, the first in step 5`."""
    reason = judge(trial.result, request).reason
    assert isinstance(reason, Notice), "it is unstable"
    text, measured = reason.text.removeprefix("unstable: ").rstrip("."), trial.result.measurement
    if measured is None or None not in measured.losses:
        return text
    step = first_broken_step(measured)
    return f"{text}, {f'the first in step {step}' if step else 'none of them in the first steps'}"


def _cause(trial: Trial) -> tuple[str, str]:
    """Return why it probably does not learn, by when its losses broke, and what to do."""
    measured = trial.result.measurement
    if trial.result.outcome is Outcome.UNSTABLE or (
        measured and measured.skipped_steps and None not in measured.losses
    ):
        return "float16 probably overflows.", "Train in bfloat16 or float32."
    if measured is not None and measured.losses[0] is None:
        return (
            "No parameter had changed by then: the data probably hold NaN, or the loss divides by 0 or takes the "
            "logarithm of 0 or less.",
            "Look at a batch, and at the loss of an untrained model.",
        )
    if measured is not None and None in measured.losses and measured.losses[-1] is not None:
        return "The last loss is finite again: single samples are probably the cause.", "Look at your data and loss."
    return (
        "It began well, so the learning rate is probably too high, or single samples are broken.",
        "Lower the learning rate, or clip gradients, and check the data.",
    )


def first_broken_step(measurement: Measurement) -> int | None:
    """Return the number of the step, from 1 on, with the first loss that is not finite; None: of a block, any."""
    before = measurement.losses.index(None)
    is_one_step = measurement.steps_per_block == 1 or before < len(measurement.losses) - len(measurement.samples)
    return before + 1 if is_one_step else None
