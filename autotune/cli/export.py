"""`autotune export`: the recommendation in the terms of a framework, or as the user's own command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.target import GlobalBatch, StudyArgument
from autotune.knobs.wording import Framework

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from autotune.core.records import Value
    from autotune.export.recipe import Recipe
    from autotune.study.recommendation import Recommendation

PLAIN = ("json", "yaml", "env")  # the settings by knob name
CHECKED = (Framework.HUGGING_FACE, Framework.LIGHTNING, Framework.ACCELERATE)  # classes that take arguments
LOOPS = (Framework.TORCH, Framework.LIGHTNING, Framework.ACCELERATE)  # code of a loop, which a command has already
OWN_OBJECTS = {Framework.LIGHTNING.value: "a LightningModule", Framework.HUGGING_FACE.value: "a Hugging Face Trainer"}
# Whose settings are names with values, for a file:
WITH_KEYS = (Framework.HUGGING_FACE, Framework.ACCELERATE, Framework.DEEPSPEED)


def export(
    study: StudyArgument = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="torch, hf (TrainingArguments), lightning, accelerate, deepspeed (JSON), torchtitan (arguments); or "
            "by knob name: json, yaml, env. For a command, torch, lightning and accelerate print its command line. "
            "[default: lightning for a LightningModule, hf for a Hugging Face Trainer, else torch; with --write the "
            "knob names]"
        ),
    ] = None,
    global_batch: GlobalBatch = None,
    output: Annotated[str | None, typer.Option("--output", "-o", help="A file. [default: standard output]")] = None,
    into: Annotated[
        str | None,
        typer.Option("--write", help="Put the settings into this JSON or YAML file; its other contents stay."),
    ] = None,
    world_size: Annotated[
        int | None,
        typer.Option(
            help="Devices that train together; accumulation is lowered to keep the global batch. [default: as many as "
            "were measured]"
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Build TrainingArguments, Trainer or Accelerator with the installed library."),
    ] = False,
) -> None:
    """Print the recommendation as code for your framework.

    For a study of a command, prints the command line to train with: the script keeps its loop. For a setting without an
    argument in the framework, prints a line of code.
    """
    from autotune.cli.options import one_of
    from autotune.cli.output import say, write
    from autotune.errors import UsageError
    from autotune.export.merging import merged
    from autotune.export.programs import exported_text
    from autotune.export.recipe import on_devices, recipe
    from autotune.study.recommendation import command_of
    from autotune.targets.commands.command import is_command

    if to is not None:
        one_of("--to", to, (*Framework, *PLAIN))
    if into is not None and (output is not None or check):
        raise UsageError(
            f"--write and {'--check' if output is None else '--output'} do not go together. --write puts values into "
            f"a file of yours, and prints and builds nothing. Give one of the two, and run the command again for the "
            f"other."
        )
    best, is_chosen = _recommended(study, global_batch), to is not None
    to = to or (_own_framework(best) if into is None else "json")  # or YAML: the ending of the file decides
    if check and to not in CHECKED:
        raise UsageError(
            f"--check builds an object of a framework. --to {to} has none. Choose {', '.join(CHECKED)}, or leave "
            f"--check out."
        )
    framework = None if to in PLAIN else Framework(to)
    is_line = is_command(best.target) and framework in LOOPS and into is None
    if is_line:
        _check_line(best, world_size, check=check)
    found = recipe(best, framework or Framework.TORCH, world_size)
    params = on_devices(best, world_size).params
    if into is not None:
        write(Path(into), merged(Path(into), _values(params, found, framework)))
        say(f"wrote the settings into {into}", stderr=True)
        if framework is not None:
            say(f"The rest is code: leave out --write, and --to {to} prints it.", stderr=True)
        return
    if is_line:
        command = command_of(best)
        text, remarks = f"{command.text}\n", iter([command.missing] if command.missing else [])
    else:
        text = _plain(to, params, found) if framework is None else exported_text(framework, found)
        remarks = _remarks(framework, found, check=check)
    if not is_chosen and to in OWN_OBJECTS:
        say(f"exported for {to}, because {best.target} has {OWN_OBJECTS[to]}; --to names another", stderr=True)
    if output is None:
        sys.stdout.write(text)
    else:
        write(Path(output), text)
        say(f"wrote {output}", stderr=True)
    for line in remarks:
        say(line, stderr=True)


def _own_framework(best: Recommendation) -> str:
    """Return the framework that trains the user's own object, "torch" where there is none."""
    from autotune.targets.commands.command import is_command

    return Framework.TORCH.value if best.facts is None or is_command(best.target) else best.facts.framework


def _recommended(study: str | None, global_batch: int | None) -> Recommendation:
    """Return the recommendation with the facts of the target, which earlier versions stored in the study alone."""
    from msgspec.structs import replace

    from autotune.knobs.declared import declare
    from autotune.study.disk import STUDY, find, read_request
    from autotune.study.recommendation import at_global_batch, declared_in, load_result

    folder = find(study)
    best = at_global_batch(load_result(folder), global_batch)
    if best.facts is None and (folder / STUDY).is_file():
        best = replace(best, facts=read_request(folder).facts)
    declare(*declared_in(best))
    return best


def _check_line(best: Recommendation, world_size: int | None, *, check: bool) -> None:
    """Raise `UsageError` for what the line of a command cannot be asked."""
    from autotune.errors import UsageError
    from autotune.export.ranks import ranks_of
    from autotune.units import counted

    if check:
        raise UsageError(
            f"--check builds an object of a framework, and {best.study} is the study of a command, whose script has "
            f"its own loop. What is exported is the command line. Leave --check out."
        )
    if world_size not in (None, ranks_of(best)):
        raise UsageError(
            f"--world-size {world_size} is not what the command of {best.study} starts, which is "
            f"{counted(ranks_of(best), 'rank')}. Their number stands in the command, and is no setting of autotune's. "
            f"Search the command that starts {world_size}, or export the values by --to json."
        )


def _remarks(framework: Framework | None, found: Recipe, *, check: bool) -> Iterator[str]:
    """Yield what `--check` found, and the code that a DeepSpeed file needs in addition."""
    from autotune.export import making
    from autotune.export.deepspeed import lines_beside
    from autotune.export.programs import emitter
    from autotune.harmless import comment

    if check and framework is not None:
        made = emitter(framework)
        yield making.check(made.MADE, made.arguments(found))
    for statement in lines_beside(found) if framework is Framework.DEEPSPEED else ():
        yield from (line if line.startswith("#") else comment(line) for line in statement.splitlines())


def _plain(to: str, params: Mapping[str, Value], found: Recipe) -> str:
    from autotune.export.plain import as_json, as_variables, as_yaml

    if to == "json":
        return as_json(params)
    return as_yaml(params, found.remarks) if to == "yaml" else as_variables(params, found.remarks)


def _values(params: Mapping[str, Value], found: Recipe, framework: Framework | None) -> dict[str, Any]:
    """Return the names and values for a file. Raises `UsageError` for a framework that takes code."""
    from autotune.errors import UsageError
    from autotune.export.programs import emitter

    if framework is None:
        return dict(params)
    if framework not in WITH_KEYS:
        raise UsageError(
            f"--to {framework} is code, and --write puts values into a file. Only json, yaml, {', '.join(WITH_KEYS)} "
            f"are values. Use --output for the code, or --to json."
        )
    values: dict[str, Any] = emitter(framework).values(found)
    return values
