"""Particles of a posterior that may be bent: Gaussians around several fits, mixed, and weighed by what is plausible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.structured.grid import Floats

Terms = Callable[[Floats], Floats]  # (guesses, unknowns) to terms whose squares sum to minus twice the log posterior
PARTICLES = 128
PROPOSALS = 12 * PARTICLES
INFLATION = 1.15  # of the proposals over the curvature at the top: weights correct it, tails are seen
MOST_WEIGHT = 0.05  # of one particle, lest a few decide everything (truncated importance sampling)
MOST_EVALUATIONS = 40  # of a fit
CLOSE_ENOUGH = 1e-6  # relative, of a fit: its top is where particles are drawn from, and their weights correct it
STEP = 1e-5  # of the numerical derivative
ENOUGH = 8  # particles per unknown that must carry weight before their covariance is believed
JITTER = 1e-12  # keeps a covariance that is singular up to rounding factorisable
ROUNDS = 2  # of weighing: the second proposes from what the first found, too


@dataclass(frozen=True)
class Gaussian:
    """One part of a proposal."""

    center: Floats
    covariance: Floats

    @property
    def root(self) -> Floats:
        """Cholesky factor of the inflated covariance."""
        found: Floats = np.asarray(np.linalg.cholesky(self.covariance + JITTER * np.eye(len(self.center))), np.float64)
        return INFLATION * found

    def log_density(self, drawn: Floats) -> Floats:
        """Of the inflated Gaussian at every line of `drawn`, up to a constant that all share."""
        root = self.root
        away = np.linalg.solve(root, (drawn - self.center).T)
        found: Floats = -0.5 * (away**2).sum(0) - np.log(np.diag(root)).sum()
        return found


def most_probable(terms: Terms, start: Floats, spreads: Floats) -> Floats:
    """Where the squares sum to the least; `spreads` are the scales of the unknowns."""
    from scipy.optimize import least_squares

    found: Floats = least_squares(
        lambda guess: terms(guess[None])[0], start, jac=lambda guess: _slopes(terms, guess), method="lm",
        x_scale=spreads, ftol=CLOSE_ENOUGH, xtol=CLOSE_ENOUGH, max_nfev=MOST_EVALUATIONS,
    ).x  # fmt: skip
    return found


def around(terms: Terms, top: Floats) -> Gaussian:
    """The Gaussian with the curvature at the top (Laplace)."""
    slopes = _slopes(terms, top)
    return Gaussian(top, np.asarray(np.linalg.inv(slopes.T @ slopes), np.float64))


def anchored(terms: Terms, start: Floats, spreads: Floats, unknown: int, places: Sequence[float]) -> list[Gaussian]:
    """Gaussians along a valley: one around the fit that keeps `unknown` near each of the `places`.

    The width of each is the distance of the places. Where the data decide about `unknown` all of them end up at one
    place; where two unknowns can explain one reading, together they follow the bend that no single one can.
    """
    width = abs(places[1] - places[0])
    found = []
    for place in places:

        def held(guesses: Floats, place: float = place) -> Floats:
            return np.concatenate([terms(guesses), (guesses[:, [unknown]] - place) / width], axis=1)

        start = start.copy()
        start[unknown] = place
        start = most_probable(held, start, spreads)
        found.append(around(held, start))
    return found


def weighed(terms: Terms, parts: Sequence[Gaussian], chance: np.random.Generator) -> Floats:
    """Equally weighed particles, (PARTICLES, unknowns), drawn from all `parts` alike and then by plausibility."""
    parts = list(parts)
    for left in reversed(range(ROUNDS)):
        drawn = _drawn(parts, chance)
        proposed = np.logaddexp.reduce([part.log_density(drawn) for part in parts], axis=0)
        weights = _truncated(-0.5 * (terms(drawn) ** 2).sum(1) - proposed)
        if left:
            adapted = _moments(drawn, weights, parts[0])
            parts = [*parts, adapted] if len(parts) > 1 else [adapted]
    found: Floats = drawn[chance.choice(len(drawn), PARTICLES, p=weights)]
    return found


def _moments(drawn: Floats, weights: Floats, first: Gaussian) -> Gaussian:
    center = weights @ drawn
    seen = (drawn - center).T @ ((drawn - center) * weights[:, None])
    carrying = 1 / (weights**2).sum()  # particles that carry the weight
    trust = min(1.0, carrying / (ENOUGH * len(center)))
    return Gaussian(center, trust * seen + (1 - trust) * first.covariance)


def _drawn(parts: Sequence[Gaussian], chance: np.random.Generator) -> Floats:
    each = -(-PROPOSALS // len(parts))
    normal = chance.standard_normal((len(parts), each, len(parts[0].center)))
    return np.concatenate([part.center + one @ part.root.T for part, one in zip(parts, normal, strict=True)])


def _slopes(terms: Terms, guess: Floats) -> Floats:
    """Derivatives of all terms, (terms, unknowns): every unknown moved at once, in one evaluation."""
    moved = np.vstack([guess, guess + STEP * np.eye(len(guess))])
    found = terms(moved)
    slopes: Floats = ((found[1:] - found[0]) / STEP).T
    return slopes


def _truncated(logarithms: Floats) -> Floats:
    """Weights that sum to 1, none far above `MOST_WEIGHT`."""
    weights = np.exp(logarithms - logarithms.max())
    weights = np.minimum(weights / weights.sum(), MOST_WEIGHT)
    found: Floats = weights / weights.sum()
    return found
