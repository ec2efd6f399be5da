"""`allocator`: how torch's caching allocator takes memory from CUDA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.core.records import Environment, Value
from autotune.knobs.base import Circumstances, MemoryEffect, Plan, Reach
from autotune.knobs.choice_knob import ChoiceKnob
from autotune.knobs.influence import NEUTRAL, Factor, Influence
from autotune.knobs.observed import Observed

VARIABLE = "PYTORCH_ALLOC_CONF"
VARIABLES = (VARIABLE, "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")  # the older names, which torch still reads
SINCE = (2, 9)  # of torch: before, the name was PYTORCH_CUDA_ALLOC_CONF
EXPANDABLE = "expandable_segments"
# Less memory is lost between blocks of different sizes; with fixed shapes none is lost. A judgement, not measured.
SEGMENTS = Influence(fixed_memory=Factor(1.0, 0.03), sample_memory=Factor(0.97, 0.05), sample_time=Factor(1.0, 0.03))


class Allocator(ChoiceKnob):
    """Expandable segments, or None for torch's own settings or the user's. On CUDA under Linux, on request only.

    It helps if shapes vary and memory is scarce: without it, an ASR training lost 30 % of its time to reallocations
    (https://github.com/NVIDIA-NeMo/NeMo/pull/9061). Its gain elsewhere was not measured.
    """

    name = "allocator"
    alias = "allocator"
    option_help = "CUDA's caching allocator: none,expandable_segments."
    label = "allocator"
    on_request = True
    memory = MemoryEffect.UNSEEN
    reach = Reach.PROCESS
    choices: ClassVar[Mapping[Value, str]] = {EXPANDABLE: "expand"}

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return both on CUDA under Linux, unless the environment configures the allocator; or the user's list."""
        if circumstances.limit is not None and circumstances.limit.values is not None:
            return circumstances.limit.values
        return (None, EXPANDABLE) if _can_expand(circumstances.environment) else (None,)

    def idle(self, values: Mapping[str, Value], circumstances: Circumstances) -> str:
        """Return that only CUDA devices have this allocator; empty on a CUDA device."""
        return "" if circumstances.environment.device_kind == "cuda" else "only CUDA devices have that allocator"

    def phrase(self, value: Value) -> str:
        """Return `PYTORCH_ALLOC_CONF=expandable_segments:True`; empty for the default."""
        return "".join(f"{name}={text}" for name, text in self.environ(value).items())

    def influence(self, value: Value) -> Influence:
        """Return slightly less memory for each sample."""
        return NEUTRAL if value is None else SEGMENTS

    def environ(self, value: Value) -> dict[str, str]:
        """Return the variable that torch reads at the first allocation."""
        return {} if value is None else {VARIABLE: f"{value}:True"}

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return the value for expandable segments or not, and None, as the user may have configured it."""
        if observed.expandable_segments is None:
            return ()
        return (None, EXPANDABLE) if observed.expandable_segments else (None,)

    def apply(self, value: Value, plan: Plan) -> None:
        """Do nothing: the variable is set before torch is imported."""


def _can_expand(environment: Environment) -> bool:
    """Return whether expandable segments are available here (the CUDA driver's virtual memory; not on Windows)."""
    version = tuple(int(part) for part in environment.torch.split(".")[:2] if part.isdigit())
    return (
        environment.device_kind == "cuda"
        and environment.platform.startswith("Linux")
        and version >= SINCE
        and not set(VARIABLES).intersection(environment.variables)
    )
