"""The baseline: measured first, until its rate is known well enough to compare with.

narrow and calm                   known
narrow, with interference         known if two agree: there is as much of it all the time
calm, though its steps vary       known if two agree, the second measured for longer
neither                           of no use: rates on a busy machine agree by luck
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from msgspec.structs import replace

from autotune.core.requests import ProbeBudget
from autotune.core.results import Trial
from autotune.errors import EnvironmentUnfit
from autotune.study import layout as disk
from autotune.study.history import FATAL_AT_BASELINE
from autotune.study.interference import BACK_OFF_SECONDS, Judged, interference_causes, is_spoiled, severity
from autotune.tuning.context import SearchContext
from autotune.tuning.prepare import check_scored, fault
from autotune.tuning.probing import probe_with_repeat, probe_with_retry
from autotune.units import format_rate, format_share

TOLERANCE = 0.1  # relative half width of its rate: gains that pay for a change are of this size
LONGER = 3.0  # times the longest window: it narrows the interval of uneven steps by 1.7
# Before each probe of a baseline that is not known yet: work that outlasts all of them is no burst.
BASELINE_PAUSES_SECONDS = (0.0, BACK_OFF_SECONDS, 2 * BACK_OFF_SECONDS, 4 * BACK_OFF_SECONDS)


def measure_baseline(context: SearchContext) -> None:
    """Measure the baseline where it is not known yet; then make the database agree with the probe folders.

    Raises `TargetError` if it cannot run, `UsageError` if the objective cannot be measured, and `EnvironmentUnfit` if
    its rate cannot be known.
    """
    history, known = context.history, context.history.baseline_known
    runs = known is not None and known[0].result.measurement is not None
    if known is None or (runs and not context.resumed and not is_known(history.baseline_probes)):
        known = trial, _ = _probed(context)
        if trial.result.outcome in FATAL_AT_BASELINE:
            assert trial.result.failure is not None, "only OK has none"
            raise fault(trial.result.outcome, trial.result.failure, disk.log_of(context.folder, trial.number))
    check_scored(*known, context.request)
    verdicts = {trial.number: verdict for trial, verdict in history.judged}
    context.store.reconcile(tuple(trial for trial, _ in history.valid), verdicts)


def probe_nearest(context: SearchContext) -> None:
    """Probe what changes least of a baseline that the space leaves out: it should not be missed in the answer."""
    baseline = context.request.baseline
    if not context.space.excludes(baseline):
        return
    nearest = context.space.nearest(baseline)
    if nearest not in context.history.probed:
        context.store.add(*probe_with_repeat(context, nearest, "search"))


def _probed(context: SearchContext) -> Judged:
    """Return the baseline's probe that counts: known to 10 %, if need be by probing again, whatever the budget.

    One that cannot run is measured once.
    """
    history, config = context.history, context.request.baseline
    for pause in BASELINE_PAUSES_SECONDS:
        tried = history.baseline_probes
        if pause:
            context.reporter.note(f"Probe {tried[-1].number}: {doubt(tried[-1])}. The baseline is measured again.")
            context.pause(pause)
        usual = context.objective.window
        judged = probe_with_retry(context, config, "baseline", window=window(tried, usual))
        if judged[0].result.measurement is None:
            return judged
        if is_known(history.baseline_probes):
            return [pair for pair in history.valid if pair[0] in history.baseline_probes][-1]
    tried = history.baseline_probes[-len(BASELINE_PAUSES_SECONDS) :]
    raise EnvironmentUnfit(unknown(tried, str(context.folder)))


def is_known(probes: Sequence[Trial]) -> bool:
    """Return whether these probes of the baseline tell its rate to 10 %."""
    return any(_is_narrow(one) and not is_spoiled(one.result) for one in probes) or _agree(probes)


def window(probes: Sequence[Trial], usual: ProbeBudget) -> ProbeBudget:
    """Return the next window: longer once uneven steps alone, without interference, kept the rate from being known."""
    is_uneven = any(not _is_narrow(one) and not is_spoiled(one.result) for one in probes)
    return replace(usual, max_seconds=LONGER * usual.max_seconds) if is_uneven else usual


def doubt(probe: Trial) -> str:
    """Return why a probe alone does not tell the rate to 10 %, with its values."""
    others = "; ".join(interference_causes(probe.result))
    return _spread(probe) + (f", while {others}" if others else "")


def unknown(probes: Sequence[Trial], folder: str) -> str:
    """Return the error where it is not known after all these probes: what happened, why, and what to do."""
    calmest = min(probes, key=lambda one: severity(one.result))
    seen = "; ".join(f"probe {one.number} {_spread(one)}" for one in probes)
    text = f"The baseline could not be measured to {format_share(TOLERANCE)}: {seen}."
    if is_spoiled(calmest.result):
        causes = "; ".join(interference_causes(calmest.result))
        return (
            f"{text} Other work on this machine is in the way: even during probe {calmest.number} "
            f"{causes}. Close it or wait until it is over (`autotune doctor` shows "
            f"how busy the machine is), and run the same command again; what was measured is kept in {folder}."
        )
    return (
        f"{text} No interference was seen during probe {calmest.number}, so its own steps probably take very "
        f"different times. Make them more alike (batches of one length, data that lie near), and run the same "
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
    """Return `170 samples/s ± 12%`."""
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
    """Return the relative width of the interval of its rate; infinite where too few steps were measured for one."""
    width = probe.result.measurement.relative_half_width if probe.result.measurement is not None else None
    return math.inf if width is None else width
