"""The parts of a probe, and the conditions under which it goes on to the next.

    warm-up    until steps are steady                                     recorded apart, not measured
    exchange   micro-steps without and with an exchange of gradients      only where several ranks train
    compute    the same batch again and again: computing alone            only where a loader may overlap with it
    drain      batches that the workers held ready are dropped                 the same
    load       whole turns of the workers, not trained on: loading alone  the same
    settle     one batch per worker, so that the window begins in the workers' steady rhythm; not without workers
               where a step takes 0.1 s or more
    window     whole multiples of the workers, until enough is known (`window_stopping.py`)

A turn of the workers is one batch of each of them. If they load a micro-batch in half the time of computing it, a turn
is one batch, because training does not wait for them.

From `compute` on, except in `settle`, steps below 5 ms are grouped in blocks: reading the clock at each would take a
large part of their time.

Several ranks must take the same steps, because each waits for the others in every step: rank 0 makes the decisions that
depend on the clock, and `agree` sends them to the others. That takes a message on the host for every report.

Without the drain a probe of 20 steps overestimated a loader-bound run by up to 2.2 times; in this order the error
was -1.0 to +4.5 % in seven settings (docs/notes/timing.md 4).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from msgspec.structs import replace

from autotune.child import UnstableTraining
from autotune.child.exchange import Exchange
from autotune.child.isolated import Computing, Loading
from autotune.child.page_faults import page_faults
from autotune.child.watched_loop import Callbacks, Instruments, LoopShape
from autotune.child.window_stopping import WindowStopping
from autotune.core.interference_readings import HostInterference
from autotune.core.requests import ProbeBudget
from autotune.machine.interference import KernelCounters, interference_between, read_counters
from autotune.targets.base import Order, Step

LONG_STEP_SECONDS = 0.1  # of a step: work done once between two such steps is negligible
BLOCK_SECONDS = 0.01  # of short steps in one block: reading the clock takes up to 60 us between steps (measured)
MOST_TOGETHER = 100
PLENTY_SHARE = 0.5  # of computing: workers that load a batch in less are never waited for
MOST_CALIBRATION_SKIPS = 10  # loss scaling skips some at first; more than ten mean overflow (docs/notes/precision.md 1)


class ProbeWatch:
    """Collects what one probe measures; `step` and `loaded` decide what the session does next."""

    def __init__(
        self, budget: ProbeBudget, instruments: Instruments, shape: LoopShape, callbacks: Callbacks,
        incumbent: float | None = None,
    ) -> None:  # fmt: skip
        """`incumbent` is the rate to beat, samples/s; None: there is none, and the probe is measured in full."""
        self._clock, self._updates, self._timed = instruments.clock, instruments.update_clock, 0  # marks around updates
        self._warm_up, self.track = instruments.warm_up, instruments.track
        self._collections = instruments.collections
        self._beat, self._phase, self._agree = callbacks.beat, callbacks.phase, callbacks.agree
        self._batches_per_turn = max(shape.loader_workers, 1)
        self._loads, self._exchanges = shape.loads, shape.exchanges
        self._cycle_ratio = shape.cycle_ratio
        self._part: Callable[[Step], Order] = self._warming
        self.steps_at_once = self.steps_per_block = 1  # now; and in parts that use blocks
        self._last = time.perf_counter()
        self._settling = 0
        self._step_seconds, self._micro_batches = 0.0, 1  # of an optimizer step, once it is warm
        self._losses: list[Any] = []
        self._successes = 0
        self._counters: KernelCounters | None = None
        self.ending = WindowStopping(  # by the device's clock
            budget, workers=shape.loader_workers, epoch=shape.epoch_batches, incumbent=incumbent
        )
        self.computing = Computing(budget)
        self.loading = Loading(budget, shape.loader_workers, shape.prefetched_batches)
        self.exchange = Exchange(budget)
        self.first_batch_seconds = 0.0
        self.steps: list[Step] = []  # one per block, without their losses
        self._busy: list[float] = []  # seconds of this thread on a core by the beginning, and by the end of every block
        self._judged = 0  # number of steps that were judged
        self.calibration_skips = self.skipped_steps = self.restarts = 0
        self.interference: HostInterference | None = None
        self._faults_before: int | None = None  # until the window began
        self.page_faults: int | None = None  # of the window; None: their number says nothing here

    def first_batch(self, seconds: float) -> None:
        """Note the seconds that the loader took to deliver its first batch."""
        self.first_batch_seconds = seconds
        self._last = time.perf_counter()

    def epoch(self) -> None:
        """Note that the loader restarted; restarts inside the window are counted, as part of its wall time."""
        self.restarts += self._part == self._measure
        if self._part == self._compute:  # computing is over, and batches are loaded alone
            self.loading.epoch()

    def step(self, step: Step) -> Order:
        """Note the optimizer steps that were asked for; return the next order."""
        self._beat()
        return self._part(step)

    def ended(self) -> bool:
        """End the window because the loop has ended; return whether its steps suffice."""
        if self._part != self._measure:
            return False
        del self.steps[self.ending.ended() :]
        self._end()
        return bool(self.steps)

    def micro_batch(self) -> None:
        """Report progress to the search."""
        self._beat()

    def update(self) -> None:
        """Mark the beginning or the end of an optimizer's update inside the window."""
        if self._updates and self._part == self._measure:
            self._updates.mark()
            self._timed += 1

    def micro_step(self, *, exchanges: bool) -> Order:
        """Note one micro-step, with or without an exchange of gradients; return the next order."""
        self._beat()
        enough = self._agree(self.exchange.micro_step(self._lap(), exchanges=exchanges))
        self._last = time.perf_counter()
        return self._warmed() if enough else Order.EXCHANGE

    def loaded(self, samples: int) -> Order:
        """Note one batch that was loaded and not trained on; return the next order."""
        self._beat()
        return self._settle() if self._agree(self.loading.batch(self._lap(), samples)) else Order.LOAD

    def losses(self) -> tuple[float | None, ...]:
        """Return the loss of every block's last step, repeats left out; None: not finite. Waits for the device."""
        values = torch.stack([torch.as_tensor(loss, dtype=torch.float32) for loss in self._losses]).tolist()
        return tuple(value if math.isfinite(value) else None for value in values)

    @property
    def warmup_seconds(self) -> tuple[float, ...]:
        """The seconds of every step before the window."""
        return tuple(self._warm_up.seconds)

    @property
    def update_seconds(self) -> tuple[float, ...]:
        """The seconds of the optimizer's last update in every entry; empty: updates were not timed."""
        return tuple(self._update_seconds(entry) for entry in range(len(self.steps))) if self._timed else ()

    def step_seconds(self) -> tuple[float, ...]:
        """Return the seconds of every entry, without pauses that are no part of training. Waits for the device."""
        return self._spread()[0]

    def _spread(self) -> tuple[tuple[float, ...], list[Step]]:
        intervals = zip(self._clock.intervals(), self.steps, strict=False)
        return self._collections.spread([elapsed - step.paused_seconds for elapsed, step in intervals], self.steps)

    @property
    def busy_seconds(self) -> tuple[float, ...]:
        """The processor seconds of this thread in every entry."""
        return tuple(after - before for before, after in pairwise(self._busy[: len(self.steps) + 1]))

    @property
    def watching_seconds_per_step(self) -> float | None:
        """The seconds per optimizer step spent on watching; the first block, which also settles, is left out."""
        later = self.steps[1:]
        return sum(step.watching_seconds for step in later) / len(later) / self.steps_per_block if later else None

    def _learned(self, step: Step) -> None:
        self._collections.step(step)
        # A scalar kept in the heap of the CPU splits the block that the next activations would have reused: 1000 steps
        # of 128 KiB tensors grew the process by 370 MiB (measured). On the CPU reading it costs no waiting.
        self._losses.append(step.loss.item() if step.loss.device.type == "cpu" else step.loss)
        self._successes += step.steps - step.skipped
        if self._successes:
            self.skipped_steps += step.skipped
            return
        self.calibration_skips += step.skipped
        if self.calibration_skips > MOST_CALIBRATION_SKIPS:
            raise UnstableTraining(
                f"the first {self.calibration_skips} optimizer steps were all skipped by the gradient scaler: "
                f"gradients overflow in this dtype even after the loss scale was halved that often"
            )

    def _warming(self, step: Step) -> Order:
        self._learned(step)
        is_warm = self._warm_up.step(self._lap() - step.paused_seconds, skipped=bool(step.skipped))
        if not self._agree(is_warm):
            return Order.CONTINUE
        # The mean, not the median: workers deliver in bursts, so most steps of a loader-bound training are short.
        self._step_seconds = statistics.fmean(self.warmup_seconds[len(self.warmup_seconds) // 2 :])
        self._micro_batches = step.micro_batches
        self.ending.spent(self._warm_up.spent_seconds)
        self.steps_per_block = self._agree(_together(self._step_seconds))
        if self._exchanges or self._loads:
            self._phase("alone")
        return self._next_part(self._warming, Order.EXCHANGE) if self._exchanges else self._warmed()

    def _warmed(self) -> Order:
        return self._next_part(self._compute, Order.REPEAT, self.steps_per_block) if self._loads else self._settle()

    def _compute(self, step: Step) -> Order:
        enough = self._agree(self.computing.step(self._lap(), step.samples))
        return Order.LOAD if enough else Order.REPEAT

    def _settle(self) -> Order:
        # During the warm-up the workers held batches ready, so their long-run rate is known only now.
        loading = self.loading.seconds_per_batch * self._micro_batches
        self.steps_per_block = self._agree(_together(max(self._step_seconds, loading)))
        if self._agree(0 < loading < PLENTY_SHARE * self._step_seconds):
            self._batches_per_turn = self.ending.batches_per_turn = 1
        self._counters = read_counters()  # before settling, so that the time of reading falls into it
        if self._agree(not self._loads and self._batches_per_turn == 1 and self._step_seconds >= LONG_STEP_SECONDS):
            return self._begin()
        return self._next_part(self._settled, Order.CONTINUE)

    def _settled(self, step: Step) -> Order:
        self._learned(step)
        self._settling += step.micro_batches
        return self._begin() if self._settling >= self._batches_per_turn else Order.CONTINUE

    def _begin(self) -> Order:
        self._clock.now()  # wait for the device: the launcher's readings begin with this phase
        self._phase("measure")
        order = self._next_part(self._measure, Order.CONTINUE, at_once=self.steps_per_block)
        self._collections.begin()
        self._faults_before = page_faults()
        self._clock.mark()
        self._busy.append(time.thread_time())
        return order

    def _measure(self, step: Step) -> Order:
        self._clock.mark()
        self._learned(step)
        self._busy.append(time.thread_time())
        self.steps.append(replace(step, loss=None))  # losses are kept separately
        self.track.step(self.steps_per_block)
        enough = self._agree(self._judged if self._is_enough() else 0)
        if not enough:
            return Order.CONTINUE
        del self.steps[enough:]  # steps issued before the device had finished the last needed one
        self.ending.noisy, self.ending.cut_short = map(
            bool, map(self._agree, (self.ending.noisy, self.ending.cut_short))
        )
        self._end()
        return Order.STOP

    def _end(self) -> None:
        now = page_faults()
        self.page_faults = None if now is None else now - (self._faults_before or 0)
        if self._collections.seconds_per_step:
            seconds, self.steps = self._spread()
            self.ending.measured_instead(seconds)
        if self._counters:
            self.interference = interference_between(self._counters, read_counters())

    def _is_enough(self) -> bool:
        """Return whether the steps that the device has finished by now are all that are needed."""
        for elapsed in self._clock.passed():
            step = self.steps[self._judged]
            seconds = elapsed - step.paused_seconds
            self._judged += 1
            samples = step.samples * self._gain(self._judged - 1, seconds)
            is_open = self._collections.is_open
            if self.ending.step(seconds, samples, step.micro_batches, step.paused_seconds, is_open=is_open):
                return True
        return False

    def _gain(self, entry: int, seconds: float) -> float:
        """Return the factor by which full cycles are faster than the short ones of that entry, which took `seconds`."""
        if self._cycle_ratio == 1 or not self._timed:
            return 1.0
        once = self._update_seconds(entry) + self.exchange.exposed_seconds
        saved = (1 - 1 / self._cycle_ratio) * once * self.steps_per_block
        return seconds / max(seconds - saved, seconds / self._cycle_ratio)

    def _update_seconds(self, entry: int) -> float:
        assert self._updates is not None, "asked for only where updates were timed"
        return self._updates.between(2 * entry, 2 * entry + 1)

    def _next_part(self, part: Callable[[Step], Order], order: Order, at_once: int = 1) -> Order:
        self._part, self.steps_at_once = part, at_once
        self._last = time.perf_counter()
        return order

    def _lap(self) -> float:
        """Return the seconds since the last lap, including the device's work. Waits for it, so not for the window."""
        now = self._clock.now()
        seconds, self._last = now - self._last, now
        return seconds


def _together(step_seconds: float) -> int:
    """Return how many steps of that length make one block."""
    return max(1, min(MOST_TOGETHER, int(BLOCK_SECONDS / max(step_seconds, 1e-6))))
