"""Makes a Lightning Trainer go on for as many epochs as a probe needs, and report them.

The user's own number of epochs or steps determines the learning-rate schedule; after it, the rates stay constant. Not
covered: schedulers that a module steps itself, in manual optimization.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

from autotune.errors import TargetError
from autotune.targets.own_loop import LoopReport


def make_endless(trainer: Any) -> None:
    """Make its loops ignore `max_epochs` and `max_steps`, whose values stay (lightning 2.6, `_FitLoop.done`)."""
    fit, epoch = trainer.fit_loop, trainer.fit_loop.epoch_loop

    class EndlessFit(type(fit)):  # type: ignore[misc]  # Lightning may be absent
        @property
        def done(self) -> bool:
            return bool(self.max_batches == 0 or (self.trainer.should_stop and self._can_stop_early))

    class EndlessEpoch(type(epoch)):  # type: ignore[misc]  # Lightning may be absent
        @property
        def _is_training_done(self) -> bool:
            return bool(self._num_ready_batches_reached())

    fit.__class__, epoch.__class__ = EndlessFit, EndlessEpoch


def telling_of(
    library: ModuleType, report: LoopReport, begin: Callable[[Any], None], batch_end: Callable[[], None]
) -> Any:
    """Return a callback that reports epochs to `report`, and skips work without meaning beyond the user's own end.

    `begin` is called with the module before it trains, `batch_end` after every batch.
    """

    class Telling(library.Callback):  # type: ignore[misc, name-defined]  # Lightning may be absent
        def on_train_start(self, trainer: Any, module: Any) -> None:
            strategy = trainer.strategy
            _cut(trainer)
            if module.automatic_optimization:  # what waits for an evaluation would find none, and raise an error
                configs = strategy.lr_scheduler_configs
                strategy.lr_scheduler_configs = [one for one in configs if not one.reduce_on_plateau]
            begin(module)

        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            _cut(trainer)  # a Trainer that reloads its data counts its batches again
            if trainer.current_epoch and math.isfinite(trainer.fit_loop.max_batches):  # else the loader's end is seen
                report.epoch()
            if 0 <= trainer.max_epochs <= trainer.current_epoch:
                _hold_rates(trainer, module)

        def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
            if 0 <= trainer.max_steps <= trainer.global_step:
                _hold_rates(trainer, module)
            batch_end()

    return Telling()


def _cut(trainer: Any) -> None:
    """Leave out the batches at the end of an epoch that make no whole step. Raises `TargetError` if none is whole."""
    loop, accumulated = trainer.fit_loop, trainer.accumulate_grad_batches
    if not math.isfinite(loop.max_batches) or not loop.max_batches:
        return
    if loop.max_batches < accumulated:
        raise TargetError(
            f"An epoch has {loop.max_batches} batches, one step needs {accumulated}. A last partial step is left out, "
            f"so there would be none at all. Lower the batch or its accumulation, or raise limit_train_batches."
        )
    loop.max_batches -= loop.max_batches % accumulated


def _hold_rates(trainer: Any, module: Any) -> None:
    """Step the schedulers no more: some raise an error beyond their end."""
    if module.automatic_optimization:
        trainer.strategy.lr_scheduler_configs = []
