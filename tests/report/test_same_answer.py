"""The same answer everywhere: page, terminal, Markdown, card, JSON and exports say the same numbers in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from autotune.core import codec
from autotune.core.codes import Code
from autotune.core.notices import notice
from autotune.export.programs import exported_text
from autotune.export.recipe import recipe
from autotune.knobs.wording import Framework
from autotune.report import phrases
from autotune.report.answer import answer_block
from autotune.report.card import HEIGHT, WIDTH, card
from autotune.report.change_rows import change_rows
from autotune.report.chart import Chart
from autotune.report.durations import durations
from autotune.report.finalists import finalists
from autotune.report.losses import losses_phrase
from autotune.report.markdown import markdown
from autotune.report.page import render
from autotune.report.step import step
from autotune.report.use import ways
from autotune.study.recommendation import Recommendation, Undecided, read_best
from autotune.study.view import StudyView, facts_of, load_view
from autotune.targets.commands.answer import recommended_command
from autotune.units import format_rate, format_share, format_speedup, rounded
from tests.pages import Page
from tests.reporting import GIB, config, confirmed, ladder, recommendation, view

RECORDED = Path(__file__).parents[2] / "studies"


def kept() -> StudyView:
    base = recommendation().baseline
    same: dict[str, Any] = {"params": base, "speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0}
    return view(ladder(), recommendation(samples_per_second=152.0, changes=(), **same))


def tie() -> StudyView:
    rival = Undecided(config=config(1024), gain=1.08, gain_low=0.95, gain_high=1.22, rounds=3)
    return view(ladder(), recommendation(undecided=rival, speedup=1.08, speedup_low=0.95, speedup_high=1.22))


def limited() -> StudyView:
    return view(ladder(), recommendation(peak_bytes=75 * GIB, headroom_fraction=0.0625))


def larger() -> StudyView:
    changed = notice(Code.GLOBAL_BATCH_CHANGED, before=64, now=1024, factor=16.0, learning_rate_factor=4.0)
    return view(ladder(), recommendation(baseline_global_batch_size=64, global_batch_change=changed))


def command() -> StudyView:
    target = "-- python train.py --batch-size {batch_size=64}"
    return view(ladder(), recommendation(target=target), target=target)


STUDIES: dict[str, Callable[[], StudyView]] = {
    **{path.parent.name: partial(load_view, path.parent) for path in sorted(RECORDED.glob("*/study.json"))},
    "rounds": lambda: confirmed(ladder()), "kept": kept, "tie": tie, "limited": limited, "larger": larger,
    "command": command,
}  # fmt: skip


def spoken(text: str) -> str:
    """The text with single spaces, without the backslashes of Markdown."""
    return " ".join(re.sub(r"\\(.)", r"\1", text).split())


@pytest.fixture(params=STUDIES)
def study(request: pytest.FixtureRequest) -> StudyView:
    return STUDIES[request.param]()


def answer(study: StudyView) -> Recommendation:
    assert study.recommendation is not None
    return study.recommendation


def test_page_terminal_and_markdown_say_the_same_words(study: StudyView) -> None:
    best = answer(study)
    said = [
        phrases.split_headline(best)[1],
        phrases.rate_phrase(best),
        phrases.memory_phrase(best),
        losses_phrase(best),
        durations(best, facts_of(best, study)),
        *(row.worth for row in change_rows(best, study)),
    ]

    texts = {
        "page": spoken(Page(render(study)).text),
        "terminal": spoken(answer_block(best, study, width=None, verbose=True).plain),
        "markdown": spoken(markdown(study, best)),
    }

    for place, text in texts.items():
        assert [words for words in said if spoken(words).lower() not in text.lower()] == [], place


def test_the_displayed_rates_divide_to_the_displayed_factor(study: StudyView) -> None:
    best = answer(study)
    if best.speedup is None or best.baseline_samples_per_second is None or best.params == best.baseline:
        return

    shown = rounded(best.samples_per_second) / rounded(best.baseline_samples_per_second)

    if study.folder.parent == RECORDED:
        assert shown == pytest.approx(best.speedup, rel=0.01)
    text = spoken(Page(render(study)).text)
    assert format_rate(best.samples_per_second) in text
    assert format_rate(best.baseline_samples_per_second) in text


def test_the_run_off_is_that_of_the_answer(study: StudyView) -> None:
    best, chart = answer(study), finalists(study)
    if not isinstance(chart, Chart) or best.speedup is None:
        return

    row = next(row for row in chart.table.rows if "recommended" in row[0])

    assert row[1] == format_rate(best.samples_per_second)
    assert row[3] == f"{format_speedup(best.speedup)}×"


def test_the_card_tells_factor_changes_and_rate(study: StudyView) -> None:
    best = answer(study)

    root = ElementTree.fromstring(card(study, best))

    text = spoken(" ".join(root.itertext()))
    assert (root.get("width"), root.get("height")) == (str(WIDTH), str(HEIGHT)) == ("1200", "630")
    assert phrases.split_headline(best)[0] in text
    assert phrases.rate_phrase(best) in text
    assert all(f"{row.today} → {row.tuned}" in text for row in change_rows(best, study)[:5])


def test_every_export_stands_on_the_page_whole(study: StudyView) -> None:
    best = answer(study)
    text = Page(render(study)).text

    if study.request.target.startswith("-- "):
        assert [way.name for way in ways(best, study)] == ["command", "dict", "shell"]
        command = recommended_command(best.target, best.params, best.baseline)
        assert command is not None and command.text in text
        return
    whole = msgspec.structs.replace(best, facts=facts_of(best, study))
    for framework in Framework:
        assert exported_text(framework, recipe(whole, framework)).strip() in text, framework
    remark = exported_text(Framework.TORCH, recipe(whole, Framework.TORCH))
    assert format_rate(best.samples_per_second) in remark
    if best.speedup is not None and best.params != best.baseline:
        assert f"{format_speedup(best.speedup)}×" in remark


def test_best_json_holds_what_is_told(study: StudyView, tmp_path: Path) -> None:
    best = answer(study)
    codec.write(tmp_path / "best.json", best)

    again = read_best(tmp_path / "best.json")

    assert phrases.headline(again) == phrases.headline(best)
    assert phrases.rate_phrase(again) == phrases.rate_phrase(best)


def test_hostile_names_are_no_markup_of_a_comment() -> None:
    best = recommendation(model="a|b <img src=x> [x](http://x) `c` @team #1\n# no")

    head = markdown(view(ladder(), best), best).splitlines()[0]

    assert "a\\|b \\<img src=x\\> \\[x\\](http://x) \\`c\\` \\@team" in head


def test_waiting_for_data_has_one_value(study: StudyView) -> None:
    chart, best = step(study), answer(study)

    assert isinstance(chart, Chart)
    assert chart.table.rows[-1][3] == format_share(best.data_wait_share)
    assert f"waiting for data {format_share(best.data_wait_share)}" in spoken(Page(render(study)).text)
