"""`static_graph`: whether DDP may rely on every step using the same parameters in the same order."""

from __future__ import annotations

from autotune.core.records import Value
from autotune.knobs.base import Circumstances, SwitchKnob
from autotune.knobs.ddp_knob import DdpKnob
from autotune.knobs.influence import Factor, Influence


class StaticGraph(DdpKnob, SwitchKnob):
    """On request: wrong where a step uses other parameters than the first. The first backward pass exchanges always.

    Under `no_sync` torch would fail an assertion in it (torch 2.13, reducer.cpp): `targets/ranks/parallel.py`.
    """

    name = "static_graph"
    alias = "static_graph"
    option_help = "Tell DDP that all steps use the same parameters: true,false."
    label = "static graph"
    words = "static graph"
    on_request = True
    exchanges_first = True
    effect = Influence(fixed_time=Factor(1.0, 0.05))

    def is_offered(self, circumstances: Circumstances) -> bool:
        """Return whether ranks wait noticeably for the exchange (`shows`)."""
        return self.shows(circumstances)

    def caution(self, value: Value) -> float:
        """Return 1 for on: it is wrong for some models."""
        return float(bool(value))
