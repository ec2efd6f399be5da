"""`cost`: samples per unit of money, at a price per hour of this machine."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.option import Option
from autotune.core.records import Environment, Goal, TargetFacts
from autotune.core.results import ProbeResult
from autotune.errors import UsageError
from autotune.objectives.base import Decision, Objective, ObjectiveOptions
from autotune.study.summary import ConfigSummary

SECONDS_PER_HOUR, MILLION, MANY_HOURS = 3600, 1e6, 1000


class CostOptions(ObjectiveOptions, frozen=True, kw_only=True):
    """The options of the objective `cost`: the price of the machine."""

    price: Annotated[
        Annotated[float, Meta(gt=0, description="above 0")] | None,
        Option(
            help="Price of one hour of this machine, for --objective cost: 2.49, in any currency.",
            called="the price",
        ),
    ] = None


class Cost(Objective):
    """One machine at one price: the fastest configuration is the cheapest, and only the printed figures change."""

    name = "cost"
    option_help = "samples for the money, with --price"
    options = CostOptions
    unit = "samples per unit of money"
    wish = "the most samples for the money"
    is_speed = True
    counts_compiling = True

    def check(self, goal: Goal, environment: Environment, facts: TargetFacts) -> None:
        """Raise `UsageError` if no price is given."""
        if CostOptions.of(goal).price is None:
            raise UsageError(
                "--objective cost needs the price of an hour of this machine. It was probably forgotten. Give it with "
                "--price 2.49, in any currency."
            )

    def score(self, result: ProbeResult, goal: Goal, noise_scale: float | None = None) -> float | None:
        """Return samples per unit of money: samples/s over the price of a second; None if not measured."""
        price = CostOptions.of(goal).price
        if result.measurement is None or price is None:
            return None
        return result.measurement.samples_per_second * SECONDS_PER_HOUR / price

    def reasons(self, decision: Decision) -> tuple[Notice, ...]:
        """Return the cost of a million samples and of an epoch, and the saving in 1,000 hours of the baseline."""
        price, now, before = CostOptions.of(decision.goal).price or 0.0, decision.chosen, decision.baseline
        samples = decision.facts.dataset_samples

        def cost(code: Code, summary: ConfigSummary, hour: float | None = None) -> Notice:
            epoch = None if samples is None else samples / summary.score
            return notice(code, million_samples=MILLION / summary.score, epoch=epoch, hour=hour)

        own = cost(Code.COST, now, price)
        if before is None or before == now:
            return (own,)
        saved, total = MANY_HOURS * price * (1 - before.score / now.score), MANY_HOURS * price
        change = (
            notice(Code.COST_ADDED, added=-saved, total=total)  # for example because the baseline's dtype was refused
            if saved < 0
            else notice(Code.COST_SAVED, saved=saved, total=total)
        )
        return own, cost(Code.COST_OF_BASELINE, before), change
