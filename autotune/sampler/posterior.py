"""The posterior after the probes: particles of the unknowns, and the discrepancy that each of them implies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.sampler.data import ProbeData
from autotune.sampler.discrepancy import Discrepancy, discrepancy
from autotune.sampler.grid import Floats, Integers
from autotune.sampler.importance_sampling import PARTICLES, Terms, maximum, particles_around
from autotune.sampler.performance_model import PerformanceModel

CENSOR = 0.04  # standard deviation of log memory, for probes of which only is known whether they fitted
LINEARISATIONS = 2  # of the discrepancy: at the prior, and at the first fit


@dataclass(frozen=True)
class Posterior:
    """Equally weighted particles of the unknowns, with the discrepancy that each implies."""

    particles: Floats  # (particles, unknowns)
    compute_mean: Floats  # (particles, compute groups): log seconds beyond the model's
    compute_spread: Floats  # (compute groups)
    loader_mean: Floats
    loader_spread: Floats
    memory_mean: Floats
    memory_spread: Floats


def fit_posterior(model: PerformanceModel, data: ProbeData, chance: np.random.Generator) -> Posterior:
    """Fit and sample the unknowns of time and those of memory apart: no reading depends on both."""
    parameters = model.parameters
    particles = parameters.means + parameters.spreads * chance.standard_normal((PARTICLES, len(parameters)))
    fields = discrepancy(model, data, parameters.means[None])
    if len(data.rows):
        fields = _sample_clocks(model, data, fields, particles, chance)
        _sample_memory(model, data, fields, particles, chance)
    late = data.seconds - data.readings(model, particles)
    heavy = data.peaks - data.memories(model, particles)[:, data.with_peak]
    return Posterior(particles, *fields.compute_field(late), *fields.loader_field(late), *fields.memory_field(heavy))


def _sample_clocks(
    model: PerformanceModel, data: ProbeData, fields: Discrepancy, particles: Floats, chance: np.random.Generator
) -> Discrepancy:
    """Fill in the particles' unknowns of time, and return the fields at the fit."""
    which, guess = model.parameters.of_clocks, model.parameters.means
    for _ in range(LINEARISATIONS):
        guess = guess.copy()
        guess[which] = maximum(_of_clocks(model, data, fields), guess[which], model.parameters.spreads[which])
        fields = discrepancy(model, data, guess[None])
    terms = _of_clocks(model, data, fields)
    particles[:, which] = particles_around(terms, guess[which], chance)
    return fields


def _sample_memory(
    model: PerformanceModel, data: ProbeData, fields: Discrepancy, particles: Floats, chance: np.random.Generator
) -> None:
    which, terms = model.parameters.of_memory, _of_memory(model, data, fields)
    top = maximum(terms, model.parameters.means[which], model.parameters.spreads[which])
    particles[:, which] = particles_around(terms, top, chance)


def _of_clocks(model: PerformanceModel, data: ProbeData, fields: Discrepancy) -> Terms:
    which = model.parameters.of_clocks

    def terms(guesses: Floats) -> Floats:
        late = data.seconds - data.readings(model, _complete(model, which, guesses))
        return np.concatenate([_prior(model, which, guesses), fields.whitened_times(late)], axis=1)

    return terms


def _of_memory(model: PerformanceModel, data: ProbeData, fields: Discrepancy) -> Terms:
    from scipy.special import log_ndtr

    which = model.parameters.of_memory

    def terms(guesses: Floats) -> Floats:
        memory = data.memories(model, _complete(model, which, guesses))
        peaks = fields.whitened_memories(data.peaks - memory[:, data.with_peak])
        over = np.sqrt(-2 * log_ndtr(memory[:, data.overflowed] / CENSOR))
        under = np.sqrt(-2 * log_ndtr(-memory[:, data.fitted] / CENSOR))
        return np.concatenate([_prior(model, which, guesses), peaks, over, under], axis=1)

    return terms


def _prior(model: PerformanceModel, which: Integers, guesses: Floats) -> Floats:
    found: Floats = (guesses - model.parameters.means[which]) / model.parameters.spreads[which]
    return found


def _complete(model: PerformanceModel, which: Integers, guesses: Floats) -> Floats:
    """Return guesses of all unknowns, those beyond `which` at their means."""
    found = np.tile(model.parameters.means, (len(guesses), 1))
    found[:, which] = guesses
    return found
