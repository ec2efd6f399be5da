"""Everything that a study has measured: its probes with their verdicts, and what a search asks about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from autotune.core import codec
from autotune.core.measurements import MEASUREMENTS
from autotune.core.notices import Notice
from autotune.core.records import SEARCH_PURPOSES, Config, StudyRequest
from autotune.core.requests import Asked, Kind, ProbeRequest, Request, ResultT
from autotune.core.results import LossVerdict, Outcome, Result, Trial, Verdict
from autotune.errors import StudyError
from autotune.gradient_noise.estimate import estimate
from autotune.gradient_noise.records import NoiseScale, NoiseScaleRequest, NoiseScaleResult
from autotune.launch.base import REQUEST, RESULT
from autotune.memory.records import ShapeRun, ShapeRunRequest
from autotune.objectives import objective_of
from autotune.objectives.verdict import judge_among
from autotune.precision.judge import PrecisionCheck, Thresholds, refusal, settled
from autotune.precision.records import PrecisionCheckRequest
from autotune.profile.records import ProfileRequest, ProfileResult
from autotune.study import disk
from autotune.study.machines import ReferenceRates, baseline_rates_by_machine, drift_corrected, speed
from autotune.study.probe_times import ProbeTimes
from autotune.study.summary import ConfigSummary
from autotune.study.unstable_baseline import ends_search
from autotune.study.valid_probes import MOST_VAIN_REPEATS, Judged, drift_factor, interference_causes, valid_trials

# Outcomes of the baseline that are faults of the target or the machine, which the user must mend before a search.
FATAL_AT_BASELINE = (Outcome.USER_ERROR, Outcome.INVALID_CONFIG, Outcome.TIMEOUT, Outcome.CRASHED,
                     Outcome.DEVICE_FAULT, Outcome.COMPILE_FAILED)  # fmt: skip
NoiseScaleCheck = tuple[NoiseScaleRequest, NoiseScaleResult]
Measured = tuple[Request[Any], Result]


class History:
    """The history of a study: the only owner of what it has measured. `version` grows with everything that is added."""

    def __init__(self, request: StudyRequest, trials: Sequence[Trial] = (), others: Iterable[Measured] = ()) -> None:
        """Take the `trials` that were there when this run of the search began, and all `others` that it measured."""
        self.request, self.version = request, 0
        self._others: dict[type[Request[Any]], tuple[Any, ...]] = {}  # pairs of request and result, by type of request
        for asked, result in others:
            self._others[type(asked)] = (*self._others.get(type(asked), ()), (asked, result))
        self._known_times = (-1, ProbeTimes(request, ()))  # by the version
        self.judged = self._judge(trials)  # every probe with its verdict, in order
        self.count_before = len(self.judged)  # probes that were there when this run of the search began

    @classmethod
    def read(cls, folder: Path, request: StudyRequest) -> History:
        """Read the study in `folder`, without probes that ended a search: their cause has probably been mended.

        Raises `StudyError` if a file is damaged, except that of a profile, which only adds to the answer.
        """
        return cls(
            request,
            [trial for trial in disk.read_trials(folder) if not ended_a_search(trial, request)],
            [pair for pair in _others(folder) if pair[1].outcome is not Outcome.ENVIRONMENT],
        )

    def add(self, trial: Trial) -> Judged:
        """Judge one more probe among the others, keep it, and return it with its verdict."""
        self.judged = (*self.judged, judged := Judged(trial, self.verdict(trial)))
        self.version += 1
        return judged

    def verdict(self, trial: Trial) -> Verdict:
        """Return the verdict on `trial`, which may be another's, among all probes of the study."""
        return judge_among(trial, (other for other, _ in self.judged), self.request, self.noise_scale)

    def add_measured(self, asked: Request[ResultT], result: ResultT) -> None:
        """Keep one more measurement of another kind. If the objective uses it, all probes are judged again."""
        before = self.noise_scale
        self._others[type(asked)] = (*self._others.get(type(asked), ()), (asked, result))
        self.version += 1
        if self.noise_scale != before:
            self.judged = self._judge([trial for trial, _ in self.judged])

    def of(self, kind: Kind[Asked, ResultT]) -> tuple[tuple[Asked, ResultT], ...]:
        """Return every request of that kind with its result, in order."""
        return self._others.get(kind.request, ())

    @property
    def is_empty(self) -> bool:
        """Whether nothing was measured that counts."""
        return not self.judged and not self._others

    @property
    def precision_checks(self) -> tuple[PrecisionCheck, ...]:
        """All precision checks of the study, in order of time."""
        return self.of(PrecisionCheckRequest.kind())

    @property
    def gradient_samples(self) -> tuple[NoiseScaleCheck, ...]:
        """All samples of gradients of the study, in order of time."""
        return self.of(NoiseScaleRequest.kind())

    @property
    def shape_run(self) -> ShapeRun | None:
        """The result of the last shape run; None: there was none."""
        runs = self.of(ShapeRunRequest.kind())
        return runs[-1][1] if runs else None

    @property
    def profiles(self) -> tuple[ProfileResult, ...]:
        """All profiles of the baseline, in order of time."""
        return tuple(result for _, result in self.of(ProfileRequest.kind()))

    @property
    def valid(self) -> list[Judged]:
        """The probes that count: without those that were superseded by a repeat."""
        return valid_trials(self.judged)

    @property
    def search_results(self) -> list[Judged]:
        """The valid probes that a search learns from."""
        return [one for one in self.valid if one.trial.purpose in SEARCH_PURPOSES]

    @property
    def first_number(self) -> int:
        """The number of the first probe of this run."""
        return self.judged[self.count_before - 1][0].number + 1 if self.count_before else 0

    @property
    def probed(self) -> set[Config]:
        """All configurations that were probed."""
        return {trial.config for trial, _ in self.judged}

    @property
    def never_ran(self) -> dict[Config, Trial]:
        """The last probe of each configuration that never ran."""
        ran = {trial.config for trial, _ in self.judged if trial.result.measurement is not None}
        return {trial.config: trial for trial, _ in self.judged if trial.config not in ran}

    @property
    def best_score(self) -> float:
        """The best score of the search results; 0.0 if there is none."""
        return max((v.value for _, v in self.search_results if v.feasible and v.value), default=0.0)

    @property
    def baseline_known(self) -> Judged | None:
        """The first probe of the baseline, of any purpose; None if there is none."""
        return next((one for one in self.judged if one.trial.config == self.request.baseline), None)

    @property
    def baseline_probes(self) -> list[Trial]:
        """The probes made to measure the baseline that ran, including superseded ones."""
        return [t for t, _ in self.judged if t.purpose == "baseline" and t.result.measurement is not None]

    @property
    def baseline_runs(self) -> bool:
        """Whether the baseline can be used: one of its probes was feasible."""
        return any(trial.config == self.request.baseline and verdict.feasible for trial, verdict in self.valid)

    @property
    def baseline_rates_by_machine(self) -> dict[str, ReferenceRates]:
        """The number and rate of every probe of the baseline without interference, by machine, the home's first."""
        return baseline_rates_by_machine(self.judged, self.request.baseline)

    @property
    def baseline_rates(self) -> list[float]:
        """The rates on the home machine, samples/s: they show how far repeats of one configuration differ there."""
        return [rate for _, rate in next(iter(self.baseline_rates_by_machine.values()), ())]

    @property
    def drift_corrected(self) -> list[Judged]:
        """The valid probes, with their values converted to the initial speed of the machine."""
        return drift_corrected(self.valid, self.request.baseline)

    @property
    def is_busy(self) -> bool:
        """Whether other work slowed so many repeats in a row in this run that repeating does not help."""
        repeats = {trial.repeats: trial for trial, _ in self.judged[self.count_before :] if trial.repeats is not None}
        last = list(repeats.values())[-MOST_VAIN_REPEATS:]
        return len(last) == MOST_VAIN_REPEATS and all(interference_causes(trial.result) for trial in last)

    def summary(self, config: Config) -> ConfigSummary:
        """Return the summary of the search's probes of `config`, corrected for drift."""
        results = [one for one in self.drift_corrected if one.trial.config == config and one.verdict.feasible]
        return summarize(config, [one for one in results if one.trial.purpose in SEARCH_PURPOSES])

    def incumbent(self, config: Config, number: int) -> float | None:
        """Return the rate of the fastest other configuration, samples/s, at the speed of the machine at probe `number`.

        None if no other one ran. A repeat need not beat the probe that it repeats.
        """
        known = self.baseline_rates_by_machine
        rates = [
            trial.result.measurement.samples_per_second / speed(trial, known)
            for trial, verdict in self.search_results
            if verdict.feasible and trial.result.measurement is not None and trial.config != config
        ]
        return max(rates) * drift_factor(number, next(iter(known.values()), ())) if rates else None

    @property
    def times(self) -> ProbeTimes:
        """The expected seconds of the next probes, from those so far."""
        if self._known_times[0] != self.version:
            self._known_times = (self.version, ProbeTimes(self.request, [trial for trial, _ in self.judged]))
        return self._known_times[1]

    @property
    def profile(self) -> ProfileResult | None:
        """The last successful profile of the baseline; None if there is none."""
        return next((one for one in reversed(self.profiles) if one.outcome is Outcome.OK and one.parts), None)

    @property
    def loss_verdicts(self) -> tuple[LossVerdict, ...]:
        """The last verdict on every precision that was compared with full precision."""
        return settled(self.precision_checks, Thresholds(tolerance=self.request.goal.loss_tolerance))

    def refusal(self, config: Config) -> Notice | None:
        """Return why the precision of `config` may not be recommended; None if it may."""
        return refusal(config, self.loss_verdicts)

    @property
    def noise_scale_estimate(self) -> NoiseScale | None:
        """The gradient noise scale by the last sample; None if unknown, or if the objective does not use it."""
        samples = [result.sample for _, result in self.gradient_samples if result.sample is not None]
        return estimate(samples[-1]) if samples and objective_of(self.request.goal).uses_noise_scale else None

    @property
    def noise_scale(self) -> float | None:
        """The gradient noise scale in samples; None if unknown."""
        return self.noise_scale_estimate.phi if self.noise_scale_estimate else None

    def value_per_sample(self, config: Config) -> float:
        """Return the score of one sample/s of `config`, for an objective that knows it before any probe."""
        known = objective_of(self.request.goal).value_per_sample(self.request.goal, self.noise_scale)
        assert known is not None, "asked for only where the objective knows it"
        return known(config)

    def _judge(self, trials: Sequence[Trial]) -> tuple[Judged, ...]:
        noise_scale = self.noise_scale
        return tuple(Judged(trial, judge_among(trial, trials, self.request, noise_scale)) for trial in trials)


def summarize(config: Config, results: Iterable[Judged]) -> ConfigSummary:
    """Return the summary of `config` from these probes of it; `found` is their mean score."""
    pairs = list(results)
    made = ConfigSummary(config=config, trials=tuple(t for t, _ in pairs), verdicts=tuple(v for _, v in pairs))
    return ConfigSummary(config=config, found=made.score or None, trials=made.trials, verdicts=made.verdicts)


def _others(folder: Path) -> Iterator[Measured]:
    """Yield all measurements besides probes, by kind, in order."""
    for kind in (asked.kind() for asked in MEASUREMENTS if asked not in (ProbeRequest, ProfileRequest)):
        yield from disk.attempts(folder, kind)
    for path in sorted((folder / ProfileRequest.FOLDER).glob(f"*/{RESULT}")):
        with suppress(StudyError, OSError):
            yield codec.read(path.with_name(REQUEST), ProfileRequest), codec.read(path, ProfileResult)


def ended_a_search(trial: Trial, request: StudyRequest) -> bool:
    """Return whether the search stopped at this probe for a fault of machine or target: it is to be probed again."""
    outcome = trial.result.outcome
    is_fatal = outcome is Outcome.ENVIRONMENT or (trial.purpose == "baseline" and outcome in FATAL_AT_BASELINE)
    return is_fatal or ends_search(trial, request)
