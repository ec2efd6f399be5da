"""`autotune best`: the recommendation of a study, or one value of it."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from autotune.cli.output import plain_console
from autotune.harmless import plain


def best(
    study: Annotated[str | None, typer.Argument(help="Folder or name of a study. [default: the newest]")] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", help="Print the value of one knob only: batch_size.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="The whole recommendation as JSON.")] = False,
) -> None:
    """Print the recommended configuration.

    Reads best.json alone.
    """
    from autotune.cli.options import known
    from autotune.core import codec
    from autotune.report.blocks import best_block
    from autotune.study.recommendation import load_result

    result = load_result(study)
    if key is not None:
        value = result.params[known("--key", key)]
        sys.stdout.write((plain(value) if isinstance(value, str) else json.dumps(value)) + "\n")
    elif json_output:
        sys.stdout.write(codec.encode(result).decode())
    else:
        plain_console().print(best_block(result), soft_wrap=True)
