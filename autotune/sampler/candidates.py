"""The configurations among which a proposal is chosen: a few thousand of a space of any size.

They are: a fixed sample of the space (all of a small space); the configurations one or two changes away from the best
probed one, and one change away from the others; and, for each of many guesses of the model, the configuration that
would be fastest if the guess were true. Knobs multiply times, so this configuration is close to the best value of each
knob, taken together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from autotune.core.stats import Floats
from autotune.sampler.configurations import Configurations, Points, distinct
from autotune.sampler.space import MOST_LISTED_CONFIGS, MOST_SAMPLED_CONFIGS

CLIMBER_COUNT = 32  # guesses for which the fastest configuration is sought
# Rounds in which every knob is improved at once; a later round uses the batch and memory that earlier ones chose.
CLIMBING_ROUNDS = 3
MOST_CHANGE_PAIRS = 2048  # pairs of changes to the best configuration, at most
WIDENED_COUNT = 8  # fastest configurations whose neighbours are candidates, too


def known_candidates(configs: Configurations, probed: Sequence[Sequence[int]]) -> Points:
    """Return the candidates that do not depend on the model; `probed` has the best configuration first."""
    found = [np.array(probed, np.int64).reshape(-1, len(configs.blocks))]
    if len(configs) > MOST_LISTED_CONFIGS:
        for rank, point in enumerate(probed):
            near = configs.near(point, 1 if rank else 2)
            found.append(
                near[np.random.default_rng(0).permutation(len(near))[:MOST_CHANGE_PAIRS]]
                if len(near) > MOST_CHANGE_PAIRS
                else near
            )
    return distinct(np.concatenate([*found, configs.sample(MOST_LISTED_CONFIGS, MOST_SAMPLED_CONFIGS)]))


def climbed(configs: Configurations, start: Sequence[int], rates: Callable[[Points], Floats]) -> Points:
    """Return the fastest configurations of several guesses, and the neighbours of the most frequent ones.

    `rates` returns the rate of each given configuration under each guess, (guesses, configurations).
    """
    if len(configs) <= MOST_LISTED_CONFIGS:
        return np.empty((0, len(configs.blocks)), np.int64)
    points, found = np.array([start], np.int64), []
    for _ in range(CLIMBING_ROUNDS):
        places, own = np.unique(points, axis=0, return_inverse=True)
        near = [np.concatenate([place[None], configs.near(place.tolist())]) for place in places]
        speeds = np.split(rates(np.concatenate(near)), np.cumsum([len(one) for one in near])[:-1], axis=1)
        own = np.resize(own, len(speeds[0]))  # in the first round all guesses begin at one place
        points = np.array([_improved(near[at], speeds[at][guess]) for guess, at in enumerate(own)])
        found.append(points)
    fastest, counts = np.unique(points, axis=0, return_counts=True)
    often = fastest[np.argsort(-counts, kind="stable")[:WIDENED_COUNT]]
    return np.concatenate([*found, *(configs.near(point) for point in often.tolist())])


def _improved(near: Points, speeds: Floats) -> Points:
    """Return the first of `near`, in which each block has its best change if that is faster."""
    found: Points = near[0].copy()
    order = np.argsort(speeds, kind="stable")
    for row in order[speeds[order] > speeds[0]]:  # the fastest last: it overwrites the others
        at = np.flatnonzero(near[row] != near[0])
        found[at] = near[row][at]
    return found
