"""Measures a surface: every configuration of a task's grid through the real launcher, in an order without a pattern."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from autotune.core.records import Config, StudyRequest
from autotune.core.requests import ProbeBudget, ProbeRequest
from autotune.core.results import ProbeResult
from autotune.launch.base import Launcher
from autotune.memory.records import ShapeRunRequest
from autotune.memory.stage import asking
from autotune.preparation.prepare import inspect, settle
from autotune.sampler.space import SearchSpace
from autotune.study import disk
from benchmarks.surfaces.surface import Cell, Surface, condensed
from benchmarks.surfaces.tasks import Task

# Shorter than the product's: a grid's configurations differ by tens of percent, and a search sees single probes anyway.
BUDGET = ProbeBudget(
    min_warmup_steps=2,
    min_warmup_seconds=0.2,
    max_compute_seconds=0.2,
    max_loader_seconds=0.3,
    min_steps=4,
    min_seconds=0.6,
    max_seconds=1.0,
)
SHAPE_RUN_SECONDS = 60.0  # at most
Progress = Callable[[int, int, Config, ProbeResult], None]


def record(task: Task, launcher: Launcher, command: str, progress: Progress = lambda *told: None) -> Surface:
    """Probe the baseline, then every other configuration once; one that crashed twice.

    Raises what an inspection raises, and `RuntimeError` if the baseline does not run: then nothing else is worth a try.
    """
    with tempfile.TemporaryDirectory() as place:
        environment, facts, _ = inspect(task.target, task.device, 0, Path(place, "inspect"), launcher)
        request, space = settle(task.coarse(), environment, facts)
        others = [config for config in space.configs if config != request.baseline]
        random.Random(0).shuffle(others)  # a machine that drifts then favours no batch
        configs, cells, began = [request.baseline, *others], [], time.monotonic()
        for number, config in enumerate(configs):
            result = _probed(config, number, request, launcher, Path(place))
            cells.append(Cell(config=config, result=condensed(result)))
            progress(number + 1, len(configs), config, result)
            if number == 0 and result.failure is not None:
                raise RuntimeError(f"{task.target}: {result.failure.message}\n{result.failure.traceback}")
        seconds = round(time.monotonic() - began, 1)
        exhausted = any(cell.result.outcome.out_of_memory for cell in cells)
        foretold = launcher.run(_asked(request, space), disk.make(Path(place, "shape-run"))) if exhausted else None
    return Surface(
        task=task.name,
        command=command,
        recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=seconds,
        budget=BUDGET,
        request=request,
        cells=tuple(sorted(cells, key=lambda cell: space.configs.index(cell.config))),
        shape_run=foretold,
    )


def _asked(request: StudyRequest, space: SearchSpace) -> ShapeRunRequest:
    return asking(request, space, request.memory_limit_bytes - request.headroom_bytes, SHAPE_RUN_SECONDS)


def _probed(config: Config, number: int, request: StudyRequest, launcher: Launcher, place: Path) -> ProbeResult:
    for attempt in range(2):
        folder = place / f"{number:04d}-{attempt}"
        folder.mkdir()
        result = launcher.run(
            ProbeRequest(
                target=request.target, config=config, device=request.environment.device, number=number, budget=BUDGET,
                memory_limit_bytes=request.enforced_limit_bytes,
            ),
            folder,
        )  # fmt: skip
        if not result.outcome.retried:
            break
    return result
