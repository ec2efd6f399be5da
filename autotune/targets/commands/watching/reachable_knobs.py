"""The knobs that can be set in a command, and the values with which it trains today."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from autotune.core.records import CheckLine, Value
from autotune.knobs import KNOBS
from autotune.knobs.base import Knob, Reach
from autotune.knobs.observed import Observed
from autotune.targets.commands.command import ACCUMULATION, Command
from autotune.targets.commands.watching.training_arguments import ScriptArguments
from autotune.targets.commands.watching.witness import Witness

BF16_NEEDS_ARGUMENT = (
    "not tuned: without a GPU, transformers takes bf16 only with use_cpu=True in TrainingArguments. Write it there, "
    "and precision is tuned"
)


@dataclass
class Reachable:
    """The knobs of one command after its first step."""

    command: Command
    witness: Witness
    seen: Observed
    arguments: ScriptArguments
    model: Any

    def baseline(self) -> dict[str, Value]:
        """The settings of the command today: as its words say, or as they were observed."""
        said = self.command.baseline
        return {one.name: said.get(one.name, self._today(one)) for one in KNOBS if self._is_known(one)}

    @property
    def settable(self) -> tuple[str, ...]:
        """The names of the knobs that can be set."""
        found = (one for one in KNOBS if self._is_carried(one) or self._is_written(one) or self._is_reached(one))
        return tuple(one.name for one in found if not self._is_refused(one))

    @property
    def written(self) -> tuple[str, ...]:
        """The names of knobs that can be set where the script makes its TrainingArguments."""
        return tuple(one.name for one in KNOBS if self._is_written(one) and not self._is_refused(one))

    @property
    def check_lines(self) -> Iterator[CheckLine]:
        """Yield the settings that the script writes itself, and why some of them cannot be changed."""
        if self.written:
            names = ", ".join(one.label for one in KNOBS if one.name in self.written)
            yield CheckLine(name="arguments", text=f"TrainingArguments of the script: {names} are set as it makes them")
        for one in KNOBS:
            if self._is_written(one) and self._is_refused(one):
                yield CheckLine(name=one.label, text=BF16_NEEDS_ARGUMENT, needs_attention=True)

    def _is_carried(self, knob: Knob) -> bool:
        return knob.name in self.command.knobs

    def _is_refused(self, knob: Knob) -> bool:
        """Return whether transformers refuses it: bf16 without a GPU needs `--use_cpu` (5.23, `TrainingArguments`)."""
        takes_bf16 = getattr(sys.modules.get("transformers.training_args"), "is_torch_bf16_gpu_available", lambda: True)
        needs_cpu = self.command.lacks_use_cpu(knob)
        needs_cpu |= "bf16" in knob.value_names and self._is_written(knob) and not self.arguments.uses_cpu
        return needs_cpu and not takes_bf16()

    def _is_written(self, knob: Knob) -> bool:
        return self.arguments.can_set(knob, self.seen, self.model)

    def _is_reached(self, knob: Knob) -> bool:
        if knob.name == ACCUMULATION:  # observed without an argument: it follows from the micro-batch
            return self.command.derives_accumulation and (self.seen.micro_batches or 1) > 1
        if knob.reach is Reach.LOADER:
            data = self.witness.batches.data
            return data is None or self.witness.defaults.reach(data, knob.name)
        return knob.reach is Reach.PROCESS

    def _is_known(self, knob: Knob) -> bool:
        return not self._is_carried(knob) or knob.name in self.command.baseline

    def _today(self, knob: Knob) -> Value:
        own = knob.found(self.seen)
        return own if own is not None else next(iter(knob.seen(self.seen)), knob.default)
