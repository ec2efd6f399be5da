"""Optimizer steps that take as long as real ones and do not change the model: for timing them on one batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from autotune.targets.update import Update


@contextmanager
def without_learning(update: Update, device: str) -> Iterator[None]:
    """Hold every learning rate at 0, so that steps on one batch leave the weights; put torch's chance back at the end.

    Learned for real, one batch is soon known by heart: the loss of the next one jumps, and gradients fade into
    denormal numbers, which a CPU computes many times slower. A copy of weights and optimizer to go back to would be
    memory that training does not need. What does change, as in any step: the optimizer's averages of gradients, the
    running statistics of normalisations, the averaged weights, and the loss scale. Schedules of learning rates wait.
    Not covered: an optimizer whose step length is not `lr` learns.
    """
    groups = [group for one in update.optimizers for group in one.param_groups if "lr" in group]
    rates = [group["lr"] for group in groups]
    kind = device.partition(":")[0]
    with ExitStack() as stack:
        if kind in ("cpu", "cuda", "xpu"):  # MPS has no random state by index
            stack.enter_context(torch.random.fork_rng([] if kind == "cpu" else [device], device_type=kind))
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = torch.zeros_like(rate) if isinstance(rate, torch.Tensor) else 0.0
        update.is_frozen = True
        try:
            yield
        finally:
            update.is_frozen = False
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = rate
