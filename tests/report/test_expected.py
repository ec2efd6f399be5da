"""What the sampler expected: in one line, beside the measurement, and on the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from autotune.cli.show import show
from autotune.errors import UsageError
from autotune.report.expected import deviation, expectation, probe_block
from autotune.report.page import render
from autotune.sampler.prediction import Prediction
from autotune.study import disk
from autotune.study.view import StudyView
from tests.reporting import GIB, config, failed, measured, recommendation, trial, written

SAID = Prediction(
    samples_per_second=3400.0, low=2900.0, high=4000.0, memory_share=0.2, memory_bytes=310 * 2**20, fits=0.98, gain=0.12
)


def _said(**changes: Any) -> Prediction:
    return msgspec.structs.replace(SAID, **changes)


def test_a_proposal_says_why_in_one_line() -> None:
    assert expectation(SAID) == (
        "expected 3,400 samples/s (2,900 to 4,000), 310 MiB, fits 98%: the best expected gain (12%)"
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"why": "direct"}, "310 MiB, fits 98%: the model is off by more than 15% here, so batches near"),
        ({"gain": None}, "expected to be the fastest"),
        ({"gain": 0.001}, "hardly any gain is expected"),
        ({"memory_bytes": None}, "(2,900 to 4,000), 20% of the memory, fits"),
    ],
)
def test_other_reasons_have_other_words(changes: dict[str, Any], told: str) -> None:
    assert told in expectation(_said(**changes))


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (measured(3740, 341 * 2**20), "10% faster than expected, within the interval; memory 10% above"),
        (measured(1700, 310 * 2**20), "50% slower than expected, outside the interval; memory as expected"),
        (failed(), "expected to run, and did not"),
    ],
)
def test_the_measurement_is_held_against_what_was_expected(result: Any, told: str) -> None:
    assert deviation(SAID, trial(1, config(), result)) == told


@pytest.fixture
def study(tmp_path: Path) -> StudyView:
    """Three batches of one arm; only the second probe was predicted."""
    probes = [trial(n, config(64 << n), measured(300.0 + 100 * n, (2 + n) * GIB)) for n in range(3)]
    view = written(tmp_path / "resnet", tuple(probes), recommendation())
    disk.write_prediction(view.folder, 1, _said(samples_per_second=500.0, memory_bytes=2 * GIB))
    return view


def test_show_prints_prediction_beside_measurement(study: StudyView) -> None:
    told, untold = (probe_block(study, study.trials[number]).plain for number in (1, 0))

    assert "expected  500 samples/s (2,900 to 4,000), 2 GiB, fits 98%" in told
    assert "measured  400 samples/s" in told
    assert "20% slower than expected" in told
    assert "expected" not in untold


@pytest.mark.parametrize(("share", "told"), [(0.004, False), (0.024, True)])
def test_what_watching_cost_is_shown_where_it_is_more_than_a_trifle(tmp_path: Path, share: float, told: bool) -> None:
    result = measured(300.0, GIB)
    seconds = sum(result.measurement.step_seconds) / len(result.measurement.step_seconds)
    changed = msgspec.structs.replace(
        result.measurement, steps_per_block=10, watching_seconds_per_step=share * seconds / 10
    )
    probes = (trial(0, config(64), msgspec.structs.replace(result, measurement=changed)),)
    view = written(tmp_path / "resnet", probes, recommendation())

    shown = probe_block(view, view.trials[0]).plain

    assert ("watching  took 2.4% of a step" in shown) is told
    assert ("\nwatching" in shown) is told


def test_a_probe_that_does_not_exist_is_not_shown(study: StudyView) -> None:
    with pytest.raises(UsageError, match="has no finished probe 9"):
        show(str(study.folder), probe=9)


def test_show_as_json_holds_the_prediction(study: StudyView, capsys: pytest.CaptureFixture[str]) -> None:
    show(str(study.folder), probe=1, json_output=True)

    (row,) = msgspec.json.decode(capsys.readouterr().out)
    assert row["prediction"]["samples_per_second"] == 500
    assert row["trial"]["number"] == 1


def test_the_page_tells_of_each_probe_what_was_expected(study: StudyView) -> None:
    page = render(study)

    assert page.count("came out: ") == 1
    assert "expected: 500 samples/s (2,900 to 4,000)" in page
