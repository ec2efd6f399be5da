"""`autotune best`: the recommendation of a study, or one value of it."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Annotated

import typer
from msgspec.structs import replace

from autotune.cli.output import plain_console, say, say_json, text_width
from autotune.cli.target import GlobalBatch, StudyArgument
from autotune.errors import AutotuneError
from autotune.harmless import plain


def best(
    study: StudyArgument = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", help="Print the value of one knob only: batch_size.")
    ] = None,
    global_batch: GlobalBatch = None,
    command: Annotated[
        bool, typer.Option("--command", help="The command to train with, where the target is one.")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="The whole recommendation as JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also all settings, evidence and warnings.")] = False,
) -> None:
    """Print the recommendation, as the search did.

    Needs best.json only. If the probes are kept, it also shows what each change is worth.
    """
    from autotune.cli.options import known
    from autotune.knobs.declared import declare
    from autotune.report.answer import answer_block
    from autotune.study.answers import unanswered_probes
    from autotune.study.disk import find
    from autotune.study.recommendation import at_global_batch, command_of, declared_in, load_result
    from autotune.study.view import load_view
    from autotune.units import counted

    result = at_global_batch(load_result(study), global_batch)
    declare(*declared_in(result))
    if key is not None:
        value = result.params[known("--key", key)]
        sys.stdout.write((plain(value) if isinstance(value, str) else json.dumps(value)) + "\n")
    elif command:
        found = command_of(result)
        sys.stdout.write(found.text + "\n")
        if found.missing:
            say(found.missing, stderr=True)
    elif json_output:
        say_json(result)
    else:
        folder, view, out = find(study), None, plain_console()
        with suppress(AutotuneError):  # perhaps only best.json is left, or readable
            view = load_view(folder)
        result = replace(result, study=str(folder))  # it may have been moved
        out.print(answer_block(result, view, width=text_width(out), verbose=verbose), soft_wrap=True)
        newer = unanswered_probes(folder, view.request, view.trials) if view and not view.running else 0
        if newer:
            text = f"The search was broken off after {counted(newer, 'more probe')}, which this answer does not know."
            say(f"{text} Run the same command again to end it.", stderr=True)
