"""Memory prediction: shape runs, at micro-batches that climb by four.

    for every arm: build ─► b, 4b, 16b, ... until two slopes agree, or the limit is passed ─► the last batch that fits

A shape run (a training step on tensors that have shapes and no contents) takes a second at any batch, and no memory. If
an arm cannot be run in this way (contents decide its shapes, an operator has no fake implementation), the reason is its
result.
"""

from __future__ import annotations

import gc
import time

import psutil
import torch

from autotune.child import device as devices
from autotune.child.lifeline import Progress
from autotune.child.run import seed_all
from autotune.core.codes import Code
from autotune.core.memory_breakdown import Breakdown
from autotune.core.notices import Notice, notice
from autotune.core.records import Value
from autotune.core.results import Outcome
from autotune.knobs import traded
from autotune.memory.breakdown import step_on_shapes
from autotune.memory.model import MOST_RATIO, SLACK_SHARE, Arm
from autotune.memory.records import ShapeRun, ShapeRunRequest
from autotune.memory.tensor_tracker import Ledger
from autotune.targets import resolve
from autotune.targets.base import ShapeRunTarget, ShapeRunTraining
from autotune.targets.fake_batches import CannotPredict
from autotune.targets.tracebacks import error_line

BATCH_GROWTH = 4  # between micro-batches: two points on the last segment are enough (docs/notes/memory.md 5)
FIRST_STEPS = 2  # the optimizer's state is allocated in the first, and is held from the second on
_CONTENTS = ("DataDependentOutputException", "DynamicOutputShapeException", "GuardOnDataDependentSymNode")
_NO_TWIN = ("UnsupportedOperatorException", "UnsupportedFakeTensorException", "UnsupportedMutationAliasingException")


def predict_peaks(request: ShapeRunRequest, progress: Progress) -> ShapeRun:
    """Return the peaks of all arms that the time allows. Raises what loading the target raises.

    An arm that fails has a reason instead of peaks.
    """
    ends = time.monotonic() + request.max_seconds
    device = devices.choose_device(request.device)
    seed_all(request.seed)
    devices.limit_memory(device, request.memory_limit_bytes)
    target = resolve(request.target).shape_run(request.config, device, progress.phase, shapes_vary=request.shapes_vary)
    base = _base_bytes(device)
    progress.phase("measure")
    arms: list[Arm] = []
    for values in request.arms:
        if request.spares_trades and _needs_no_trade(values, request, arms, base):
            continue
        if time.monotonic() > ends:
            arms.append(Arm(values=values, reason=notice(Code.NOT_PREDICTED_IN_TIME)))
            continue
        arms.append(_Climb(request, values, device, base, ends, progress).arm(target))
        gc.collect()  # the model of an arm is freed before the next is built
    return ShapeRun(outcome=Outcome.OK, arms=tuple(arms), base_bytes=base)


def _needs_no_trade(values: dict[str, Value], request: ShapeRunRequest, arms: list[Arm], base: int) -> bool:
    """Return whether the arm trades time for memory, and needs half the memory at most without the trade."""
    without = values | traded(values)
    if without == values or request.limit_bytes is None:
        return False
    known = next((arm for arm in arms if arm.values == without and arm.reason is None), None)
    peak = None if known is None else known.peak_bytes(request.batches[-1])
    return peak is not None and base + MOST_RATIO * peak <= SLACK_SHARE * request.limit_bytes


class _Climb:
    def __init__(
        self,
        request: ShapeRunRequest,
        values: dict[str, Value],
        device: str,
        base: int,
        ends: float,
        progress: Progress,
    ) -> None:
        self._request, self._values, self._device, self._ends, self._progress = request, values, device, ends, progress
        self._limit = None if request.limit_bytes is None else request.limit_bytes - base
        self._points: dict[int, int] = {}
        self._ledger = Ledger(device)
        self._breakdown: Breakdown | None = None

    def arm(self, target: ShapeRunTarget) -> Arm:
        """Return the arm with its points, and the reason why there are no more."""
        try:
            self._run(target.training(self._values, self._request.micro_batches))
        except Exception as error:  # whatever user code or torch raises on fake tensors is the reason, not a failure
            return self._known(_why(error))
        return self._known(None if time.monotonic() <= self._ends else notice(Code.NOT_PREDICTED_IN_TIME))

    def _run(self, training: ShapeRunTraining) -> None:
        for tensor in training.tensors():
            self._ledger.hold(tensor)
        for batch in self._ladder():
            self._step(training, batch)
            if self._known().settled or (self._limit is not None and self._points.get(batch, 0) > self._limit):
                break
        if self._values.items() <= self._request.config.values.items():  # for comparison with a real probe
            self._step(training, self._request.config.batch_size)
        if self._request.by_category and time.monotonic() < self._ends:
            self._breakdown = step_on_shapes(training, self._request.config.batch_size, self._device)
        for _ in range(2):  # the point at the frontier may move it
            if self._limit is None or (frontier := self._known().frontier(self._limit)) is None:
                return
            self._step(training, max((b for b in self._request.batches if b <= frontier), default=0))

    def _ladder(self) -> list[int]:
        batches = list(self._request.batches)
        ladder = batches[:1]
        for batch in batches:
            if batch >= BATCH_GROWTH * ladder[-1]:
                ladder.append(batch)
        return ladder if ladder[-1] == batches[-1] else [*ladder, batches[-1]]

    def _step(self, training: ShapeRunTraining, batch: int) -> None:
        if batch < 1 or batch in self._points or time.monotonic() > self._ends:
            return
        self._ledger.restart()
        for _ in range(1 if self._points else FIRST_STEPS):
            training.step(batch, self._ledger, self._ledger.hold)
        self._points[batch] = self._ledger.peak_bytes
        self._progress.beat()

    def _known(self, reason: Notice | None = None) -> Arm:
        points = tuple(sorted(self._points.items()))
        return Arm(values=self._values, points=points, reason=reason, breakdown=self._breakdown)


def _why(error: Exception) -> Notice:
    name = type(error).__name__
    operator = str(getattr(error, "func", name))
    if isinstance(error, CannotPredict):
        return error.reason
    if name in _CONTENTS:
        return notice(Code.CONTENTS_DECIDE, operator=operator)
    if name in _NO_TWIN or "fake impl" in str(error):
        return notice(Code.NEEDS_REAL_TENSORS, operator=operator)
    return notice(Code.CANNOT_PREDICT, why=error_line(error))  # of torch's or of the user's code: data, as it is


def _base_bytes(device: str) -> int:
    """Return the bytes that this process holds before there is a model.

    They are those of interpreter and libraries; on a device those of the context, of cuBLAS's workspaces, and of what
    the target put there.
    """
    if device == "cpu":
        return int(psutil.Process().memory_info().rss)
    if not device.startswith("cuda"):
        return 0  # not tested: no such device available
    _multiply(device)
    free, total = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(total - free) - cached


def _multiply(device: str) -> None:
    """Multiply once forward and once backward, so that the workspaces of cuBLAS are allocated.

    torch takes them from the caching allocator at the first product of each thread and never frees them: they are no
    tensors of training, but part of a probe's peak (32 MiB each on Hopper, aten/src/ATen/cuda/CublasHandlePool).
    """
    ones = torch.ones(16, 16, device=device, requires_grad=True)
    torch.autograd.grad(torch.nn.functional.linear(ones, ones, ones[0]).sum(), ones)
