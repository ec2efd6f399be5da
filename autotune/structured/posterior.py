"""What is believed after the probes: the most probable unknowns, and weighed particles around them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.structured.departures import Departures, departures
from autotune.structured.evidence import Evidence
from autotune.structured.grid import Floats
from autotune.structured.law import Law

PARTICLES = 128
PROPOSALS = 12 * PARTICLES
INFLATION = 1.15  # of the proposals over the curvature at the top: weights correct it, tails are seen
MOST_WEIGHT = 0.05  # of one particle, lest a few decide everything (truncated importance sampling)
CENSOR = 0.04  # standard deviation of the logarithm of memory against which a fit or an overflow is judged
LINEARISATIONS = 2  # of what computing and loading contribute: at the prior, and at the first fit
STEP = 1e-5  # of the numerical derivative
ENOUGH = 8  # particles per unknown that must carry weight before their covariance is believed
JITTER = 1e-12  # keeps a covariance that is singular up to rounding factorisable
ROUNDS = 2  # of weighing: the second proposes from what the first found


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


def believe(law: Law, evidence: Evidence, chance: np.random.Generator) -> Posterior:
    """Fit, draw, weigh."""
    top = law.parameters.means
    for _ in range(LINEARISATIONS if len(evidence.rows) else 0):
        fields = departures(law, evidence, top[None])
        top = _most_probable(law, evidence, fields, top)
    fields = departures(law, evidence, top[None])
    particles = _particles(law, evidence, fields, top, chance)
    late = evidence.seconds - evidence.readings(law, particles)
    heavy = evidence.peaks - evidence.memories(law, particles)[:, evidence.weighed]
    cell_mean, cell_spread = fields.cell_field(late)
    stream_mean, stream_spread = fields.stream_field(late)
    room_mean, room_spread = fields.room_field(heavy)
    return Posterior(
        particles=particles, cell_mean=cell_mean, cell_spread=cell_spread, stream_mean=stream_mean,
        stream_spread=stream_spread, room_mean=room_mean, room_spread=room_spread,
    )  # fmt: skip


def _residuals(law: Law, evidence: Evidence, fields: Departures, guesses: Floats) -> Floats:
    """Terms whose squares sum to minus twice the log posterior, (guesses, terms)."""
    from scipy.special import log_ndtr

    prior = (guesses - law.parameters.means) / law.parameters.spreads
    times = fields.whitened_times(evidence.seconds - evidence.readings(law, guesses))
    memory = evidence.memories(law, guesses)
    peaks = fields.whitened_memories(evidence.peaks - memory[:, evidence.weighed])
    over = np.sqrt(-2 * log_ndtr(memory[:, evidence.overflowed] / CENSOR))
    under = np.sqrt(-2 * log_ndtr(-memory[:, evidence.fitted] / CENSOR))
    terms: Floats = np.concatenate([prior, times, peaks, over, under], axis=1)
    return terms


def _most_probable(law: Law, evidence: Evidence, fields: Departures, start: Floats) -> Floats:
    from scipy.optimize import least_squares

    def terms(guess: Floats) -> Floats:
        found: Floats = _residuals(law, evidence, fields, guess[None])[0]
        return found

    def slopes(guess: Floats) -> Floats:
        return _slopes(law, evidence, fields, guess)

    found: Floats = least_squares(terms, start, jac=slopes, method="trf", x_scale=law.parameters.spreads, max_nfev=40).x
    return found


def _slopes(law: Law, evidence: Evidence, fields: Departures, guess: Floats) -> Floats:
    """Derivatives of all residuals, (terms, unknowns): every unknown moved at once, in one evaluation."""
    moved = np.vstack([guess, guess + STEP * np.eye(len(guess))])
    terms = _residuals(law, evidence, fields, moved)
    slopes: Floats = ((terms[1:] - terms[0]) / STEP).T
    return slopes


def _particles(law: Law, evidence: Evidence, fields: Departures, top: Floats, chance: np.random.Generator) -> Floats:
    means, spreads = law.parameters.means, law.parameters.spreads
    if not len(evidence.rows):
        return means + spreads * chance.standard_normal((PARTICLES, len(means)))
    slopes = _slopes(law, evidence, fields, top)
    center, covariance = top, np.linalg.inv(slopes.T @ slopes)
    for left in reversed(range(ROUNDS)):
        root = np.linalg.cholesky(covariance + JITTER * np.eye(len(top)))
        normal = chance.standard_normal((PROPOSALS, len(top)))
        drawn = center + INFLATION * normal @ root.T
        plausible = -0.5 * (_residuals(law, evidence, fields, drawn) ** 2).sum(1)
        weights = _truncated(plausible + 0.5 * (normal**2).sum(1))
        if left:
            center = weights @ drawn
            seen = (drawn - center).T @ ((drawn - center) * weights[:, None])
            carrying = 1 / (weights**2).sum()  # particles that carry the weight
            trust = min(1.0, carrying / (ENOUGH * len(top)))
            covariance = trust * seen + (1 - trust) * covariance
    found: Floats = drawn[chance.choice(PROPOSALS, PARTICLES, p=weights)]
    return found


def _truncated(logarithms: Floats) -> Floats:
    """Weights that sum to 1, none far above `MOST_WEIGHT`."""
    weights = np.exp(logarithms - logarithms.max())
    weights = np.minimum(weights / weights.sum(), MOST_WEIGHT)
    found: Floats = weights / weights.sum()
    return found
