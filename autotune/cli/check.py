"""`autotune check`: inspects the contract of a target and takes one real step, in seconds."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import Options, parameter_of
from autotune.cli.output import plain_console, say_json, say_settings_of_file
from autotune.cli.target import CommandArgument, DeviceOption, DevicesOption, Map, RanksOption, Words, target_text
from autotune.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from autotune.core.records import StudyRequest
    from autotune.launch.base import Launcher
    from autotune.sampler.space import SearchSpace

PREDICTION_SECONDS = 120.0  # at most; one arm's step takes 1 to 2 s, that of a large model half a minute


def check(
    context: typer.Context,
    target: Words = None,
    device: DeviceOption = None,
    devices: DevicesOption = None,
    ranks: RanksOption = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Predict the peak memory of every batch size by shapes alone.")
    ] = False,
    memory_limit: Annotated[
        str | None,
        parameter_of(
            "memory_limit",
            help="The memory that may be used, 8GiB or 90%: implies --memory. [default: the device's, less headroom]",
            has_variable=False,  # with a variable each check would predict
        ),
    ] = None,
    map: Map = None,
    command: CommandArgument = None,
    json_output: Annotated[bool, typer.Option("--json", help="As JSON; with --memory the prediction.")] = False,
) -> None:
    """Check your training code, and list what would be tuned.

    Takes one real training step, or for a command as many as a search needs at least. Shows what was inferred. Does
    not search, and writes no study. A command's script runs as it is, and may write files of its own.
    """
    from msgspec import to_builtins

    from autotune.cli.saying_launcher import SayingLauncher
    from autotune.launch.subprocess import SubprocessLauncher
    from autotune.preparation.header import baseline_phrase, held_phrase
    from autotune.preparation.not_searched import not_searched
    from autotune.preparation.open_study import preview
    from autotune.preparation.prepare import settle
    from autotune.preparation.ranks import asked_ranks, rank_environ
    from autotune.preparation.settings import Settings
    from autotune.report.blocks import check_block

    say_settings_of_file(context)
    # A mistake is an error before anything runs.
    options = Options(context)
    options.settings({"memory_limit": memory_limit})
    text = target_text(context, target, command, map)
    settings = Settings(target=text, **options.settings({"device": device, "devices": devices, "ranks": ranks}))
    asked = asked_ranks(settings)
    predicts, console = memory or memory_limit is not None, plain_console()
    if predicts and asked.count > 1:
        raise UsageError(
            f"--memory predicts what one process needs, and {asked.count} ranks are asked for. What they send one "
            f"another is not seen on shapes alone. Leave --memory and --memory-limit out, or the ranks."
        )
    launcher = SubprocessLauncher(environ=rank_environ(settings))
    request, space, _ = preview(settings, SayingLauncher(launcher), memory_limit=memory_limit, lasts=True)
    left_out = not_searched(request, space, settings)
    if not json_output:
        settled = (f"hold {held_phrase(request, space)}", f"baseline {baseline_phrase(request, space, settings)}")
        texts = [one.text for one in left_out]
        console.print(check_block(text, request.facts, request.environment, space.free, settled, texts), soft_wrap=True)
    elif not predicts:
        say_json({**to_builtins(request), "not_searched": left_out})
    if predicts:  # all batches are of interest; those that a search would leave out are marked
        searched = {int(batch or 0) for batch in space.configs.values("batch_size")}
        request, space = settle(replace(settings, global_batch="free"), request.environment, request.facts)
        predict_memory(
            SubprocessLauncher(), request, space, memory_limit, searched, json_output=json_output, console=console
        )


def predict_memory(
    launcher: Launcher, request: StudyRequest, space: SearchSpace, memory_limit: str | None, searched: Collection[int],
    *, json_output: bool, console: Console,
) -> None:  # fmt: skip
    """Print the table of peaks for `request`; `searched` are the micro-batches that a search may use.

    Raises `UsageError` for a wrong limit.
    """
    from autotune.memory.stage import asking
    from autotune.memory.table import memory_block
    from autotune.preparation.prepare import asked_limit, headroom_bytes

    usable = request.memory_limit_bytes - request.headroom_bytes
    if memory_limit is not None:
        limit = asked_limit(memory_limit, request.environment.device_bytes)
        usable = limit - headroom_bytes(limit, None, of_device=False)  # as a search would
    asked = asking(request, space, usable, PREDICTION_SECONDS)
    with tempfile.TemporaryDirectory(prefix="autotune-") as place:
        found = launcher.run(asked, Path(place))
    if json_output:
        say_json(found)
    else:
        on_host = request.environment.device_kind == "cpu"
        console.print(memory_block(found, asked.batches, usable, searched, on_host=on_host), soft_wrap=True)
