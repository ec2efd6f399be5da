"""The result of a race, `race.json`: every contestant's rounds, its ratio to the baseline, and the verdict on it."""

from __future__ import annotations

from typing import Literal

from autotune.core.records import PROTOCOL, Config, Environment, Record

Finish = Literal["faster", "as fast", "slower", "undecided"]
WORST_FIRST: tuple[Finish, ...] = ("slower", "undecided", "as fast", "faster")


class Standing(Record, frozen=True, kw_only=True):
    """One contestant after the race."""

    label: str  # as the user named it
    target: str
    commit: str = ""  # whose code was run; empty: the working tree's
    target_digest: str = ""  # of the target's own file; empty: installed code, or that of a commit
    config: Config
    global_batch_size: int
    samples_per_second: float  # over all rounds, by its ratio to the baseline
    relative_half_width: float | None  # 95 %, of samples_per_second
    rounds: tuple[float | None, ...]  # samples/s; None: others disturbed it, or it was slow for no known reason
    trials: tuple[int, ...]  # numbers of the probes that count
    ratio: float | None = None  # its samples/s over the baseline's; None: it is the baseline
    ratio_low: float | None = None  # interval; 95 % for all contestants together
    ratio_high: float | None = None
    finish: Finish | None = None


class RaceResult(Record, frozen=True, kw_only=True):
    """A race that is over. The first of `standings` is the baseline."""

    protocol: int = PROTOCOL
    study: str  # the folder of its probes
    standings: tuple[Standing, ...]
    tolerance: float  # a contestant may be slower by this share and still count as fast
    ended: Literal["decided", "rounds", "time"]  # why there was no further round
    probes: int
    disturbed: int  # of these: others used the machine meanwhile
    seconds: float
    environment: Environment
    measured_at: str  # UTC, ISO 8601

    @property
    def finish(self) -> Finish:
        """The verdict on the worst of the contestants."""
        return min((one.finish for one in self.standings if one.finish), key=WORST_FIRST.index)


def judged(ratio: float, low: float, high: float, tolerance: float) -> Finish:
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
