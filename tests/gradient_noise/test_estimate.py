"""The noise scale against closed forms: a quadratic whose gradient noise is known."""

import math

import msgspec
import numpy as np
import pytest

from autotune.gradient_noise.estimate import (
    batch_range,
    best_batch,
    efficiency,
    estimate,
    goodput,
    half_batch,
    learning_rate_factor,
)
from autotune.gradient_noise.records import GradientSample, NoiseScale

DIMENSIONS = 400


def drawn(phi, *, batches=(8,) * 64, seed=0, scale=1.0):
    """Gradients of f(w) = |w - x|^2 / 2 at a w with |G| = `scale`: x scatters so that tr(Sigma) / |G|^2 is `phi`."""
    chance = np.random.default_rng(seed)
    mean = np.full(DIMENSIONS, scale / math.sqrt(DIMENSIONS))
    spread = [scale * math.sqrt(phi / DIMENSIONS / size) for size in batches]
    gradients = np.stack([mean + each * chance.standard_normal(DIMENSIONS) for each in spread])
    return GradientSample(
        losses=(1.0,) * 30,
        has_fallen=True,
        samples=tuple(batches),
        squared_norms=tuple((gradients**2).sum(axis=1).tolist()),
        alignments=tuple((gradients @ gradients.mean(axis=0)).tolist()),
    )


def noise(phi=26.0, low=18.0, high=39.0):
    return NoiseScale(phi=phi, low=low, high=high, steps=30, has_fallen=True, samples=512)


@pytest.mark.parametrize("phi", [2.0, 25.0, 100.0])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_the_noise_scale_of_a_quadratic_is_found_whatever_the_length_of_its_gradient(phi, scale):
    found = estimate(drawn(phi, scale=scale))

    assert found.phi == pytest.approx(phi, rel=0.25)
    assert found.low < found.phi < found.high
    assert (found.steps, found.samples) == (30, 512)


def test_estimates_scatter_around_the_truth_and_nine_of_ten_intervals_hold_it():
    truth = 50.0

    found = [estimate(drawn(truth, seed=seed)) for seed in range(200)]

    assert np.median([one.phi for one in found]) == pytest.approx(truth, rel=0.03)
    holding = np.mean([one.low <= truth <= one.high for one in found])
    assert 0.84 <= holding <= 0.97  # 0.9 and its standard error of 0.02


def test_micro_batches_of_different_sizes_give_the_same_noise_scale():
    mixed = (2, 4, 8, 32) * 32

    found = np.median([estimate(drawn(20.0, batches=mixed, seed=seed)).phi for seed in range(20)])

    assert found == pytest.approx(20.0, rel=0.06)


def test_a_signal_below_its_noise_gives_a_lower_bound_only():
    found = [estimate(drawn(1e5, seed=seed)) for seed in range(20)]

    known = [one for one in found if one is not None]
    assert len(known) > 10
    assert all(one.phi is None and one.high is None and 0 < one.low < 1e5 for one in known)


def test_larger_micro_batches_resolve_what_small_ones_cannot():
    assert estimate(drawn(4e4)).phi is None
    assert estimate(drawn(4e4, batches=(32_768,) * 64)).phi == pytest.approx(4e4, rel=0.25)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_handful_of_micro_batches_says_nothing(count):
    assert estimate(drawn(20.0, batches=(8,) * count) if count else empty()) is None


def empty():
    return GradientSample(losses=(), has_fallen=False, samples=(), squared_norms=(), alignments=())


def test_the_same_batch_again_and_again_has_no_noise_to_measure():
    same = GradientSample(
        losses=(), has_fallen=True, samples=(8,) * 64, squared_norms=(2.0,) * 64, alignments=(2.0,) * 64
    )

    assert estimate(same) is None


def test_a_sample_with_uneven_lengths_is_no_sample():
    with pytest.raises(ValueError, match="64 micro-batches with 63 norms"):
        msgspec.structs.replace(drawn(1.0), squared_norms=(1.0,) * 63).__post_init__()


def test_a_batch_as_large_as_the_noise_scale_wastes_half_of_its_samples():
    assert efficiency(26, 26.0) == 0.5
    assert efficiency(256, 26.0) == pytest.approx(0.092, abs=1e-3)
    assert efficiency(1e9, None) == 1.0
    assert goodput(1000.0, 26, 26.0) == 500.0


def test_the_best_batch_is_where_goodput_is_highest():
    alpha, beta, phi = 0.004, 0.0003, 60.0
    batches = np.arange(1, 4096)

    rates = [goodput(size / (alpha + beta * size), size, phi) for size in batches]

    assert best_batch(phi, alpha / beta) == pytest.approx(batches[int(np.argmax(rates))], abs=0.5)


def test_half_of_the_throughput_is_found_from_two_batches_and_from_many():
    alpha, beta = 0.004, 0.0003

    def seconds(*batches):
        return [alpha + beta * size for size in batches]

    assert half_batch([8, 64], seconds(8, 64)) == pytest.approx(alpha / beta)
    assert half_batch([1, 4, 16, 256], seconds(1, 4, 16, 256)) == pytest.approx(alpha / beta)
    assert half_batch([8, 8], seconds(8, 8)) is None
    assert half_batch([8, 64], [0.001, 0.1]) is None  # the larger one is slower by more than its size


def test_the_range_of_good_batches_counts_the_growth_of_the_noise_scale_in():
    assert batch_range(noise(), half=32.0) == pytest.approx((math.sqrt(32 * 18), math.sqrt(32 * 3 * 39)))
    assert batch_range(noise(phi=None, high=None), half=32.0) is None


def test_the_learning_rate_grows_with_the_batch_at_first_and_hardly_beyond_the_noise_scale():
    assert learning_rate_factor(2.0, 1.0, 1e6) == pytest.approx(2.0, rel=1e-3)
    assert learning_rate_factor(64.0, 64.0, 26.0) == 1.0
    assert learning_rate_factor(1e9, 26.0, 26.0) == pytest.approx(2.0)
