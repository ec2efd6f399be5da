"""A study as terminal, page and server read it: all records, and the summary of each configuration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

from autotune.core.records import Config, StudyRequest, TargetFacts
from autotune.core.results import LossVerdict, Trial, Verdict
from autotune.errors import StudyNotFound
from autotune.gradient_noise.records import NoiseScaleRequest
from autotune.knobs import touched
from autotune.knobs.base import Knob
from autotune.knobs.declared import declare
from autotune.precision.judge import PrecisionCheck
from autotune.precision.records import PrecisionCheckRequest
from autotune.study import disk
from autotune.study.history import History, NoiseScaleCheck
from autotune.study.progress import SearchProgress, read_progress
from autotune.study.recommendation import Confirmation, Recommendation, read_best
from autotune.study.running import is_running, only_answered
from autotune.study.summary import Compared, ConfigSummary
from autotune.study.valid_probes import Judged, valid_trials

AGAIN = ("confirm", "ablation", "elsewhere")  # purposes of probes that run in rounds: they only measure again


@dataclass(frozen=True, kw_only=True, eq=False)  # views are never compared, and one may be a key
class StudyView:
    """A study at one moment. Reading it needs no exclusive lock, no torch and no Optuna."""

    folder: Path
    request: StudyRequest
    trials: tuple[Trial, ...]
    recommendation: Recommendation | None
    running: bool
    precision_checks: tuple[PrecisionCheck, ...] = ()  # in the order they were run
    gradient_samples: tuple[NoiseScaleCheck, ...] = ()  # the same
    progress: SearchProgress | None = None  # of the search that runs or ran last; None: of an earlier version

    @property
    def name(self) -> str:
        """The name of the study's folder."""
        return self.folder.resolve().name

    @cached_property
    def history(self) -> History:
        """The history of the study, which judges its probes, all of them among each other."""
        return History(self.request, self.trials, (*self.precision_checks, *self.gradient_samples))

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        """The knobs that the baseline or a probe moved from their defaults; the target may not have the others."""
        return touched([self.request.baseline, *(trial.config for trial in self.trials)])

    def verdict(self, trial: Trial) -> Verdict:
        """Return whether a trial is feasible, its score, and why."""
        return self._verdicts.get(id(trial)) or self.history.verdict(trial)

    @property
    def loss_verdicts(self) -> tuple[LossVerdict, ...]:
        """The verdict on every precision that was compared with full precision."""
        return self.history.loss_verdicts

    @property
    def noise_scale(self) -> float | None:
        """The gradient noise scale in samples; None: not known, or the objective does not use it."""
        return self.history.noise_scale

    @property
    def judged(self) -> tuple[Judged, ...]:
        """All probes of the study, with their verdicts."""
        return self.history.judged

    @cached_property
    def _verdicts(self) -> dict[int, Verdict]:
        """The verdicts by id of the trial: a page asks for each a dozen times, and `trials` keeps the ids."""
        return {id(trial): verdict for trial, verdict in self.judged}


def load_view(folder: Path, trials: tuple[Trial, ...] | None = None, *, reads_answer: bool = True) -> StudyView:
    """Read a study, except its `trials` if they are already known. Raises `StudyNotFound` and `StudyError`.

    Without `reads_answer` best.json is left out, because it is damaged.
    The knobs that it declares are in `KNOBS` in this context from here on.
    """
    if not (folder / disk.STUDY).is_file():
        disk.find(folder.absolute())  # raises its own error for what is no study at all
        raise StudyNotFound(only_answered(folder))
    best, request = folder / disk.BEST, disk.read_request(folder)
    declare(*request.facts.declared)
    return StudyView(
        folder=folder,
        request=request,
        trials=disk.read_trials(folder) if trials is None else trials,
        recommendation=read_best(best) if reads_answer and best.is_file() else None,
        running=is_running(folder),
        progress=read_progress(folder),
        precision_checks=disk.attempts(folder, PrecisionCheckRequest.kind()),
        gradient_samples=disk.attempts(folder, NoiseScaleRequest.kind()),
    )


def view_of(folder: Path, history: History) -> StudyView:
    """Return the study of a running search from memory. It has no answer yet."""
    return StudyView(
        folder=folder, request=history.request, trials=tuple(trial for trial, _ in history.judged),
        recommendation=None, running=False, precision_checks=history.precision_checks,
        gradient_samples=history.gradient_samples,
    )  # fmt: skip


@lru_cache(maxsize=2)  # every chart of a page asks for them
def summaries(view: StudyView) -> tuple[ConfigSummary, ...]:
    """Return every configuration that was measured at least once, in the order of their first probes.

    A confirmed configuration has only the rounds of its confirmation: the probe that selected it was probably lucky.
    Until there is an answer, rounds are left out: only few configurations have them, and not equally many.
    """
    best = view.recommendation
    confirmed = {one.config: one for one in best.confirmations} if best else {}
    width = best.relative_half_width if best else None
    probes: dict[Config, list[Judged]] = {}
    for one in valid_trials(view.judged):
        # A reference shows the machine's speed, which may have changed; rounds count when all have run.
        if one.trial.purpose not in ("reference", "elsewhere") and (best or one.trial.purpose not in AGAIN):
            probes.setdefault(one.trial.config, []).append(one)
    return tuple(
        _summary(config, judged, confirmed.get(config), width)
        for config, judged in probes.items()
        if any(trial.result.measurement is not None for trial, _ in judged)
    )


def _summary(
    config: Config, judged: list[Judged], confirmation: Confirmation | None, width: float | None
) -> ConfigSummary:
    counted, left_out = judged, list[Trial]()
    if confirmation is not None:
        numbers = confirmation.trials
        counted = [one for one in judged if one.trial.number in numbers] or judged
        left_out = [t for t, _ in judged if t.purpose == "confirm" and numbers and min(numbers) < t.number]
    found = ConfigSummary(
        config=config,
        trials=tuple(trial for trial, _ in counted),
        verdicts=tuple(verdict for _, verdict in counted),
        left_out=tuple(left_out),
    )
    if confirmation is None:
        return found
    rate = confirmation.samples_per_second
    score = rate * found.score / found.samples_per_second if found.scores and found.rates else rate  # in its own unit
    return replace(found, compared=Compared(score=score, samples_per_second=rate, relative_half_width=width))


def facts_of(best: Recommendation, view: StudyView | None) -> TargetFacts | None:
    """Return the facts of the target, which earlier versions kept in the study alone."""
    return best.facts or (view.request.facts if view else None)
