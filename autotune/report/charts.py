"""All charts of a study, by name and in the order in which the page asks its questions."""

from __future__ import annotations

from collections.abc import Callable

from autotune.precision.chart import precision
from autotune.report.chart import Absence, Chart
from autotune.report.finalists_chart import finalists
from autotune.report.history_chart import history
from autotune.report.knob_values_chart import knob_values_chart
from autotune.report.ranks_chart import ranks
from autotune.report.step_chart import step
from autotune.report.throughput_chart import throughput
from autotune.study.view import StudyView

CHARTS: dict[str, Callable[[StudyView], Chart | Absence]] = {
    "finalists": finalists,  # is it really better than the others?
    "step": step,  # what limits it now?
    "ranks": ranks,  # do all of them work?
    "settings": knob_values_chart,  # what does each setting bring here?
    "throughput": throughput,  # which batch, and what fits?
    "precision": precision,  # does it learn the same?
    "history": history,  # how did the search go, and would more of it help?
}
