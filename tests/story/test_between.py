"""Multiples of 8 between the batches of the space: which, when it pays, and that a search does probe them."""

import pytest
from msgspec.structs import replace

from autotune.core.records import Goal, Limit
from autotune.core.results import Outcome
from autotune.sampler.prediction import Prediction
from autotune.study.valid_probes import Judged
from autotune.testing import FakeLauncher, Machine
from autotune.tuning.refinement import promising, values_between
from tests.worlds import GIB, Listener, bad, config, declared, good, searched, study_request, trial
from tests.worlds import failed as ended
from tests.worlds import measured as ran

FREE = study_request(goal=Goal(global_batch=None), domains={"batch_size": (8, 16, 32, 64, 128, 256)})


def _batches(judged, request=FREE):
    return [candidate.batch_size for candidate in values_between(judged, request)]


def _judged(rates):
    return [
        Judged(trial(ran(rate), number, batch_size=batch), good(rate)) for number, (batch, rate) in enumerate(rates)
    ]


def test_the_candidates_lie_between_the_best_batch_and_its_neighbours():
    judged = _judged([(8, 50.0), (64, 200.0), (256, 100.0)])

    assert _batches(judged) == [40, 48, 56, 80, 96, 112]


@pytest.mark.parametrize(("best", "candidates"), [(8, []), (16, [24]), (256, [160, 192, 224])])
def test_at_the_ends_there_are_fewer(best, candidates):
    assert _batches(_judged([(best, 100.0)])) == candidates


def test_what_was_probed_is_no_candidate_even_where_it_failed():
    judged = [*_judged([(64, 200.0)]), Judged(trial(ended(), 1, batch_size=96), bad())]

    assert 96 not in _batches(judged)


@pytest.mark.parametrize(
    "goal",
    [Goal(global_batch=64), Goal(global_batch=None, limits={"batch_size": Limit(values=(32, 64, 128))})],
    ids=["held", "listed"],
)
def test_a_held_batch_and_listed_batches_stay_as_they_are(goal):
    assert _batches(_judged([(64, 200.0)]), replace(FREE, goal=goal)) == []


def test_batches_that_the_target_lists_stay_as_they_are():
    listing = replace(FREE.facts, space={"batch_size": Limit(values=(32, 64, 128))})

    assert _batches(_judged([(64, 200.0)]), replace(FREE, facts=listing)) == []


def test_no_candidate_takes_more_than_the_dataset_in_one_step():
    small = replace(FREE, facts=replace(FREE.facts, dataset_samples=100))

    assert _batches(_judged([(64, 200.0)]), small) == [40, 48, 56, 80, 96]


def _said(gain, fits=0.9):
    return Prediction(samples_per_second=1.0, low=1.0, high=1.0, memory_share=0.5, fits=fits, gain=gain)


@pytest.mark.parametrize(
    ("said", "chosen"),
    [
        ({80: _said(0.05), 96: _said(0.08)}, 96),
        ({80: _said(0.05), 96: _said(0.08, fits=0.3)}, 80),
        ({80: _said(0.01), 96: _said(None)}, None),
        ({}, None),
    ],
)
def test_a_candidate_is_probed_where_it_pays(said, chosen):
    found = promising([(config(batch_size=batch), expected) for batch, expected in said.items()])

    assert (found and found.batch_size) == chosen


def test_a_search_at_a_memory_limit_goes_on_between_the_powers_of_two(tmp_path):
    """The largest batch that fits lies just below a power of two, and the device is far from saturated."""
    dtypes = (None, "bfloat16", "float16")
    machine = Machine(fixed_seconds=dict.fromkeys(dtypes, 0.1), per_sample_bytes=dict.fromkeys(dtypes, 0.06 * GIB),
                      sample_loading_seconds=1e-6)  # fmt: skip
    listener = Listener()

    answer = searched(
        tmp_path, FakeLauncher(machine=machine, facts=declared()), listener, sampler="structured", probes=14,
        time_budget_seconds=1e6, global_batch="free",
    )  # fmt: skip

    batches = [probe.config.batch_size for probe in listener.trials if probe.result.outcome is Outcome.OK]
    assert max(batch for batch in batches if batch & (batch - 1) == 0) == 128
    assert answer.params["batch_size"] in (160, 192, 224)
