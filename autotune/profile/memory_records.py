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


class HeapUse(Record, frozen=True, kw_only=True):
    """The memory of the process on the host that no tensor has, when its tensors were at their peak."""

    kept_bytes: int  # freed, and kept by malloc: what was freed before the first step is in it, and not in the context
    buffers_bytes: int  # handed out since the first step, besides tensors: kernels' own buffers, graphs
    code_bytes: int  # of libraries, read in since the first step: the code of kernels that steps call
    later_bytes: (
        int  # that the process held more at its own peak: freed tensors that malloc still kept (decisions/0075)
    )


class MemoryUse(Record, frozen=True, kw_only=True):
    """The memory of a few steps that were not watched, and the tensors of one that was."""

    peak: MemoryPeak
    context_bytes: int  # that the process held before its first step, besides the model; on a device: not its tensors'
    heap: HeapUse | None = None  # None: on a device, or malloc does not tell
    tensors: Breakdown | None = None  # of a real step; None: a compiled model, whose tensors are not seen
    optimizer: str = ""  # the class of the first
    states: tuple[StateBytes, ...] = ()  # what other optimizers would keep
    padding: float | None = None  # share of the tokens; None: the batches have neither mask nor padding id
    shapes: Arm | None = None  # the same step on tensors without contents
    recomputed: tuple[Arm, ...] = ()  # the same where knobs trade time for memory
