"""The window must not itself change the memory that it measures."""

from __future__ import annotations

import weakref

import torch

from autotune.child.clock import clock_for
from autotune.child.memory_trace import track_on
from autotune.child.warmup import WarmUp, growth_on
from autotune.child.window import Window
from autotune.core.requests import ProbeBudget
from autotune.targets.base import Step


def test_no_loss_tensor_of_the_cpu_outlives_its_step() -> None:
    budget = ProbeBudget()
    window = Window(clock_for("cpu"), budget, warm_up=WarmUp(budget, growth_on("cpu")), track=track_on("cpu"))
    alive = []

    for number in range(12):
        loss = torch.tensor(float(number))
        alive.append(weakref.ref(loss))
        window.step(Step(loss=loss, samples=8, tokens=None, micro_batches=1, loader_wait_seconds=0.0, skipped=False))
        del loss

    assert [reference() for reference in alive] == [None] * 12
    assert window.losses() == tuple(float(number) for number in range(12))
