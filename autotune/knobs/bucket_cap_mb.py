"""`bucket_cap_mb`: how many MiB of gradients DDP exchanges at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.core.records import Value
from autotune.knobs.base import Circumstances, allowed
from autotune.knobs.choice_knob import ChoiceKnob
from autotune.knobs.ddp_knob import DdpKnob
from autotune.knobs.influence import NEUTRAL, Factor, Influence

TORCHS_OWN = "25"  # MiB
SIZES: tuple[Value, ...] = (10, None, 50, 100)  # None is torch's own
# Fewer exchanges wait less for the network's latency, more exchanges begin earlier. No large gain on one machine is
# known: a judgement.
EFFECT = Influence(fixed_time=Factor(1.0, 0.05), fixed_memory=Factor(1.0, 0.02))


class BucketCapMb(DdpKnob, ChoiceKnob):
    """10, 50 or 100 MiB besides torch's own 25: small buckets start early, large ones are fewer."""

    name = "bucket_cap_mb"
    alias = "bucket"
    option_help = "MiB of gradients that DDP exchanges at once: none,10,50,100."
    label = "bucket"
    choices: ClassVar[Mapping[Value, str]] = {10: "10 MiB", 50: "50 MiB", 100: "100 MiB"}

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return all sizes if ranks wait noticeably for the exchange (`shows`)."""
        return allowed(SIZES if self.shows(circumstances) else (None,), circumstances.limit)

    def parse(self, text: str) -> Value:
        """Return the number, or None for torch's own, which may be typed as a number, too."""
        if text == TORCHS_OWN:
            return None
        return int(text) if text.isdigit() and int(text) in self.choices else super().parse(text)

    def phrase(self, value: Value) -> str:
        """Return the value in words, such as `buckets of 50 MiB`; empty for the default."""
        return f"buckets of {value} MiB" if value else ""

    def influence(self, value: Value) -> Influence:
        """Return a small effect of either sign."""
        return EFFECT if value else NEUTRAL
