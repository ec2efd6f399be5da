from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from autotune.core.interference_readings import GpuUse, HostInterference
from autotune.core.results import Outcome
from autotune.profile.stage import slow_lines
from autotune.report import phrases
from autotune.report.answer import answer_block
from autotune.report.blocks import trials_table
from autotune.report.card import card
from autotune.report.chart import Chart
from autotune.report.charts import CHARTS
from autotune.report.compare import compare
from autotune.report.compare_text import comparison_block
from autotune.report.expected import probe_block
from autotune.report.markdown import markdown
from autotune.report.page import render
from autotune.report.probes import table
from autotune.report.templates import Served
from autotune.report.use import usage_tabs
from autotune.study.recommendation import Achieved
from autotune.study.view import load_view
from tests.pages import Page
from tests.profiling import readings, slow
from tests.reporting import (
    ENVIRONMENT,
    FACTS,
    config,
    confirmed,
    failed,
    ladder,
    measured,
    paired,
    recommendation,
    request,
    trial,
    view,
    whole,
    written,
)  # fmt: skip
from tests.studies import ANSWERED
from tests.worlds import earlier


def test_the_page_answers_in_the_order_of_the_questions() -> None:
    page = Page(render(view(whole(), recommendation())))

    assert page.open == []
    ids = [value for tag, name, value in page.attributes if tag in ("header", "section", "h3") and name == "id"]
    assert ids == [
        "top", "answer", "step", "settings", "throughput", "history", "probes", "environment",
    ]  # fmt: skip
    assert page.text.index("15.3×") < page.text.index("2,330 samples/s") < page.text.index("Every probe")
    assert 'autotune.load_best("studies/resnet")' in page.text
    assert "Precision check (no paired runs were made)." in page.text


def test_every_probe_has_a_row_and_every_chart_its_numbers() -> None:
    source = render(view(whole(), recommendation()))

    study = view(whole(), recommendation())
    drawn = [chart for draw in CHARTS.values() if isinstance(chart := draw(study), Chart)]
    assert source.count("data-outcome=") == len(whole())
    assert source.count('<details class="numbers">') == len(drawn)


def test_rates_on_the_page_are_those_of_best_json_and_of_the_terminal() -> None:
    study = confirmed(ladder())
    best = study.recommendation
    assert best is not None
    page = Page(render(study)).text

    rate = phrases.rate_phrase(best)
    assert rate in answer_block(best).plain
    assert rate in page
    assert page.count("2,330") >= 3  # the answer, the curve's table and the waterfall's
    assert phrases.memory_phrase(best) in page
    for line in trials_table(study).plain.splitlines()[1:]:
        assert all(word in page for word in line.split()[1:8]), line


def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    page = Page(render(written(tmp_path / "study", ladder(), recommendation()), prefix="study/"))

    assert {"img", "iframe", "object", "base"}.isdisjoint(page.tags)
    references = [value for _, name, value in page.attributes if name in ("href", "src")]
    assert references == ["data:,", *(f"study/probes/{number:04d}/log.txt" for number in range(len(ladder())))]
    assert not [name for _, name, _ in page.attributes if name == "style" or name.startswith("on")]


def test_a_log_that_was_not_kept_is_not_linked() -> None:
    page = Page(render(view(ladder(), recommendation())))

    assert "a" not in page.tags
    assert page.text.count("Logs were not kept.") == 1


def test_the_page_allows_exactly_its_own_style_and_script() -> None:
    source = render(view(ladder()))

    policy = source.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    for tag in ("style", "script"):
        content = source.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src &#39;sha256-{digest}&#39;" in policy
    assert policy.startswith("default-src &#39;none&#39;")


def test_a_served_page_leaves_the_policy_to_the_server() -> None:
    source = render(view(ladder()), served=Served(nonce="abc", tag="t"))

    assert '<style nonce="abc">' in source
    assert '<script nonce="abc">' in source
    assert "Content-Security-Policy" not in source


def test_a_hundred_probes_fit_into_three_hundred_kilobytes() -> None:
    assert len(render(view(whole(100), recommendation())).encode()) < 300_000


def test_a_long_error_is_cut_and_leaves_the_rest_to_the_log() -> None:
    endless = tuple(trial(number, config(), failed(Outcome.CRASHED, "x" * 10_000_000)) for number in range(2))

    assert len(render(view(endless))) < 100_000


def test_knobs_that_no_probe_touched_have_no_column() -> None:
    plain = (trial(0, config(), measured(9)),)
    loaded = (*plain, trial(1, config(num_workers=2), measured(9)))

    titles = [re.findall(r'<button type="button">(.*?)</button>', render(view(one))) for one in (plain, loaded)]

    assert "workers" not in titles[0]
    assert "workers" in titles[1]


def test_a_knob_that_is_the_same_in_all_probes_is_told_once() -> None:
    source = render(view(tuple(trial(number, config(8 << number, num_workers=2), measured(9)) for number in range(2))))

    assert '<button type="button">workers</button>' not in source
    assert "The same in all: workers 2." in source


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)></title></svg>{{ 7 * 7 }}"


def test_hostile_text_stays_text() -> None:
    facts = msgspec.structs.replace(FACTS, name=HOSTILE)
    machine = msgspec.structs.replace(ENVIRONMENT, device_name=HOSTILE, platform=HOSTILE)
    trials = (
        trial(0, config(), measured(100), "baseline"),
        trial(1, config(128, amp_dtype=HOSTILE), measured(90)),
        trial(2, config(256, num_workers=HOSTILE), failed(Outcome.USER_ERROR, HOSTILE)),
    )
    best = recommendation(
        model=HOSTILE, study=HOSTILE, stability=earlier(HOSTILE), measured_at=HOSTILE,
        reasons=(earlier(HOSTILE),), warnings=(earlier(HOSTILE),),
        params={**config().values, "amp_dtype": HOSTILE, "num_workers": HOSTILE, HOSTILE: HOSTILE}, environment=machine,
    )  # fmt: skip
    study = view(trials, best, facts=facts, environment=machine, target=HOSTILE, created_at=HOSTILE)
    harmless = Page(render(view(whole(), recommendation()), served=Served(nonce="n", tag="t")))

    for hostile in (study, dataclasses.replace(study, folder=Path("studies", HOSTILE.replace("/", "")))):
        page = Page(render(hostile, served=Served(nonce="n", tag="t")))

        assert page.tags.count("script") == 2  # of the page, and what keeps it live
        assert "img" not in page.tags
        assert "onerror" not in {name for _, name, _ in page.attributes}
        assert {name for _, name, _ in page.attributes} <= {name for _, name, _ in harmless.attributes}
        assert HOSTILE in page.text
        assert "49" not in page.text.replace("49 GiB", "")


def test_without_a_recommendation_the_page_says_why() -> None:
    exhausted = tuple(trial(number, config(64 << number), failed()) for number in range(3))

    assert "Still measuring." in Page(render(view(ladder(), running=True))).text
    assert "None of 3 probes was usable. Most often: out of memory: tried to all" in Page(render(view(exhausted))).text
    assert "No probe has finished." in Page(render(view())).text
    assert "before its finalists were confirmed" in Page(render(view((trial(0, config(), measured(9)),)))).text


def test_commands_in_a_sentence_are_set_as_code_and_what_stands_in_them_is_no_markup() -> None:
    exhausted = view(tuple(trial(number, config(64 << number), failed()) for number in range(3)))
    hostile = recommendation(warnings=(earlier("Keep `total += <b>loss</b>`."),))

    assert '<code>autotune show studies/resnet <span class="whole">--failed</span></code>' in render(exhausted)
    assert "<code>total += &lt;b&gt;loss&lt;/b&gt;</code>" in render(view(ladder(), hostile))


def test_a_result_does_not_repeat_its_purpose() -> None:
    again = trial(40, config(64), measured(100), "ablation")

    shown = table(view((*ladder()[:1], again))).rows

    assert [(row.purpose, row.outcome) for row in shown] == [("baseline", "ok"), ("ablation", "ok")]


def test_a_program_is_not_broken_into_lines_and_a_command_is() -> None:
    kinds = {way.name: way.is_program for way in usage_tabs(recommendation(), view(ladder()))}

    assert kinds["autotune"] and kinds["torch"]
    assert not kinds["dict"] and not kinds["shell"]
    assert 'class="way code" id="use-torch"' in render(view(ladder(), recommendation()))


@pytest.mark.parametrize("own", ["torch", "lightning", "hf"])
def test_the_shell_is_given_the_export_for_the_own_framework(own: str) -> None:
    study = dataclasses.replace(view(ladder()), request=request(facts=msgspec.structs.replace(FACTS, framework=own)))

    shell = {way.name: way.text for way in usage_tabs(recommendation(), study)}["shell"]

    assert shell.splitlines()[0].endswith(f" --to {own}")


def test_ranks_are_not_offered_a_loop_of_one_process() -> None:
    facts = msgspec.structs.replace(FACTS, ranks=2)
    of_ranks = dataclasses.replace(view(ladder()), request=request(facts=facts))

    first = usage_tabs(recommendation(facts=facts), of_ranks)[0]

    assert (first.name, "init_process_group" in first.text) == ("torch", True)


def test_beside_a_number_that_is_no_speed_up_no_interval_of_one_is_drawn() -> None:
    nothing: dict[str, Any] = {"baseline_score": None, "gain": None, "gain_low": None, "gain_high": None}
    saved = Achieved(unit="bytes", score=1.0, **nothing, headline=earlier("26% less memory than your baseline"))
    faster, smaller = (render(view(ladder(), recommendation(achieved=it))) for it in (None, saved))

    assert "95% interval of the speed-up" in faster and "95% interval of the speed-up" not in smaller
    assert '<span class="factor">26%</span>' in smaller


@pytest.mark.parametrize("speedup", [1.01, None])
def test_no_factor_in_large_type_without_a_speed_up_beyond_the_noise(speedup: float | None) -> None:
    best = recommendation(speedup=speedup, speedup_low=speedup and 0.97, speedup_high=speedup and 1.05)

    page = Page(render(view(ladder(), best)))

    assert ("span", "class", "factor") not in page.attributes
    assert ("span", "class", "state") in page.attributes


def test_what_must_be_set_before_python_starts_is_there_to_copy() -> None:
    params = {**recommendation().params, "omp_wait_policy": "passive"}

    asked = Page(render(view(ladder(), recommendation(params=params)))).text
    plain = Page(render(view(ladder(), recommendation()))).text

    assert "export OMP_WAIT_POLICY=passive" in asked
    assert "export OMP_WAIT_POLICY" not in plain and "before Python starts" not in plain


def test_when_the_study_was_begun_is_told_as_people_write_it() -> None:
    begun = {"2026-11-21T17:25:35+01:00": "2026-11-21 16:25 UTC", "<yesterday>": "<yesterday>"}

    for text, said in begun.items():
        assert said in Page(render(view(created_at=text))).text


def test_where_everything_failed_the_traceback_is_shown() -> None:
    failure = msgspec.structs.replace(failed().failure, traceback="Traceback\n  File model.py\nValueError: no")
    lost = msgspec.structs.replace(failed(Outcome.USER_ERROR), failure=failure)

    everything = Page(render(view((trial(0, config(), lost, "baseline"),)))).text
    something = Page(render(view((trial(0, config(), lost), trial(1, config(), measured(9)))))).text

    assert "ValueError: no" in everything
    assert "ValueError: no" not in something


def test_what_others_did_meanwhile_stands_behind_the_row_of_each_probe() -> None:
    waits = HostInterference(run_queue_wait_share=0.2, foreign_cores=1.5)
    use = GpuUse(
        readings=9, utilization=0.8, used_bytes=2**30, power_watts=512, sm_clock_mhz=(980, 1980),
        throttle_reasons=("power cap",), foreign_processes=(1, 2),
    )  # fmt: skip
    result = msgspec.structs.replace(measured(90, interference=waits), gpu=use, isolation="fork")

    page = Page(render(view((trial(0, config(), result),)))).text

    assert "waited for a core: 20% of the window, others kept 1.5 cores busy" in page
    assert "started: forked" in page
    assert (
        "GPU: 80% busy · 1 GiB used · 512 W · SM clock 980–1980 MHz · slowed by power cap · shared with 2 others"
        in page
    )


@pytest.mark.parametrize(("faults", "is_told"), [(8_192_000, True), (800, False)])
def test_what_page_faults_took_of_a_probe_is_told_where_it_is_something(faults: int, is_told: bool) -> None:
    page = Page(render(view((trial(0, config(), measured(256, page_faults=faults)),)))).text

    assert ("page faults: 1,024,000 a step, about 26% of it" in page) is is_told


def test_the_raw_trials_are_one_command_away_where_the_study_keeps_its_database(tmp_path: Path) -> None:
    without = render(written(tmp_path / "a study", ladder()))
    (tmp_path / "a study" / "study.db").touch()

    page = Page(render(load_view(tmp_path / "a study"))).text

    assert "optuna-dashboard" not in without
    assert f"optuna-dashboard 'sqlite:///{tmp_path}/a study/study.db'" in page
    assert "ignores constraints" in page


def test_what_turns_the_direction_of_text_or_never_ends_does_not_reach_the_page() -> None:
    turned = "max \u202e21\x1b[31m"
    facts = msgspec.structs.replace(FACTS, name=turned)
    best = recommendation(model=turned, warnings=(earlier("W" * 10_000), earlier(turned)), reasons=(earlier(turned),))

    source = render(dataclasses.replace(view(ladder(), best, facts=facts), folder=Path("studies", turned)))

    assert "\u202e" not in source and "\x1b" not in source
    assert "W" * 2_000 not in source
    assert "<bdi>max  21</bdi>" in source


def test_a_verdict_is_told_without_a_code_before_it() -> None:
    study = dataclasses.replace(view(ladder(), recommendation()), precision_checks=(paired(),))

    assert "ok:" not in Page(render(study)).text
    assert "bf16 matches fp32" in Page(render(study)).text


def test_a_knob_that_a_target_does_not_have_is_told_nowhere() -> None:
    study = ANSWERED["no images"]()
    best = study.recommendation
    assert best is not None

    texts = {
        "page": render(study).partition("</head>")[2],
        "terminal": answer_block(best, study, width=None, verbose=True).plain,
        "markdown": markdown(study, best),
        "card": card(study, best),
        "probe": "".join(probe_block(study, trial).plain for trial in study.trials),
        "running": render(dataclasses.replace(study, running=True, recommendation=None)).partition("</head>")[2],
        "comparison": comparison_block(compare(study, study)).plain,
    }

    for place, text in texts.items():
        assert [word for word in ("nchw", "nhwc", "layout", "loader workers", "fp32 workers") if word in text] == [], (
            place
        )


def test_no_line_ends_within_an_option() -> None:
    study = view(ladder(), recommendation())

    assert '<span class="whole">--exact</span>' in render(study)
    assert "(--fix batch=64, or --exact)" in Page(render(study)).text


def test_what_a_command_cannot_say_is_one_sentence_about_all_of_it() -> None:
    study = ANSWERED["command"]()
    assert study.recommendation is not None

    assert usage_tabs(study.recommendation, study)[0].note.endswith("channels_last nhwc: set them in the script.")


def test_what_tuning_cannot_mend_stands_beside_the_recommendation_where_the_study_knows_it() -> None:
    hostile = slow(share=0.3, place="<b>model.py:21 in loss", code="<i>scores.tolist()")
    told = slow_lines(readings(hostile), 0.0)

    source = render(view(ladder(), recommendation(slow_lines=told)))
    page = " ".join(Page(source).text.split())

    assert "What tuning cannot mend" in page
    assert "<b>model.py:21 in loss: 30.0 ms a step (30%), .tolist() reads a tensor on the host, once a step." in page
    assert "<i>scores.tolist()" in page
    assert "Instead: keep a tensor (detach), read it now and then." in page
    assert "<i>" not in source
    assert "What tuning cannot mend" not in render(view(ladder(), recommendation()))
