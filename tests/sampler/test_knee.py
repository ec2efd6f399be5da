"""Where the global batch is free, the sampler seeks the smallest one that is fast enough."""

import numpy as np
import pytest

from autotune.core.results import Outcome
from autotune.sampler.acquisition import Predictions, up_to_knee
from autotune.sampler.grid import Hardware
from autotune.sampler.observation import Observation
from autotune.sampler.structured import Knee
from tests.proposing import Proposals

BATCHES = tuple(2**exponent for exponent in range(3, 13))
DOMAINS = {"batch_size": BATCHES, "num_workers": tuple(range(5)), "amp_dtype": (None, "bfloat16")}
KNEE = 128  # of `_machine`


def _predictions(rates, fits=None):
    rates = np.array(rates, float)
    fits = np.ones_like(rates) if fits is None else np.array(fits, float)
    return Predictions(rates=rates, fits=fits, memory=np.zeros(rates.shape[1]))


def test_beyond_the_knee_of_each_particle_nothing_is_gained():
    batches = np.array([32.0, 64.0, 128.0, 256.0])
    predictions = _predictions([[50, 90, 97, 100], [50, 98, 99, 100], [50, 60, 80, 100]])

    found = up_to_knee(predictions, batches, 0.05, least=32)

    assert found.rates.tolist() == [[50, 90, 97, 0], [50, 98, 0, 0], [50, 60, 80, 100]]


def test_what_does_not_fit_sets_no_knee():
    found = up_to_knee(_predictions([[50, 96, 150]], [[1, 1, 0.1]]), np.array([32.0, 64.0, 128.0]), 0.05, least=32)

    assert found.rates.tolist() == [[50, 96, 0]]


def test_the_baseline_s_global_batch_is_never_beyond_the_knee():
    found = up_to_knee(_predictions([[99, 100, 100]]), np.array([16.0, 32.0, 64.0]), 0.05, least=32)

    assert found.rates.tolist() == [[99, 100, 0]]


def _machine(params):
    """A closed-form machine on which a batch of 5 samples is half as fast as it can be; nothing else matters much."""
    batch, factor = params["batch_size"], 1.0 if params["amp_dtype"] is None else 0.9
    compute = 0.0005 + 1e-4 * factor * batch
    return Observation(
        outcome=Outcome.OK,
        samples_per_second=batch / compute, compute_samples_per_second=batch / compute,
        loader_samples_per_second=1e6, memory_bytes=10**9, limit_bytes=10**10,
    )  # fmt: skip


def _searched(seed, knee):
    """The batches of four probes after a baseline of 32."""
    proposals = Proposals(DOMAINS, hardware=Hardware(cores=4), seed=seed, knee=knee)
    start = {"batch_size": 32, "num_workers": 0, "amp_dtype": None}
    proposals.begin(_machine(start), **start)
    return [params["batch_size"] for params, _ in proposals.search(_machine, 4)]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_first_probes_go_to_where_the_knee_is(seed):
    anywhere, aimed = (_searched(seed, knee) for knee in (None, Knee(share=0.05, least=32)))

    assert sum(batch > 2 * KNEE for batch in aimed) <= 1 < sum(batch > 2 * KNEE for batch in anywhere)
    assert sum(KNEE / 2 <= batch <= 2 * KNEE for batch in aimed) == 3
