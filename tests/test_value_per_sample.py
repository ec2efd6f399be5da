"""A study that maximises something else than samples/s: what they are worth is learned from what was measured."""

import numpy as np
import pytest

from autotune.structured.observation import Observation
from autotune.structured.value_per_sample import values_per_sample
from tests.proposing import Proposals, grid_of

DOMAINS = {"batch_size": tuple(2**exponent for exponent in range(3, 11)), "amp_dtype": (None, "bfloat16")}
GRID = grid_of(**DOMAINS)


def _row(batch, dtype=None):
    return GRID.row({"batch_size": batch, "amp_dtype": dtype})


def test_a_throughput_in_another_unit_is_a_throughput():
    assert values_per_sample(GRID, [(_row(8), 3.0), (_row(64), 3.0), (_row(64, "bfloat16"), 3.0001)]) is None
    assert values_per_sample(GRID, []) is None


def test_a_category_that_was_worth_less_is_expected_to_be_so_at_other_batches():
    found = values_per_sample(GRID, [(_row(32), 1.0), (_row(32, "bfloat16"), 0.25)])

    assert found[_row(128)] > 1.4 * found[_row(128, "bfloat16")]
    assert found[_row(32)] / found[_row(32, "bfloat16")] == pytest.approx(4, rel=0.1)


def test_worth_goes_smoothly_with_the_batch():
    found = values_per_sample(GRID, [(_row(8), 1.0), (_row(512), 0.2)])

    sizes = [found[_row(2**exponent)] for exponent in range(3, 10)]
    assert sizes == sorted(sizes, reverse=True)
    assert np.ptp(sizes) > 0.4


def test_the_sampler_goes_where_the_value_is_and_still_foretells_samples_per_second():
    """bfloat16 is twice as fast and takes five times the power."""
    proposals = Proposals(DOMAINS, seed=1)
    proposals.study.enqueue_trial({"batch_size": 64, "amp_dtype": None})
    proposals.study.enqueue_trial({"batch_size": 64, "amp_dtype": "bfloat16"})
    for _ in range(5):
        trial = proposals.ask()
        half, batch = trial.params["amp_dtype"] == "bfloat16", trial.params["batch_size"]
        rate = batch / (0.01 + (1e-4 if half else 2e-4) * batch)
        proposals.tell(trial, Observation(samples_per_second=rate), rate / (500 if half else 100))

    assert {trial.params["amp_dtype"] for trial in proposals.study.trials[2:]} == {None}
    assert proposals.sampler.prediction.samples_per_second == pytest.approx(rate, rel=0.3)
