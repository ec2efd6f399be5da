"""Finds whether other processes slowed a configuration so much that a gain over it may be none. Pure."""

from __future__ import annotations

import math

from autotune.answer.ranking import Ranking
from autotune.core.interference_readings import HostInterference
from autotune.core.records import StudyRequest
from autotune.objectives import objective_of
from autotune.study.summary import ConfigSummary
from autotune.study.valid_probes import is_crowded

# The factor by which others slow what computes beside its waits for a core, through caches and hyperthreads; 2.1 was
# measured at most (docs/notes/timing.md 2).
SHARED_CORE_SLOWDOWN = 3.0


def is_crowded_out(baseline: ConfigSummary, request: StudyRequest, gain: float = 0.0) -> bool:
    """Return whether others kept the baseline from the cores in half or more of its rounds: they then prove no gain.

    `gain`, the least by the interval, is proven all the same if it is more than others can have cost the baseline.
    Always False if the objective is not speed.
    """
    crowded = sum(is_crowded(trial.result) for trial in baseline.trials)
    is_asked = objective_of(request.goal).is_speed and crowded > 0 and 2 * crowded >= len(baseline.trials)
    return is_asked and not is_beyond_load(gain, baseline)


def is_sure_beside_others(ranking: Ranking) -> bool:
    """Return whether the chosen one beats every other by more than other processes can have cost that one."""
    return all(
        is_beyond_load(ranking.scores.ratio(ranking.chosen, at)[1], one)
        for at, one in enumerate(ranking.measured) if at != ranking.chosen
    )  # fmt: skip


def is_beyond_load(gain: float, slower: ConfigSummary) -> bool:
    """Return whether a gain over `slower` is more than others can have cost it in any of its rounds."""
    readings = [trial.result.measurement.interference for trial in slower.trials if trial.result.measurement]
    return gain > max((_most_cost(one) if one else math.inf for one in readings), default=math.inf)


def _most_cost(one: HostInterference) -> float:
    """Return the factor by which others can have made a window longer at most.

    They took what its threads waited for a core, and slowed what computed. What slept, such as in a read of a disk, is
    taken for not slowed. If what served it was slowed, the gain is smaller on a quiet machine (decisions/0065).
    """
    running = 1 / one.most_slowdown  # share of the window, without its waits for a core
    computing = running if one.own_cores is None else min(one.own_cores, running)  # cores: no less than its share
    undisturbed = running - computing * (1 - 1 / SHARED_CORE_SLOWDOWN)
    return 1 / undisturbed if undisturbed > 0 else math.inf
