"""`pin_memory`: whether the loader puts batches into page-locked memory, from where a GPU copies them faster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.core.records import Value
from autotune.knobs.base import Circumstances, allowed
from autotune.knobs.influence import NEUTRAL, Factor, Influence
from autotune.knobs.loader_switch import LoaderSwitch, no_option

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
        is_offered = circumstances.environment.device_kind == "cuda" and circumstances.facts.is_program
        is_offered &= not no_option(self.name, circumstances.facts)
        return allowed(self.other(circumstances) if is_offered else (None,), circumstances.limit)

    def idle(self, values: Mapping[str, Value], circumstances: Circumstances) -> str:
        """Return that there is no loader that takes it, or that nothing copies to CUDA."""
        on_cuda = circumstances.environment.device_kind == "cuda"
        why = super().idle(values, circumstances)
        return why or ("only CUDA copies faster from such memory" if values[self.name] and not on_cuda else "")

    def canonical(self, values: dict[str, Value], circumstances: Circumstances) -> Value:
        """Return None for what a loop of ours does by itself; what a program is given stays."""
        found = super().canonical(values, circumstances)
        is_usual = found is (circumstances.environment.device_kind == "cuda")
        return None if is_usual and not circumstances.facts.is_program else found

    def influence(self, value: Value) -> Influence:
        """Return a slightly shorter or longer step."""
        return NEUTRAL if value is None else PINNED if value else PAGEABLE
