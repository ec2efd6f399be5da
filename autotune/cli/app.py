"""The command tree, and the one place where an error becomes a message and an exit status."""

from __future__ import annotations

import errno
import io
import sys
from contextvars import copy_context
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.best import best
from autotune.cli.check import check
from autotune.cli.compare import compare
from autotune.cli.dashboard import dashboard
from autotune.cli.defaults import check_variables, read_file
from autotune.cli.doctor import doctor
from autotune.cli.explain import explain
from autotune.cli.export import export
from autotune.cli.init import init
from autotune.cli.log import log
from autotune.cli.output import plain_console
from autotune.cli.profile import profile
from autotune.cli.race import OfCommandsInQuotes, race
from autotune.cli.report import report
from autotune.cli.run import run as run_command
from autotune.cli.scale import scale
from autotune.cli.search import search
from autotune.cli.show import show
from autotune.cli.target import CommandWithScript, OneOfEach
from autotune.cli.worker import worker
from autotune.cli.wrong_words import Commands
from autotune.errors import AutotuneError, EnvironmentUnfit
from autotune.harmless import plain_lines
from autotune.machine.environment import autotune_version

MOST_OF_A_NAME = 100  # characters shown of one that is too long

app = typer.Typer(
    name="autotune",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    help="Finds the batch size, precision and data-loading settings that train your PyTorch model fastest on this "
    "machine, at the same global batch size.",
    epilog="Exit status: 0 a recommendation, which may be your baseline · 1 nothing usable · 2 usage or target error · "
    "3 machine unfit · 70 a fault of autotune itself · 130 interrupted (the study is kept). `race` has verdicts of its "
    "own.",
)
CLASSES: dict[object, type[OneOfEach]] = {
    **dict.fromkeys((check, search, worker), CommandWithScript), race: OfCommandsInQuotes,
}  # fmt: skip
for command in (
    init,
    check,
    search,
    worker,
    show,
    best,
    explain,
    profile,
    run_command,
    export,
    report,
    compare,
    race,
    scale,
    log,
    dashboard,
    doctor,
):
    app.command(cls=CLASSES.get(command, OneOfEach))(command)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(autotune_version())
        raise typer.Exit


@app.callback()
def settings(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and leave.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Take defaults for the commands from `[tool.autotune]` in pyproject.toml, or from autotune.toml."""
    check_variables()
    context.obj, context.default_map = read_file()


def run() -> None:
    """Run the command line and exit with its status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # "×" for a terminal of ASCII, a folder's name that is not UTF-8
            stream.reconfigure(errors="backslashreplace")
    try:
        # In a copy: knobs that a study declares are those of this call. The name is `autotune`, however it was started.
        copy_context().run(app, prog_name="autotune")
    except AutotuneError as error:
        console = plain_console(stderr=True)
        if error.traceback:
            console.print(error.traceback.rstrip(), style="dim", soft_wrap=True)
        console.print("error: ", style="bold red", end="")
        console.print(str(error), soft_wrap=True)
        sys.exit(error.exit_code)
    except OSError as error:
        sys.stderr.write(plain_lines(f"error: {_describe(error)}\n"))
        sys.exit(EnvironmentUnfit.exit_code)


def _describe(error: OSError) -> str:
    """Return the message about a disk or folder error that no command expected; raise any other error as a fault."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return (
            f"The output could not be written: {error.strerror}. The disk that it was sent to is probably full. Send "
            f"it elsewhere: `autotune best` and `autotune show` repeat what a study holds."
        )
    if isinstance(error, FileNotFoundError) and not error.filename and not _has_folder():
        return (
            "The folder that you are in no longer exists. It was probably removed, or made again, since you went into "
            "it. Go into it once more, or into another one."
        )
    if isinstance(error, PermissionError) and error.filename:
        return (
            f"{error.filename} may not be used: {error.strerror}. It is probably another user's. Change its "
            f"permissions, or work in another folder."
        )
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP) and error.filename:
        name = str(error.filename)
        return (
            f"{name if len(name) <= MOST_OF_A_NAME else name[:MOST_OF_A_NAME] + '...'} cannot be a file: "
            f"{error.strerror}. It was probably mistyped, or is a link that leads back to itself. Give another name."
        )
    raise error


def _has_folder() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True
