"""`cost`: samples for the money, at a price per hour of this machine."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from autotune.core.option import Option
from autotune.core.records import Environment, Goal, TargetFacts
from autotune.core.results import ProbeResult
from autotune.errors import UsageError
from autotune.objectives.base import Decision, Objective, ObjectiveOptions
from autotune.study.summary import ConfigSummary
from autotune.units import parse_price

SECONDS_PER_HOUR, MILLION, MANY_HOURS = 3600, 1e6, 1000


class CostOptions(ObjectiveOptions, frozen=True, kw_only=True):
    """What the machine costs."""

    price: Annotated[
        Annotated[float, Meta(gt=0, description="above 0")] | None,
        Option(
            help="Of an hour of this machine, for cost: 2.49, in any currency.",
            read=parse_price,
            called="the price",
        ),
    ] = None


class Cost(Objective):
    """One machine at one price: what is fastest is cheapest, and what changes is what is printed."""

    name = "cost"
    option_help = "samples for the money, with --price"
    options = CostOptions
    unit = "samples per unit of money"
    wish = "the most samples for the money"
    is_speed = True

    def check(self, goal: Goal, environment: Environment, facts: TargetFacts) -> None:
        """Ask for a price."""
        if CostOptions.of(goal).price is None:
            raise UsageError(
                "--objective cost needs what an hour of this machine costs. It was probably forgotten. Give it with "
                "--price 2.49, in any currency."
            )

    def score(self, result: ProbeResult, goal: Goal, noise_scale: float | None = None) -> float | None:
        """Samples/s, by the price of a second."""
        price = CostOptions.of(goal).price
        if result.measurement is None or price is None:
            return None
        return result.measurement.samples_per_second * SECONDS_PER_HOUR / price

    def reasons(self, decision: Decision) -> tuple[str, ...]:
        """Cost of a million samples and of an epoch, and what the baseline's 1,000 hours would cost less."""
        price, now, before = CostOptions.of(decision.goal).price or 0.0, decision.chosen, decision.baseline
        told = f"costs {_money(MILLION / now.score)} per million samples at {_money(price)} an hour"
        epoch = decision.facts.dataset_samples
        if epoch is not None:
            told += f", {_money(epoch / now.score)} per epoch"
        if before is None or before == now:
            return (told,)
        told += f" (baseline {_money(MILLION / before.score)}{_epoch(before, epoch)})"
        saved = MANY_HOURS * price * (1 - before.score / now.score)
        all_of_it = f"the {_money(MANY_HOURS * price)} that 1,000 h of the baseline cost"
        if saved < 0:  # the baseline's dtype was refused, say
            return told, f"costs {_money(-saved)} more than {all_of_it}"
        return told, f"saves {_money(saved)} of {all_of_it}"


def _epoch(summary: ConfigSummary, samples: int | None) -> str:
    return "" if samples is None else f", {_money(samples / summary.score)} per epoch"


def _money(amount: float) -> str:
    """Two decimals, and three digits where it is less than one."""
    return f"{amount:,.2f}" if abs(amount) >= 1 else f"{amount:.3g}"
