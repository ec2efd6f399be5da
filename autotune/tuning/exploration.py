"""The search between baseline and confirmation: propose, probe, tell, and know when looking on is not worth it.

ask ─► probe ─► tell ─► ... reason to stop? ─► between the batches ─► leaner ones ─► what is known of the rest
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from autotune import folder as disk
from autotune.guard import Guard
from autotune.objectives import objective_of
from autotune.records import StudyRequest
from autotune.requests import ProbeRequest
from autotune.sampler.optuna import GuardedSampler
from autotune.study import Store
from autotune.tuning import between, drift, stopping
from autotune.tuning.allowance import Allowance
from autotune.tuning.certificate import bound, certificate
from autotune.tuning.disturbance import FOUND, standing
from autotune.tuning.leaner import leaner
from autotune.tuning.prober import Prober
from autotune.tuning.reporter import Reporter


class Exploration:
    """The search proper of one run on an open study.

    `probes` are those that the user asked for, None: as many as pay. `reserve_seconds` tells what the confirmation
    will take, `spare_seconds` what the shortest one leaves of the time budget, `ruled` what was decided since without
    a probe, a line each.
    """

    def __init__(
        self, folder: Path, request: StudyRequest, guard: Guard, store: Store, sampler: GuardedSampler, prober: Prober,
        reporter: Reporter, allowance: Allowance, probes: int | None, *,
        reserve_seconds: Callable[[], float], spare_seconds: Callable[[], float], ruled: Callable[[], list[str]],
    ) -> None:  # fmt: skip
        self._folder, self._request, self._guard, self._store = folder, request, guard, store
        self._sampler, self._prober, self._reporter = sampler, prober, reporter
        self._allowance, self._asked, self._objective = allowance, probes, objective_of(request.goal)
        self._reserve_seconds, self._spare_seconds, self._ruled = reserve_seconds, spare_seconds, ruled

    def run(self) -> str:
        """Probe until a rule ends it; which certificate then holds of what was not probed."""
        while (why := stopping.reason(self._progress())) is None:
            for line in self._ruled():
                self._reporter.note(line)
            if drift.is_due(self._prober.judged, self._prober.typical_seconds):
                self._look_at_drift()
            else:
                self._probe_next()
        self._reporter.note(f"Search ends: {why}.")
        self._refine()
        self._descend()
        return self.certify()

    def certify(self) -> str:
        """What was learned of the configurations that were not probed: kept, told, and as a certificate."""
        learned = sum(trial.purpose in FOUND for trial, _ in standing(self._prober.judged))
        speaks = learned >= stopping.PROBES  # after fewer probes it is the prior that speaks
        if speaks and (fit := self._sampler.fit(self._store.study)) is not None:
            disk.write_fit(self._folder, fit)
        rest = self._sampler.faster_elsewhere(self._store.study) if speaks else None
        if told := bound(rest, self._objective.better):
            self._reporter.note(told)
        measured = len({trial.config for trial, _ in self._prober.judged})
        return certificate(measured, len(self._guard.remaining()), rest, self._objective.better)

    def _probe_next(self) -> None:
        number, place = disk.new_attempt(self._folder, ProbeRequest)
        config = self._store.ask(self._sampler, number)
        try:
            trial, verdict = self._prober.in_peace(config, "search", (number, place))
        except BaseException:
            with suppress(Exception):  # the database may be what failed; the first error is the one to show
                self._store.abandon(number)
            raise
        self._store.tell(number, verdict, result=trial.result, final=trial.number)

    def _look_at_drift(self) -> None:
        """Probe the baseline once more, and say so if the machine has become slower or faster."""
        self._prober.twice(self._request.baseline, "reference")
        told = drift.told(self._prober.judged, self._request.baseline)
        if told:
            self._reporter.note(told)

    def _refine(self) -> None:
        """Between the batches of the space probe those that promise a gain, within the budgets of the search."""
        for _ in range(between.MOST_PROBES):
            progress, judged = self._progress(), standing(self._prober.judged)
            if not self._affords(progress) or len(progress.values) < stopping.PROBES:  # the prior would promise
                return
            candidates = [c for c in between.between(judged, self._request) if self._guard.admits(c)]
            config = between.promising(self._sampler.expected(self._store.study, candidates))
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
            self._store.add(*self._prober.in_peace(config, "search"))

    def _affords(self, progress: stopping.Progress) -> bool:
        """Whether the budgets of time and of probes leave one more, after the search proper."""
        return self._spare_seconds() >= progress.typical_seconds and (
            self._asked is None or progress.probed < self._asked
        )

    def _progress(self) -> stopping.Progress:
        found = [(t, v) for t, v in standing(self._prober.judged) if t.purpose in FOUND]
        return stopping.Progress(
            values=[v.value if v.feasible else None for _, v in found],
            remaining=len(self._guard.remaining()),
            elapsed_seconds=self._allowance.elapsed_seconds(),
            budget_seconds=self._allowance.seconds,
            reserve_seconds=self._reserve_seconds(),
            typical_seconds=self._prober.typical_seconds,
            probes=self._search_probes(),
            probed=sum(t.purpose == "search" and t.number >= self._prober.first_number for t, _ in found),
            promises=self._store.promises,
        )

    def _search_probes(self) -> int | None:
        """Of the probes that were asked for, those of the search proper; at least two in three."""
        return None if self._asked is None else self._asked - min(self._objective.probes_after(), self._asked // 3)
