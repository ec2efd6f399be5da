"""`autotune explain`: what each setting is worth here."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune import interrupts
from autotune.cli.output import plain_console, say, say_json, text_width
from autotune.cli.target import AsJson, StudyArgument
from autotune.errors import TargetError, UsageError

if TYPE_CHECKING:
    from autotune.context.budget import TimeBudget
    from autotune.report.explain import ValueWorth
    from autotune.study.recommendation import Recommendation
    from autotune.study.view import StudyView

MOST_NAMED_SETTINGS = 3  # settings in a sentence
IMPORT_SECONDS = 3.0  # until torch is imported, in the process that all others are forked from


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

    Report the effect of each setting in the recommendation, and of that setting alone on your baseline. "Does nothing
    here" and "was not measured" are answers, too. Without --measure nothing is run.
    """
    began = time.monotonic()
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
        _measure(view, best, unmeasured(found), seconds or 0.0, began)
        found = explained(view, best)
    elif measure:
        say("Everything that can be measured was measured.", stderr=True)
    if json_output:
        say_json(found)
        return
    console = plain_console()
    console.print(explain_block(found, best, view, text_width(console)), soft_wrap=True)


def affordable(
    asked: Sequence[ValueWorth], view: StudyView, best: Recommendation, budget: TimeBudget
) -> list[ValueWorth]:
    """Return the settings that have time for two rounds against the recommendation, the first ones first.

    Say how long they take, and what is left out because it takes longer. Raises `UsageError` if nothing fits.
    """
    from autotune.answer.confirmation_rounds import FEWEST_ROUNDS
    from autotune.context.probe_budgets import BRIEF
    from autotune.report.explain import Evidence
    from autotune.report.explain_text import worth_phrase
    from autotune.sentences import first_few
    from autotune.units import counted, format_seconds

    evidence, left = Evidence(view, best), budget.left_seconds

    def needed(*worths: ValueWorth) -> float:
        configs = [evidence.params, *map(evidence.rival, worths)]
        return _start_seconds(view) + FEWEST_ROUNDS * len(configs) * budget.probe_seconds(configs, BRIEF)

    chosen: list[ValueWorth] = []
    for one in asked:
        if needed(*chosen, one) <= left:
            chosen.append(one)
    every = f"--time-budget {_longer(needed(*asked) + budget.seconds - left)}"
    if not chosen:
        least = min(asked, key=needed)
        raise UsageError(
            f"--time-budget {format_seconds(budget.seconds)} is too short to measure any setting: "
            f"{worth_phrase(least)} takes about {format_seconds(needed(least))}. That covers start-up and "
            f"{FEWEST_ROUNDS} rounds of both configurations, with probes as long as in this study. Use --time-budget "
            f"{_longer(needed(least) + budget.seconds - left)} for it, or {every} for all {len(asked)}."
        )
    say(
        f"Measuring {counted(len(chosen), 'setting')} against the recommendation: about "
        f"{format_seconds(needed(*chosen))} for {FEWEST_ROUNDS} rounds, and up to {format_seconds(budget.seconds)} "
        f"(--time-budget) until it is decided.",
        stderr=True,
    )
    if others := [one for one in asked if one not in chosen]:
        took = [f"{worth_phrase(one)} (about {format_seconds(needed(one))} alone)" for one in others]
        say(f"There is no time for {first_few(took, MOST_NAMED_SETTINGS)}. All {len(asked)} need {every}.", stderr=True)
    return chosen


def _start_seconds(view: StudyView) -> float:
    """Return the seconds from the start to the first probe: torch is imported, and a step is taken to look at it."""
    from autotune.core import codec
    from autotune.core.results import Inspection
    from autotune.launch.base import RESULT
    from autotune.study.disk import INSPECT

    path = view.folder / INSPECT / RESULT
    found = codec.read(path, Inspection).elapsed_seconds if path.is_file() else None
    return IMPORT_SECONDS + (found or 0.0)


def _longer(seconds: float) -> str:
    """Return a time budget with a tenth more than these seconds: `48s`, `4m`."""
    return f"{math.ceil(1.1 * seconds)}s" if seconds < 60 else f"{math.ceil(1.1 * seconds / 60)}m"


def _measure(view: StudyView, best: Recommendation, asked: list[ValueWorth], seconds: float, began: float) -> None:
    """Race the recommendation against itself with each of these settings, and store the result in the study."""
    from autotune.context.budget import TimeBudget
    from autotune.context.probe_budgets import BRIEF
    from autotune.launch.subprocess import SubprocessLauncher
    from autotune.preparation.named_training import named_training
    from autotune.races.race import race
    from autotune.races.settings import RaceSettings
    from autotune.report.explain import FOLDER
    from autotune.study.history import History

    _check_target(view)
    interrupts.heed()
    budget = TimeBudget(History(view.request, view.trials), seconds, time.monotonic, began)
    chosen = affordable(asked, view, best, budget)
    first = named_training(str(view.folder))
    others = [first.with_changed_values(one.against if one.is_change else one.values) for one in chosen]
    place = view.folder / FOLDER
    number = 1 + max((int(one.name) for one in place.glob("*") if one.name.isdigit()), default=0)
    settings = RaceSettings(
        time_budget_seconds=budget.left_seconds, device=best.environment.device, folder=place / f"{number:03}",
        may_leave=True,
    )  # fmt: skip
    isolation = view.trials[-1].result.isolation if view.trials else None  # rates of forked processes are alike
    with SubprocessLauncher(isolation=isolation or "fork") as launcher:
        result = race(
            [first, *others], settings, lambda _: launcher, lambda text: say(text, stderr=True),
            known_seconds=lambda config: budget.probe_seconds([config], BRIEF),
        )  # fmt: skip
    if not result.standings:
        say(
            "No setting was measured. Unless a probe failed above, this machine is probably slower now than when the "
            "study was searched, because of other work. Run it again when it is quiet, or with a longer --time-budget.",
            stderr=True,
        )


def _check_target(view: StudyView) -> None:
    """Raise `TargetError` if the target's file is not where its path leads from here: with the folder to go to.

    A study below this folder was searched from here, unless the file is in a folder between them.
    """
    from autotune.harmless import shell_word
    from autotune.targets import resolve

    try:
        resolve(target := view.request.target)
    except TargetError as error:
        study = view.folder.resolve()
        home = next((above for above in study.parents if (above / target).is_file()), None)
        if home is None and study.is_relative_to(Path.cwd()):
            raise TargetError(
                f"The training code of {view.folder} is not found, so nothing can be measured. "
                f"{str(error).partition('. ')[0]}. It was probably deleted or moved since it was searched from this "
                f"folder. Put it back, or search again."
            ) from error
        there = "" if home is None else f"cd {shell_word(str(home))} && "
        raise TargetError(
            f"The training code of {view.folder} is not found, so nothing can be measured. {error} The study was "
            f"probably searched from another folder than {Path.cwd()}. Go there and run it again: {there}autotune "
            f"explain {shell_word(str(study))} --measure"
        ) from error
