"""`autotune run`: starts the training with the recommended command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.target import GlobalBatch, StudyArgument
from autotune.errors import TargetError, UsageError

if TYPE_CHECKING:
    from autotune.study.recommendation import Recommendation


def run(
    study: StudyArgument = None,
    global_batch: GlobalBatch = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command only.")] = False,
) -> None:
    """Train with the recommended command.

    Replaces this process with the command. For a study whose target is one; `autotune best --command` prints it.
    """
    from autotune.cli.output import say
    from autotune.knobs.declared import declare
    from autotune.study.disk import find
    from autotune.study.recommendation import at_global_batch, command_of, declared_in, load_result, warn_of_mismatches
    from autotune.targets.commands.command import Command

    best = at_global_batch(load_result(study), global_batch)
    declare(*declared_in(best))
    found = command_of(best)
    say(found.text, stderr=not dry_run)
    if dry_run:
        if found.missing:
            say(found.missing, stderr=True)
        return
    if found.written:
        say(f"TrainingArguments are made with {', '.join(found.arguments)}", stderr=True)
    if found.unset:
        say(found.unsaid, stderr=True)
    if Command.parse(best.target).lacks_output_dir:
        raise UsageError(
            "The command writes into {output_dir}, and no folder was given. autotune knows none. Run `autotune best "
            "--command` and replace OUTPUT_DIR."
        )
    check_program(best, find(study))
    warn_of_mismatches(best)
    sys.stdout.flush()
    words = found.words
    try:
        os.execvpe(words[0], words, {**os.environ, **found.environ, "PATH": _path()})
    except OSError as error:
        raise UsageError(
            f"{words[0]} cannot be run: {error.strerror}. It probably belongs to another environment. Activate it, and "
            f"run `{found.text}`."
        ) from error


def _path() -> str:
    """Return the PATH with the environment of this Python first, because a probe's `python` was this one."""
    return os.pathsep.join(filter(None, (str(Path(sys.executable).parent), os.environ.get("PATH"))))


def check_program(best: Recommendation, folder: Path) -> None:
    """Raise `UsageError` if the command would run another program than the one searched, or none.

    For a study inside the working folder a message is enough: its program was changed since. So it is for a program
    that is the same and imports code that is not.
    """
    from autotune.cli.output import say
    from autotune.targets.source import difference, digest_of, modules_of, source_of

    home = "Run it from the folder where the search ran"
    try:
        file = source_of(best.target)
    except TargetError as error:
        raise UsageError(f"{error} {home}.") from error
    differs = difference(best.target_digest, digest_of(best.target)) if file and best.target_digest else ""
    if differs in ("", "unfound"):
        return
    if differs == "imports" or folder.resolve().is_relative_to(Path.cwd()):
        what = f"What {file} imports ({modules_of(best.target)})" if differs == "imports" else file
        say(f"{what} changed since it was searched: the settings may not be the best for it now.", stderr=True)
        return
    raise UsageError(
        f"{file} is not the file that was searched. It was changed, or another program has its name here. {home}, or "
        f"type the command that `autotune best --command` prints."
    )
