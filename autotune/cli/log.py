"""`autotune log`: the probes of a study for another tracker, after the run."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.target import StudyArgument

TRACKERS = ("csv", "tensorboard", "wandb", "mlflow")


def log(
    study: StudyArgument = None,
    to: Annotated[str, typer.Option(help="csv, tensorboard, wandb or mlflow.")] = "csv",
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

    Run it after the search: nothing is logged while probes are measured.
    """
    from autotune.cli.options import one_of
    from autotune.cli.output import say, write
    from autotune.export.rows import csv_table
    from autotune.study.disk import find
    from autotune.study.view import load_view
    from autotune.units import counted

    one_of("--to", to, TRACKERS)
    view = load_view(find(study))
    if to != "csv":
        place = import_module(f"autotune.export.{to}").send(view, output)
    elif output is None:
        sys.stdout.write(csv_table(view))
        return
    else:
        place = output
        write(Path(output), csv_table(view))
    say(f"wrote {counted(len(view.trials), 'probe')} to {place}", stderr=True)
