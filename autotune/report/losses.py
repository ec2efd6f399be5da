"""Says in one clause what is known about the losses of an answer."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.core.codes import Code
from autotune.core.notices import Notice
from autotune.core.records import Config, Value
from autotune.core.results import LossVerdict
from autotune.precision.arithmetic import names_of, own_arithmetic, precision_of
from autotune.report.phrases import plain
from autotune.study.recommendation import Recommendation
from autotune.study.shown import shown_value
from autotune.units import counted, format_share

FINEST_DIFFERENCE = 0.001  # the smallest difference that is shown
BARELY_ABOVE = 1.01  # tolerance and allowed difference are rounded separately
WHY_OPEN = {
    Code.LOSSES_UNDECIDED: "{steps} are too noisy to tell",
    Code.ONE_SEED_UNDECIDED: "too noisy to tell, {other} nudged by 1e-6 differs from itself by as much",
    Code.COMPARISON_FAILED: "the check failed",
    Code.COMPARISON_SHORT: "too few steps in the time",
    Code.REFERENCE_NOT_FINITE: "losses of {other} itself are not finite",
    Code.REFERENCE_LEARNS_NOTHING: "{other} itself did not learn in {steps}",
}


def losses_phrase(best: Recommendation) -> str:
    """Return `bf16 matches fp32: 0.2% apart after 50 paired steps`, or another fact about the losses."""
    verdict = _verdict(best)
    reference = own_arithmetic(best.facts) if best.facts else precision_of(Config(values={}))
    if doubt := _not_compared(best):
        one, other = _names(precision_of(Config(values=best.params)), reference)
        hold = doubt.numbers.get("hold")
        return (
            f"undecided whether {one} learns as {other} does: no time was left to compare them. Search longer "
            f"(--time-budget)" + (f", or keep yours ({hold})" if hold else "") + "."
        )
    if verdict is None or best.goal.stability == "off":
        return best.stability.text
    one, other = _names(verdict.values, reference)
    steps = _steps(verdict)
    if verdict.verdict != "ok":
        why = WHY_OPEN.get(verdict.reason.code, "{steps} do not tell").format(steps=steps, other=other)
        return f"undecided whether {one} learns as {other} does: {why}. Compare a longer run of both."
    allowed = verdict.allowed or 0.0
    if allowed <= best.goal.loss_tolerance * BARELY_ABOVE:
        return match_phrase(verdict, reference)
    # An earlier version passed checks whose noise was above the tolerance.
    return f"{one} and {other} could not be told apart in {steps}: noisy, {format_share(allowed)} would not show"


def match_phrase(verdict: LossVerdict, reference: Mapping[str, Value]) -> str:
    """Return `bf16 matches fp32: 0.2% apart after 50 paired steps`, of a verdict that found so."""
    (one, other), difference = _names(verdict.values, reference), abs(verdict.difference or 0.0)
    apart = (
        format_share(difference) if difference >= FINEST_DIFFERENCE else f"less than {format_share(FINEST_DIFFERENCE)}"
    )
    return f"{one} matches {other}: {apart} apart after {_steps(verdict)}"


def _steps(verdict: LossVerdict) -> str:
    return counted(verdict.steps, "paired step") + (f" of {verdict.seeds} seeds" if verdict.seeds > 1 else "")


def is_precision_doubtful(best: Recommendation) -> bool:
    """Return whether it is undecided if the answer's precision learns as full precision does."""
    return any(one.code in (Code.PRECISION_UNDECIDED, Code.LOSSES_UNJUDGED) for one in best.warnings)


def tells_doubt(best: Recommendation) -> bool:
    """Return whether `losses_phrase` itself states the doubt."""
    verdict = _verdict(best)
    return _not_compared(best) is not None or (verdict is not None and verdict.verdict != "ok")


def _not_compared(best: Recommendation) -> Notice | None:
    """Return the doubt about a precision whose losses there was no time to compare; None if there is none."""
    doubts = (one for one in best.warnings if one.code is Code.PRECISION_UNDECIDED)
    return next(doubts, None) if _verdict(best) is None else None


def _verdict(best: Recommendation) -> LossVerdict | None:
    """Return the verdict on the recommended precision; None for full precision, or if it was not compared."""
    own = precision_of(Config(values=best.params))
    # Earlier versions knew fewer of these knobs.
    return next((one for one in best.loss_verdicts if precision_of(Config(values=one.values)) == own), None)


def _names(values: Mapping[str, Value], reference: Mapping[str, Value]) -> tuple[str, str]:
    one, other = names_of(values, reference, lambda knob, value: shown_value(knob, {knob.name: value}))
    return plain(one), plain(other)
