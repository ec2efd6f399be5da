"""Steps that a program tells by `autotune.step`: where it calls that, they are the truth, and no hook's guess counts.

Whether it will call it is looked up before the first step: a GAN's critic may step five times before the first call.
"""

from __future__ import annotations

import inspect
import re
import sys
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from autotune import telling
from autotune.errors import TargetError
from autotune.targets.commands.fetching import Fetched, Fetching

MOST_STEPS_WITHOUT_CALL = 50  # of an optimizer: the program does not call it after all
_IMPORTED = re.compile(r"from\s+autotune\s+import\b[^#\n]*\bstep\b|from\s+autotune\s+import\s*\([^)]*\bstep\b")
_ALIASES = re.compile(r"import\s+autotune(?:\s+as\s+(\w+))?")

_OTHERS = {
    *(sys.stdlib_module_names - {"__main__"}),
    "autotune",
    "torch",
    "numpy",
}  # where no training loop of the user's is

MicroBatch = tuple[Fetched, Tensor]  # and its share of the loss


class ToldSteps:
    """What a program tells, and the micro-batches since it did."""

    def __init__(self, label: str, batches: Fetching) -> None:
        self.skipped = False  # a gradient scaler left out a step since the last call
        self._label, self._batches = label, batches
        self._patience: int | None = None  # steps that a call is waited for; None: not looked up yet
        self._is_heard = False
        self._held: list[MicroBatch] = []

    @property
    def are_awaited(self) -> bool:
        """Whether steps are those that the program tells."""
        if self._patience is None:
            self._patience = MOST_STEPS_WITHOUT_CALL if _calls_it() else 0
        return self._is_heard or self._patience > 0

    def hold(self, fetched: Fetched, loss: Tensor) -> None:
        """Keep a micro-batch for the step that it will belong to."""
        self._held.append((fetched, loss))

    def stepped(self, *, skipped: bool) -> None:
        """Take note of an optimizer's step: one too many without a call, and hooks count again."""
        self.skipped |= skipped
        if not self._is_heard:
            self._patience = (self._patience or 0) - 1
            if not self._patience:
                self._held = []

    def end(self, loss: Any, samples: Any) -> list[MicroBatch]:
        """Return the micro-batches of the step that was told. Raises `TargetError` for what cannot be meant."""
        self._is_heard, held, self._held = True, self._held, []
        if not held:  # no backward pass: gradients are had in another way
            nothing = torch.full((), float("nan"))
            while (fetched := self._batches.take()) is not None:
                held.append((fetched, nothing))
        held = self._sized(held, samples)
        if loss is None:
            return held
        share = self._loss(loss) / len(held)
        return [(fetched, share) for fetched, _ in held]

    def _sized(self, held: list[MicroBatch], samples: Any) -> list[MicroBatch]:
        if samples is None and held:
            return held
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
            given = "no samples" if samples is None else f"samples={samples!r}"
            raise TargetError(
                f"{self._label} called autotune.step() with {given}. They are those that the step trained on, and "
                f"{'no DataLoader gave any' if samples is None else 'a whole number of at least 1'}. Write "
                f"autotune.step(loss=loss, samples=len(batch))."
            )
        if sum(fetched.samples for fetched, _ in held) == samples:
            return held
        held = held or [(Fetched(samples=samples, tokens=0, seconds=0.0), torch.full((), float("nan")))]
        even, more = divmod(samples, len(held))
        return [
            (Fetched(samples=even + (number < more), tokens=fetched.tokens, seconds=fetched.seconds), loss)
            for number, (fetched, loss) in enumerate(held)
        ]

    def _loss(self, loss: Any) -> Tensor:
        try:
            told = loss.detach() if isinstance(loss, Tensor) else torch.tensor(float(loss))
            return told.reshape(())
        except (TypeError, ValueError, RuntimeError) as error:
            raise TargetError(
                f"{self._label} called autotune.step() with a loss that is no number: {error}. It probably has one "
                f"entry per sample. Give its mean, or leave it out."
            ) from error


def _calls_it() -> bool:
    """Whether a module of the program calls `autotune.step`, as far as its text says."""
    package = sys.modules["autotune"]
    return any(
        any(value is package or value is telling.step for value in vars(module).values()) and _names_it(module)
        for module in _of_the_program()
    )


def _of_the_program() -> list[ModuleType]:
    """`__main__`, and what it and its own modules name, as far as that can call us."""
    found = {"__main__": sys.modules["__main__"]}
    left = list(found.values())
    while left:
        for value in tuple(vars(left.pop()).values()):
            name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if not isinstance(name, str) or name in found or name.partition(".")[0] in _OTHERS:
                continue
            if isinstance(module := sys.modules.get(name), ModuleType):
                found[name] = module
                left.append(module)
    return list(found.values())


def _names_it(module: ModuleType) -> bool:
    try:
        text = inspect.getsource(module)
    except (OSError, TypeError):
        return False
    names = {alias or "autotune" for alias in _ALIASES.findall(text)}
    return bool(_IMPORTED.search(text)) or any(re.search(rf"\b{name}\.step\s*\(", text) for name in names)
