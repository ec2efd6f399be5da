"""The conversation: inspect, baseline, ask and probe and judge and tell, confirm, recommend."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
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
from autotune.sampler.optuna import Encoding, GuardedSampler, hardware, make
from autotune.space import SearchSpace
from autotune.study import Lock, Store
from autotune.tuning import batch_advice, keeping, left_out, noise, worths
from autotune.tuning.allowance import Allowance
from autotune.tuning.broken_off import BrokenOff
from autotune.tuning.confirm import Candidate
from autotune.tuning.disturbance import standing
from autotune.tuning.exploration import Exploration
from autotune.tuning.foretelling import Foretelling
from autotune.tuning.numerics import Numerics
from autotune.tuning.opening import moving, opening_lines
from autotune.tuning.prepare import check_scored, fault, inspect, settle
from autotune.tuning.prober import FATAL_AT_BASELINE, Prober
from autotune.tuning.race import FEWEST_LEADERS
from autotune.tuning.recommend import nothing_usable, recommend
from autotune.tuning.recommendation import Recommendation, answered_probes
from autotune.tuning.recomputing import Recomputing
from autotune.tuning.reporter import Reporter
from autotune.tuning.resume import begin, check_place, check_resumable, rebuild
from autotune.tuning.runoff import RunOff
from autotune.tuning.settings import Settings
from autotune.tuning.view import load_view
from autotune.units import format_seconds

MOST_RESERVED = 0.4  # share of the budget kept for the confirmation; of a short one more, once three could be confirmed


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
    check_place(settings)
    rebuilt = rebuild(settings)
    check_resumable(settings.folder, settings.mode)
    folder = disk.make(settings.folder)
    lock = _locked(folder)
    try:
        environment, facts = inspect(
            settings.target, settings.device, settings.seed, folder / disk.INSPECT, launcher,
            memory_limit=settings.memory_limit,
        )  # fmt: skip
        request, space = settle(settings, environment, facts)
        folder, lock, resumed = begin(folder, lock, request, settings.mode)
        lines = opening_lines(folder, request, space, settings, resumed=resumed)
        reporter.opening(lines, moving(request))
        if rebuilt:
            reporter.note(rebuilt)
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


def _locked(folder: Path) -> Lock:
    try:
        return Lock(folder)
    except EnvironmentUnfit:
        disk.clear_away(folder)
        raise


class Tuner:
    """One run of a search on an open study."""

    def __init__(
        self, settings: Settings, folder: Path, request: StudyRequest, space: SearchSpace,
        launcher: Launcher, reporter: Reporter, clock: Callable[[], float], began: float,
        pause: Callable[[float], None],
    ) -> None:  # fmt: skip
        self._settings, self._folder, self._request, self._space = settings, folder, request, space
        self._launcher, self._reporter = launcher, reporter
        self._allowance = Allowance(seconds=settings.time_budget_seconds, clock=clock, began=began)
        self._guard, self._objective = Guard(space), objective_of(request.goal)
        self._prober = Prober(folder, request, self._guard, launcher, reporter, pause, self._has_time)
        judged = self._prober.judged
        encoding = Encoding(space)
        self.store = Store(folder, request, encoding, needs_complete=settings.sampler == "gp")
        machine, seed = hardware(request.environment), settings.seed * 100_003 + self._prober.before
        self._foretelling = Foretelling(request, space, judged)
        self._recomputing = Recomputing(request, space, judged, self._guard, self._foretelling.expects_to_fit)
        worth = self._objective.worth(request.goal)
        sampler = make(settings.sampler, seed, encoding, self._guard, machine, self._foretelling.of, worth)
        self._numerics = Numerics(folder, request, launcher, reporter, lambda: self._runoff.spare_seconds())
        self._broken_off = BrokenOff(judged, answered_probes(folder, request), request.baseline)
        left = self._allowance.left_seconds
        excluded = space.excludes(request.baseline)
        self._runoff = RunOff(request, self._prober, self._numerics, reporter, left, self._broken_off, excluded)
        self._exploration = Exploration(
            folder, request, self._guard, self.store, GuardedSampler(sampler, encoding, self._guard), self._prober,
            reporter, self._allowance, settings.probes,
            reserve_seconds=self._reserve_seconds, spare_seconds=self._runoff.spare_seconds,
            ruled=self._recomputing.news,
        )  # fmt: skip

    def run(self) -> Recommendation:
        """Baseline, search, confirmation, recommendation."""
        self._baseline()
        self._stand_in()
        if not self._broken_off:
            self._tell_time()
        self._foretell()
        certificate = self._explore()
        candidates = self._confirm()
        recommendation = recommend(
            candidates,
            self._request,
            study=str(self._folder),
            probes=len(self._prober.judged),
            seconds=self._allowance.elapsed_seconds(),
            losses=self._numerics.verdicts,
            busy=self._prober.busy,
            probed={trial.config for trial, _ in self._prober.judged},
            certificate=certificate,
        )
        recommendation = replace(recommendation, warnings=(*left_out.told(candidates), *recommendation.warnings))
        recommendation = batch_advice.advised(recommendation, self._folder, self._request, self._prober.judged)
        answer, recommendation = recommendation, self._stands(recommendation)
        is_new = recommendation is answer
        if self._objective.is_speed and is_new and self._measure_steps():
            probes, seconds = len(self._prober.judged), round(self._allowance.elapsed_seconds(), 1)
            recommendation = replace(recommendation, probes=probes, seconds=seconds)
            self._keep(recommendation)
        self._reporter.finished(recommendation)
        return recommendation

    def _stands(self, answer: Recommendation) -> Recommendation:
        """Keep a new answer beside those that the study has; the one that stands, told if it is the earlier one."""
        latest = {trial.config: verdict for trial, verdict in self._prober.judged}

        def fails(config: Config) -> bool:
            return bool(self._numerics.refusal(config)) or (config in latest and not latest[config].feasible)

        try:
            stands, told = keeping.keep(self._folder, answer, fails)
        except OSError as error:
            raise disk.unwritable(self._folder, error) from error
        if told:
            self._reporter.note(told)
        return stands

    def _keep(self, recommendation: Recommendation) -> None:
        try:
            codec.write(self._folder / disk.BEST, recommendation)
        except OSError as error:
            raise disk.unwritable(self._folder, error) from error

    def _baseline(self) -> None:
        """Measure it where it is not known yet, before anything else; then the database says what the folders say."""
        known = next((pair for pair in self._prober.judged if pair[0].config == self._request.baseline), None)
        runs = known is not None and known[0].result.measurement is not None
        if known is None or (runs and not self._broken_off and not self._prober.knows_baseline):
            known = trial, _ = self._prober.baseline()
            if trial.result.outcome in FATAL_AT_BASELINE:
                assert trial.result.failure is not None, "only OK has none"
                raise fault(trial.result.outcome, trial.result.failure, disk.log_of(self._folder, trial.number))
        check_scored(*known, self._request)
        judged = self._prober.judged
        self.store.reconcile(tuple(t for t, _ in standing(judged)), {t.number: v for t, v in judged})

    def _stand_in(self) -> None:
        """Probe what changes least of a baseline that may not be recommended: it should not be missed in the answer."""
        if not self._space.excludes(self._request.baseline):
            return
        nearest = self._space.nearest(self._request.baseline)
        if nearest not in {trial.config for trial, _ in self._prober.judged}:
            self.store.add(*self._prober.in_peace(nearest, "search"))

    def _foretell(self) -> None:
        if self._settings.sampler == "structured" or self._recomputing.decides:  # nobody else would look at it
            seconds = self._settings.time_budget_seconds
            self._foretelling.run(self._folder, self._launcher, self._reporter, seconds)
        self._guard.leave_out(self._recomputing.cannot_win)

    def _explore(self) -> str:
        """The search proper, unless it had ended and its confirmation was broken off; what is known of the rest."""
        if not self._broken_off:
            return self._exploration.run()
        self._reporter.note(
            "The search had ended, and its confirmation was broken off: that goes on, and its whole rounds count. To "
            "look further, run this command again when there is an answer."
        )
        return self._exploration.certify()

    def _confirm(self) -> list[Candidate]:
        candidates = self._runoff.run()
        if not candidates:
            raise NoRecommendation(nothing_usable(self._folder, self._prober.judged))
        return candidates

    def _measure_steps(self) -> bool:
        """With what is left of the time budget, probe what nobody did on the way to the recommendation."""
        self._guard.leave_out(lambda config: False)  # a step there may lead over what could not win

        def probe(config: Config) -> tuple[Trial, Verdict]:
            trial, verdict = self._prober.in_peace(config, "worth")
            self.store.add(trial, verdict)
            return trial, verdict

        def has_time() -> bool:
            return self._allowance.left_seconds() >= self._prober.expected_seconds(self._objective.window)

        return worths.measure(self._folder, self._guard, self._reporter, probe, has_time)

    def _reserve_seconds(self) -> float:
        """What the confirmation will take: the race, the comparison of losses, and what the objective probes after.

        Nothing while there is nothing to confirm: a search that tried only the baseline has no answer to keep time for.
        """
        if self._missing_leaders() == FEWEST_LEADERS:
            return 0.0
        besides = self._besides_seconds()
        most = MOST_RESERVED * self._allowance.seconds
        if self._missing_leaders() == 0:
            most = max(most, self._runoff.shortest_seconds() + besides)
        return min(self._runoff.wanted_seconds() + besides, most)

    def _besides_seconds(self) -> float:
        """What the comparison of losses will take, and what the objective probes after the search."""
        after = self._prober.typical_seconds * self._objective.probes_after()
        return self._numerics.reserve_seconds(self._prober.judged) + after

    def _missing_leaders(self) -> int:
        """How many configurations are still to be found before as many as race at least stand beside the baseline."""
        known = {trial.config for trial, verdict in self._prober.judged if verdict.feasible}
        return max(0, FEWEST_LEADERS - len(known - {self._request.baseline}))

    def _has_time(self) -> bool:
        """Whether the budget affords one more probe than the search needs."""
        return self._runoff.spare_seconds() >= self._prober.typical_seconds

    def _tell_time(self) -> None:
        """Say by how much the budget will be overrun however little is probed."""
        probes = min(self._missing_leaders(), self._settings.probes or FEWEST_LEADERS, len(self._guard.remaining()))
        after = self._objective.probes_after()
        over = (probes + after) * self._prober.typical_seconds - self._runoff.spare_seconds()
        if over > 0 and self._prober.best:
            compared = self._numerics.reserve_seconds(self._prober.judged)  # at most: by the pace of the baseline
            minutes = math.ceil((self._allowance.seconds + over + compared) / 60)
            more = f", after {probes} more probe{'s' if probes > 1 else ''}," if probes else ""
            self._reporter.note(
                f"The time budget is short: even the shortest confirmation{more} ends about {format_seconds(over)} too "
                f"late. Better give --time-budget {minutes}m."
            )
