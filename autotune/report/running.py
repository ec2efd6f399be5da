"""The words for a running search, the same in the live line of the terminal and on the page."""

from __future__ import annotations

from autotune.core.records import Config
from autotune.core.results import Measurement
from autotune.report.phrases import samples_per_second
from autotune.units import format_speedup

STAGES = {"baseline": "Baseline", "search": "Explore", "confirm": "Confirm", "ablation": "Ablation"}  # by purpose
MeasuredConfig = tuple[Config, Measurement]


def best_factor(best: MeasuredConfig, baseline: MeasuredConfig | None) -> str:
    """`17.1×`: the best so far over the baseline; empty if it is the baseline, or that did not run."""
    if baseline is None or best[0] == baseline[0]:
        return ""
    return f"{format_speedup(best[1].samples_per_second / baseline[1].samples_per_second)}×"


def best_phrase(best: MeasuredConfig, baseline: MeasuredConfig | None) -> str:
    """`best 2,605 samples/s (17.1× baseline)`, while a search runs; `baseline 152 samples/s` before that is beaten."""
    if baseline is not None and best[0] == baseline[0]:
        return f"baseline {samples_per_second(baseline[1].samples_per_second)}"
    factor = best_factor(best, baseline)
    return f"best {samples_per_second(best[1].samples_per_second)}" + (f" ({factor} baseline)" if factor else "")
