"""The conversation: inspect, baseline, ask and probe and judge and tell, confirm, recommend."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from autotune import codec
from autotune import folder as disk
from autotune.errors import EnvironmentUnfit, NoRecommendation, UsageError
from autotune.guard import Guard
from autotune.launch.base import Launcher
from autotune.records import StudyRequest
from autotune.sampler import Encoding, GuardedSampler, hardware, make
from autotune.space import SearchSpace
from autotune.study import Lock, Store
from autotune.tuning import confirm, drift, stopping
from autotune.tuning.disturbance import FOUND, standing
from autotune.tuning.numerics import Numerics
from autotune.tuning.opening import opening_lines
from autotune.tuning.prepare import fault, inspect, settle
from autotune.tuning.prober import FATAL_AT_BASELINE, Prober
from autotune.tuning.recommend import recommend
from autotune.tuning.recommendation import Recommendation
from autotune.tuning.reporter import Reporter
from autotune.tuning.resume import begin, check_resumable
from autotune.tuning.settings import Settings
from autotune.tuning.view import load_view
from autotune.units import format_seconds

LEAST = 0.01  # of a bound that is told: less is within the noise of one probe
UNBELIEVABLE = 1.0  # a bound that says no more than "at most twice as fast" is not worth a line
MOST_RESERVED = 0.4  # share of the budget kept for the confirmation; a short one overruns rather than search nothing


def search(
    settings: Settings, launcher: Launcher, reporter: Reporter, clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Recommendation:  # fmt: skip
    """Run one search to its recommendation, which is also left in the study as best.json.

    Raises `UsageError`, `TargetError`, `StudyError`, `EnvironmentUnfit` or `NoRecommendation`. On `KeyboardInterrupt`
    the running probe is killed, everything finished is kept, the reporter is told, and the interrupt goes on.
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
        tuner = Tuner(settings, folder, request, space, launcher, reporter, clock, began, pause)
        try:
            return tuner.run()
        except KeyboardInterrupt:
            reporter.interrupted(load_view(folder), settings.resume_command)
            raise
        finally:
            tuner.store.close()
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
        self._reporter, self._clock, self._began = reporter, clock, began
        self._guard = Guard(space)
        self._prober = Prober(folder, request, self._guard, launcher, reporter, pause)
        judged = self._prober.judged
        encoding = Encoding(space)
        self.store = Store(folder, request, encoding, needs_complete=settings.sampler == "gp")
        self.store.reconcile(tuple(t for t, _ in standing(judged)), {t.number: v for t, v in judged})
        machine, seed = hardware(request.environment), settings.seed * 100_003 + self._prober.before
        sampler = make(settings.sampler, seed, encoding, self._guard, machine)
        self._sampler = GuardedSampler(sampler, encoding, self._guard)
        self._numerics = Numerics(folder, request, launcher, reporter, self._spare_seconds)

    def run(self) -> Recommendation:
        """Baseline, search, confirmation, recommendation."""
        self._baseline()
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
        )
        try:
            codec.write(self._folder / disk.BEST, recommendation)
        except OSError as error:
            raise disk.unwritable(self._folder, error) from error
        self._reporter.finished(recommendation)
        return recommendation

    def _baseline(self) -> None:
        if any(trial.config == self._request.baseline for trial, _ in self._prober.judged):
            return
        trial, verdict = self._prober.in_peace(self._request.baseline, "baseline")
        if trial.result.outcome in FATAL_AT_BASELINE:
            assert trial.result.failure is not None, "only OK has none"
            raise fault(trial.result.outcome, trial.result.failure, disk.log_of(self._folder, trial.number))
        self.store.add(trial, verdict)

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
        learned = sum(trial.purpose in FOUND for trial, _ in standing(self._prober.judged))
        rest = self._sampler.faster_elsewhere(self.store.study) if learned >= stopping.PROBES else None
        if rest is not None and rest < UNBELIEVABLE:  # after fewer probes it is the prior that speaks
            self._reporter.note(
                f"No other configuration is expected to be more than {max(rest, LEAST):.0%} faster (90 %)."
            )

    def _confirm(self) -> list[confirm.Candidate]:
        judged = drift.corrected(standing(self._prober.judged), self._request.baseline)
        candidates = self._numerics.leaders(judged)
        if not candidates:
            raise NoRecommendation(self._nothing_usable())
        baseline = self._request.baseline
        runs = any(trial.config == baseline and verdict.feasible for trial, verdict in self._prober.judged)
        if runs and all(candidate.config != baseline for candidate in candidates):
            candidates.append(confirm.Candidate(config=baseline, found=None, refused=self._numerics.refusal(baseline)))
        left = self._settings.time_budget_seconds - (self._clock() - self._began)
        affordable = int(left / (self._prober.typical_seconds * len(candidates)))
        rounds = max(confirm.FEWEST_ROUNDS, min(confirm.MOST_ROUNDS, affordable))
        over = rounds * len(candidates) * self._prober.typical_seconds - left
        late = f" This takes about {format_seconds(over)} more than the time budget." if over > 0 else ""
        self._reporter.note(
            f"Confirming {len(candidates)} configurations in {rounds} interleaved rounds of fresh processes.{late}"
        )
        confirmed = confirm.run(candidates, rounds, lambda config: self._prober.twice(config, "confirm"))
        return [*confirmed, *self._numerics.refused(judged)]

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
            probes=self._settings.probes,
            probed=sum(t.purpose == "search" and t.number >= self._prober.first_number for t, _ in found),
            promises=self.store.promises,
        )

    def _reserve_seconds(self, typical: float) -> float:
        rounds = typical * confirm.FEWEST_ROUNDS * (confirm.LEADERS + 1)
        comparison = self._numerics.reserve_seconds(typical)
        return min(rounds + comparison, MOST_RESERVED * self._settings.time_budget_seconds)

    def _spare_seconds(self) -> float:
        """Of the time budget, what the shortest confirmation does not need."""
        rounds = self._prober.typical_seconds * confirm.FEWEST_ROUNDS * (confirm.LEADERS + 1)
        return self._settings.time_budget_seconds - (self._clock() - self._began) - rounds

    def _nothing_usable(self) -> str:
        reasons = [verdict.reason for _, verdict in self._prober.judged if not verdict.feasible]
        worst = max(set(reasons), key=reasons.count) if reasons else "nothing was probed"
        return (
            f"None of {len(self._prober.judged)} probes was usable. Most often: {worst}. Look with "
            f"`autotune show {self._folder} --failed`; a smaller --batch or a larger --memory-limit may help."
        )
