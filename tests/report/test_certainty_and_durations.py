"""What stands beside the factor: certainty, times, and what a changed global batch means."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from autotune.core.codes import Code
from autotune.core.notices import notice
from autotune.report import phrases
from autotune.report.answer import answer_block
from autotune.report.card import card
from autotune.report.certainty import certainty
from autotune.report.durations import durations, steps_per_epoch
from autotune.report.markdown import markdown
from autotune.report.page import render
from autotune.study.recommendation import Undecided
from tests.pages import Page
from tests.reporting import FACTS, config, ladder, recommendation, view

CHANGED = notice(Code.GLOBAL_BATCH_CHANGED, before=32, now=2048, factor=64.0, learning_rate_factor=8.0)
FREE: dict[str, Any] = {
    "params": config(2048, amp_dtype="bfloat16").values, "baseline": config(32).values,
    "global_batch_size": 2048, "baseline_global_batch_size": 32, "global_batch_change": CHANGED,
}  # fmt: skip
SMALL = msgspec.structs.replace(FACTS, dataset_samples=2048)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "clear"),
        ({"rounds": 1, "speedup_low": None, "speedup_high": None}, "likely"),
        ({"warnings": (notice(Code.CONFIRMATION_INTERFERENCE, rounds="64×1 in 3 of 4", probes=None),)}, "likely"),
        ({"speedup": 1.02, "speedup_low": 0.97, "speedup_high": 1.07}, "tie"),
        ({"speedup": 0.14, "speedup_low": 0.1, "speedup_high": 0.2}, None),
        ({"undecided": Undecided(config=config(64), gain=1.1, gain_low=0.9, gain_high=1.3, rounds=3)}, "tie"),
        ({"undecided": Undecided(config=config(64), gain=1.1, gain_low=0.9, gain_high=1.3, rounds=1)}, "not known"),
        (
            {
                "undecided": Undecided(
                    config=config(64), gain=2.4, gain_low=2.0, gain_high=2.8, rounds=3, beside_others=True
                )
            },
            "not known",
        ),
        ({"params": recommendation().baseline}, None),
        ({"speedup": None, "speedup_low": None, "speedup_high": None}, None),
    ],
)
def test_an_answer_is_clear_likely_or_a_tie(changes: dict[str, Any], word: str | None) -> None:
    sure = certainty(recommendation(**changes))

    assert (sure.word if sure else None) == word


def test_a_factor_of_single_probes_is_not_written_large() -> None:
    sure, unsure = (recommendation(rounds=rounds) for rounds in (3, 1))
    cards = [card(view(ladder(), best), best) for best in (sure, unsure)]

    assert ['class="factor' in text for text in cards] == [True, False]
    assert phrases.split_headline(unsure) == ("", phrases.headline(unsure))
    assert "one probe of each was compared" in cards[1]


def test_times_are_those_of_today_and_of_the_answer_and_divide_to_the_factor() -> None:
    best = recommendation(samples_per_second=2330.4, baseline_samples_per_second=152.0, global_batch_size=1024)

    assert durations(best, SMALL) == "6.74 → 0.439 s a step · 13.5 → 0.879 s an epoch"
    assert math.isclose(6.74 / 0.439, 15.33, rel_tol=0.005)
    assert durations(best, None) == "6.74 → 0.439 s a step"
    assert durations(recommendation(params=best.baseline, baseline_samples_per_second=None), None) == "439 ms a step"


def test_one_step_per_epoch_is_remarked_wherever_the_answer_is_told() -> None:
    best = recommendation(**FREE)
    study = view(ladder(), best, facts=SMALL)
    said = "1 optimizer step per epoch instead of 64."

    assert steps_per_epoch(best, SMALL) == said
    assert steps_per_epoch(best, msgspec.structs.replace(SMALL, dataset_samples=100)).startswith("Less than one")
    assert said in " ".join(answer_block(best, study).plain.split())
    assert said.replace(".", "") in markdown(study, best)
    assert said in Page(render(study)).text
    assert "an epoch" in durations(best, SMALL) and "for 2,048 samples" in durations(best, SMALL)


def test_a_changed_global_batch_stands_directly_under_a_factor_that_is_not_green() -> None:
    page = render(view(ladder(), recommendation(**FREE), facts=SMALL))

    text = Page(page).text
    assert text.index("15.3") < text.index("The global batch changes from 32 to 2,048.") < text.index("amp_dtype")
    assert 'class="factor plainly"' in page
    assert 'class="factor plainly"' not in render(view(ladder(), recommendation()))
