"""The verdict says what a result is worth, and why not."""

import math

import pytest
from msgspec.structs import replace

from autotune.core.records import Goal
from autotune.core.results import MemoryPeak, Outcome
from autotune.objectives.verdict import CONSTRAINTS, MOST_LOSS_GROWTH, WORDS, instability, judge, judge_among
from tests.worlds import GIB, failed, measured, study_request, trial

REQUEST = study_request()  # 16 GiB, of which 1 GiB is kept free
FAILURES = [outcome for outcome in Outcome if outcome is not Outcome.OK]


def test_a_good_probe_is_worth_its_samples_per_second():
    verdict = judge(measured(123.0), REQUEST)

    assert verdict.value == pytest.approx(123.0)
    assert verdict.feasible
    assert verdict.why == ""


@pytest.mark.parametrize("outcome", FAILURES)
def test_a_failure_has_no_value_one_violated_constraint_and_a_reason(outcome):
    verdict = judge(failed(outcome, "its own words"), REQUEST)

    assert verdict.value is None
    assert not verdict.feasible
    assert sum(violation > 0 for violation in verdict.constraints.values()) == 1
    assert verdict.why == f"{WORDS[outcome]}: its own words"


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ("ended with exit status 0 after 626 optimizer steps, before", "ended too early"),
        ("ended its training before", "ended too early"),
        ("ended with exit status 1 after 626 optimizer steps, before", "error in your code"),
    ],
)
def test_a_training_that_ends_well_and_too_early_is_no_error(status, word):
    failure = f"train.py {status} it was measured."

    assert judge(failed(Outcome.USER_ERROR, failure), REQUEST).why == f"{word}: {failure}"


@pytest.mark.parametrize("result", [measured(), measured(peak=20 * GIB), *map(failed, FAILURES)])
def test_every_verdict_has_the_same_constraints_in_the_same_order(result):
    assert tuple(judge(result, REQUEST).constraints) == CONSTRAINTS


@pytest.mark.parametrize(
    ("outcome", "constraint"),
    [
        (Outcome.OOM_DEVICE, "memory"),
        (Outcome.OOM_HOST, "memory"),
        (Outcome.OOM_SHM, "memory"),
        (Outcome.TOO_LARGE, "memory"),
        (Outcome.UNSTABLE, "stability"),
        (Outcome.TIMEOUT, "runnable"),
        (Outcome.CRASHED, "runnable"),
    ],
)
def test_the_violated_constraint_is_the_one_that_was_at_fault(outcome, constraint):
    assert judge(failed(outcome), REQUEST).constraints[constraint] > 0


@pytest.mark.parametrize(("peak", "feasible"), [(14 * GIB, True), (15 * GIB, True), (15 * GIB + 1, False)])
def test_the_headroom_is_kept_free(peak, feasible):
    assert judge(measured(peak=peak), REQUEST).feasible is feasible


def test_over_the_limit_is_measured_and_infeasible_by_as_much_as_it_is_over():
    verdict = judge(measured(100.0, peak=30 * GIB), REQUEST)

    assert verdict.value == pytest.approx(100.0)
    assert verdict.constraints["memory"] == pytest.approx(math.log(2))
    assert verdict.why == "needs 30 GiB, 15 GiB may be used"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"losses": (2.0, None, None, 1.7)}, "2 of 4 losses are not finite"),
        ({"losses": (2.0,) * 4 + (7.0,) * 4}, "the loss grew from 2 to 7 in 8 steps"),
        ({"losses": (2.0,) * 60, "skipped": 2, "calibration": 9}, "skipped 2 of 51 steps after calibration"),
    ],
)
def test_losses_that_speak_against_a_configuration_are_named(changes, words):
    verdict = judge(measured(**changes), REQUEST)

    assert verdict.constraints["stability"] > 0
    assert words in verdict.why


@pytest.mark.parametrize(
    "changes",
    [
        {"losses": (2.0,) * 8},
        {"losses": (2.0,) * 60, "skipped": 1},
        {"losses": (2.0,) * 60, "calibration": 30},
        {"losses": (2.0, 2.0, 9.0) + (2.0,) * 5},  # a single large micro-batch loss is noise
        {"losses": (2.0,) * 4 + (2.0 * MOST_LOSS_GROWTH,) * 4},
        {"losses": (-3.0,) * 4 + (5.0,) * 4},  # a loss below zero has no ratio
        {"losses": (1.0, 1.0, 1.0, 9.0, 9.0, 9.0)},  # too few to average both ends
    ],
)
def test_ordinary_losses_are_stable(changes):
    assert instability(measured(**changes).measurement) is None


def test_stability_is_not_judged_where_it_is_switched_off():
    relaxed = study_request(goal=Goal(global_batch=64, stability="off"))

    assert judge(measured(losses=(None,) * 4), relaxed).feasible


def test_memory_is_named_before_instability():
    verdict = judge(measured(peak=30 * GIB, losses=(None,) * 4), REQUEST)

    assert verdict.why.startswith("needs 30 GiB")
    assert verdict.constraints["stability"] > 0


def _with_memory(result, **changes):
    memory = replace(result.measurement.memory, **changes)
    return replace(result, measurement=replace(result.measurement, memory=memory))


def test_on_a_device_what_others_hold_is_added_to_the_allocators_peak():
    peak = MemoryPeak(
        process_bytes=GIB, reserved_bytes=10 * GIB, device_used_bytes=7 * GIB, reserved_at_end_bytes=4 * GIB
    )

    assert peak.bytes == 13 * GIB  # 3 GiB at the end were not the allocator's


def test_a_peak_recorded_without_the_reservation_at_its_end_reads_as_before():
    peak = MemoryPeak(process_bytes=GIB, reserved_bytes=10 * GIB, device_used_bytes=12 * GIB)

    assert peak.bytes == 12 * GIB


@pytest.mark.parametrize(("retries", "feasible"), [(None, True), (0, True), (1, False)])
def test_an_allocator_that_flushes_its_cache_in_the_window_is_thrashing(retries, feasible):
    verdict = judge(_with_memory(measured(), allocator_retries=retries), REQUEST)

    assert verdict.feasible is feasible
    assert ("memory thrashes: its cache was flushed 1 times" in verdict.why) is not feasible
    assert (verdict.constraints["memory"] > 0) is not feasible


@pytest.mark.parametrize(
    ("shapes_vary", "headroom", "peak", "feasible"),
    [
        (False, None, 14.9, True),
        (True, None, 14.9, False),
        (True, None, 14.3, True),
        (True, 0.0625, 14.9, True),  # the user's own word
    ],
)
def test_more_is_kept_free_where_shapes_vary(shapes_vary, headroom, peak, feasible):
    result = measured(peak=int(peak * GIB))
    result = replace(result, measurement=replace(result.measurement, shapes_vary=shapes_vary))
    request = study_request(goal=Goal(global_batch=64, headroom_fraction=headroom))

    assert judge(result, request).feasible is feasible


FULL = study_request(headroom_bytes=0)  # a user who keeps nothing free
NEAR = int(15 * GIB)


def _spilled(rate, smaller, *, peak=NEAR, request=FULL):
    others = [trial(measured(smaller), number=1, batch_size=32), trial(measured(9999.0), number=2, batch_size=8)]
    return judge_among(trial(measured(rate, peak=peak), batch_size=64), others, request)


def test_a_cliff_in_time_with_the_memory_nearly_full_is_a_spill():
    verdict = _spilled(100.0, 300.0)

    assert verdict.constraints["memory"] > 0
    assert verdict.why.startswith("a sample takes 3.0 times as long as with batch_size 32, with 94% of the device")
    assert verdict.value == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("rate", "smaller", "peak"),
    [(100.0, 190.0, NEAR), (300.0, 100.0, NEAR), (100.0, 300.0, 13 * GIB)],
    ids=["no cliff", "faster", "memory to spare"],
)
def test_without_both_signs_nothing_is_a_spill(rate, smaller, peak):
    assert _spilled(rate, smaller, peak=peak).feasible


@pytest.mark.parametrize(
    "other",
    [
        trial(measured(300.0), batch_size=32, amp_dtype="bfloat16"),
        trial(measured(300.0), batch_size=32, num_workers=4),
        trial(measured(300.0), batch_size=128),
        trial(failed(), batch_size=32),
    ],
    ids=["another dtype", "other workers", "a larger batch", "a failure"],
)
def test_a_spill_shows_only_against_a_smaller_batch_of_the_same_arm(other):
    slow = trial(measured(100.0, peak=NEAR), batch_size=64)

    assert judge_among(slow, [other], FULL).feasible


def test_accumulation_that_makes_up_the_global_batch_is_no_other_arm():
    slow = trial(measured(100.0, peak=NEAR), batch_size=64)
    halved = trial(measured(300.0), batch_size=32, gradient_accumulation_steps=2)

    assert not judge_among(slow, [halved], FULL).feasible


def test_the_host_has_no_other_memory_to_spill_into():
    slow = _with_memory(measured(100.0), process_bytes=NEAR, reserved_bytes=None)

    assert judge_among(trial(slow, batch_size=64), [trial(measured(300.0), batch_size=32)], FULL).feasible
