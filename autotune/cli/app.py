"""The command tree, and the one place where an error becomes a message and an exit status."""

from __future__ import annotations

import errno
import sys
from typing import Annotated

import typer

from autotune.cli import settings_file
from autotune.cli.best import best
from autotune.cli.check import check
from autotune.cli.compare import compare
from autotune.cli.dashboard import dashboard
from autotune.cli.doctor import doctor
from autotune.cli.export import export
from autotune.cli.init import init
from autotune.cli.log import log
from autotune.cli.output import plain_console
from autotune.cli.report import report
from autotune.cli.search import search
from autotune.cli.show import show
from autotune.environment import autotune_version
from autotune.errors import AutotuneError, EnvironmentUnfit

app = typer.Typer(
    name="autotune",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    help="Finds the batch size, precision and data-loading settings that train your PyTorch model fastest on this "
    "machine without changing what it learns, and proves it.",
    epilog="Exit status: 0 a recommendation · 1 nothing usable · 2 usage or target error · 3 machine unfit · "
    "130 interrupted (the study is kept).",
)
for command in (init, check, search, show, best, export, report, compare, log, dashboard, doctor):
    app.command()(command)


@app.callback()
def settings(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    """Take defaults for the commands from `[tool.autotune]` in pyproject.toml, or from autotune.toml."""
    if show_version:
        typer.echo(autotune_version())
        raise typer.Exit
    context.default_map = settings_file.defaults()


def run() -> None:
    """Run the command line and exit with its status."""
    try:
        app()
    except AutotuneError as error:
        console = plain_console(stderr=True)
        trace = getattr(error, "traceback", "")
        if trace:
            console.print(trace.rstrip(), style="dim", soft_wrap=True)
        console.print("error: ", style="bold red", end="")
        console.print(str(error), soft_wrap=True)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        sys.stderr.write(
            f"error: The output could not be written: {error.strerror}. The disk that it was sent to is probably "
            f"full. Send it elsewhere: `autotune best` and `autotune show` repeat what a study holds.\n"
        )
        sys.exit(EnvironmentUnfit.exit_code)
