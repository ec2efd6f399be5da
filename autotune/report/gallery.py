"""All figures of a study, by name and in the order in which the page asks its questions."""

from __future__ import annotations

from collections.abc import Callable

from autotune.precision.chart import precision
from autotune.report.charts import memory, throughput
from autotune.report.figure import Absence, Figure
from autotune.report.loading import loading
from autotune.report.waterfall import waterfall
from autotune.study.view import StudyView

FIGURES: dict[str, Callable[[StudyView], Figure | Absence]] = {
    "throughput": throughput,
    "memory": memory,
    "loading": loading,
    "precision": precision,
    "ablation": waterfall,
}

EARLIER_NAMES = {"worth": "ablation", "numerics": "precision"}


def figures(view: StudyView) -> list[Figure | Absence]:
    """Each one, or why there is none."""
    return [make(view) for make in FIGURES.values()]
