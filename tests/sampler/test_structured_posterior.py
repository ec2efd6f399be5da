"""What is believed after few probes: a bent posterior is followed to its ends."""

import numpy as np
import pytest

from autotune.core.results import Outcome
from autotune.memory.model import PredictedPeak
from autotune.sampler.acquisition import predict
from autotune.sampler.fitted_data import gather
from autotune.sampler.grid import Hardware
from autotune.sampler.observation import Observation
from autotune.sampler.performance_model import PerformanceModel
from autotune.sampler.posterior import fit, posterior_of
from tests.proposing import Proposals, grid_of

MIB = 2**20
CPU = Hardware(cores=2, computes_on_cores=True)
BATCHES = (8, 512, 2048, 4096)
LIMIT = 855 * MIB  # 900 MiB without their headroom


def _hog(batch, base=400, per_sample=0.5):
    """A target whose memory is an interpreter of `base` MiB and activations, on a CPU."""
    peak = int((base + per_sample * batch) * MIB)
    if peak > LIMIT:
        return Observation(outcome=Outcome.OOM_HOST, limit_bytes=LIMIT)
    return Observation(samples_per_second=batch / (2e-3 + 3e-5 * batch), memory_bytes=peak, limit_bytes=LIMIT)


def _posterior(model, data, chance):
    return posterior_of(model, data, fit(model, data, chance))


def _chances(seen, seed=0):
    model = PerformanceModel(grid_of(batch_size=BATCHES), CPU)
    chance = np.random.default_rng(seed)
    observations = [(BATCHES.index(batch), observation) for batch, observation in seen.items()]
    predictions = predict(model, _posterior(model, gather(model, observations), chance), chance)
    return dict(zip(BATCHES, predictions.fits.mean(0).tolist(), strict=True))


@pytest.mark.parametrize("base", [250, 330, 400, 550])
def test_one_small_batch_leaves_open_whether_the_model_or_the_samples_took_its_memory(base):
    chances = _chances({8: _hog(8, base)})

    assert 0.15 < chances[512] < 0.75


@pytest.mark.parametrize("seed", range(3))
def test_an_overflow_far_above_a_small_batch_says_little_about_those_between(seed):
    chances = _chances({8: _hog(8), 4096: _hog(4096)}, seed)

    assert 0.1 < chances[512] < 0.6
    assert chances[4096] < 0.05


def test_after_an_overflow_far_above_a_batch_between_is_tried_next():
    proposals = Proposals({"batch_size": BATCHES}, hardware=CPU)
    for batch in (8, 4096):
        proposals.begin(_hog(batch), batch_size=batch)

    rest = proposals.sampler.faster_elsewhere(proposals.study)
    trial = proposals.ask()

    assert proposals.values(trial)["batch_size"] == 512
    assert proposals.sampler.prediction.gain > 0.02
    assert rest > 0.5


def _foreseen(together, seen):
    """Shares of the limit and chances to fit per (batch, dtype), after a shape run that says 0.3 + batch / 6000.

    `together` is by how much a fault of all its rows alike moves a row of 1; `seen` are observations per row.
    """
    grid = grid_of(batch_size=BATCHES, amp_dtype=(None, "bfloat16"))
    model = PerformanceModel(grid, CPU)
    rows = {(params["batch_size"], params["amp_dtype"]): row for row, params in enumerate(grid.named)}

    def shape_run(row):
        samples = grid.named[row]["batch_size"] / 6000
        return PredictedPeak(share=0.3 + samples, together=(together * samples,) if together else ())

    chance = np.random.default_rng(0)
    found = [(rows[place], observation) for place, observation in seen.items()]
    predictions = predict(
        model,
        _posterior(model, gather(model, found, [(row, shape_run(row)) for row in range(len(grid))]), chance),
        chance,
    )
    fits = predictions.fits.mean(0)
    return {place: (float(predictions.memory[row]), float(fits[row])) for place, row in rows.items()}


def test_an_error_that_all_predictions_share_is_not_averaged_away():
    baseline = {(8, None): Observation(samples_per_second=1.0, memory_bytes=int(0.3 * LIMIT), limit_bytes=LIMIT)}

    independent, shared = (_foreseen(together, baseline)[4096, None][1] for together in (0.0, 0.3))

    assert independent < 0.45  # 0.98 of the limit is foretold
    assert independent < shared < 0.65


def test_an_overflow_where_much_room_was_foretold_warns_of_the_other_arms():
    seen = {
        (8, None): Observation(samples_per_second=1.0, memory_bytes=int(0.3 * LIMIT), limit_bytes=LIMIT),
        (2048, None): Observation(outcome=Outcome.OOM_HOST, limit_bytes=LIMIT),  # 0.64 was foretold
    }

    before, after = (_foreseen(0.6, some)[4096, "bfloat16"][1] for some in ({(8, None): seen[8, None]}, seen))
    unmoved = _foreseen(0.0, seen)[4096, "bfloat16"][1]  # where rows err independently one says nothing of another

    assert after < 0.1 < 0.5 < before
    assert unmoved > 0.5
