"""The results of the simulated machine, in closed form: paired losses, gradients with known noise, predicted peaks."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from autotune.core.records import Config, Value
from autotune.gradient_noise.records import GradientSample, NoiseScaleRequest
from autotune.memory.model import Arm
from autotune.memory.records import ShapeRunRequest
from autotune.precision.records import LossRun, PrecisionCheckRequest
from autotune.testing.machine import Machine

START = 2.3  # loss of ten classes before training
TIME_CONSTANT = 20  # steps
GAINS: dict[Literal["reference", "perturbed", "candidate"], float] = {
    "reference": 1.0,
    "perturbed": 1.0 + 1e-6,
    "candidate": 1.0 + 1e-4,
}
BAD_GAIN = 0.9
DIMENSIONS = 200  # of the pretended weights: the more there are, the less norms scatter
TENSORS = 0.93  # share of the needed memory; the rest is held by the allocator in addition


def paired_losses(request: PrecisionCheckRequest, *, bad: bool) -> tuple[LossRun, ...]:
    """Return losses 2.3 * (1 - gain * (1 - exp(-step / 20))) at all steps, for all seeds; `bad` means the candidate."""
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


def sampled_gradients(request: NoiseScaleRequest, phi: float) -> GradientSample:
    """Return gradients of micro-batches, of mean length 1 with a noise of `phi` samples, after a loss that fell."""
    chance = np.random.default_rng(request.seed)
    batch, count = request.config.batch_size, request.micro_batches
    spread = math.sqrt(phi / batch / DIMENSIONS)
    gradients = 1 / math.sqrt(DIMENSIONS) + spread * chance.standard_normal((count, DIMENSIONS))
    return GradientSample(
        losses=tuple(2.3 * math.exp(-step / 100) for step in range(request.least_steps)),
        has_fallen=True,
        samples=(batch,) * count,
        squared_norms=tuple((gradients**2).sum(axis=1).tolist()),
        alignments=tuple((gradients @ gradients.mean(axis=0)).tolist()),
    )


def predicted_peaks(request: ShapeRunRequest, machine: Machine) -> tuple[Arm, ...]:
    """Return an arm with all batches for each arm asked for: the truth, except for what an allocator adds."""

    def peak(values: dict[str, Value], batch: int) -> int:
        config = Config(values=request.config.values | values | {"batch_size": batch})
        return int(TENSORS * machine.needed_bytes(config))

    return tuple(
        Arm(values=values, points=tuple((batch, peak(values, batch)) for batch in request.batches))
        for values in request.arms
    )
