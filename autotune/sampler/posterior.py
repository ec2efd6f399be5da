"""The posterior after the probes: particles of the unknowns, and the discrepancy that each of them implies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.core.stats import Floats
from autotune.sampler.discrepancy import Discrepancy, discrepancy
from autotune.sampler.fitted_data import ProbeData
from autotune.sampler.grid import Integers
from autotune.sampler.importance_sampling import PARTICLE_COUNT, Terms, maximum, particles_around
from autotune.sampler.parameters import OF_CLOCKS, OF_MEMORY
from autotune.sampler.performance_model import PerformanceModel

CENSORED_DEVIATION = 0.04  # standard deviation of log memory, for probes of which is known only whether they fitted
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


@dataclass(frozen=True)
class Fit:
    """A sample of the posterior of the performance model's unknowns, given the probes."""

    particles: Floats  # (particles, unknowns), equally weighted
    linearised_at: Floats  # (1, unknowns): the guess around which the discrepancy counts


def fit(model: PerformanceModel, data: ProbeData, chance: np.random.Generator) -> Fit:
    """Fit and sample the unknowns of time and those of memory apart: no reading depends on both.

    Unknowns that act on no probe keep their prior and cost no time: only knobs whose values were varied are fitted,
    however many knobs there are.
    """
    parameters = model.parameters
    particles = parameters.means + parameters.spreads * chance.standard_normal((PARTICLE_COUNT, len(parameters)))
    guess = parameters.means
    if len(data.rows):
        fields = discrepancy(model, data, guess[None], particles)
        fields, guess = _sample_clocks(model, data, fields, particles, chance)
        _sample_memory(model, data, fields, particles, chance)
    return Fit(particles, guess[None])


def posterior_of(model: PerformanceModel, data: ProbeData, fitted: Fit) -> Posterior:
    """Return the posterior for all rows of the model's grid, by the fitted unknowns and the probes' residuals."""
    particles = fitted.particles
    fields = discrepancy(model, data, fitted.linearised_at, particles)
    late = data.seconds - data.readings(model, particles)
    heavy = data.peaks - data.memories(model, particles)[:, data.with_peak]
    return Posterior(particles, *fields.compute_field(late), *fields.loader_field(late), *fields.memory_field(heavy))


def _sample_clocks(
    model: PerformanceModel, data: ProbeData, fields: Discrepancy, particles: Floats, chance: np.random.Generator
) -> tuple[Discrepancy, Floats]:
    """Set the particles' unknowns of time; return the fields at the fit, and the fit."""
    places, guess = data.places, model.parameters.means
    acting = (places.fixed_time, places.sample_time, places.loading, places.oversubscription)
    which = _touched(OF_CLOCKS, acting)
    for _ in range(LINEARISATIONS):
        guess = guess.copy()
        guess[which] = maximum(_of_clocks(model, data, fields, which), guess[which], model.parameters.spreads[which])
        fields = discrepancy(model, data, guess[None], particles)
    particles[:, which] = particles_around(_of_clocks(model, data, fields, which), guess[which], chance)
    return fields, guess


def _sample_memory(
    model: PerformanceModel, data: ProbeData, fields: Discrepancy, particles: Floats, chance: np.random.Generator
) -> None:
    which = _touched(OF_MEMORY, (data.places.fixed_memory, data.places.sample_memory))
    terms = _of_memory(model, data, fields, which)
    top = maximum(terms, model.parameters.means[which], model.parameters.spreads[which])
    particles[:, which] = particles_around(terms, top, chance)


def _touched(always: Sequence[int], designs: Sequence[Floats]) -> Integers:
    """Return the unknowns of the model itself and of the knobs that act on some probe."""
    acting = sum(np.abs(design).sum(0) for design in designs)
    return np.union1d(always, np.flatnonzero(acting))


def _of_clocks(model: PerformanceModel, data: ProbeData, fields: Discrepancy, which: Integers) -> Terms:
    def terms(guesses: Floats) -> Floats:
        late = data.seconds - data.readings(model, _complete(model, which, guesses))
        return np.concatenate([_prior(model, which, guesses), fields.whitened_times(late)], axis=1)

    return terms


def _of_memory(model: PerformanceModel, data: ProbeData, fields: Discrepancy, which: Integers) -> Terms:
    from scipy.special import log_ndtr

    def terms(guesses: Floats) -> Floats:
        memory = data.memories(model, _complete(model, which, guesses))
        peaks = fields.whitened_memories(data.peaks - memory[:, data.with_peak])
        over = np.sqrt(-2 * log_ndtr(memory[:, data.overflowed] / CENSORED_DEVIATION))
        under = np.sqrt(-2 * log_ndtr(-memory[:, data.fitted] / CENSORED_DEVIATION))
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
