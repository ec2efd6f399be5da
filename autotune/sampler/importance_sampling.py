"""Particles of a posterior by adaptive importance sampling, beginning with a Gaussian around the best fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autotune.core.stats import Floats

Terms = Callable[[Floats], Floats]  # (guesses, unknowns) to terms whose squares sum to minus twice the log posterior
PARTICLE_COUNT = 128
PROPOSALS = 12 * PARTICLE_COUNT
PROPOSAL_INFLATION = 1.15  # factor of the proposal's covariance, which so covers the tails; weights correct for it
MOST_WEIGHT = 0.05  # of one particle (truncated importance sampling): otherwise a few would decide everything
MOST_EVALUATIONS = 40  # evaluations of the terms in one fit
CLOSE_ENOUGH = 1e-6  # relative tolerance of a fit: particles are drawn around it, and their weights correct it
DERIVATIVE_STEP = 1e-5  # of the numerical derivative
ENOUGH_PARTICLES = 8  # effective particles per unknown at which their covariance replaces that of the fit
PROPOSAL_JITTER = 1e-12  # keeps a covariance that is singular up to rounding factorisable


@dataclass(frozen=True)
class Gaussian:
    """A Gaussian proposal of importance sampling, whose covariance is inflated to cover the tails."""

    center: Floats
    covariance: Floats

    @property
    def root(self) -> Floats:
        """The Cholesky factor of the inflated covariance."""
        found: Floats = np.asarray(
            np.linalg.cholesky(self.covariance + PROPOSAL_JITTER * np.eye(len(self.center))), np.float64
        )
        return PROPOSAL_INFLATION * found

    def log_density(self, drawn: Floats) -> Floats:
        """Return the inflated Gaussian's log density at every row of `drawn`, up to a constant."""
        root = self.root
        away = np.linalg.solve(root, (drawn - self.center).T)
        found: Floats = -0.5 * (away**2).sum(0) - np.log(np.diag(root)).sum()
        return found


def maximum(terms: Terms, start: Floats, spreads: Floats) -> Floats:
    """Return the guess with the least sum of squares; `spreads` are the scales of the unknowns."""
    from scipy.optimize import least_squares

    found: Floats = least_squares(
        lambda guess: terms(guess[None])[0], start, jac=lambda guess: _slopes(terms, guess), method="lm",
        x_scale=spreads, ftol=CLOSE_ENOUGH, xtol=CLOSE_ENOUGH, max_nfev=MOST_EVALUATIONS,
    ).x  # fmt: skip
    return found


def laplace(terms: Terms, top: Floats) -> Gaussian:
    """Return the Gaussian with the curvature at the maximum (Laplace's approximation)."""
    slopes = _slopes(terms, top)
    return Gaussian(top, np.asarray(np.linalg.inv(slopes.T @ slopes), np.float64))


def particles_around(terms: Terms, top: Floats, chance: np.random.Generator) -> Floats:
    """Return equally weighted particles, (PARTICLE_COUNT, unknowns).

    The first proposal has the curvature at the maximum `top`, the second the moments of the first sample.
    """
    first = laplace(terms, top)
    second = _moments(*_weighted(terms, first, chance), first)
    drawn, weights = _weighted(terms, second, chance)
    found: Floats = drawn[chance.choice(len(drawn), PARTICLE_COUNT, p=weights)]
    return found


def _weighted(terms: Terms, proposal: Gaussian, chance: np.random.Generator) -> tuple[Floats, Floats]:
    """Return draws from `proposal` and their weights, which sum to 1, none far above `MOST_WEIGHT`."""
    drawn = proposal.center + chance.standard_normal((PROPOSALS, len(proposal.center))) @ proposal.root.T
    logarithms = -0.5 * (terms(drawn) ** 2).sum(1) - proposal.log_density(drawn)
    weights = np.exp(logarithms - logarithms.max())
    weights = np.minimum(weights / weights.sum(), MOST_WEIGHT)
    return drawn, weights / weights.sum()


def _moments(drawn: Floats, weights: Floats, first: Gaussian) -> Gaussian:
    center = weights @ drawn
    seen = (drawn - center).T @ ((drawn - center) * weights[:, None])
    effective = 1 / (weights**2).sum()  # effective number of particles
    trust = min(1.0, effective / (ENOUGH_PARTICLES * len(center)))
    return Gaussian(center, trust * seen + (1 - trust) * first.covariance)


def _slopes(terms: Terms, guess: Floats) -> Floats:
    """Return the derivatives of all terms, (terms, unknowns), by one evaluation with every unknown moved in turn."""
    moved = np.vstack([guess, guess + DERIVATIVE_STEP * np.eye(len(guess))])
    found = terms(moved)
    slopes: Floats = ((found[1:] - found[0]) / DERIVATIVE_STEP).T
    return slopes
