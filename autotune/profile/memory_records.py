"""The readings of memory of one profiled configuration. `profile/memory_judge.py` makes rows and sentences of them."""

from __future__ import annotations

from autotune.core.memory_breakdown import Breakdown
from autotune.core.memory_peak import MemoryPeak
from autotune.core.records import Record
from autotune.memory.model import Arm


class StateBytes(Record, frozen=True, kw_only=True):
    """The state that one optimizer would keep for the parameters that are trained, by its definition."""

    optimizer: str
    bytes: int


class MemoryUse(Record, frozen=True, kw_only=True):
    """The memory of a few steps that were not watched, and the tensors of one that was."""

    peak: MemoryPeak
    context_bytes: int  # that the process held before its first step, besides the model; on a device: not its tensors'
    tensors: Breakdown | None = None  # of a real step; None: a compiled model, whose tensors are not seen
    optimizer: str = ""  # the class of the first
    states: tuple[StateBytes, ...] = ()  # what other optimizers would keep
    padding: float | None = None  # share of the tokens; None: the batches have neither mask nor padding id
    shapes: Arm | None = None  # the same step on tensors without contents
    recomputed: tuple[Arm, ...] = ()  # the same where knobs trade time for memory
