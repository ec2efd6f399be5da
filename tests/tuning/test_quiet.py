"""The wait for a quiet machine before the confirmation."""

import dataclasses

import msgspec
import pytest

from autotune.core.interference_readings import HostInterference
from autotune.tuning.quiet import LATEST_PROBES, wait_for_quiet
from tests.worlds import Listener, context, measured, trial


def _trials(*shares):
    """Probes that waited for a core for these shares of their time."""
    results = [
        msgspec.structs.replace(
            result := measured(),
            measurement=msgspec.structs.replace(
                result.measurement,
                interference=HostInterference(run_queue_wait_share=share, foreign_cores=float(share > 0)),
            ),
        )
        for share in shares
    ]
    return [trial(result, number) for number, result in enumerate(results)]


def _wait(folder, shares, readings, *, left=1000.0, budget=60.0):
    """The notes of a wait, and how many looks it took; the last reading stays."""
    looks, listener = [], Listener()

    def others(pause):
        looks.append(readings[min(len(looks), len(readings) - 1)])
        return looks[-1]

    made = context(folder, listener=listener, trials=_trials(*shares), left=left, time_budget_seconds=budget)
    wait_for_quiet(dataclasses.replace(made, foreign_cores=others))
    return listener.notes, len(looks)


def test_where_nothing_interfered_lately_nobody_looks(tmp_path):
    assert _wait(tmp_path, [0.5, *[0.0] * LATEST_PROBES], [1.0]) == ([], 0)


def test_interference_that_is_over_is_not_waited_for(tmp_path):
    assert _wait(tmp_path, [0.5], [0.02]) == ([], 1)


def test_it_waits_until_the_machine_is_quiet_and_says_so(tmp_path):
    notes, looks = _wait(tmp_path, [0.5], [1.0, 0.8, 0.0])

    assert looks == 3
    assert notes == [
        "Other processes keep 1.0 cores busy: waiting up to 6.0 s for a quiet machine before the confirmation.",
        "The machine is quiet now.",
    ]


@pytest.mark.parametrize(("left", "looks"), [(1000.0, 6), (0.0, 1)])
def test_it_waits_for_a_tenth_of_the_budget_at_most_and_not_where_there_is_no_time(tmp_path, left, looks):
    notes, seen = _wait(tmp_path, [0.5], [1.0], left=left)

    assert seen == looks
    assert notes[-1] == "Other processes are still busy: the rates that are measured now will be too low."


def test_where_the_kernel_does_not_tell_nothing_is_waited_for(tmp_path):
    assert _wait(tmp_path, [0.5], [None]) == ([], 1)
