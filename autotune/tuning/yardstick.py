"""When the baseline is known well enough to compare with, and what to say where it cannot be. Pure.

narrow and calm                   known
narrow, though others were busy   known if two agree: they are so all the time
calm, though its steps vary       known if two agree, the second measured for longer
neither                           worth nothing: rates on a busy machine agree by luck
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from msgspec.structs import replace

from autotune.requests import ProbeBudget
from autotune.results import Trial
from autotune.tuning.disturbance import disturbances, is_spoiled, severity
from autotune.units import format_rate, format_share

TOLERANCE = 0.1  # relative half width of its rate: gains that are worth a change are of this size
LONGER = 3.0  # times the longest window: it narrows the interval of uneven steps by 1.7


def is_known(probes: Sequence[Trial]) -> bool:
    """Whether these probes of the baseline tell its rate to 10 %."""
    return any(_is_narrow(one) and not is_spoiled(one.result) for one in probes) or _agree(probes)


def window(probes: Sequence[Trial], usual: ProbeBudget) -> ProbeBudget:
    """For how long to measure next: longer once the steps alone, and nobody else, kept it from being known."""
    is_uneven = any(not _is_narrow(one) and not is_spoiled(one.result) for one in probes)
    return replace(usual, max_seconds=LONGER * usual.max_seconds) if is_uneven else usual


def doubt(probe: Trial) -> str:
    """Why a probe alone does not tell the rate to 10 %, with its values."""
    others = "; ".join(disturbances(probe.result))
    return _spread(probe) + (f", while {others}" if others else "")


def unknown(probes: Sequence[Trial], folder: str) -> str:
    """What to tell where it is not known after all these probes, that is what happened, why, and what to do."""
    calmest = min(probes, key=lambda one: severity(one.result))
    seen = "; ".join(f"probe {one.number} {_spread(one)}" for one in probes)
    told = f"The baseline could not be measured to {format_share(TOLERANCE)}: {seen}."
    if is_spoiled(calmest.result):
        return (
            f"{told} Other work on this machine is in the way: even during probe {calmest.number} "
            f"{'; '.join(disturbances(calmest.result))}. Close it or wait until it is over (`autotune doctor` shows "
            f"how busy the machine is), and run the same command again; what was measured is kept in {folder}."
        )
    return (
        f"{told} Nobody else was seen to use the machine at probe {calmest.number}, so its own steps probably take "
        f"very different times. Make them more alike (batches of one length, data that lie near), and run the same "
        f"command again."
    )


def _agree(probes: Sequence[Trial]) -> bool:
    """Whether two that are calm or narrow agree with each other, and with the least disturbed of these.

    Not where another probe was surely faster: others can only slow a probe down, and may slow two of them alike.
    """
    usable = [one for one in probes if _is_narrow(one) or not is_spoiled(one.result)]
    if len(usable) < 2:
        return False
    least = min(usable, key=lambda one: severity(one.result))
    pairs = ((one, other, least) for one, other in combinations(usable, 2))
    surely = max(_rate(one) * (1 - _width(one)) for one in probes)  # the baseline is at least as fast
    return any(max(surely, *map(_rate, three)) <= min(map(_rate, three)) * (1 + TOLERANCE) for three in pairs)


def _spread(probe: Trial) -> str:
    """`170 samples/s ± 12%`."""
    assert probe.result.measurement is not None, "asked for only where it ran"
    width = probe.result.measurement.relative_half_width
    rate = f"{format_rate(_rate(probe))} samples/s"
    return f"{rate}, too few steps to say how precisely" if width is None else f"{rate} ± {format_share(width)}"


def _rate(probe: Trial) -> float:
    assert probe.result.measurement is not None, "asked for only where it ran"
    return probe.result.measurement.samples_per_second


def _is_narrow(probe: Trial) -> bool:
    return _width(probe) <= TOLERANCE


def _width(probe: Trial) -> float:
    """Of the interval of its rate, relative; infinite where too few steps were measured for one."""
    width = probe.result.measurement.relative_half_width if probe.result.measurement is not None else None
    return math.inf if width is None else width
