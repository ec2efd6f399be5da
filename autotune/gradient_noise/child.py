"""Gradients of single micro-batches at the same weights, taken once training has begun.

    train ─► the loss has fallen ─► keep the weights ─► [ micro-batch: gradient, optimizer step, weights back ] x 64

The optimizer takes its step, and the weights are restored afterwards, so that any loop can be measured: changes of its
own averages no longer matter. Only the norm and a sketch of each gradient are kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name that everybody knows it by

from autotune.child import device as devices
from autotune.child.lifeline import Progress
from autotune.child.run import seed_all
from autotune.core.results import Outcome
from autotune.gradient_noise.records import GradientSample, NoiseScaleRequest, NoiseScaleResult
from autotune.knobs import completed, plan_of
from autotune.targets import resolve
from autotune.targets.base import Order, Session, Step, Watch

AVERAGED_NOISE_LOSSES = 5  # steps: the loss of one batch is noisy
FEWEST_MICRO_BATCHES = 16  # even if time is over: with fewer the interval says nothing
TRAINING_SHARE = 0.5  # of the time
SKETCH_NUMBERS = 65_521  # the largest prime below 2^16, so that no two rows of a weight fall on the same numbers


def measure(request: NoiseScaleRequest, progress: Progress) -> NoiseScaleResult:
    """Return the sampled gradients. Raises whatever the user's code, torch or the machine raise."""
    device = devices.choose_device(request.device)
    seed_all(request.seed)
    devices.limit_memory(device, request.memory_limit_bytes)
    config = completed(request.config)
    plan = plan_of(config.values, device)
    sketches = Sketches(request.seed)
    plan.model_transforms.append(sketches.watching)
    session = resolve(request.target).open(config, plan, progress.phase)
    progress.phase("warm-up")
    sampling = Sampling(request, session, sketches, progress)
    session.train(sampling)
    return NoiseScaleResult(outcome=Outcome.OK, sample=sampling.sample())


class Sketches:
    """Hooks on all parameters: the squared norm of the gradient, and a sketch of it that preserves products.

    Count sketch (Charikar, Chen & Farach-Colton 2002): each entry gets a random sign and is added to one of 65,521
    numbers, by its position modulo their count. The product of two sketches is that of the gradients on average, and
    exactly for a model with no more parameters; else it scatters by |g| |h| / 256. This costs one byte per parameter.
    """

    def __init__(self, seed: int) -> None:
        self.parameters: list[Tensor] = []
        self._draws = torch.Generator().manual_seed(seed)
        self._norms: list[Tensor] = []
        self._row: Tensor | None = None
        self.scale = 1.0  # of the loss, which multiplies the gradients
        self.is_taking = False

    def watching(self, model: Any) -> Any:
        """Return the model, with a hook on each trainable parameter."""
        start = 0
        for parameter in model.parameters():
            if parameter.requires_grad:
                signs = torch.randint(2, (parameter.numel(),), generator=self._draws, dtype=torch.int8) * 2 - 1
                parameter.register_hook(self._noting(signs.to(parameter.device), start))
                self.parameters.append(parameter)
                start = (start + parameter.numel()) % SKETCH_NUMBERS
        return model

    def take(self) -> tuple[float, Tensor]:
        """Return squared norm and sketch of the gradient since the last call; waits for the device."""
        norm = math.hypot(*torch.stack(self._norms).tolist()) if self._norms else 0.0
        row = torch.zeros(SKETCH_NUMBERS) if self._row is None else self._row.cpu()
        self._norms, self._row = [], None
        return norm**2, row

    def _noting(self, signs: Tensor, start: int) -> Callable[[Tensor], None]:
        def note(gradient: Tensor) -> None:
            if not self.is_taking:
                return
            values = gradient.detach().to_dense() if gradient.is_sparse else gradient.detach()
            values = values.flatten().float() / self.scale
            self._norms.append(torch.linalg.vector_norm(values))
            padded = F.pad(values * signs, (0, -len(values) % SKETCH_NUMBERS))
            row = torch.roll(padded.view(-1, SKETCH_NUMBERS).sum(0), start)
            self._row = row if self._row is None else self._row + row

        return note


class Sampling(Watch):
    """The watch of a session: it decides when training has begun, then keeps the weights and collects gradients.

    Epochs do not matter: pairs of micro-batches within one epoch differ from independent ones by phi / N.
    """

    def __init__(self, request: NoiseScaleRequest, session: Session, sketches: Sketches, progress: Progress) -> None:
        self._request, self._session, self._sketches, self._progress = request, session, sketches, progress
        self._began = time.monotonic()
        self._weights: list[Tensor] = []
        self._losses: list[float | None] = []
        self._samples: list[int] = []
        self._squares: list[float] = []
        self._rows: list[Tensor] = []
        self._dropped = 0

    def micro_batch(self) -> None:
        """Report that the run makes progress."""
        self._progress.beat()

    def step(self, step: Step) -> Order:
        """Record one optimizer step; wait for the device; return whether the session goes on."""
        self._progress.beat()
        done = self._measured(step) if self._weights else self._trained(step)
        self._sketches.scale = self._session.loss_scale() or 1.0
        return Order.STOP if done else Order.CONTINUE

    def sample(self) -> GradientSample:
        """Return the sample of all gradients so far."""
        squares, alignments = torch.tensor(self._squares, dtype=torch.float64), torch.zeros(0)
        if self._rows:
            products = (rows := torch.stack(self._rows).double()) @ rows.T
            products.diagonal().copy_(squares)  # known exactly
            alignments = products.mean(dim=1)
        return GradientSample(
            losses=tuple(self._losses),
            has_fallen=self._has_fallen(),
            samples=tuple(self._samples),
            squared_norms=tuple(self._squares),
            alignments=tuple(alignments.tolist()),
            dropped=self._dropped,
        )

    def _trained(self, step: Step) -> bool:
        loss = float(step.loss)
        self._losses.append(loss if math.isfinite(loss) else None)
        steps, request = len(self._losses), self._request
        late = time.monotonic() - self._began > TRAINING_SHARE * request.max_seconds
        if steps >= request.least_steps and (late or steps >= request.most_steps or self._has_fallen()):
            # On the host: this measurement has the memory of training, and must not need more of the device.
            self._weights = [parameter.detach().to("cpu", copy=True) for parameter in self._sketches.parameters]
            self._sketches.is_taking = True
            self._progress.phase("measure")
        return False

    def _has_fallen(self) -> bool:
        """Return whether the mean of the last losses is below that of the first ones by the share `least_fall`."""
        finite = [loss for loss in self._losses if loss is not None]
        if len(finite) < 2 * AVERAGED_NOISE_LOSSES:
            return False
        first, last = sum(finite[:AVERAGED_NOISE_LOSSES]), sum(finite[-AVERAGED_NOISE_LOSSES:])
        return first > 0 and last <= (1 - self._request.least_fall) * first

    def _measured(self, step: Step) -> bool:
        square, row = self._sketches.take()
        if math.isfinite(square):
            self._samples.append(step.samples)
            self._squares.append(square)
            self._rows.append(row)
        else:
            self._dropped += 1
        with torch.no_grad():
            for parameter, kept in zip(self._sketches.parameters, self._weights, strict=True):
                parameter.copy_(kept)
        seen = len(self._squares) + self._dropped
        late = time.monotonic() - self._began > self._request.max_seconds
        return seen >= self._request.micro_batches or (late and seen >= FEWEST_MICRO_BATCHES)
