"""Keeps the answers of a study: the best supported one is best.json, and all others are kept.

best.json     the answer that stands
best-1.json   the first answer that it replaced, or that did not replace it
best-2.json   the next one
"""

from __future__ import annotations

import math
import shutil
import statistics
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from autotune.core import codec
from autotune.core.codes import Code
from autotune.core.notices import Notice
from autotune.core.records import Config, StudyRequest
from autotune.core.results import Trial
from autotune.core.stats import HALF_WIDTH_DEVIATIONS
from autotune.errors import StudyError
from autotune.machine.environment import fingerprint
from autotune.study import disk
from autotune.study.history import ended_a_search
from autotune.study.recommendation import Recommendation, read_best
from autotune.targets.source import are_alike, difference
from autotune.units import format_share


def answered_probes(folder: Path, request: StudyRequest) -> int:
    """Return the number of probes that the study in `folder` had at its last answer to `request`; 0 without one."""
    machine = fingerprint(request.environment)
    probes = [0]
    for path in (folder / disk.BEST, *folder.glob(disk.EARLIER.format("*"))):
        with suppress(StudyError, FileNotFoundError):
            answer = read_best(path)
            is_of_it = are_alike(answer.target, request.target)
            if is_of_it and (answer.goal, answer.fingerprint) == (request.goal, machine):
                probes.append(answer.probes)
    return max(probes)


def unanswered_probes(folder: Path, request: StudyRequest, trials: Sequence[Trial]) -> int:
    """Return how many `trials` of the study in `folder` came after its last answer, from an interrupted search.

    0 if there is no answer to `request` on its machine.
    """
    answered = answered_probes(folder, request)
    known = sum(
        not ended_a_search(trial, request) for trial in trials
    )  # the others are repeated, and no answer counts them
    return max(0, known - answered) if answered else 0


def unreadable_answer(folder: Path) -> str:
    """Return that the best.json of the study in `folder` cannot be read, and why; empty if it can, or there is none."""
    path = folder / disk.BEST
    try:
        if path.is_file():
            read_best(path)
    except StudyError as error:
        return (
            f"{path} cannot be read: {error.__cause__ or error}. It was probably cut short, edited, or written by "
            f"another version of autotune."
        )
    return ""


def keep_answer(folder: Path, answer: Recommendation, fails: Callable[[Config], bool]) -> tuple[Recommendation, str]:
    """Write `answer`, as best.json unless the earlier one is better supported; return which stands, and a note on it.

    The earlier one has to be of the same code; it is returned with the probes and seconds of the search that ends.
    `fails` returns whether a configuration has since failed to run or to train. Raises `EnvironmentUnfit`.
    """
    best, aside, earlier = folder / disk.BEST, _free(folder), None
    with suppress(StudyError, FileNotFoundError):
        earlier = read_best(best)
    if earlier is not None and not _is_same_question(earlier, answer):
        earlier = None  # a clone of somebody's study has only best.json, perhaps of another machine
    told = f"This recommendation replaces the earlier one, which is saved as {aside.name}."
    if earlier is not None and is_better_supported(earlier, answer):
        since = "the code has changed" if _is_of_other_code(earlier, answer) else ""
        since = since or ("its settings have failed" if fails(Config(values=earlier.params)) else "")
        if not since:
            write_answer(folder, answer, aside.name)
            told = (
                f"The earlier recommendation is kept: it rests on {_support(earlier)}, this one on {_support(answer)}. "
                f"This one is saved as {aside.name}; a longer --time-budget would support it better."
            )
            return replace(earlier, study=str(folder), probes=answer.probes, seconds=answer.seconds), told
        told += f" That one rests on {_support(earlier)}, this one on {_support(answer)}, but {since} since."
    elif earlier is None or (earlier.params == answer.params and earlier.rounds <= answer.rounds):
        told = ""
    try:
        if best.is_file():
            shutil.copyfile(best, aside)
    except OSError as error:
        raise disk.unwritable(folder, error) from error
    write_answer(folder, answer)
    return answer, told


def write_answer(folder: Path, answer: Recommendation, name: str = disk.BEST) -> None:
    """Write `answer` to its study: as the one that stands, unless it gets another `name`. Raises `EnvironmentUnfit`."""
    try:
        codec.write(folder / name, answer)
    except OSError as error:
        raise disk.unwritable(folder, error) from error


def is_better_supported(earlier: Recommendation, later: Recommendation) -> bool:
    """Return whether the earlier answer is better supported: the later compared nothing, or less precisely.

    Less precise means fewer rounds and a wider interval; single probes are less precise than rounds. A decided one
    is also better than one that is open because of other work on the machine; but none is better if the later gain
    surely exceeds the earlier one, however few its rounds.
    """
    if _has_compared(earlier) != _has_compared(later):
        return _has_compared(earlier)
    if later.undecided is not None and later.undecided.beside_others and earlier.undecided is None:
        return True
    if not _has_compared(earlier) or _gain(later)[0] > _gain(earlier)[1]:
        return False
    return later.rounds < earlier.rounds and (later.rounds == 1 or _width(later) > _width(earlier))


def is_uncompared(answer: Recommendation) -> bool:
    """Return whether the baseline was kept only because no other configuration could be compared with it."""
    is_alone = answer.params == answer.baseline and not answer.runners_up
    return is_alone and answer.certificate is not None and answer.certificate.code in (Code.SAMPLED, Code.ALL_TRIED)


def rate_half_width(answer: Recommendation) -> float | None:
    """Return the relative half width of the 95 % interval of the answer's samples/s; None if it is not known.

    It is at least 1.96 standard errors of the answer's own rounds, of which some may have run while the machine was
    slower. The ratio to the baseline, which ran beside it, is more precise.
    """
    own = next((one.rounds for one in answer.confirmations if one.config.values == answer.params), ())
    if answer.relative_half_width is None or len(own) < 2:
        return answer.relative_half_width
    error = statistics.stdev(own) / math.sqrt(len(own)) / answer.samples_per_second
    return max(answer.relative_half_width, HALF_WIDTH_DEVIATIONS * error)


def rounds_run(answer: Recommendation) -> int:
    """Return the rounds that were run, those left out because of interference included; 1 if none is known."""
    codes = (
        Code.CONFIRMATION_INTERFERENCE, Code.LONE_RATE_INTERFERENCE, Code.BASELINE_RATE_INTERFERENCE
    )  # fmt: skip
    told = (one for one in answer.warnings if one.code in codes)
    parts = (part for one in told if isinstance(some := one.numbers.get("rounds"), tuple) for part in some)
    return max((int(part.figure("rounds", 1.0)) for part in parts if isinstance(part, Notice)), default=1)


def _is_of_other_code(earlier: Recommendation, later: Recommendation) -> bool:
    changes = difference(earlier.target_digest, later.target_digest) if earlier.target_digest else ""
    return changes in ("file", "imports")


def _is_same_question(earlier: Recommendation, later: Recommendation) -> bool:
    asked, then = ((one.goal, one.baseline, one.fingerprint) for one in (later, earlier))
    return asked == then and are_alike(earlier.target, later.target)


def _has_compared(answer: Recommendation) -> bool:
    return any(dict(one.config.values) != answer.baseline for one in answer.confirmations)


def _gain(answer: Recommendation) -> tuple[float, float]:
    """Return the interval of the gain over the baseline; unbounded if it is unknown."""
    if answer.achieved is not None:
        low, high = answer.achieved.gain_low, answer.achieved.gain_high
    else:
        low, high = answer.speedup_low, answer.speedup_high
    return low or 0.0, high or math.inf


def _width(answer: Recommendation) -> float:
    return math.inf if answer.relative_half_width is None else answer.relative_half_width


def _support(answer: Recommendation) -> str:
    """Return the evidence of an answer, such as `4 interleaved rounds (± 3%)` or `single probes`."""
    if not _has_compared(answer):
        return "the baseline alone"
    if answer.rounds == 1 and rounds_run(answer) == 1:
        return "single probes"
    rounds = f"{answer.rounds} interleaved round{'' if answer.rounds == 1 else 's'}"
    return rounds if math.isinf(_width(answer)) else f"{rounds} (± {format_share(_width(answer))})"


def _free(folder: Path) -> Path:
    number = 1
    while (path := folder / disk.EARLIER.format(number)).exists():
        number += 1
    return path
