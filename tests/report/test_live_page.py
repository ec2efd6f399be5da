"""The page of a running search: how far it is, the best so far, the probe that runs, and what the search says."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from autotune.report.live import best_so_far, live
from autotune.report.page import render
from autotune.report.phrases import samples_per_second
from autotune.report.running import STAGES
from autotune.study.progress import RunningProbe, Said, SearchProgress
from autotune.study.view import AGAIN
from tests.pages import Page
from tests.reporting import config, ladder, measured, recommendation, trial, view

BASELINE = config(64, gradient_accumulation_steps=16)
SAID = (Said(seconds=3.2, text="Waiting for other processes."), Said(seconds=40, text="<b>Confirming</b> 4."))


def state(**changes: Any) -> SearchProgress:
    running = RunningProbe(number=12, config=config(256), purpose="confirm", began_at="2026-11-22T10:01:00+00:00")
    settings: dict[str, Any] = {
        "began_at": "2026-11-22T10:00:00+00:00", "budget_seconds": 600.0, "purpose": "confirm", "running": running,
        "said": SAID,
    }  # fmt: skip
    return SearchProgress(**(settings | changes))


def test_a_running_search_shows_phase_budget_best_probe_and_sentences() -> None:
    study = dataclasses.replace(view(ladder()[:8], running=True), progress=state())

    source = render(study)
    page = Page(source)

    best = best_so_far(study)
    assert best is not None
    assert "best 2,330 samples/s (15.3× baseline): batch 1024 × 1" in page.text
    assert ("li", "aria-current", "step") in page.attributes
    body = page.text.partition("running now")[2]
    assert body.index("Baseline") < body.index("Confirm") < body.index("15.3×")
    assert "time budget 10:00 · 8 probes" in page.text  # a file counts no seconds
    assert "progress" not in page.tags and "12 · " not in page.text
    assert "now probe 12, confirmation: 256×1" in page.text
    assert page.text.index("<b>Confirming</b> 4.") < page.text.index("Waiting for other processes.")


def test_a_search_without_an_answer_leaves_what_it_said_beside_the_reason() -> None:
    page = Page(render(dataclasses.replace(view(ladder()[:1]), progress=state(running=None))))

    assert page.text.index("What the search said") < page.text.index("How it was measured")
    assert "Use it" not in page.text


def test_between_probes_the_page_tells_what_the_search_does() -> None:
    doing = "Comparing the losses of bf16 and fp32."
    study = dataclasses.replace(view(ladder()[:8], running=True), progress=state(running=None, doing=doing))

    assert doing in Page(render(study)).text
    assert (live(study).now, live(study).now_since) == (doing, "")


def test_a_probe_that_has_ended_does_not_run() -> None:
    assert live(dataclasses.replace(view(ladder()[:13], running=True), progress=state())).now == "between probes"


def test_the_baseline_is_no_gain_over_itself_however_often_it_is_measured() -> None:
    again = (trial(0, BASELINE, measured(152), "baseline"), trial(1, BASELINE, measured(58.8), "baseline"))

    found = live(dataclasses.replace(view(again, running=True), progress=state(purpose="baseline", running=None)))

    assert found.factor == ""
    assert found.best.startswith("baseline 58.8 samples/s: batch 64")


@pytest.mark.parametrize("purpose", STAGES)
def test_every_part_of_a_search_has_its_stage(purpose: str) -> None:
    found = live(dataclasses.replace(view(ladder()[:8], running=True), progress=state(purpose=purpose)))

    assert [one.name for one in found.stages if one.is_now] == [STAGES[purpose]]


def test_the_best_so_far_is_usable_and_measured_by_the_search() -> None:
    best = best_so_far(view(ladder()))

    assert best is not None
    assert best[0].number == 6
    assert samples_per_second(best[1].samples_per_second) == "2,330 samples/s"
    assert best_so_far(view()) is None


def test_the_answer_takes_the_place_of_the_state_and_what_was_said_stays_in_the_fold() -> None:
    running = dataclasses.replace(view(ladder(), running=True), progress=state())
    finished = dataclasses.replace(view(ladder(), recommendation()), progress=state(running=None))

    before, after = (Page(render(one)) for one in (running, finished))

    for page in (before, after):
        ids = [value for tag, name, value in page.attributes if tag == "section" and name == "id"]
        assert ids[0] == "answer" and ids[-2:] == ["probes", "environment"]
    assert "progress" not in after.tags
    assert after.text.index("How it was measured") < after.text.index("Waiting for other processes.")


def test_while_changes_are_checked_the_answer_stands_with_the_state_above_it() -> None:
    study = dataclasses.replace(view(ladder(), recommendation(), running=True), progress=state(purpose="ablation"))

    page = Page(render(study))

    assert "15.3×" in page.text
    assert ("ol", "class", "stages") in page.attributes
    above = page.text.partition("15.3× resnet")[2].partition("15.3×")[0]
    assert "Ablation" in above and "<b>Confirming</b> 4." in above  # the latest sentence
    assert "not measured yet" in page.text


def test_a_search_of_an_earlier_version_has_no_clock() -> None:
    found = live(view(ladder()[:2], running=True))

    assert (found.began_at, found.now, found.now_since) == ("", "between probes", "")
    assert "progress" not in Page(render(view(ladder()[:2], running=True))).tags


def test_rounds_measure_again_and_find_nothing() -> None:
    again = tuple(trial(20 + number, config(64), measured(9e5), purpose) for number, purpose in enumerate(AGAIN))

    found = best_so_far(view((*ladder(), *again), running=True))

    assert found == best_so_far(view(ladder(), running=True))


def test_the_page_calls_the_ablation_by_its_name() -> None:
    trials = (*ladder(), trial(20, config(64), measured(100), "ablation"))

    page = Page(
        render(dataclasses.replace(view(trials, recommendation(), running=True), progress=state(purpose="ablation")))
    )

    assert "Ablation" in page.text and "ablation" in page.text
