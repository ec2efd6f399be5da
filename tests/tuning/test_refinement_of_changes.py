"""A short search has no time to take its changes back after the race: what brings nothing is left out before."""

import dataclasses

import pytest

from autotune.core.records import Config
from autotune.knobs.changes import changes_between
from autotune.study.summary import ConfigSummary
from autotune.study.view import load_view
from autotune.testing import FakeLauncher
from autotune.testing.machine import Machine
from autotune.tuning.choice import preferred_first
from tests.worlds import config, declared, searched, study_request

SHORT = {"sampler": "structured", "time_budget_seconds": 60}
SAME = {None: 1.0, "bfloat16": 1.0, "float16": 1.0}


def _starting_slowly(**differing):
    """A machine on which a probe takes four seconds and workers alone bring anything."""
    machine = dataclasses.replace(
        Machine(), cores=4, channels_last_factor=SAME, per_sample_seconds=dict.fromkeys(SAME, 0.0004),
        fixed_seconds=dict.fromkeys(SAME, 1e-5), noise_between_probes=0.01, **differing
    )  # fmt: skip
    return FakeLauncher(machine=machine, facts=declared(), starting_seconds={"start": 3.0})


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_short_search_leaves_out_what_brings_nothing(tmp_path, seed):
    launcher = _starting_slowly(sample_loading_seconds=0.0015)

    answer = searched(tmp_path, launcher, seed=seed, **SHORT)

    assert [names for names in changes_between(answer.baseline, answer.params)] == [("num_workers",)]
    assert launcher.clock() <= 1.1 * 60


def test_what_was_left_out_was_itself_run_and_confirmed(tmp_path):
    answer = searched(tmp_path, _starting_slowly(sample_loading_seconds=0.0015), seed=1, **SHORT)

    ran = [one for one in load_view(tmp_path).trials if one.config == Config(values=answer.params)]
    assert {one.purpose for one in ran} >= {"search", "confirm"}
    assert answer.rounds >= 2


def test_of_two_that_a_probe_hardly_tells_apart_the_one_with_fewer_changes_is_raced_first():
    request = study_request()
    many = ConfigSummary(config=config(64, amp_dtype="bfloat16", channels_last=True), found=1000.0)
    few = ConfigSummary(config=config(64, amp_dtype="bfloat16"), found=975.0)
    slow = ConfigSummary(config=config(64, channels_last=True), found=900.0)

    assert preferred_first([many, few, slow], request) == [few, many, slow]
    assert preferred_first([many, slow], request) == [many, slow]
