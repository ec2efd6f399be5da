"""How the machine moved, told by its baseline."""

import msgspec
import pytest

from autotune.core.interference_readings import HostInterference
from autotune.core.results import Trial
from autotune.study.machines import drift_corrected
from autotune.study.valid_probes import (
    BASELINE_EVERY,
    Judged,
    baseline_rates,
    describe_drift,
    drift_factor,
    is_baseline_due,
)
from tests.worlds import bad, config, good, measured

BASELINE, OTHER = config(batch_size=64), config(batch_size=32)


def _trial(number, purpose, *, seconds=5.0, interference=None):
    result = msgspec.structs.replace(measured(), elapsed_seconds=seconds)
    window = msgspec.structs.replace(result.measurement, interference=interference)
    where = OTHER if purpose == "search" else BASELINE
    result = msgspec.structs.replace(result, measurement=window)
    return Trial(number=number, purpose=purpose, config=where, result=result)


def _judged(*told_rates):
    """(purpose, rate) in order; no rate: infeasible."""
    return [
        Judged(_trial(number, purpose), bad() if rate is None else good(rate))
        for number, (purpose, rate) in enumerate(told_rates)
    ]


def _after(searches, *, baseline=100.0, seconds=5.0):
    judged = _judged(("baseline", baseline), *[("search", 50.0)] * searches)
    judged[0] = Judged(_trial(0, "baseline", seconds=seconds), judged[0][1])
    return judged


def test_the_baseline_is_due_after_so_many_search_probes_and_not_before():
    assert not is_baseline_due(_after(BASELINE_EVERY - 1), BASELINE, 5.0)
    assert is_baseline_due(_after(BASELINE_EVERY), BASELINE, 5.0)


def test_it_is_due_again_only_after_as_many_more():
    judged = [*_after(BASELINE_EVERY), Judged(_trial(9, "reference"), good(100.0))]

    assert not is_baseline_due(judged, BASELINE, 5.0)
    assert is_baseline_due(
        [*judged, *[Judged(_trial(n, "search"), good(1.0)) for n in range(10, 10 + BASELINE_EVERY)]], BASELINE, 5.0
    )


@pytest.mark.parametrize(
    "judged",
    [
        _after(20, baseline=None),
        _after(20, seconds=11.0),  # more than twice a typical probe
        _after(20)[1:],
        [
            *_after(20),
            Judged(_trial(21, "reference"), bad()),
            *[Judged(_trial(n, "search"), good(1.0)) for n in range(22, 40)],
        ],
    ],
    ids=["infeasible", "slow", "none", "failed since"],
)
def test_a_baseline_that_cannot_serve_is_never_due(judged):
    assert not is_baseline_due(judged, BASELINE, 5.0)


def test_a_move_that_no_other_has_shown_is_looked_at_again_at_once_and_only_once():
    moved, again = Judged(_trial(9, "reference"), good(85.0)), Judged(_trial(10, "reference"), good(100.0))

    assert is_baseline_due([*_after(BASELINE_EVERY), moved], BASELINE, 5.0)
    assert not is_baseline_due([*_after(BASELINE_EVERY), moved, again], BASELINE, 5.0)
    assert not is_baseline_due([*_after(BASELINE_EVERY), Judged(_trial(9, "reference"), good(97.0))], BASELINE, 5.0)


def test_between_two_references_the_machine_moved_evenly():
    rates = [(0, 100.0), (10, 80.0), (11, 80.0), (21, 110.0), (22, 120.0)]

    found = [drift_factor(number, rates) for number in (0, 5, 10, 11, 16, 21, 30)]

    assert found == pytest.approx([1, 0.9, 0.8, 0.8, 0.95, 1.1, 1.1])


@pytest.mark.parametrize("rates", [[(0, 100.0), (9, 93.0), (18, 101.0)], [(0, 100.0), (9, 107.0), (18, 94.0)]])
def test_one_reference_alone_moves_nobody(rates):
    assert {drift_factor(number, rates) for number in range(30)} == {1.0}


def test_what_is_within_the_noise_of_a_probe_is_no_drift():
    assert drift_factor(5, [(0, 100.0), (10, 95.1)]) == 1
    assert drift_factor(5, [(0, 100.0)]) == 1
    assert drift_factor(5, []) == 1


def test_a_probe_on_a_slow_machine_is_worth_more_than_it_showed():
    judged = _judged(
        ("baseline", 100.0),
        ("search", 50.0),
        ("reference", 80.0),
        ("reference", 80.0),
        ("search", 50.0),
        ("search", None),
    )

    values = [verdict.value for _, verdict in drift_corrected(judged, BASELINE)]

    assert values == [*map(pytest.approx, (100, 50 / 0.9, 100, 100, 62.5)), None]


def test_a_reference_that_others_disturbed_says_nothing_about_the_machine():
    busy = HostInterference(run_queue_wait_share=0.5, foreign_cores=1.0)
    judged = [*_judged(("baseline", 100.0)), Judged(_trial(1, "reference", interference=busy), good(50.0))]

    assert baseline_rates(judged, BASELINE) == [(0, 100.0)]


def test_a_move_is_told_once_it_shows_and_never_where_it_does_not():
    moved = _judged(("baseline", 100.0), ("search", 1.0), ("reference", 88.0), ("reference", 88.0))

    assert "12% slower than at the start" in describe_drift(moved, BASELINE)
    assert describe_drift(moved[:-1], BASELINE) == ""
    assert describe_drift([*moved, *_judged(("search", 1.0))], BASELINE) == ""
    assert describe_drift(_judged(("baseline", 100.0), ("reference", 96.0)), BASELINE) == ""
    assert describe_drift(_judged(("baseline", 100.0)), BASELINE) == ""
