"""The registry of objectives. Its order is that of `--help`; the first one is the default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import to_builtins
from msgspec.structs import replace

from autotune.core.records import Goal
from autotune.objectives.base import Objective
from autotune.objectives.cost import Cost
from autotune.objectives.energy import Energy
from autotune.objectives.memory import Memory
from autotune.objectives.throughput import Throughput
from autotune.objectives.time_to_quality import TimeToQuality

OBJECTIVES: tuple[Objective, ...] = (Throughput(), Memory(), Energy(), Cost(), TimeToQuality())
if TYPE_CHECKING:
    ObjectiveName = str
else:
    ObjectiveName = Literal[tuple(objective.name for objective in OBJECTIVES)]  # type checkers cannot read a registry


def objective_of(goal: Goal) -> Objective:
    """Return the objective that a goal names. Raises `ValueError` if no objective has that name."""
    for objective in OBJECTIVES:
        if objective.name == goal.objective:
            return objective
    raise ValueError(f"there is no objective {goal.objective!r}")


def completed(goal: Goal) -> Goal:
    """Return `goal` with a value for each option of its objective: an earlier version may have known fewer.

    Raises `ValueError` or `msgspec.ValidationError` if today's objectives do not accept it.
    """
    objective = objective_of(goal)
    options = to_builtins(objective.options.of(goal))
    return replace(goal, objective_options=options if objective.uses_options(goal) else {})
