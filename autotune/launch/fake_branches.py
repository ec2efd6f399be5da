"""Branched trainings in closed form for the fake machine: each sample brings on as far as the noise scale lets it."""

from __future__ import annotations

import math

import numpy as np

from autotune.branches import Branch
from autotune.launch.fake_losses import START
from autotune.noise_scale import efficiency, learning_rate_factor
from autotune.requests import BranchesRequest

USEFUL_SAMPLES = 10_000  # in which the loss falls to 1 / e
NOISE = 0.5  # of the loss of one sample, as a share of the loss


def branched_losses(request: BranchesRequest, phi: float, samples: int) -> tuple[Branch, ...]:
    """2.3 * exp(-useful samples / 10,000) and noise, over `samples` of each branch, where `phi` is the truth."""
    before = request.branches[0].global_batch_size()
    branches = []
    for config in request.branches:
        batch = config.global_batch_size()
        chance = np.random.default_rng(request.seed + batch)
        useful = batch * efficiency(batch, phi) * np.arange(max(1, math.ceil(samples / batch)))
        losses = START * np.exp(-useful / USEFUL_SAMPLES)
        losses *= 1 + NOISE / math.sqrt(batch) * chance.standard_normal(len(losses))
        branches.append(
            Branch(
                global_batch=batch,
                learning_rate_factor=learning_rate_factor(batch, before, request.phi),
                optimizer="SGD",
                losses=tuple(losses.tolist()),
                samples=(batch,) * len(losses),
            )
        )
    return tuple(branches)
