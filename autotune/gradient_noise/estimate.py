"""The gradient noise scale: how large a batch may be before its samples are wasted, and the consequences for speed.

    phi = tr(Sigma) / |G|^2        samples, with Sigma the covariance of one sample's gradient and G its mean

Relative to a very small batch, each sample in a batch of B samples advances training by 1 / (1 + B / phi) (McCandlish
et al. 2018, arXiv 1812.06162; the efficiency of Pollux, OSDI 2021, up to a constant). Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, harmonic_mean

from autotune.gradient_noise.records import GradientSample, NoiseScale

NOISE_CONFIDENCE = 0.9  # of intervals; the jackknife's contained the truth in 92 to 94 of 100 (docs/notes/noise.md 2)
FEWEST_SAMPLED_BATCHES = 8  # micro-batches: with fewer the spread is due to chance
NOISE_GROWTH, MOST_NOISE_GROWTH = 3.0, 10  # factors by which phi grows in the rest of training (docs/notes/noise.md 3)


def estimate(sample: GradientSample) -> NoiseScale | None:
    """Return the noise scale, with an interval by the delete-one jackknife on its logarithm; None if it is unknown.

    |G|^2 and tr(Sigma) are each estimated without bias from the micro-batches' norms and that of their mean (McCandlish
    et al. 2018, appendix A.1, small batch: one, large batch: all); phi is the ratio of tr(Sigma) to |G|^2. Batches of
    different sizes count by the harmonic mean, because a gradient's variance is proportional to 1 / size.
    """
    count = len(sample.samples)
    if count < FEWEST_SAMPLED_BATCHES:
        return None
    batch, norms, alignments = harmonic_mean(sample.samples), sample.squared_norms, sample.alignments
    mean_norm, norm_of_mean = fmean(norms), fmean(alignments)
    signal, noise = _moments(mean_norm, norm_of_mean, count, batch)
    without = [  # without each micro-batch in turn: the others' mean squared norm, and the squared norm of their mean
        _moments(
            (count * mean_norm - norm) / (count - 1),
            (count**2 * norm_of_mean - 2 * count * alignment + norm) / (count - 1) ** 2,
            count - 1,
            batch,
        )
        for norm, alignment in zip(norms, alignments, strict=True)
    ]
    signals, noises = zip(*without, strict=True)
    if min(noises) <= 0:
        return None
    quantile = NormalDist().inv_cdf(0.5 + NOISE_CONFIDENCE / 2)
    margin = quantile * _jackknife(signals)
    phi, high = None, None
    if signal > margin and min(signals) > 0:
        width = math.exp(quantile * _jackknife([math.log(noise / signal) for signal, noise in without]))
        phi = noise / signal
        low, high = phi / width, phi * width
    elif signal + margin > 0:
        low = max(0.0, noise - quantile * _jackknife(noises)) / (signal + margin)
    else:
        return None
    return NoiseScale(
        phi=phi, low=low, high=high, steps=sample.steps, has_fallen=sample.has_fallen, samples=sum(sample.samples)
    )


def efficiency(batch: float, phi: float | None) -> float:
    """Return how much a sample in a batch advances training, relative to a very small batch: 1 / (1 + B / phi), 0..1.

    Without `phi` there is no evidence that any batch wastes samples: return 1.
    """
    return 1.0 if phi is None else 1 / (1 + batch / phi)


def goodput(samples_per_second: float, batch: float, phi: float | None) -> float:
    """Return the samples/s that count: throughput times efficiency, Pollux's goodput for a tiny reference batch."""
    return samples_per_second * efficiency(batch, phi)


def half_batch(batches: Sequence[float], step_seconds: Sequence[float]) -> float | None:
    """Return the global batch with half of the largest possible throughput; None if measurements do not show it.

    The seconds per optimizer step are alpha + beta * batch, fitted by least squares on relative errors (1.5 to 7 % off
    over 1 to 256 samples, docs/notes/throughput.md 1); the result is alpha / beta. This needs two different batches.
    """
    if len(set(batches)) < 2:
        return None
    import numpy as np  # not needed to read a recommendation

    sizes, seconds = np.asarray(batches, dtype=float), np.asarray(step_seconds, dtype=float)
    design = np.stack([1 / seconds, sizes / seconds], axis=1)
    alpha, beta = np.linalg.lstsq(design, np.ones(len(sizes)), rcond=None)[0]
    return float(alpha / beta) if alpha > 0 and beta > 0 else None


def best_batch(phi: float, half: float) -> float:
    """Return the global batch that reaches a given loss soonest: sqrt(phi * b_half) (docs/notes/noise.md 1).

    The time to that loss is proportional to (1 + phi / B) (alpha + beta * B). A phi that is wrong by a factor of 3
    costs 8 % at most.
    """
    return math.sqrt(phi * half)


def batch_range(noise: NoiseScale, half: float) -> tuple[float, float] | None:
    """Return the bounds of the best global batch, with phi's growth; None if no upper bound is known."""
    if noise.high is None:
        return None
    return best_batch(noise.low, half), best_batch(NOISE_GROWTH * noise.high, half)


def learning_rate_factor(batch: float, before: float, phi: float) -> float:
    """Return the factor for SGD's learning rate if the global batch changes from `before`: a starting point.

    It is (1 + phi / B0) / (1 + phi / B), right within a factor of about 2; for Adam its square root
    (docs/notes/noise.md 4: rms error of 0.5 and 0.4 octaves; the linear rule 2.1 and 1.7).
    """
    return (1 + phi / before) / (1 + phi / batch)


def _moments(mean_norm: float, norm_of_mean: float, count: int, batch: float) -> tuple[float, float]:
    """Return |G|^2 and tr(Sigma), both without bias, from `count` micro-batches of `batch` samples."""
    signal = (count * norm_of_mean - mean_norm) / (count - 1)
    return signal, (mean_norm - norm_of_mean) * batch * count / (count - 1)


def _jackknife(values: Sequence[float]) -> float:
    """Return the standard error from delete-one values (Efron & Stein 1981)."""
    middle = fmean(values)
    return math.sqrt((len(values) - 1) / len(values) * sum((value - middle) ** 2 for value in values))
