"""`cost`: samples for the money, at a price per hour of this machine."""

from __future__ import annotations

from autotune.core.records import Environment, Goal, ObjectiveName
from autotune.core.results import ProbeResult
from autotune.errors import UsageError
from autotune.objectives.base import Decision, Objective
from autotune.study.summary import ConfigSummary

SECONDS_PER_HOUR, MILLION, MANY_HOURS = 3600, 1e6, 1000


class Cost(Objective):
    """One machine at one price: what is fastest is cheapest, and what changes is what is printed."""

    name: ObjectiveName = "cost"
    unit = "samples per unit of money"
    wish = "the most samples for the money"
    is_speed = True

    def check(self, goal: Goal, environment: Environment) -> None:
        """A price."""
        if goal.price_per_hour is None:
            raise UsageError(
                "--objective cost needs what an hour of this machine costs. It was probably forgotten. Give it with "
                "--price 2.49, in any currency."
            )

    def score(self, result: ProbeResult, goal: Goal, noise_scale: float | None = None) -> float | None:
        """Samples/s, by the price of a second."""
        if result.measurement is None or goal.price_per_hour is None:
            return None
        return result.measurement.samples_per_second * SECONDS_PER_HOUR / goal.price_per_hour

    def reasons(self, decision: Decision) -> tuple[str, ...]:
        """Cost of a million samples and of an epoch, and what the baseline's 1,000 hours would cost less."""
        price, now, before = decision.goal.price_per_hour or 0.0, decision.chosen, decision.baseline
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
