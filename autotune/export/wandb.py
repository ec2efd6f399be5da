"""A study as one Weights & Biases run: the answer as its summary, every probe in a table, three charts of it."""

from __future__ import annotations

import os
from pathlib import Path

from autotune.export.rows import require, rows, summary
from autotune.study.view import StudyView

PROJECT = "autotune"  # where WANDB_PROJECT names no other
CHARTS = (
    ("throughput", "batch_size", "samples_per_second"),
    ("memory", "batch_size", "peak_bytes"),
    ("data loading", "num_workers", "data_wait_share"),
)


def send(view: StudyView, output: str | None = None) -> str:
    """Send the study, or keep it on disk with WANDB_MODE=offline, and return where the run is.

    The library's own variables hold: WANDB_PROJECT, WANDB_ENTITY, WANDB_MODE, WANDB_API_KEY. `output` is a
    folder for its files. Raises `UsageError` if W&B is not installed.
    """
    require("wandb", extra="wandb")
    import wandb

    if output is not None:
        Path(output).mkdir(parents=True, exist_ok=True)
    best = view.recommendation
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        name=view.name,
        job_type="autotune",
        dir=output,
        config={
            "target": view.request.target,
            "model": view.request.facts.name,
            "device": view.request.environment.device_name,
            "torch": view.request.environment.torch,
            **(best.params if best else {}),
        },
        settings=wandb.Settings(silent=True, console="off"),
    )
    found = rows(view)
    names = list(found[0]) if found else ["number"]
    table = wandb.Table(columns=names, data=[[row[name] for name in names] for row in found], allow_mixed_types=True)
    run.log(
        {"probes": table} | {title: wandb.plot.scatter(table, x, y, title=title) for title, x, y in CHARTS if found}
    )
    run.summary.update(summary(view))
    place = Path(run.dir).parent if run.offline else run.url
    run.finish()
    return f"{place}, which `wandb sync` sends" if run.offline else str(place)
