"""Whom a finalist races: itself without what is in doubt."""

import dataclasses

import pytest

from autotune.context.budget import TimeBudget
from autotune.core.results import Outcome
from autotune.precision.records import PrecisionCheckRequest
from autotune.testing import FakeLauncher
from autotune.tuning.finalists import settled_finalists
from tests.worlds import config, context, measured, trial

BASE = config(batch_size=64)
DOUBTED, HELD = config(batch_size=64, amp_dtype="bfloat16", num_workers=2), config(batch_size=64, num_workers=2)


def _settled(tmp_path, held_rate=None, launcher=None, left=None):
    """Who races after single probes of the baseline, of bfloat16 with two workers, and perhaps of two workers alone."""
    rates = {BASE: 100.0, DOUBTED: 160.0} | ({HELD: held_rate} if held_rate else {})
    trials = [
        trial(measured(rate), number, "search" if number else "baseline", **one.values)
        for number, (one, rate) in enumerate(rates.items())
    ]
    launcher = launcher or FakeLauncher(faults={PrecisionCheckRequest: lambda request: Outcome.TIMEOUT})
    search = context(tmp_path, launcher, trials=trials)
    found = settled_finalists(search)
    if left is not None:  # the losses were compared by now
        short = TimeBudget(search.history, 60.0, lambda: 60.0 - left, 0.0)
        found = settled_finalists(dataclasses.replace(search, budget=short))
    return [one.config for one in found]


def test_where_losses_are_undecided_the_baselines_arithmetic_races_beside(tmp_path):
    assert _settled(tmp_path)[:2] == [DOUBTED, HELD]


def test_where_losses_match_it_races_alone(tmp_path):
    assert _settled(tmp_path, launcher=FakeLauncher()) == [DOUBTED]


@pytest.mark.parametrize(("rate", "confirmed"), [(155.0, HELD), (120.0, DOUBTED), (None, DOUBTED)])
def test_without_time_for_both_what_is_undecided_races_if_it_gained_enough(tmp_path, rate, confirmed):
    assert _settled(tmp_path, rate, left=20.0) == [confirmed]
