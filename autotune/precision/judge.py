"""The verdict on paired losses: does a precision learn what full precision learns, step by step? Pure.

The decision rule, in this order (docs/notes/precision.md 3, calibrated on two toy models: 14 of 14 healthy autocast
runs passed with at most 0.23 % of the loss decrease, 8 of 8 drifting pure-bfloat16 runs were refused at 5.0 to 5.7 %):

    full precision itself breaks or does not learn          inconclusive, not the candidate's fault
    losses not finite, steps skipped, gradients vanish      unstable
    behind by at most the tolerance in the last steps       ok, if the check could have shown more
    behind by more than that and than the noise             worse
    else                                                    inconclusive: more seeds may decide

A check could have shown more (docs/notes/precision.md 3)

    one seed         if full precision from weights that are 1e-6 away differs from itself by at most a third of the
                     tolerance at the end, and by at most the tolerance in a step
    several seeds    if the upper end of the interval, one-sided 95 %, is within the tolerance: a precision that is
                     truly behind by more passes in one of twenty checks at most
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.records import Config, Record, Value
from autotune.core.results import LossVerdict, Outcome
from autotune.core.stats import mean_bounds
from autotune.objectives.verdict import MOST_SKIPS_PER_STEP
from autotune.precision.arithmetic import contains, names, precision_of
from autotune.precision.records import LossRun, PrecisionCheckRequest, PrecisionCheckResult

FIRST_LOSSES, LAST_LOSSES = 3, 10  # steps whose mean is the loss at the beginning, and at the end
PrecisionCheck = tuple[PrecisionCheckRequest, PrecisionCheckResult]

FEWEST_NORMS_FOR_MEDIAN = 5  # gradient norms before their running median means something
SPIKE_STEPS = 50  # a check is divided into parts of so many steps, whose spikes are counted
FEWEST_SEEDS = 3  # from here on an interval decides, not a single difference
STANDARD_ERRORS = 2.0  # standard errors by which a loss must have fallen to have fallen


class Thresholds(Record, frozen=True, kw_only=True):
    """The thresholds of the verdict. Source: docs/notes/precision.md."""

    least_steps: int = 20  # fewer steps decide nothing
    tolerance: float = 0.02  # of the full-precision loss decrease: 8.7 times the largest healthy difference seen
    perturbed_factor: float = 3.0  # times what a perturbation of 1e-6 alone does: the noise of a check
    first_skips: int = 10  # by the gradient scaler; a few are calibration
    skips_per_step: float = MOST_SKIPS_PER_STEP  # after the first success
    least_scale: float = 1.0  # a loss scale below it no longer scales anything up
    zero_share: float = 0.20  # of gradient entries: 0.83 where float16 gradients underflowed
    zero_share_reference: float = 0.01  # only where full precision has next to none
    spike: float = 10.0  # times the running median of the gradient norm
    spikes: int = 2  # this many spikes in one part of `SPIKE_STEPS`


THRESHOLDS = Thresholds()


@dataclass(frozen=True, kw_only=True)
class Paired:
    """The three runs of one seed, cut to the same length."""

    reference: LossRun
    perturbed: LossRun
    candidate: LossRun
    steps: int

    @property
    def start(self) -> float:
        """The loss of full precision at the beginning."""
        return statistics.fmean(_finite(self.reference.losses[:FIRST_LOSSES]))

    @property
    def end(self) -> float:
        """The loss of full precision in the last steps."""
        return statistics.fmean(_finite(self.reference.losses[: self.steps][-LAST_LOSSES:]))

    @property
    def decrease(self) -> float:
        """The decrease of the loss in full precision."""
        return self.start - self.end

    @property
    def standard_error(self) -> float:
        """The standard error of `decrease`, by the scatter of the last steps."""
        last = _finite(self.reference.losses[: self.steps][-LAST_LOSSES:])
        return statistics.stdev(last) * math.sqrt(1 / FIRST_LOSSES + 1 / LAST_LOSSES)

    @property
    def learned(self) -> bool:
        """Whether full precision's losses are finite and fell by more than noise."""
        finite = self.steps > 1 and None not in self.reference.losses[: self.steps]
        return finite and self.decrease > STANDARD_ERRORS * self.standard_error

    @property
    def difference(self) -> float:
        """The mean paired difference of the loss over the last steps; above 0 the candidate's loss is higher."""
        return statistics.fmean(self._differences(self.candidate)[-LAST_LOSSES:])

    @property
    def largest(self) -> float:
        """The largest paired difference in a step."""
        return max(map(abs, self._differences(self.candidate)))

    @property
    def perturbation(self) -> float:
        """The difference between full precision and itself from weights that are 1e-6 away."""
        return abs(statistics.fmean(self._differences(self.perturbed)[-LAST_LOSSES:]))

    @property
    def looseness(self) -> float:
        """The mean distance in a step of reference and perturbed run: large if masks or kernels differ between them."""
        return statistics.fmean(map(abs, self._differences(self.perturbed)[-LAST_LOSSES:]))

    def differences(self, other: LossRun) -> list[float | None]:
        """Return how far the other run is above the reference in each step; None where a loss is not finite."""
        pairs = zip(other.losses[: self.steps], self.reference.losses[: self.steps], strict=True)
        return [None if mine is None or its is None else mine - its for mine, its in pairs]

    def _differences(self, other: LossRun) -> list[float]:
        return [math.inf if one is None else one for one in self.differences(other)]


def judge(request: PrecisionCheckRequest, result: PrecisionCheckResult, lines: Thresholds = THRESHOLDS) -> LossVerdict:
    """Return the verdict on the candidate's precision. Batch sizes are never compared: both runs have the same."""
    notices = _Notices(*names(request))
    pairs = paired(result.runs)
    steps = min((pair.steps for pair in pairs), default=0)
    batch = request.candidate.batch_size
    found = partial(LossVerdict, verdict="inconclusive", values=precision_of(request.candidate), batch_size=batch)
    if result.failure is not None:
        evidence = result.failure.evidence
        return found(reason=notices.notice(Code.COMPARISON_FAILED, failure=result.failure.message, evidence=evidence))
    found = partial(found, steps=steps, seeds=len(pairs))
    if steps < lines.least_steps:
        numbers: dict[str, Value] = {"asked": request.steps, "limit": request.max_seconds, "least": lines.least_steps}
        return found(reason=notices.notice(Code.COMPARISON_SHORT, steps=steps, **numbers), remedy="time")
    if doubt := next((doubt for pair in pairs if (doubt := _doubt(pair, notices))), None):
        return found(reason=doubt, remedy="steps" if doubt.code is Code.REFERENCE_LEARNS_NOTHING else "")
    if fault := next((fault for pair in pairs if (fault := _instability(pair, lines, notices))), None):
        return found(verdict="unstable", reason=fault)
    return _compared(found, pairs, lines, notices, batch)


def settled(checks: Sequence[PrecisionCheck], lines: Thresholds = THRESHOLDS) -> tuple[LossVerdict, ...]:
    """Return the verdict on every precision that was compared, in the order of the first."""
    return tuple(judge(request, result, lines) for request, result in pooled(checks))


def refusal(config: Config, verdicts: Sequence[LossVerdict]) -> Notice | None:
    """Return why the arithmetic of `config` may not be recommended; None if it may.

    What was refused stays refused with more changes to the arithmetic: those compute no more exactly.
    """
    own = precision_of(config)
    found = [one for one in verdicts if one.excludes and contains(own, one.values)]
    return min(found, key=lambda one: one.values != own).reason if found else None


def pooled(checks: Sequence[PrecisionCheck]) -> list[PrecisionCheck]:
    """Return the last check of every precision, with the runs of earlier checks whose seeds it does not have.

    One that failed after others that ran does not count.
    """
    last = dict[tuple[Value, ...], PrecisionCheck]()
    for check in checks:
        known = last.setdefault(precision := tuple(precision_of(check[0].candidate).values()), check)
        if check[1].outcome is Outcome.OK or known[1].outcome is not Outcome.OK:
            last[precision] = check
    found = []
    for request, result in last.values():
        alike = [pair for pair in checks if pair[1].outcome is Outcome.OK and _one_but_for_seeds(pair[0], request)]
        if result.outcome is Outcome.OK:
            runs = {(run.seed, run.role): run for _, other in alike for run in other.runs}
            seeds = tuple(dict.fromkeys(seed for asked, _ in alike for seed in asked.seeds))
            request, result = replace(request, seeds=seeds), replace(result, runs=tuple(runs.values()))
        found.append((request, result))
    return found


def _one_but_for_seeds(one: PrecisionCheckRequest, other: PrecisionCheckRequest) -> bool:
    return (one.reference, one.candidate, one.steps) == (other.reference, other.candidate, other.steps)


def paired(runs: Sequence[LossRun]) -> list[Paired]:
    """Return the runs by seed, without seeds that lack one of the three runs."""
    found: dict[int, dict[str, LossRun]] = {}
    for run in runs:
        found.setdefault(run.seed, {})[run.role] = run
    steps = min((len(run.losses) for run in runs), default=0)
    return [Paired(**three, steps=steps) for three in found.values() if len(three) == 3]


@dataclass(frozen=True)
class _Notices:
    """Makes notices that name the candidate and the reference."""

    candidate: str
    reference: str

    def notice(self, code: Code, **numbers: Value) -> Notice:
        return notice(code, candidate=self.candidate, reference=self.reference, **numbers)


def _doubt(pair: Paired, notices: _Notices) -> Notice | None:
    """Return why a comparison with full precision is impossible; None if it is possible."""
    for run in (pair.reference, pair.perturbed):
        if broken := sum(loss is None for loss in run.losses[: pair.steps]):
            return notices.notice(Code.REFERENCE_NOT_FINITE, broken=broken, steps=pair.steps)
    if pair.learned:
        return None
    fall = {"start": pair.start, "end": pair.end, "noise": pair.standard_error}
    return notices.notice(Code.REFERENCE_LEARNS_NOTHING, steps=pair.steps, **fall)


def _instability(pair: Paired, lines: Thresholds, notices: _Notices) -> Notice | None:
    """Return why the candidate's run went wrong where the reference's did not; None if it did not."""
    run, steps = pair.candidate, pair.steps
    if broken := (losses := run.losses[:steps]).count(None):
        first = 1 + losses.index(None)
        return notices.notice(Code.LOSSES_NOT_FINITE, broken=broken, steps=steps, first=first)
    skipped = {step for step in run.skipped_steps if step < steps}
    first_skips = next(step for step in range(steps + 1) if step not in skipped)
    if first_skips > lines.first_skips:
        return notices.notice(Code.FIRST_STEPS_SKIPPED, skipped=first_skips)
    if (later := len(skipped) - first_skips) > max(1.0, steps * lines.skips_per_step):
        return notices.notice(Code.STEPS_SKIPPED, skipped=later, steps=steps - first_skips)
    if run.loss_scale is not None and run.loss_scale < lines.least_scale:
        return notices.notice(Code.LOSS_SCALE_FELL, scale=run.loss_scale)
    zeros, zeros_before = _zeros(run), _zeros(pair.reference)
    if zeros > lines.zero_share and zeros_before < lines.zero_share_reference:
        return notices.notice(Code.GRADIENTS_UNDERFLOW, zeros=zeros, reference_zeros=zeros_before)
    spikes, spikes_before = (_spikes(each, lines) for each in (run, pair.reference))
    if spikes >= lines.spikes > spikes_before:
        counted_in = min(steps, SPIKE_STEPS)
        return notices.notice(
            Code.GRADIENTS_JUMP, factor=lines.spike, jumps=spikes, steps=counted_in, reference_jumps=spikes_before
        )  # fmt: skip
    return None


def _compared(
    found: Callable[..., LossVerdict], pairs: Sequence[Paired], lines: Thresholds, notices: _Notices, batch: int
) -> LossVerdict:
    """Return `ok`, `worse` or `inconclusive`: from one seed where noise is small, else from an interval over seeds."""
    decrease = statistics.fmean(pair.decrease for pair in pairs)
    differences = [pair.difference for pair in pairs]
    tolerated = lines.tolerance * decrease
    noise = lines.perturbed_factor * statistics.fmean(pair.perturbation for pair in pairs)
    loose = max(pair.looseness for pair in pairs)
    low = high = differences[0]
    if len(pairs) >= FEWEST_SEEDS:
        low, high = mean_bounds(differences)
        if loose > tolerated:  # hardly paired: it must exceed the spread of seeds (docs/notes/precision.md 2)
            noise = max(noise, statistics.stdev(pair.end for pair in pairs))
    elif max(loose, noise) > tolerated:
        return found(reason=notices.notice(Code.ONE_SEED_UNDECIDED, looseness=loose / decrease), remedy="seeds")
    share, limit = statistics.fmean(differences) / decrease, max(tolerated, noise) / decrease
    numbers: dict[str, Value] = {
        "steps": pairs[0].steps,
        "batch": batch,
        "seeds": len(pairs) if len(pairs) > 1 else None,
        "start": pairs[0].start,
        "end": pairs[0].end,
    }
    found = partial(found, difference=float(f"{share:.3g}"), allowed=float(f"{limit:.3g}"))
    if high <= tolerated:
        largest = max(pair.largest / pair.decrease for pair in pairs)
        numbers |= {"difference": abs(share), "largest_difference": largest, "allowed": lines.tolerance}
        return found(verdict="ok", allowed=lines.tolerance, reason=notices.notice(Code.LOSSES_MATCH, **numbers))
    if low > limit * decrease:
        return found(
            verdict="worse", reason=notices.notice(Code.LEARNS_LESS, difference=share, allowed=limit, **numbers)
        )
    numbers |= {"low": low / decrease, "high": high / decrease, "allowed": lines.tolerance}
    return found(reason=notices.notice(Code.LOSSES_UNDECIDED, **numbers), remedy="seeds")


def _zeros(run: LossRun) -> float:
    shares = [share for step, share in enumerate(run.zero_gradient_shares) if step not in run.skipped_steps]
    return statistics.fmean(shares) if shares else 0.0


def _spikes(run: LossRun, lines: Thresholds) -> int:
    """Return how often the gradient norm exceeded `spike` times the median before it, in the part with the most."""
    norms = _finite(run.gradient_norms)
    steps = range(FEWEST_NORMS_FOR_MEDIAN, len(norms))
    parts = [step // SPIKE_STEPS for step in steps if norms[step] > lines.spike * statistics.median(norms[:step])]
    return max(map(parts.count, parts), default=0)


def _finite(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]
