"""Compares what micro-steps predict for accumulation over several ranks with the measured full cycles. Pure.

A search probe of many micro-batches runs two of them: its rate follows from the exchange and the update that a full
cycle has once (`Measurement.samples_per_second`). Baseline and confirmation run full cycles, and micro-steps in the
same process: so the prediction is verified without a probe of its own. Only probes without interference count: other
work on the cores delays ranks that wait for one another by more than it delays single micro-steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.records import StudyRequest
from autotune.core.results import Measurement
from autotune.core.stats import MOST_PROBE_NOISE, mean_bounds, typical_rate
from autotune.study.shown import moving, shown_config
from autotune.study.summary import ConfigSummary
from autotune.study.valid_probes import interference_causes


def accumulation_verified(
    winner: ConfigSummary, measured: Sequence[ConfigSummary], request: StudyRequest
) -> Iterator[Notice]:
    """Yield what was predicted of an accumulation and what was measured: of the winner's, else of one of `measured`.

    Nothing if none of them accumulates, if no ranks exchange gradients, or if all these probes had interference.
    """
    for one in (winner, *measured):
        quiet = [trial.result.measurement for trial in one.trials if not interference_causes(trial.result)]
        rates = [(_computing(full), rate) for full in quiet if full and (rate := _predicted(full)) is not None]
        if not rates:
            continue
        ratios = [found / predicted for found, predicted in rates]
        found, ratio = typical_rate([found for found, _ in rates]), typical_rate(ratios)
        yield notice(
            Code.ACCUMULATION_MISPREDICTED if _is_wrong(ratios) else Code.ACCUMULATION_PREDICTED,
            micro_batches=one.config.gradient_accumulation_steps,
            configuration=None if one is winner else shown_config(one.config.values, moving(request)),
            predicted=found / ratio,
            measured=found,
            less=1 - ratio if ratio < 1 else None,
            more=ratio - 1 if ratio >= 1 else None,
        )
        return


def _is_wrong(ratios: Sequence[float]) -> bool:
    """Return whether measured over predicted, one for each probe, is surely further from 1 than probes scatter."""
    if len(ratios) < 2:
        return False
    low, high = mean_bounds(ratios)
    return low > 1 + MOST_PROBE_NOISE or high < 1 - MOST_PROBE_NOISE


def _predicted(one: Measurement) -> float | None:
    """Return samples/s of computing that micro-steps predict of its full cycles; None: it ran none, or no pairs."""
    steps, pairs, update = one.accumulation_steps, one.communication, one.optimizer_seconds
    if pairs is None or update is None or steps == 1 or one.cycle_ratio != 1:
        return None
    return one.samples_per_step / pairs.step_seconds(steps, update)


def _computing(one: Measurement) -> float:
    """Return samples/s without the wait for data, which micro-steps do not have either."""
    return one.compute_samples_per_second or one.samples_per_second
