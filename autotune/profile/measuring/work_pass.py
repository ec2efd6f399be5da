"""The pass of a profile that counts the operations of a step, the bytes that they move, and products by size."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import torch

from autotune.profile.measuring import flops
from autotune.profile.measuring.memory_pass import MOST_COUNTED_STEPS
from autotune.profile.measuring.sizes import Products
from autotune.profile.measuring.stopwatch import Stopwatch
from autotune.profile.measuring.traffic import Traffic, bounds_of
from autotune.profile.records import Bounds, SlowLine, Work
from autotune.targets.base import Step


class WorkPass:
    """Counts what the models compute in a step."""

    def __init__(
        self, models: Sequence[torch.nn.Module], stopwatch: Stopwatch, device: str, *, compiles: bool = False
    ) -> None:
        self._models, self._stopwatch, self._device = models, stopwatch, device
        self._why = flops.uncountable(models, device, compiles=compiles)
        self._flops: int | None = None
        self._traffic: Traffic | None = None
        self._products: Products | None = None

    def steps(self) -> Generator[None, Step, None]:
        """Take the step that is counted; none if its operations cannot be counted."""
        for _ in range(MOST_COUNTED_STEPS if not self._why else 0):
            products = Products(self._models, lambda: self._stopwatch.current)
            with flops.operations_counted(self._device) as counter, Traffic() as traffic, products:
                step = yield
            if not step.paused_seconds:
                self._flops, self._traffic, self._products = counter.get_total_flops(), traffic, products
                return
        self._why = self._why or "each step had an evaluation or a checkpoint in it"

    def slow_sizes(self, step_seconds: float) -> list[SlowLine]:
        """Return the lines whose products are slower than larger ones; times them. Raises what torch raises."""
        if self._products is None or self._flops is None:
            return []
        return self._products.slower_than_larger(self._flops, step_seconds, self._device)

    def work(self) -> Work:
        """Return the operations of a step; measures the peak rate of the device."""
        largest = max((one for model in self._models for one in model.parameters()), key=torch.Tensor.numel)
        computed = self._traffic.computed_dtype() if self._traffic is not None else None
        return flops.work_of(self._flops, self._why, self._device, computed or largest.dtype)

    def bounds(self) -> Bounds | None:
        """Return the other bounds of a step, None if it was not counted; measures the rates of the device."""
        return bounds_of(self._traffic, self._device) if self._traffic is not None else None
