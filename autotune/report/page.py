"""A study as one self-contained HTML page; everything that comes from a study is escaped."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from markupsafe import Markup

from autotune.export.loop import with_autotune
from autotune.harmless import python, shell_word
from autotune.report import phrases, probes
from autotune.report.chart import Absence, Chart
from autotune.report.charts import CHARTS
from autotune.report.templates import Served, render_template
from autotune.study import layout as disk
from autotune.study.baseline_rate import why_unanswered
from autotune.study.recommendation import Recommendation
from autotune.study.view import StudyView
from autotune.targets.commands.answer import recommended_command
from autotune.units import format_bytes

LONGEST_TRACEBACK = 4000  # characters, the end: the error itself stands last


def render(view: StudyView, *, prefix: str = "", served: Served | None = None) -> str:
    """The page of one study. Links to logs are relative to the study's folder, with `prefix` before them."""
    best = view.recommendation
    charts = [draw(view) for draw in CHARTS.values()]
    titles, rows = probes.table(view)
    judged = [(trial, view.verdict(trial)) for trial in view.trials]
    return render_template(
        "page.html",
        served=served,
        view=view,
        best=best,
        headline=_headline(best) if best else None,
        snippet=with_autotune(view.folder.as_posix(), view.request.facts),
        literal=_literal(best) if best else "",
        commands=_commands(view.folder),
        raw_trials=_raw_trials(view.folder),
        exports="\n".join(phrases.exports(best.params)) if best else "",
        command=recommended_command(best.target, best.params, best.baseline) if best else None,
        charts=[chart for chart in charts if isinstance(chart, Chart)],
        absent=[chart for chart in charts if isinstance(chart, Absence)],
        svg=Markup,  # charts escape their own texts
        titles=titles,
        rows=rows,
        prefix=prefix,
        usable=sum(verdict.feasible for _, verdict in judged),
        unanswered=why_unanswered(view.trials, view.folder),
        failure=phrases.dominating_failure(judged)[: probes.LONGEST_MESSAGE],
        traceback=_traceback(view) if best is None and not view.running else "",
        environment=_environment(view),
        task=phrases.task_line(view.request.facts),
        machine=phrases.environment_line(view.request.environment),
    )


def _headline(best: Recommendation) -> tuple[str, str]:
    """The factor in large type, if there is one to be proud of, and the rest of the sentence."""
    text = phrases.headline(best)
    if phrases.achieved(best):
        figure, _, rest = text.partition(" ")  # 67%, 1.31×
        return figure, rest
    if best.speedup is None or not phrases.is_faster(best):
        return "", text
    factor = f"{phrases.format_speedup(best.speedup)}×"
    return factor, text.removeprefix(factor).strip()


def _literal(best: Recommendation) -> str:
    lines = "".join(f"    {python(name)}: {python(value)},\n" for name, value in best.params.items())
    return f"{{\n{lines}}}"


def _commands(study: Path) -> str:
    name = shell_word(study.as_posix())
    lines = (
        f"best {name} --json",
        f"export {name} --to hf",
        f"show {name} --sort speed",
        f"report {name}",
        f"log {name} --to csv -o probes.csv",
    )
    return "\n".join(f"autotune {line}" for line in lines)


def _raw_trials(study: Path) -> str:
    """The command that shows the trials as the sampler sees them, where the study keeps its database."""
    database = study / disk.DATABASE
    return f"optuna-dashboard {shell_word(f'sqlite:///{database.as_posix()}')}" if database.is_file() else ""


def _traceback(view: StudyView) -> str:
    """Of the last probe that left one: where everything failed, that is what a person needs."""
    traces = [t.result.failure.traceback for t in view.trials if t.result.failure and t.result.failure.traceback]
    return traces[-1][-LONGEST_TRACEBACK:] if traces and not any(t.result.measurement for t in view.trials) else ""


def _moment(text: str) -> str:
    """`2026-11-21 16:25 UTC`; as it stands where it is no time."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return text


def _environment(view: StudyView) -> list[tuple[str, str]]:
    """What the measurements depend on, by name."""
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
