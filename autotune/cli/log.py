"""`autotune log`: the probes of a study for another tracker, after the run."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Tracker(StrEnum):
    """Where to."""

    CSV = "csv"
    TENSORBOARD = "tensorboard"
    WANDB = "wandb"
    MLFLOW = "mlflow"


def log(
    study: Annotated[str | None, typer.Argument(help="Folder or name of a study. [default: the newest]")] = None,
    to: Annotated[str, typer.Option(help="csv, tensorboard, wandb or mlflow.")] = Tracker.CSV.value,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="csv: a file [standard output]. tensorboard: a folder [runs/STUDY]. wandb: a folder for its files "
            "[./wandb]. mlflow: a tracking URI [MLFLOW_TRACKING_URI, or MLflow's own default].",
        ),
    ] = None,
) -> None:
    """Hand the probes of a study to another tool.

    After the search: nothing is logged while probes are measured.
    """
    from autotune.cli.options import one_of
    from autotune.cli.output import say, written
    from autotune.study.layout import find
    from autotune.study.view import load_view
    from autotune.units import counted

    one_of("--to", to, tuple(Tracker))
    view = load_view(find(study))
    match Tracker(to):
        case Tracker.CSV:
            from autotune.export.csv import table

            text = table(view)
            if output is None:
                sys.stdout.write(text)
                return
            written(Path(output), text.encode("utf-8", "replace"))
            told = output
        case Tracker.TENSORBOARD:
            from autotune.export.tensorboard import write

            folder = Path(output) if output else Path("runs") / view.name
            write(view, folder)
            told = f"{folder}: tensorboard --logdir {folder}"
        case Tracker.WANDB:
            from autotune.export.wandb import send

            told = send(view, Path(output) if output else None)
        case Tracker.MLFLOW:
            from autotune.export.mlflow import record

            told = record(view, output)
    say(f"wrote {counted(len(view.trials), 'probe')} to {told}", stderr=True)
