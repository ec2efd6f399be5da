"""Loops of the user's own: they are started with a configuration and report their steps; autotune cannot control them.

    OwnLoop.build(config, plan) ─► OwnLoop.run(report) ─► report.fetched, report.micro_batch, report.step ─► a watch

Work that needs our own loop is left out and reported (`TargetFacts.owns_loop`): computing and loading alone, a step on
the largest batch, validation, memory predicted from shapes, accumulation in short cycles.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from autotune.core.records import Config, TargetFacts
from autotune.errors import TargetError
from autotune.knobs.base import Plan
from autotune.knobs.observed import Observed
from autotune.targets.base import Order, Step, Watch
from autotune.targets.batches import Shapes, count_tokens, describe, first_dimension, has_dimension
from autotune.targets.loop import BEAT_SECONDS


@dataclass
class _Block:
    """Steps that were not reported to the watch yet."""

    steps: int = 0
    samples: int = 0
    tokens: int = 0
    micro_batches: int = 0
    waited: float = 0.0
    skipped: int = 0
    losses: list[Tensor] = field(default_factory=list)  # of the micro-batches of its last step
    telling_seconds: float = 0.0  # spent on watching the loop and on reports to the watch
    paused: float = 0.0  # seconds that are no part of training


class LoopReport:
    """Collects the reports of a loop, and passes them to a watch in blocks of the size that the watch asks for."""

    def __init__(self, watch: Watch, label: str) -> None:
        self.shapes, self.stopped, self._label = Shapes(), False, label
        self._watch, self._block = watch, _Block()
        self._is_first, self._late = True, 0.0

    def fetched(self, batches: Sequence[Any], samples: int, seconds: float) -> None:
        """Note that the loop waited `seconds` for these micro-batches, each asked for with `samples`.

        Raises `TargetError` if one has another number: its measurement would be attributed wrongly. Where time steps
        come first, each tensor has to have a dimension of that size. Not covered: batches of objects that cannot be
        looked into, and another number of samples that all have as many time steps as samples were asked for.
        """
        began = time.perf_counter()
        for batch in batches:
            if (arrived := first_dimension(batch)) not in (None, samples) and not has_dimension(batch, samples):
                raise TargetError(
                    f"{self._label} was asked for batches of {samples} samples, and {arrived} arrived: "
                    f"{describe(batch)}. A loader or a collator of its own probably cuts batches of another size, "
                    f"which could be neither tuned nor held. Make it use the batch size that it is given; where time "
                    f"steps come first, give every tensor of the batch a dimension of the samples."
                )
        for batch in batches:
            self.shapes.note(batch, samples, began)
        self.counted(samples * len(batches), sum(map(count_tokens, batches)), seconds)
        self._block.telling_seconds += time.perf_counter() - began

    def counted(self, samples: int, tokens: int, seconds: float) -> None:
        """Note samples and tokens for which the loop waited `seconds`; the caller has checked the batch."""
        if self._is_first:
            self._is_first = False
            self._watch.first_batch(seconds)
        else:
            self._block.waited += seconds
        self._block.samples += samples
        self._block.tokens += tokens

    def watched(self, seconds: float) -> None:
        """Note seconds that the host spent on watching the loop, outside of this class."""
        self._block.telling_seconds += seconds

    def paused(self, seconds: float) -> None:
        """Note seconds that the loop spent on evaluations and checkpoints, with the device idle before and after."""
        self._block.paused += seconds

    def epoch(self) -> None:
        """Note that an epoch ended and the next begins."""
        self._watch.epoch()

    def micro_batch(self, share: Tensor) -> None:
        """Note that one micro-batch was issued; `share` is its part of the loss of its optimizer step, detached."""
        self._block.losses.append(share)
        self._block.micro_batches += 1
        self.alive(at_once=self._watch.steps_at_once == 1)

    def alive(self, *, at_once: bool = False) -> None:
        """Report progress to the watch, at most once in `BEAT_SECONDS`, or `at_once`."""
        now = time.perf_counter()
        if at_once or now > self._late:
            self._watch.micro_batch()
            self._late = now + BEAT_SECONDS

    def step(self, *, skipped: bool = False) -> bool:
        """Note an optimizer step; `skipped`: the gradient scaler left it out. Return False if the loop must end."""
        block = self._block
        block.steps, block.skipped = block.steps + 1, block.skipped + skipped
        if block.steps < self._watch.steps_at_once:
            block.losses = []
            return True
        self._block = _Block()
        began = time.perf_counter()
        step = Step(
            loss=sum(block.losses[1:], block.losses[0]),
            steps=block.steps,
            samples=block.samples,
            tokens=block.tokens or None,
            micro_batches=block.micro_batches,
            loader_wait_seconds=block.waited,
            skipped=block.skipped,
            watching_seconds=block.telling_seconds,
            paused_seconds=block.paused,
        )
        self.stopped = self._watch.step(step) is Order.STOP
        self._block.telling_seconds = time.perf_counter() - began
        return not self.stopped

    def ended(self) -> bool:
        """Note that the loop ended normally; return whether enough was measured, as if the watch had stopped it."""
        self.stopped = self.stopped or self._watch.ended()
        return self.stopped


class OwnLoop(ABC):
    """Training code that runs its own loop. A kind of target derives from it."""

    label: str  # the file's or module's name, for messages
    root: Path  # the folder of the user's code

    @abstractmethod
    def build(self, config: Config | None, plan: Plan) -> nn.Module | None:
        """Prepare training with `config` (None: as the user trains today); return the model, if there is one yet."""

    @abstractmethod
    def run(self, report: LoopReport) -> None:
        """Train until `report.step` returns False. Raises what the user's code raises."""

    def note_model(self) -> None:  # noqa: B027  # most loops have their model at hand
        """Note what `facts` need of the model as it trains: called after each step of an inspection, in its thread."""

    @abstractmethod
    def facts(self) -> TargetFacts:
        """Return the facts after `build`, or, if that gave no model, after the first step; without `step`.

        Its `owns_loop` is True.
        """

    def needs_another_step(self) -> bool:
        """Return whether `facts` need one more step. To be asked after each step of an inspection."""
        return False

    def lasts(self) -> bool:
        """Return whether it has trained for as long as a probe needs at least; True where it never ends by itself."""
        return True

    def observed(self) -> Observed:
        """Return the settings that training was seen to use so far."""
        return Observed()

    def loss_scale(self) -> float | None:
        """Return the factor of a gradient scaler for the next loss; None without a scaler. Waits for the device."""
        return None


class OwnSession:
    """The `Session` of a loop of the user's own."""

    loads = exchanges = False
    epoch_batches = 0

    def __init__(self, loop: OwnLoop) -> None:
        self._loop = loop
        self._report: LoopReport | None = None
        self.loss_scale, self.observed, self.label = loop.loss_scale, loop.observed, loop.label

    def train(self, watch: Watch) -> None:
        """Let the loop run until the watch says `STOP`. Raises `TargetError` if it ends before enough was measured."""
        self._report = report = LoopReport(watch, self._loop.label)
        self._loop.run(report)
        if not report.ended():
            raise TargetError(
                f"{self._loop.label} ended its training before it was measured. It has probably too little data, or "
                f"stops itself. Give it more samples, or let it train for more steps."
            )

    @property
    def shapes_vary(self) -> bool:
        """Whether the shapes of batches so far differed in more than their number of samples."""
        return self._report is not None and self._report.shapes.vary

    def train_worst(self) -> int:
        """Take no step, and return 0: the loop itself chooses its batches."""
        return 0

    def validate(self, batches: int) -> int:
        """Evaluate nothing, and return 0: the loop itself decides when to evaluate."""
        return 0
