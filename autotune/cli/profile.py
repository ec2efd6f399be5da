"""`autotune profile`: where a training step goes, and which lines of the user's code cost time."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune import interrupts
from autotune.cli.output import plain_console, say
from autotune.cli.target import DeviceOption, DevicesOption, RanksOption
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.preparation.named_training import NamedTraining
    from autotune.profile.records import ProfileRequest


def profile(
    context: typer.Context,
    target: Annotated[
        list[str],
        typer.Argument(
            help="Your training code, model.py, pkg.train or model.py:function; -- and a command; or a study.",
            metavar="TARGET",
        ),
    ],
    best: Annotated[
        bool, typer.Option("--best", help="With the settings that the study of this target recommends.")
    ] = False,
    config: Annotated[
        str | None,
        typer.Option("--config", "-c", help="With these settings: batch=64,amp=bf16. [default: the baseline's]"),
    ] = None,
    device: DeviceOption = None,
    devices: DevicesOption = None,
    ranks: RanksOption = None,
    json_output: Annotated[bool, typer.Option("--json", help="All that was measured, as JSON.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="A new folder for a page, the readings, a trace for Perfetto, TensorBoard's scalars."
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Repeat steps without each finding, and measure the gain where losses stay the same."
        ),
    ] = False,
    nsys: Annotated[
        bool,
        typer.Option("--nsys", help="With --output, on CUDA: also print and run the command of Nsight Systems."),
    ] = False,
) -> None:
    """Say where a step goes, and which lines cost time.

    Trains one configuration for some seconds in a process of its own. Shows the most that each remedy can gain and what
    memory is used for, and names only lines that cost a hundredth of a step or more. Does not search, and writes only
    --output.
    """
    from autotune.cli.options import Options
    from autotune.cli.saying_launcher import SayingLauncher
    from autotune.core import codec
    from autotune.launch.subprocess import SubprocessLauncher
    from autotune.preparation.named_training import may_declare
    from autotune.preparation.settings import check_device
    from autotune.profile.memory_run import OutOfMemory
    from autotune.profile.output import make_profile_folder, write_profile
    from autotune.profile.profile import named_target
    from autotune.profile.profile import profile as run
    from autotune.profile.table import doubts, profile_block

    interrupts.heed()
    if nsys and output is None:
        raise UsageError(
            "--nsys needs a folder for its report. Without --output nothing is written. Give one: --output FOLDER."
        )
    name = target if len(target) > 1 else target[0]  # several words are a command
    options = Options(context, partial(may_declare, name))
    changed = options.pairs("--config", config)
    check_device(device)
    of_ranks = options.settings({"device": device, "devices": devices, "ranks": ranks})
    device, ranks, gpus = _asked_ranks(name, of_ranks)
    named = named_target(name, best=best, changed=changed, ranks=ranks)
    _refuse_of_ranks(named, {"--nsys": nsys, "--verify": verify})
    if output is not None:
        make_profile_folder(output)
    if not json_output:
        more = ", and longer to try what is found" if verify else ""
        say(f"Training for half a minute, or longer if steps are slow, to see where a step goes{more}.", stderr=True)
    with SubprocessLauncher(environ=gpus) as launcher:
        try:
            found = run(named, device, SayingLauncher(launcher), output, verify=verify)
        except OutOfMemory as error:
            if json_output:
                sys.stdout.write(codec.encode(error.result).decode())
            raise
    missing = write_profile(output, found) if output is not None else ""
    if json_output:
        sys.stdout.write(codec.encode(found.result).decode())
    else:
        console = plain_console()
        console.print(profile_block(found.label, found.config, found.device, found.result), soft_wrap=True, end="")
        for sentence in doubts(found.result):
            say(sentence, stderr=True)
    if output is not None:
        _tell_files(output, missing)
    if output is not None and nsys:
        _run_nsys(output, found.asked)


def _asked_ranks(name: str | list[str], asked: dict[str, Any]) -> tuple[str | None, int | None, dict[str, str]]:
    """Return the device, the number of ranks (None if not asked for), and the variables that give each rank its GPU."""
    from autotune.preparation.named_training import named_training
    from autotune.preparation.ranks import asked_ranks, rank_environ
    from autotune.preparation.settings import Settings

    if not asked.keys() & {"ranks", "devices"}:
        return asked.get("device"), None, {}
    settings = Settings(target=named_training(name).target, **asked)
    ranks = asked_ranks(settings)
    return ranks.device, ranks.count, rank_environ(settings)


def _refuse_of_ranks(named: NamedTraining, options: dict[str, bool]) -> None:
    """Raise `UsageError` for a given option that needs a single process, if several train."""
    from autotune.targets.commands.program import starts_ranks

    for option in (name for name, is_given in options.items() if is_given):
        if named.ranks > 1 or starts_ranks(named.target):
            alone = "autotune profile -- python SCRIPT" if starts_ranks(named.target) else "--ranks 1"
            raise UsageError(
                f"{option} profiles one process, but {named.label} trains with several. The others would wait for it "
                f"for ever. Leave {option} out, or profile one process: {alone}."
            )


def _tell_files(output: Path, missing: str) -> None:
    from autotune.profile.output import PAGE

    others = sorted(one.name for one in output.iterdir() if one.name != PAGE)
    say(f"{output / PAGE}, with {', '.join(others)} next to it", stderr=True)
    if missing:
        say(missing, stderr=True)


def _run_nsys(output: Path, asked: ProfileRequest) -> None:
    from autotune.profile import nsys

    words = nsys.prepared(output, asked)
    say(shlex.join(words), stderr=True)
    say(nsys.not_run(asked.device) or nsys.run(words, output), stderr=True)
