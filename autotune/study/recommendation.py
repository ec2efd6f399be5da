"""The answer of a search, `best.json`: its content, and functions to read it without torch or Optuna."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, ClassVar

from msgspec.structs import replace

from autotune import objectives
from autotune.core import codec
from autotune.core.codes import Code
from autotune.core.notices import Notice
from autotune.core.records import Config, Declaration, Environment, Goal, Record, TargetFacts, Value
from autotune.core.results import LossVerdict
from autotune.errors import EnvironmentMismatch, NoRecommendation, UsageError
from autotune.gradient_noise.records import NoiseScale
from autotune.harmless import plain, shell_word
from autotune.knobs import completed, defaults
from autotune.machine.environment import mismatches
from autotune.objectives.verdict import judge_among
from autotune.study import disk
from autotune.study.running import answer_anew, is_running
from autotune.study.unstable_baseline import ends_search, why_unstable
from autotune.targets.commands.recommended_command import RecommendedCommand, recommended_command
from autotune.units import counted

ANSWER_VERSION = 1
UNANSWERED = "The search ended before its finalists were confirmed. Run the same command again to go on."
TIE_OF_EARLIER_VERSIONS = 0.02  # faster: what an earlier version left open counts as decided below it, as a tie does
GLOBAL_BATCH_CODES = (Code.GLOBAL_BATCH_CHANGED, Code.GLOBAL_BATCH_CHANGED_NOISE_SCALE)


class Confirmation(Record, frozen=True, kw_only=True):
    """One configuration measured again, in every interleaved round, each in a process of its own."""

    config: Config
    samples_per_second: float  # over all rounds of the confirmation, by its ratio to the baseline in those that it ran
    rounds: tuple[float, ...]  # samples/s, one per round that counts; fewer where left behind or left out
    trials: tuple[int, ...]  # numbers of its probes
    peak_bytes: int  # largest over the rounds
    data_wait_share: float


class RunnerUp(Record, frozen=True, kw_only=True):
    """A configuration that was measured and not recommended, with the reason."""

    config: Config
    samples_per_second: float | None
    reason: Notice  # why it was not recommended


class Achieved(Record, frozen=True, kw_only=True):
    """The winner by its objective; gains are scores over the baseline's, None where it cannot run."""

    unit: str  # of `score`
    score: float  # over the rounds of the confirmation: `ConfigSummary.score`
    baseline_score: float | None
    gain: float | None
    gain_low: float | None  # 95 % interval; None: not known
    gain_high: float | None
    headline: Notice | None = None  # the measured gain, where that is not the speed-up


class Change(Record, frozen=True, kw_only=True):
    """One change from the baseline to the winner, and the winner's score without it, measured in rounds."""

    values: dict[str, Value]  # the winner's, of the knobs that move together
    before: dict[str, Value]  # the baseline's
    kept: bool  # whether the recommendation makes it
    ratio: float | None = None  # the winner's score without it, over the winner's; None: not known
    ratio_low: float | None = None  # 95 % interval; None: not known
    ratio_high: float | None = None
    memory_ratio: float | None = None  # memory of the winner without it, over the winner's
    untested: Notice | None = None  # why it was not measured in rounds; a ratio beside it is by single probes
    reason: Notice | None = None  # why it is kept although rounds do not show its gain


class Undecided(Record, frozen=True, kw_only=True):
    """A configuration of which the rounds could not decide whether it is better than the baseline."""

    config: Config  # the recommended one, or what the kept baseline was not exchanged for
    gain: float  # its score over the baseline's
    gain_low: float | None  # interval of a claim: 95 % for all that were compared; None: not known
    gain_high: float | None
    rounds: int
    beside_others: bool = False  # others kept the baseline from the cores, so its rate on a free machine is unknown
    rounds_needed: int | None = None  # rounds that would probably decide, if the gain is as estimated; None: too many
    minutes_needed: int | None = None  # a time budget for those


class BatchAdvice(Record, frozen=True, kw_only=True):
    """The advice of the gradient noise scale on global batches, for the time to a given training loss; advice only."""

    FORMER: ClassVar[frozenset[str]] = frozenset({"check"})

    noise: NoiseScale
    half_batch: float | None  # global batch with half of the largest throughput, by the probes; None: they do not say
    low: float | None  # between these the best global batch probably lies, samples; None: not known
    high: float | None


class AtBaselineBatch(Record, frozen=True, kw_only=True):
    """The best configuration with the baseline's global batch, where another one is recommended; confirmed alike."""

    global_batch_size: int
    params: dict[str, Value]
    samples_per_second: float
    relative_half_width: float | None  # 95 %; None: a single round
    speedup: float | None  # over the baseline, by rounds; None: the baseline itself cannot run here
    speedup_low: float | None  # 95 % interval; None: not known
    speedup_high: float | None
    rounds: int
    peak_bytes: int
    headroom_fraction: float
    data_wait_share: float
    stability: Notice


class Recommendation(Record, frozen=True, kw_only=True):
    """A configuration that was itself run, with the evidence for it."""

    FORMER: ClassVar[frozenset[str]] = frozenset({"interrupted"})

    version: int = ANSWER_VERSION
    study: str
    target: str
    model: str
    global_batch_change: Notice | None = None  # from the baseline's, with a learning rate to start from; None: it stays
    params: dict[str, Value]  # what `load_best` returns
    samples_per_second: float
    relative_half_width: float | None  # 95 %, of samples_per_second; None: a single round
    tokens_per_second: float | None
    speedup: float | None  # over the baseline, by rounds; None: the baseline itself cannot run here
    speedup_low: float | None  # 95 % interval; None: not known
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
    changes: tuple[Change, ...] | None = None  # of the winner; None: of a version that took none back
    certificate: Notice | None = None  # what is known of all that was not measured; None: of an earlier version
    batch_advice: BatchAdvice | None = None  # of `time-to-quality` only
    achieved: Achieved | None = None  # None: of a version that knew throughput only
    undecided: Undecided | None = None  # None: whether it is better than the baseline was decided
    at_baseline_batch: AtBaselineBatch | None = None  # None: that is the recommended one, or of an earlier version
    target_digest: str = ""  # of the target's file and imports; empty: installed code, or an earlier version
    slow_lines: tuple[Notice, ...] = ()  # of the baseline, that no setting mends; none: none were seen, or looked for
    facts: TargetFacts | None = None  # of the target, for exported programs; None: of an earlier version


def command_of(best: Recommendation) -> RecommendedCommand:
    """Return the recommended command. Raises `UsageError` if the target is no command."""
    found = recommended_command(best.target, best.params, best.baseline, best.facts)
    if found is None:
        study = shell_word(best.study)
        raise UsageError(
            f"{best.study} has no command: its target is {best.target}, and that is code. The settings were probably "
            f"meant. Use `autotune best {study}` or `autotune export {study}`."
        )
    return found


def baseline_name(*, assumed: bool) -> str:
    """Return `your baseline`, or `the assumed default` if the user named none."""
    return "the assumed default" if assumed else "your baseline"


def load_result(study: str | Path | None = None) -> Recommendation:
    """Return the whole recommendation of a study, given by folder or by name under studies/; None: the newest study.

    Raises `StudyNotFound`, `NoRecommendation` if the search has not found one, `StudyError` if it is damaged.
    """
    folder = disk.find(study)
    if not (folder / disk.BEST).is_file():
        trials, request = disk.read_trials(folder), disk.read_request(folder)
        ended = [one for one in trials if ends_search(one, request)]
        is_over = trials and not any(judge_among(one, trials, request).feasible for one in trials)
        unusable = why_unstable(ended, request) if ended else "None of its probes was usable."
        why = unusable if is_over else UNANSWERED
        why = "It is being searched now: wait for its answer." if is_running(folder) else why
        raise NoRecommendation(
            f"{folder} has no recommendation yet: it holds {counted(len(trials), 'finished probe')} and no best.json. "
            f"{why} Look with `autotune show {folder}`."
        )
    return read_best(folder / disk.BEST)


def read_best(path: Path) -> Recommendation:
    """Return the recommendation in `path`, upgraded, with the study in whose folder it is now: it may be a copy.

    Raises `StudyError` if it is damaged, `OSError` if it cannot be read.
    """
    best = codec.read(path, Recommendation, _completed, answer_anew(path.parent))
    return replace(best, study=str(path.parent))


def _completed(best: Recommendation) -> Recommendation:
    """Return it with today's knobs and options, and with facts that were warnings in their present fields."""
    change, other = best.global_batch_change, best.at_baseline_batch
    return replace(
        best,
        global_batch_change=change or next((one for one in best.warnings if one.code in GLOBAL_BATCH_CODES), None),
        warnings=tuple(one for one in best.warnings if one.code not in GLOBAL_BATCH_CODES),
        at_baseline_batch=other and replace(other, params=defaults() | other.params),
        undecided=best.undecided or _left_open(best),
        goal=objectives.completed(best.goal),
        params=defaults() | best.params,
        baseline=defaults() | best.baseline,
        confirmations=tuple(replace(one, config=completed(one.config)) for one in best.confirmations),
        runners_up=tuple(replace(one, config=completed(one.config)) for one in best.runners_up),
    )


def _left_open(best: Recommendation) -> Undecided | None:
    """Return the open comparison that an earlier version listed among the runners-up."""
    if best.params != best.baseline:
        return None
    lost = [one for one in best.runners_up if one.reason.code is Code.FASTER_NOT_SIGNIFICANT]
    shares = {share: one for one in lost if isinstance(share := one.reason.numbers.get("share"), float)}
    most = max(shares, default=0.0)
    if most <= TIE_OF_EARLIER_VERSIONS:
        return None
    return Undecided(
        config=completed(shares[most].config), gain=1 + most, gain_low=None, gain_high=None, rounds=best.rounds
    )


def at_global_batch(answer: Recommendation, samples: int | None) -> Recommendation:
    """Return the answer that was confirmed with a global batch of `samples`; `answer` itself for None.

    Raises `NoRecommendation` if none was confirmed with it.
    """
    other = answer.at_baseline_batch
    if samples is None or samples == answer.global_batch_size:
        return answer
    if other is None or samples != other.global_batch_size:
        known = " and ".join(str(one.global_batch_size) for one in (answer, other) if one is not None)
        raise NoRecommendation(
            f"{answer.study} has no answer for a global batch of {samples}, only for {known}. A search confirms the "
            f"one that it recommends and the baseline's. Ask for {'that one' if other is None else 'one of those'}, or "
            f"search with --global-batch {samples}."
        )
    own = {name: getattr(other, name) for name in other.__struct_fields__}
    nothing: dict[str, Any] = dict.fromkeys((
        "global_batch_change", "at_baseline_batch", "tokens_per_second", "batch_advice", "achieved", "changes",
        "certificate", "undecided",
    ))  # fmt: skip
    lost = [one for one in answer.runners_up if one.config.values != other.params]
    own_batch = Config(values=other.params).global_batch_size()
    alike = tuple(one for one in lost if one.config.global_batch_size() == own_batch)
    return replace(answer, **own, **nothing, reasons=(), warnings=(), runners_up=alike)


def declared_in(best: Recommendation) -> tuple[Declaration, ...]:
    """Return the user's own knobs for which it has settings."""
    return best.facts.declared if best.facts else ()


def load_best(
    study: str | Path | None = None, *, global_batch: int | None = None, check: bool = True
) -> dict[str, Value]:
    """Return the recommended setting of every knob as a plain dict, JSON-safe, always with all keys.

    With `global_batch`, in samples per optimizer step, return the settings confirmed with it: it is the recommended
    global batch or the baseline's. Raises `NoRecommendation` for others.

    Warns with `EnvironmentMismatch` if this machine differs from the measured one, unless `check` is false. Raises what
    `load_result` raises. Imports neither torch nor Optuna.
    """
    result = at_global_batch(load_result(study), global_batch)
    if check:
        warn_of_mismatches(result)
    return dict(result.params)


def warn_of_mismatches(result: Recommendation) -> None:
    """Warn of every difference between this machine and the measured one, at the line that called our caller."""
    for difference in mismatches(result.environment):
        text = f"{plain(difference)} Run `autotune search` here, or pass check=False."
        warnings.warn(text, EnvironmentMismatch, stacklevel=3)
