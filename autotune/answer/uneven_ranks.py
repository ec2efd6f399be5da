"""The warning that one rank has more work or more memory than the others, which wait for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.rank_reading import RankReading, imbalance
from autotune.core.results import Measurement

# Share of the mean. A smaller imbalance is little to gain, and two cores of one machine differ by some per cent. This
# number is a judgement, not measured.
UNEVEN_SHARE = 0.10


def uneven_ranks(measured: Sequence[Measurement]) -> Iterator[Notice]:
    """Yield a warning if one rank works a tenth longer than the mean of all, or holds a tenth more memory.

    It works longer if two probes or more say so, and none says otherwise: in a single one other processes may have
    slowed any rank by as much.
    """
    readings = [one.ranks for one in measured if len(one.ranks) > 1]
    if not readings:
        return
    works, each = busy_of(readings), [busy_of([one]) for one in readings]
    most = works.index(max(works)) if works else 0
    excesses = [imbalance(one) if one.index(max(one)) == most else 0.0 for one in each if one]
    if len(excesses) > 1 and min(excesses) > UNEVEN_SHARE:
        yield notice(Code.RANKS_UNEVEN, rank=most, share=imbalance(works), ranks=len(works))
    holds = [max(one.memory_bytes for one in of_a_rank) for of_a_rank in zip(*readings, strict=True)]
    if (share := imbalance(holds)) > UNEVEN_SHARE:
        yield notice(Code.RANKS_MEMORY_UNEVEN, rank=holds.index(max(holds)), share=share, ranks=len(holds))


def busy_of(readings: Sequence[Sequence[RankReading]]) -> list[float]:
    """Return the share of all windows in which each rank was busy; empty if a rank did not report it."""
    found = []
    for of_a_rank in zip(*readings, strict=True):
        if not all(one.busy_seconds for one in of_a_rank):
            return []
        window = sum(sum(one.step_seconds) for one in of_a_rank)
        found.append(sum(sum(one.busy_seconds) for one in of_a_rank) / window)
    return found
