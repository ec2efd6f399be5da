"""Two bounds of a step besides its operations: the bytes that they read and write, and their number of calls."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import flop_registry

from autotune.child import device as devices
from autotune.profile.records import Bounds

COPIED_BYTES = 2**26  # of a copy: more than caches have
TIMED_COPIES, TIMED_CALLS = 8, 2000  # of the copies the fastest counts, of the calls their mean


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]  # of torch 2.13
    """Counts what operations read and write, each as if nothing were in a cache, and how many there are.

    Views move nothing. Kernels that are one on an accelerator may be several here: attention is, on a CPU.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # the same
        self.bytes = self.calls = 0
        self._computed = Counter[torch.dtype]()  # values that products, convolutions and attention made

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do the operation, and count its bytes and the call."""
        made = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.calls += 1
            tensors = {id(one): one for one in tree_iter((args, kwargs, made)) if isinstance(one, torch.Tensor)}
            self.bytes += sum(one.numel() * one.element_size() for one in tensors.values())
        if func._overloadpacket in flop_registry:
            for one in tree_iter(made):
                self._computed.update({one.dtype: one.numel()} if isinstance(one, torch.Tensor) else {})
        return made

    def computed_dtype(self) -> torch.dtype | None:
        """Return the dtype of most values that products, convolutions and attention made; None: there are none."""
        return max(self._computed, key=self._computed.__getitem__, default=None)


def bounds_of(traffic: Traffic, device: str) -> Bounds:
    """Return the counts, and the rates that this machine reaches now."""
    return Bounds(
        moved_bytes=traffic.bytes, bytes_per_second=_copy_rate(device), calls=traffic.calls,
        call_seconds=_call_seconds(device),
    )  # fmt: skip


def _copy_rate(device: str) -> float:
    """Return the bytes per second, read and written, of the fastest of a few copies."""
    source = torch.ones(COPIED_BYTES // 4, device=device)
    target, fastest = torch.empty_like(source), float("inf")
    for _ in range(TIMED_COPIES):
        devices.synchronize(device)
        began = time.perf_counter()
        target.copy_(source)
        devices.synchronize(device)
        fastest = min(fastest, time.perf_counter() - began)
    return 2 * COPIED_BYTES / fastest


def _call_seconds(device: str) -> float:
    """Return the seconds of a call that computes next to nothing."""
    one = torch.ones(1, device=device)
    began = time.perf_counter()
    for _ in range(TIMED_CALLS):
        one.add_(1)
    devices.synchronize(device)
    return (time.perf_counter() - began) / TIMED_CALLS
