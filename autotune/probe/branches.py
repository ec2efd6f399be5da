"""Trainings that part: several global batches go on from the same weights, optimizer state and order of the data.

    training as before the noise scale was taken ─► checkpoint ─┬─► branch ─► losses
                                                                ├─► branch ─► losses
                                                                └─► branch ─► losses      one after the other

Each has an equal share of the time that is left, and none goes on over more samples than the one before it: what has no
partner is wasted. Not covered: what a model keeps outside its state, and an optimizer that wraps another.
"""

from __future__ import annotations

import gc
import io
import math
import time
from contextlib import ExitStack
from typing import Any

import torch
from torch.optim import SGD, Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from autotune.branches import Branch, BranchesResult
from autotune.knobs import KNOBS, completed
from autotune.knobs.base import Plan
from autotune.noise_scale import learning_rate_factor
from autotune.probe import device as devices
from autotune.probe.lifeline import Progress
from autotune.probe.run import seed_all
from autotune.records import Config
from autotune.requests import BranchesRequest
from autotune.results import Outcome
from autotune.targets import resolve
from autotune.targets.base import Command, Step

_SEEDS = 2**32  # that numpy accepts


def train(request: BranchesRequest, progress: Progress) -> BranchesResult:
    """All branches. Raises whatever the user's code, torch or the machine raise."""
    device, ends = devices.choose(request.device), time.monotonic() + request.max_seconds
    devices.limit_memory(device, request.memory_limit_bytes)
    before, samples = request.branches[0].global_batch_size(), request.max_samples
    trunk = Course(request.seed, progress, steps=request.steps)
    checkpoint = _run(request.target, request.config, device, "warm-up", trunk, Carried(None))
    branches: list[Branch] = []
    for done, config in enumerate(request.branches):
        batch = config.global_batch_size()
        share = (ends - time.monotonic()) / (len(request.branches) - done)
        course = Course(request.seed + 1, progress, samples=samples, seconds=share)
        carried = Carried(checkpoint, learning_rate_factor(batch, before, request.phi))
        _run(request.target, config, device, "measure", course, carried)
        samples = min(samples, sum(course.samples))
        branches.append(
            Branch(
                global_batch=batch,
                learning_rate_factor=carried.applied,
                optimizer=carried.optimizer,
                losses=tuple(course.losses),
                samples=tuple(course.samples),
            )
        )
    return BranchesResult(outcome=Outcome.OK, branches=tuple(branches))


def _run(target: str, config: Config, device: str, phase: str, course: Course, carried: Carried) -> bytes:
    """One training in the state that is carried, and the state that it came to; the model lives no longer."""
    plan, values = Plan(device=device), completed(config)
    for knob in KNOBS:
        knob.apply(values[knob.name], plan)
    plan.model_transforms.append(carried.watching)
    course.seed()
    session = resolve(target).open(values, plan, course.progress.phase)
    course.progress.phase(phase)
    with ExitStack() as hooks:
        for handle in (
            register_optimizer_step_pre_hook(carried.before), register_optimizer_step_post_hook(carried.after)
        ):  # fmt: skip
            hooks.callback(handle.remove)
        course.begin()
        session.train(course)
    state = carried.state()
    course.progress.phase("load")  # tidying up belongs to the next one's beginning
    del session
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    return state


class Carried:
    """Puts model and optimizers of a training into a state, and its learning rate to a multiple of the target's.

    Optimizers are met at their first step, whoever made them. For that step and every later one the rate is multiplied
    and then put back, so that a schedule goes on as it would. `rate` is for SGD; everything else is taken to be
    adaptive like Adam and has its square root (docs/notes/noise.md 4). Adam's betas stay: at another one the average
    that it began with would be corrected wrongly, and its steps be several times too long.
    """

    def __init__(self, state: bytes | None, rate: float = 1.0) -> None:
        # On the host: loading copies it to where the model is, and the device shall not hold both.
        self._kept = None if state is None else torch.load(io.BytesIO(state), map_location="cpu", weights_only=False)
        self._rate = rate
        self._model: Any = None
        self._optimizers: list[Optimizer] = []
        self._own: list[Any] = []  # learning rates, floats or tensors
        self.applied, self.optimizer = 1.0, ""

    def watching(self, model: Any) -> Any:
        """The model, in the state that is carried."""
        if self._kept is not None:
            model.load_state_dict(self._kept[0])
        self._model = model
        return model

    def before(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        """A step begins: torch's hook."""
        if optimizer not in self._optimizers:
            if self._kept is not None and len(self._optimizers) < len(self._kept[1]):
                optimizer.load_state_dict(self._kept[1][len(self._optimizers)])
            self._optimizers.append(optimizer)
            self.applied = self._rate if isinstance(optimizer, SGD) else math.sqrt(self._rate)
            self.optimizer = type(optimizer).__name__
        self._own = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * self.applied

    def after(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        """A step has ended: torch's hook."""
        for group, own in zip(optimizer.param_groups, self._own, strict=True):
            group["lr"] = own

    def state(self) -> bytes:
        """What the training came to, apart from it."""
        file = io.BytesIO()
        torch.save((self._model.state_dict(), [optimizer.state_dict() for optimizer in self._optimizers]), file)
        return file.getvalue()


class Course:
    """The watch of one training: keeps its losses, ends it in time, and gives every epoch its order of the data."""

    steps_at_once = 1

    def __init__(
        self, seed: int, progress: Progress, *, steps: int | None = None, samples: int | None = None,
        seconds: float = math.inf,
    ) -> None:  # fmt: skip
        self.progress = progress
        self.losses: list[float | None] = []
        self.samples: list[int] = []
        self._seed, self._epochs = seed, 0
        self._steps, self._samples, self._seconds = steps, samples, seconds
        self._ends, self._seen = math.inf, 0

    def seed(self) -> None:
        """What user code draws from now on belongs to this epoch, whatever the batch is."""
        seed_all((self._seed + self._epochs) % _SEEDS)

    def begin(self) -> None:
        """Training starts: so does its time."""
        self.seed()
        self._ends = time.monotonic() + self._seconds

    def first_batch(self, seconds: float) -> None:
        """Not of interest."""

    def epoch(self) -> None:
        """The next epoch is about to be drawn."""
        self._epochs += 1
        self.seed()

    def micro_batch(self) -> None:
        """Pass the sign of life on."""
        self.progress.beat()

    def loaded(self, samples: int) -> Command:
        """Never asked for."""
        return Command.CONTINUE

    def step(self, step: Step) -> Command:
        """Take note of one optimizer step; waits for the device."""
        self.progress.beat()
        loss = float(step.loss)
        self.losses.append(loss if math.isfinite(loss) else None)
        self.samples.append(step.samples)
        self._seen += step.samples
        over = self._steps is not None and len(self.losses) >= self._steps
        over = over or (self._samples is not None and self._seen >= self._samples)
        return Command.STOP if over or time.monotonic() >= self._ends else Command.CONTINUE
