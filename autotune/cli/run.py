"""`autotune run`: start the training with the recommended command."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer


def run(
    study: Annotated[str | None, typer.Argument(help="Folder or name of a study. [default: the newest]")] = None,
    global_batch: Annotated[
        int | None, typer.Option(help="What was confirmed with so many samples per step. [default: the recommended]")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command only.")] = False,
) -> None:
    """Train with the recommended command.

    It takes the place of this process. For a study whose target is a command; `autotune best --command` prints it.
    """
    from autotune.cli.output import say
    from autotune.errors import UsageError
    from autotune.study.recommendation import at_global_batch, command_of, load_result, warn_of_mismatches
    from autotune.targets.commands.template import CommandTemplate

    best = at_global_batch(load_result(study), global_batch)
    found = command_of(best)
    say(found.text, stderr=not dry_run)
    for setting in found.unset:
        say(f"The command has no argument for {setting}: set it in the script.", stderr=True)
    if dry_run:
        return
    if CommandTemplate.parse(best.target).lacks_output_dir:
        raise UsageError(
            "The command writes into {output_dir}, and no folder was given. autotune knows none. Run `autotune best "
            "--command` and replace OUTPUT_DIR."
        )
    warn_of_mismatches(best)
    sys.stdout.flush()
    words = found.words
    try:
        os.execvpe(words[0], words, {**os.environ, **found.variables})
    except OSError as error:
        raise UsageError(
            f"{words[0]} cannot be run: {error.strerror}. It probably belongs to another environment. Activate it, and "
            f"run `{found.text}`."
        ) from error
