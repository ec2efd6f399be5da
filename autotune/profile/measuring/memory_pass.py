"""The pass of a profile that looks at memory: the peak of plain steps, then one whose tensors are counted.

On a CPU the peak is that of the resident set, which has more than tensors: what malloc keeps of freed ones, and
kernels' own buffers. On CUDA it is the caching allocator's, and what the device holds besides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from autotune.child import device as devices
from autotune.child.memory import MemoryMeter
from autotune.core.memory_breakdown import Breakdown
from autotune.core.memory_peak import MemoryPeak
from autotune.machine.heap import HeldBytes, held_bytes
from autotune.machine.host import process_bytes
from autotune.memory.breakdown import StepLedger
from autotune.profile.measuring.padding import Padding
from autotune.profile.measuring.stopwatch import Stopwatch, replaced
from autotune.profile.memory_records import HeapUse, MemoryUse, StateBytes
from autotune.profile.optimizer_states import state_bytes
from autotune.targets.base import Step
from autotune.targets.batches import tensors
from autotune.targets.loop import Training

# Plain ones: more batches tell more about padding.
FEWEST_PLAIN_STEPS, MOST_PLAIN_STEPS, MOST_PLAIN_SECONDS = 3, 12, 1.0


class MemoryPass:
    """Measures memory; to be made before the first step, when the process holds only the model and its libraries."""

    def __init__(self, training: Training, stopwatch: Stopwatch) -> None:
        self._training, self._stopwatch, self._device = training, stopwatch, training.plan.device
        self._model_bytes = _bytes_of(training.model)
        self._before = held_bytes() if self._device == "cpu" else None
        self._at_peak: HeldBytes | None = None  # of tensors
        resident = (process_bytes("VmRSS") or 0) - self._model_bytes - (self._before.kept if self._before else 0)
        self._context = max(0, resident) if self._device == "cpu" else 0
        self._peak: MemoryPeak | None = None
        self._tensors: Breakdown | None = None
        self._padding = Padding(training.model)

    def steps(self) -> Generator[None, Step, int]:
        """Take the steps of this pass; return their number."""
        devices.synchronize(self._device)
        meter, began, count = MemoryMeter(self._device), time.perf_counter(), 0
        with self._told_of_batches(self._padding.note):
            while count < FEWEST_PLAIN_STEPS or (
                count < MOST_PLAIN_STEPS and time.perf_counter() - began < MOST_PLAIN_SECONDS
            ):
                yield
                meter.step()
                count += 1
        devices.synchronize(self._device)
        self._peak = meter.read()
        if not self._training.plan.compiles:
            yield from self._count_tensors()
            count += 1
        return count

    def result(self) -> MemoryUse | None:
        """Return the readings; None if no step was taken."""
        if self._peak is None or self._training.update is None:
            return None
        optimizers = self._training.update.optimizers
        trained = [one for each in optimizers for group in each.param_groups for one in group["params"]]
        states = state_bytes([(tuple(one.shape), one.element_size()) for one in trained])
        peak = self._peak
        beside = (peak.device_used_bytes or 0) - (peak.reserved_at_end_bytes or 0)
        return MemoryUse(
            peak=peak,
            context_bytes=self._context if self._device == "cpu" else max(0, beside),
            heap=self._heap(),
            tensors=self._tensors,
            optimizer=" and ".join(dict.fromkeys(type(one).__name__ for one in optimizers)),
            states=tuple(StateBytes(optimizer=name, bytes=size) for name, size in states.items()),
            padding=self._padding.share,
        )

    def _heap(self) -> HeapUse | None:
        """Return the memory besides tensors; None without glibc's malloc, or if another malloc is loaded."""
        before, then = self._before, self._at_peak
        if before is None or then is None or self._tensors is None or then.used < self._tensors.bytes:
            return None
        return HeapUse(
            kept_bytes=then.kept,
            buffers_bytes=then.used - before.used - (self._tensors.bytes - self._model_bytes),
            code_bytes=then.files - before.files,
            later_bytes=max(0, self._peak.process_bytes - then.resident) if self._peak else 0,
        )

    def _note_peak(self) -> None:
        self._at_peak = held_bytes() if self._device == "cpu" else None

    def _count_tensors(self) -> Generator[None, Step, None]:
        ledger = StepLedger(
            self._device, contents=True, paused=lambda: self._stopwatch.current == "data", at_peak=self._note_peak
        )
        training, update = self._training, self._training.update
        assert update is not None, "steps have been taken"
        averaged = update.averaged
        kept = (*averaged.parameters(), *averaged.buffers()) if isinstance(averaged, torch.nn.Module) else ()
        with (
            self._told_of_batches(lambda batch: ledger.note("batch", tensors(batch), whole=False)),
            ledger.watched(training.model, update.optimizers, kept),
        ):
            yield
        self._tensors = ledger.breakdown()

    @contextmanager
    def _told_of_batches(self, tell: Callable[[Any], None]) -> Iterator[None]:
        """Tell of each batch, when it is on the device."""
        before = self._training.to_device

        def telling(batch: Any) -> Any:
            moved = before(batch)
            tell(moved)
            return moved

        with replaced(self._training, "to_device", telling):
            yield


def _bytes_of(model: torch.nn.Module) -> int:
    found = [one.untyped_storage() for one in (*model.parameters(), *model.buffers()) if one.layout is torch.strided]
    return sum({one._cdata: one.nbytes() for one in found}.values())
