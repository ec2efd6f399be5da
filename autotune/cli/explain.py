"""`autotune explain`: what each setting is worth here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.output import plain_console, say, stop_on_sigterm, text_width
from autotune.cli.target import StudyArgument

if TYPE_CHECKING:
    from autotune.report.explain import Explanation
    from autotune.study.recommendation import Recommendation


def explain(
    context: typer.Context,
    study: StudyArgument = None,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Race the recommendation against itself with each setting not yet measured."),
    ] = False,
    time_budget: Annotated[
        str, typer.Option("--time-budget", "-t", help="Stop measuring after this long; sooner if it is decided.")
    ] = "3m",
    json_output: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Say what each setting is worth here: in the recommendation, and alone.

    "Does nothing here" and "was not measured" are answers. Reads the study alone, unless it is to measure.
    """
    from autotune.cli.options import Options
    from autotune.core import codec
    from autotune.report.explain import explain as explained
    from autotune.report.explain_text import explain_block, unmeasured
    from autotune.study.layout import find
    from autotune.study.recommendation import load_result
    from autotune.study.view import load_view
    from autotune.units import parse_seconds

    seconds = Options(context).parsed("--time-budget", time_budget, parse_seconds)
    folder = find(study)
    best, view = load_result(folder), load_view(folder)
    found = explained(view, best)
    if measure and unmeasured(found):
        _measure(folder, best, found, seconds or 0.0)
        found = explained(view, best)
    elif measure:
        say("Everything that can be measured was measured.", stderr=True)
    if json_output:
        sys.stdout.write(codec.encode(found).decode())
        return
    console = plain_console()
    console.print(explain_block(found, best, view, text_width(console)), soft_wrap=True)


def _measure(folder: Path, best: Recommendation, found: Explanation, seconds: float) -> None:
    """Race the recommendation against itself with each setting that was not measured, into the study."""
    from autotune.launch.subprocess import SubprocessLauncher
    from autotune.races.contestants import named_contestant
    from autotune.races.race import race
    from autotune.races.settings import RaceSettings
    from autotune.report.explain import FOLDER
    from autotune.report.explain_text import unmeasured

    stop_on_sigterm()
    first = named_contestant(str(folder))
    others = [first.with_settings(one.against if one.is_change else one.values) for one in unmeasured(found)]
    place = folder / FOLDER
    number = 1 + max((int(one.name) for one in place.glob("*") if one.name.isdigit()), default=0)
    settings = RaceSettings(
        time_budget_seconds=seconds, device=best.environment.device, folder=place / f"{number:03}",
    )  # fmt: skip
    with SubprocessLauncher() as launcher:
        race([first, *others], settings, lambda _: launcher, lambda text: say(text, stderr=True))
