"""The conversation: inspect, baseline, ask and probe and judge and tell, confirm, recommend."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from autotune import codec
from autotune import folder as disk
from autotune.errors import EnvironmentUnfit, NoRecommendation, UsageError
from autotune.guard import Guard
from autotune.launch.base import Launcher
from autotune.objectives import objective_of
from autotune.records import Config, StudyRequest
from autotune.results import Trial, Verdict
from autotune.sampler import Encoding, GuardedSampler, hardware, make
from autotune.space import SearchSpace
from autotune.study import Lock, Store
from autotune.tuning import batch_advice, between, drift, noise, stopping, verification, worths
from autotune.tuning.certificate import bound, certificate
from autotune.tuning.confirm import Candidate
from autotune.tuning.disturbance import FOUND, standing
from autotune.tuning.foretelling import Foretelling
from autotune.tuning.leaner import leaner
from autotune.tuning.numerics import Numerics
from autotune.tuning.opening import opening_lines
from autotune.tuning.prepare import check_scored, fault, inspect, settle
from autotune.tuning.prober import FATAL_AT_BASELINE, Prober
from autotune.tuning.recommend import recommend
from autotune.tuning.recommendation import Recommendation
from autotune.tuning.reporter import Reporter
from autotune.tuning.resume import begin, check_resumable
from autotune.tuning.runoff import RunOff
from autotune.tuning.settings import Settings
from autotune.tuning.view import load_view

MOST_RESERVED = 0.4  # share of the budget kept for the confirmation; a short one overruns rather than search nothing


def search(
    settings: Settings, launcher: Launcher, reporter: Reporter, clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Recommendation:  # fmt: skip
    """Run one search to its recommendation, which is also left in the study as best.json.

    Raises `UsageError`, `TargetError`, `StudyError`, `EnvironmentUnfit` or `NoRecommendation`. On `KeyboardInterrupt`
    the running probe is killed, everything finished is kept, the reporter is told, and the interrupt goes on;
    once there is an answer, it only leaves out the probes that explain it.
    """
    began = clock()
    check_resumable(settings.folder, settings.mode)
    folder = disk.make(settings.folder)
    lock = Lock(folder)
    try:
        environment, facts = inspect(settings.target, settings.device, settings.seed, folder / disk.INSPECT, launcher)
        request, space = settle(settings, environment, facts)
        folder, lock, resumed = begin(folder, lock, request, settings.mode)
        reporter.opening(opening_lines(folder, request, space, settings, resumed=resumed))
        try:
            request = noise.measure(folder, request, launcher, reporter, settings.time_budget_seconds)
            tuner = Tuner(settings, folder, request, space, launcher, reporter, clock, began, pause)
            try:
                return tuner.run()
            finally:
                tuner.store.close()
        except KeyboardInterrupt:
            reporter.interrupted(load_view(folder), settings.resume_command)
            raise
    except (KeyboardInterrupt, UsageError, EnvironmentUnfit) as error:
        if not disk.is_study(folder) and isinstance(error, KeyboardInterrupt):
            reporter.note("Interrupted before the first probe: nothing was measured, and nothing is kept.")
        disk.clear_away(folder)  # but not after a `TargetError`, which names its log
        raise
    finally:
        lock.release()


class Tuner:
    """One run of a search on an open study."""

    def __init__(
        self, settings: Settings, folder: Path, request: StudyRequest, space: SearchSpace,
        launcher: Launcher, reporter: Reporter, clock: Callable[[], float], began: float,
        pause: Callable[[float], None],
    ) -> None:  # fmt: skip
        self._settings, self._folder, self._request, self._space = settings, folder, request, space
        self._launcher, self._reporter, self._clock, self._began = launcher, reporter, clock, began
        self._guard, self._objective = Guard(space), objective_of(request.goal)
        self._prober = Prober(folder, request, self._guard, launcher, reporter, pause)
        judged = self._prober.judged
        encoding = Encoding(space)
        self.store = Store(folder, request, encoding, needs_complete=settings.sampler == "gp")
        self.store.reconcile(tuple(t for t, _ in standing(judged)), {t.number: v for t, v in judged})
        machine, seed = hardware(request.environment), settings.seed * 100_003 + self._prober.before
        self._foretelling = Foretelling(request, space, judged)
        worth = self._objective.worth(request.goal)
        sampler = make(settings.sampler, seed, encoding, self._guard, machine, self._foretelling.share, worth)
        self._sampler = GuardedSampler(sampler, encoding, self._guard)
        self._numerics = Numerics(folder, request, launcher, reporter, self._spare_seconds)
        self._certificate = ""
        self._runoff = RunOff(request, self._prober, self._numerics, reporter, self._left_seconds)

    def run(self) -> Recommendation:
        """Baseline, search, confirmation, recommendation."""
        self._baseline()
        self._foretell()
        self._search()
        candidates = self._confirm()
        recommendation = recommend(
            candidates,
            self._request,
            study=str(self._folder),
            probes=len(self._prober.judged),
            seconds=self._clock() - self._began,
            losses=self._numerics.verdicts,
            busy=self._prober.busy,
            probed={trial.config for trial, _ in self._prober.judged},
            certificate=self._certificate,
        )
        recommendation = batch_advice.advised(recommendation, self._folder, self._request, self._prober.judged)
        self._keep(recommendation)
        if self._settings.verify_goodput:
            seconds = self._left_seconds()
            recommendation = verification.verified(
                recommendation, self._folder, self._request, self._launcher, self._reporter, seconds
            )
            self._keep(recommendation)
        if self._objective.is_speed and self._measure_steps():
            probes, seconds = len(self._prober.judged), round(self._clock() - self._began, 1)
            recommendation = replace(recommendation, probes=probes, seconds=seconds)
            self._keep(recommendation)
        self._reporter.finished(recommendation)
        return recommendation

    def _keep(self, recommendation: Recommendation) -> None:
        try:
            codec.write(self._folder / disk.BEST, recommendation)
        except OSError as error:
            raise disk.unwritable(self._folder, error) from error

    def _baseline(self) -> None:
        known = next((pair for pair in self._prober.judged if pair[0].config == self._request.baseline), None)
        if known is not None:
            check_scored(*known, self._request)
            return
        trial, verdict = self._prober.in_peace(self._request.baseline, "baseline")
        if trial.result.outcome in FATAL_AT_BASELINE:
            assert trial.result.failure is not None, "only OK has none"
            raise fault(trial.result.outcome, trial.result.failure, disk.log_of(self._folder, trial.number))
        check_scored(trial, verdict, self._request)
        self.store.add(trial, verdict)

    def _foretell(self) -> None:
        if self._settings.sampler == "structured":  # nobody else would look at it
            seconds = self._settings.time_budget_seconds
            self._foretelling.run(self._folder, self._launcher, self._reporter, seconds)

    def _search(self) -> None:
        while (why := stopping.reason(self._progress())) is None:
            if drift.is_due(self._prober.judged, self._prober.typical_seconds):
                self._look_at_drift()
                continue
            number, place = disk.new_probe(self._folder)
            config = self.store.ask(self._sampler, number)
            try:
                trial, verdict = self._prober.in_peace(config, "search", (number, place))
            except BaseException:
                with suppress(Exception):  # the database may be what failed; the first error is the one to show
                    self.store.abandon(number)
                raise
            self.store.tell(number, verdict, result=trial.result, final=trial.number)
        self._reporter.note(f"Search ends: {why}.")
        self._refine()
        self._descend()
        learned = sum(trial.purpose in FOUND for trial, _ in standing(self._prober.judged))
        speaks = learned >= stopping.PROBES  # after fewer probes it is the prior that speaks
        if speaks and (fit := self._sampler.fit(self.store.study)) is not None:
            disk.write_fit(self._folder, fit)
        rest = self._sampler.faster_elsewhere(self.store.study) if speaks else None
        if told := bound(rest, self._objective.better):
            self._reporter.note(told)
        remaining = len(self._guard.remaining())
        measured = len({trial.config for trial, _ in self._prober.judged})
        self._certificate = certificate(measured, remaining, rest, self._objective.better)

    def _refine(self) -> None:
        """Between the batches of the space probe those that promise a gain, within the budgets of the search."""
        for _ in range(between.MOST_PROBES):
            progress, judged = self._progress(), standing(self._prober.judged)
            if not self._affords(progress) or len(progress.values) < stopping.PROBES:  # the prior would promise
                return
            candidates = [c for c in between.between(judged, self._request) if self._guard.admits(c)]
            config = between.promising(self._sampler.expected(self.store.study, candidates))
            if config is None:
                return
            self._prober.in_peace(config, "search")

    def _descend(self) -> None:
        """Where memory counts, probe smaller configurations of what leads, within the budgets of the search."""
        host = self._request.environment.device_kind == "cpu"
        for _ in range(self._objective.probes_after()):
            if not self._affords(self._progress()):
                return
            slack, judged = self._objective.slack(self._request.goal) or 0.0, standing(self._prober.judged)
            config = leaner(judged, self._guard.remaining(), slack=slack, host=host)
            if config is None:
                return
            self.store.add(*self._prober.in_peace(config, "search"))

    def _affords(self, progress: stopping.Progress) -> bool:
        """Whether the budgets of time and of probes leave one more, after the search proper."""
        asked = self._settings.probes
        return self._spare_seconds() >= progress.typical_seconds and (asked is None or progress.probed < asked)

    def _confirm(self) -> list[Candidate]:
        candidates = self._runoff.run()
        if not candidates:
            raise NoRecommendation(self._nothing_usable())
        return candidates

    def _measure_steps(self) -> bool:
        """With what is left of the time budget, probe what nobody did on the way to the recommendation."""

        def probe(config: Config) -> tuple[Trial, Verdict]:
            trial, verdict = self._prober.in_peace(config, "worth")
            self.store.add(trial, verdict)
            return trial, verdict

        def has_time() -> bool:
            return self._left_seconds() >= self._prober.typical_seconds

        return worths.measure(self._folder, self._guard, self._reporter, probe, has_time)

    def _look_at_drift(self) -> None:
        """Probe the baseline once more, and say so if the machine has become slower or faster."""
        self._prober.twice(self._request.baseline, "reference")
        told = drift.told(self._prober.judged, self._request.baseline)
        if told:
            self._reporter.note(told)

    def _progress(self) -> stopping.Progress:
        found = [(t, v) for t, v in standing(self._prober.judged) if t.purpose in FOUND]
        typical = self._prober.typical_seconds
        return stopping.Progress(
            values=[v.value if v.feasible else None for _, v in found],
            remaining=len(self._guard.remaining()),
            elapsed_seconds=self._clock() - self._began,
            budget_seconds=self._settings.time_budget_seconds,
            reserve_seconds=self._reserve_seconds(typical) if self._prober.best else 0.0,  # nothing to confirm yet
            typical_seconds=typical,
            probes=self._search_probes(),
            probed=sum(t.purpose == "search" and t.number >= self._prober.first_number for t, _ in found),
            promises=self.store.promises,
        )

    def _search_probes(self) -> int | None:
        """Of the probes that were asked for, those of the search proper; at least two in three."""
        asked = self._settings.probes
        return None if asked is None else asked - min(self._objective.probes_after(), asked // 3)

    def _reserve_seconds(self, typical: float) -> float:
        comparison = self._numerics.reserve_seconds(typical) + typical * self._objective.probes_after()
        return min(self._runoff.wanted_seconds() + comparison, MOST_RESERVED * self._settings.time_budget_seconds)

    def _spare_seconds(self) -> float:
        """Of the time budget, what the shortest confirmation does not need."""
        return self._left_seconds() - self._runoff.shortest_seconds

    def _left_seconds(self) -> float:
        return self._settings.time_budget_seconds - (self._clock() - self._began)

    def _nothing_usable(self) -> str:
        reasons = [verdict.reason for _, verdict in self._prober.judged if not verdict.feasible]
        worst = max(set(reasons), key=reasons.count) if reasons else "nothing was probed"
        return (
            f"None of {len(self._prober.judged)} probes was usable. Most often: {worst}. Look with "
            f"`autotune show {self._folder} --failed`; a smaller --batch or a larger --memory-limit may help."
        )
