"""The verdict says what a result is worth, and why not."""

import math

import pytest

from autotune.objective import CONSTRAINTS, MOST_LOSS_GROWTH, WORDS, instability, judge
from autotune.records import Goal
from autotune.results import Outcome
from tests.worlds import GIB, failed, measured, study_request

REQUEST = study_request()  # 16 GiB, of which 1 GiB is kept free
FAILURES = [outcome for outcome in Outcome if outcome is not Outcome.OK]


def test_a_good_probe_is_worth_its_samples_per_second():
    verdict = judge(measured(123.0), REQUEST)

    assert verdict.value == pytest.approx(123.0)
    assert verdict.feasible
    assert verdict.reason == ""


@pytest.mark.parametrize("outcome", FAILURES)
def test_a_failure_has_no_value_one_violated_constraint_and_a_reason(outcome):
    verdict = judge(failed(outcome, "its own words"), REQUEST)

    assert verdict.value is None
    assert not verdict.feasible
    assert sum(violation > 0 for violation in verdict.constraints.values()) == 1
    assert verdict.reason == f"{WORDS[outcome]}: its own words"


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
    assert verdict.reason == "needs 30 GiB, 15 GiB may be used"


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
    assert words in verdict.reason


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
    assert instability(measured(**changes).measurement) == ""


def test_stability_is_not_judged_where_it_is_switched_off():
    relaxed = study_request(goal=Goal(global_batch=64, stability="off"))

    assert judge(measured(losses=(None,) * 4), relaxed).feasible


def test_memory_is_named_before_instability():
    verdict = judge(measured(peak=30 * GIB, losses=(None,) * 4), REQUEST)

    assert verdict.reason.startswith("needs 30 GiB")
    assert verdict.constraints["stability"] > 0
