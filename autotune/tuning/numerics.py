"""Which arithmetic may be recommended: each that leads is compared with full precision, once per study.

    leaders ─► one not yet judged? compare it ─► refused? its configurations are out, others move up ─► leaders ─► ...

Every comparison is kept in the study, and `following` decides from those alone what is still to be run: whoever resumes
pays only for what is missing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from autotune import folder as disk
from autotune.errors import NoRecommendation
from autotune.knobs import KNOBS, loader_workers, worker_knob
from autotune.launch.base import LOG, Launcher
from autotune.records import Config, StudyRequest
from autotune.requests import StabilityRequest
from autotune.results import LossVerdict, Outcome, ProbeResult, StabilityResult, Trial, Verdict
from autotune.stability import Thresholds, arithmetic, full_precision, judge, names, settled
from autotune.tuning.confirm import Candidate, leaders
from autotune.tuning.prepare import fault
from autotune.tuning.race import FEWEST_LEADERS
from autotune.tuning.reporter import Reporter

LEAST_SECONDS = 10.0  # for one comparison, however late it is
STEPS = 50  # of a first comparison (docs/notes/precision.md 2)
SEED_SECONDS = 60.0  # at most, for so many steps of the three runs of one seed
FULL_SEEDS = 3  # the fewest that give an interval (docs/notes/precision.md 2)
TRIES = 2  # of a comparison that crashed: it may have been an accident
MORE_TIME = 2.0  # times what a comparison had that was cut short: then it is run again
RUNS = 3  # of one seed: full precision, the same perturbed, the candidate
RUNS_SLOWER = 1.5  # than the fastest probe: two of them are in full precision (6.2 s for 4.1 s, digits_cnn, Xeon)
Judged = Sequence[tuple[Trial, Verdict]]
Comparison = tuple[StabilityRequest, StabilityResult]


class Numerics:
    """The judgements of one study. `spare_seconds` tells how much time a comparison may take now."""

    def __init__(
        self, folder: Path, request: StudyRequest, launcher: Launcher, reporter: Reporter,
        spare_seconds: Callable[[], float],
    ) -> None:  # fmt: skip
        self._folder, self._request = folder, request
        self._launcher, self._reporter, self._spare_seconds = launcher, reporter, spare_seconds
        self._lines = Thresholds(tolerance=request.goal.loss_tolerance)
        found = disk.attempts(folder, StabilityRequest.kind())
        self._comparisons = [pair for pair in found if pair[1].outcome is not Outcome.ENVIRONMENT]

    @property
    def verdicts(self) -> tuple[LossVerdict, ...]:
        """The last word on every arithmetic that was compared."""
        return settled(self._comparisons, self._lines)

    def refusal(self, config: Config) -> str:
        """Why this configuration's arithmetic may not be recommended; empty if it may."""
        found = (verdict for verdict in self.verdicts if verdict.values == arithmetic(config))
        return next((verdict.reason for verdict in found if verdict.excludes), "")

    def leaders(self, judged: Judged, most: int = FEWEST_LEADERS, margin: float = 0.0) -> list[Candidate]:
        """Whom to confirm: only who computes in a way that is not refused. What was not compared yet is compared.

        `most` and `margin` are those of `confirm.leaders`.

        Raises `NoRecommendation` if all that could be confirmed is refused, and `EnvironmentUnfit`.
        """
        while True:
            trusted = [(trial, verdict) for trial, verdict in judged if not self.refusal(trial.config)]
            chosen = leaders(trusted, self._request, most=most, margin=margin)
            wanted = [candidate.config for candidate in chosen]
            if any(trial.config == self._request.baseline and verdict.feasible for trial, verdict in judged):
                wanted.append(self._request.baseline)  # among equals it wins, leading or not
            unknown = next((config for config in wanted if self._next(config, judged) is not None), None)
            if unknown is None:
                break
            self._settle(unknown, judged)
        refused = self._refused(judged)
        if refused and not chosen:
            reasons = "; ".join(candidate.refused for candidate in refused)
            raise NoRecommendation(
                f"No configuration that ran may be recommended: {reasons}. The model or its loss does not suit this "
                f"arithmetic. Allow full precision (--amp none,...), or do not ask for this check (--stability off)."
            )
        return chosen

    def refused(self, judged: Judged) -> list[Candidate]:
        """Of each refused arithmetic the fastest configuration, with the reason; the baseline is in the run-off."""
        return [candidate for candidate in self._refused(judged) if candidate.config != self._request.baseline]

    def reserve_seconds(self, judged: Judged) -> float:
        """Time to keep for the comparison that a search will probably need, by what was probed so far."""
        domains = [self._request.domains.get(knob.name, (knob.default,)) for knob in KNOBS if knob.numerics]
        compared = [tuple(verdict.values.values()) for verdict in self.verdicts]
        plain = tuple(knob.default for knob in KNOBS if knob.numerics)
        unknown = [values for values in itertools.product(*domains) if values != plain and values not in compared]
        if not unknown or self._request.goal.stability == "off":
            return 0.0
        seconds = [result.elapsed_seconds for _, result in self._comparisons if result.outcome is Outcome.OK]
        if seconds:
            return seconds[-1]
        paces = [self._expected_seconds(trial.result, judged) for trial, _ in judged if trial.result.measurement]
        return min(paces, default=0.0)

    def _expected_seconds(self, seen: ProbeResult, judged: Judged) -> float:
        """Of one comparison by the pace of one probe: it starts alike, then come three runs of fifty micro-batches."""
        assert seen.measurement is not None, "only what was measured has a pace"
        begins = sum(seen.phase_seconds.get(name, 0.0) for name in ("start", "load", "build"))
        samples = RUNS * STEPS * self._batch_size(judged)
        return begins + min(RUNS_SLOWER * samples / seen.measurement.samples_per_second, SEED_SECONDS)

    def _refused(self, judged: Judged) -> list[Candidate]:
        found = []
        for verdict in self.verdicts if self._request.goal.stability != "off" else ():
            own = [pair for pair in judged if arithmetic(pair[0].config) == verdict.values]
            first = leaders(own, self._request)[:1] if verdict.excludes else []
            found += [Candidate(config=c.config, found=c.found, refused=verdict.reason) for c in first]
        return found

    def _settle(self, config: Config, judged: Judged) -> None:
        """Compare until there is nothing more to find out; tell the reporter."""
        attempts = 0
        while (request := self._next(config, judged)) is not None:
            name, full = names(request)
            again = " once more" if attempts else ""
            seeds = f" of {len(request.seeds)} seeds" if len(request.seeds) > 1 else ""
            self._reporter.note(
                f"Comparing the losses of {name} and {full}{again}: {request.steps} paired steps{seeds} at batch "
                f"{request.candidate.batch_size}."
            )
            _, place = disk.new_attempt(self._folder, StabilityRequest)
            result = self._launcher.run(request, place)
            if result.outcome is Outcome.ENVIRONMENT:
                assert result.failure is not None, "only OK has none"
                raise fault(result.outcome, result.failure, place / LOG)
            self._comparisons.append((request, result))
            attempts += 1
        verdict = next(verdict for verdict in self.verdicts if verdict.values == arithmetic(config))
        out = " It is left out." if verdict.excludes else ""
        self._reporter.note(f"{verdict.reason}.{out}")

    def _next(self, config: Config, judged: Judged) -> StabilityRequest | None:
        """The comparison that this configuration still needs, if any."""
        goal = self._request.goal
        if goal.stability == "off" or full_precision(config) == config:
            return None
        # All runs with the same workers, who are seeded from the run's own seed: they see the same batches and the same
        # augmentation, and a slow loader costs what it costs in training.
        loading = {worker_knob().name: loader_workers(config)}
        values = {**self._request.baseline.values, "gradient_accumulation_steps": 1, **loading}
        candidate = Config(values={**values, **arithmetic(config), "batch_size": self._batch_size(judged)})
        seeds = tuple(self._request.seed + number for number in range(FULL_SEEDS))
        first = StabilityRequest(
            target=self._request.target,
            reference=full_precision(candidate),
            candidate=candidate,
            device=self._request.environment.device,
            steps=STEPS,
            seeds=seeds if goal.stability == "full" else seeds[:1],
            max_seconds=max(LEAST_SECONDS, self._spare_seconds()),
            memory_limit_bytes=self._request.enforced_limit_bytes,
        )
        attempts = [pair for pair in self._comparisons if arithmetic(pair[0].candidate) == arithmetic(config)]
        return following(attempts, first, seeds, self._lines)

    def _batch_size(self, judged: Judged) -> int:
        """The baseline's micro-batch, or what of it can fit by all that is known of running out of memory."""
        batch = self._request.baseline.batch_size
        too_large = [t.config.batch_size for t, _ in judged if t.result.outcome is Outcome.OOM_DEVICE]
        while batch > 1 and batch >= min(too_large, default=batch + 1):
            batch //= 2
        return batch


def following(
    attempts: Sequence[Comparison], first: StabilityRequest, seeds: tuple[int, ...], lines: Thresholds
) -> StabilityRequest | None:
    """What is to be run after these attempts, `first` being what one would begin with; None: no more can be found out.

    Out of memory: half the batch. A crash: once more. Runs that are hardly paired: several `seeds`. An interval that
    leaves it open: twice the steps, once. Too few steps in the time: once more when there is much more time.
    """
    if not attempts:
        return _capped(first, first.max_seconds)
    request, result = attempts[-1]
    again = _capped(request, first.max_seconds)
    remedy = judge(request, result, lines).remedy
    if result.outcome.out_of_memory:
        half = request.candidate.batch_size // 2
        return _capped(_at_batch(request, half), first.max_seconds) if half else None
    if result.outcome.retried:
        return again if sum(other.outcome.retried for _, other in attempts) < TRIES else None
    if remedy == "seeds":
        return _capped(replace(request, seeds=seeds), first.max_seconds)
    if remedy == "steps" and request.steps == first.steps:
        return _capped(replace(request, steps=2 * request.steps), first.max_seconds)
    if remedy == "time" and again.max_seconds >= MORE_TIME * request.max_seconds:
        return again
    return None


def _capped(request: StabilityRequest, spare_seconds: float) -> StabilityRequest:
    most = SEED_SECONDS * len(request.seeds) * request.steps / STEPS
    return replace(request, max_seconds=min(spare_seconds, most))


def _at_batch(request: StabilityRequest, batch_size: int) -> StabilityRequest:
    reference, candidate = (
        Config(values={**config.values, "batch_size": batch_size}) for config in (request.reference, request.candidate)
    )
    return replace(request, reference=reference, candidate=candidate)
