"""What the child does with a request, told in order: seed, limit, build, train, read the instruments."""

from __future__ import annotations

import random

import numpy as np
import torch

from autotune.knobs import KNOBS
from autotune.knobs.base import Plan
from autotune.probe import device as devices
from autotune.probe.lifeline import Progress
from autotune.probe.meters import clock_for, read_peaks, reset_peaks
from autotune.probe.window import Window
from autotune.records import InspectRequest, ProbeRequest
from autotune.results import Inspection, Measurement, Outcome, ProbeResult
from autotune.targets import resolve

VALIDATION_BATCHES = 2  # enough to see the memory of evaluation; its speed is not our subject


def probe(request: ProbeRequest, progress: Progress) -> ProbeResult:
    """One short training run. Raises whatever the user's code, torch or the machine raise."""
    device = devices.choose(request.device)
    _seed(request.seed)
    devices.limit_memory(device, request.memory_limit_bytes)
    plan = Plan(device=device)
    for knob in KNOBS:
        knob.apply(request.config[knob.name], plan)
    session = resolve(request.target).open(request.config, plan, progress.phase)
    reset_peaks(device)
    progress.phase("warm-up")
    clock = clock_for(device)
    window = Window(clock, request.budget, int(plan.loader_options["num_workers"]), progress.beat, progress.phase)
    session.train(window)
    step_seconds = tuple(clock.intervals())
    progress.phase("validate")
    validated = session.validate(VALIDATION_BATCHES)
    devices.synchronize(device)
    tokens = tuple(step.tokens for step in window.steps if step.tokens is not None)
    return ProbeResult(
        outcome=Outcome.OK,
        measurement=Measurement(
            samples=tuple(step.samples for step in window.steps),
            tokens=tokens or None,
            step_seconds=step_seconds,
            loader_wait_seconds=tuple(step.loader_wait_seconds for step in window.steps),
            losses=window.losses(),
            warmup_seconds=tuple(window.warmup_seconds),
            calibration_skips=window.calibration_skips,
            skipped_steps=window.skipped_steps,
            first_batch_seconds=window.first_batch_seconds,
            loader_restarts=window.restarts,
            memory=read_peaks(device),
            validated_batches=validated,
            relative_half_width=window.half_width(),
            noisy=window.noisy,
        ),
    )


def inspect(request: InspectRequest, progress: Progress) -> Inspection:
    """Look at the device, then at the target if there is one."""
    device = devices.choose(request.device)
    environment = devices.describe(device)
    if request.target is None:
        return Inspection(environment=environment)
    _seed(request.seed)
    devices.limit_memory(device, request.memory_limit_bytes)
    facts = resolve(request.target).inspect(device, request.config, progress.phase)
    return Inspection(environment=environment, facts=facts)


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)  # user code draws from the global state
    torch.manual_seed(seed)
