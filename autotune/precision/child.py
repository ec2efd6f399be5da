"""Paired training runs: full precision, full precision perturbed, and the candidate; all have the same random state.

    all references ─► all perturbed ─► all candidates     each: seed, build, seed, then before every step: seed

All see the same weights, batches and draws. The runs follow each other in one process, candidates last, because some of
their process-wide switches stay. Each run has an equal share of the remaining training time, and none is longer than
the shortest before it: steps without a partner are wasted. A command has a process for each run; what it draws before
it seeds itself is the same in each.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from typing import Any

import torch

from autotune.child import device as devices
from autotune.child.lifeline import Progress
from autotune.child.run import seed_all
from autotune.core.records import Config
from autotune.core.results import Outcome
from autotune.knobs import completed, plan_of
from autotune.knobs.base import Plan
from autotune.precision.records import LossRun, PrecisionCheckRequest, PrecisionCheckResult, Role
from autotune.targets import resolve
from autotune.targets.base import Order, Session, Step, Watch
from autotune.targets.commands.command import is_command
from autotune.targets.paired_dropout import paired_dropout
from autotune.targets.ranks.world import agreed

PERTURBATION = 1e-6  # relative, of every weight: eight units in the last place of float32 (docs/notes/precision.md 2)
PHASE = "measure"
_SEEDS = 2**32  # number of seeds that numpy accepts
_STRIDE = 1_000_003  # between two seeds, so that the steps of one seed do not repeat those of the next


def compare_losses(request: PrecisionCheckRequest, progress: Progress) -> PrecisionCheckResult:
    """Return all runs of the request. Raises whatever the user's code, torch or the machine raise."""
    orders: list[tuple[Role, int]] = [(role, seed) for role in request.roles for seed in request.seeds]
    assert len(orders) == 1 or not is_command(request.target), "a command runs once in a process"
    device = devices.choose_device(request.device)
    devices.limit_memory(device, request.memory_limit_bytes)
    runs: list[LossRun] = []
    steps = request.steps
    for done, (role, seed) in enumerate(orders):
        config = completed(request.candidate if role == "candidate" else request.reference)
        plan = plan_of(config.values, device)
        plan.settable = request.settable
        left = request.max_seconds - progress.seconds.get(PHASE, 0.0)
        seconds = left / (len(orders) - done)
        run = train(request.target, config, plan, progress, role=role, seed=seed, steps=steps, seconds=seconds)
        steps = min(steps, len(run.losses))
        runs.append(run)
    return PrecisionCheckResult(outcome=Outcome.OK, runs=tuple(runs))


def train(
    target: str, config: Config, plan: Plan, progress: Progress, *, role: Role, seed: int, steps: int, seconds: float
) -> LossRun:
    """Train one of the runs: at most `steps` optimizer steps and `seconds`, at least one step.

    The model is freed before this call returns.
    """
    gradients = Gradients()
    if role == "perturbed":
        plan.model_transforms.append(lambda model: perturbed(model, seed))
    plan.model_transforms.append(gradients.watching)

    def phase(name: str) -> None:
        _seed(seed, 0)  # random numbers drawn while importing must not change those drawn while building
        progress.phase(name)

    with paired_dropout(plan.device):
        session = resolve(target).open(config, plan, phase)
        progress.phase(PHASE)
        diary = StepRecorder(session, gradients, seed, steps, seconds, progress.beat)
        session.train(diary)
    progress.phase("load")  # tidying up belongs to the next run's beginning, not to training
    run = diary.run(role)
    del session, diary
    gc.collect()
    if plan.device.startswith("cuda"):
        torch.cuda.empty_cache()
    return run


def perturbed(model: Any, seed: int) -> Any:
    """Return the model with every trainable weight changed by a relative 1e-6; the common random state is not used."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.is_floating_point():
                draws = torch.Generator(parameter.device).manual_seed(seed)
                noise = torch.empty_like(parameter).normal_(generator=draws)
                parameter.mul_(1 + PERTURBATION * noise)
    return model


class Gradients:
    """Hooks that read norm and exact zeros of each gradient when it is complete: no loop has to report them.

    Not covered: several backward passes in one optimizer step, whose later sums would be counted again.
    """

    def __init__(self) -> None:
        self._norms: list[torch.Tensor] = []
        self._nonzero: list[torch.Tensor] = []
        self._entries = 0

    def watching(self, model: Any) -> Any:
        """Return the model, with a hook on each trainable parameter."""
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._note)
        return model

    def take(self) -> tuple[float, float]:
        """Return the norm, still scaled, and the share of exact zeros since the last call. Waits for the device."""
        if not self._norms:
            return 0.0, 1.0
        norm = math.hypot(*torch.stack(self._norms).tolist())  # `hypot` does not overflow where a sum of squares would
        zeros = 1 - int(torch.stack(self._nonzero).sum()) / self._entries
        self._norms, self._nonzero, self._entries = [], [], 0
        return norm, zeros

    def _note(self, parameter: torch.Tensor) -> None:
        gradient = parameter.grad
        if gradient is None:
            return
        values = gradient.detach()
        values = values.coalesce().values() if values.is_sparse else values
        self._norms.append(torch.linalg.vector_norm(values, dtype=torch.float32))
        self._nonzero.append(torch.count_nonzero(values))
        self._entries += parameter.numel()


class StepRecorder(Watch):
    """The watch of one run: it records every step, and seeds each with the random state that belongs to the step."""

    def __init__(
        self, session: Session, gradients: Gradients, seed: int, steps: int, seconds: float, beat: Callable[[], None]
    ) -> None:
        self._session, self._gradients, self._beat = session, gradients, beat
        self._seed, self._steps, self._seconds = seed, steps, seconds
        self._ends = time.monotonic() + seconds
        self._scale = session.loss_scale()
        self._losses: list[float | None] = []
        self._norms: list[float | None] = []
        self._zeros: list[float] = []
        self._skipped: list[int] = []
        _seed(seed, 0)

    def first_batch(self, seconds: float) -> None:
        """Begin to count the seconds: a command has started its program before the first batch."""
        self._ends = time.monotonic() + self._seconds

    def step(self, step: Step) -> Order:
        """Take note of one optimizer step; waits for the device."""
        self._beat()
        norm, zeros = self._gradients.take()
        if not self._losses:
            self._ends = time.monotonic() + self._seconds  # a first step may compile, which says nothing of the next
        if step.skipped:
            self._skipped.append(len(self._losses))
        self._losses.append(_finite(float(step.loss)))
        self._norms.append(_finite(norm / (self._scale or 1.0)))
        self._zeros.append(round(zeros, 6))
        self._scale = self._session.loss_scale()
        _seed(self._seed, len(self._losses))
        over = len(self._losses) >= self._steps or time.monotonic() >= self._ends
        return Order.STOP if agreed(over) else Order.CONTINUE  # ranks stop at the same step

    def micro_batch(self) -> None:
        """Tell the search that the run makes progress."""
        self._beat()

    def run(self, role: Role) -> LossRun:
        """Return the run, and drop the references to the session.

        A reference cycle with the session would leave the loader to garbage collection, which closes the queues of its
        workers first: torch then waits in vain 5 s for each (torch 2.13, `_shutdown_workers`).
        """
        del self._session
        return LossRun(
            role=role,
            seed=self._seed,
            losses=tuple(self._losses),
            gradient_norms=tuple(self._norms),
            zero_gradient_shares=tuple(self._zeros),
            skipped_steps=tuple(self._skipped),
            loss_scale=self._scale,
        )


def _seed(seed: int, step: int) -> None:
    """Seed all generators of user code, at every step: a run that draws more in one step agrees again in the next."""
    seed_all((seed * _STRIDE + step) % _SEEDS)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
