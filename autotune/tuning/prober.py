"""One probe and what follows: repeated where an accident or neighbours spoiled it, judged, remembered."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

from autotune import folder as disk
from autotune.errors import EnvironmentUnfit
from autotune.guard import Guard, accidents
from autotune.launch.base import LOG, Launcher
from autotune.objective import WORDS, judge_among
from autotune.objectives import objective_of
from autotune.records import Config, Purpose, StudyRequest
from autotune.requests import ProbeBudget, ProbeRequest
from autotune.results import Outcome, Trial, Verdict
from autotune.tuning import drift, yardstick
from autotune.tuning.disturbance import BACK_OFF_SECONDS, FOUND, MOST_VAIN_REPEATS, Repeats, disturbances, standing
from autotune.tuning.prepare import fault
from autotune.tuning.reporter import Reporter

FIRST_GUESS_SECONDS = 10.0  # of one probe, before any has been seen
# A search probe tells configurations apart, which differ by tens of per cent: recorded windows ended by this rule take
# half as long, and nine of ten rates are off by 1.6 % at most (benchmarks/probe_length.py). All others are measured for
# their own sake.
SEARCH = ProbeBudget(min_seconds=0.75)
# Of a confirmation for which the budget is too short otherwise: the noise is between probes (docs/notes/timing.md 2).
BRIEF = ProbeBudget(min_seconds=0.75, max_seconds=2.0, target_precision=0.05)
# Before each probe of a baseline that is not known yet: work that outlasts all of them is no burst, and is to be told.
BASELINE_PAUSES_SECONDS = (0.0, BACK_OFF_SECONDS, 2 * BACK_OFF_SECONDS, 4 * BACK_OFF_SECONDS)
FATAL_AT_BASELINE = (Outcome.USER_ERROR, Outcome.INVALID_CONFIG, Outcome.TIMEOUT, Outcome.CRASHED,
                     Outcome.DEVICE_FAULT, Outcome.COMPILE_FAILED)  # fmt: skip


class Prober:
    """The probes of one study: those that it has, and each new one."""

    def __init__(
        self, folder: Path, request: StudyRequest, guard: Guard, launcher: Launcher, reporter: Reporter,
        pause: Callable[[float], None], has_time: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        """`has_time` tells whether the budget affords to probe again what others disturbed."""
        self._folder, self._request, self._guard, self._has_time = folder, request, guard, has_time
        self._launcher, self._reporter, self._pause, self._repeats = launcher, reporter, pause, Repeats()
        trials = [trial for trial in disk.read_trials(folder) if not _ended_a_search(trial)]
        self.judged = [(trial, judge_among(trial, trials, request)) for trial in trials]
        self._before = len(self.judged)
        for trial, verdict in self.judged:
            self._learn(trial, verdict)
        accidents(disk.read_orphans(folder), guard)

    @property
    def before(self) -> int:
        """Probes that the study had when this run began."""
        return self._before

    @property
    def first_number(self) -> int:
        """The number of the first probe of this run."""
        return self.judged[self._before - 1][0].number + 1 if self._before else 0

    @property
    def busy(self) -> bool:
        """Whether others used the machine throughout, so that repeats were given up."""
        return self._repeats.given_up

    @property
    def best(self) -> float:
        """The best value that a search probe had, samples/s; 0 if none ran."""
        return max((v.value for t, v in self.judged if v.feasible and v.value and t.purpose in FOUND), default=0.0)

    def found(self, config: Config) -> float | None:
        """The value that the search found last for this configuration; None if it never ran there."""
        values = [v.value for t, v in self.judged if t.config == config and v.feasible and t.purpose in FOUND]
        return values[-1] if values else None

    @property
    def typical_seconds(self) -> float:
        """Of one probe: the median of those that ran, a guess before the first."""
        seconds = [t.result.elapsed_seconds for t, _ in self.judged if t.result.outcome is Outcome.OK]
        return statistics.median(seconds) if seconds else FIRST_GUESS_SECONDS

    def expected_seconds(self, window: ProbeBudget, config: Config | None = None) -> float:
        """Of one more probe of `config` that measures for as long as `window` asks; if it never ran, of any.

        Everything but the window takes what it took, and the window what it took within the bounds of the new one.
        """
        seconds: dict[Config, list[float]] = {}
        for trial, _ in self.judged:
            if trial.result.measurement is not None:
                measured = sum(trial.result.measurement.step_seconds)
                again = min(max(measured, window.min_seconds), window.max_seconds)
                seconds.setdefault(trial.config, []).append(trial.result.elapsed_seconds - measured + again)
        if config in seconds:
            return statistics.fmean(seconds[config])
        return statistics.median(chain(*seconds.values())) if seconds else FIRST_GUESS_SECONDS

    def baseline(self) -> tuple[Trial, Verdict]:
        """The baseline's probe that counts: known to 10 %, if need be by probing again, whatever the budget.

        One that cannot run is measured once. Raises `EnvironmentUnfit` where it cannot be known.
        """
        config, usual = self._request.baseline, objective_of(self._request.goal).window
        for pause in BASELINE_PAUSES_SECONDS:
            tried = [trial for trial, _ in self._baselines()]
            if pause:
                self._reporter.note(
                    f"Probe {tried[-1].number}: {yardstick.doubt(tried[-1])}. The baseline is measured again."
                )
                self._pause(pause)
            trial, verdict = self.twice(config, "baseline", window=yardstick.window(tried, usual))
            if trial.result.measurement is None:
                return trial, verdict
            if self.knows_baseline:
                return self._baselines(standing(self.judged))[-1]
        tried = [trial for trial, _ in self._baselines()][-len(BASELINE_PAUSES_SECONDS) :]
        raise EnvironmentUnfit(yardstick.unknown(tried, str(self._folder)))

    @property
    def knows_baseline(self) -> bool:
        """Whether the probes of the baseline tell its rate to 10 %."""
        return yardstick.is_known([trial for trial, _ in self._baselines()])

    def _baselines(self, judged: Sequence[tuple[Trial, Verdict]] | None = None) -> list[tuple[Trial, Verdict]]:
        """The probes of the baseline that ran, for its own sake."""
        among = self.judged if judged is None else judged
        return [pair for pair in among if pair[0].purpose == "baseline" and pair[0].result.measurement is not None]

    def in_peace(
        self, config: Config, purpose: Purpose, place: tuple[int, Path] | None = None, *,
        window: ProbeBudget | None = None, has_time: Callable[[], bool] | None = None,
    ) -> tuple[Trial, Verdict]:  # fmt: skip
        """Probe, and once more after a while if others disturbed it; the less disturbed of the two counts.

        `window` and `has_time` where they are not those of the purpose and of the search.
        """
        first = self.twice(config, purpose, place, window)
        if not self._repeats.wanted(first[0]):
            return first
        told = f"Probe {first[0].number}: {'; '.join(disturbances(first[0].result))}."
        if not (has_time or self._has_time)():
            self._reporter.note(f"{told} There is no time for another try.")
            return first
        self._reporter.note(f"{told} Trying once more.")
        self._pause(BACK_OFF_SECONDS)
        repeat = self.twice(config, purpose, window=window, repeats=first[0].number)
        counts = self._repeats.settle(first[0], repeat[0])
        if self._repeats.given_up:
            self._reporter.note(f"{MOST_VAIN_REPEATS} repeats in a row were disturbed, too: no more are made.")
        return first if counts is first[0] else repeat

    def twice(
        self, config: Config, purpose: Purpose, place: tuple[int, Path] | None = None,
        window: ProbeBudget | None = None, repeats: int | None = None,
    ) -> tuple[Trial, Verdict]:  # fmt: skip
        """Probe, and once more in a fresh process if it looked like an accident. `window`: not the purpose's own."""
        trial, verdict = self._probe(
            config, purpose, place or disk.new_attempt(self._folder, ProbeRequest), window, repeats
        )
        if trial.result.outcome.retried:
            self._reporter.note(f"Probe {trial.number} {WORDS[trial.result.outcome]}: trying once more.")
            trial, verdict = self._probe(config, purpose, disk.new_attempt(self._folder, ProbeRequest), window, repeats)
        return trial, verdict

    def _probe(
        self, config: Config, purpose: Purpose, place: tuple[int, Path], window: ProbeBudget | None,
        repeats: int | None,
    ) -> tuple[Trial, Verdict]:  # fmt: skip
        number, folder = place
        request = ProbeRequest(
            target=self._request.target,
            config=config,
            device=self._request.environment.device,
            device_uuid=self._request.environment.device_uuid,
            number=number,
            purpose=purpose,
            repeats=repeats,
            budget=window or (SEARCH if self._by_speed(purpose) else objective_of(self._request.goal).window),
            seed=self._request.seed,
            memory_limit_bytes=self._request.enforced_limit_bytes,
            incumbent_samples_per_second=self._incumbent(config, number) if self._by_speed(purpose) else None,
        )
        self._reporter.probing(number, config, purpose)
        result = self._launcher.run(request, folder)
        trial = Trial(number=number, purpose=purpose, config=config, result=result, repeats=repeats)
        if result.outcome is Outcome.ENVIRONMENT:
            assert result.failure is not None, "only OK has none"
            raise fault(result.outcome, result.failure, folder / LOG)
        verdict = judge_among(trial, (other for other, _ in self.judged), self._request)
        best = self.best
        self.judged.append((trial, verdict))
        self._learn(trial, verdict)
        improved = verdict.feasible and verdict.value is not None and verdict.value > best and purpose in FOUND
        self._reporter.probed(trial, verdict, improved)
        return trial, verdict

    def _by_speed(self, purpose: Purpose) -> bool:
        return purpose == "search" and objective_of(self._request.goal).is_speed

    def _incumbent(self, config: Config, number: int) -> float | None:
        """The fastest other configuration so far, samples/s, as this machine would run it now; None: none ran."""
        known = drift.references(self.judged, self._request.baseline)
        rates = [
            trial.result.measurement.samples_per_second / drift.factor(trial.number, known)
            for trial, verdict in self.judged
            if verdict.feasible and trial.purpose in FOUND and trial.result.measurement is not None
            if trial.config != config  # a repeat is not to beat what it repeats
        ]
        return max(rates) * drift.factor(number, known) if rates else None

    def _learn(self, trial: Trial, verdict: Verdict) -> None:
        if trial.purpose != "reference":  # what it shows is the machine, not the configuration
            self._guard.learn(trial, over_limit=verdict.constraints["memory"] > 0)


def _ended_a_search(trial: Trial) -> bool:
    """Its fault was the machine's or the user's, who has had time to mend it since: to be probed again."""
    outcome = trial.result.outcome
    return outcome is Outcome.ENVIRONMENT or (trial.purpose == "baseline" and outcome in FATAL_AT_BASELINE)
