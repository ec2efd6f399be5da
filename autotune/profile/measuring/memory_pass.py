"""The pass of a profile that looks at memory: the peak of plain steps, then one whose tensors are counted.

On a CPU the peak is that of the resident set, which has more than tensors: what malloc keeps of freed ones, and
kernels' own buffers. On CUDA it is the caching allocator's, and what the device holds besides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch.nn.parameter import is_lazy

from autotune.child import device as devices
from autotune.child.memory import MemoryMeter
from autotune.core.memory_breakdown import Breakdown
from autotune.core.memory_peak import MemoryPeak
from autotune.machine.heap import HeldBytes, held_bytes
from autotune.machine.host import process_bytes
from autotune.memory.breakdown import StepLedger
from autotune.profile.measuring.padding import Padding
from autotune.profile.measuring.stopwatch import Stopwatch
from autotune.profile.memory_records import HeapUse, MemoryUse, StateBytes
from autotune.profile.optimizer_states import state_bytes
from autotune.targets.base import Step
from autotune.targets.batches import tensors

# Plain ones: more batches tell more about padding.
FEWEST_PLAIN_STEPS, MOST_PLAIN_STEPS, MOST_PLAIN_SECONDS = 3, 12, 1.0
MOST_COUNTED_STEPS = 3  # until one has no other work in it, such as an evaluation


class TensorHolders(NamedTuple):
    """What holds tensors for as long as training goes on, after its first step."""

    models: Sequence[torch.nn.Module]  # that train
    optimizers: Sequence[torch.optim.Optimizer]
    others: Sequence[torch.nn.Module] = ()  # that were there before the first step, such as a teacher
    averaged: Sequence[torch.nn.Module] = ()  # that were made since
    is_compiled: bool = False


class MemoryPass:
    """Measures memory; `begin` is called before the first step, when the process holds its libraries and models.

    `batches(tell)` tells of each batch, when it is on the device, until its context ends. `preparing` returns whether
    what is made now, by no module, belongs to a batch.
    """

    def __init__(
        self,
        stopwatch: Stopwatch,
        device: str,
        batches: Callable[[Callable[[Any], None]], AbstractContextManager[None]],
        *,
        preparing: Callable[[], bool] = lambda: False,
    ) -> None:
        self._stopwatch, self._device = stopwatch, device
        self._told_of_batches, self._preparing = batches, preparing
        self._resident = self._model_bytes = 0
        self._before: HeldBytes | None = None
        self._at_peak: HeldBytes | None = None  # of tensors
        self._peak: MemoryPeak | None = None
        self._tensors: Breakdown | None = None
        self._holders = TensorHolders((), ())
        self._padding: Padding | None = None

    def begin(self) -> None:
        """Note what the process holds now."""
        if self._device == "cpu":
            self._before, self._resident = held_bytes(), process_bytes("VmRSS") or 0

    def steps(self, holders: TensorHolders) -> Generator[None, Step, int]:
        """Take the steps of this pass; return their number."""
        self._holders, self._model_bytes = holders, _bytes_of([*holders.models, *holders.others])
        self._padding = Padding(holders.models[0])
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
        if not holders.is_compiled:
            count += yield from self._count_tensors()
        return count

    def result(self) -> MemoryUse | None:
        """Return the readings; None if no step was taken."""
        if self._peak is None or self._padding is None:
            return None
        optimizers = self._holders.optimizers
        trained = [one for each in optimizers for group in each.param_groups for one in group["params"]]
        states = state_bytes([(tuple(one.shape), one.element_size()) for one in trained])
        peak = self._peak
        beside = (peak.device_used_bytes or 0) - (peak.reserved_at_end_bytes or 0)
        before = self._resident - self._model_bytes - (self._before.kept if self._before else 0)
        return MemoryUse(
            peak=peak,
            context_bytes=max(0, before if self._device == "cpu" else beside),
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

    def _count_tensors(self) -> Generator[None, Step, int]:
        models, optimizers, others, averaged, _ = self._holders
        count, is_whole = 0, False
        while not is_whole and count < MOST_COUNTED_STEPS:
            ledger = StepLedger(
                self._device, contents=True, paused=lambda: self._stopwatch.current == "data",
                preparing=self._preparing, at_peak=self._note_peak,
            )  # fmt: skip
            with (
                self._told_of_batches(partial(_note_batch, ledger)),
                ledger.watched(models, optimizers, _tensors_of([*others, *averaged])),
            ):
                step = yield
            count, is_whole = count + 1, not step.paused_seconds
        self._tensors = ledger.breakdown()
        return count


def _note_batch(ledger: StepLedger, batch: Any) -> None:
    ledger.note("batch", tensors(batch), whole=False)


def _tensors_of(modules: Iterable[torch.nn.Module]) -> list[torch.Tensor]:
    """Return their parameters and buffers, without those that take no memory (yet)."""
    found = chain.from_iterable((*one.parameters(), *one.buffers()) for one in modules)
    return [one for one in found if not is_lazy(one) and not one.is_meta]


def _bytes_of(modules: Iterable[torch.nn.Module]) -> int:
    found = [one.untyped_storage() for one in _tensors_of(modules) if one.layout is torch.strided]
    return sum({one._cdata: one.nbytes() for one in found}.values())
