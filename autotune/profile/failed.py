"""The error of a profile that failed: what happened and where, why probably, and what to do about it. Pure."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec.structs import replace

from autotune.core.results import Failure, Outcome, Result
from autotune.errors import AutotuneError, TargetError
from autotune.failures.classify import KILLED_BY_OTHERS
from autotune.failures.log_excerpt import excerpt, stopped_at
from autotune.failures.words import what_happened, when_it_was
from autotune.preparation.prepare import error_of_failure
from autotune.profile.memory_judge import held_then

# Outcomes whose own message needs no further advice.
_IN_OTHER_WORDS = (Outcome.USER_ERROR, Outcome.INVALID_CONFIG, Outcome.ENVIRONMENT)
_ALONE = re.compile(r"rank \d+( in \S+ \([^)]*\))? gave no sign of life$")  # no other rank waits for it


def with_shown_trace(failure: Failure, log: str) -> Failure:
    """Return the failure with the trace to show: the user's frames, or the useful lines of a `log` without an error."""
    return failure if failure.user_frame else replace(failure, traceback=excerpt(log))


def error_of_profile(label: str, ended: Result, log: str, smaller: str, kept: Path | None) -> AutotuneError:
    """Return the error for the profile of `label`, or its inspection, that `ended` with a failure.

    `log` is the printed text, and `kept` its file, if it is kept; `smaller` says how to ask for a smaller batch.
    """
    outcome, failure = ended.outcome, ended.failure
    assert failure is not None, "only what failed has an error"
    if outcome in _IN_OTHER_WORDS:
        return error_of_failure(outcome, failure, kept)
    failure = with_shown_trace(failure, log)
    what = "ran out of memory" if outcome.out_of_memory else "did not come to its end"
    when = when_it_was(failure.phase)
    told = what_happened(failure, stopped_at(log)).replace(KILLED_BY_OTHERS, "")  # said below
    why, remedy = _why_and_remedy(outcome, told, smaller)
    hint = "" if failure.user_frame else " --output FOLDER keeps all that it prints."
    where = f"\nFull log: {kept}" if kept else hint
    if held := held_then(failure.sites):
        why = held
    return TargetError(f"Profiling {label} {what}: {told}, {when}. {why} {remedy}{where}", traceback=failure.traceback)


def _why_and_remedy(outcome: Outcome, told: str, smaller: str) -> tuple[str, str]:
    """Return the probable reason, and what to do, in sentences."""
    if outcome.out_of_memory:
        return "Looking at steps takes a little more memory than training.", f"Try {smaller}."
    if outcome is Outcome.TIMEOUT and _ALONE.match(told):
        return (
            "It probably waits for another rank, or only answers others, as a parameter server does.",
            "Let each rank take optimizer steps, as many as the others: they are looked at together.",
        )
    if outcome is Outcome.TIMEOUT:
        return (
            "It probably waits for what does not come, such as a lock, a file or another rank.",
            f"Where it trains without autotune, its steps are too long for a profile: try {smaller}.",
        )
    if outcome is Outcome.COMPILE_FAILED:
        return "torch.compile probably lacks a compiler, or fails on this model.", "Try --config compile=none."
    if outcome is Outcome.DEVICE_FAULT:
        return (
            "A kernel probably read or wrote where it must not, and what is called after it fails, too.",
            "CUDA_LAUNCH_BLOCKING=1 before autotune profile shows the line that called it.",
        )
    if "killed by SIGKILL" in told:
        return (
            "Its own code, a person, a scheduler or the kernel, for lack of memory, probably did that.",
            f"Profile it once more; if it is killed again, try {smaller}.",
        )
    if "killed by" in told:
        return (
            "Compiled code that is called there is probably at fault, such as an extension for another torch.",
            "If it also ends so without autotune, correct that, and profile it then.",
        )
    return (
        "Its code, or a library, probably ended the process itself, as os._exit does.",
        "Look for that call, and profile without it.",
    )
