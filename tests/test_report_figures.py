from __future__ import annotations

from typing import Any, get_args
from xml.etree import ElementTree

import msgspec
import pytest

from autotune.interference import Contamination, GpuUse
from autotune.records import Purpose
from autotune.report.drawing import WIDE
from autotune.report.figure import Absence, Figure
from autotune.report.loading import loading
from autotune.report.losses import numerics, paired_losses
from autotune.report.noise import machine, repeats
from autotune.report.timing import LANES, phases, spans, timeline
from autotune.report.tradeoffs import pareto
from autotune.report.waterfall import worth
from autotune.results import Alone, Outcome, StabilityResult
from tests.reporting import FACTS, config, failed, ladder, measured, paired, recommendation, timed, trial, view, whole

SPACE = "{http://www.w3.org/2000/svg}"


def shown(figure: Figure | Absence) -> Figure:
    assert isinstance(figure, Figure), figure
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
    figure = shown(worth(view(ladder(), recommendation())))

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

    figure = shown(worth(view(kept, recommendation())))

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

    figure = shown(worth(view(trials, best)))

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

    figure = shown(worth(view(trials, best)))

    assert figure.table.rows[1][3] == gain
    assert ("Noise:" in figure.note) is (gain == "(noise)")


def test_the_front_is_what_nothing_beats_in_both() -> None:
    trials = tuple(
        trial(number, config(8 << number), measured(rate, peak * 2**30))
        for number, (rate, peak) in enumerate([(100, 10), (90, 12), (200, 20), (150, 5)])
    )

    assert [row[0].split()[0] for row in shown(pareto(view(trials))).table.rows] == ["64×1", "32×1"]


def test_every_purpose_has_its_lane_and_its_word() -> None:
    trials = tuple(
        trial(n, config(), timed(measured(9), 8.0 * n), purpose) for n, purpose in enumerate(get_args(Purpose))
    )

    figure = shown(timeline(view(trials)))

    assert set(LANES) == set(get_args(Purpose))
    assert "“steps” is what was probed after it" in figure.note
    assert "a step on the way" in figure.svg()


def test_pauses_of_a_resumed_search_are_left_out_of_its_clock() -> None:
    trials = tuple(trial(n, config(), timed(measured(9), began)) for n, began in enumerate((0, 8, 5000)))

    found = spans(trials)

    assert [(span.begin, span.end, span.is_resumed) for span in found] == [
        (0, 7, False),
        (8, 15, False),
        (15, 22, True),
    ]
    assert "resumed" in shown(timeline(view(trials))).note


def test_the_timeline_tells_outcomes_by_height_as_well_as_by_colour() -> None:
    trials = (
        trial(0, config(), timed(measured(9), 0)),
        trial(1, config(128), timed(failed(), 8)),
        trial(2, config(256), timed(failed(Outcome.CRASHED), 16)),
    )

    root = ElementTree.fromstring(shown(timeline(view(trials))).svg(WIDE))

    heights = [float(str(node.get("height"))) for node in root.iter(f"{SPACE}rect")][:3]
    assert len(set(heights)) == 3
    assert {"measured", "out of memory", "failed otherwise"} <= {str(node.text) for node in root.iter(f"{SPACE}text")}


def test_phases_add_up_to_the_time_of_the_probes_and_what_lay_between() -> None:
    trials = (trial(0, config(), timed(measured(9), 0, 10)), trial(1, config(), timed(measured(9), 12, 10)))

    figure = shown(phases(view(trials)))

    assert figure.table.rows == (
        ("measuring", "10 s", "45%"),
        ("starting Python and torch", "4.0 s", "18%"),
        ("building model and data", "4.0 s", "18%"),
        ("ending processes", "2.0 s", "9%"),
        ("between probes", "2.0 s", "9%"),
    )


def test_repeats_are_shown_by_how_far_they_are_from_their_mean() -> None:
    trials = (
        *(trial(n, config(64), measured(rate)) for n, rate in enumerate((95, 105))),
        trial(2, config(8), measured(9)),
    )

    assert shown(repeats(view(trials))).table.rows == (("64×1 fp32 workers 0 nchw", "2", "95.0, 105", "11%"),)


def test_the_machine_shows_drift_and_disturbance_probe_by_probe() -> None:
    waits = Contamination(run_queue_wait_share=0.2, foreign_cores=1.5)
    base = view().request.baseline
    trials = (
        trial(0, base, measured(100), "baseline"),
        trial(1, config(8), measured(90, contamination=waits)),
        trial(2, base, measured(80), "reference"),
    )

    figure = shown(machine(view(trials)))

    assert "baseline's speed, first = 100% from 80% to 100%" in figure.summary
    assert figure.table.rows[1][:3] == ("1", "20%", "1.5")


def test_the_clock_of_a_gpu_is_drawn_against_its_highest() -> None:
    slowed = [GpuUse(readings=9, sm_clock_mhz=clocks) for clocks in ((1980, 1980), (980, 1000))]
    trials = [
        trial(number, config(), msgspec.structs.replace(measured(100), gpu=gpu)) for number, gpu in enumerate(slowed)
    ]

    figure = shown(machine(view(trials)))

    assert "probe 0: SM clock, highest = 100% 100%" in figure.svg()
    assert "probe 1: SM clock, highest = 100% 50%" in figure.svg()


@pytest.mark.parametrize("chart", [machine, repeats, timeline, phases, worth, loading, pareto])
def test_charts_of_a_whole_study_are_well_formed(chart: Any) -> None:
    shown(chart(view(whole(), recommendation())))
