"""A few steps for other programs: a trace for Perfetto, a snapshot of CUDA's memory, Nsight's window.

    all that is timed ─► torch.profiler is open, the parts of a step are ranges in it ─► on CUDA: every allocation

Each is a pass of its own, behind all that is timed: an open profiler makes steps 1.6 to 2.6 times as long (measured on
a CPU, small steps).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from autotune.profile.measuring.stopwatch import Stopwatch
from autotune.targets.base import Step

TRACED_STEPS = 4  # in a trace: 5,000 to 9,000 events each where they are small
CAPTURED_STEPS = 10  # by Nsight Systems, whose events are compact
MOST_ALLOCATIONS = 100_000  # that a snapshot keeps
TRACE, SNAPSHOT = "trace.json", "memory.pickle"  # the names of the files
RANGE = "autotune::{}"  # the name of a part in a trace


def traced(folder: Path | None, stopwatch: Stopwatch, device: str) -> Generator[None, Step, list[str]]:
    """Trace a few steps into `folder`; return why what is missing there was not written, a sentence each.

    None: another rank traces these steps.
    """
    why, is_cuda = list[str](), device.startswith("cuda")
    if folder is None:
        for _ in range(TRACED_STEPS * (1 + is_cuda)):
            yield
        return why
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if is_cuda else [])]
    with _ranges(stopwatch, record_function), profile(activities=activities) as profiler:
        for _ in range(TRACED_STEPS):
            yield
    why += _kept(folder / TRACE, profiler.export_chrome_trace)
    if is_cuda:
        torch.cuda.memory._record_memory_history(max_entries=MOST_ALLOCATIONS, stacks="python")
        for _ in range(TRACED_STEPS):
            yield
        why += _kept(folder / SNAPSHOT, torch.cuda.memory._dump_snapshot)
        torch.cuda.memory._record_memory_history(enabled=None)
    return why


def captured(stopwatch: Stopwatch) -> Generator[None, Step, None]:
    """Open the window that `nsys profile --capture-range cudaProfilerApi` waits for, for a few steps."""
    torch.cuda.synchronize()
    with _ranges(stopwatch, torch.cuda.nvtx.range):
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]  # torch does not say
        for _ in range(CAPTURED_STEPS):
            yield
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


@contextmanager
def _ranges(stopwatch: Stopwatch, begin: Callable[[str], AbstractContextManager[Any]]) -> Iterator[None]:
    """Make each part of a step a range with its name."""
    with ExitStack() as going_on:

        def changed() -> None:
            going_on.close()
            going_on.enter_context(begin(RANGE.format(stopwatch.current)))

        stopwatch.listeners.append(changed)
        try:
            yield
        finally:
            stopwatch.listeners.remove(changed)


def _kept(path: Path, write: Callable[[str], object]) -> list[str]:
    """Write a file; return why that failed, if it did: what was measured is reported all the same."""
    try:
        write(str(path))
    except (OSError, RuntimeError) as error:
        return [f"{path.name} was not written: {error}."]
    if not path.is_file() or not path.stat().st_size:  # the profiler only logs it
        return [f"{path.name} was not written: {path.parent} is full, read-only or gone."]
    return []
