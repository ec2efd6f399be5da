from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from autotune.core.results import Alone, Outcome, StabilityResult
from autotune.precision.chart import numerics, paired_losses
from autotune.report.chart import Absence, Chart
from autotune.report.loading import loading
from autotune.report.waterfall import waterfall
from tests.reporting import FACTS, config, failed, ladder, measured, paired, recommendation, trial, view, whole


def shown(figure: Chart | Absence) -> Chart:
    assert isinstance(figure, Chart), figure
    ElementTree.fromstring(figure.svg())
    return figure


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

    figure = shown(loading(view(trials)))

    assert figure.table.rows == (
        ("0", "64×1 fp32 workers 0 nchw", "100", "–", "–", "80%"),
        ("4", "64×1 fp32 workers 4 nchw", "110", "500", "120", "70%"),
    )
    assert "not timed apart" not in figure.note


def test_loading_says_when_the_halves_were_not_timed_or_there_is_no_loader() -> None:
    synthetic = msgspec.structs.replace(FACTS, data="batch")

    assert "not timed apart" in shown(loading(view(ladder()))).note
    absence = loading(view(ladder(), facts=synthetic))
    assert isinstance(absence, Absence)
    assert "no loader" in absence.reason


def test_numerics_draws_each_dtype_and_repeats_the_verdict() -> None:
    figure = shown(paired_losses([paired()], tolerance=0.02))

    assert figure.table.rows[0][:2] == ("bf16", "ok")
    assert "bf16 tracked fp32" in figure.note


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
    assert isinstance(numerics(view(ladder())), Absence)


def test_the_waterfall_names_every_change_with_what_was_measured() -> None:
    figure = shown(waterfall(view(ladder(), recommendation())))

    assert [(change, gain) for change, _, _, gain, _ in figure.table.rows] == [
        ("baseline: 64×16 fp32 workers 0 nchw", ""),
        ("workers 0 → 12", "(+71)"),
        ("precision fp32 → bf16", "(+368)"),
        ("layout nchw → nhwc", "(+313)"),
        ("batch 64×16 → 1024×1", "(+1,430)"),
    ]
    assert "joint" not in figure.svg()


def test_the_waterfall_marks_what_was_measured_only_together_and_never_invents_a_number() -> None:
    kept = tuple(one for one in ladder() if one.number in (0, 6))

    figure = shown(waterfall(view(kept, recommendation())))

    assert len(figure.table.rows) == 2
    assert "together only" in figure.table.rows[1][-1]
    assert "Measured one change at a time: 0 of 1 step." in figure.note
    assert 'class="up joint"' in figure.svg()


def test_a_change_that_cost_speed_falls() -> None:
    best = recommendation()
    trials = (
        trial(0, config(**best.baseline), measured(152)),
        trial(1, config(**{**best.baseline, "num_workers": 12}), measured(100)),
        trial(2, config(**best.params), measured(2330)),
    )

    figure = shown(waterfall(view(trials, best)))

    assert figure.table.rows[1][3] == "(–52)"
    assert 'class="down"' in figure.svg()


@pytest.mark.parametrize(("half_width", "gain"), [(0.01, "(+10)"), (0.08, "(noise)")])
def test_a_gain_that_the_intervals_swallow_is_called_noise(half_width: float, gain: str) -> None:
    best = recommendation()
    trials = (
        trial(0, config(**best.baseline), measured(152, half_width=half_width)),
        trial(1, config(**{**best.baseline, "num_workers": 12}), measured(162, half_width=half_width)),
        trial(2, config(**best.params), measured(2330)),
    )

    figure = shown(waterfall(view(trials, best)))

    assert figure.table.rows[1][3] == gain
    assert ("Noise:" in figure.note) is (gain == "(noise)")


@pytest.mark.parametrize("chart", [waterfall, loading])
def test_charts_of_a_whole_study_are_well_formed(chart: Any) -> None:
    shown(chart(view(whole(), recommendation())))
