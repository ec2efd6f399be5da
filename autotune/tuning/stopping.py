"""When a search has looked enough. Pure: from what happened to a reason, or None to go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.units import format_seconds

PATIENCE = 15  # probes without a gain; a sampler that learns only from values needs so many (docs/notes/search.md 2)
# Two proposals in a row that promise less, after as many probes: the median search then recommends the best to 0 %
# (well-specified) or 1.2 % (misspecified machines), of 8 probes (docs/notes/search.md 2).
LITTLE, PROPOSALS, PROBES = 0.02, 2, 8
GAIN = 1.01  # less is within the noise of one probe


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a search stands."""

    values: Sequence[float | None]  # samples/s of every search probe in order, None where infeasible
    remaining: int  # configurations that may still be probed
    elapsed_seconds: float
    budget_seconds: float
    reserve_seconds: float  # what the confirmation will take
    typical_seconds: float  # one probe
    probes: int | None  # allowed in this run
    probed: int  # in this run
    promises: Sequence[float | None] = ()  # of each proposal of this run: expected gain over the best; None: unknown


def reason(progress: Progress) -> str | None:
    """Why the search ends here, in words, or None."""
    if progress.remaining == 0:
        return "every configuration that may be probed has been"
    if progress.probes is not None and progress.probed >= progress.probes:
        return "one probe was asked for" if progress.probed == 1 else f"{progress.probed} probes were asked for"
    needed = progress.elapsed_seconds + progress.typical_seconds + progress.reserve_seconds
    if needed > progress.budget_seconds:
        kept = format_seconds(progress.reserve_seconds)
        rest = f" but for the {kept} that the confirmation takes" if progress.reserve_seconds else ""
        return f"the time budget is used up{rest}"
    since = min(probes_without_gain(progress.values), progress.probed)  # whoever resumes wants to look on
    if since >= PATIENCE and not any(progress.values):
        return f"none of {len(progress.values)} probes was usable"
    if since >= PATIENCE:
        return f"the last {since} probes gained less than {GAIN - 1:.0%}"
    if promise_little(progress.promises, len(progress.values)):
        return f"the last {PROPOSALS} proposals promised less than {LITTLE:.0%} each"
    return None


def promise_little(promises: Sequence[float | None], probes: int) -> bool:
    """Whether the latest proposals were expected to gain next to nothing, after enough probes to expect rightly.

    `promises` are expected improvements as shares of the best so far, with the chance to fit; `probes` all so far.
    """
    latest = promises[-PROPOSALS:]
    enough = len(latest) == PROPOSALS and probes >= PROBES
    return enough and all(promise is not None and promise < LITTLE for promise in latest)


def probes_without_gain(values: Sequence[float | None]) -> int:
    """How many probes ago the best value last grew by more than one per cent."""
    best, since = 0.0, 0
    for value in values:
        since += 1
        if value is not None and value > best * GAIN:
            best, since = value, 0
    return since
