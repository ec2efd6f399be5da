"""All charts of a study, by name and in the order in which the page asks its questions."""

from __future__ import annotations

from collections.abc import Callable

from autotune.precision.chart import precision
from autotune.report.batch_charts import memory, throughput
from autotune.report.changes import changes_chart
from autotune.report.chart import Absence, Chart
from autotune.report.loading import loading
from autotune.study.view import StudyView

CHARTS: dict[str, Callable[[StudyView], Chart | Absence]] = {
    "throughput": throughput,
    "memory": memory,
    "loading": loading,
    "precision": precision,
    "ablation": changes_chart,
}
EARLIER_NAMES = {"worth": "ablation", "numerics": "precision"}
