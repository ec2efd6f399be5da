"""The answer of a search: `best.json`, how it is kept, and how a training script reads it without torch or Optuna.

best.json     the answer that stands
best-1.json   the first answer that it replaced, or that did not replace it
best-2.json   the next one
"""

from __future__ import annotations

import math
import shutil
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace

from autotune import objectives
from autotune.core import codec
from autotune.core.notices import Notice
from autotune.core.records import Config, Environment, Goal, Record, StudyRequest, TargetFacts, Value
from autotune.core.results import LossVerdict
from autotune.errors import EnvironmentMismatch, NoRecommendation, StudyError
from autotune.gradient_noise.records import NoiseScale
from autotune.harmless import plain
from autotune.knobs import completed, defaults
from autotune.machine.environment import fingerprint, mismatches
from autotune.study import layout as disk
from autotune.study.baseline_rate import why_unanswered
from autotune.study.layout import find
from autotune.units import counted, format_share

VERSION = 1


class Confirmation(Record, frozen=True, kw_only=True):
    """One configuration measured again, in every interleaved round, in fresh processes."""

    config: Config
    samples_per_second: float  # over all rounds of the race, by its ratio to the baseline in those that it ran
    rounds: tuple[float, ...]  # samples/s, one per round that counts; fewer than others where left behind or disturbed
    trials: tuple[int, ...]  # numbers of its probes
    peak_bytes: int  # largest over the rounds
    data_wait_share: float


class RunnerUp(Record, frozen=True, kw_only=True):
    """A configuration that was not recommended."""

    config: Config
    samples_per_second: float | None
    reason: Notice  # why it lost


class Achieved(Record, frozen=True, kw_only=True):
    """What the objective says of the winner; gains are scores over the baseline's, None where it cannot run."""

    unit: str  # of `score`
    score: float  # geometric mean over the rounds
    baseline_score: float | None
    gain: float | None
    gain_low: float | None  # 95 % interval; None: a single round
    gain_high: float | None
    headline: Notice | None = None  # the measured gain, where that is not the speed-up


class BatchAdvice(Record, frozen=True, kw_only=True):
    """What the gradient noise scale says of global batches, for the time to a given training loss; advice only."""

    FORMER: ClassVar[frozenset[str]] = frozenset({"check"})

    noise: NoiseScale
    half_batch: float | None  # global batch with half of the largest throughput, by the probes; None: they do not say
    low: float | None  # between these the best global batch probably lies, samples; None: not known
    high: float | None


class Recommendation(Record, frozen=True, kw_only=True):
    """A configuration that was itself run, with all that it takes to believe it."""

    FORMER: ClassVar[frozenset[str]] = frozenset({"interrupted"})

    version: int = VERSION
    study: str
    target: str
    model: str
    params: dict[str, Value]  # what `load_best` returns
    samples_per_second: float
    relative_half_width: float | None  # 95 %, of samples_per_second; None: a single round
    tokens_per_second: float | None
    speedup: float | None  # over the baseline, by rounds; None: the baseline itself cannot run here
    speedup_low: float | None  # 95 % interval; None: a single round
    speedup_high: float | None
    rounds: int
    baseline: dict[str, Value]
    baseline_assumed: bool
    baseline_samples_per_second: float | None
    global_batch_size: int
    baseline_global_batch_size: int
    peak_bytes: int
    memory_limit_bytes: int
    headroom_fraction: float  # share of the limit that was free at the peak
    data_wait_share: float
    stability: Notice  # of its losses
    loss_verdicts: tuple[LossVerdict, ...] = ()  # of every dtype that was compared with full precision
    reasons: tuple[Notice, ...]
    warnings: tuple[Notice, ...]
    runners_up: tuple[RunnerUp, ...]
    confirmations: tuple[Confirmation, ...] = ()
    goal: Goal
    environment: Environment
    fingerprint: str  # readable prefix and hash of what the numbers depend on; equal means comparable
    measured_at: str  # UTC, ISO 8601
    probes: int
    seconds: float  # of searching, this run
    certificate: Notice | None = None  # what is known of all that was not measured; None: of an earlier version
    batch_advice: BatchAdvice | None = None  # of `time-to-quality` only
    achieved: Achieved | None = None  # None: of a version that knew throughput only
    facts: TargetFacts | None = None  # of the target, for exported programs; None: of an earlier version


def baseline_name(*, assumed: bool) -> str:
    """`your baseline`, or `the assumed default` where the user named none."""
    return "the assumed default" if assumed else "your baseline"


def load_result(study: str | Path | None = None) -> Recommendation:
    """The whole recommendation of a study, given by folder, by name under studies/, or the newest.

    Raises `StudyNotFound`, `NoRecommendation` if the search has not come to one, `StudyError` if it is damaged.
    """
    folder = find(study)
    if not (folder / disk.BEST).is_file():
        trials = disk.read_trials(folder)
        why = why_unanswered(trials, folder)
        raise NoRecommendation(
            f"{folder} has no recommendation yet: it holds {counted(len(trials), 'finished probe')} and no best.json. "
            f"{why} Look with `autotune show {folder}`."
        )
    return read_best(folder / disk.BEST)


def read_best(path: Path) -> Recommendation:
    """The recommendation in `path`, as today's. Raises `StudyError` if it is damaged, `OSError` without it."""
    return codec.read(path, Recommendation, _completed)


def _completed(best: Recommendation) -> Recommendation:
    """Return it with today's knobs and options."""
    return replace(
        best,
        goal=objectives.completed(best.goal),
        params=defaults() | best.params,
        baseline=defaults() | best.baseline,
        confirmations=tuple(replace(one, config=completed(one.config)) for one in best.confirmations),
        runners_up=tuple(replace(one, config=completed(one.config)) for one in best.runners_up),
    )


def load_best(study: str | Path | None = None, *, check: bool = True) -> dict[str, Value]:
    """The recommended setting of every knob as a plain dict, JSON-safe, always with all keys.

    Warns with `EnvironmentMismatch` where this machine differs from the one that was measured, unless `check` is
    false. Raises what `load_result` raises. Imports neither torch nor Optuna.
    """
    result = load_result(study)
    if check:
        warn_of_mismatches(result)
    return dict(result.params)


def warn_of_mismatches(result: Recommendation) -> None:
    """Warn of every difference between this machine and the measured one, at the line that called our caller."""
    for difference in mismatches(result.environment):
        text = f"{plain(difference)} Run `autotune search` here, or pass check=False."
        warnings.warn(text, EnvironmentMismatch, stacklevel=3)


def answered_probes(folder: Path, request: StudyRequest) -> int:
    """Return how many probes the study in `folder` had at its last answer to `request`, kept or not; 0 without one."""
    machine = fingerprint(request.environment)
    probes = [0]
    for path in (folder / disk.BEST, *folder.glob(disk.EARLIER.format("*"))):
        with suppress(StudyError, FileNotFoundError):
            answer = read_best(path)
            if (answer.target, answer.goal, answer.fingerprint) == (request.target, request.goal, machine):
                probes.append(answer.probes)
    return max(probes)


def keep_answer(folder: Path, answer: Recommendation, fails: Callable[[Config], bool]) -> tuple[Recommendation, str]:
    """Write `answer`, as best.json unless the earlier one is better supported; return which stands, and a note on it.

    `fails`: whether a configuration has turned out not to run or not to train since. Raises `EnvironmentUnfit`.
    """
    best, aside, earlier = folder / disk.BEST, _free(folder), None
    with suppress(StudyError, FileNotFoundError):
        earlier = read_best(best)
    if earlier is not None and _question(earlier) != _question(answer):
        earlier = None  # best.json is all that a clone of somebody's study holds: it may be another machine's
    if earlier is not None and is_better_supported(earlier, answer) and not fails(Config(values=earlier.params)):
        write_answer(aside, answer)
        told = (
            f"The earlier recommendation is kept: it rests on {_support(earlier)}, this one on "
            f"{_support(answer)}. This one is saved as {aside.name}; a longer --time-budget would support it better."
        )
        return replace(earlier, study=str(folder)), told
    try:
        if best.is_file():
            shutil.copyfile(best, aside)
    except OSError as error:
        raise disk.unwritable(folder, error) from error
    write_answer(best, answer)
    changed = earlier is not None and earlier.params != answer.params
    return answer, f"This recommendation replaces the earlier one, which is saved as {aside.name}." if changed else ""


def write_answer(path: Path, answer: Recommendation) -> None:
    """Write `answer` to `path` in its study. Raises `EnvironmentUnfit` if that fails."""
    try:
        codec.write(path, answer)
    except OSError as error:
        raise disk.unwritable(path.parent, error) from error


def is_better_supported(earlier: Recommendation, later: Recommendation) -> bool:
    """Return whether the later answer says less: it compared nothing, or took fewer rounds to a wider interval.

    Not where its gain surely exceeds the earlier one, however few its rounds.
    """
    if _has_compared(earlier) != _has_compared(later):
        return _has_compared(earlier)
    if not _has_compared(earlier) or _gain(later)[0] > _gain(earlier)[1]:
        return False
    return later.rounds < earlier.rounds and _width(later) > _width(earlier)


def _question(answer: Recommendation) -> tuple[object, ...]:
    """What two answers must share to be compared."""
    return answer.target, answer.goal, answer.baseline, answer.fingerprint


def _has_compared(answer: Recommendation) -> bool:
    """Whether anything was confirmed beside the baseline."""
    return any(dict(one.config.values) != answer.baseline for one in answer.confirmations)


def _gain(answer: Recommendation) -> tuple[float, float]:
    """The interval of what was gained over the baseline; as wide as can be where it is not known."""
    if answer.achieved is not None:
        low, high = answer.achieved.gain_low, answer.achieved.gain_high
    else:
        low, high = answer.speedup_low, answer.speedup_high
    return low or 0.0, high or math.inf


def _width(answer: Recommendation) -> float:
    return math.inf if answer.relative_half_width is None else answer.relative_half_width


def _support(answer: Recommendation) -> str:
    """`4 interleaved rounds (± 3%)`."""
    if not _has_compared(answer):
        return "the baseline alone"
    rounds = f"{answer.rounds} interleaved round{'' if answer.rounds == 1 else 's'}"
    return rounds if math.isinf(_width(answer)) else f"{rounds} (± {format_share(_width(answer))})"


def _free(folder: Path) -> Path:
    number = 1
    while (path := folder / disk.EARLIER.format(number)).exists():
        number += 1
    return path
