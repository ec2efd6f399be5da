"""Measures, in the inspection, the share of a micro-step that ranks spend on the exchange of gradients alone."""

from __future__ import annotations

import time

import torch

from autotune.core.communication import Communication
from autotune.targets.base import Order, Step, Watch
from autotune.targets.loop import Training
from autotune.targets.ranks import world

FEWEST_STEP_PAIRS, MOST_STEP_PAIRS = 3, 30  # the first pair is left out: DDP arranges its buckets after a first step
PAIRS_SECONDS = 0.5  # after these no further pair is begun


def exposed_share(training: Training) -> float | None:
    """Return that share, 0..1, for a model that has taken one step; None if no gradients are exchanged.

    Every rank has to call it. For other configurations the probe's own measurement counts (`Communication`).
    """
    if not training.exchanges:
        return None
    pairs = _Pairs(training.plan.device)
    training.train(pairs)
    seconds = pairs.seconds[2:]
    measured = Communication(without_seconds=tuple(seconds[::2]), with_seconds=tuple(seconds[1::2]))
    return measured.exposed_share


class _Pairs(Watch):
    def __init__(self, device: str) -> None:
        self._device, self._last = device, 0.0
        self.seconds: list[float] = []  # of each micro-step

    def step(self, step: Step) -> Order:
        self._last = self._now()
        return Order.EXCHANGE

    def micro_step(self, *, exchanges: bool) -> Order:
        now = self._now()
        self.seconds.append(now - self._last)
        pairs = len(self.seconds) // 2
        enough = (
            exchanges and pairs >= FEWEST_STEP_PAIRS and (sum(self.seconds) > PAIRS_SECONDS or pairs >= MOST_STEP_PAIRS)
        )
        is_over = world.agreed(enough)
        self._last = time.perf_counter()  # all ranks begin the next one together
        return Order.STOP if is_over else Order.EXCHANGE

    def _now(self) -> float:
        if self._device != "cpu":
            torch.accelerator.synchronize(self._device)
        return time.perf_counter()
