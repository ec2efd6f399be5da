"""A grid from Optuna's distributions, for whoever uses the sampler alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from autotune.structured.grid import Grid

MOST_VALUES = 32  # of one parameter: what has more is looked at in fewer places, evenly spread
PLACES = 12
MOST_POINTS = 10_000  # of the grid: of a larger one, as many points are drawn


def grid_of(space: Mapping[str, BaseDistribution], known: Iterable[Mapping[str, Any]], seed: int) -> Grid:
    """The grid of `space`, with the `known` parameters of trials that lie between its points."""
    domains = {name: values(distribution) for name, distribution in space.items()}
    points = [dict(zip(domains, chosen, strict=True)) for chosen in _combinations(domains, seed)]
    seen = {repr(sorted(point.items())) for point in points}
    for params in known:
        if repr(sorted(params.items())) not in seen:
            seen.add(repr(sorted(params.items())))
            points.append(dict(params))
    present = {name: [*domain, *(point[name] for point in points)] for name, domain in domains.items()}
    return Grid(points, points, {name: _ordered(space[name], found) for name, found in present.items()})


def values(distribution: BaseDistribution) -> list[Any]:
    """The values of a parameter that are looked at: all if they are few, of logarithmic integers the powers of two."""
    if isinstance(distribution, CategoricalDistribution):
        return list(distribution.choices)
    assert isinstance(distribution, IntDistribution | FloatDistribution), "Optuna has no other distributions"
    low, high, step = distribution.low, distribution.high, distribution.step
    if isinstance(distribution, IntDistribution) and distribution.log:
        powers = [1 << exponent for exponent in range(math.ceil(math.log2(low)), int(math.log2(high)) + 1)]
        return sorted({int(low), *powers, int(high)})
    count = PLACES if step is None else round((high - low) / step) + 1
    count = count if count <= MOST_VALUES else PLACES
    if distribution.log:
        spread = np.exp(np.linspace(np.log(low), np.log(high), count))
    else:
        spread = np.linspace(low, high, count)
    if step is not None:
        spread = low + np.round((spread - low) / step) * step
    kind = int if isinstance(distribution, IntDistribution) else float
    return sorted({kind(min(max(value, low), high)) for value in spread})


def _combinations(domains: Mapping[str, list[Any]], seed: int) -> Iterable[tuple[Any, ...]]:
    if math.prod(len(domain) for domain in domains.values()) <= MOST_POINTS:
        return itertools.product(*domains.values())
    chance = np.random.default_rng(seed)
    columns = [
        [domain[place] for place in chance.integers(len(domain), size=MOST_POINTS)] for domain in domains.values()
    ]
    return dict.fromkeys(zip(*columns, strict=True))


def _ordered(distribution: BaseDistribution, found: list[Any]) -> list[Any]:
    different = {repr(value): value for value in found}
    if isinstance(distribution, CategoricalDistribution):
        return list(different.values())
    return sorted(different.values())
