"""Gradients in closed form for the fake machine: of a training whose noise scale is known."""

from __future__ import annotations

import math

import numpy as np

from autotune.gradients import GradientSample
from autotune.requests import NoiseScaleRequest

DIMENSIONS = 200  # of the pretended weights: the more, the less do norms scatter


def sampled_gradients(request: NoiseScaleRequest, phi: float) -> GradientSample:
    """Micro-batches whose gradients have a mean of length 1 and a noise of `phi` samples, after a loss that fell."""
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
