"""Does a probe in the child process, in this order: seed, limit memory, build, train, read the instruments."""

from __future__ import annotations

import random
from contextlib import nullcontext
from importlib import import_module

import numpy as np
import torch
from msgspec.structs import replace

from autotune.child import collector
from autotune.child import device as devices
from autotune.child.clock import clock_for
from autotune.child.compilations import Compiling, write_to_cache
from autotune.child.full_collections import FullCollections
from autotune.child.isolated import in_turn
from autotune.child.lifeline import Progress
from autotune.child.memory import MemoryMeter
from autotune.child.memory_trace import track_on
from autotune.child.page_faults import fault_seconds
from autotune.child.warmup import WarmUp, growth_on
from autotune.child.watched_loop import Callbacks, Instruments, LoopShape
from autotune.child.window import ProbeWatch
from autotune.core.records import Config
from autotune.core.requests import InspectRequest, ProbeRequest
from autotune.core.results import Inspection, Measurement, MemoryPeak, Outcome, ProbeResult
from autotune.knobs import completed, loads_in_turn, plan_of
from autotune.knobs.base import Plan
from autotune.machine.host import process_bytes
from autotune.targets import resolve, variables
from autotune.targets.base import Session, check_effect
from autotune.targets.ranks import world

VALIDATION_BATCHES = 2  # enough to see the memory of evaluation; its speed is not measured


def probe(request: ProbeRequest, progress: Progress) -> ProbeResult:
    """Train for a short time; return its measurement. Raises whatever the user's code, torch or the machine raise."""
    device = devices.choose_device(request.device)
    seed_all(request.seed)
    devices.limit_memory(device, request.memory_limit_bytes)
    config = completed(request.config)
    plan = plan_of(config.values, device)
    plan.short_cycles, plan.settable = request.short_cycles, request.settable
    session = _opened(request, config, plan, progress)
    meter = MemoryMeter(device)

    compiling = Compiling(asked=plan.compiles)

    def phase(name: str) -> None:
        compiling.phase(name)
        meter.phase(name)
        progress.phase(name)

    def beat() -> None:
        meter.step()
        progress.beat()

    phase("warm-up")
    is_in_turn = loads_in_turn(config, plan.device)
    instruments = Instruments(
        clock=clock_for(device), update_clock=clock_for(device), track=track_on(plan.device),
        warm_up=WarmUp(request.budget, growth_on(plan.device)), collections=FullCollections(overlapped=device != "cpu"),
    )  # fmt: skip
    shape = LoopShape(
        loader_workers=plan.loader_workers, prefetched_batches=plan.prefetched_batches,
        epoch_batches=session.epoch_batches if plan.loader_workers else 0, loads=session.loads and not is_in_turn,
        exchanges=session.exchanges, cycle_ratio=plan.accumulation_steps / plan.micro_batches_per_step,
    )  # fmt: skip
    callbacks = Callbacks(beat=beat, phase=phase, agree=world.agreed)
    window = ProbeWatch(request.budget, instruments, shape, callbacks, request.incumbent_samples_per_second)
    with instruments.collections.watched() if world.world().size == 1 else nullcontext():  # else other ranks would wait
        session.train(window)
    compilation = compiling.after_window()
    check_effect(session, config.values)
    phase("worst")  # before waiting for the last issued step, which does not count but uses energy
    step_seconds = window.step_seconds()
    worst = session.train_worst()
    phase("validate")
    validated = session.validate(VALIDATION_BATCHES)
    devices.synchronize(device)
    measurement = replace(
        _measurement(window, step_seconds, validated, meter.read()),
        accumulation_steps=plan.accumulation_steps,
        micro_batches_per_step=plan.micro_batches_per_step,
        busy_seconds=window.busy_seconds if world.world().size > 1 and device == "cpu" else (),
        shapes_vary=session.shapes_vary,
        worst_batches=worst,
        compilation=compilation,
    )
    if session.loads and is_in_turn:
        computing, loading = in_turn(window.steps, step_seconds)
        measurement = replace(measurement, compute_only=computing, loader_only=loading)
    return ProbeResult(outcome=Outcome.OK, measurement=measurement)


def _opened(request: ProbeRequest, config: Config, plan: Plan, progress: Progress) -> Session:
    """Build the user's training, and import beforehand what its first step would import."""
    if plan.compiles:
        write_to_cache()
    session = resolve(request.target).open(config, plan, progress.phase)
    variables.check()
    variables.show()
    import_module("torch._dynamo")  # the first step would import it; loader workers forked before that hold 70 MB less
    collector.resume()
    return session


def _measurement(
    window: ProbeWatch, step_seconds: tuple[float, ...], validated_batches: int, memory: MemoryPeak
) -> Measurement:
    tokens = tuple(step.tokens for step in window.steps if step.tokens is not None)
    return Measurement(
        steps_per_block=window.steps_per_block,
        samples=tuple(step.samples for step in window.steps),
        tokens=tokens or None,
        step_seconds=step_seconds,
        loader_wait_seconds=tuple(step.loader_wait_seconds for step in window.steps),
        update_seconds=window.update_seconds,
        losses=window.losses(),
        warmup_seconds=window.warmup_seconds,
        calibration_skips=window.calibration_skips,
        skipped_steps=window.skipped_steps,
        first_batch_seconds=window.first_batch_seconds,
        loader_restarts=window.restarts,
        memory=memory,
        validated_batches=validated_batches,
        relative_half_width=window.ending.half_width(),
        noisy=window.ending.noisy,
        cut_short=window.ending.cut_short,
        compute_only=window.computing.result,
        loader_only=window.loading.result,
        communication=window.exchange.result,
        interference=window.interference,
        memory_track=window.track.readings,
        watching_seconds_per_step=window.watching_seconds_per_step,
        page_faults=window.page_faults,
        fault_seconds=fault_seconds() if window.page_faults else None,
        paused_seconds=sum(step.paused_seconds for step in window.steps),
    )


def inspect(request: InspectRequest, progress: Progress) -> Inspection:
    """Return the facts of the device, and of the target if there is one."""
    device = devices.choose_device(request.device)
    environment = devices.describe(device)
    if request.target is None:
        return Inspection(environment=environment)
    seed_all(request.seed)
    devices.limit_memory(device, request.memory_limit_bytes)
    built: list[int | None] = [None]

    def phase(name: str) -> None:
        if name == "warm-up" and device == "cpu":
            built.append(process_bytes("VmRSS"))
        progress.phase(name)

    facts = resolve(request.target).inspect(device, request.config, phase, request.declared, lasts=request.lasts)
    return Inspection(environment=environment, facts=facts, process_bytes=built[-1])


def seed_all(seed: int) -> None:
    """Seed every generator of user code: Python, numpy, torch. `seed` is in 0..2**32 - 1, as numpy requires."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
