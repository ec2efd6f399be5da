"""A study as one self-contained HTML page; everything that comes from a study is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined
from markupsafe import Markup

from autotune import folder as disk
from autotune.errors import AutotuneError
from autotune.report import phrases
from autotune.report.charts import memory_chart, throughput_chart
from autotune.report.columns import columns
from autotune.results import Trial
from autotune.tuning.recommendation import Recommendation, load_result
from autotune.tuning.view import StudyView, load_view
from autotune.units import format_bytes, format_rate, format_seconds, format_share

REFRESH_SECONDS = 5  # how often the page of a running study asks again; a probe takes about that long

_templates = Templates(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
_templates.filters |= {"rate": format_rate, "bytes": format_bytes, "seconds": format_seconds, "share": format_share}


def render(view: StudyView, *, served: bool = False, nonce: str = "") -> str:
    """The page of one study. Links are relative to the study's folder.

    A page that is `served` asks again while the study is running; `nonce` marks its style for a content security
    policy.
    """
    judged = [(trial, view.verdict(trial)) for trial in view.trials]
    return _templates.get_template("page.html").render(
        view=view,
        best=view.recommendation,
        headline=_headline(view.recommendation) if view.recommendation else None,
        phrases=phrases,
        refresh=REFRESH_SECONDS if served and view.running else None,
        nonce=nonce,
        # The charts are markup that escapes its own texts.
        throughput=Markup(throughput_chart(view)),
        memory=Markup(memory_chart(view)),
        titles=[column.title for column in columns()],
        rows=[_row(view, trial) for trial in view.trials],
        failure=phrases.dominating_failure(judged),
        environment=_environment(view),
        task=phrases.task_line(view.request.facts),
        machine=phrases.environment_line(view.request.environment),
    )


def render_index(folders: Sequence[Path], *, nonce: str = "") -> str:
    """The list of studies, each linked by its folder's name; one that cannot be read says why."""
    entries = [_entry(folder) for folder in folders]
    return _templates.get_template("index.html").render(entries=entries, nonce=nonce, phrases=phrases)


def _headline(best: Recommendation) -> tuple[str, str]:
    """The factor in large type, if there is one to be proud of, and the rest of the sentence."""
    text = phrases.headline(best)
    if best.speedup is None or not phrases.is_faster(best):
        return "", text
    factor = f"{phrases.format_speedup(best.speedup)}×"
    return factor, text.removeprefix(factor).strip()


def _row(view: StudyView, trial: Trial) -> dict[str, object]:
    verdict = view.verdict(trial)
    word = phrases.outcome_word(trial, verdict)
    infeasible = "memory" if trial.result.outcome.out_of_memory else "bad"
    return {
        "number": trial.number,
        "purpose": trial.purpose,
        "cells": [column.cell(trial.config, trial.result.measurement) for column in columns()],
        "outcome": word,
        "kind": "good" if verdict.feasible else infeasible,
        "reason": phrases.reason(verdict).removeprefix(f"{word}: "),
        "log": disk.log_of(view.folder, trial.number).relative_to(view.folder).as_posix(),
        "chosen": view.recommendation is not None and trial.config.values == view.recommendation.params,
    }


def _environment(view: StudyView) -> list[tuple[str, str]]:
    """What the measurements depend on, by name."""
    here = view.request.environment
    shared = "" if here.shm_bytes is None else format_bytes(here.shm_bytes)
    entries = [
        ("device", f"{here.device_name} ({here.device})"),
        ("memory of the device", format_bytes(here.device_bytes)),
        ("memory limit", f"{format_bytes(view.request.memory_limit_bytes)}"),
        ("kept free", format_bytes(view.request.headroom_bytes)),
        ("native autocast dtypes", ", ".join(here.native_dtypes) or "none"),
        ("driver", here.driver or ""),
        ("CUDA", here.cuda or ""),
        ("compute capability", here.capability or ""),
        ("torch", here.torch),
        ("Python", here.python),
        ("platform", here.platform),
        ("processor", here.cpu),
        ("usable cores", str(here.usable_cores)),
        ("memory of the host", format_bytes(here.host_bytes)),
        ("shared memory", shared),
        ("target", view.request.target),
        ("begun", view.request.created_at),
    ]
    return [(name, text) for name, text in entries if text]


def _entry(folder: Path) -> dict[str, object]:
    entry: dict[str, object] = {
        "name": folder.name,
        "link": "",
        "best": None,
        "problem": "",
        "running": False,
        "probes": 0,
    }
    try:
        if not (folder / disk.STUDY).is_file():
            return entry | {"best": load_result(folder), "probes": 0}
        view = load_view(folder)
    except (AutotuneError, OSError) as error:
        return entry | {"problem": str(error)}
    best: Recommendation | None = view.recommendation
    return entry | {"link": folder.name, "best": best, "running": view.running, "probes": len(view.trials)}
