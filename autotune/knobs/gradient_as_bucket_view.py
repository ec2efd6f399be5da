"""`gradient_as_bucket_view`: whether gradients live in the buffers that DDP exchanges, and are not copied there."""

from __future__ import annotations

from autotune.core.records import Value
from autotune.knobs.base import Circumstances, SwitchKnob
from autotune.knobs.ddp_knob import DdpKnob
from autotune.knobs.influence import Factor, Influence


class GradientAsBucketView(DdpKnob, SwitchKnob):
    """Saves a copy of all gradients in time and memory, as torch's documentation of DistributedDataParallel has it."""

    name = "gradient_as_bucket_view"
    alias = "bucket_view"
    option_help = "Let gradients be views of DDP's buffers: true,false."
    label = "bucket view"
    words = "gradients as views of buckets"
    effect = Influence(fixed_time=Factor(0.98, 0.05), fixed_memory=Factor(0.9, 0.1))

    def is_offered(self, circumstances: Circumstances) -> bool:
        """Return whether ranks wait noticeably for the exchange (`shows`)."""
        return self.shows(circumstances)

    def caution(self, value: Value) -> float:
        """Return 1 for on: a gradient cannot be detached in place then."""
        return float(bool(value))
