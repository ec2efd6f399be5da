"""`autotune scale`: how efficient a training with 1, 2, 4, ... ranks is."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from autotune import interrupts
from autotune.cli.options import Options, parameter_of
from autotune.cli.output import plain_console, say, say_json
from autotune.cli.target import AsJson
from autotune.races.settings import RaceSettings

SCALE_ROUNDS = 5
option = partial(parameter_of, kind=RaceSettings, has_variable=False)


def scale(
    context: typer.Context,
    target: Annotated[
        list[str],
        typer.Argument(
            help="model.py, pkg.train or model.py:function; or a study, whose recommendation is run.", metavar="TARGET"
        ),
    ],
    ranks: Annotated[str, typer.Option("--ranks", help="The numbers of ranks to compare.")] = "1,2",
    config: Annotated[
        str | None, typer.Option("--config", "-c", help="Settings, batch=64,amp=bf16. [default: the target's own]")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of all numbers in turn, at least 2.")] = SCALE_ROUNDS,
    time_budget: Annotated[str, option("time_budget", help="Stop after this long.")] = "10m",
    device: Annotated[
        str | None,
        option("device", help="cpu or cuda, with one GPU for each rank. [default: the accelerator, else cpu]"),
    ] = None,
    folder: Annotated[Path | None, option("folder")] = None,
    json_output: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the result.")] = False,
) -> None:
    """Measure how efficient a training with more ranks is.

    A rank is one of several processes that train one model. Trains with each number of ranks in turn, with the same
    global batch. Efficiency is samples/s per rank, divided by those with the smallest number. Ends with the most ranks
    that reach 90% efficiency.
    """
    from rich.text import Text

    from autotune.launch.subprocess import SubprocessLauncher
    from autotune.preparation.named_training import may_declare
    from autotune.report.scale_text import scale_lines
    from autotune.scaling.curve import scale as run
    from autotune.units import parse_seconds

    name = target if len(target) > 1 else target[0]  # several words are a command, which is refused
    options = Options(context, partial(may_declare, name))
    counts = options.parsed("--ranks", ranks, _counts)
    seconds = options.parsed("--time-budget", time_budget, parse_seconds)
    settings = RaceSettings(
        time_budget_seconds=seconds or 0.0, rounds=rounds, device=device, folder=folder, stops_early=False
    )
    interrupts.heed()
    with SubprocessLauncher(isolation="fork") as launcher:
        result = run(
            name, counts or (), options.pairs("--config", config), settings, launcher,
            lambda text: None if quiet else say(text, stderr=True),
        )  # fmt: skip
    if json_output:
        say_json(result)
        return
    plain_console().print(Text("\n".join(scale_lines(result))), soft_wrap=True)


def _counts(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) for part in parts) or len({*map(int, parts)}) < 2:
        raise ValueError(f"{text!r} does not list two numbers of ranks or more, such as 1,2,4")
    return tuple(sorted({*map(int, parts)}))
