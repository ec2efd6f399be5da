"""Which configuration to probe next: expected improvement per second, times the chance to fit.

Per second of the probe: Snoek, Larochelle and Adams, "Practical Bayesian Optimization of Machine Learning Algorithms",
2012, section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autotune.core.stats import Floats
from autotune.sampler.grid import Integers
from autotune.sampler.performance_model import PerformanceModel
from autotune.sampler.posterior import Posterior
from autotune.sampler.prediction import Prediction

# Exponent of the chance to fit: 3 instead of 2 more than halved the out-of-memory probes (decision 0021).
FIT_CAUTION = 3.0
CLOSENESS_GAIN = 1e-5  # of its rate, added to the gain of every row: decides only where almost nothing is left to gain
# Share of the best acquisition. Of the configurations above it the one with the fewest workers wins, because workers
# cost memory, and then the one with the fewest changes: a search may have no time left to take useless changes back.
AS_GOOD = 0.97
BOUND_CONFIDENCE = 0.9  # confidence of every interval, and of the bound on the remaining configurations
AT_ONCE = 8  # particles: their intermediate results for 10,000 rows fit into a cache of some megabytes
RIVAL_CHANCE = 0.5  # chance to fit, above which a running probe counts as a rival


@dataclass(frozen=True)
class Predictions:
    """The predicted behaviour of every row of a grid; (particles, rows) unless said otherwise."""

    rates: Floats  # samples/s
    fits: Floats  # chance to fit into memory
    memory: Floats  # (rows) median peak as a share of the usable memory


def predict(model: PerformanceModel, posterior: Posterior, chance: np.random.Generator) -> Predictions:
    """Return rates, with a discrepancy drawn once per particle and group, and chances to fit."""
    from scipy.special import ndtr

    particles, places = posterior.particles, model.all_rows
    draw = chance.standard_normal
    computing = model.computing(particles, places) + posterior.compute_mean
    computing += posterior.compute_spread * draw(computing.shape)
    loading = model.loading(particles, places) + posterior.loader_mean
    loading += posterior.loader_spread * draw(loading.shape)
    rates = np.empty((len(particles), len(places.samples)))
    for start in range(0, len(particles), AT_ONCE):
        some = slice(start, start + AT_ONCE)
        compute, load = model.clocks(particles[some], places, computing[some], loading[some])
        np.divide(places.samples, model.together(particles[some], places, compute, load), out=rates[some])
    memory = model.memory(particles, places) + posterior.memory_mean
    fits = ndtr(-memory / posterior.memory_spread)
    return Predictions(
        rates=rates,
        fits=fits[:, places.memory_group],
        memory=np.exp(np.median(memory, axis=0))[places.memory_group],
    )


def speeds(model: PerformanceModel, guesses: Floats) -> Floats:
    """Return the samples/s of every row by the model alone, (guesses, rows); 0 where it needs more than all memory."""
    places = model.all_rows
    clocks = model.clocks(guesses, places, model.computing(guesses, places), model.loading(guesses, places))
    fits = (model.memory(guesses, places) <= 0)[:, places.memory_group]
    found: Floats = places.samples / model.together(guesses, places, *clocks) * fits
    return found


def incumbents(predictions: Predictions, rows: Integers) -> Floats:
    """Return the rate of the best configuration among `rows` in every particle, as a column; 0 if there is none."""
    if not len(rows):
        return np.zeros((len(predictions.rates), 1))
    found: Floats = predictions.rates[:, rows].max(1, keepdims=True)
    return found


def rivals(predictions: Predictions, measured: Integers, running: Integers) -> Integers:
    """Return the rows to improve upon: measured ones that fit, and running ones that probably fit."""
    likely = running[predictions.fits[:, running].mean(0) > RIVAL_CHANCE]
    return np.unique(np.concatenate([measured, likely]))


def up_to_knee(predictions: Predictions, batches: Floats, share: float, least: float) -> Predictions:
    """Return the predictions with a rate of 0 for every row whose global batch is beyond the knee.

    The knee of a particle is the smallest global batch with which some row that probably fits is slower by no more than
    `share` than the fastest; a global batch of at most `least`, the baseline's, is never beyond it. No row beyond the
    knee can be the answer (decisions/0044), so the probes go to the rows about which particles disagree. `batches` are
    per row.
    """
    rates = np.where(predictions.fits > RIVAL_CHANCE, predictions.rates, 0.0)
    enough = rates >= (1 - share) * rates.max(1, keepdims=True)
    knees = np.maximum(np.where(enough, batches, np.inf).min(1, keepdims=True), least)
    return replace(predictions, rates=np.where(batches <= knees, predictions.rates, 0.0))


def gains(predictions: Predictions, best: Floats) -> Floats:
    """Return the expected improvement over `best` in samples/s, times the chance to fit, per row.

    Row and incumbent are compared within each particle: an error that both share is no gain.
    """
    found = np.zeros(predictions.rates.shape[1])
    # One particle at a time: its rates fit into a cache.
    for rates, fits, incumbent in zip(predictions.rates, predictions.fits, best, strict=True):
        gain = rates - incumbent
        np.maximum(gain, 0, out=gain)
        gain *= fits
        found += gain
    return found / len(predictions.rates)


def ranked(
    predictions: Predictions, gain: Floats, workers: Floats, changes: Integers, seconds: Floats | float = 1.0
) -> Integers:
    """Return the rows by expected gain per second of their probe, highest first.

    Of nearly equal rows those with fewer workers come first, and of these those with fewer changes to the baseline.
    """
    likely = predictions.fits.mean(0)
    score = gain * likely ** (FIT_CAUTION - 1) + CLOSENESS_GAIN * predictions.rates.mean(0) * likely**FIT_CAUTION
    score /= seconds
    order = np.argsort(-score, kind="stable")
    close = order[: int((score >= AS_GOOD * score.max()).sum())]
    return np.concatenate([close[np.lexsort((changes[close], workers[close]))], order[len(close) :]])


def prediction(
    predictions: Predictions, best: Floats, row: int, limit_bytes: int | None, value: float = 1.0
) -> Prediction:
    """Return the prediction for one row, in samples/s; `value` is the score of one sample/s if the rates are scores."""
    rates, low = predictions.rates[:, row], (1 - BOUND_CONFIDENCE) / 2
    incumbent = float(best.mean())
    gain = float((np.maximum(rates - best[:, 0], 0) * predictions.fits[:, row]).mean())
    return Prediction(
        samples_per_second=float(np.median(rates)) / value,
        low=float(np.quantile(rates, low)) / value,
        high=float(np.quantile(rates, 1 - low)) / value,
        memory_share=float(predictions.memory[row]),
        memory_bytes=int(predictions.memory[row] * limit_bytes) if limit_bytes else None,
        fits=float(predictions.fits[:, row].mean()),
        gain=gain / incumbent if incumbent > 0 else None,
    )


def faster_elsewhere(
    predictions: Predictions, measured: Integers, open_rows: NDArray[np.bool_], chance: np.random.Generator
) -> float:
    """Return the share by which no row of the mask `open_rows` is expected to beat the best measured one (90 %).

    0.04 is 4 %; infinite if nothing was measured.
    """
    if not len(measured):
        return float("inf")
    if not open_rows.any():
        return 0.0
    best = incumbents(predictions, measured)[:, 0]
    fits = chance.random((len(best), 1)) < predictions.fits[:, open_rows]
    rest = np.where(fits, predictions.rates[:, open_rows], 0.0).max(1)
    return float(max(0.0, np.quantile(rest / best, BOUND_CONFIDENCE) - 1))
