"""Looks whether the loss is a mean over samples: only then do micro-batches add up to the loss of one large batch.

64 samples                  whole                first half, second half
cross entropy               2.31                 2.29, 2.33    their mean: any micro-batch trains the same loss
InfoNCE over the batch      ln 64 = 4.16         ln 32 = 3.47  each sample is compared with fewer others
reduction="sum"             148                  73, 75        divided by the accumulation steps: half the gradient
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from autotune.core.records import CheckLine
from autotune.targets.batches import move
from autotune.targets.chance import keep_chance
from autotune.targets.loop import Training

# Of the mean of the halves. For InfoNCE a half has ln 2 of ln n less, where the model knows nothing yet: 8 % of 4,096
# samples, 6 % of 65,536 (van den Oord et al. 2018, https://arxiv.org/abs/1807.03748, 2.3); a sum over samples has half.
# A mean over samples differs by rounding: by 0.4 % in bfloat16.
LEAST_DIFFERENCE = 0.03
SAME_LOSS = 1e-3  # relative, of one batch twice: parallel sums round otherwise; a loss that draws noise differs more


@dataclass(frozen=True, kw_only=True)
class HalvedLosses:
    """The loss of some samples together, and of their halves."""

    samples: int
    whole: float
    halves: tuple[float, float]

    @property
    def is_mean(self) -> bool:
        """Whether the whole has the mean of the halves, or lies between them.

        A mean over tokens lies there, with whatever weights: the halves may have unequal numbers of them.
        """
        mean = sum(self.halves) / 2
        is_between = min(self.halves) <= self.whole <= max(self.halves)
        return is_between or abs(self.whole - mean) <= LEAST_DIFFERENCE * abs(mean)

    @property
    def check_lines(self) -> tuple[CheckLine, ...]:
        """The line about a loss that is no mean over samples; none about others."""
        if self.is_mean:
            return ()
        one, other = self.halves
        text = (
            f"the loss of {self.samples:,} samples is {self.whole:.4g}, of its halves {one:.4g} and {other:.4g}: it is "
            f"no mean over samples, so another micro-batch trains another loss"
        )
        return (CheckLine(name="loss", text=text, needs_attention=True),)


def halved_losses(training: Training, batch: Any) -> HalvedLosses | None:
    """Return the losses of `batch` and of its halves, in eval mode and without gradients; None: nothing is known.

    Nothing is known where a step is the user's own, where the batch has other parts than tensors with one entry for
    each sample, where the loss differs from itself, and where the user's code cannot take half a batch or eval mode.
    """
    if training.own_step is not None:
        return None
    with _looking(training):
        try:
            samples = training.count_samples(batch) // 2 * 2
            parts = _parts(batch, training.count_samples(batch))
            if not training.parallel.everybody(bool(parts)):
                return None
            whole, again, *halves = [float(training.evaluate(part)) for part in parts]
        except Exception:  # whatever the user's code raises: it never promised to take half a batch
            return None
    if not all(map(math.isfinite, (whole, *halves))) or not math.isclose(whole, again, rel_tol=SAME_LOSS):
        return None
    return HalvedLosses(samples=samples, whole=whole, halves=(halves[0], halves[1]))


def _parts(batch: Any, samples: int) -> list[Any]:
    """Return an even number of samples twice, and their two halves, as copies; empty if they cannot be told apart."""
    half, sizes = samples // 2, {_size(part) for part in _leaves(batch)}
    if not half or sizes != {samples}:
        return []
    whole = slice(0, 2 * half)

    def cut(where: slice) -> Any:
        return move(batch, lambda tensor: tensor[where].clone(), "cpu")

    return [cut(where) for where in (whole, whole, slice(0, half), slice(half, 2 * half))]


def _leaves(batch: Any) -> Iterator[Any]:
    """Yield what dicts, lists and tuples of the batch hold."""
    if isinstance(batch, Mapping | list | tuple):
        for part in batch.values() if isinstance(batch, Mapping) else batch:
            yield from _leaves(part)
    else:
        yield batch


def _size(leaf: Any) -> int | None:
    """Return the first dimension of a tensor that can be cut along it; None: it cannot."""
    is_plain = isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and not leaf.is_nested
    return len(leaf) if is_plain and leaf.dim() else None


@contextmanager
def _looking(training: Training) -> Iterator[None]:
    """Have the model in eval mode, not compiled, and without gradients; put modes and random states back at the end."""
    modes, back = [(module, module.training) for module in training.model.modules()], keep_chance(training.plan.device)
    try:
        training.model.eval()
        is_compiled = "torch._dynamo" in sys.modules  # importing it takes seconds; compiling for halves takes minutes
        with torch.no_grad(), torch.compiler.set_stance("force_eager") if is_compiled else nullcontext():
            yield
    finally:
        for module, is_training in modes:
            module.training = is_training
        back()
