"""The probes of a study as flat rows, which every tracker understands: names, numbers and short texts; and as CSV."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from importlib.util import find_spec

from autotune.core.records import Value
from autotune.core.results import Measurement, Trial, Verdict
from autotune.errors import UsageError
from autotune.harmless import csv_cell, plain
from autotune.knobs import KNOBS
from autotune.study.recommendation import Recommendation
from autotune.study.view import StudyView

Row = dict[str, Value]
LONGEST_ROW_REASON = 300  # characters; the log has the whole error
MEASURED = (
    "samples_per_second", "tokens_per_second", "relative_half_width", "data_wait_share",
    "compute_only_samples_per_second", "loader_only_samples_per_second", "peak_bytes", "host_bytes", "first_loss",
    "last_loss", "elapsed_seconds",
)  # fmt: skip


SUMMARY = (
    "samples_per_second", "baseline_samples_per_second", "speedup", "speedup_low", "speedup_high", "peak_bytes",
    "headroom_fraction", "data_wait_share", "global_batch_size",
)  # fmt: skip


def rows(view: StudyView) -> list[Row]:
    """One row per finished probe, all with the same names; None where something was not measured."""
    return [_row(trial, verdict, view.recommendation) for trial, verdict in view.judged]


def knob_names() -> tuple[str, ...]:
    """Return the names of the columns that hold a configuration."""
    return tuple(knob.name for knob in KNOBS)


def _row(trial: Trial, verdict: Verdict, best: Recommendation | None) -> Row:
    return {
        "number": trial.number,
        "purpose": trial.purpose,
        "outcome": str(trial.result.outcome),
        "feasible": verdict.feasible,
        "recommended": best is not None and trial.config.values == best.params,
        "reason": plain(verdict.why)[:LONGEST_ROW_REASON],
        "started_at": trial.result.started_at,
        **{name: trial.config.values.get(name) for name in knob_names()},
        **dict.fromkeys(MEASURED),
        **_measured(trial.result.measurement),
        "elapsed_seconds": trial.result.elapsed_seconds,
    }


def csv_table(view: StudyView) -> str:
    """Header and one line per probe, as RFC 4180 has it; empty cells for what was not measured.

    Texts that a spreadsheet would compute get an apostrophe before them: error messages are the user's program's.
    """
    found = rows(view)
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(found[0]) if found else ["number"], lineterminator="\n")
    writer.writeheader()
    for one in found:
        writer.writerow({name: csv_cell(value) if isinstance(value, str) else value for name, value in one.items()})
    return text.getvalue()


def started_seconds(trial: Trial) -> float | None:
    """When a probe began, in seconds since the epoch; None where it is not known."""
    moment = trial.result.started_at
    return datetime.fromisoformat(moment).timestamp() if moment else None


def summary(view: StudyView) -> Row:
    """Return the outcome of the study as tracker parameters and metrics; empty without a recommendation."""
    best = view.recommendation
    if best is None:
        return {}
    return {name: getattr(best, name) for name in SUMMARY}


def require(library: str, extra: str) -> None:
    """Raise `UsageError` where the `library` of a tracker is not installed; `extra` of this package brings it."""
    if find_spec(library) is None:
        raise UsageError(
            f"{library} is not installed. It comes with an extra of this package, which was probably left out. "
            f"Install it with `pip install -e '.[{extra}]'` in autotune's clone, or use --to csv."
        )


def _measured(measurement: Measurement | None) -> Row:
    if measurement is None:
        return {}
    return {
        "samples_per_second": measurement.samples_per_second,
        "tokens_per_second": measurement.tokens_per_second,
        "relative_half_width": measurement.relative_half_width,
        "data_wait_share": measurement.data_wait_share,
        "compute_only_samples_per_second": measurement.compute_samples_per_second,
        "loader_only_samples_per_second": measurement.loader_samples_per_second,
        "peak_bytes": measurement.memory.bytes,
        "host_bytes": measurement.memory.host_bytes,
        "first_loss": measurement.losses[0] if measurement.losses else None,
        "last_loss": measurement.losses[-1] if measurement.losses else None,
    }
