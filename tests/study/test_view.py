from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from autotune.core.records import Goal
from autotune.study.summary import Status
from autotune.study.view import summaries
from tests.reporting import config, confirmed, failed, ladder, measured, recommendation, trial, view


def test_the_run_off_counts_alone_with_the_rate_of_best_json() -> None:
    study = confirmed(ladder())
    best = study.recommendation
    assert best is not None

    chosen = next(one for one in summaries(study) if one.config.values == best.params)

    assert chosen.status is Status.CONFIRMED
    assert (chosen.samples_per_second, chosen.relative_half_width) == (2330.4, 0.008)
    assert [one.purpose for one in chosen.trials] == ["confirm", "confirm"]
    assert chosen.peak_bytes == best.peak_bytes


def test_what_was_confirmed_has_a_score_in_the_unit_of_the_objective_like_everything_else() -> None:
    study, goal = confirmed(ladder()), Goal(global_batch=1024, objective="cost", objective_options={"price": 36.0})

    found = summaries(replace(study, request=msgspec.structs.replace(study.request, goal=goal)))

    assert {one.status for one in found} == {Status.CONFIRMED, Status.FOUND}
    for one in found:
        assert one.score == pytest.approx(100 * one.samples_per_second)  # samples for 36 an hour


def test_several_probes_are_worth_their_geometric_mean_and_at_least_half_their_range() -> None:
    trials = (trial(0, config(), measured(100, half_width=0.01)), trial(1, config(), measured(400, half_width=0.02)))

    (one,) = summaries(view(trials))

    assert one.samples_per_second == pytest.approx(200)
    assert one.relative_half_width == pytest.approx(0.75)
    assert one.bounds == pytest.approx((50, 350))


def test_repeats_that_agree_by_luck_are_not_more_precise_than_their_windows() -> None:
    trials = tuple(trial(number, config(), measured(100, half_width=0.05)) for number in range(2))

    assert summaries(view(trials))[0].relative_half_width == 0.05


def test_what_failed_when_it_was_last_probed_may_not_be_used() -> None:
    healed = (trial(0, config(64), failed()), trial(1, config(64), measured(100)))
    broken = (trial(2, config(32), measured(90)), trial(3, config(32), failed()))

    found = {one.config.batch_size: one.feasible for one in summaries(view((*healed, *broken)))}

    assert found == {64: True, 32: False}


def test_a_configuration_without_a_measurement_has_no_standing() -> None:
    assert summaries(view((trial(0, config(), failed()),), recommendation())) == ()
