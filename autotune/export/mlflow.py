"""A study as an MLflow run, with a nested run for every probe; failed ones are marked so that they can be filtered."""

from __future__ import annotations

from typing import Any

from autotune.core.results import Trial
from autotune.export.rows import MEASURED, Row, knob_names, require, rows, started_seconds, summary
from autotune.study import disk
from autotune.study.view import StudyView

EXPERIMENT = "autotune"  # where MLFLOW_EXPERIMENT_NAME names no other
LONGEST_TAG = 500  # characters; servers take between 500 and 5,000
TAGS = ("number", "purpose", "outcome", "feasible", "recommended", "reason")


def send(view: StudyView, tracking_uri: str | None = None) -> str:
    """Record the study with the tracking server or folder at `tracking_uri`, and return where the run is.

    None: MLFLOW_TRACKING_URI, or what MLflow does without it. Raises `UsageError` if MLflow is not installed.
    """
    require("mlflow", extra="mlflow")
    import mlflow
    from mlflow.environment_variables import MLFLOW_EXPERIMENT_NAME

    client = mlflow.MlflowClient(tracking_uri=tracking_uri)
    name = MLFLOW_EXPERIMENT_NAME.get() or EXPERIMENT
    known = client.get_experiment_by_name(name)
    experiment = known.experiment_id if known else client.create_experiment(name)
    parent = client.create_run(experiment, run_name=view.name).info.run_id
    _log(client, parent, params=view.recommendation.params if view.recommendation else {}, metrics=summary(view))
    for trial, row in zip(view.trials, rows(view), strict=True):
        _probe(client, experiment, parent, trial, row)
    for kept in (disk.BEST, "report.html"):
        if (view.folder / kept).is_file():
            client.log_artifact(parent, str(view.folder / kept))
    client.set_terminated(parent)
    return f"run {parent} of experiment {name} at {tracking_uri or mlflow.get_tracking_uri()}"


def _probe(client: Any, experiment: str, parent: str, trial: Trial, row: Row) -> None:
    tags = {f"autotune.{name}": str(row[name])[:LONGEST_TAG] for name in TAGS}
    seconds = started_seconds(trial)
    begun = None if seconds is None else int(seconds * 1000)
    run = client.create_run(
        experiment,
        start_time=begun,
        run_name=f"probe {trial.number}",
        tags={"mlflow.parentRunId": parent, **tags},
    ).info.run_id
    _log(client, run, params={name: row[name] for name in knob_names()}, metrics={name: row[name] for name in MEASURED})
    ended = None if begun is None else begun + int(trial.result.elapsed_seconds * 1000)
    client.set_terminated(run, status="FINISHED" if row["feasible"] else "FAILED", end_time=ended)


def _log(client: Any, run: str, *, params: Row, metrics: Row) -> None:
    from mlflow.entities import Metric, Param

    measured = [Metric(name, float(value), 0, 0) for name, value in metrics.items() if value is not None]
    client.log_batch(run, metrics=measured, params=[Param(name, str(value)) for name, value in params.items()])
