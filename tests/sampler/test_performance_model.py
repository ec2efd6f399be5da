"""The model against arithmetic done by hand, and the grid that it is evaluated on."""

import numpy as np
import pytest

from autotune.core.results import Outcome
from autotune.sampler import parameters as unknown
from autotune.sampler.acquisition import Predictions, faster_elsewhere, gains, incumbents
from autotune.sampler.fitted_data import gather
from autotune.sampler.grid import Hardware
from autotune.sampler.observation import Observation
from autotune.sampler.performance_model import PerformanceModel
from tests.proposing import grid_of, row_of


def _model(hardware=None, **domains):
    domains = {"batch_size": (8, 64), "num_workers": (0, 2), **domains}
    return PerformanceModel(grid_of(**domains), hardware or Hardware())


def _guess(model, **changes):
    """Everything at its prior mean, but for what is given as seconds, counts or shares."""
    guess = model.parameters.means.copy()
    for name, value in changes.items():
        guess[getattr(unknown, name)] = np.log(value)
    return guess[None]


def _step_seconds(model, guess, **params):
    row = row_of(model.grid, params)
    places = model.at(np.array([row]))
    clocks = model.clocks(guess, places, model.computing(guess, places), model.loading(guess, places))
    return float(model.together(guess, places, *clocks)[0, 0])


def test_without_workers_loading_and_computing_add_up():
    model = _model()
    guess = _guess(model, FIXED=0.01, SATURATION=64, SHARPNESS=1e-9, OPTIMIZER=0.5, LOADING=0.001)

    seconds = _step_seconds(model, guess, batch_size=64, num_workers=0)

    assert seconds == pytest.approx(0.01 + 0.01 + 0.005 + 0.064, rel=1e-6)


def test_with_workers_the_longer_of_both_counts():
    model = _model()
    guess = _guess(model, FIXED=0.01, SATURATION=64, SHARPNESS=1e-9, OPTIMIZER=0.5, LOADING=0.01, SCALING=1.0, CAP=64)

    seconds = _step_seconds(model, guess, batch_size=64, num_workers=2)

    assert seconds == pytest.approx(0.64 / 2, rel=0.01)


def test_accumulation_pays_the_optimizer_once():
    model = _model(gradient_accumulation_steps=(1, 4), num_workers=(2,))
    guess = _guess(model, FIXED=0.01, SATURATION=64, SHARPNESS=1e-9, OPTIMIZER=0.5, LOADING=1e-6)

    once = _step_seconds(model, guess, batch_size=64, gradient_accumulation_steps=1, num_workers=2)
    four = _step_seconds(model, guess, batch_size=64, gradient_accumulation_steps=4, num_workers=2)

    assert once == pytest.approx(0.025)
    assert four == pytest.approx(0.085)


def test_on_a_cpu_loading_takes_its_cores_from_computing():
    guess_of = {"FIXED": 0.01, "SATURATION": 64, "SHARPNESS": 1e-9, "OPTIMIZER": 1e-3, "LOADING": 3e-4, "SHARE": 1.0}
    seconds = {}
    for on_cores in (False, True):
        model = _model(Hardware(cores=4, computes_on_cores=on_cores))
        guess = _guess(model, **guess_of, OVERSUBSCRIPTION=1e-6)
        seconds[on_cores] = _step_seconds(model, guess, batch_size=64, num_workers=2)

    assert seconds[False] == pytest.approx(0.02, rel=0.02)
    assert seconds[True] > 1.15 * seconds[False]


def test_workers_on_every_core_slow_computing():
    model = _model(Hardware(cores=4), num_workers=(2, 4))
    guess = _guess(model, LOADING=1e-7, OVERSUBSCRIPTION=0.5)

    few = _step_seconds(model, guess, batch_size=64, num_workers=2)
    all_of_them = _step_seconds(model, guess, batch_size=64, num_workers=4)

    assert all_of_them == pytest.approx(1.5 * few, rel=0.01)


@pytest.mark.parametrize("bend", [1e-9, 1.0, 10.0])
def test_memory_is_convex_in_the_batch(bend):
    model = _model(batch_size=(8, 16, 24, 32, 40), num_workers=(0,))
    guess = _guess(model, STATIC=0.2, SAMPLE=0.01, BEND=bend)

    peaks = np.exp(model.memory(guess, model.all_rows)[0])[model.all_rows.memory_group]

    assert (np.diff(peaks, 2) >= -1e-12).all()
    assert (np.diff(peaks) > 0).all()


def test_half_precision_is_expected_to_be_faster_on_large_batches_and_not_on_small_ones():
    model = _model(batch_size=(1, 1024), amp_dtype=(None, "bfloat16"), num_workers=(0,))
    guess = _guess(model)
    computing = model.computing(guess, model.all_rows)[0][model.all_rows.compute_group]

    def gain(batch):
        rows = [
            row_of(model.grid, {"batch_size": batch, "amp_dtype": dtype, "num_workers": 0})
            for dtype in (None, "bfloat16")
        ]
        return np.exp(computing[rows[0]] - computing[rows[1]])

    assert gain(1) < 1 < 1.3 < gain(1024)


def test_neighbours_of_an_ordered_knob_are_alike_and_different_knobs_are_not():
    model = _model(batch_size=(8,), num_workers=(0,), num_threads=(1, 2, 4, 8), amp_dtype=(None, "bfloat16"))
    felt = {
        (values["num_threads"], values["amp_dtype"]): model.parameters.design("sample_time", np.array([row]))[0]
        for row, values in enumerate(model.grid.named)
    }

    assert [felt[threads, None].sum() for threads in (1, 2, 4, 8)] == [0, 1, 2, 3]
    assert felt[8, None] @ felt[4, None] == 2
    assert felt[1, "bfloat16"] @ felt[8, None] == 0


def test_a_dtype_is_like_the_one_it_resembles_even_where_that_is_not_searched():
    both, alone = (_model(amp_dtype=dtypes) for dtypes in ((None, "bfloat16", "float16"), (None, "float16")))

    expected = [
        model.parameters.design("sample_time", np.array([row]))[0] @ model.parameters.means
        for model in (both, alone)
        for row in [row_of(model.grid, {"batch_size": 8, "num_workers": 0, "amp_dtype": "float16"})]
    ]

    assert expected[0] == expected[1] < 0


def test_a_reading_of_computing_alone_teaches_about_every_number_of_workers():
    model = _model(num_workers=(1, 2, 4))
    row = row_of(model.grid, {"batch_size": 64, "num_workers": 1})
    seen = Observation(samples_per_second=100.0, compute_samples_per_second=1000.0, loader_samples_per_second=100.0)

    data = gather(model, [(row, seen)])

    assert data.kind.tolist() == [0, 1, 2]
    assert np.exp(-data.seconds) == pytest.approx([100, 1000, 100])


def test_what_failed_for_no_reason_of_its_own_is_no_evidence():
    model = _model()

    data = gather(model, [(0, Observation(outcome=Outcome.CRASHED)), (1, Observation(outcome=Outcome.OOM_DEVICE))])

    assert data.rows.tolist() == [1]
    assert data.overflowed.tolist() == [0]


def _predictions(rates, fits):
    rates = np.array(rates, float)
    return Predictions(
        rates=rates, fits=np.array(fits, float) * np.ones_like(rates), memory=np.zeros(rates.shape[1]),
    )  # fmt: skip


def test_luck_that_is_shared_with_the_incumbent_is_no_gain():
    """Two particles disagree about how fast everything is; in each the second row is as fast as the first."""
    predictions = _predictions([[100, 100, 90], [200, 200, 210]], [1, 1, 1])

    gain = gains(predictions, incumbents(predictions, np.array([0])))

    assert gain.tolist() == [0, 0, 5]


def test_what_may_not_fit_is_worth_less():
    predictions = _predictions([[100, 200, 200]] * 2, [1, 1, 0.25])

    gain = gains(predictions, incumbents(predictions, np.array([0])))

    assert gain.tolist() == [0, 100, 25]


def test_the_bound_on_the_rest_looks_at_what_is_open_only():
    predictions = _predictions([[100, 150, 110]] * 50, [1, 1, 1])
    chance = np.random.default_rng(0)

    rest = faster_elsewhere(predictions, np.array([0]), np.array([False, False, True]), chance)

    assert rest == pytest.approx(0.1)
    assert faster_elsewhere(predictions, np.array([0]), np.array([False] * 3), chance) == 0
