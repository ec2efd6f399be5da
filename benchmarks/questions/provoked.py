"""Faults of a GPU, each provoked for real in a process of its own, and told as the product's own rules read it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from autotune.child.device import limit_memory
from autotune.child.memory import memory_share
from autotune.failures.classify import classify, death_note, describe, judge_exit
from benchmarks.questions import needs_cuda

MIB, GIB = 2**20, 2**30
SECONDS = 60.0  # of one fault
SMALLEST = MIB // 2  # piece that the GPU is filled with at last: for these the allocator asks 2 MiB, for larger 20
SPARE = 160 * MIB  # for tensors that the fault itself is not about
HUGE = 1 << 46  # bytes, 64 TiB: refused before anything is touched


def _caching(device: str) -> None:
    limit_memory(device, GIB)
    torch.empty(2 * GIB, dtype=torch.uint8, device=device)


def _whole_card(device: str) -> None:
    kept = []
    while True:
        kept.append(torch.empty(4 * GIB, dtype=torch.uint8, device=device))


def _cublas(device: str) -> None:
    a = torch.randn(1024, 1024, device=device)
    with _Full(device):
        (a @ a).sum().item()


def _cudnn(device: str) -> None:
    images, layer = torch.randn(16, 64, 64, 64, device=device), torch.nn.Conv2d(64, 64, 3, device=device)
    with _Full(device):
        layer(images).sum().item()


def _pinned(device: str) -> None:
    torch.empty(1, device=device)
    torch.empty(HUGE, dtype=torch.uint8, pin_memory=True)


def _touch(device: str) -> None:
    torch.ones(1, device=device).sum().item()


def _first_touch(device: str) -> None:
    """What a process meets that finds the GPU full: not even its context fits. Its own words are passed on."""
    with _Full(device):
        ended = subprocess.run(
            _command("touch", device), capture_output=True, text=True, timeout=SECONDS / 2, check=False
        )  # fmt: skip
    sys.stderr.write(ended.stderr)
    sys.stdout.write(ended.stdout)
    sys.stdout.flush()
    os._exit(ended.returncode if ended.returncode >= 0 else 128 - ended.returncode)


def _illegal_access(device: str) -> None:
    kept = torch.zeros(64, dtype=torch.uint8, device=device)

    class Beyond:
        """Says of itself that it goes on where its memory has long ended."""

        __cuda_array_interface__ = {  # noqa: RUF012 - as the protocol has it
            "shape": (1 << 42,), "typestr": "|u1", "data": (kept.data_ptr(), False), "version": 3,
        }  # fmt: skip

    torch.as_tensor(Beyond(), device=device)[-1024:].float().sum().item()  # by a kernel: a mere copy is refused


def _device_assert(device: str) -> None:
    torch.nn.Embedding(4, 4, device=device)(torch.tensor([99], device=device)).sum().item()


@dataclass(frozen=True)
class Fault:
    """How it is provoked, under which settings of torch's allocator."""

    run: Callable[[str], None]
    allocator: str = ""  # PYTORCH_ALLOC_CONF


FAULTS = {
    "beyond the fraction": Fault(_caching),
    "beyond the GPU": Fault(_whole_card),
    "beyond the GPU, expandable segments": Fault(_whole_card, "expandable_segments:True"),
    "beyond the fraction, expandable segments": Fault(_caching, "expandable_segments:True"),
    "beyond the GPU, cudaMallocAsync": Fault(_whole_card, "backend:cudaMallocAsync"),
    "first product on a full GPU": Fault(_cublas),
    "first convolution on a full GPU": Fault(_cudnn),
    "pinned memory": Fault(_pinned),
    "first touch of a full GPU": Fault(_first_touch),
    "illegal access": Fault(_illegal_access),
    "device-side assertion": Fault(_device_assert),
    "touch": Fault(_touch),  # no fault by itself
}
MEMORY = tuple(name for name in FAULTS if name not in ("illegal access", "device-side assertion", "touch"))
CODES = ("first touch of a full GPU", "illegal access", "device-side assertion")


class _Full:
    """A GPU with room for a few tensors and nothing else."""

    def __init__(self, device: str) -> None:
        self._device, self._kept = device, list[torch.Tensor]()

    def __enter__(self) -> None:
        spare = torch.empty(SPARE, dtype=torch.uint8, device=self._device)
        free, _ = torch.cuda.mem_get_info(self._device)
        size = free // 2
        while size >= SMALLEST:
            try:
                self._kept.append(torch.empty(size, dtype=torch.uint8, device=self._device))
            except torch.OutOfMemoryError:
                size //= 2
        del spare

    def __exit__(self, *error: object) -> None:
        self._kept.clear()


def exhaustion(device: str) -> Iterator[str]:
    """Type, code and words of every way to run out of memory, and what the product makes of it."""
    needs_cuda(device)
    yield from (provoked(name, device) for name in MEMORY)


def codes(device: str) -> Iterator[str]:
    """Whether errors of the device carry their number, and are read by it."""
    needs_cuda(device)
    yield from (provoked(name, device) for name in CODES)


def provoked(name: str, device: str) -> str:
    """One fault in a process of its own, in a line."""
    environ = {**os.environ, **({"PYTORCH_ALLOC_CONF": FAULTS[name].allocator} if FAULTS[name].allocator else {})}
    command = _command(name, device)
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False, env=environ
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"{name}: no end in {SECONDS:.0f} s"
    try:
        told = json.loads(ended.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        outcome, evidence = judge_exit(ended.returncode, log_tail=ended.stderr)
        note = death_note(ended.stderr)
        return f"{name}: left no words, exit status {ended.returncode}; read as {outcome.value} ({evidence}); {note}"
    return f"{name}: {told['type']}, code {told['code']}: {told['message']!r}; read as {told['read']}"


def _command(name: str, device: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.questions.provoked", name, device]


def told_by(run: Callable[[str], None], device: str) -> dict[str, Any]:
    """What comes of it, in words and numbers."""
    try:
        run(device)
    except Exception as error:  # whatever it is, it is the answer
        chain = describe(error)
    else:
        return {"type": "nothing", "code": None, "message": "it ran", "read": "ok"}
    share = memory_share(device)
    outcome, evidence = classify(chain, memory_share=share)
    used = "unknown" if share is None else f"{share:.0%}"
    return {
        "type": chain[0].type_name,
        "code": chain[0].error_code,
        "message": " ".join(chain[0].message.split())[:160],
        "read": f"{outcome.value} ({evidence}), {used} of the device in use or asked for",
    }


if __name__ == "__main__":
    name, device = sys.argv[1:]
    print(json.dumps(told_by(FAULTS[name].run, device)), flush=True)
    os._exit(0)  # a poisoned context may not let go in peace
