"""The efficiency of a number of ranks, with the global batch held. Pure.

E(N) = rate(N) / (N / n × rate(n))      n: the smallest number that was measured, usually 1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from autotune.core.records import PROTOCOL_VERSION, Environment, Record
from autotune.errors import UsageError
from autotune.races.records import RaceResult

WANTED_EFFICIENCY = 0.9  # a device-hour still yields nine tenths of the samples: the usual demand, a judgement
BEYOND_LINEAR = 1.05  # efficiency: caches explain a few per cent, not more
HOUR_SECONDS = 3600


class ScalePoint(Record, frozen=True, kw_only=True):
    """The measurement of one number of ranks."""

    ranks: int
    batch_size: int  # micro-batch of a rank
    gradient_accumulation_steps: int
    samples_per_second: float  # of all ranks
    relative_half_width: float | None  # 95 %
    efficiency: float  # E(N)
    efficiency_low: float | None = None  # those of all numbers hold together with 95 %; None: 1 by definition
    efficiency_high: float | None = None

    @property
    def samples_per_rank_hour(self) -> float:
        """Samples per hour of one device, or of one rank's cores."""
        return self.samples_per_second / self.ranks * HOUR_SECONDS


class ScaleResult(Record, frozen=True, kw_only=True):
    """The curve. `points` are ordered by number of ranks, ascending."""

    protocol: int = PROTOCOL_VERSION
    target: str
    global_batch_size: int  # held
    has_batch_norm: bool
    has_data_parallel: bool = False  # whether one rank is torch.nn.DataParallel on all devices that it sees
    points: tuple[ScalePoint, ...]
    environment: Environment
    folder: str  # of the race
    seconds: float
    probes: int
    with_interference: int  # of these probes

    @property
    def most_efficient(self) -> ScalePoint:
        """The most ranks whose efficiency is at least `WANTED_EFFICIENCY` by the estimate: fastest without waste."""
        return max((one for one in self.points if one.efficiency >= WANTED_EFFICIENCY), key=lambda one: one.ranks)


def shared(global_batch: int, batch_size: int, ranks: int) -> tuple[int, int]:
    """Return micro-batch and accumulation of each rank that hold the global batch, with at most this micro-batch.

    Raises `UsageError` if the ranks cannot have equally many samples.
    """
    if global_batch % ranks:
        raise UsageError(
            f"The global batch is {global_batch:,} samples, and {ranks} ranks cannot share it: each has as many as the "
            f"others. Give --ranks numbers that divide it, or --config with a batch size that is a multiple of {ranks}."
        )
    own = global_batch // ranks
    size = max(one for one in range(1, min(batch_size, own) + 1) if own % one == 0)
    return size, own // size


def points_of(result: RaceResult, counts: Sequence[int]) -> tuple[ScalePoint, ...]:
    """Return the curve from a race of the same training with these numbers of ranks, the smallest as the baseline."""
    first, found = counts[0], []
    for count, one in zip(counts, result.standings, strict=True):
        share = first / count
        found.append(
            ScalePoint(
                ranks=count,
                batch_size=one.config.batch_size,
                gradient_accumulation_steps=one.config.gradient_accumulation_steps,
                samples_per_second=one.samples_per_second,
                relative_half_width=one.relative_half_width,
                efficiency=1.0 if one.ratio is None else one.ratio * share,
                efficiency_low=None if one.ratio_low is None else one.ratio_low * share,
                efficiency_high=None if one.ratio_high is None else one.ratio_high * share,
            )
        )
    return tuple(found)


def verdict_at(point: ScalePoint) -> Literal["efficient", "wasteful", "undecided"]:
    """Return whether a number of ranks surely reaches `WANTED_EFFICIENCY`, surely does not, or may do either.

    It may do either, too, if it is surely more than `BEYOND_LINEAR`: something slowed the single process, or whichever
    it is compared with.
    """
    low, high = point.efficiency_low, point.efficiency_high
    if low is not None and low > BEYOND_LINEAR:
        return "undecided"
    if low is None or high is None or low >= WANTED_EFFICIENCY:
        return "efficient"
    return "wasteful" if high < WANTED_EFFICIENCY else "undecided"
