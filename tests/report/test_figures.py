from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from autotune.core.results import Alone, Outcome, StabilityResult
from autotune.precision.chart import paired_losses, precision
from autotune.report.chart import Absence, Chart
from autotune.report.loading import loading
from autotune.report.waterfall import waterfall
from tests.reporting import FACTS, config, failed, ladder, measured, paired, recommendation, trial, view, whole


def shown(chart: Chart | Absence) -> Chart:
    assert isinstance(chart, Chart), chart
    ElementTree.fromstring(chart.svg())
    return chart


def test_loading_tells_together_and_apart_by_workers() -> None:
    halves: dict[str, Any] = {
        "compute_only": Alone(seconds=(1.0, 1.0), samples=500),
        "loader_only": Alone(seconds=(1.0, 1.0), samples=120),
    }
    trials = (
        trial(0, config(64, num_workers=0), measured(100, wait=0.8)),
        trial(1, config(64, num_workers=4), measured(110, wait=0.7, **halves)),
        trial(2, config(128, num_workers=4), measured(90, wait=0.1)),
        trial(3, config(256, num_workers=4), measured(900, 79 * 2**30)),  # faster, and more than may be used
    )

    chart = shown(loading(view(trials)))

    assert chart.table.rows == (
        ("0", "64×1 fp32 workers 0 nchw", "100", "–", "–", "80%"),
        ("4", "64×1 fp32 workers 4 nchw", "110", "500", "120", "70%"),
    )
    assert "not timed apart" not in chart.note


def test_loading_says_when_the_halves_were_not_timed_or_there_is_no_loader() -> None:
    synthetic = msgspec.structs.replace(FACTS, data="batch")

    assert "not timed apart" in shown(loading(view(ladder()))).note
    absence = loading(view(ladder(), facts=synthetic))
    assert isinstance(absence, Absence)
    assert "no loader" in absence.reason


def test_numerics_draws_each_dtype_and_repeats_the_verdict() -> None:
    chart = shown(paired_losses([paired()], tolerance=0.02))

    assert chart.table.rows[0][:2] == ("bf16", "ok")
    assert "bf16 loss matches fp32" in chart.note


def test_a_dtype_that_learns_less_or_breaks_is_called_so() -> None:
    behind = shown(paired_losses([paired(worse=0.5)], tolerance=0.02))
    broken = shown(paired_losses([paired(broken_from=30)], tolerance=0.02))

    assert behind.table.rows[0][1] == "worse"
    assert broken.table.rows[0][1] == "unstable"
    crosses = [node for node in ElementTree.fromstring(broken.svg()).iter() if node.get("class") == "cross"]
    assert len(crosses) == 1


def test_numerics_tells_why_a_comparison_failed_or_that_there_was_none() -> None:
    asked, _ = paired()
    failure = failed().failure
    lost = StabilityResult(outcome=Outcome.OOM_DEVICE, failure=failure)

    absence = paired_losses([(asked, lost)], tolerance=0.02)

    assert isinstance(absence, Absence)
    assert absence.reason == "bf16: tried to allocate 2 GiB"
    assert isinstance(precision(view(ladder())), Absence)


def test_the_waterfall_names_every_change_with_what_was_measured() -> None:
    chart = shown(waterfall(view(ladder(), recommendation())))

    assert [(change, gain) for change, _, _, gain, _ in chart.table.rows] == [
        ("baseline: 64×16 fp32 workers 0 nchw", ""),
        ("workers 0 → 12", "(+71)"),
        ("precision fp32 → bf16", "(+368)"),
        ("layout nchw → nhwc", "(+313)"),
        ("batch 64×16 → 1024×1", "(+1,430)"),
    ]
    assert "joint" not in chart.svg()


def test_the_waterfall_marks_what_was_measured_only_together_and_never_invents_a_number() -> None:
    kept = tuple(one for one in ladder() if one.number in (0, 6))

    chart = shown(waterfall(view(kept, recommendation())))

    assert len(chart.table.rows) == 2
    assert "together only" in chart.table.rows[1][-1]
    assert "Measured one change at a time: 0 of 1 step." in chart.note
    assert 'class="up joint"' in chart.svg()


@pytest.mark.parametrize(
    ("rate", "half_width", "gain", "drawn"),
    [
        (100, 0.012, "(–52)", 'class="down"'),  # a change that cost speed falls
        (162, 0.01, "(+10)", 'class="up"'),
        (162, 0.08, "(not significant)", 'class="up"'),  # the intervals swallow it
    ],
)
def test_a_gain_is_shown_with_its_sign_unless_it_is_not_significant(
    rate: float, half_width: float, gain: str, drawn: str
) -> None:
    best = recommendation()
    trials = (
        trial(0, config(**best.baseline), measured(152, half_width=half_width)),
        trial(1, config(**{**best.baseline, "num_workers": 12}), measured(rate, half_width=half_width)),
        trial(2, config(**best.params), measured(2330)),
    )

    chart = shown(waterfall(view(trials, best)))

    assert chart.table.rows[1][3] == gain
    assert drawn in chart.svg()
    assert ("Not significant:" in chart.note) is (gain == "(not significant)")


@pytest.mark.parametrize("draw", [waterfall, loading])
def test_charts_of_a_whole_study_are_well_formed(draw: Any) -> None:
    shown(draw(view(whole(), recommendation())))
