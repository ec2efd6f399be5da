"""`autotune explain`: what each setting is worth here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autotune import interrupts
from autotune.cli.output import plain_console, say, say_json, text_width
from autotune.cli.target import AsJson, StudyArgument

if TYPE_CHECKING:
    from autotune.report.explain import ValueWorth
    from autotune.study.recommendation import Recommendation
    from autotune.study.view import StudyView


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
    json_output: AsJson = False,
) -> None:
    """Say what each setting is worth here.

    In the recommendation, and alone beside your baseline. "Does nothing here" and "was not measured" are answers.
    Without --measure nothing is run.
    """
    from autotune.cli.options import Options
    from autotune.report.explain import explain as explained
    from autotune.report.explain_text import explain_block, unmeasured
    from autotune.study.disk import find
    from autotune.study.recommendation import load_result
    from autotune.study.view import load_view
    from autotune.units import parse_seconds

    seconds = Options(context).parsed("--time-budget", time_budget, parse_seconds)
    folder = find(study)
    best, view = load_result(folder), load_view(folder)
    found = explained(view, best)
    if measure and unmeasured(found):
        _measure(view, best, affordable(unmeasured(found), view, seconds or 0.0), seconds or 0.0)
        found = explained(view, best)
    elif measure:
        say("Everything that can be measured was measured.", stderr=True)
    if json_output:
        say_json(found)
        return
    console = plain_console()
    console.print(explain_block(found, best, view, text_width(console)), soft_wrap=True)


def affordable(asked: list[ValueWorth], view: StudyView, seconds: float) -> list[ValueWorth]:
    """Return as many of the first settings as have time for two rounds beside the recommendation; at least one."""
    from autotune.answer.confirmation_rounds import FEWEST_ROUNDS

    took = [trial.result.elapsed_seconds for trial in view.trials if trial.result.elapsed_seconds]
    probe_seconds = sum(took) / len(took) if took else 0.0
    count = max(1, int(seconds / (FEWEST_ROUNDS * probe_seconds)) - 1) if probe_seconds else len(asked)
    if count < len(asked):
        needed = FEWEST_ROUNDS * (1 + len(asked)) * probe_seconds
        say(
            f"Measuring {count} of {len(asked)} settings: a probe took {probe_seconds:.0f} s here, and each has "
            f"{FEWEST_ROUNDS} rounds at least. All of them need --time-budget {int(needed // 60) + 1}m.",
            stderr=True,
        )
    return asked[:count]


def _measure(view: StudyView, best: Recommendation, asked: list[ValueWorth], seconds: float) -> None:
    """Race the recommendation against itself with each of these settings, and store the result in the study."""
    from autotune.launch.subprocess import SubprocessLauncher
    from autotune.preparation.named_training import named_training
    from autotune.races.race import race
    from autotune.races.settings import RaceSettings
    from autotune.report.explain import FOLDER
    from autotune.units import counted, format_seconds

    interrupts.heed()
    say(
        f"Measuring {counted(len(asked), 'setting')} beside the recommendation for up to {format_seconds(seconds)} "
        f"(--time-budget), less if it is decided sooner.",
        stderr=True,
    )
    first = named_training(str(view.folder))
    others = [first.with_changed_values(one.against if one.is_change else one.values) for one in asked]
    place = view.folder / FOLDER
    number = 1 + max((int(one.name) for one in place.glob("*") if one.name.isdigit()), default=0)
    settings = RaceSettings(
        time_budget_seconds=seconds, device=best.environment.device, folder=place / f"{number:03}",
    )  # fmt: skip
    with SubprocessLauncher() as launcher:
        race([first, *others], settings, lambda _: launcher, lambda text: say(text, stderr=True))
