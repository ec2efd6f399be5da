"""When a probe measures what: the stages that a session is led through. The watch that it reports to.

    warm-up    until steps are steady                                     told apart, not measured
    compute    the same batch again and again: computing alone            only where there is a loader
    drain      what the workers held ready is thrown away                 the same
    load       whole rounds of the workers, not trained on: loading alone the same
    settle     one batch per worker, so that the workers are out of step with nothing but each other
    window     whole multiples of the workers, until enough is known (`ending.py`)

Steps below 5 ms are taken together in blocks from `compute` on, settling left out: looking at each of them would cost a
good part of what they take.

Without the drain a probe of 20 steps overestimated a loader-bound run by up to 2.2 times; in this order the error
was -1.0 to +4.5 % in seven settings (docs/notes/timing.md 4).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from autotune.interference import Contamination
from autotune.probe import UnstableTraining, contamination
from autotune.probe.alone import Computing, Loading
from autotune.probe.ending import Ending
from autotune.probe.meters import Clock
from autotune.probe.track import MemoryTrack
from autotune.probe.warmup import WarmUp
from autotune.requests import ProbeBudget
from autotune.targets.base import Command, Step

BLOCK_SECONDS = 0.01  # of short steps that are looked at together: a look takes up to 60 us between steps (measured)
MOST_TOGETHER = 100
MOST_CALIBRATION_SKIPS = 10  # loss scaling skips some at first; ten in a row is overflow (docs/notes/precision.md 1)


class Window:
    """Collects what one probe measures; `step` and `loaded` decide what the session does next."""

    def __init__(
        self,
        clock: Clock,
        budget: ProbeBudget,
        *,
        workers: int = 0,
        ready: int = 0,
        loads: bool = False,
        incumbent: float | None = None,
        warm_up: WarmUp,
        track: MemoryTrack,
        beat: Callable[[], None] = lambda: None,
        phase: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`ready` is how many batches the `workers` prepare in advance; `loads`: there is a loader to be timed alone.

        `incumbent` is the rate to beat, samples/s; None: this configuration is measured for its own sake.
        `beat` is called with every sign of life, `phase` with the name of each phase that begins.
        """
        self._clock, self._beat, self._phase = clock, beat, phase
        self._round, self._loads = max(workers, 1), loads
        self._warm_up, self.track = warm_up, track
        self._stage: Callable[[list[Step]], Command] = self._warming
        self._block: list[Step] = []  # not complete yet
        self._together, self._going_on = 1, Command.CONTINUE  # steps of a block now, and the command within it
        self.steps_per_block = 1  # where they are short enough to be looked at together
        self._last = time.perf_counter()
        self._settling = 0
        self._step_seconds, self._micro_batches = 0.0, 1  # of an optimizer step, once it is warm
        self._losses: list[Any] = []
        self._successes = 0
        self._look: contamination.Look | None = None
        self.ending = Ending(budget, workers=workers, incumbent=incumbent)  # by the device's clock
        self.computing, self.loading = Computing(budget), Loading(budget, workers, ready)
        self.first_batch_seconds = 0.0
        self.steps: list[Step] = []  # one per block, their losses apart
        self._judged = 0  # of the steps
        self.calibration_skips = self.skipped_steps = self.restarts = 0
        self.contamination: Contamination | None = None

    def first_batch(self, seconds: float) -> None:
        """Note how long the loader took to come up."""
        self.first_batch_seconds = seconds
        self._last = time.perf_counter()

    def epoch(self) -> None:
        """Count loader restarts inside the window; they are part of its wall time."""
        self.restarts += self._stage == self._measure
        if self._stage == self._compute:  # over, and batches are being loaded alone
            self.loading.epoch()

    def step(self, step: Step) -> Command:
        """Take note of one optimizer step."""
        self._block.append(step)
        if len(self._block) < self._together:
            return self._going_on
        steps, self._block = self._block, []
        self._beat()
        return self._stage(steps)

    def micro_batch(self) -> None:
        """Pass the sign of life on."""
        self._beat()

    def loaded(self, samples: int) -> Command:
        """Take note of one batch that was not trained on."""
        self._beat()
        return self._settle() if self.loading.batch(self._lap(), samples) else Command.LOAD

    def losses(self) -> tuple[float | None, ...]:
        """Loss of every block but those on a repeated batch, None where not finite; waits for the device."""
        values = torch.stack([torch.as_tensor(loss, dtype=torch.float32) for loss in self._losses]).tolist()
        return tuple(value if math.isfinite(value) else None for value in values)

    @property
    def warmup_seconds(self) -> tuple[float, ...]:
        """Of every step before any was measured."""
        return tuple(self._warm_up.seconds)

    @property
    def own_seconds_per_step(self) -> float | None:
        """What watching cost an optimizer step, the first block's part left out: it has paid for settling."""
        later = self.steps[1:]
        return sum(step.own_seconds for step in later) / len(later) / self.steps_per_block if later else None

    def _learned(self, steps: list[Step]) -> Step:
        """Take note of steps that count, and give them back as one, without the loss."""
        # A scalar that stays in the heap of the CPU splits the block that the next activations would have reused:
        # 1000 steps of 128 KiB tensors grew the process by 370 MiB (measured). On the CPU reading it costs no waiting.
        if steps[0].loss.device.type == "cpu":
            self._losses.append(sum(step.loss.item() for step in steps) / len(steps))
        else:
            self._losses.append(torch.stack([step.loss for step in steps]).mean() if len(steps) > 1 else steps[0].loss)
        for step in steps:
            self._noted(skipped=step.skipped)
        return _joined(steps)

    def _noted(self, *, skipped: bool) -> None:
        self._successes += not skipped
        if skipped and not self._successes:
            self.calibration_skips += 1
            if self.calibration_skips > MOST_CALIBRATION_SKIPS:
                raise UnstableTraining(
                    f"the first {self.calibration_skips} optimizer steps were all skipped by the gradient scaler: "
                    f"gradients overflow in this dtype even after the loss scale was halved that often"
                )
        elif skipped:
            self.skipped_steps += 1

    def _warming(self, steps: list[Step]) -> Command:
        step = self._learned(steps)
        if not self._warm_up.step(self._lap(), skipped=step.skipped):
            return Command.CONTINUE
        # The mean: workers deliver in bursts, and most steps of a loader-bound training are short.
        self._step_seconds = statistics.fmean(self.warmup_seconds[len(self.warmup_seconds) // 2 :])
        self._micro_batches = step.micro_batches
        self.steps_per_block = _together(self._step_seconds)
        if not self._loads:
            return self._settle()
        self._phase("alone")
        return self._next_stage(self._compute, Command.REPEAT, together=self.steps_per_block)

    def _compute(self, steps: list[Step]) -> Command:
        enough = self.computing.step(self._lap(), sum(step.samples for step in steps))
        return Command.LOAD if enough else Command.REPEAT

    def _settle(self) -> Command:
        # The workers held batches ready while the steps warmed up: what they deliver in the long run is known only now.
        loading = self.loading.seconds_per_batch * self._micro_batches
        self.steps_per_block = _together(max(self._step_seconds, loading))
        self._look = contamination.look()  # before settling, which takes up what looking costs
        return self._next_stage(self._settled, Command.CONTINUE)

    def _settled(self, steps: list[Step]) -> Command:
        self._settling += self._learned(steps).micro_batches
        if self._settling >= self._round:
            self._clock.now()  # the device has settled, too: what the launcher reads of it begins with the phase
            self._phase("measure")
            self._next_stage(self._measure, Command.CONTINUE, together=self.steps_per_block)
            self._clock.mark()
        return Command.CONTINUE

    def _measure(self, steps: list[Step]) -> Command:
        self._clock.mark()
        self.steps.append(self._learned(steps))
        self.track.step(self.steps_per_block)
        if not self._is_enough():
            return Command.CONTINUE
        del self.steps[self._judged :]  # issued before the device had told of the last that was needed
        if self._look:
            self.contamination = contamination.between(self._look, contamination.look())
        return Command.STOP

    def _is_enough(self) -> bool:
        """Whether the steps that the device has come through by now are all that are needed."""
        for seconds in self._clock.passed():
            step = self.steps[self._judged]
            self._judged += 1
            if self.ending.step(seconds, step.samples, step.micro_batches):
                return True
        return False

    def _next_stage(self, stage: Callable[[list[Step]], Command], command: Command, together: int = 1) -> Command:
        self._stage, self._going_on, self._together = stage, command, together
        self._last = time.perf_counter()
        return command

    def _lap(self) -> float:
        """Seconds since the last lap, the device's work included. Waits for the device: not for the window."""
        now = self._clock.now()
        seconds, self._last = now - self._last, now
        return seconds


def _together(step_seconds: float) -> int:
    """How many steps of that length are looked at together."""
    return max(1, min(MOST_TOGETHER, int(BLOCK_SECONDS / max(step_seconds, 1e-6))))


def _joined(steps: list[Step]) -> Step:
    """All of them as one, without the loss, which is kept apart. In one pass: the next step pays for it."""
    samples = tokens = micro_batches = 0
    waited = own = 0.0
    for step in steps:
        samples += step.samples
        tokens += step.tokens or 0
        micro_batches += step.micro_batches
        waited += step.loader_wait_seconds
        own += step.own_seconds
    return Step(
        loss=None,
        samples=samples,
        tokens=None if steps[0].tokens is None else tokens,
        micro_batches=micro_batches,
        loader_wait_seconds=waited,
        skipped=any(step.skipped for step in steps),
        own_seconds=own,
    )
