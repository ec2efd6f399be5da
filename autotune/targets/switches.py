"""Reads torch's process-wide switches, which decide how products, convolutions and attention are computed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch.optim import Optimizer

from autotune.core.records import CheckLine
from autotune.knobs import KNOBS
from autotune.knobs.activation_memory_budget import ALL
from autotune.knobs.sdpa_backend import KERNELS
from autotune.knobs.tf32 import LEAST_CAPABILITY, has_tf32_products, state
from autotune.knobs.torch_switch import TorchSwitch
from autotune.targets import optimizer_implementations


def standing(optimizers: Iterable[Optimizer]) -> dict[str, Any]:
    """Return them, with these optimizers' settings, by the field names of `Observed`; those of CUDA if it is used."""
    known = {one.name: one.is_on() for one in KNOBS if isinstance(one, TorchSwitch)}
    return {
        "switches": {name: is_on for name, is_on in known.items() if is_on is not None},
        "attention": enabled(),
        "kept_activations": _kept_activations(),
        "optimizer_implementation": optimizer_implementations.said_implementation(optimizers),
    }


def enabled() -> frozenset[str]:
    """Return the kernels that attention may use."""
    return frozenset(name for name, one in KERNELS.items() if getattr(torch.backends.cuda, one.is_enabled)())


def _kept_activations() -> float:
    """Return the share of activations that compiled graphs may keep; torch's own where it was not looked at."""
    config = sys.modules.get("torch._functorch.config")
    return ALL if config is None else float(config.activation_memory_budget)


def compiled_graphs() -> int:
    """Return how many graphs torch.compile has captured in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["stats"]["unique_graphs"])


def is_deterministic() -> bool:
    """Return whether the user's code asks for deterministic algorithms."""
    return torch.backends.cudnn.deterministic or torch.are_deterministic_algorithms_enabled()


def float32_check_lines(device: str) -> list[CheckLine]:
    """Return a line of `check` on whether float32 products and convolutions use TF32; none on a device without TF32."""
    if not device.startswith("cuda") or torch.cuda.get_device_capability(device)[0] < LEAST_CAPABILITY:
        return []
    words = state(products=has_tf32_products(), convolutions=_has_tf32_convolutions())
    return [CheckLine(name="float32", text=words)]


def _has_tf32_convolutions() -> bool:
    cudnn: Any = torch.backends.cudnn
    try:
        return bool(cudnn.allow_tf32)
    except RuntimeError:  # torch 2.11 to 2.13, if the newer switches of convolutions and recurrent layers differ
        return str(cudnn.conv.fp32_precision) not in ("none", "ieee")
