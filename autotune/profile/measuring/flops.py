"""The floating-point operations of an optimizer step, and the rate that one large matrix product reaches here."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from autotune.child import device as devices
from autotune.profile.records import Work

PEAK_SECONDS = 0.5  # of products, of which the fastest counts
FEWEST_PRODUCTS = 5
SIZES = {"cpu": 1024}  # of the square matrices; a product of these takes milliseconds on one core
LARGE_SIZE = 8192  # on other devices: it fills a data-centre GPU


@contextmanager
def operations_counted(device: str) -> Iterator[FlopCounterMode]:
    """Count the floating-point operations that are done meanwhile.

    On a CPU attention is computed by the math kernel, because the counter knows no other there (torch 2.13).
    """
    with ExitStack() as stack:
        if device == "cpu":
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        yield stack.enter_context(FlopCounterMode(display=False, custom_mapping=_MENDED))


def _convolution_backward(
    gradient: list[int], inputs: list[int], weight: list[int], bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, wanted: list[bool], **of_result: Any,
) -> int:  # fmt: skip
    """Return the operations of the gradients of inputs and weight: each takes as many as the forward pass.

    torch 2.13 counts that of the weight as often as there are groups. `wanted`: of inputs, weight and bias.
    """
    return (wanted[0] + wanted[1]) * conv_flop_count(inputs, weight, gradient, transposed)


_MENDED = {torch.ops.aten.convolution_backward: _convolution_backward}


def uncountable(models: Iterable[torch.nn.Module], device: str, *, compiles: bool = False) -> str:
    """Return why the operations of these models cannot be counted; empty if they can."""
    if compiles:
        return "compiled graphs do not say what they compute"
    if device == "cpu" and any(isinstance(one, torch.nn.RNNBase) for model in models for one in model.modules()):
        return "recurrent layers are not counted on a CPU"
    return ""


def work_of(flops: int | None, why: str, device: str, dtype: torch.dtype) -> Work:
    """Return the operations of a step, or why there are none, and this machine's peak rate.

    That is the rate of one product in `dtype`, measured now.
    """
    size = SIZES.get(device, LARGE_SIZE)
    return Work(
        flops=flops,
        why=why,
        peak_flops=peak_flops(device, dtype, size),
        size=size,
        dtype=str(dtype).removeprefix("torch."),
    )


def peak_flops(device: str, dtype: torch.dtype, size: int) -> float:
    """Return the floating-point operations per second of the fastest of a few matrix products."""
    a, b = (torch.randn((size, size), device=device).to(dtype) for _ in range(2))
    torch.mm(a, b)
    devices.synchronize(device)
    seconds, ends = list[float](), time.perf_counter() + PEAK_SECONDS
    while len(seconds) < FEWEST_PRODUCTS or time.perf_counter() < ends:
        began = time.perf_counter()
        torch.mm(a, b)
        devices.synchronize(device)
        seconds.append(time.perf_counter() - began)
    return 2 * size**3 / min(seconds)
