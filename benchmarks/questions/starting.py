"""What a fresh process costs on a GPU before its first step, and how soon a killed one gives the memory back."""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from autotune.core.records import Config
from autotune.core.requests import ProbeRequest
from autotune.knobs import defaults
from autotune.launch.subprocess import SubprocessLauncher
from benchmarks.questions import NotRun, needs_cuda

ROUNDS = 3
MIB = 2**20
RETURNED = 64 * MIB  # as near as that to what was in use before counts as returned
PATIENCE_SECONDS = 20.0
FIRST_STEPS = """
import json, sys, time
device, marks, held = sys.argv[1], {}, {}
def mark(name, began):
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        held[name] = total - free - torch.cuda.memory_reserved()
    marks[name] = time.perf_counter() - began
    return time.perf_counter()
now = time.perf_counter()
import torch
marks["import torch"] = time.perf_counter() - now
now = mark("context", (time.perf_counter(), torch.empty(1, device=device))[0])
a = torch.randn(512, 512, device=device)
now = mark("first product", (time.perf_counter(), a @ a)[0])
images, layer = torch.randn(8, 3, 64, 64, device=device), torch.nn.Conv2d(3, 8, 3).to(device)
now = mark("first convolution", (time.perf_counter(), layer(images).sum().backward())[0])
print(json.dumps([marks, held]))
"""
HOLD = """
import sys, torch
free, _ = torch.cuda.mem_get_info()
kept = torch.ones(free // 2, dtype=torch.uint8, device=sys.argv[1])
a = torch.randn(8192, 8192, device=sys.argv[1])
torch.cuda.synchronize()
print("here", flush=True)
while True:
    a = (a @ a).clamp(-1, 1)
"""


def context(device: str) -> list[str]:
    """Seconds of import, context and libraries in a child; what the device holds besides tensors; a whole probe."""
    rounds = [_first_steps(device) for _ in range(ROUNDS)]
    lines = [
        f"{name}: {statistics.median(marks[name] for marks, _ in rounds):.2f} s"
        + (f", the device then holds {held[name] / MIB:,.0f} MiB that no allocator knows" if name in held else "")
        for marks, held in rounds[:1]
        for name in marks
    ]
    request = ProbeRequest(
        target="benchmarks/targets/trivial.py", config=Config(values=defaults()), device=device,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        result = SubprocessLauncher().run(request, Path(folder))
    phases = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in result.phase_seconds.items())
    return [*lines, f"a probe of the least target: {result.elapsed_seconds:.1f} s ({phases}), {result.outcome.value}"]


def _first_steps(device: str) -> tuple[dict[str, float], dict[str, int]]:
    ended = subprocess.run([sys.executable, "-c", FIRST_STEPS, device], capture_output=True, text=True, check=True)
    marks, held = json.loads(ended.stdout)
    return marks, held


def kill(device: str) -> list[str]:
    """Seconds from SIGKILL in the middle of a kernel until the process is gone, and until its memory is free."""
    needs_cuda(device)
    torch.cuda.init()
    torch.empty(1, device=device)
    before = _used(device)
    child = subprocess.Popen([sys.executable, "-c", HOLD, device], stdout=subprocess.PIPE, text=True)
    try:
        if child.stdout is None or child.stdout.readline() != "here\n":
            raise NotRun("the process that was to be killed did not come up")
        time.sleep(0.5)
        held = _used(device) - before
        began = time.perf_counter()
        child.send_signal(signal.SIGKILL)
        child.wait()
        reaped = time.perf_counter() - began
    finally:
        child.kill()
        child.wait()
    while _used(device) - before > RETURNED and time.perf_counter() - began < PATIENCE_SECONDS:
        time.sleep(0.005)
    took, left = time.perf_counter() - began, _used(device) - before
    state = f"free again after {took:.2f} s" if left <= RETURNED else f"{left / MIB:,.0f} MiB still held"
    return [f"{held / MIB:,.0f} MiB were held: process gone after {reaped:.2f} s, {state} (wanted: within 1 s)"]


def _used(device: str) -> int:
    free, total = torch.cuda.mem_get_info(device)
    return total - free
