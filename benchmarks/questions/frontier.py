"""Which figure of memory predicts the batch that really dies, and how much headroom that asks for."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from autotune.child.device import limit_memory
from autotune.child.memory import WINDOW, MemoryMeter, memory_share
from autotune.core.results import MemoryPeak, Outcome
from autotune.failures.classify import classify, describe
from benchmarks.questions import NotRun, needs_cuda

GIB = 2**30
LIMITS = (8 * GIB, None)  # a small GPU, pretended; the whole one
START, CLOSE = 32, 1.01  # first batch; how near the last that ran and the first that died come together
STEPS = 2  # an optimizer's state costs from the second one on
LAYERS, WIDTH, SIDE = 24, 64, 32  # 12 MiB a sample, of which no tensor passes 2^31 elements before the GPU is full


@dataclass(frozen=True)
class Seen:
    """A batch that ran."""

    batch: int
    peak: MemoryPeak


def headroom(device: str) -> Iterator[str]:
    """By bisection up to the batch that dies: what the last that ran had used, and where each figure had put death."""
    needs_cuda(device)
    total = torch.cuda.get_device_properties(device).total_memory
    for limit in LIMITS:
        limit_memory(device, limit or total)
        ran, died = bisected(lambda batch: _trained(device, batch))
        yield told(ran, died, limit or total)


def told(ran: list[Seen], died: int, limit: int) -> str:
    """The line for one limit, in bytes; `ran` in the order of growing batches, at least two."""
    last = ran[-1]
    figures = {
        "tensors": [seen.peak.allocated_bytes or 0 for seen in ran],
        "reserved": [seen.peak.reserved_bytes or 0 for seen in ran],
        "reserved and all else": [seen.peak.bytes for seen in ran],
    }
    shares = ", ".join(f"{name} {values[-1] / limit:.1%}" for name, values in figures.items())
    foretold = ", ".join(f"{name} {reached([s.batch for s in ran], v, limit):,.0f}" for name, v in figures.items())
    return (
        f"of {limit / GIB:.0f} GiB, batch {last.batch:,} ran and {died:,} died; the last had used: {shares}, with "
        f"{last.peak.allocator_retries} retries. Full, by the line through its end: {foretold}"
    )


def reached(batches: list[int], used: list[int], limit: int) -> float:
    """The batch at which the line through the last point and the nearest one 10 % below it meets `limit`."""
    last = len(batches) - 1
    before = max((i for i in range(last) if batches[i] <= 0.9 * batches[last]), default=0)
    slope = (used[last] - used[before]) / (batches[last] - batches[before])
    return batches[last] + (limit - used[last]) / slope if slope > 0 else float("inf")


def bisected(trained: Callable[[int], MemoryPeak | None]) -> tuple[list[Seen], int]:
    """What ran, by batch, and the smallest that died; `trained` gives None for a batch that does.

    The first batch must run, or there is nothing to say.
    """
    ran: list[Seen] = []
    batch, died = START, 0
    while not died or died > CLOSE * ran[-1].batch:
        peak = trained(batch)
        if peak is not None:
            ran.append(Seen(batch, peak))
        elif not ran:
            raise NotRun(f"not even batch {batch} runs")
        else:
            died = batch
        batch = (ran[-1].batch + died) // 2 if died else 2 * batch
        if batch == ran[-1].batch:
            break
    return ran, died


def _trained(device: str, batch: int) -> MemoryPeak | None:
    """A few steps with an optimizer that keeps state; None if they ran out of memory."""
    gc.collect()
    torch.cuda.empty_cache()
    meter = MemoryMeter(device)
    try:
        widths = (3, *(WIDTH for _ in range(LAYERS)))
        layers = ((nn.Conv2d(a, b, 3, padding=1), nn.ReLU()) for a, b in itertools.pairwise(widths))
        model = nn.Sequential(*itertools.chain(*layers), nn.AdaptiveAvgPool2d(1), nn.Flatten()).to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        meter.phase(WINDOW)
        for _ in range(STEPS):
            images = torch.randn(batch, 3, SIDE, SIDE, device=device)
            model(images).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.synchronize(device)
        meter.phase("over")
    except RuntimeError as error:
        if classify(describe(error), memory_share=memory_share(device))[0] is not Outcome.OOM_DEVICE:
            raise
        return None
    return meter.read()
