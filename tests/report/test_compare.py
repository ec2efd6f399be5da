"""Two studies side by side: the ratio of what both measured, and what differs."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from autotune.core import codec
from autotune.core.records import Goal, Value
from autotune.core.results import Trial
from autotune.report.compare import Comparison, Ratio, compare
from autotune.report.compare_text import (
    answer_rows,
    caution,
    comparison_block,
    render_comparison,
    sentence,
    shared_rows,
)
from autotune.study import disk
from tests.commandline import run_here as run
from tests.reporting import (
    ENVIRONMENT,
    FACTS,
    config,
    confirmed,
    failed,
    ladder,
    measured,
    recommendation,
    trial,
    view,
    written,
)  # fmt: skip


def rates(*factors: float) -> tuple[Trial, ...]:
    """Configurations at 1,000 samples/s times a factor each, every one measured once."""
    return tuple(trial(n, config(8 << n), measured(1000 * factor)) for n, factor in enumerate(factors))


THREE = rates(1.0, 0.8, 0.5)


def compared(a: tuple[Trial, ...], b: tuple[Trial, ...], **changes: Any) -> Comparison:
    """A against B, which was asked or placed differently in `changes`."""
    return compare(view(a), view(b, **changes))


def environment(**changes: Any) -> Any:
    return msgspec.structs.replace(ENVIRONMENT, **changes)


def test_the_ratio_of_what_both_measured_is_b_over_a() -> None:
    comparison = compared(THREE, rates(1.5, 1.2, 0.75))

    assert comparison.overall is not None
    assert comparison.overall.estimate == pytest.approx(1.5)
    assert [round(one.ratio, 6) for one in comparison.shared] == [1.5, 1.5, 1.5]


def test_shared_configurations_come_fastest_first_and_others_are_left_out() -> None:
    comparison = compared(rates(1.0, 0.8, 2.0, 3.0), THREE)

    assert [one.config["batch_size"] for one in comparison.shared] == [32, 8, 16]


def test_what_one_of_them_could_not_use_is_not_compared() -> None:
    assert len(compared(THREE, (*THREE[:2], trial(2, config(32), failed()))).shared) == 2


def test_the_interval_is_that_of_the_paired_ratios() -> None:
    overall = compared(rates(1, 1, 1), rates(1.0, 1.01, 1.02)).overall

    # t(2) * s / sqrt(3) of the logarithms of 1.0, 1.01 and 1.02
    logs = [math.log(factor) for factor in (1.0, 1.01, 1.02)]
    mean = sum(logs) / 3
    half = 4.302653 * math.sqrt(sum((log - mean) ** 2 for log in logs) / 2) / math.sqrt(3)
    assert overall is not None and overall.low is not None and overall.high is not None
    assert math.log(overall.high / overall.estimate) == pytest.approx(half, rel=1e-6)
    assert math.log(overall.estimate / overall.low) == pytest.approx(half, rel=1e-6)


def test_one_shared_configuration_has_a_ratio_and_no_interval() -> None:
    assert compared(THREE[:1], rates(2.0)).overall == Ratio(estimate=pytest.approx(2.0))


def test_what_both_confirmed_counts_by_its_confirmations_and_alone() -> None:
    study = confirmed(ladder())

    comparison = compare(study, study)

    assert {one.config["batch_size"] for one in comparison.compared} == {64, 1024}
    assert {round(one.a_samples_per_second, 1) for one in comparison.compared} == {152.0, 2330.4}
    assert "the 2 configurations that both confirmed at 1.00×" in sentence(comparison)


def test_two_paths_to_a_file_of_one_name_are_no_difference() -> None:
    once, elsewhere, other = (view(THREE, target=one) for one in ("model.py", "work/model.py", "work/other.py"))

    assert "target" not in {one.name for one in compare(once, elsewhere).differences}
    assert "target" in {one.name for one in compare(once, other).differences}


def test_of_each_number_is_said_which_measurement_it_is() -> None:
    study = confirmed(ladder())

    once, again = shared_rows(compare(view(ladder()), study)), shared_rows(compare(study, study))

    assert {row[-1] for row in once} == {"in the search", "A in the search, B confirmed"}
    assert {row[-1] for row in again} == {"in the search", "confirmed"}


def test_a_single_probe_confirms_nothing() -> None:
    once, again = (confirmed(ladder(), factors) for factors in ((1.0,), (0.99, 1.01)))

    comparison = compare(once, again)

    assert {row[-1] for row in shared_rows(comparison)} == {"in the search", "A in the search, B confirmed"}
    assert "that both measured at" in sentence(comparison)
    (speed,) = [row[1:] for row in answer_rows(comparison) if row[0] == "speed"]
    assert [cell.rpartition(", ")[2] for cell in speed] == ["by a single probe", "measured twice"]
    assert speed[0].startswith("2,330 samples/s")


def test_a_knob_that_an_older_study_does_not_know_has_its_default() -> None:
    older = tuple(
        msgspec.structs.replace(
            one,
            config=msgspec.structs.replace(
                one.config, values={n: v for n, v in one.config.values.items() if n != "channels_last"}
            ),
        )
        for one in THREE
    )

    assert len(compared(older, THREE).shared) == 3


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"environment": environment(device_name="Other GPU")}, "machine", "differ in hardware"),
        ({"environment": environment(usable_cores=4)}, "machine", "differ in hardware"),
        ({"environment": environment(torch="2.8.0")}, "software", "differ in software"),
        ({"environment": environment(driver=None)}, "software", "differ in software"),
        ({"facts": msgspec.structs.replace(FACTS, name="ViT")}, "training", ""),
        ({"goal": Goal(global_batch=512)}, "question", "differ in what was asked"),
        ({"baseline": config(128)}, "question", "differ in what was asked"),
    ],
)
def test_each_difference_is_told_with_what_the_ratio_then_means(changes: dict[str, Any], kind: Any, said: str) -> None:
    comparison = compared(THREE, THREE, **changes)

    assert {difference.kind for difference in comparison.differences} == {kind}
    assert said in caution(comparison)


def test_a_difference_is_named_with_both_values() -> None:
    comparison = compared(THREE, THREE, environment=environment(torch="2.8.0", driver=None))

    assert "  torch   2.13.0  2.8.0" in comparison_block(comparison).plain
    assert "  driver  580.82  –" in comparison_block(comparison).plain


def test_long_commands_are_cropped_to_the_terminal_where_they_differ() -> None:
    a, b = (f"-- python train.py {'--data /a/long/path ' * 9}--lr {rate}{' --more' * 20}" for rate in (1, 2))
    comparison = compared(THREE, THREE, target=b)
    other = msgspec.structs.replace
    changed = [other(one, a=a) if one.name == "target" else one for one in comparison.differences]
    comparison = other(comparison, differences=tuple(changed))

    lines = comparison_block(comparison, 80).plain.splitlines()

    (shown,) = [line for line in lines if "--lr" in line]
    assert len(shown) <= 80
    assert re.search(r"…\S* *--lr 1.*…\S* *--lr 2", shown)
    assert b in comparison_block(comparison).plain


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 7},
        {"created_at": "2027-01-01T00:00:00+00:00"},
        {"environment": environment(device_uuid="GPU-1", host_bytes=ENVIRONMENT.host_bytes - 2**20)},
    ],
)
def test_what_says_nothing_of_speed_is_no_difference(changes: dict[str, Any]) -> None:
    comparison = compared(THREE, THREE, **changes)

    assert comparison.differences == ()
    assert "Nothing that was recorded differs" in caution(comparison)


def test_two_studies_are_never_said_to_have_been_measured_in_turns() -> None:
    assert "not measured in turns" in caution(compared(THREE, THREE))


@pytest.mark.parametrize(
    ("a", "b", "changes", "told"),
    [
        (THREE, rates(2.0, 1.6, 1.0), {}, "runs the 3 configurations that both measured at 2.00×"),
        (THREE[:1], rates(0.5), {}, "runs the one configuration that both measured at 0.50×"),
        (THREE[:1], THREE[1:], {}, "there is no ratio"),
        (THREE, THREE, {"facts": msgspec.structs.replace(FACTS, parameter_count=7)}, "cannot be compared"),
    ],
)
def test_the_last_sentence_can_be_repeated(a: Any, b: Any, changes: dict[str, Any], told: str) -> None:
    assert told in sentence(compared(a, b, **changes))


def test_terminal_and_page_tell_the_same() -> None:
    comparison = compared(THREE, rates(1.5, 1.2, 0.75), environment=environment(torch="2.8.0"))

    terminal, page = comparison_block(comparison).plain, render_comparison(comparison)

    for text in (sentence(comparison), caution(comparison), "1.50×", "2.8.0", "1,500"):
        assert text in terminal
        assert text in page


@pytest.fixture
def home(tmp_path: Path) -> Path:
    written(tmp_path / "studies" / "before", THREE, recommendation())
    written(tmp_path / "studies" / "after", rates(1.5, 1.2, 0.75), recommendation(samples_per_second=3000.0))
    return tmp_path


def test_the_command_prints_json_writes_a_page_or_ends_with_the_sentence(home: Path) -> None:
    told = run(home, "compare", "before", "after", "--json", "-o", "both.html")
    plain = run(home, "compare", "before", "studies/after")

    assert told.returncode == 0, told.stderr
    overall: dict[str, Value] = json.loads(told.stdout)["overall"]
    assert overall["estimate"] == pytest.approx(1.5)
    assert codec.decode(told.stdout.encode(), Comparison).a.study == "before"
    assert "at 1.50×" in (home / "both.html").read_text()
    assert plain.stdout.splitlines()[-1].startswith("after runs the 3 configurations that both measured at 1.50×")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing",), "does not exist"),
        (("kept",), "kept is not a whole study: it has best.json and no study.json"),
        (("after", "-o", "studies"), "studies cannot be written"),
        (("studies/before",), "before and studies/before are the same study, "),
    ],
)
def test_what_cannot_be_compared_or_written_is_an_error(home: Path, words: tuple[str, ...], said: str) -> None:
    written(home / "studies" / "kept", (), recommendation())
    (home / "studies" / "kept" / disk.STUDY).unlink()

    told = run(home, "compare", "before", *words)

    assert told.returncode == 2
    assert said in told.stderr
