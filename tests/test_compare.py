"""Two studies side by side: ratios of what both measured, and plain words about what follows from them and what not."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from autotune import codec
from autotune import folder as disk
from autotune.records import Goal, Value
from autotune.report.compare import Comparison, compare
from autotune.report.side_by_side import cautions, comparison_block, render_comparison, sentence
from autotune.results import Trial
from tests.commandline import run
from tests.reporting import ENVIRONMENT, FACTS, config, failed, measured, recommendation, trial, view, written


def rates(factor: float = 1.0, repeats: int = 1, noise: float = 0.0) -> tuple[Trial, ...]:
    """Three configurations at 500, 800 and 1,000 samples/s times `factor`, each measured some times."""
    found = []
    for repeat in range(repeats):
        sign = 1 if repeat % 2 else -1
        for batch, rate in ((64, 500), (128, 800), (256, 1000)):
            found.append(trial(len(found), config(batch), measured(rate * factor * math.exp(sign * noise))))
    return tuple(found)


def compared(a: tuple[Trial, ...], b: tuple[Trial, ...], **changes: Any) -> Comparison:
    """A against B, which was asked or placed differently in `changes`."""
    return compare(view(a), view(b, **changes))


def environment(**changes: Any) -> Any:
    return msgspec.structs.replace(ENVIRONMENT, **changes)


def test_the_ratio_of_what_both_measured_is_b_over_a() -> None:
    comparison = compared(rates(), rates(1.5))

    assert comparison.overall is not None
    assert comparison.overall.estimate == pytest.approx(1.5)
    assert [round(one.ratio.estimate, 6) for one in comparison.shared] == [1.5, 1.5, 1.5]


def test_shared_configurations_come_fastest_first_and_others_are_left_out() -> None:
    more = (trial(9, config(512), measured(2000)),)

    comparison = compared((*rates(), *more), rates())

    assert [one.config["batch_size"] for one in comparison.shared] == [256, 128, 64]


def test_the_interval_holds_the_truth_when_probes_scatter() -> None:
    comparison = compared(rates(repeats=4, noise=0.05), rates(1.2, repeats=4, noise=0.05))

    for one in comparison.shared:
        assert one.ratio.low is not None and one.ratio.high is not None
        assert one.ratio.low < 1.2 < one.ratio.high
        # sqrt(2) * t(18) * s / sqrt(4), s pooled over six groups of four at exp(+-0.05)
        half = 2.1009 * math.sqrt(6 * 4 * 0.05**2 / 18) * math.sqrt(2 / 4)
        assert math.log(one.ratio.high / one.ratio.estimate) == pytest.approx(half, rel=1e-3)


def test_without_repeats_the_interval_is_the_windows_own_and_that_is_said() -> None:
    comparison = compared(rates(), rates())

    ratio = comparison.shared[0].ratio
    assert ratio.high is not None
    assert math.log(ratio.high) == pytest.approx(0.012 * math.sqrt(2), rel=1e-6)
    assert any("Nothing that both measured was repeated" in said for said in cautions(comparison))


def test_a_knob_that_an_older_study_does_not_know_has_its_default() -> None:
    older = tuple(
        msgspec.structs.replace(
            one,
            config=msgspec.structs.replace(
                one.config, values={n: v for n, v in one.config.values.items() if n != "channels_last"}
            ),
        )
        for one in rates()
    )

    assert len(compared(older, rates()).shared) == 3


def test_what_ran_in_one_and_not_in_the_other_is_named() -> None:
    comparison = compared(
        (*rates(), trial(3, config(512), measured(1100))), (*rates(), trial(3, config(512), failed()))
    )

    (fate,) = comparison.fates
    assert (fate.config["batch_size"], fate.a, fate.b) == (512, "usable", "out of memory")
    assert len(comparison.shared) == 3


def test_the_recommendation_of_one_is_found_in_the_other() -> None:
    fast, slow = config(256).values, config(64).values
    a = view(rates(), recommendation(params=slow, samples_per_second=500.0))
    b = view(rates(), recommendation(params=fast, samples_per_second=1000.0))

    comparison = compare(a, b)

    assert comparison.a_choice_on_b == pytest.approx(0.5)
    assert comparison.b_choice_on_a == pytest.approx(2.0)


def test_the_best_values_are_compared_with_the_spread_of_both() -> None:
    a = view(rates(), recommendation(samples_per_second=1000.0, relative_half_width=0.03))
    b = view(rates(), recommendation(samples_per_second=1100.0, relative_half_width=0.04))

    best = compare(a, b).best

    assert best is not None and best.high is not None
    assert best.estimate == pytest.approx(1.1)
    assert math.log(best.high / best.estimate) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        (
            {"environment": environment(device_name="Other GPU")},
            "machine",
            "compares the machines, not the configurations",
        ),
        ({"environment": environment(usable_cores=4)}, "machine", "usable cores 16 and 4"),
        ({"environment": environment(torch="2.8.0")}, "software", "torch 2.13.0 and 2.8.0"),
        ({"environment": environment(driver=None)}, "software", "driver 580.82 and –"),
        ({"facts": msgspec.structs.replace(FACTS, name="ViT")}, "training", "say nothing about the other"),
        ({"goal": Goal(global_batch=512)}, "question", "asked different things (global batch)"),
        ({"baseline": config(128)}, "question", "asked different things (baseline)"),
    ],
)
def test_each_difference_is_told_with_what_cannot_be_concluded(changes: dict[str, Any], kind: Any, said: str) -> None:
    comparison = compared(rates(), rates(), **changes)

    assert {difference.kind for difference in comparison.differences} == {kind}
    assert any(said in caution for caution in cautions(comparison))


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 7},
        {"created_at": "2027-01-01T00:00:00+00:00"},
        {"environment": environment(device_uuid="GPU-1", host_bytes=ENVIRONMENT.host_bytes - 2**20)},
    ],
)
def test_what_says_nothing_of_speed_is_no_difference(changes: dict[str, Any]) -> None:
    comparison = compared(rates(), rates(), **changes)

    assert comparison.differences == ()
    assert any("Nothing that was recorded differs" in caution for caution in cautions(comparison))


def test_the_best_of_two_different_trainings_has_no_ratio() -> None:
    other = view(rates(), recommendation(), facts=msgspec.structs.replace(FACTS, parameter_count=7))

    assert compare(view(rates(), recommendation()), other).best is None


def test_two_studies_are_never_said_to_have_been_measured_in_turns() -> None:
    assert any("not measured in turns" in caution for caution in cautions(compared(rates(), rates())))


@pytest.mark.parametrize(
    ("a", "b", "changes", "told"),
    [
        (rates(), rates(2.0), {}, "runs the 3 configurations that both measured at 2.00×"),
        (rates()[:1], rates(0.5)[:1], {}, "runs the one configuration that both measured at 0.50×"),
        (rates()[:1], rates()[1:], {}, "there is no ratio to tell"),
        (rates(), rates(), {"facts": msgspec.structs.replace(FACTS, name="ViT")}, "cannot be compared"),
    ],
)
def test_the_last_sentence_can_be_repeated(a: Any, b: Any, changes: dict[str, Any], told: str) -> None:
    assert told in sentence(compared(a, b, **changes))


def test_terminal_and_page_tell_the_same() -> None:
    comparison = compared(
        rates(), (*rates(1.5), trial(9, config(512), failed())), environment=environment(torch="2.8.0")
    )

    terminal, page = comparison_block(comparison, every=True).plain, render_comparison(comparison)

    for text in (sentence(comparison), "1.50×", "2.8.0", "1,500"):
        assert text in terminal
        assert text in page


def test_of_many_shared_configurations_a_terminal_shows_the_first_and_counts_the_rest() -> None:
    many = tuple(trial(n, config(n + 1), measured(1000 + n)) for n in range(25))

    comparison = compared(many, many)

    assert "and 5 slower ones" in comparison_block(comparison, every=False).plain
    assert "slower ones" not in comparison_block(comparison, every=True).plain


@pytest.fixture
def home(tmp_path: Path) -> Path:
    written(tmp_path / "studies" / "before", rates(), recommendation())
    written(tmp_path / "studies" / "after", rates(1.5), recommendation(samples_per_second=3000.0))
    return tmp_path


def test_the_command_prints_json_and_writes_a_page(home: Path) -> None:
    told = run(home, "compare", "before", "after", "--json", "-o", "pages/both.html")

    assert told.returncode == 0, told.stderr
    overall: dict[str, Value] = json.loads(told.stdout)["overall"]
    assert overall["estimate"] == pytest.approx(1.5)
    assert codec.decode(told.stdout.encode(), Comparison).a.study == "before"
    assert "at 1.50×" in (home / "pages" / "both.html").read_text()


def test_the_command_ends_with_the_sentence(home: Path) -> None:
    told = run(home, "compare", "before", "studies/after")

    assert told.stdout.splitlines()[-1].startswith("after runs the 3 configurations that both measured at 1.50×")


@pytest.mark.parametrize(("other", "said"), [("nothing", "does not exist"), ("kept", "holds no study.json")])
def test_a_study_that_is_not_whole_cannot_be_compared(home: Path, other: str, said: str) -> None:
    written(home / "studies" / "kept", (), recommendation())
    (home / "studies" / "kept" / disk.STUDY).unlink()

    told = run(home, "compare", "before", other)

    assert told.returncode == 2
    assert said in told.stderr


def test_a_page_that_cannot_be_written_is_an_error_that_names_the_option(home: Path) -> None:
    told = run(home, "compare", "before", "after", "-o", "studies")

    assert told.returncode == 2
    assert "studies cannot be written" in told.stderr
    assert "-o" in told.stderr
