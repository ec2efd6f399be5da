"""`autotune search`: the main command."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune import interrupts
from autotune.cli.dry_run import print_preview
from autotune.cli.options import Options, given_by, with_search_options
from autotune.cli.output import plain_console, say, say_json, say_settings_of_file, text_width
from autotune.cli.target import CommandArgument, Map, Words, resume_line, target_text, without_password
from autotune.errors import UsageError
from autotune.knobs import is_ours, knob
from autotune.knobs.parsing import option
from autotune.preparation.settings import Settings

if TYPE_CHECKING:
    from autotune.preparation.fleet_settings import FleetSettings

OUTPUT = "Output"  # a heading in `--help`


@with_search_options
def search(
    context: typer.Context,
    target: Words = None,
    *,
    map: Map = None,
    command: CommandArgument = None,
    resume: Annotated[
        bool | None,
        typer.Option(
            "--resume/--fresh",
            help="Resume the study / start a new one and move the old one aside. [default: resume if it matches]",
        ),
    ] = None,
    fix: Annotated[str | None, typer.Option(envvar="AUTOTUNE_FIX", help="Hold knobs: amp=bf16,workers=2.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be searched; run no probe.")] = False,
    json_output: Annotated[
        bool, typer.Option("--json", help="The recommendation as JSON on standard output.", rich_help_panel=OUTPUT)
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Copy best.json to this file too.", rich_help_panel=OUTPUT)
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the result.", rich_help_panel=OUTPUT)] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="All details, what the search decides, why probes failed.")
    ] = False,
    no_progress: Annotated[bool, typer.Option("--no-progress", help="No live line.", rich_help_panel=OUTPUT)] = False,
    **typed: Any,
) -> None:
    """Search for the fastest training configuration, and confirm it.

    Everything after `--` is the command that you run today: autotune search -- python train.py --batch-size 64.

    --objective chooses another criterion than speed. Each probe is a short training run in a process of its own, on
    your real data. Ctrl-C keeps the study, and the same command continues it. Options can also be set in autotune.toml,
    in [tool.autotune] of pyproject.toml, or as AUTOTUNE_TIME_BUDGET and the like. Exit status 0 is an answer, also
    where your baseline is kept, decided or not.
    """
    began = time.monotonic()  # imports and reading before the search count too
    from autotune.targets import resolve
    from autotune.targets.source import may_declare

    _refuse_contradictions(context)
    if output is not None and not output.parent.is_dir():
        raise UsageError(
            f"-o {output}: there is no folder {output.parent}. It was probably mistyped. Make it first, or name "
            f"another."
        )
    if not quiet:
        say_settings_of_file(context)
    text = target_text(context, target, command, map, quiet=quiet)
    options = Options(context, partial(may_declare, text))
    fixed = options.held(fix, typed)
    fleet = options.fleet(typed, (lambda text: None) if quiet else partial(say, stderr=True))
    settings = Settings.of(
        target=text,
        mode="auto" if resume is None else "resume" if resume else "fresh",
        limits={**options.limits(typed), **fixed},
        resume_line=resume_line(without_password(sys.argv[1:], fleet.storage if fleet else None)),
        **options.settings(typed),
    )
    resolve(text)  # a missing file is an error before a folder is made for its study
    interrupts.heed()
    with _naming_fix(fixed):
        if dry_run:
            print_preview(settings, began, fleet, as_json=json_output)
        else:
            _search(settings, fleet, json_output, output, began, quiet=quiet, verbose=verbose, progress=not no_progress)


@contextmanager
def _naming_fix(fixed: Iterable[str]) -> Iterator[None]:
    """Name `--fix` in an error about a knob that it holds: what is searched has limits, not the option of each."""
    try:
        yield
    except UsageError as error:
        text = str(error)
        for name in filter(is_ours, fixed):  # those that the target declares have --fix alone
            text = re.sub(rf"{option(name)}(?![\w-])", f"--fix {knob(name).alias}", text)
        raise UsageError(text) from error


def _refuse_contradictions(context: typer.Context) -> None:
    """Raise `UsageError` for options that exclude each other."""
    typed_words = sys.argv[: sys.argv.index("--")] if "--" in sys.argv else sys.argv
    if {"--resume", "--fresh"} <= set(typed_words):
        raise UsageError(
            "--resume goes on with a study and --fresh begins a new one. One of them was probably left over from an "
            "earlier line. Leave it out."
        )
    if all(given_by(context, name) == "COMMANDLINE" for name in ("quiet", "verbose")):
        raise UsageError(
            "--quiet asks for the result alone and --verbose for all details. One of them was probably left over from "
            "an earlier line. Leave it out."
        )


def _search(
    settings: Settings, fleet: FleetSettings | None, as_json: bool, output: Path | None, began: float, *,
    quiet: bool, verbose: bool, progress: bool,
) -> None:  # fmt: skip
    from autotune.cli.saying_launcher import SayingLauncher
    from autotune.core import codec
    from autotune.preparation.launching import launching
    from autotune.report.answer import answer_block
    from autotune.report.terminal import TerminalReporter
    from autotune.study.disk import unwritable
    from autotune.study.view import load_view
    from autotune.tuning.engine import search as run

    console = plain_console(stderr=True)
    budget = settings.time_budget_seconds
    terminal = TerminalReporter(console, quiet=quiet, verbose=verbose, progress=progress, budget_seconds=budget)
    around = (lambda launcher: launcher) if quiet else SayingLauncher
    with terminal as reporter, launching(settings, fleet, reporter.note, around) as launcher:
        recommendation = run(settings, launcher, reporter, began=began)
    if output is not None:
        try:
            codec.write(output, recommendation)
        except OSError as error:
            raise unwritable(output, error) from error
    if as_json:
        say_json(recommendation)
    else:
        # Read from disk, as the search returns its answer alone, and its knobs are declared in its own context only.
        view = load_view(Path(recommendation.study))
        out = plain_console()
        out.print(answer_block(recommendation, view, width=text_width(out), verbose=verbose), soft_wrap=True)
