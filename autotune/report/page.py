"""A study as one self-contained HTML page; everything that comes from a study is escaped."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from markupsafe import Markup

from autotune.answer.no_answer import unanswered
from autotune.core.notices import Notice, costliest_first
from autotune.core.records import TargetFacts
from autotune.harmless import cropped, shell_word
from autotune.report import phrases, probes
from autotune.report.answer import OF_GLOBAL_BATCH, consequences, evidence
from autotune.report.arrangement import arranged
from autotune.report.bottleneck import bottleneck_of
from autotune.report.card import interval_bar
from autotune.report.certainty import certainty
from autotune.report.change_rows import change_rows, unchanged_values
from autotune.report.chart import Absence, Chart
from autotune.report.charts import CHARTS
from autotune.report.durations import durations
from autotune.report.explain import explain
from autotune.report.explain_text import notes
from autotune.report.fleet import worker_rows
from autotune.report.live import LATEST_SENTENCES, live, sentences_said
from autotune.report.losses import losses_phrase
from autotune.report.templates import Served, render_template
from autotune.report.use import usage_tabs
from autotune.study import disk
from autotune.study.recommendation import Recommendation
from autotune.study.view import StudyView, facts_of
from autotune.units import format_bytes, format_count, format_share

FEW_LINES = 9  # of code to use the answer: so few leave room for warnings below
LONGEST_TRACEBACK = 4000  # characters at the end: the error itself comes last


def render(view: StudyView, *, prefix: str = "", served: Served | None = None) -> str:
    """Return the page of one study. Links to logs are relative to the study's folder, with `prefix` before them."""
    best = view.recommendation
    charts = [draw(view) for draw in CHARTS.values()]
    return render_template(
        "page.html",
        served=served,
        view=view,
        best=best,
        answer=_answer(view) if best else None,
        live=live(view) if view.running else None,
        said=sentences_said(view.progress),
        latest=LATEST_SENTENCES,
        charts=arranged([chart for chart in charts if isinstance(chart, Chart)]),
        absent=[chart for chart in charts if isinstance(chart, Absence) and chart.is_told],
        table=probes.table(view),
        workers=worker_rows(view),
        raw_trials=_raw_trials(view.folder),
        prefix=prefix,
        why=unanswered(view),
        traceback=_traceback(view) if best is None and not view.running else "",
        environment=_environment(view),
        task=_task(view.request.facts),
        machine=phrases.environment_line(view.request.environment),
    )


def _task(facts: TargetFacts) -> str:
    """Model and data: `ResNet, 25.6 M parameters · dataset, 1,281,167 samples`."""
    samples = "" if facts.dataset_samples is None else f", {facts.dataset_samples:,} samples"
    inferred = [one.text for one in facts.check_lines if one.inferred]
    parameters = f"{facts.name}, {format_count(facts.parameter_count)} parameters"
    return phrases.plain(" · ".join([parameters, facts.data + samples, *inferred]))


def _answer(view: StudyView) -> dict[str, object]:
    """Return the content of the top of the page, by the names that the template uses."""
    best = view.recommendation
    assert best is not None, "asked for where there is an answer"
    factor, rest = phrases.split_headline(best)
    use = usage_tabs(best, view)
    return {
        "factor": factor,
        "rest": rest,
        "certainty": certainty(best),
        "bar": Markup(interval_bar(best)),  # contains only our own numbers
        "speed": phrases.speed_parts(best),
        "durations": durations(best, facts_of(best, view)),
        "bottleneck": bottleneck_of(view) or f"waiting for data {format_share(best.data_wait_share)}",
        "consequences": consequences(best, view),
        "rows": change_rows(best, view),
        "unchanged": unchanged_values(best, view),
        "losses": losses_phrase(best),
        "warnings": [(one.code, *_parted(one)) for one in costliest_first(best.warnings)],
        "slow_lines": [(one.numbers.get("line", ""), *_parted(one)) for one in best.slow_lines],
        "doubts": notes(explain(view, best), best),
        "reasons": _reasons(best),
        "ways": use,
        "is_brief": use[0].text.count("\n") < FEW_LINES or best.global_batch_change is not None,
    }


def _parted(warning: Notice) -> tuple[str, str]:
    """Return the meaning of a warning, and its remedy."""
    return cropped(warning.meaning), warning.next_step


def _reasons(best: Recommendation) -> list[str]:
    """Return the reasons for this configuration, without those shown at the factor."""
    texts = dict.fromkeys(one.text for one in evidence(best) if one.code not in OF_GLOBAL_BATCH)
    return [cropped(text) for text in texts if text != losses_phrase(best)]


def _raw_trials(study: Path) -> str:
    """Return the command that shows the trials as the sampler sees them; empty if the study has no database."""
    database = study / disk.DATABASE
    return f"optuna-dashboard {shell_word(f'sqlite:///{database.as_posix()}')}" if database.is_file() else ""


def _traceback(view: StudyView) -> str:
    """Return the traceback of the last probe that left one, if none was measured."""
    traces = [t.result.failure.traceback for t in view.trials if t.result.failure and t.result.failure.traceback]
    return traces[-1][-LONGEST_TRACEBACK:] if traces and not any(t.result.measurement for t in view.trials) else ""


def _moment(text: str) -> str:
    """`2026-11-21 16:25 UTC`; unchanged if it is no time."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return text


def _environment(view: StudyView) -> list[tuple[str, str]]:
    here, best = view.request.environment, view.recommendation
    entries = [
        ("device", f"{here.device_name} ({here.device})"),
        ("memory of the device", format_bytes(here.device_bytes)),
        ("memory limit", format_bytes(view.request.memory_limit_bytes)),
        ("kept free", format_bytes(view.request.headroom_bytes)),
        ("native autocast dtypes", ", ".join(here.native_dtypes) or "none"),
        ("driver", here.driver),
        ("CUDA", here.cuda),
        ("compute capability", here.capability),
        ("torch", here.torch),
        ("Python", here.python),
        ("platform", here.platform),
        ("processor", here.cpu),
        ("usable cores", here.usable_cores),
        ("torch threads by default", here.default_threads),
        ("memory of the host", format_bytes(here.host_bytes)),
        ("shared memory", None if here.shm_bytes is None else format_bytes(here.shm_bytes)),
        ("target", view.request.target),
        ("begun", _moment(view.request.created_at)),
        ("fingerprint", best and best.fingerprint),
    ]
    return [(name, str(value)) for name, value in entries if value not in (None, "")]
