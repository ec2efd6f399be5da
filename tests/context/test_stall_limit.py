"""How long a probe may be silent: no more than a share of a short budget, and no less than what is only slow."""

import pytest
from msgspec.structs import replace

from autotune.context.stall_limit import with_stall_limit
from autotune.core.requests import ProbeBudget, ProbeRequest
from autotune.study.history import History
from autotune.testing import FakeLauncher
from tests.worlds import config, declared, measured, searched, study_request, trial

USUAL = ProbeBudget()
FAST = replace(measured(), phase_seconds={"start": 2.0, "warm-up": 0.4, "measure": 4.0})
SLOW = replace(measured(), phase_seconds={"start": 2.0, "warm-up": 4.0, "measure": 4.0})


def _limits(result, seconds, request=None, left=1e6, **values):
    asked = request or study_request()
    asked = replace(asked, baseline=config(batch_size=64, accumulation=9))
    history = History(asked, [trial(result, 0, "baseline", batch_size=64)] if result else [])
    made = with_stall_limit(USUAL, config(**{"batch_size": 64, **values}), history, seconds, left)
    assert replace(made, first_step_deadline_seconds=600.0, step_deadline_seconds=180.0) == USUAL
    return made.first_step_deadline_seconds, made.step_deadline_seconds


@pytest.mark.parametrize(
    ("result", "seconds", "values", "limit"),
    [
        (FAST, 30.0, {}, 10.0),
        (FAST, 300.0, {}, 45.0),
        (SLOW, 30.0, {}, 40.0),  # its first step took four seconds
        (SLOW, 30.0, {"batch_size": 128}, 80.0),
        (SLOW, 30.0, {"batch_size": 16}, 40.0),
        (SLOW, 30.0, {"num_workers": 4}, 61.44),  # each may have to start as the probe did, for 5.36 s
    ],
)
def test_a_silence_is_bounded_by_the_time_budget_and_by_what_was_seen(result, seconds, values, limit):
    assert _limits(result, seconds, **values) == pytest.approx((limit, limit))


@pytest.mark.parametrize(("left", "limit"), [(50.0, 30.0), (20.0, 20.0), (3.0, 10.0), (-5.0, 10.0)])
def test_a_silence_is_no_longer_than_what_is_left_of_the_budget(left, limit):
    assert _limits(FAST, 200.0, left=left) == (limit, limit)


def test_no_limit_is_longer_than_the_usual_one():
    assert _limits(SLOW, 1e6) == (600.0, 180.0)


def test_what_compiles_and_what_comes_before_any_measurement_may_take_its_time():
    assert _limits(FAST, 30.0, compile_mode="default") == (600.0, 180.0)
    assert _limits(None, 30.0) == (600.0, 180.0)


def test_a_loop_of_the_users_own_may_evaluate_for_half_of_the_time():
    asked = study_request()

    assert _limits(FAST, 60.0, replace(asked, facts=replace(asked.facts, owns_loop=True))) == (30.0, 30.0)


def test_a_search_asks_for_it_in_every_probe_of_another_configuration(tmp_path):
    asked = []
    launcher = FakeLauncher(
        facts=declared(),
        faults={ProbeRequest: lambda request: asked.append(request)},
        starting_seconds={"start": 0.2},
    )

    searched(tmp_path, launcher, tune=("num_workers",), time_budget_seconds=120.0)

    own = [one for one in asked if one.config == asked[0].config]
    others = [one for one in asked if one.config != asked[0].config]
    assert len(own) > 1 and all(one.budget.step_deadline_seconds == 180.0 for one in own)
    assert others and all(one.budget.step_deadline_seconds < 60.0 for one in others)
