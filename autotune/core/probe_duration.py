"""The seconds of a search probe, computed from the seconds of a micro-batch of its configuration.

They are a prediction for ranking; `ProbeTimes.expected_seconds` decides which probes may begin.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autotune.core.records import Record
from autotune.core.requests import FEWEST_PROBE_STEPS

MEASURING_SECONDS = 3.0  # of short steps: warm-up 0.5, computing alone 0.5, loading alone up to 1, window 0.75 or more
STEP_UP = 3.0  # times the longest probe so far: where no long step was seen a prediction of one is the prior's


class ProbeDuration(Record, frozen=True, kw_only=True):
    """The present duration of search probes in one study: a fixed part, and a few cycles of the configuration."""

    fixed_seconds: float = 0.0  # start, import, build; and what probes took beyond their cycles
    longest_cycle: float = math.inf  # micro-batches that are run per optimizer step at most
    most_seconds: float = math.inf  # of a probe that may be proposed

    def seconds(self, micro_batch_seconds: Any, accumulation: Any) -> Any:
        """Return the expected seconds of a probe; numbers or arrays of one shape."""
        cycle = micro_batch_seconds * np.minimum(accumulation, self.longest_cycle)
        return self.fixed_seconds + np.maximum(MEASURING_SECONDS, FEWEST_PROBE_STEPS * cycle)
