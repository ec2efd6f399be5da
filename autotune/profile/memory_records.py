"""The readings of memory of one profiled configuration. `profile/memory_judge.py` makes rows and sentences of them."""

from __future__ import annotations

from autotune.core.memory_breakdown import Breakdown
from autotune.core.memory_peak import MemoryPeak
from autotune.core.records import Record
from autotune.memory.model import Arm


class StateBytes(Record, frozen=True, kw_only=True):
    """The bytes of state that one optimizer would keep for the trained parameters, by its definition."""

    optimizer: str
    bytes: int


class HeapUse(Record, frozen=True, kw_only=True):
    """The memory of the host process outside of tensors, when its tensors were at their peak."""

    kept_bytes: int  # freed and kept by malloc, also if freed before the first step; not counted in the context
    buffers_bytes: int  # handed out since the first step, besides tensors: kernels' own buffers, graphs
    code_bytes: int  # of libraries, loaded since the first step: code of kernels
    later_bytes: (
        int  # by which the process's own peak was higher: freed tensors that malloc still kept (decisions/0075)
    )


class MemoryUse(Record, frozen=True, kw_only=True):
    """The memory of a few unwatched steps, and the tensors of a watched one."""

    peak: MemoryPeak
    context_bytes: int  # that the process held before its first step, besides the model; on a device: not its tensors'
    heap: HeapUse | None = None  # None: on a device, or malloc does not tell
    tensors: Breakdown | None = None  # of a real step; None: a compiled model, whose tensors are not seen
    optimizer: str = ""  # the classes of the optimizers, " and " between them
    states: tuple[StateBytes, ...] = ()  # what other optimizers would keep
    padding: float | None = None  # share of tokens that are padding; None: the batches have neither mask nor padding id
    shapes: Arm | None = None  # the same step on tensors without contents
    recomputed: tuple[Arm, ...] = ()  # the same where knobs trade time for memory
