"""The registry of objectives. Order is the order of `--help`; the first one is the default."""

from __future__ import annotations

from autotune.core.records import Goal
from autotune.objectives.base import Objective
from autotune.objectives.cost import Cost
from autotune.objectives.energy import Energy
from autotune.objectives.memory import Memory
from autotune.objectives.throughput import Throughput
from autotune.objectives.time_to_quality import TimeToQuality

OBJECTIVES: tuple[Objective, ...] = (Throughput(), Memory(), Energy(), Cost(), TimeToQuality())


def objective_of(goal: Goal) -> Objective:
    """The objective that a goal names."""
    return next(objective for objective in OBJECTIVES if objective.name == goal.objective)
