"""Paired losses in closed form for the fake machine: a bad dtype learns a tenth less, a good one all but the same."""

from __future__ import annotations

import math
from typing import Literal

from autotune.requests import StabilityRequest
from autotune.results import LossRun

START = 2.3  # loss of ten classes before training
TIME_CONSTANT = 20  # steps
GAINS: dict[Literal["reference", "perturbed", "candidate"], float] = {
    "reference": 1.0,
    "perturbed": 1.0 + 1e-6,
    "candidate": 1.0 + 1e-4,
}
BAD_GAIN = 0.9


def paired_losses(request: StabilityRequest, *, bad: bool) -> tuple[LossRun, ...]:
    """2.3 * (1 - gain * (1 - exp(-step / 20))) at every step, whatever the seed; `bad` is the candidate."""
    falls = [1 - math.exp(-step / TIME_CONSTANT) for step in range(request.steps)]
    gains = {**GAINS, "candidate": BAD_GAIN} if bad else GAINS
    return tuple(
        LossRun(
            role=role,
            seed=seed,
            losses=tuple(START * (1 - gain * fall) for fall in falls),
            gradient_norms=(1.0,) * request.steps,
            zero_gradient_shares=(0.0,) * request.steps,
        )
        for role, gain in gains.items()
        for seed in request.seeds
    )
