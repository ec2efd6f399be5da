"""Whether event times tell the truth without waiting, and whether a run that the host holds up can be recognised."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from autotune.child.clock import clock_for
from autotune.child.device import synchronize

STEPS, WARM_UP, ROUNDS = 100, 10, 5
SMALL, LARGE = "many small kernels", "few large kernels"
SIZES = {SMALL: (64, 24, 32), LARGE: (4096, 4, 2048)}  # width, layers, batch
ON_CPU = {SMALL: (64, 8, 32), LARGE: (256, 4, 128)}  # a rehearsal
BATCHES = (1, 16, 256, 4096)


def events(device: str) -> list[str]:
    """The same steps timed by the clock of a probe, by the host around all of them, and waiting after each, in turn."""
    lines = []
    for name, sizes in sizes_on(device).items():
        step = training(device, *sizes)
        rounds = [_timed(step, device) for _ in range(ROUNDS)]
        walls = sorted(wall for wall, *_ in rounds)
        told, looking, waiting = (
            statistics.median(one[place] / one[0] for one in rounds) for place in (1, 2, 3)
        )  # fmt: skip
        lines.append(
            f"{name}, {ROUNDS} rounds: {1e3 * statistics.median(walls) / STEPS:.3f} ms a step by the host around "
            f"{STEPS} steps ({1e3 * walls[0] / STEPS:.3f} to {1e3 * walls[-1] / STEPS:.3f}), in the median "
            f"{told:.3f} of that by the clock of a probe, {looking:.3f} when it looks one step back each time, as a "
            f"window does, {waiting:.3f} when waited for after each step"
        )
    return lines


def _timed(step: Callable[[], None], device: str) -> tuple[float, float, float, float]:
    """Seconds of all steps by the host, by the clock of a probe, looking back, and waiting after each."""
    wall, _ = _issued(step, device)
    clock = clock_for(device)
    clock.mark()
    for _ in range(STEPS):
        step()
        clock.mark()
    return wall, sum(clock.intervals()), _looking_back(step, device), _waiting(step, device)


def launches(device: str) -> list[str]:
    """How long the device still works after the last call has returned; and the step time against the batch."""
    lines = []
    for name, sizes in sizes_on(device).items():
        wall, gap = _issued(training(device, *sizes), device)
        lines.append(f"{name}: the host is {gap / wall:.1%} of the time ahead at the end of {STEPS} steps")
    width, layers, _ = sizes_on(device)[SMALL]
    times = {batch: _issued(training(device, width, layers, batch), device)[0] / STEPS for batch in BATCHES}
    small, large = min(BATCHES), max(BATCHES)
    fixed = times[small] - (times[large] - times[small]) / (large - small) * small
    shown = ", ".join(f"{batch}: {1e3 * seconds:.3f} ms" for batch, seconds in times.items())
    shares = ", ".join(f"{fixed / seconds:.0%}" for seconds in times.values())
    return [*lines, f"step time by batch: {shown}; share of it that does not grow: {shares}"]


def sizes_on(device: str) -> dict[str, tuple[int, int, int]]:
    """Of both works; a CPU would take minutes for those of a GPU."""
    return ON_CPU if device == "cpu" else SIZES


def training(device: str, width: int, layers: int, batch: int) -> Callable[[], None]:
    """One optimizer step of a perceptron, warmed up."""
    model = nn.Sequential(*(layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.ReLU()))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(batch, width, device=device)

    def step() -> None:
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(WARM_UP):
        step()
    return step


def _issued(step: Callable[[], None], device: str) -> tuple[float, float]:
    """Seconds of all steps, and of them those after the last call had returned."""
    synchronize(device)
    began = time.perf_counter()
    for _ in range(STEPS):
        step()
    issued = time.perf_counter()
    synchronize(device)
    ended = time.perf_counter()
    return ended - began, ended - issued


def _looking_back(step: Callable[[], None], device: str) -> float:
    """Of decision 0034: what it costs that the host is never more than a step ahead."""
    clock = clock_for(device)
    began = clock.now()
    for _ in range(STEPS):
        step()
        clock.mark()
        clock.passed()
    return clock.now() - began


def _waiting(step: Callable[[], None], device: str) -> float:
    synchronize(device)
    began = time.perf_counter()
    for _ in range(STEPS):
        step()
        synchronize(device)
    return time.perf_counter() - began
