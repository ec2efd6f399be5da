"""The probes of a study as TensorBoard runs: one each, its settings in the HParams tab, its losses as a curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.core.results import Trial
from autotune.errors import UsageError
from autotune.export.rows import MEASURED, knob_names, require, rows, started_seconds
from autotune.knobs import loader_workers
from autotune.study.view import StudyView

NONE = "None"  # HParams knows numbers, texts and booleans only


def send(view: StudyView, output: str | None = None) -> str:
    """Write event files into a folder, one subfolder per probe, and return how to look at them.

    Needs neither torch nor TensorFlow. Raises `UsageError` if TensorBoard is not installed, or if there is something in
    the folder: runs of two exports would be shown as one.
    """
    require("tensorboard", extra="tensorboard")
    from tensorboard.plugins.hparams import summary_v2 as hparams  # its public name imports TensorFlow for Keras

    folder = Path(output) if output else Path("runs") / view.name
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} is not an empty folder. An earlier export probably lies there, and TensorBoard would mix the "
            f"two. Remove it, or choose another folder with -o."
        )

    metrics = [hparams.Metric(name) for name in MEASURED]
    events(folder, [hparams.hparams_config_pb([hparams.HParam(name) for name in knob_names()], metrics)])
    for trial, row in zip(view.trials, rows(view), strict=True):
        started = started_seconds(trial) or 0.0
        values = {name: NONE if row[name] is None else row[name] for name in knob_names()}
        summaries = [
            hparams.hparams_pb(values, trial_id=f"probe {trial.number}", start_time_secs=started),
            *(scalar(name, float(value)) for name in MEASURED if (value := row[name]) is not None),
            _end(ended=started + trial.result.elapsed_seconds, feasible=bool(row["feasible"])),
        ]
        losses = [(step, scalar("loss", loss)) for step, loss in losses_by_step(trial)]
        events(folder / f"{trial.number:04d}-{trial.purpose}", summaries, losses)
    return f"{folder}: tensorboard --logdir {folder}"


def scalar(name: str, value: float) -> Any:
    """Return a TensorBoard summary of one number under `name`."""
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary(value=[Summary.Value(tag=name, simple_value=value)])


def _end(*, ended: float, feasible: bool) -> Any:
    """The record that closes a session: what `session_end_pb` makes, which in TensorBoard 2.21 needs TensorFlow."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.api_pb2 import Status
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo

    status = Status.STATUS_SUCCESS if feasible else Status.STATUS_FAILURE
    content = HParamsPluginData(session_end_info=SessionEndInfo(status=status, end_time_secs=ended))
    value = Summary.Value(
        tag=metadata.SESSION_END_INFO_TAG,
        metadata=metadata.create_summary_metadata(content),
        tensor=metadata.NULL_TENSOR,
    )
    return Summary(value=[value])


def events(folder: Path, summaries: list[Any], losses: Sequence[tuple[int, Any]] = ()) -> None:
    """Write summaries without a step, then those with one. Raises `UsageError` where that cannot be."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    try:
        writer = EventFileWriter(str(folder))
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written: {error.strerror or error}. It is probably read-only, or the disk is full. "
            f"Choose another folder with -o."
        ) from error
    try:
        for step, summary in [*((0, one) for one in summaries), *losses]:
            writer.add_event(Event(step=step, summary=summary))
    finally:
        writer.close()


def losses_by_step(trial: Trial) -> list[tuple[int, float]]:
    """Losses by optimizer step, a block's by its last; one that was not finite is NaN, which TensorBoard marks."""
    measurement = trial.result.measurement
    if measurement is None:
        return []
    # Steps stand alone while warming up and settling, as the probe's window does: one micro-batch of each worker.
    workers = loader_workers(trial.config)
    settled = math.ceil(max(workers, 1) / max(trial.config.gradient_accumulation_steps, 1))
    alone = len(measurement.warmup_seconds) + settled
    return [
        (entry + max(0, entry + 1 - alone) * (measurement.steps_per_block - 1), math.nan if loss is None else loss)
        for entry, loss in enumerate(measurement.losses)
    ]
