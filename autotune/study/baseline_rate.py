"""Decides whether the probes of the baseline give its rate precisely enough for comparisons. Pure.

narrow and calm                   known
narrow, with interference         known if two agree: there is as much of it all the time
calm, though its steps vary       known if two agree, the second measured for longer
neither                           unknown, for rates on a busy machine agree by luck: interleaved rounds have to tell
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from autotune.core.results import Trial
from autotune.study.valid_probes import is_spoiled, severity, told_causes
from autotune.units import format_rate, format_share

RATE_TOLERANCE = 0.1  # relative half width: gains that pay for a change are of this size


def is_known(probes: Sequence[Trial]) -> bool:
    """Return whether these probes of the baseline give its rate to within 10 %."""
    return any(is_narrow(one) and not is_spoiled(one.result) for one in probes) or _agree(probes)


def why_doubtful(probe: Trial) -> str:
    """Return why one probe does not give the rate to within 10 %, with its values."""
    others = told_causes(probe.result)
    return _spread(probe) + (f", while {others}" if others else "")


def why_unknown(probes: Sequence[Trial]) -> str:
    """Return a sentence that the rate is unknown after all these probes, with what happened and why."""
    calmest = min(probes, key=lambda one: severity(one.result))
    seen = "; ".join(f"probe {one.number} {_spread(one)}" for one in probes)
    apart = max(map(_rate, probes)) / min(map(_rate, probes)) - 1
    differ = f"; they differ by up to {_told(apart)}" if apart > RATE_TOLERANCE else ""
    found = f"The baseline could not be measured to {format_share(RATE_TOLERANCE)}: {seen}{differ}."
    if is_spoiled(calmest.result):
        causes = told_causes(calmest.result)
        return f"{found} Other work on this machine interferes: even during probe {calmest.number} {causes}."
    return f"{found} No interference was seen at probe {calmest.number}: its steps vary, or others share its host."


def is_narrow(probe: Trial) -> bool:
    """Return whether one probe gives its rate to within 10 %, by the spread of its own steps."""
    return _width(probe) <= RATE_TOLERANCE


def has_too_few(probe: Trial) -> bool:
    """Return whether the probe measured too few steps for an interval: a longer one has more, on any machine."""
    return probe.result.measurement is not None and math.isinf(_width(probe))


def _agree(probes: Sequence[Trial]) -> bool:
    """Return whether two calm or narrow probes agree with each other, and with the calmest of all.

    False if another probe was surely faster: interference can only slow a probe down, and may slow two equally.
    """
    usable = [one for one in probes if is_narrow(one) or not is_spoiled(one.result)]
    if len(usable) < 2:
        return False
    least = min(usable, key=lambda one: severity(one.result))
    pairs = ((one, other, least) for one, other in combinations(usable, 2))
    surely = max(_rate(one) * (1 - _width(one)) for one in probes)  # the baseline is at least as fast
    return any(max(surely, *map(_rate, three)) <= min(map(_rate, three)) * (1 + RATE_TOLERANCE) for three in pairs)


def _spread(probe: Trial) -> str:
    """Return a probe's rate with its half width, such as `170 samples/s ± 12%`."""
    assert probe.result.measurement is not None, "asked for only where it ran"
    width = probe.result.measurement.relative_half_width
    rate = f"{format_rate(_rate(probe))} samples/s"
    return f"{rate}, too few steps to say how precisely" if width is None else f"{rate} ± {_told(width)}"


def _told(share: float) -> str:
    """Return a share in per cent, rounded up to another digit where it would read like the tolerance it exceeds."""
    told = format_share(share)
    if share <= RATE_TOLERANCE or told != format_share(RATE_TOLERANCE):
        return told
    return f"{math.ceil(1000 * share) / 1000:.1%}"


def _rate(probe: Trial) -> float:
    assert probe.result.measurement is not None, "asked for only where it ran"
    return probe.result.measurement.samples_per_second


def _width(probe: Trial) -> float:
    """Return the relative half width of its rate; infinite if too few steps were measured."""
    width = probe.result.measurement.relative_half_width if probe.result.measurement is not None else None
    return math.inf if width is None else width
