"""`throughput`: samples per second, the default."""

from __future__ import annotations

from typing import Annotated

from autotune.core.option import Option
from autotune.core.records import Environment, Goal, Share, TargetFacts
from autotune.core.results import ProbeResult
from autotune.errors import UsageError
from autotune.objectives.base import KNEE_SHARE, Objective, ObjectiveOptions
from autotune.units import format_percent, parse_fraction


class SpeedOptions(ObjectiveOptions, frozen=True, kw_only=True):
    """The share of speed that may be given up for something else."""

    within: Annotated[
        Share,
        Option(
            help="How much speed may be given up for a smaller global batch (where it is free) or for less memory.",
            read=parse_fraction,
            write=format_percent,
        ),
    ] = KNEE_SHARE


class Throughput(Objective):
    """Samples over wall time.

    Samples count even if the target has tokens: batches of varying length count their padding as tokens, so that a
    batch with more of it would look faster. Tokens/s are reported in addition.
    """

    name = "throughput"
    option_help = "samples/s"
    options: type[ObjectiveOptions] = SpeedOptions
    unit = "samples/s"
    wish = "the most samples per second"
    is_speed = True
    counts_compiling = True

    def check(self, goal: Goal, environment: Environment, facts: TargetFacts) -> None:
        """Raise `UsageError` if speed is to be given up for a smaller global batch that is held."""
        within = self._within(goal)
        if goal.global_batch is not None and within != KNEE_SHARE:
            raise UsageError(
                f"--within {format_percent(within)} has no effect here. It says how much speed may be given for a "
                f"smaller global batch, and the global batch is held at {goal.global_batch}. Add --global-batch free, "
                f"search with --objective memory, or leave it out."
            )

    def uses_options(self, goal: Goal) -> bool:
        """Return whether speed may be given up for anything."""
        return self.options is not SpeedOptions or goal.global_batch is None

    def score(self, result: ProbeResult, goal: Goal, noise_scale: float | None = None) -> float | None:
        """Return the samples/s of the window; None if not measured."""
        return None if result.measurement is None else result.measurement.samples_per_second

    def knee(self, goal: Goal) -> float | None:
        """Return the share of speed that the user gives up for a smaller global batch; None if that is held."""
        return self._within(goal) if goal.global_batch is None else None

    def _within(self, goal: Goal) -> float:
        options = self.options.of(goal)
        return options.within if isinstance(options, SpeedOptions) else KNEE_SHARE
