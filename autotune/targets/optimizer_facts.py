"""Facts about the updates of the optimizers that step first: class, implementations, and seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from autotune.core.records import OptimizerFacts
from autotune.targets import optimizer_implementations


class Updates:
    """Hooks that time every update of the process while they are installed."""

    def __init__(self) -> None:
        self._stepped: dict[int, Optimizer] = {}
        self._seconds = self._began = 0.0
        self.ignores_later_steps = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Time the updates of all optimizers of the process until the `with` block ends."""
        with ExitStack() as stack:
            stack.callback(register_optimizer_step_pre_hook(self._begin).remove)
            stack.callback(register_optimizer_step_post_hook(self._end).remove)
            yield

    def facts(self, step_seconds: float | None) -> OptimizerFacts | None:
        """Return the facts after a step of `step_seconds` (None: not known); None if none of torch.optim stepped."""
        stepped = list(self._stepped.values())
        if not stepped:
            return None
        return OptimizerFacts(
            names=tuple(dict.fromkeys(type(one).__name__ for one in stepped)),
            usual=optimizer_implementations.usual(stepped),
            possible=optimizer_implementations.possible_implementations(stepped),
            step_share=round(min(1.0, self._seconds / step_seconds), 4) if step_seconds else None,
        )

    def _begin(self, optimizer: Optimizer, *_: Any) -> None:
        self._began = time.perf_counter()

    def _end(self, optimizer: Optimizer, *_: Any) -> None:
        if not self.ignores_later_steps:
            self._seconds += time.perf_counter() - self._began
            self._stepped[id(optimizer)] = optimizer
