"""`autotune show`: the probes of a study."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

import typer

from autotune.cli.output import plain_console, say, say_json
from autotune.cli.target import AsJson, StudyArgument

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autotune.core.results import Trial
    from autotune.study.view import StudyView

Sort = Literal["number", "speed", "memory"]


def show(
    study: StudyArgument = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only what failed, and where its log is.")] = False,
    sort: Annotated[str, typer.Option(help="number, speed or memory.")] = "number",
    probe: Annotated[
        int | None, typer.Option(help="Only this probe, with what the sampler expected.", metavar="NUMBER")
    ] = None,
    json_output: AsJson = False,
) -> None:
    """List the probes of a study.

    Reads the folder of the study alone, and does not disturb a running search.
    """
    from autotune.answer.no_answer import unanswered
    from autotune.cli.options import one_of
    from autotune.errors import UsageError
    from autotune.harmless import plain, shell_word
    from autotune.report.blocks import trials_table
    from autotune.report.expected import probe_block
    from autotune.study.answers import answered_probes, unanswered_probes, unreadable_answer
    from autotune.study.disk import find
    from autotune.study.history import ended_a_search
    from autotune.study.running import answer_anew
    from autotune.study.view import load_view
    from autotune.units import counted

    one_of("--sort", sort, get_args(Sort))
    folder = find(study)
    unreadable = unreadable_answer(folder)
    view = load_view(folder, reads_answer=not unreadable)
    if unreadable:
        say(f"{unreadable} {answer_anew(folder)} All else is shown.", stderr=True)
    asked = [trial for trial in view.trials if probe in (None, trial.number)]
    if probe is not None and not asked:
        raise UsageError(
            f"{view.folder} has no finished probe {probe}. Its number was probably mistyped, or it has not ended yet. "
            f"`autotune show {view.folder}` lists them all."
        )
    if json_output:
        say_json(_rows(view, asked, failed=failed))
        return
    console = plain_console()
    if probe is not None:
        console.print(probe_block(view, asked[0]), soft_wrap=True)
        return
    is_stuck = not any(verdict.feasible for _, verdict in view.judged) and any(
        ended_a_search(trial, view.request) for trial in view.trials
    )
    stopped = "stopped at its baseline" if is_stuck else "stopped before its end"
    stopped = "its answer cannot be read" if unreadable else stopped
    state = "running" if view.running else "finished" if view.recommendation else stopped
    if state == "finished" and (newer := unanswered_probes(view.folder, view.request, view.trials)):
        state = f"stopped before its end, {counted(newer, 'probe')} after its answer"
    gone = 0 if view.trials or view.running else answered_probes(view.folder, view.request)
    state += ", its probes are gone" if gone else ""
    first = f"{view.folder} · {view.request.target} · {counted(len(view.trials), 'probe')} · {state}"
    console.print(plain(first), soft_wrap=True)
    if not view.running and view.recommendation is None and view.trials and not unreadable:
        console.print(plain(unanswered(view)), soft_wrap=True)
    if gone:
        console.print(plain(
            f"The answer rests on {counted(gone, 'probe')}, of which none is left: probably they were deleted. "
            f"`autotune best {shell_word(str(view.folder))}` still shows it; a search begun with --fresh measures anew."
        ), soft_wrap=True)  # fmt: skip
        return
    width = console.width if console.is_terminal else None
    console.print(trials_table(view, failed_only=failed, sort=cast(Sort, sort), width=width), soft_wrap=True)
    for line in _below(view, failed=failed):
        console.print(plain(line), style="dim", soft_wrap=True)


def _rows(view: StudyView, asked: Sequence[Trial], *, failed: bool) -> list[dict[str, Any]]:
    from autotune.report.expected import prediction_of
    from autotune.study.disk import log_of

    return [
        {
            "trial": trial,
            "verdict": verdict,
            "samples_per_second": None if measured is None else measured.samples_per_second,
            "log": str(log_of(view.folder, trial.number)),
            "prediction": prediction_of(view, trial),
        }
        for trial in asked
        if not ((verdict := view.verdict(trial)).feasible and failed)
        for measured in (trial.result.measurement,)
    ]


def _below(view: StudyView, *, failed: bool) -> Iterator[str]:
    """Yield the lines below the table: the precision checks, and the places of the logs of failures."""
    from autotune.study.disk import log_of

    for compared in view.loss_verdicts:
        is_ok = compared.verdict == "ok"
        if not (is_ok and failed):
            yield compared.reason.text if is_ok else f"{compared.verdict}: {compared.reason.text}"
    for trial in view.trials if failed else ():
        if not view.verdict(trial).feasible:
            yield f"log of {trial.number}: {log_of(view.folder, trial.number)}"
