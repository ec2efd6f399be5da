"""`autotune race`: which one of several trainings, named by the user, is faster."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from autotune import interrupts
from autotune.cli.options import Options, with_race_options
from autotune.cli.output import plain_console, say, say_json
from autotune.cli.target import OneOfEach
from autotune.errors import UsageError

STATUS = {"faster": 0, "as fast": 0, "slower": 1, "undecided": 2}


class OfCommandsInQuotes(OneOfEach):
    """The command `race`, each of whose contestants is one word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the typed words; return those left. Raises `UsageError` for a command without quotes, too."""
        from autotune.cli.forgotten_dashes import with_quotes

        if line := with_quotes(ctx.info_name, self.get_params(ctx), args):
            raise UsageError(
                f"`autotune race` takes each contestant as one word, and a command of several words is named. Its "
                f"quotes were probably forgotten: other commands of autotune take one behind `--`. Put each in quotes: "
                f"{line}"
            )
        return super().parse_args(ctx, args)


@with_race_options
def race(
    context: typer.Context,
    contestants: Annotated[
        list[str],
        typer.Argument(
            help='Each is model.py, pkg.train or model.py:function, a command in quotes ("python train.py --bs 64"), '
            "or a study, whose recommended settings are run. The first is the baseline, unless there is "
            "--baseline-commit.",
        ),
    ],
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", help="Add a contestant: the first with these settings, batch=64,amp=bf16."),
    ] = None,
    *,
    json_output: Annotated[bool, typer.Option("--json", help="The result as JSON on standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the result.")] = False,
    **typed: Any,
) -> None:
    """Say which of several trainings is faster.

    All train in turn, in processes of their own on your real data, until each is known to be faster than the first, as
    fast, or slower.

    Exit status, by the worst of the verdicts: 0 faster, or as fast within the tolerance · 1 slower · 2 undecided; or a
    wrong command line, setting or folder: no probe ran · 3 a contestant does not train, or the machine is unfit · 70 a
    fault of autotune itself · 130 interrupted.
    """
    from autotune.api import race as run
    from autotune.preparation.named_training import may_declare
    from autotune.report.race_text import race_block

    options = Options(context, partial(may_declare, contestants[0]))
    interrupts.heed()
    result = run(
        *contestants,
        configs=[options.pairs("--config", text) for text in config or ()],
        **options.race(typed),
        tell=lambda text: None if quiet else say(text, stderr=True),
    )
    if json_output:
        say_json(result)
    else:
        plain_console().print(race_block(result), soft_wrap=True)
    raise typer.Exit(STATUS[result.verdict])
