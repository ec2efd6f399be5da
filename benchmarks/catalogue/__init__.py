"""The trainings that people with a GPU have: what each is held to, and what must be installed for it.

Their sizes are those of the papers. `CATALOGUE_SMALL=1` in the environment makes them tiny, so that everything about
them can be rehearsed on a CPU in seconds.
"""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import replace
from pathlib import Path

from benchmarks.surfaces.tasks import HALF, LAYOUTS, Task

PLACE = "benchmarks/catalogue"
SMALL = "CATALOGUE_SMALL"  # read by the targets themselves
SMALL_BATCH = 16  # of an optimizer step, where the targets are tiny
WORKERS = (0, 8)


def _task(name: str, what: str, global_batch: int, usual: int, **grid: tuple[object, ...]) -> Task:
    batches = tuple(sorted({usual, global_batch // 4, global_batch}))
    return Task(
        name=name,
        what=what,
        target=f"{PLACE}/{name}.py",
        global_batch=global_batch,
        memory_limit=None,
        usual=usual,
        device="cuda",
        grid={"batch_size": batches, "amp_dtype": HALF, **grid},  # type: ignore[dict-item]  # values of knobs
    )


CATALOGUE = (
    _task("resnet50", "CNN, images in memory", 1024, 64, channels_last=LAYOUTS, num_workers=WORKERS),
    _task("resnet50_jpeg", "CNN, JPEGs decoded", 1024, 64, channels_last=(True,), num_workers=(0, 4, 8, 16)),
    _task("vit_s", "vision transformer", 1024, 64, num_workers=WORKERS),
    _task("bert_base", "classifies sentences", 512, 32, num_workers=WORKERS),
    _task("gpt2_small", "models text", 64, 8, num_workers=WORKERS),
    _task("unet", "denoises, convolutions", 512, 32, channels_last=LAYOUTS, num_workers=WORKERS),
    _task("tabular_mlp", "tiny steps, many rows", 8192, 1024, num_workers=(0, 4, 16)),
)


def catalogue(names: str = "all", *, device: str = "cuda", small: bool = False) -> tuple[Task, ...]:
    """The tasks of a list with commas, on `device`. Raises `ValueError` for a name that is none."""
    known = {task.name: task for task in CATALOGUE}
    wanted = list(known) if names == "all" else names.split(",")
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(f"no target is called {', '.join(unknown)}: there are {', '.join(known)}, and all")
    return tuple(_shrunk(known[name], device) if small else replace(known[name], device=device) for name in wanted)


def missing(target: str) -> str:
    """What a target file says it needs and is not installed, in words; empty if all is there.

    Its `NEEDS` is read, not run: a name, or a tuple of them, of which `a or b` is content with either.
    """
    needs: str | tuple[str, ...] = ()
    for line in ast.parse(Path(target).read_text()).body:
        if isinstance(line, ast.Assign) and any(isinstance(x, ast.Name) and x.id == "NEEDS" for x in line.targets):
            needs = ast.literal_eval(line.value)
    wanted = (needs,) if isinstance(needs, str) else needs
    lacking = [need for need in wanted if not any(map(importlib.util.find_spec, need.split(" or ")))]
    return f"{' and '.join(lacking)} not installed" if lacking else ""


def _shrunk(task: Task, device: str) -> Task:
    batches = (SMALL_BATCH // 4, SMALL_BATCH)
    grid = {**task.grid, "batch_size": batches, "num_workers": (0,)}
    return replace(task, device=device, global_batch=SMALL_BATCH, usual=batches[0], grid=grid)
