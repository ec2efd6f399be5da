"""The parts of a probe, and when it moves from one to the next.

    warm-up    until steps are steady                                     told apart, not measured
    exchange   micro-steps without and with an exchange of gradients      only where several ranks train
    compute    the same batch again and again: computing alone            only where a loader may overlap with it
    drain      what the workers held ready is thrown away                 the same
    load       whole turns of the workers, not trained on: loading alone  the same
    settle     one batch per worker, so that the window begins in the workers' steady rhythm; not without workers
               where a step takes 0.1 s or more
    window     whole multiples of the workers, until enough is known (`window_stopping.py`)

A turn of the workers is one batch of each of them. Where they load a micro-batch in half the time of computing it, a
turn is one batch: nobody waits for them.

Steps below 5 ms are taken together in blocks from `compute` on, settling left out: looking at each of them would cost a
good part of what they take.

Several ranks take the same steps, because each waits for the others in every one: what the clock decides, rank 0 does,
and `agree` tells the others. That costs them a message on the host for every report.

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
from autotune.machine.interference import Look, interference_between, look
from autotune.targets.base import Order, Step

LONG_STEP_SECONDS = 0.1  # of a step: nothing that is done once between two of them shows
BLOCK_SECONDS = 0.01  # of short steps that are looked at together: a look takes up to 60 us between steps (measured)
MOST_TOGETHER = 100
PLENTY_SHARE = 0.5  # of computing: workers that load a batch in less are not waited for, however they deliver
MOST_CALIBRATION_SKIPS = 10  # loss scaling skips some at first; ten in a row is overflow (docs/notes/precision.md 1)


class ProbeWatch:
    """Collects what one probe measures; `step` and `loaded` decide what the session does next."""

    def __init__(
        self, budget: ProbeBudget, instruments: Instruments, shape: LoopShape, callbacks: Callbacks,
        incumbent: float | None = None,
    ) -> None:  # fmt: skip
        """`incumbent` is the rate to beat, samples/s; None: it is measured for its own sake."""
        self._clock, self._updates, self._timed = instruments.clock, instruments.update_clock, 0  # marks around updates
        self._warm_up, self.track = instruments.warm_up, instruments.track
        self._collections = instruments.collections
        self._beat, self._phase, self._agree = callbacks.beat, callbacks.phase, callbacks.agree
        self._batches_per_turn = max(shape.loader_workers, 1)
        self._loads, self._exchanges = shape.loads, shape.exchanges
        self._cycle_ratio = shape.cycle_ratio
        self._part: Callable[[Step], Order] = self._warming
        self.steps_at_once = self.steps_per_block = 1  # now, and where they are short enough to be looked at together
        self._last = time.perf_counter()
        self._settling = 0
        self._step_seconds, self._micro_batches = 0.0, 1  # of an optimizer step, once it is warm
        self._losses: list[Any] = []
        self._successes = 0
        self._look: Look | None = None
        self.ending = WindowStopping(  # by the device's clock
            budget, workers=shape.loader_workers, epoch=shape.epoch_batches, incumbent=incumbent
        )
        self.computing = Computing(budget)
        self.loading = Loading(budget, shape.loader_workers, shape.prefetched_batches)
        self.exchange = Exchange(budget)
        self.first_batch_seconds = 0.0
        self.steps: list[Step] = []  # one per block, without their losses
        self._busy: list[float] = []  # seconds of this thread on a core by the beginning, and by the end of every block
        self._judged = 0  # of the steps
        self.calibration_skips = self.skipped_steps = self.restarts = 0
        self.interference: HostInterference | None = None
        self._faults_before: int | None = None  # until the window began
        self.page_faults: int | None = None  # of the window; None: their number says nothing here

    def first_batch(self, seconds: float) -> None:
        """Note how long the loader took to come up."""
        self.first_batch_seconds = seconds
        self._last = time.perf_counter()

    def epoch(self) -> None:
        """Count loader restarts inside the window; they are part of its wall time."""
        self.restarts += self._part == self._measure
        if self._part == self._compute:  # over, and batches are being loaded alone
            self.loading.epoch()

    def step(self, step: Step) -> Order:
        """Take note of the optimizer steps that were asked for."""
        self._beat()
        return self._part(step)

    def ended(self) -> bool:
        """Take the window for complete where its steps will do, because there are no more."""
        if self._part != self._measure:
            return False
        del self.steps[self.ending.ended() :]
        self._end()
        return bool(self.steps)

    def micro_batch(self) -> None:
        """Pass the sign of life on."""
        self._beat()

    def update(self) -> None:
        """Time the optimizer's part of what is measured: before and after."""
        if self._updates and self._part == self._measure:
            self._updates.mark()
            self._timed += 1

    def micro_step(self, *, exchanges: bool) -> Order:
        """Take note of one micro-step, in which gradients were exchanged or not; both kinds begin at the same time."""
        self._beat()
        enough = self._agree(self.exchange.micro_step(self._lap(), exchanges=exchanges))
        self._last = time.perf_counter()
        return self._warmed() if enough else Order.EXCHANGE

    def loaded(self, samples: int) -> Order:
        """Take note of one batch that was not trained on."""
        self._beat()
        return self._settle() if self._agree(self.loading.batch(self._lap(), samples)) else Order.LOAD

    def losses(self) -> tuple[float | None, ...]:
        """Loss of every block's last step, repeated batches left out; None: not finite. Waits for the device."""
        values = torch.stack([torch.as_tensor(loss, dtype=torch.float32) for loss in self._losses]).tolist()
        return tuple(value if math.isfinite(value) else None for value in values)

    @property
    def warmup_seconds(self) -> tuple[float, ...]:
        """The seconds of every step before the window."""
        return tuple(self._warm_up.seconds)

    @property
    def update_seconds(self) -> tuple[float, ...]:
        """The seconds of the optimizer's last update in every entry; (): updates were not timed."""
        return tuple(self._update_seconds(entry) for entry in range(len(self.steps))) if self._timed else ()

    def step_seconds(self) -> tuple[float, ...]:
        """Return the seconds of every entry, without pauses that were no part of training. Waits for the device."""
        return self._spread()[0]

    def _spread(self) -> tuple[tuple[float, ...], list[Step]]:
        intervals = zip(self._clock.intervals(), self.steps, strict=False)
        return self._collections.spread([elapsed - step.paused_seconds for elapsed, step in intervals], self.steps)

    @property
    def busy_seconds(self) -> tuple[float, ...]:
        """The seconds of every entry in which this thread was on a core, and neither waited nor was kept from it."""
        return tuple(after - before for before, after in pairwise(self._busy[: len(self.steps) + 1]))

    @property
    def watching_seconds_per_step(self) -> float | None:
        """The seconds that watching cost an optimizer step; the first block, which also settles, is left out."""
        later = self.steps[1:]
        return sum(step.watching_seconds for step in later) / len(later) / self.steps_per_block if later else None

    def _learned(self, step: Step) -> None:
        self._collections.step(step)
        # A scalar that stays in the heap of the CPU splits the block that the next activations would have reused:
        # 1000 steps of 128 KiB tensors grew the process by 370 MiB (measured). On the CPU reading it costs no waiting.
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
        # The mean: workers deliver in bursts, and most steps of a loader-bound training are short.
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
        # The workers held batches ready while the steps warmed up: what they deliver in the long run is known only now.
        loading = self.loading.seconds_per_batch * self._micro_batches
        self.steps_per_block = self._agree(_together(max(self._step_seconds, loading)))
        if self._agree(0 < loading < PLENTY_SHARE * self._step_seconds):
            self._batches_per_turn = self.ending.batches_per_turn = 1
        self._look = look()  # before settling, which takes up what looking costs
        if self._agree(not self._loads and self._batches_per_turn == 1 and self._step_seconds >= LONG_STEP_SECONDS):
            return self._begin()
        return self._next_part(self._settled, Order.CONTINUE)

    def _settled(self, step: Step) -> Order:
        self._learned(step)
        self._settling += step.micro_batches
        return self._begin() if self._settling >= self._batches_per_turn else Order.CONTINUE

    def _begin(self) -> Order:
        self._clock.now()  # the device has settled, too: what the launcher reads of it begins with the phase
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
        self.steps.append(replace(step, loss=None))  # kept apart
        self.track.step(self.steps_per_block)
        enough = self._agree(self._judged if self._is_enough() else 0)
        if not enough:
            return Order.CONTINUE
        del self.steps[enough:]  # issued before the device had told of the last that was needed
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
        if self._look:
            self.interference = interference_between(self._look, look())

    def _is_enough(self) -> bool:
        """Whether the steps that the device has come through by now are all that are needed."""
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
        """Return how many times as fast full cycles are as the short ones of that entry, which took `seconds`."""
        if self._cycle_ratio == 1 or not self._timed:
            return 1.0
        saved = (1 - 1 / self._cycle_ratio) * self._update_seconds(entry) * self.steps_per_block
        return seconds / max(seconds - saved, seconds / self._cycle_ratio)

    def _update_seconds(self, entry: int) -> float:
        assert self._updates is not None, "asked for only where updates were timed"
        return self._updates.between(2 * entry, 2 * entry + 1)

    def _next_part(self, part: Callable[[Step], Order], order: Order, at_once: int = 1) -> Order:
        self._part, self.steps_at_once = part, at_once
        self._last = time.perf_counter()
        return order

    def _lap(self) -> float:
        """Seconds since the last lap, the device's work included. Waits for the device: not for the window."""
        now = self._clock.now()
        seconds, self._last = now - self._last, now
        return seconds


def _together(step_seconds: float) -> int:
    """Return how many steps of that length make one block."""
    return max(1, min(MOST_TOGETHER, int(BLOCK_SECONDS / max(step_seconds, 1e-6))))
