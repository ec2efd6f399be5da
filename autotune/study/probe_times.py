"""The seconds of past probes, and predictions for the next ones."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from autotune.core.probe_duration import STEP_UP, ProbeDuration
from autotune.core.records import Config, StudyRequest
from autotune.core.requests import FEWEST_PROBE_STEPS, ProbeBudget
from autotune.core.results import Outcome, Trial
from autotune.knobs.base import SHORT_CYCLE
from autotune.objectives import objective_of
from autotune.study.compiling_seconds import CompilingSeconds
from autotune.study.pace import Pace, compiling_seconds

FIRST_GUESS_SECONDS = 10.0  # of one probe, before any has been seen


class ProbeTimes:
    """The seconds of the next probe of any configuration, by those of the probes so far."""

    def __init__(self, request: StudyRequest, trials: Sequence[Trial]) -> None:
        self._request, self._results = request, [trial.result for trial in trials]
        self._paces: dict[Config, list[Pace]] = {}
        self._failed: dict[Config, float] = {}  # seconds of the last probe, where it failed
        for trial in trials:
            if trial.result.measurement is not None:
                self._paces.setdefault(trial.config, []).append(Pace.of(trial.result))
                self._failed.pop(trial.config, None)
            else:
                self._failed[trial.config] = trial.result.elapsed_seconds
        self._compiling = CompilingSeconds(trials)
        self._of_others: dict[tuple[ProbeBudget, float, bool], float] = {}
        is_short = objective_of(request.goal).is_speed and not request.facts.owns_loop
        self._longest_cycle = SHORT_CYCLE if is_short else math.inf  # micro-batches of a search probe's optimizer step

    @property
    def typical_seconds(self) -> float:
        """The seconds of one probe: the median of those that ran, a guess before the first."""
        seconds = [result.elapsed_seconds for result in self._results if result.outcome is Outcome.OK]
        return statistics.median(seconds) if seconds else FIRST_GUESS_SECONDS

    def expected_seconds(self, budget: ProbeBudget, config: Config | None = None, *, in_search: bool = False) -> float:
        """Return the seconds of one more probe of `config` with this budget; of any configuration if it is None.

        All parts except the window are assumed to take as long as before, and the window as long as before within the
        bounds of the budget, at least two steps. A configuration that never ran takes as long as others, and longer if
        its steps are longer; one whose last probe failed takes at least as long again. A probe `in_search` may have
        cycles of fewer micro-batches, and may be cut short. Compiling is included.
        """
        failed = 0.0 if config is None else self._failed.get(config, 0.0)
        return max(failed, self._of_those_that_ran(budget, config, in_search))

    def _of_those_that_ran(self, budget: ProbeBudget, config: Config | None, in_search: bool) -> float:
        compiling = 0.0 if config is None else self.compiling_seconds(config)
        longest = self._longest_cycle if in_search else math.inf
        if config in self._paces:
            cycle = min(1.0, longest / config.gradient_accumulation_steps)
            own = [one if in_search else one.to_its_end(budget) for one in self._paces[config]]
            return compiling + statistics.fmean(pace.again(budget, cycle * pace.step) for pace in own)
        if not self._paces:
            return compiling + FIRST_GUESS_SECONDS
        samples = 0 if config is None else config.batch_size * min(longest, config.gradient_accumulation_steps)
        asked = budget, samples, in_search
        if asked not in self._of_others:  # asked of hundreds of configurations before every probe
            self._of_others[asked] = self._expected_by_others(*asked)
        return compiling + self._of_others[asked]

    def compiling_seconds(self, config: Config) -> float:
        """Return the seconds that the next probe of `config` will compile."""
        return self._compiling.next(config)

    @property
    def probe_duration(self) -> ProbeDuration:
        """The duration of search probes, from those that ran: the fixed part is the median beyond their cycles.

        The first probe after the baseline is bounded by the baseline's, the next ones by the longest so far, all
        without compiling (`compiling_seconds`).
        """
        duration = ProbeDuration(longest_cycle=self._longest_cycle)
        measured = [(one, one.measurement) for one in self._results if one.measurement is not None]
        ran = [(one.elapsed_seconds - compiling_seconds(one), measurement) for one, measurement in measured]
        beyond = [seconds - duration.seconds(sum(m.step_seconds) / m.steps, 1) for seconds, m in ran]
        longest = max((seconds for seconds, _ in ran), default=math.inf)
        fixed = max(0.0, statistics.median(beyond)) if beyond else 0.0
        return replace(duration, fixed_seconds=float(fixed), most_seconds=STEP_UP * longest)

    def _expected_by_others(self, budget: ProbeBudget, samples: float, in_search: bool) -> float:
        """Return the seconds of a probe with cycles of `samples` samples that never ran; 0: as long as others."""
        ran = [(config.global_batch_size(), pace) for config, paces in self._paces.items() for pace in paces]
        again = [one if in_search else one.to_its_end(budget) for _, one in ran]
        typical = statistics.median(pace.again(budget, pace.cycle) for pace in again)
        steps: dict[float, float] = {}
        inspected = self._request.facts.step
        if inspected is not None and inspected.seconds is not None:  # it was cold: any other measurement is better
            steps[self._request.baseline.global_batch_size()] = inspected.seconds
        for other, pace in ran:
            steps[other] = min(pace.step, steps.get(other, pace.step))
        sizes = sorted(steps)
        # A fixed part and a part per sample: linear between two known points, and not slower per sample beyond.
        cycle = float(np.interp(samples, sizes, [steps[size] for size in sizes])) * max(1.0, samples / sizes[-1])
        return typical + FEWEST_PROBE_STEPS * max(0.0, cycle - statistics.median(pace.cycle for _, pace in ran))
