"""The result of a race, `race.json`: each contestant's rounds, its ratio to the baseline, and the verdict on it."""

from __future__ import annotations

from typing import Literal

from autotune.core.notices import Notice
from autotune.core.records import PROTOCOL_VERSION, Config, Declaration, Environment, Record

RaceVerdict = Literal["faster", "as fast", "slower", "undecided"]
StopReason = Literal["decided", "rounds", "time"]  # why there was no further round
WORST_FIRST: tuple[RaceVerdict, ...] = ("slower", "undecided", "as fast", "faster")


class Standing(Record, frozen=True, kw_only=True):
    """One contestant after the race."""

    label: str  # as the user named it
    target: str
    commit: str = ""  # of the code that ran; empty for that of the working tree
    target_digest: str = ""  # of the target's file and imports; empty for installed code, or that of a commit
    model: str = ""  # class of the model; empty if an earlier version did not record it
    parameter_count: int | None = None
    config: Config
    global_batch_size: int
    samples_per_second: float  # over all rounds, by its ratio to the baseline
    relative_half_width: float | None  # 95 %, of samples_per_second
    rounds: tuple[float | None, ...]  # samples/s; None: left out because of interference, or slow for no known reason
    trials: tuple[int, ...]  # numbers of the probes that count
    ratio: float | None = None  # its samples/s over the baseline's; None for the baseline
    ratio_low: float | None = None  # interval; those of all contestants hold together with 95 %
    ratio_high: float | None = None
    verdict: RaceVerdict | None = None  # None for the baseline
    beside_others: bool = False  # others kept it or the baseline from the cores in too many rounds
    unstable: Notice | None = None  # why a search would refuse it for its losses; None: no reason, or unknown


class RaceResult(Record, frozen=True, kw_only=True):
    """The result of a finished race. The first of `standings` is the baseline; they are empty if all others left."""

    protocol: int = PROTOCOL_VERSION
    folder: str  # of the race
    standings: tuple[Standing, ...]
    tolerance: float  # a contestant may be slower by this share and still count as fast
    ended: StopReason
    probes: int
    with_interference: int  # of these probes
    seconds: float
    environment: Environment
    declared: tuple[Declaration, ...] = ()  # by the user, of all contestants
    measured_at: str  # UTC, ISO 8601

    @property
    def verdict(self) -> RaceVerdict:
        """The verdict on the worst of the contestants."""
        return min((one.verdict for one in self.standings if one.verdict), key=WORST_FIRST.index)


def verdict_on(ratio: float, low: float, high: float, tolerance: float) -> RaceVerdict:
    """Return the verdict on a contestant by its rate over the baseline's, with its interval.

    1 - tolerance        1
        │                │  ├──×──┤   faster: surely
        │     ├────×─────┼──┤         as fast: surely not slower by more than the tolerance
    ├──×┼────┤           │            slower: surely, and by the estimate (×) by more than the tolerance
    ├───┼────×───────────┼─┤          undecided: it may be any of them
    """
    if low > 1:
        return "faster"
    if low >= 1 - tolerance:
        return "as fast"
    return "slower" if high < 1 and ratio < 1 - tolerance else "undecided"
