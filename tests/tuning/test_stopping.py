"""When a search has looked enough."""

import pytest

from autotune.tuning.exploration import (
    LEAST_PROGRESS,
    PATIENCE_PROBES,
    SearchState,
    probes_without_gain,
    promise_little,
    reason_to_stop,
)


def _progress(**changes):
    given = {
        "values": (100.0,), "remaining": 50, "elapsed_seconds": 0.0, "budget_seconds": 600.0, "reserve_seconds": 80.0,
        "next_seconds": 10.0, "probes": None, "probed": 1, **changes,
    }  # fmt: skip
    return SearchState(**given)


def test_a_search_that_has_time_and_gains_goes_on():
    assert reason_to_stop(_progress()) is None


def test_it_ends_when_nothing_is_left():
    assert reason_to_stop(_progress(remaining=0)) == "no configuration is left to try"


@pytest.mark.parametrize(("probed", "ends"), [(11, False), (12, True), (13, True)])
def test_it_ends_after_the_probes_that_were_asked_for(probed, ends):
    assert (reason_to_stop(_progress(probes=12, probed=probed)) is not None) is ends


@pytest.mark.parametrize(("elapsed", "ends"), [(509.0, False), (510.0, False), (511.0, True)])
def test_it_ends_while_there_is_time_to_confirm(elapsed, ends):
    why = reason_to_stop(_progress(elapsed_seconds=elapsed))

    assert (why is not None) is ends
    assert why is None or "80 s that are kept" in why


@pytest.mark.parametrize(("idle", "ends"), [(PATIENCE_PROBES - 1, False), (PATIENCE_PROBES, True)])
def test_it_ends_when_nothing_was_gained_for_long(idle, ends):
    why = reason_to_stop(_progress(values=(100.0,) + (99.0,) * idle, probed=idle))

    assert why == (f"the last {PATIENCE_PROBES} probes gained less than 1%" if ends else None)


def test_a_search_in_which_nothing_ran_ends_too():
    assert (
        reason_to_stop(_progress(values=(None,) * PATIENCE_PROBES, probed=PATIENCE_PROBES))
        == f"none of {PATIENCE_PROBES} probes was usable"
    )


def test_a_single_probe_is_told_in_the_singular():
    assert reason_to_stop(_progress(probes=1, probed=1)) == "the limit of 1 probe is reached"


def test_a_resumed_search_looks_on_although_an_earlier_run_had_lost_patience():
    assert reason_to_stop(_progress(values=(100.0,) + (99.0,) * PATIENCE_PROBES, probed=PATIENCE_PROBES - 1)) is None


@pytest.mark.parametrize(
    ("values", "since"),
    [
        ((), 0),
        ((100.0,), 0),
        ((100.0, 90.0, None), 2),
        ((100.0, 100.0 * (1 + LEAST_PROGRESS) - 0.5, 120.0), 0),
        ((100.0, 100.5, 100.9), 2),  # creeping up within the noise is no gain
        ((None, None), 2),
    ],
)
def test_probes_since_the_last_gain_are_counted(values, since):
    assert probes_without_gain(values) == since


@pytest.mark.parametrize(
    ("promises", "probes", "little"),
    [
        ((0.5, 0.01, 0.01), 8, True),
        ((0.5, 0.01, 0.01), 7, False),
        ((0.01, 0.03), 20, False),
        ((0.01,), 20, False),
        ((None, None), 20, False),
        ((), 20, False),
    ],
)
def test_two_proposals_in_a_row_that_promise_little_are_enough_after_eight_probes(promises, probes, little):
    assert promise_little(promises, probes) is little
