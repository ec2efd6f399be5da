"""`autotune export`: the recommendation in the words of a framework."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from autotune.knobs.wording import Framework

HOMES = {
    Framework.TORCH: "autotune.export.loop",
    Framework.HUGGING_FACE: "autotune.export.huggingface",
    Framework.LIGHTNING: "autotune.export.lightning",
    Framework.ACCELERATE: "autotune.export.accelerate",
    Framework.DEEPSPEED: "autotune.export.deepspeed",
}


def export(
    study: Annotated[str | None, typer.Argument(help="Folder or name of a study. [default: the newest]")] = None,
    to: Annotated[
        str, typer.Option(help="torch, hf (TrainingArguments), lightning, accelerate or deepspeed (JSON).")
    ] = Framework.TORCH.value,
    global_batch: Annotated[
        int | None, typer.Option(help="What was confirmed with so many samples per step. [default: the recommended]")
    ] = None,
    output: Annotated[str | None, typer.Option("--output", "-o", help="A file. [default: standard output]")] = None,
) -> None:
    """Print the recommendation as code for your framework.

    Where a framework has no argument for a setting, the line of code stands beside it.
    """
    from msgspec.structs import replace

    from autotune.cli.options import one_of
    from autotune.cli.output import say, write
    from autotune.export.recipe import recipe
    from autotune.harmless import comment
    from autotune.study.layout import STUDY, find, read_request
    from autotune.study.recommendation import at_global_batch, load_result

    one_of("--to", to, tuple(Framework))
    framework = Framework(to)
    folder = find(study)
    best = at_global_batch(load_result(folder), global_batch)
    if best.facts is None and (folder / STUDY).is_file():  # an earlier version kept them in the study alone
        best = replace(best, facts=read_request(folder).facts)
    found, home = recipe(best, framework), import_module(HOMES[framework])
    text = home.text(found)
    if output is None:
        sys.stdout.write(text)
    else:
        write(Path(output), text)
        say(f"wrote {output}", stderr=True)
    for statement in home.beside(found) if framework is Framework.DEEPSPEED else ():
        for line in statement.splitlines():
            say(comment(line), stderr=True)
