"""The same answer everywhere: page, terminal, Markdown, card, JSON and exports say the same numbers in the same way."""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from rich.console import Console

from autotune.answer.no_answer import nothing_usable
from autotune.core import codec
from autotune.core.records import Purpose
from autotune.export.programs import exported_text
from autotune.export.recipe import recipe
from autotune.knobs.wording import Framework
from autotune.report import phrases
from autotune.report.answer import answer_block
from autotune.report.blocks import trials_table
from autotune.report.card import HEIGHT, WIDTH, card
from autotune.report.change_rows import change_rows
from autotune.report.chart import Chart
from autotune.report.durations import durations
from autotune.report.explain import explain
from autotune.report.explain_text import sentences_of, worth_phrase
from autotune.report.finalists_chart import finalists
from autotune.report.knob_values_chart import knob_values_chart
from autotune.report.losses import losses_phrase
from autotune.report.markdown import markdown
from autotune.report.page import render
from autotune.report.running import STAGES
from autotune.report.step_chart import step
from autotune.report.templates import Served
from autotune.report.terminal import TerminalReporter
from autotune.report.use import usage_tabs
from autotune.study.lock import Lock
from autotune.study.progress import PROGRESS, SearchProgress
from autotune.study.recommendation import Recommendation, read_best
from autotune.study.view import StudyView, facts_of, load_view
from autotune.targets.commands.recommended_command import recommended_command
from autotune.units import format_rate, format_share, format_speedup, rounded
from tests.commandline import run_here
from tests.pages import Page
from tests.reporting import ladder, recommendation, view, written
from tests.serving import ask, serving
from tests.studies import ANSWERED, FAILED

NUMBER = re.compile(r"\d(?:[\d,]*\d)?(?:\.\d+)?")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def spoken(text: str) -> str:
    """The text with single spaces, without the backslashes of Markdown."""
    return " ".join(re.sub(r"\\(.)", r"\1", text).split())


def numbers(text: str) -> set[str]:
    """All numbers, as they are written."""
    return set(NUMBER.findall(text))


@pytest.fixture(params=ANSWERED)
def study(request: pytest.FixtureRequest) -> StudyView:
    return ANSWERED[request.param]()


def answer(study: StudyView) -> Recommendation:
    assert study.recommendation is not None
    return study.recommendation


def test_page_terminal_and_markdown_say_the_same_words(study: StudyView) -> None:
    best = answer(study)
    said = [
        phrases.split_headline(best)[1],
        *phrases.speed_parts(best),
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


def test_every_number_of_terminal_and_markdown_stands_on_the_page(study: StudyView) -> None:
    best = answer(study)
    texts = {
        "terminal": answer_block(best, study, width=None, verbose=True).plain,
        "markdown": markdown(study, best),
    }

    known = numbers(re.sub(r"<[^>]*>", " ", render(study).partition("</head>")[2]))

    for place, text in texts.items():
        assert numbers(text) - known == set(), place


def test_the_page_tells_of_every_setting_what_explain_tells(study: StudyView) -> None:
    best = answer(study)
    page = spoken(Page(render(study)).text)
    worths = explain(study, best).worths

    chart = knob_values_chart(study)

    if not any(one.inside or one.alone or one.estimate for one in worths):
        assert f"Not shown: {chart.title}" in page or f"{chart.title} (" in page
        return
    for one in worths:
        assert worth_phrase(one) in page
        for sentence in sentences_of(one, best):
            for part in spoken(sentence).removeprefix("alone, on your baseline: ").split(", by "):
                assert part in page, worth_phrase(one)


def test_the_displayed_rates_divide_to_the_displayed_factor(study: StudyView) -> None:
    best = answer(study)
    if best.speedup is None or best.baseline_samples_per_second is None or best.params == best.baseline:
        return

    shown = rounded(best.samples_per_second) / rounded(best.baseline_samples_per_second)

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
    assert all(f"{row.today} → {row.tuned}" in text for row in change_rows(best, study))
    assert durations(best, facts_of(best, study)) in text and phrases.memory_phrase(best) in text
    assert "…" not in text


def test_a_card_with_many_changes_says_how_many_are_left_out_and_no_line_covers_another() -> None:
    best = ANSWERED["larger"]().recommendation
    assert best is not None
    params = {**best.params, "num_threads": 2, "omp_wait_policy": "passive", "activation_checkpointing": True}
    many = msgspec.structs.replace(best, params=params)

    root = ElementTree.fromstring(card(ANSWERED["larger"](), many))

    lines = [(float(node.get("y", "")), node.text) for node in root if node.tag.endswith("text")]
    heights = sorted({y for y, _ in lines})
    assert any(str(said).startswith("and ") and str(said).endswith(" changes more") for _, said in lines)
    assert min(below - above for above, below in itertools.pairwise(heights)) >= 30


def test_every_export_stands_on_the_page_whole(study: StudyView) -> None:
    best = answer(study)
    text = Page(render(study)).text

    if study.request.target.startswith("-- "):
        assert [way.name for way in usage_tabs(best, study)] == ["command", "dict", "shell"]
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


def probe_rates(rows: list[list[str]], titles: list[str]) -> dict[str, str]:
    """The rate of each probe, by its number."""
    return {row[0]: row[titles.index("samples/s")] for row in rows}


def on_page(source: str) -> dict[str, str]:
    table = source.partition('id="probe-table"')[2].partition("</table>")[0]
    titles = re.findall(r'<button type="button">(.*?)</button>', table.replace("<wbr>", ""))
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.S) for row in re.findall(r"<tr.*?</tr>", table, re.S)[1:]]
    return probe_rates(rows, titles)


def on_terminal(study: StudyView) -> dict[str, str]:
    titles, *rows = [re.split(r" {2,}", line.strip()) for line in trials_table(study).plain.splitlines()]
    return probe_rates(rows, titles)


def in_json(study: StudyView) -> dict[str, str]:
    home = study.folder.parent
    told = json.loads(run_here(home, "show", str(study.folder.resolve()), "--json").stdout)
    rates = {row["trial"]["number"]: row["samples_per_second"] for row in told}
    return {str(number): "–" if rate is None else format_rate(rate) for number, rate in rates.items()}


@pytest.mark.parametrize("name", [*ANSWERED, *FAILED])
def test_every_probe_has_one_rate_on_page_terminal_and_in_json(name: str, tmp_path: Path) -> None:
    study = (ANSWERED | FAILED)[name]()
    if not study.folder.exists():
        study = written(tmp_path / "studies" / name, study.trials)

    assert on_page(render(study)) == on_terminal(study) == in_json(study) != {}


def test_a_search_without_an_answer_gives_one_reason(tmp_path: Path) -> None:
    study = written(tmp_path / "studies" / "failed", FAILED["failed"]().trials)
    told = nothing_usable(Path("studies/failed"), study.judged)

    shown = run_here(tmp_path, "show", "failed").stdout
    file = run_here(tmp_path, "report", "failed").stdout.strip()
    rows = json.loads(run_here(tmp_path, "show", "failed", "--json").stdout)

    assert told.startswith("None of 6 probes was usable. Most often: out of memory: tried to allocate 2 GiB.")
    assert told in shown
    assert told.replace("`", "") in Page((tmp_path / file).read_text()).text
    assert [row["verdict"]["reason"]["text"] for row in rows] == ["out of memory: tried to allocate 2 GiB"] * 6
    assert "6 finished probes and no best.json. None of its probes was usable." in run_here(tmp_path, "best").stderr


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        """Return that it is one."""
        return True


def live_line(study: StudyView, stage: Purpose) -> str:
    """The last thing that a terminal shows of a search that has made these probes."""
    screen, most = Screen(), 0.0
    with TerminalReporter(Console(file=screen, width=200), budget_seconds=600.0) as reporter:
        for one in study.trials:
            verdict = study.verdict(one)
            reporter.probing(one.number, one.config, one.purpose)
            reporter.probed(one, verdict, best_so_far=verdict.feasible and (verdict.value or 0.0) > most)
            most = max(most, verdict.value or 0.0) if verdict.feasible else most
        reporter.phase(stage)
    return ESCAPES.sub("", screen.getvalue()).rstrip().splitlines()[-1].strip()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.fixture(params=["search", "confirm", "ablation"])
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[StudyView, Purpose]]:
    """A study that is being searched, in that stage; from the ablation on it has an answer, of other numbers."""
    folder, stage = tmp_path / "studies" / "resnet", request.param
    rate = {"samples_per_second": 1900.0, "speedup": 12.5, "speedup_low": 12.1, "speedup_high": 12.9}
    written(folder, ladder(), recommendation(**rate) if stage == "ablation" else None)
    progress = SearchProgress(began_at="2026-11-22T10:00:00+00:00", budget_seconds=600.0, purpose=stage)
    codec.write(folder / PROGRESS, progress)
    lock = Lock(folder)
    yield load_view(folder), stage
    lock.release()


def test_a_running_search_tells_the_same_on_page_terminal_list_and_json(
    running: tuple[StudyView, Purpose], terminal: None
) -> None:
    study, stage = running
    line, page = live_line(study, stage), Page(render(study, served=Served(nonce="n", tag="t"))).text
    with serving(study.folder.parent) as server:
        listed = Page(ask(server, "/")[2]).text

    is_answered = stage == "ablation"
    best = "" if is_answered else " · best 2,330 samples/s (15.3× baseline)"
    factor, other = ("12.5×", "15.3×") if is_answered else ("15.3×", "12.5×")
    assert line.startswith(f"{STAGES[stage]}{best}  ")
    assert f" / 10:00 · {len(study.trials)} probes" in line
    assert f"{factor} resnet · autotune" in page
    assert best.removeprefix(" · ") in page
    assert f"/ 10:00 · {len(study.trials)} probes" in page
    assert other not in page + line + listed
    assert f"running now: {STAGES[stage]}{'' if is_answered else f', best so far {factor}'}" in listed
    assert on_page(render(study)) == on_terminal(study) == in_json(study)
    if is_answered:
        assert json.loads(run_here(study.folder.parents[1], "best", "--json").stdout)["speedup"] == 12.5
