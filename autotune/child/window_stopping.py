"""Decides when a window has measured enough. It is given the length of each step: it uses no torch and no clock.

clearly slower than the best so far       cut short: what was measured until then is the result clearly apart from it
a rough interval is enough to tell the two apart too near to tell, or nothing to beat      a precise interval all of
them                               whole turns of the workers, and not beyond the cap epochs that workers load
whole ones, as long as they are few and soon over full collections of garbage               not before a second one has
come, if it comes soon
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.core.requests import EPOCH_PATIENCE, LONG_WINDOW_RATIO, MEASURED_STEPS, ProbeBudget
from autotune.core.stats import clearly_slower, relative_half_width

LOOK_GROWTH = 1.1  # computing the spread delays the next step: it is done when a tenth more steps are there
# A window of a second holds the beginning of an epoch once or never, although it takes long (workers start anew, or
# have nothing ready: 0.2 to 0.5 s every 32 steps of 4 ms with 16 workers, docs/notes/gpu.md 5). With so many epochs in
# the window, one more or less matters little.
MANY_EPOCHS = 8
NEARLY_WHOLE = 0.02  # of the window: so much more than whole epochs moves its rate by less than most confirmations tell
OPEN_PATIENCE = 2.0  # times the seconds until all else is known: so long it waits for another full collection
FEWEST_PATIENCE = 2.0  # times the longest window: so long it waits for the fewest steps
COMPARED_BLOCK_SECONDS = 0.1  # of steps compared as one block with the best so far: shorter delays are noise


class WindowStopping:
    """Takes note of the steps of one window until it has seen enough.

    `workers`: a window ends after whole turns of them, because their batches come in bursts. `epoch`: micro-batches of
    an epoch; 0: not known. `incumbent`: samples/s of the best configuration so far; None: there is none, and the window
    is measured in full.
    """

    def __init__(
        self, budget: ProbeBudget, *, workers: int = 0, epoch: int = 0, incumbent: float | None = None
    ) -> None:  # fmt: skip
        self._budget, self.batches_per_turn, self._epoch, self._incumbent = budget, max(workers, 1), epoch, incumbent
        self._spent = self._paused = 0.0
        self._seconds: list[float] = []
        self._elapsed = self._block_seconds = 0.0
        self._samples = self._block_samples = 0.0
        self._micro_batches = self._next_look = self._whole = 0  # `_whole`: steps that are whole turns
        self._block_rates: list[float] = []
        self._known_after: float | None = None  # seconds of the window after which all else was known
        self.noisy = self.cut_short = False

    def spent(self, seconds: float) -> None:
        """Note the seconds of a warm-up of long steps: they count against the longest window."""
        self._spent = seconds

    def step(
        self, seconds: float, samples: float, micro_batches: int, paused: float = 0.0, *, is_open: bool = False
    ) -> bool:
        """Note one optimizer step; return whether it was the last that is needed.

        `is_open`: a full collection has come, and it is not known how often they come. A window waits for the next one,
        unless it must hold whole turns or epochs of workers. `paused`: seconds around the step that are no part of it,
        such as those of an evaluation. What exceeds the longest window in total counts against it: if evaluations take
        most of the time, a probe would last for minutes.
        """
        self._paused += paused
        self._seconds.append(seconds)
        self._elapsed += seconds
        self._block_seconds += seconds
        self._samples += samples
        self._block_samples += samples
        self._micro_batches += micro_batches
        whole = self._micro_batches % self.batches_per_turn == 0
        if whole:
            self._whole = len(self._seconds)
        if whole and self._block_seconds >= COMPARED_BLOCK_SECONDS and self._slower_by_now():
            self.cut_short = True
            return True
        waits = self._known_after is not None
        if not waits and not self._enough(whole=whole):
            return False
        self._known_after = self._known_after or self._elapsed
        if not self._has_whole_epochs() or (is_open and self._may_wait(self._known_after)):
            return False
        if waits:
            half_width = self.half_width()
            self.noisy = half_width is None or half_width > self._wanted_precision(half_width)
        return True

    def ended(self) -> int:
        """End the window because training has ended; return how many steps, whole turns, it has; 0: too few."""
        seconds = self._seconds[: self._whole]
        if len(seconds) < self._budget.min_steps or sum(seconds) < self._budget.min_seconds:
            return 0
        self._seconds = seconds
        self._judge_noise()
        return len(seconds)

    def measured_instead(self, seconds: Sequence[float]) -> None:
        """Replace the seconds of the steps, for example by those without full collections."""
        self._seconds = list(seconds)
        self._judge_noise()

    def half_width(self) -> float | None:
        """Return the half width of the 95 % interval of the mean step time, relative to it; None: too few steps."""
        micro_batches = max(self._micro_batches // max(len(self._seconds), 1), 1)
        return relative_half_width(self._seconds, max(1, math.ceil(self.batches_per_turn / micro_batches)))

    def _judge_noise(self) -> None:
        half_width = self.half_width()
        self.noisy = half_width is None or half_width > self._budget.target_precision

    def _has_whole_epochs(self) -> bool:
        """Return whether the window may end here, as far as epochs are concerned."""
        epoch, done = self._epoch, self._micro_batches
        if not epoch or done >= MANY_EPOCHS * epoch:
            return True
        over = done % epoch
        if done >= epoch and over <= NEARLY_WHOLE * done:
            return True
        whole = self._elapsed * (1 + (epoch - over) / done)  # seconds of a window that ends with an epoch
        return self._spent + whole > EPOCH_PATIENCE * max(self._budget.min_seconds, self._budget.max_seconds)

    def _may_wait(self, known_after: float) -> bool:
        """Return whether a window may go on for another full collection, although all else is known."""
        most = min(OPEN_PATIENCE * known_after, self._budget.max_seconds - self._spent)
        return self.batches_per_turn == 1 and not self._epoch and self._elapsed + self._paused < most

    def _slower_by_now(self) -> bool:
        """Close a block of steps; return whether all blocks so far are clearly slower than the best configuration."""
        self._block_rates.append(self._block_samples / self._block_seconds)
        self._block_seconds = self._block_samples = 0.0
        return self._incumbent is not None and clearly_slower(self._block_rates, self._incumbent)

    def _enough(self, *, whole: bool) -> bool:
        budget, count, elapsed = self._budget, len(self._seconds), self._elapsed
        spent = self._spent + max(0.0, self._paused - budget.max_seconds)
        longest = max(budget.min_seconds, budget.max_seconds - spent)
        capped = self._has_fewest() and (elapsed >= longest or count >= budget.max_steps)
        if not (whole or elapsed >= 2 * longest):
            return False
        if elapsed < budget.min_seconds or (
            count < budget.min_steps and elapsed < LONG_WINDOW_RATIO * budget.min_seconds
        ):
            return capped
        if not capped and count < self._next_look:
            return False
        self._next_look = math.ceil(count * LOOK_GROWTH)
        half_width = self.half_width()
        precise = half_width is not None and half_width <= self._wanted_precision(half_width)
        self.noisy = not precise
        return precise or capped

    def _has_fewest(self) -> bool:
        """Return whether there are as many steps as asked for, or as time allows."""
        count, fewest = len(self._seconds), self._budget.fewest_steps
        all_of_them = self._elapsed / count * fewest
        return count >= fewest or (count >= MEASURED_STEPS and all_of_them > FEWEST_PATIENCE * self._budget.max_seconds)

    def _wanted_precision(self, half_width: float) -> float:
        """Return the wanted relative half width: the rough one if the best so far lies outside the present interval."""
        if self._incumbent is None:
            return self._budget.target_precision
        apart = abs(self._samples / self._elapsed / self._incumbent - 1) > half_width
        return self._budget.rough_precision if apart else self._budget.target_precision
