from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from rich.console import Console
from rich.text import Text

from autotune.core.notices import earlier
from autotune.report.blocks import Check, best_block, check_block, doctor_block, result_block, trials_table
from autotune.report.phrases import confidence
from autotune.study.recommendation import Recommendation, RunnerUp
from tests.reporting import ENVIRONMENT, FACTS, config, failed, ladder, measured, recommendation, request, trial, view


def printed(block: Text) -> str:
    stream = io.StringIO()
    Console(file=stream).print(block, soft_wrap=True)
    return stream.getvalue()


def test_the_result_leads_with_the_speed_up_and_ends_with_a_sentence_to_repeat() -> None:
    lines = printed(result_block(recommendation())).splitlines()

    assert lines[0] == "Recommended   15.3× faster than your baseline (14.9 to 15.8), measured 3 times"
    assert lines[-1] == (
        "ResNet trains at 2,330 samples/s on Example GPU, 15.3× your baseline, with batch 1024 × 1, amp bfloat16, "
        "12 loader workers, channels_last."
    )


def test_the_result_names_memory_waiting_losers_warnings_and_next_steps() -> None:
    text = printed(result_block(recommendation()))

    assert "49 GiB of 80 GiB (39% free) · waiting for data 1%" in text
    assert "Not chosen    512×1 fp16 workers 0 nchw: 2,310 samples/s, 0.9% slower" in text
    assert "Warnings      BatchNorm" in text
    assert 'autotune.load_best("studies/resnet")' in text
    assert "(global batch 1024, unchanged)" in text


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"speedup": 1.02, "speedup_low": 0.98, "speedup_high": 1.06},
            "fastest allowed configuration, not measurably faster than your baseline "
            "(1.02×, 0.98 to 1.06, measured 3 times)",
        ),
        ({"params": recommendation().baseline}, "keep your baseline: no configuration was measurably faster"),
        (
            {"params": recommendation().baseline, "runners_up": ()},
            "keep your baseline: no other configuration ran (measured 3 times)",
        ),
        ({"speedup": None, "baseline_samples_per_second": None}, "your baseline does not run here"),
        ({"baseline_assumed": True}, "15.3× faster than the default (assumed)"),
        ({"speedup_low": None, "speedup_high": None, "rounds": 1}, "15.3× faster than your baseline, measured once"),
        ({"global_batch_size": 2048}, "(global batch 2048, was 1024)"),
        ({"tokens_per_second": 1_000_000.0}, "(1,000,000 tokens/s)"),
    ],
)
def test_the_result_is_honest_about(changes: dict[str, object], expected: str) -> None:
    assert expected in printed(result_block(recommendation(**changes)))


PASSIVE = {**recommendation().params, "num_threads": 2, "omp_wait_policy": "passive"}


@pytest.mark.parametrize("block", [result_block, best_block])
def test_what_has_to_be_set_before_python_starts_is_a_line_to_copy(block: Callable[[Recommendation], Text]) -> None:
    lines = printed(block(recommendation(params=PASSIVE))).splitlines()

    (line,) = [line for line in lines if "export" in line]
    assert "export OMP_WAIT_POLICY=passive " in line
    assert "before Python starts" in line
    assert "export" not in printed(block(recommendation()))


def test_threads_are_told_where_they_are_set_and_left_out_where_torch_decides() -> None:
    assert "2 torch threads · OMP_WAIT_POLICY=passive" in printed(result_block(recommendation(params=PASSIVE)))
    assert "thread" not in printed(result_block(recommendation()))


def test_a_speed_up_within_the_noise_is_not_repeated_in_the_closing_sentence() -> None:
    text = printed(result_block(recommendation(speedup=1.02, speedup_low=0.98, speedup_high=1.06)))

    assert "× your baseline" not in text.splitlines()[-1]


def test_best_lists_every_parameter_by_the_name_that_load_best_returns() -> None:
    lines = printed(best_block(recommendation())).splitlines()

    assert [line.split()[0] for line in lines[:-1]] == list(recommendation().params)
    assert "torch 2.13.0, 2026-11-21" in lines[-1]


def numbers(block: Text) -> list[int]:
    return [int(line.split()[0]) for line in block.plain.splitlines()[1:]]


def test_probes_are_sorted_by_speed_with_failures_last() -> None:
    trials = (trial(0, config(), measured(10)), trial(1, config(8), failed()), trial(2, config(16), measured(20)))

    assert numbers(trials_table(view(trials), sort="speed")) == [2, 0, 1]
    assert numbers(trials_table(view(trials))) == [0, 1, 2]


def test_failed_only_also_lists_what_was_measured_but_may_not_be_used() -> None:
    trials = (
        trial(0, config(), measured(10)),
        trial(1, config(8), failed()),
        trial(2, config(16), measured(20, 79 * 2**30)),
    )

    assert numbers(trials_table(view(trials), failed_only=True)) == [1, 2]
    assert trials_table(view(trials[:1]), failed_only=True).plain == "no probe failed"
    assert trials_table(view()).plain == "no probes yet"


def test_the_table_fits_its_width() -> None:
    lines = trials_table(view(ladder()), width=80).plain.splitlines()

    assert max(map(len, lines)) <= 80


def test_check_marks_inferences_and_names_the_line_that_replaces_them() -> None:
    text = printed(check_block("model.py", FACTS, ENVIRONMENT, request().domains))

    assert "! loss    cross_entropy" in text
    assert "override: loss(model, batch)" in text
    assert "gradients in 161 of 161 parameters" in text
    assert text.endswith("will tune: batch_size (3 values)\n")


def test_check_does_not_tick_what_the_user_should_look_at() -> None:
    unknown = replace(FACTS.findings[0], name="worst batch", text="not known", inferred=False, needs_attention=True)

    assert "! worst batch" in printed(check_block("model.py", replace(FACTS, findings=(unknown,)), ENVIRONMENT, {}))


def test_check_does_not_tick_a_loss_that_is_not_finite() -> None:
    assert FACTS.step is not None
    broken = replace(FACTS, step=replace(FACTS.step, loss=None))

    assert "! one step on" in printed(check_block("model.py", broken, ENVIRONMENT, {}))


def test_what_is_found_and_what_replaces_it_stay_apart_however_long_it_is() -> None:
    long = replace(FACTS.findings[0], text="x" * 90, inferred=True, override="loss(model, batch)")

    text = printed(check_block("model.py", replace(FACTS, findings=(long,)), ENVIRONMENT, {}))

    assert f"{'x' * 90}   override: loss(model, batch)\n" in text


def test_the_next_commands_can_be_pasted_whatever_the_study_is_called() -> None:
    text = printed(result_block(recommendation(study='my studies/[a] :x: "b"')))

    assert "autotune best 'my studies/[a] :x: \"b\"'" in text
    assert 'load_best("my studies/[a] :x: \\"b\\"")' in text


def test_rounds_that_ran_alone_are_not_called_a_single_round() -> None:
    alone = confidence(recommendation(relative_half_width=None, rounds=2))

    assert (alone, confidence(recommendation(relative_half_width=None, rounds=1))) == (
        "low: measured with nothing to compare it with, which has no interval",
        "low: measured in a single round, which has no interval",
    )


def test_doctor_ends_with_whether_the_machine_is_fit() -> None:
    good = Check(name="torch", text="2.13.0")
    advice = Check(name="NVML", text="not found", state="advice", advice="install nvidia-ml-py")
    bad = Check(name="disk", text="full", state="bad", advice="free some space")

    assert printed(doctor_block([good])).endswith("This machine is fit for a search.\n")
    assert printed(doctor_block([good, advice])).endswith("with 1 piece of advice above.\n")
    assert printed(doctor_block([good, advice, bad])).endswith("not fit for a search: 1 of 3 checks failed.\n")
    assert "install nvidia-ml-py" in printed(doctor_block([advice]))


def test_the_worth_of_each_change_is_told_with_what_was_not_measured_apart() -> None:
    best = recommendation()

    apart = printed(result_block(best, view(ladder(), best)))
    together = printed(result_block(best, view(tuple(one for one in ladder() if one.number in (0, 6)), best)))

    assert "Step by step  baseline: 64×16 fp32 workers 0 nchw   152 samples/s\n" in apart
    assert "precision fp32 → bf16                 591 (+368)\n" in apart
    assert "Every step is one change, measured." in apart
    assert "2,330 (+2,180)   together, not one by one" in together
    assert "Step by step" not in printed(result_block(best))


def test_a_layout_that_no_configuration_has_is_not_told_of_those_that_lost() -> None:
    plain, nhwc = config(512, num_workers=4), config(256, channels_last=True)
    lost = [RunnerUp(config=one, samples_per_second=9.0, reason=earlier("slower")) for one in (plain, nhwc)]
    params = config(1024, num_workers=4).values

    alone = printed(result_block(recommendation(params=params, runners_up=tuple(lost[:1]))))
    both = printed(result_block(recommendation(params=params, runners_up=tuple(lost))))

    assert "Not chosen    512×1 workers 4: 9.00 samples/s" in alone
    assert "512×1 workers 4 nchw: 9.00" in both and "256×1 workers 0 nhwc: 9.00" in both
