"""The answer of a search: `best.json`, and how a training script reads it without torch or Optuna."""

from __future__ import annotations

import warnings
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace

from autotune import codec
from autotune import folder as disk
from autotune.environment import fingerprint, mismatches
from autotune.errors import EnvironmentMismatch, NoRecommendation, StudyError
from autotune.folder import find
from autotune.gradients import NoiseScale
from autotune.harmless import plain
from autotune.knobs import completed, defaults
from autotune.records import Config, Environment, Goal, Record, StudyRequest, TargetFacts, Value
from autotune.results import LossVerdict
from autotune.units import counted

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
    reason: str  # why it lost


class Achieved(Record, frozen=True, kw_only=True):
    """What the objective says of the winner; gains are scores over the baseline's, None where it cannot run."""

    unit: str  # of `score`
    score: float  # geometric mean over the rounds
    baseline_score: float | None
    gain: float | None
    gain_low: float | None  # 95 % interval; None: a single round
    gain_high: float | None
    headline: str = ""  # what was measurably won, where the speed-up does not tell it


class BatchAdvice(Record, frozen=True, kw_only=True):
    """What the gradient noise scale says of global batches, for the time to a given training loss; advice only."""

    noise: NoiseScale
    half_batch: float | None  # global batch with half of the largest throughput, by the probes; None: they do not say
    low: float | None  # between these the best global batch probably lies, samples; None: not known
    high: float | None


class Recommendation(Record, frozen=True, kw_only=True):
    """A configuration that was itself run, with all that it takes to believe it."""

    FORMER: ClassVar[frozenset[str]] = frozenset({"interrupted", "batch_advice.check"})

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
    stability: str  # one sentence
    loss_verdicts: tuple[LossVerdict, ...] = ()  # of every arithmetic that was compared with full precision
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    runners_up: tuple[RunnerUp, ...]
    confirmations: tuple[Confirmation, ...] = ()
    goal: Goal
    environment: Environment
    fingerprint: str  # readable prefix and hash of what the numbers depend on; equal means comparable
    measured_at: str  # UTC, ISO 8601
    probes: int
    seconds: float  # of searching, this run
    certificate: str = ""  # what is known of all that was not measured, in a clause; empty: of an earlier version
    batch_advice: BatchAdvice | None = None  # of `time-to-quality` only
    achieved: Achieved | None = None  # None: of a version that knew throughput only
    facts: TargetFacts | None = None  # of the target, for exported programs; None: of an earlier version


def baseline_name(*, assumed: bool) -> str:
    """`your baseline`, or `the default (assumed)` where the user named none."""
    return "the default (assumed)" if assumed else "your baseline"


def load_result(study: str | Path | None = None) -> Recommendation:
    """The whole recommendation of a study, given by folder, by name under studies/, or the newest.

    Raises `StudyNotFound`, `NoRecommendation` if the search has not come to one, `StudyError` if it is damaged.
    """
    folder = find(study)
    if not (folder / disk.BEST).is_file():
        held = counted(_count(folder), "finished probe")
        raise NoRecommendation(
            f"{folder} has no recommendation yet: it holds {held} and no best.json. The search was interrupted, or "
            f"nothing in it was usable. Look with `autotune show {folder}`, or go on with `autotune search`."
        )
    return read_best(folder / disk.BEST)


def read_best(path: Path) -> Recommendation:
    """The recommendation in `path`, with today's knobs. Raises `StudyError` if it is damaged, `OSError` without it."""
    best = codec.read(path, Recommendation)
    return replace(
        best,
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
    for difference in mismatches(result.environment) if check else ():
        warnings.warn(
            f"{plain(difference)} Run `autotune search` here, or pass check=False.", EnvironmentMismatch, stacklevel=2
        )
    return dict(result.params)


def answered_probes(folder: Path, request: StudyRequest) -> int:
    """How many probes the study in `folder` had at its last answer to `request`, stood it or not; 0 if it has none."""
    machine = fingerprint(request.environment)
    probes = [0]
    for path in (folder / disk.BEST, *folder.glob(disk.EARLIER.format("*"))):
        with suppress(StudyError, FileNotFoundError):
            answer = read_best(path)
            if (answer.target, answer.goal, answer.fingerprint) == (request.target, request.goal, machine):
                probes.append(answer.probes)
    return max(probes)


def _count(folder: Path) -> int:
    return len(disk.read_trials(folder))
