"""`throughput`: samples per second, the default."""

from __future__ import annotations

from autotune.core.records import Goal
from autotune.core.results import ProbeResult
from autotune.objectives.base import Objective


class Throughput(Objective):
    """Samples over wall time.

    Samples also where the target has tokens: batches of varying length count their padding as tokens, so that a batch
    with more of it would look faster. Tokens/s are told beside it.
    """

    name = "throughput"
    option_help = "samples/s"
    unit = "samples/s"
    wish = "the most samples per second"
    is_speed = True

    def score(self, result: ProbeResult, goal: Goal, noise_scale: float | None = None) -> float | None:
        """Samples/s of the window."""
        return None if result.measurement is None else result.measurement.samples_per_second
