"""`time-to-quality`: samples/s that advance training, by the gradient noise scale that is measured first."""

from __future__ import annotations

from collections.abc import Callable

from autotune.core.codes import Code
from autotune.core.notices import Notice
from autotune.core.records import Config, Environment, Goal, TargetFacts
from autotune.core.results import ProbeResult
from autotune.errors import UsageError
from autotune.gradient_noise.estimate import efficiency, goodput
from autotune.objectives.base import Decision, Objective


class TimeToQuality(Objective):
    """Goodput: samples/s times 1 / (1 + B / phi), with B the global batch (`gradient_noise/estimate.py`).

    It considers how soon a training loss is reached, never how well the model generalises. While phi is unknown, and if
    the gradient is not distinguishable from its noise, there is no evidence against any batch, and the goodput is the
    throughput.
    """

    name = "time-to-quality"
    option_help = (
        "throughput less what a large global batch wastes by the measured gradient noise; needs --global-batch free"
    )
    uses_noise_scale = True
    counts_compiling = True
    unit = "useful samples/s"
    wish = "the shortest time to a given loss"
    better = "faster to a given loss"
    worse = "slower to a given loss"
    best = "fastest to a given loss"
    unbeaten = "measurably faster to a given loss"

    def check(self, goal: Goal, environment: Environment, facts: TargetFacts) -> None:
        """Raise `UsageError` unless the global batch is free (else this equals throughput) and samples differ."""
        if goal.global_batch is not None:
            raise UsageError(
                f"--objective time-to-quality searches the global batch, and it is held at {goal.global_batch}. The "
                f"target or --baseline says what it is, --global-batch holds it, or --exact does. Add --global-batch "
                f"free, or search with --objective throughput."
            )
        if facts.owns_loop:
            raise UsageError(
                "--objective time-to-quality compares the gradients of single micro-batches, and the target trains by "
                "a loop of its own. Such a loop is only observed. Write model() and dataset(), or search with "
                "--objective throughput."
            )
        if "step" in facts.update:
            raise UsageError(
                "--objective time-to-quality compares the gradients of one loss, and the target has step(), which may "
                "follow several. It is not known which of them shows progress. Search with --objective throughput."
            )
        if facts.data == "batch":
            raise UsageError(
                "--objective time-to-quality compares the gradients of different samples, and the target's batches are "
                "synthetic. It has batch() and no dataset. Write dataset(), or search with --objective throughput."
            )

    def score(self, result: ProbeResult, goal: Goal, noise_scale: float | None = None) -> float | None:
        """Return samples/s of the window times how much each of them advances training; None if not measured."""
        measured = result.measurement
        if measured is None:
            return None
        return goodput(measured.samples_per_second, measured.samples_per_step, noise_scale)

    def value_per_sample(self, goal: Goal, noise_scale: float | None = None) -> Callable[[Config], float]:
        """Return how much a sample advances training, 0 to 1, by a configuration's global batch (`efficiency`)."""
        return lambda config: efficiency(config.global_batch_size(), noise_scale)

    def knee(self, goal: Goal) -> None:
        """Return None: a score that counts the waste of a large batch has its own best batch."""

    def headline(self, decision: Decision) -> Notice | None:
        """Return such as `2.31× as fast to a given loss as your baseline (2.15 to 2.48, estimated)`."""
        return decision.gained(Code.SOONER_TO_LOSS)
