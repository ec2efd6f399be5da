"""What is believed after the probes: the clocks' and the memory's unknowns as weighed particles, and the departures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.structured import parameters as unknown
from autotune.structured.departures import Departures, broken, departures
from autotune.structured.evidence import Evidence
from autotune.structured.grid import Floats, Integers
from autotune.structured.law import Law
from autotune.structured.weighing import PARTICLES, Terms, anchored, around, most_probable, weighed

CENSOR = 0.04  # standard deviation of the logarithm of memory against which a fit or an overflow is judged
LINEARISATIONS = 2  # of what computing and loading contribute: at the prior, and at the first fit
# Standard deviations of the prior at which the memory of a sample is held for a while. One small batch measured, and
# nobody knows whether its peak is the model's or the samples': a valley over orders of magnitude with a sharp bend at
# its end, and the most probable guess sits in that bend, where every larger batch is hopeless.
HELD = (-1.8, -0.9, 0.0, 0.9, 1.8)


@dataclass(frozen=True)
class Posterior:
    """Equally weighed particles of the unknowns, with the departures that each implies."""

    particles: Floats  # (particles, unknowns)
    cell_mean: Floats  # (particles, cells): logarithm by which computing departs from the law
    cell_spread: Floats  # (cells)
    stream_mean: Floats
    stream_spread: Floats
    room_mean: Floats
    room_spread: Floats
    scale: Floats  # (arms) how many times further than expected the law is off there; 1 where it holds


def believe(law: Law, evidence: Evidence, chance: np.random.Generator) -> Posterior:
    """Fit, draw, weigh: the clocks and the memory apart, for no reading tells about both."""
    parameters = law.parameters
    particles = parameters.means + parameters.spreads * chance.standard_normal((PARTICLES, len(parameters)))
    fields = departures(law, evidence, parameters.means[None])
    if len(evidence.rows):
        fields = _clocks(law, evidence, fields, particles, chance)
        _memory(law, evidence, fields, particles, chance)
    late = evidence.seconds - evidence.readings(law, particles)
    heavy = evidence.peaks - evidence.memories(law, particles)[:, evidence.weighed]
    cell_mean, cell_spread = fields.cell_field(late)
    stream_mean, stream_spread = fields.stream_field(late)
    room_mean, room_spread = fields.room_field(heavy)
    return Posterior(
        particles=particles, cell_mean=cell_mean, cell_spread=cell_spread, stream_mean=stream_mean,
        stream_spread=stream_spread, room_mean=room_mean, room_spread=room_spread, scale=fields.scale,
    )  # fmt: skip


def _clocks(
    law: Law, evidence: Evidence, fields: Departures, particles: Floats, chance: np.random.Generator
) -> Departures:
    """Fill the particles' unknowns of time; the fields as they are at the fit."""
    which, guess = law.parameters.of_clocks, law.parameters.means
    for _ in range(LINEARISATIONS):
        terms = _of_clocks(law, evidence, fields)
        guess = guess.copy()
        guess[which] = most_probable(terms, guess[which], law.parameters.spreads[which])
        fields = departures(law, evidence, guess[None], broken(law, evidence, guess[None]))
    terms = _of_clocks(law, evidence, fields)
    particles[:, which] = weighed(terms, [around(terms, guess[which])], chance)
    return fields


def _memory(law: Law, evidence: Evidence, fields: Departures, particles: Floats, chance: np.random.Generator) -> None:
    """Fill the particles' unknowns of memory."""
    parameters, which = law.parameters, law.parameters.of_memory
    terms, sample = _of_memory(law, evidence, fields), int(np.flatnonzero(which == unknown.SAMPLE)[0])
    places = [float(parameters.means[unknown.SAMPLE] + held * parameters.spreads[unknown.SAMPLE]) for held in HELD]
    prior = parameters.means[which], parameters.spreads[which]
    parts = [around(terms, most_probable(terms, *prior)), *anchored(terms, *prior, sample, places)]
    particles[:, which] = weighed(terms, parts, chance)


def _of_clocks(law: Law, evidence: Evidence, fields: Departures) -> Terms:
    which = law.parameters.of_clocks

    def terms(guesses: Floats) -> Floats:
        late = evidence.seconds - evidence.readings(law, _whole(law, which, guesses))
        return np.concatenate([_prior(law, which, guesses), fields.whitened_times(late)], axis=1)

    return terms


def _of_memory(law: Law, evidence: Evidence, fields: Departures) -> Terms:
    from scipy.special import log_ndtr

    which = law.parameters.of_memory

    def terms(guesses: Floats) -> Floats:
        memory = evidence.memories(law, _whole(law, which, guesses))
        peaks = fields.whitened_memories(evidence.peaks - memory[:, evidence.weighed])
        over = np.sqrt(-2 * log_ndtr(memory[:, evidence.overflowed] / CENSOR))
        under = np.sqrt(-2 * log_ndtr(-memory[:, evidence.fitted] / CENSOR))
        return np.concatenate([_prior(law, which, guesses), peaks, over, under], axis=1)

    return terms


def _prior(law: Law, which: Integers, guesses: Floats) -> Floats:
    found: Floats = (guesses - law.parameters.means[which]) / law.parameters.spreads[which]
    return found


def _whole(law: Law, which: Integers, guesses: Floats) -> Floats:
    """Guesses of all unknowns, those that are not asked about at their means."""
    found = np.tile(law.parameters.means, (len(guesses), 1))
    found[:, which] = guesses
    return found
