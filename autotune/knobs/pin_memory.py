"""`pin_memory`: whether the loader puts batches into page-locked memory, from where a GPU copies them faster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.core.records import Value
from autotune.knobs.base import Circumstances
from autotune.knobs.influence import NEUTRAL, Factor, Influence
from autotune.knobs.loader_switch import LoaderSwitch

# The copy is a few percent of most steps, and hidden by a pinned batch. Not measured: no GPU was at hand. A judgement.
PINNED = Influence(sample_time=Factor(0.97, 0.05))
PAGEABLE = Influence(sample_time=Factor(1.03, 0.05))


class PinMemory(LoaderSwitch):
    """True or False, or None: loaders of a probe pin where the device is CUDA, as they always have.

    It exists on CUDA only: elsewhere DataLoader does nothing but warn. Offered where the loader is a program's own; in
    a loop of ours, which pins, it is searched where the user says what it may be.
    """

    name = "pin_memory"
    alias = "pin_memory"
    option_help = "Page-locked batches, on CUDA: none,true,false."
    label = "pinning"
    choices: ClassVar[Mapping[Value, str]] = {True: "pinned", False: "pageable"}
    phrases = ("batches in pageable memory", "batches in pinned memory")
    arguments = r"((train_)?data_?)?(loader_?)?pin(ned)?_mem(ory)?"

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return None and True for a program on CUDA; what the user lists."""
        listed = self.listed(circumstances)
        if listed is not None:
            return listed
        is_offered = circumstances.environment.device_kind == "cuda" and circumstances.facts.is_program
        return self.other(circumstances) if is_offered else (None,)

    def canonical(self, values: dict[str, Value], circumstances: Circumstances) -> Value:
        """Return None for what a loop of ours does by itself; what a program is given stays."""
        is_default = values[self.name] is (circumstances.environment.device_kind == "cuda")
        is_ours = not circumstances.facts.is_program
        return (
            None if is_ours and (is_default or circumstances.environment.device_kind != "cuda") else values[self.name]
        )

    def influence(self, value: Value) -> Influence:
        """Return a slightly shorter or longer step."""
        return NEUTRAL if value is None else PINNED if value else PAGEABLE
