"""Threads that compute and workers that load, on the cores of one CPU: the model by hand, and what knobs say of it."""

import numpy as np
import pytest

from autotune import knobs
from autotune.knobs.num_threads import NumThreads
from autotune.sampler import parameters as unknown
from autotune.sampler.discrepancy import discrepancy
from autotune.sampler.fitted_data import gather
from autotune.sampler.grid import Hardware
from autotune.sampler.observation import Observation
from autotune.sampler.performance_model import PerformanceModel
from tests.proposing import grid_of, row_of

TWO_CORES = Hardware(cores=2, computes_on_cores=True, threads=2)
# Two threads compute 64 samples in 20 ms and next to nothing of it whatever the batch; a worker loads them in 19.2.
TWENTY_MS = {"FIXED": 1e-6, "SATURATION": 1e-6 / (0.02 / 64), "OPTIMIZER": 1e-6, "LOADING": 3e-4}


def _model(hardware=TWO_CORES, **domains):
    domains = {"batch_size": (64,), "num_workers": (0, 1), "num_threads": (1, None), **domains}
    return PerformanceModel(grid_of(**domains), hardware)


def _guess(model, **changes):
    """Everything at its prior mean, but for what is given as seconds, counts or shares."""
    guess = model.parameters.means.copy()
    for name, value in {**TWENTY_MS, **changes}.items():
        guess[getattr(unknown, name)] = np.log(value)
    return guess[None]


def _certain(model, **changes):
    """Loading computes all the time, one thread takes twice as long as two."""
    guess = _guess(model, **{"SHARE": 1.0, "OVERSUBSCRIPTION": 1.0, **changes})
    guess[:, model.parameters.halved] = np.log(2.0)
    return guess


def _step_seconds(model, guess, **params):
    places = model.at(np.array([row_of(model.grid, {"batch_size": 64, **params})]))
    clocks = model.clocks(guess, places, model.computing(guess, places), model.loading(guess, places))
    return float(model.together(guess, places, *clocks)[0, 0])


def test_half_the_threads_compute_as_much_slower_as_is_believed():
    model = _model(num_workers=(0,))
    guess = _certain(model, LOADING=1e-9)

    one = _step_seconds(model, guess, num_workers=0, num_threads=1)
    both = _step_seconds(model, guess, num_workers=0, num_threads=None)

    assert (one, both) == (pytest.approx(0.04, rel=1e-3), pytest.approx(0.02, rel=1e-3))


def test_threads_beyond_torchs_own_count_promise_nothing():
    eight = Hardware(cores=8, computes_on_cores=True, threads=4)
    model = _model(eight, num_workers=(0,), num_threads=(2, None, 8))
    felt = model.parameters.design("sample_time", np.arange(3))[:, model.parameters.halved[0]]

    assert dict(zip([values["num_threads"] for values in model.grid.named], felt, strict=True)) == {
        2: 1,
        None: 0,
        8: 0,
    }


@pytest.mark.parametrize("workers", [1, 2])
def test_a_single_thread_waits_for_no_other_however_many_workers_there_are(workers):
    model = _model(num_workers=(1, 2))
    guess = _certain(model, OVERSUBSCRIPTION=3.0)

    one = _step_seconds(model, guess, num_workers=workers, num_threads=1)

    assert one == pytest.approx(0.04, rel=0.02)


def test_several_threads_stand_still_while_a_worker_has_the_core_of_one():
    model = _model()
    crowds = {
        oversubscription: _certain(model, OVERSUBSCRIPTION=oversubscription) for oversubscription in (1e-6, 1.0, 3.0)
    }

    seconds = [_step_seconds(model, guess, num_workers=1, num_threads=None) for guess in crowds.values()]

    assert np.diff(seconds) == pytest.approx([0.0192, 2 * 0.0192], rel=0.2)


def test_a_worker_that_only_waits_crowds_nobody():
    model = _model()
    params = {"num_workers": 1, "num_threads": None}

    alone, oversubscribed = (
        _step_seconds(model, _certain(model, SHARE=1e-6, OVERSUBSCRIPTION=oversubscription), **params)
        for oversubscription in (1e-6, 3.0)
    )

    assert oversubscribed == pytest.approx(alone, rel=1e-3)


def test_threads_that_sleep_while_they_wait_crowd_less():
    model = _model(omp_wait_policy=(None, "passive"))
    guess = _guess(model)
    params = {"num_workers": 1, "num_threads": None}

    spinning = _step_seconds(model, guess, **params, omp_wait_policy=None)
    asleep = _step_seconds(model, guess, **params, omp_wait_policy="passive")

    assert asleep < 0.8 * spinning


@pytest.mark.parametrize(("loading", "fastest"), [(3e-4, (1, 1)), (1e-7, (0, None))])
def test_threads_make_way_for_workers_only_where_loading_takes_long(loading, fastest):
    model = _model()
    guess = _guess(model, LOADING=loading)
    pairs = [(workers, threads) for workers in (0, 1) for threads in (1, None)]

    seconds = {pair: _step_seconds(model, guess, num_workers=pair[0], num_threads=pair[1]) for pair in pairs}

    assert min(seconds, key=seconds.__getitem__) == fastest


def test_a_knob_says_itself_how_many_threads_compute(monkeypatch):
    class Halves(NumThreads):
        name = alias = "halves"

        def computing_threads(self, value, own):
            return own // 2 if value else own

    monkeypatch.setattr(knobs, "KNOBS", (*knobs.KNOBS, Halves()))

    model = _model(Hardware(cores=8, computes_on_cores=True), num_workers=(1,), num_threads=(None,), halves=(None, 1))

    assert model.all_rows.busy.tolist() == [8, 4]
    assert model.all_rows.oversubscribed.tolist() == [1, 0]


@pytest.mark.parametrize(("on_cores", "disagreement"), [(False, 0.041), (True, 0.066)])
def test_a_step_and_computing_alone_disagree_as_much_as_was_measured_of_cores_that_others_use(on_cores, disagreement):
    model = _model(Hardware(cores=8, computes_on_cores=on_cores), num_workers=(1,))
    data = gather(model, [(0, Observation(samples_per_second=100.0, compute_samples_per_second=100.0))])
    guess = _guess(model, LOADING=1e-9)
    whitened = discrepancy(model, data, guess, guess).whitened_times(np.eye(2))
    covariance, difference = np.linalg.inv(whitened @ whitened.T), np.array([1, -1])

    assert np.sqrt(difference @ covariance @ difference) == pytest.approx(disagreement, rel=0.03)
