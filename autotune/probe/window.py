"""When a probe measures: warm-up, drain, settle, window. The watch that a session reports to.

    warm-up    until steps succeed and some time has passed             told apart, not measured
    drain      the loader's queue, filled while the first steps were slow, is thrown away
    settle     one batch per worker, so that the workers are out of step with nothing but each other
    window     whole multiples of the workers, until the mean is known well enough, or the cap

Without the drain a probe of 20 steps overestimated a loader-bound run by up to 2.2 times (measurement note C4).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from autotune.probe import UnstableTraining
from autotune.probe.meters import Clock
from autotune.records import ProbeBudget
from autotune.stats import relative_half_width
from autotune.targets.base import Command, Step

LEAST_SUCCESSES = 2  # the optimizer's state is allocated in the first step and felt in the second (note D2)
LOOK_GROWTH = 1.1  # looking at the spread is paid by the next step: a tenth more steps lie between two looks
MOST_CALIBRATION_SKIPS = 10  # dynamic loss scaling skips a few steps at first; ten in a row is overflow (note F)


class Window:
    """Collects what one probe measures; `step` decides what the session does next."""

    def __init__(
        self, clock: Clock, budget: ProbeBudget, workers: int, beat: Callable[[], None], phase: Callable[[str], None]
    ) -> None:
        self._clock, self._budget, self._beat, self._phase = clock, budget, beat, phase
        self._block = max(workers, 1)
        self._stage: Callable[[Step], Command] = self._warm_up
        self._began = self._stage_began = time.perf_counter()
        self._settling = 0
        self._next_look = 0
        self._micro_batches = 0
        self._losses: list[Any] = []
        self._host_seconds: list[float] = []
        self._last = self._began
        self.first_batch_seconds = 0.0
        self.steps: list[Step] = []
        self.warmup_seconds: list[float] = []
        self.calibration_skips = self.skipped_steps = self.successes = self.restarts = 0
        self.noisy = False

    def first_batch(self, seconds: float) -> None:
        """Note how long the loader took to come up."""
        self.first_batch_seconds = seconds
        self._last = time.perf_counter()

    def epoch(self) -> None:
        """Count loader restarts inside the window; they are part of its wall time."""
        self.restarts += bool(self.steps)

    def step(self, step: Step) -> Command:
        """Take note of one optimizer step."""
        self._beat()
        # A scalar that stays in the heap of the CPU splits the block that the next activations would have reused:
        # 1000 steps of 128 KiB tensors grew the process by 370 MiB (measured). On the CPU reading it costs no waiting.
        self._losses.append(step.loss.item() if step.loss.device.type == "cpu" else step.loss)
        step = replace(step, loss=None)
        self.successes += not step.skipped
        if step.skipped and not self.successes:
            self.calibration_skips += 1
            if self.calibration_skips > MOST_CALIBRATION_SKIPS:
                raise UnstableTraining(
                    f"the first {self.calibration_skips} optimizer steps were all skipped by the gradient scaler: "
                    f"gradients overflow in this dtype even after the loss scale was halved that often"
                )
        elif step.skipped:
            self.skipped_steps += 1
        return self._stage(step)

    def losses(self) -> tuple[float | None, ...]:
        """Loss of every optimizer step, None where not finite; waits for the device."""
        values = torch.stack([torch.as_tensor(loss, dtype=torch.float32) for loss in self._losses]).tolist()
        return tuple(value if math.isfinite(value) else None for value in values)

    def half_width(self) -> float | None:
        """Relative 95 % half width of the mean step time, by the host's clock."""
        return relative_half_width(self._host_seconds, self._steps_per_block())

    def _warm_up(self, step: Step) -> Command:
        now = time.perf_counter()
        self.warmup_seconds.append(now - self._last)
        self._last = now
        enough = len(self.warmup_seconds) >= self._budget.min_warmup_steps
        elapsed = now - self._began
        patient = elapsed >= self._budget.min_warmup_seconds
        ready = self.successes >= LEAST_SUCCESSES
        if not (ready and ((enough and patient) or elapsed > self._budget.max_seconds)):
            return Command.CONTINUE
        self._stage = self._settle
        return Command.DRAIN

    def _settle(self, step: Step) -> Command:
        self._settling += step.micro_batches
        if self._settling >= self._block:
            self._stage = self._measure
            self._phase("measure")
            self._clock.mark()
            self._stage_began = self._last = time.perf_counter()
        return Command.CONTINUE

    def _measure(self, step: Step) -> Command:
        self._clock.mark()
        now = time.perf_counter()
        self._host_seconds.append(now - self._last)
        self._last = now
        self.steps.append(step)
        self._micro_batches += step.micro_batches
        return Command.STOP if self._done(now - self._stage_began) else Command.CONTINUE

    def _done(self, elapsed: float) -> bool:
        budget, count = self._budget, len(self.steps)
        capped = count >= 2 and (elapsed >= budget.max_seconds or count >= budget.max_steps)
        whole = self._micro_batches % self._block == 0
        if not (whole or elapsed >= 2 * budget.max_seconds):
            return False
        if elapsed < budget.min_seconds or count < budget.min_steps:
            return capped
        if not capped and count < self._next_look:
            return False
        self._next_look = math.ceil(count * LOOK_GROWTH)
        half_width = self.half_width()
        precise = half_width is not None and half_width <= budget.target_precision
        self.noisy = not precise
        return precise or capped

    def _steps_per_block(self) -> int:
        micro_batches = max(self._micro_batches // max(len(self.steps), 1), 1)
        return max(1, math.ceil(self._block / micro_batches))
